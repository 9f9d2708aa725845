//! A pipe that the host keeps full never costs a peer its check signal, as long as that peer drains it (DESIGN §2). How
//! fast it must drain is measured here, in virtual time, kernel buffers included.

use std::time::{Duration, Instant};

use wakeful::{Config, LostReason, Owned, SendError, Silence};

use crate::support::*;

/// A client that fills its pipe in every turn, and a server that handles so many records a second of 64 bytes each.
struct Flood {
    server: Node,
    client: Node,
    payload: [u8; 64],
    sent: u64,
    blocked: u64,
    handled: u64,
}

impl Flood {
    fn new() -> Self {
        // Only the count cap may stop a batch, so that a turn of the server is worth 64 records.
        let config = Config { receive_time_max: ms(10), turn_time_max: ms(20), seed: 7, ..Config::default() };
        let mut server = Node::with(config);
        let bind = "tcp://127.0.0.1:0".parse().unwrap();
        let bound = server.engine.serve(wakeful::Server::new(channel(), rid("server"), bind)).unwrap();
        let mut client = Node::client("client", &wakeful::Endpoint::try_from(&bound).unwrap());
        until(&mut [&mut server, &mut client], "both ready", |nodes| {
            nodes.iter().all(|node| node.ready_peers() == 1)
        });
        settle(&mut [&mut server, &mut client]);
        server.events();
        client.events();
        Self { server, client, payload: [7; 64], sent: 0, blocked: 0, handled: 0 }
    }

    /// Sends until there is no room.
    fn fill(&mut self) {
        let mut outbox = self.client.engine.outbox();
        loop {
            match outbox.send(&channel(), &[&self.payload]) {
                Ok(()) => self.sent += 1,
                Err(SendError::WouldBlock) => break self.blocked += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Fills everything there is, the kernel's buffers too, while the server does not read at all and no time passes.
    fn fill_up(&mut self) {
        let mut quiet_since = Instant::now();
        while quiet_since.elapsed() < ms(100) {
            let before = self.sent;
            self.fill();
            self.client.turn();
            if self.sent > before {
                quiet_since = Instant::now();
            }
        }
    }

    /// Some batches of 64 records at the server and one turn of the client, `step` later. Returns why either lost the
    /// other, if one did.
    fn step(&mut self, batches: u32, step: Duration) -> Option<LostReason> {
        self.client.now += step;
        self.server.now += step;
        self.read(batches);
        self.client.turn();
        if let Some(lost) = lost(&self.server.events()).or_else(|| lost(&self.client.events())) {
            return Some(lost);
        }
        self.fill();
        // A moment of real time for ZeroMQ's threads.
        self.client.engine.wait(Some(Duration::from_micros(100)));
        None
    }

    /// The server handles some batches of 64 records.
    fn read(&mut self, batches: u32) {
        for _ in 0..batches {
            self.handled += u64::from(self.server.turn().records);
            self.server.inbox.events.retain(|event| !matches!(event, Owned::Message { .. }));
        }
    }

    /// Drains `rate` records a second for `span` of virtual time.
    fn drain(&mut self, rate: u32, span: Duration) -> Option<LostReason> {
        // At most a second passes from turn to turn, or the rest of it would not be watched.
        let batches = (rate / 640).max(1);
        let step = Duration::from_secs(64) * batches / rate;
        let mut passed = Duration::ZERO;
        while passed < span {
            passed += step;
            if let Some(lost) = self.step(batches, step) {
                return Some(lost);
            }
        }
        None
    }
}

fn lost(events: &[Owned]) -> Option<LostReason> {
    events.iter().find_map(|event| match event {
        Owned::Lost { reason, .. } => Some(*reason),
        _ => None,
    })
}

#[test]
fn while_an_ask_is_owed_the_next_free_slot_is_not_the_payloads() {
    // The same twice, once with an ask that found no slot.
    for is_owed in [false, true] {
        let mut flood = Flood::new();
        flood.fill_up();
        for _ in 0..if is_owed { 5 } else { 0 } {
            flood.client.pass(s(1));
        }
        // The kernel's buffers and both queues drain, so that the client has room again.
        let begin = Instant::now();
        while flood.handled < flood.sent {
            flood.read(1);
            assert!(begin.elapsed() < s(10));
            let sent = flood.sent;
            flood.fill();
            if flood.sent > sent {
                break;
            }
        }
        let had_room = flood.handled < flood.sent;
        assert_eq!(had_room, !is_owed, "payload went out: {had_room}");
        // The turn pays what is owed; then there is room for payload too.
        flood.client.turn();
        flood.fill();
        assert!(flood.handled < flood.sent);
    }
}

/// With the default queues and the kernel's default buffers, as the documentation of `queue_records_max` says.
#[test]
fn a_peer_that_drains_at_the_documented_rate_is_never_judged_however_full_its_pipe() {
    let mut flood = Flood::new();
    flood.fill_up();
    assert_eq!(flood.drain(10_000, s(20)), None);
    assert!(flood.blocked > 100, "the pipe was full all the time");
}

#[test]
fn a_peer_that_hardly_drains_is_judged_and_the_reason_does_not_say_more_than_is_known() {
    let mut flood = Flood::new();
    flood.fill_up();
    let lost = flood.drain(250, s(40));
    let silences = [Silence::NotAskable, Silence::NoAnswer, Silence::NoAnswerUnread];
    assert!(matches!(lost, Some(LostReason::Silence(silence)) if silences.contains(&silence)), "{lost:?}");
}

/// Run alone, in release mode, with `--ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn the_slowest_drain_rate_that_keeps_a_peer_askable() {
    let mut flood = Flood::new();
    flood.fill_up();
    println!("{} records fit between the host and a server that reads none", flood.sent);
    for rate in [250, 1_000, 2_000, 3_000, 4_000, 5_000, 6_000, 8_000] {
        let mut flood = Flood::new();
        flood.fill_up();
        let begin = Instant::now();
        let lost = flood.drain(rate, s(60));
        println!(
            "{rate:>6} a second: {lost:?}; handled {} of {} sent, {} times no room, in {:?}",
            flood.handled,
            flood.sent,
            flood.blocked,
            begin.elapsed()
        );
    }
}
