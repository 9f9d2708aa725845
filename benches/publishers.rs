//! What a crowd of publishers does to the quiet ones among them (CASES 16): 500 publishers, of which 400 flood, and one
//! subscriber. Are the 100 quiet ones' beacons seen within a rotation, and is nobody judged? `cargo bench --bench
//! publishers` watches for 5 minutes, `-- --seconds N` for N seconds; under `cargo test` it runs tiny, as a check.
//!
//! A beacon reaches no handler, so it is known by the snapshot, which tells when a publisher's last record came. When
//! it was due is known by the grid of its publisher. Its delay is all that lies between: a late publishing thread,
//! ZeroMQ's threads, and the rotation. The rotation is measured by one flooding publisher, from turn to turn in which
//! it is served.
#![expect(
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a bench measures time and divides it"
)]

use std::env;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use wakeful::{
    CHECK_INTERVAL, ChannelName, Config, Endpoint, Engine, Event, Host, Outbox, PEER_DEADLINE, Publisher,
    Subscriber,
};

const TOPIC: &[u8] = b"noise";
const RECORD: [u8; 64] = [7; 64];
/// How often the snapshot is taken: well within an interval, so that it misses no beacon.
const SAMPLE: Duration = Duration::from_secs(1);
/// How long the last beacon that is due may take.
const LATE: Duration = Duration::from_secs(2);

struct Size {
    flooding: usize,
    quiet: usize,
    span: Duration,
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let after = |flag: &str| arguments.iter().position(|argument| argument == flag);
    let full = after("--bench").is_some();
    let mut size = if full {
        Size { flooding: 400, quiet: 100, span: Duration::from_secs(300) }
    } else {
        Size { flooding: 16, quiet: 4, span: Duration::from_secs(2) }
    };
    if let Some(at) = after("--seconds") {
        let seconds = arguments.get(at + 1).and_then(|text| text.parse().ok());
        size.span = Duration::from_secs(seconds.expect("--seconds takes a whole number"));
    }
    let Size { flooding, quiet, span } = size;
    println!("{flooding} flooding and {quiet} quiet publishers, one subscriber, for {} s", span.as_secs());
    measure(&size);
}

fn measure(size: &Size) {
    let stop = Arc::new(AtomicBool::new(false));
    let (noise, flooding) = flood(size.flooding, &stop);
    let (silence, quiet, began) = keep_quiet(size.quiet, &stop);

    let mut engine = Engine::new(Config::default()).unwrap();
    let crowd = flooding.iter().chain(&quiet).cloned();
    engine.subscribe(crowd.fold(Subscriber::new(channel(0)).filter(TOPIC), Subscriber::publisher)).unwrap();
    let mut ear = Ear { witness: flooding[0].clone(), served: false, records: 0, ready: 0, lost: 0 };
    await_all(&mut engine, &mut ear, flooding.len() + quiet.len());

    let phase = |number: usize| began + phase(number, size.quiet);
    let mut beacons: Vec<Beacons> =
        (0..).zip(quiet).map(|(number, endpoint)| Beacons::new(endpoint, phase(number))).collect();
    let seen = watch(&mut engine, &mut ear, &mut beacons, size.span);
    stop.store(true, Ordering::Relaxed);
    let published = noise.join().unwrap();
    let longest = silence.join().unwrap();

    println!("{} contexts of ZeroMQ at the subscriber", engine.snapshot().contexts);
    println!("{published} records published, {} received", ear.records);
    println!("{:.1} ms at most between two turns of the quiet publishers", longest.as_secs_f64() * 1e3);
    tell(seen, &beacons, ear.lost);
}

// ---- The publishers ----

/// An engine has one publisher for each channel; on the wire a channel's name says nothing.
fn channel(number: usize) -> ChannelName {
    ChannelName::new(&format!("channel-{number}")).unwrap()
}

fn broadcast(engine: &mut Engine, number: usize) -> Endpoint {
    let publisher = Publisher::new(channel(number), "tcp://127.0.0.1:0".parse().unwrap());
    Endpoint::try_from(&engine.broadcast(publisher).unwrap()).unwrap()
}

/// Publishers that publish as fast as they can, in turn. The thread returns how many records that were.
fn flood(count: usize, stop: &Arc<AtomicBool>) -> (JoinHandle<u64>, Vec<Endpoint>) {
    let mut engine = Engine::new(Config::default()).unwrap();
    let endpoints = (0..count).map(|number| broadcast(&mut engine, number)).collect();
    let channels: Vec<ChannelName> = (0..count).map(channel).collect();
    let stop = stop.clone();
    let thread = thread::spawn(move || {
        let mut published = 0;
        while !stop.load(Ordering::Relaxed) {
            let mut outbox = engine.outbox();
            for channel in &channels {
                outbox.publish(channel, TOPIC, &[&RECORD]).unwrap();
                published += 1;
            }
            drop(outbox);
            engine.turn(&mut nobody);
        }
        published
    });
    (thread, endpoints)
}

/// Publishers that send their beacons and nothing else, spread over the interval; and where the first one's grid begins.
/// The thread returns the longest time between two of its turns.
fn keep_quiet(count: usize, stop: &Arc<AtomicBool>) -> (JoinHandle<Duration>, Vec<Endpoint>, Instant) {
    let mut engine = Engine::new(Config::default()).unwrap();
    // A publisher's grid begins in the last turn before it is made. To spread them without waiting, this engine's time
    // runs ahead by one interval, which moves no beacon: it is the same grid.
    let began = Instant::now();
    let mut endpoints = Vec::with_capacity(count);
    for number in 0..count {
        engine.turn_at(began + phase(number, count), &mut nobody);
        endpoints.push(broadcast(&mut engine, number));
    }
    let stop = stop.clone();
    let thread = thread::spawn(move || {
        let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
        while !stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
            let now = Instant::now();
            longest = longest.max(now - last);
            last = now;
            engine.turn_at(now + CHECK_INTERVAL, &mut nobody);
        }
        longest
    });
    (thread, endpoints, began)
}

/// The host of a publisher, which hears of nothing.
fn nobody(_: Event<'_>, _: &mut Outbox<'_>) {}

/// Where in the interval the beacon of a quiet publisher lies.
fn phase(number: usize, count: usize) -> Duration {
    CHECK_INTERVAL.mul_f64(number as f64 / count as f64)
}

// ---- The subscriber ----

/// The subscriber's host.
struct Ear {
    /// A flooding publisher that the rotation is measured by.
    witness: Endpoint,
    /// Whether it was served in this turn.
    served: bool,
    records: u64,
    ready: usize,
    lost: usize,
}

impl Host for Ear {
    fn on_event(&mut self, event: Event<'_>, _: &mut Outbox<'_>) {
        match event {
            Event::Published { publisher, .. } => {
                self.records += 1;
                self.served |= *publisher.endpoint() == self.witness;
            }
            Event::PublisherReady { .. } => self.ready += 1,
            Event::PublisherLost { publisher, reason } => {
                println!("LOST {}: {reason:?}", publisher.endpoint());
                self.lost += 1;
            }
            _ => {}
        }
    }
}

/// Turns until all publishers are ready.
fn await_all(engine: &mut Engine, ear: &mut Ear, count: usize) {
    let began = Instant::now();
    while ear.ready < count {
        assert!(began.elapsed() < 4 * PEER_DEADLINE, "{} of {count} are ready", ear.ready);
        if !engine.turn(ear).work_left {
            engine.wait(Some(Duration::from_millis(10)));
        }
    }
    println!("all ready after {:.1} s", began.elapsed().as_secs_f64());
    ear.records = 0;
}

/// What is known of one quiet publisher's beacons.
struct Beacons {
    endpoint: Endpoint,
    /// One of the moments when one is due.
    phase: Instant,
    last_came: Option<Instant>,
    /// When each was due, and when it came.
    seen: Vec<Range<Instant>>,
}

impl Beacons {
    fn new(endpoint: Endpoint, phase: Instant) -> Self {
        Self { endpoint, phase, last_came: None, seen: Vec::new() }
    }

    /// Takes down that one came, unless it is the one known before or was not due in this span. It counts as come when the
    /// turn began in which it was read; that can be just before it was due, so it belongs to the nearest such moment.
    fn came(&mut self, at: Instant, span: &Range<Instant>) {
        let number = (at - self.phase).as_secs_f64() / CHECK_INTERVAL.as_secs_f64();
        let due = self.phase + CHECK_INTERVAL * number.round() as u32;
        let is_new = self.last_came.replace(at) != Some(at);
        if is_new && span.contains(&due) {
            self.seen.push(due..at.max(due));
        }
    }

    /// Names each that was due in this span and not seen.
    fn tell_missing(&self, number: usize, span: &Range<Instant>) {
        let mut due = self.phase + CHECK_INTERVAL * self.before(span.start) as u32;
        while due < span.end {
            if !self.seen.iter().any(|seen| seen.start == due) {
                let second = (due - span.start).as_secs_f64();
                println!("quiet publisher {number}: the beacon due at {second:.3} s was not seen");
            }
            due += CHECK_INTERVAL;
        }
    }

    /// How many were due before this moment.
    fn before(&self, at: Instant) -> usize {
        (at - self.phase).as_nanos().div_ceil(CHECK_INTERVAL.as_nanos()) as usize
    }

    /// How many were due in this span.
    fn due(&self, span: &Range<Instant>) -> usize {
        self.before(span.end) - self.before(span.start)
    }
}

/// What was seen while it was watched, but for the beacons.
struct Seen {
    span: Range<Instant>,
    turns: Vec<Duration>,
    /// The same in processor time: on a busy machine more telling than the time on the wall.
    turns_cpu: Vec<Duration>,
    /// When the flooding publisher that the rotation is measured by was served.
    rounds: Vec<Instant>,
}

fn watch(engine: &mut Engine, ear: &mut Ear, beacons: &mut [Beacons], span: Duration) -> Seen {
    let since = Instant::now();
    let mut seen =
        Seen { span: since..since + span, turns: Vec::new(), turns_cpu: Vec::new(), rounds: Vec::new() };
    let mut sample = since + SAMPLE;
    loop {
        let now = Instant::now();
        ear.served = false;
        let cpu = cpu_time();
        let report = engine.turn_at(now, ear);
        seen.turns.push(now.elapsed());
        seen.turns_cpu.push(cpu_time() - cpu);
        if ear.served {
            seen.rounds.push(now);
        }
        if now >= sample {
            sample = now + SAMPLE;
            for each in engine.snapshot().sources {
                let of = beacons.iter_mut().find(|beacons| beacons.endpoint == *each.source.endpoint());
                if let (Some(beacons), Some(age)) = (of, each.last_received) {
                    beacons.came(now - age, &seen.span);
                }
            }
            // The last one that is due has time to come, and to be sampled.
            if now >= seen.span.end + LATE {
                return seen;
            }
        }
        if !report.work_left {
            engine.wait(Some(Duration::from_millis(10)));
        }
    }
}

/// How long this thread has run on a processor.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

/// Prints what was seen, and fails if it is not as it must be.
fn tell(mut seen: Seen, beacons: &[Beacons], lost: usize) {
    let beacon_spans: Vec<_> = beacons.iter().flat_map(|beacons| &beacons.seen).collect();
    let mut delays: Vec<Duration> = beacon_spans.iter().map(|span| span.end - span.start).collect();
    let mut rotations: Vec<Duration> = seen.rounds.windows(2).map(|pair| pair[1] - pair[0]).collect();
    row("turn", &mut seen.turns);
    row("turn, processor time", &mut seen.turns_cpu);
    row("rotation", &mut rotations);
    row("delay of a quiet beacon", &mut delays);
    // A record that is there is taken before the flooding publisher is served for the second time.
    let rounds = |span: &Range<Instant>| {
        let before = |at: Instant| seen.rounds.partition_point(|round| *round < at);
        before(span.end) - before(span.start)
    };
    let within = |most: usize| beacon_spans.iter().filter(|span| rounds(span) <= most).count();
    let due: usize = beacons.iter().map(|beacons| beacons.due(&seen.span)).sum();
    println!(
        "{due} quiet beacons due, {} seen, {} within one rotation, {} within two",
        delays.len(),
        within(1),
        within(2)
    );
    for (number, each) in (0..).zip(beacons) {
        each.tell_missing(number, &seen.span);
    }
    println!("{lost} verdicts");
    assert!(due > 0 && delays.len() == due, "every beacon must be seen");
    assert_eq!(lost, 0, "nobody may be judged");
}

/// Sorts the values and prints how they are spread, in milliseconds.
fn row(what: &str, values: &mut [Duration]) {
    values.sort_unstable();
    let at = |share: f64| {
        let index = (values.len() as f64 * share) as usize;
        values.get(index.min(values.len().saturating_sub(1))).map_or(0.0, |value| value.as_secs_f64() * 1e3)
    };
    println!(
        "{what:>24}: {:9.3} min {:9.3} median {:9.3} p99 {:9.3} max ms of {}",
        at(0.0),
        at(0.5),
        at(0.99),
        at(1.0),
        values.len()
    );
}
