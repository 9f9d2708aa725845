//! A publisher that floods, a handler that is slow, and both: what they cost the publisher beside them (000 §4).
#![allow(clippy::disallowed_methods, reason = "shares are real time")]

use std::io::Write;
use std::net::TcpStream;
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use wakeful::{Config, Endpoint, Event, Host, Outbox, Owned, Subscriber};

use crate::support::{Node, ms, s};
use crate::ticks::{PAYLOAD, TOPIC, ticks};
use crate::zmtp::{Trap, record};

/// Records that the quiet publisher sends at once: more than one share.
const BATCH: usize = 70;
const BATCHES: usize = 2;

/// A host that spends so much real time on each record.
struct Slow {
    handling: Duration,
    quiet: Endpoint,
    /// Whose records it was given, in order: the quiet publisher's, or the flood's.
    quiets: Vec<bool>,
    ready: usize,
    lost: Vec<Owned>,
}

impl Host for Slow {
    fn on_event(&mut self, event: Event<'_>, _: &mut Outbox<'_>) {
        match event {
            Event::Published { publisher, .. } => {
                let begin = Instant::now();
                while begin.elapsed() < self.handling {
                    std::hint::spin_loop();
                }
                self.quiets.push(*publisher.endpoint() == self.quiet);
            }
            Event::PublisherReady { .. } => self.ready += 1,
            _ => self.lost.push(event.into()),
        }
    }
}

/// A subscriber with a slow host between two publishers.
struct Field {
    node: Node,
    host: Slow,
    quiet: TcpStream,
    flooding: JoinHandle<()>,
}

impl Field {
    /// One floods already, with records of this size; the other has sent a beacon. Both are bare streams: there the flood
    /// waits where a publisher would drop, so there is always more of it, and what is written at once arrives at once.
    fn new(body: usize, handling: Duration) -> Self {
        let [loud, quiet] = [Trap::new(), Trap::new()];
        let wish = Subscriber::new(ticks()).filter(b"flood").filter(b"quiet");
        let wish = wish.publisher(loud.endpoint.clone()).publisher(quiet.endpoint.clone());
        // A batch finds room even while ZeroMQ owes half of it; and records of 1 MiB fill no more than that many MiB.
        let queue_records_max = 2 * BATCH as u16;
        let mut node = Node::with(Config { queue_records_max, seed: 1, ..Config::default() });
        node.engine.subscribe(wish).unwrap();
        let mut streams = [&loud, &quiet].map(|trap| trap.met(&mut node));
        for stream in &mut streams {
            stream.write_all(&record(&[TOPIC, PAYLOAD])).unwrap();
        }
        let [mut loud, quiet_stream] = streams;
        let flood = record(&[b"flood", &vec![7; body]]).repeat((64 << 10) / body + 1);
        let flooding = spawn(move || while loud.write_all(&flood).is_ok() {});
        let quiet_endpoint = quiet.endpoint;
        let host = Slow { handling, quiet: quiet_endpoint, quiets: Vec::new(), ready: 0, lost: Vec::new() };
        let mut field = Self { node, host, quiet: quiet_stream, flooding };
        field.until("the flood is one", |host| host.ready == 2 && host.quiets.len() > BATCH);
        field
    }

    /// Turns without time passing.
    fn until(&mut self, what: &str, mut done: impl FnMut(&Slow) -> bool) {
        let begin = Instant::now();
        while !done(&self.host) {
            self.node.engine.turn_at(self.node.now, &mut self.host);
            assert!(begin.elapsed() < s(10), "not in 10 s: {what}");
        }
    }

    /// The quiet publisher sends a batch with a beacon behind it. Returns how many records of the flood came between any two
    /// of that batch at most.
    fn batch(&mut self) -> usize {
        let batch = record(&[b"quiet", b"record"]).repeat(BATCH);
        self.quiet.write_all(&[batch, record(&[TOPIC, PAYLOAD])].concat()).unwrap();
        self.host.quiets.clear();
        let count = |host: &Slow| host.quiets.iter().filter(|quiet| **quiet).count();
        self.until("the whole batch", |host| count(host) == BATCH);
        let between = self.host.quiets.split(|quiet| *quiet).skip(1);
        between.map(<[bool]>::len).max().unwrap()
    }
}

/// What is there of a quiet publisher is taken after one share of each other one at most: 64 records, or as many as cross
/// 256 KiB or 250 µs, whichever is first. A record of 1 MiB is a share, and so is one that is handled for 2 ms. Nobody is
/// lost meanwhile, though nothing but the batches keeps the quiet one alive.
#[test]
fn a_flood_and_a_slow_handler_keep_a_quiet_publisher_waiting_for_one_share_at_most() {
    for (body, handling, share) in [(1 << 20, ms(2), 1), (64, ms(2), 1), (1 << 20, ms(0), 1), (64, ms(0), 64)]
    {
        let mut field = Field::new(body, handling);
        for _ in 0..BATCHES {
            let most = field.batch();
            assert!(most <= share, "{most} records of {body} bytes, handled for {handling:?}, came between");
            for _ in 0..14 {
                field.node.now += s(1);
                let before = field.host.quiets.len();
                field.until("the flood goes on", |host| host.quiets.len() > before);
            }
        }
        assert_eq!(field.host.lost, []);
        assert_eq!(field.node.engine.snapshot().sources.len(), 2);
        drop(field.node);
        field.flooding.join().unwrap();
    }
}
