//! What a flooding neighbour does to the others. One node, the hub, is dialled by a flooder and by a quiet node, so that
//! those two share its ROUTER, and dials another quiet one, whose lane is its own. The quiet ones ask it in turn, one
//! request a millisecond together. A rotation is the hub's: from one turn to the next while the flooder is served.
//!
//! The quiet ones and the flooder stand for other machines: they come before all others, and after. A flood takes
//! processors too, from everybody. So the quiet ones ask three times in each round: alone, while the flooder floods a node
//! that they know nothing of, and while it floods the hub. Rounds are short and many, so that what the machine does besides
//! falls on all three alike.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use wakeful::SendError;

use crate::node::{Node, listening, mesh, plain, rid};
use crate::support::histogram::Histogram;
use crate::support::{Part as Stands, be, spare_a_processor, take_the_processor};
use crate::{at, micros, spread};

const PACE: Duration = Duration::from_millis(1);
/// The sleep of whoever has nothing to do.
const SLEEP_MAX: Duration = Duration::from_millis(5);
/// How long a phase lasts before it is measured.
const SETTLING: Duration = Duration::from_millis(100);
/// What the others' p99 may come to, as a share of what it was, beside one rotation.
const MOVED_MAX: f64 = 1.2;
const HUB: usize = 2;
/// Whom the flooder floods in each phase.
const FLOODED: [Option<&str>; 3] = [None, Some("another"), Some("hub")];
const QUIET: [&str; 2] = ["behind its ROUTER", "on a lane of its own"];

/// What the threads share.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// The phase, a place in `FLOODED`; beyond it the flooder ends.
    phase: AtomicUsize,
    /// Records of the flood that the hub took.
    taken: AtomicU64,
    rotations: Mutex<Histogram>,
}

/// What a thread does with its node.
type Part = fn(Node, &Shared);

/// The quiet nodes' round trips.
type Trips = [Vec<Duration>; 2];

/// What one phase of a round showed.
#[derive(Default)]
struct Seen {
    trips: Trips,
    rotations: Histogram,
    /// Records of the flood that the hub took, a second.
    rate: f64,
}

/// One round of all phases.
type Round = [Seen; FLOODED.len()];

pub fn measure(span: Duration, rounds: usize) {
    spare_a_processor();
    let shared = Arc::new(Shared::default());
    // A thread is as nice as the one that makes it, ZeroMQ's with the first lane of a node.
    be(Stands::QuietPeer);
    let (lane, lane_at) = Node::join(listening("lane"));
    be(Stands::Host);
    let (hub, hub_at) = Node::join(listening("hub").peer(lane_at.unwrap()));
    let hub_at = hub_at.unwrap();
    let (another, another_at) = Node::join(listening("another"));
    let parts: [(Node, Part); 2] = [(hub, be_hub), (another, be_another)];
    let others = parts.map(|(node, be)| {
        let shared = shared.clone();
        thread::spawn(move || be(node, &shared))
    });
    let flooder = plain("flooder").peer(hub_at.clone()).peer(another_at.unwrap());
    let flooding = {
        let shared = shared.clone();
        thread::spawn(move || {
            be(Stands::Flooder);
            be_flooder(Node::join(flooder).0, &shared);
        })
    };
    be(Stands::QuietPeer);
    let (beside, _) = Node::join(plain("beside").peer(hub_at));
    let mut quiet = [beside, lane];
    for node in &mut quiet {
        node.await_ready(1);
    }
    let all: Vec<Round> = (0..rounds).map(|number| round(&mut quiet, &shared, span, number)).collect();
    // The flooder goes first: where both ends of a connection close in the middle of a record, libzmq 4.3.4 can abort.
    shared.phase.store(FLOODED.len(), Ordering::Relaxed);
    flooding.join().unwrap();
    shared.stop.store(true, Ordering::Relaxed);
    for thread in others {
        thread.join().unwrap();
    }
    be(Stands::Host);
    assert!(quiet.iter().all(|node| node.seen.lost == 0), "nobody may be lost");
    tell(&all, span);
}

/// The phases in an order that is another in each round, so that none always comes first or behind the same one.
fn round(quiet: &mut [Node; 2], shared: &Shared, span: Duration, number: usize) -> Round {
    let mut seen = Round::default();
    for phase in (0..FLOODED.len()).map(|at| (at + number) % FLOODED.len()) {
        // What is still queued of the last flood is taken first.
        shared.phase.store(0, Ordering::Relaxed);
        ask(quiet, span.min(SETTLING));
        shared.phase.store(phase, Ordering::Relaxed);
        ask(quiet, span.min(SETTLING));
        *shared.rotations.lock().unwrap() = Histogram::default();
        let taken = shared.taken.load(Ordering::Relaxed);
        let trips = ask(quiet, span);
        let taken = shared.taken.load(Ordering::Relaxed) - taken;
        let rotations = shared.rotations.lock().unwrap().clone();
        seen[phase] = Seen { trips, rotations, rate: taken as f64 / span.as_secs_f64() };
    }
    shared.phase.store(0, Ordering::Relaxed);
    seen
}

/// The quiet nodes ask the hub in turn.
fn ask(quiet: &mut [Node; 2], span: Duration) -> Trips {
    let (mesh, hub) = (mesh(), rid("hub"));
    let mut trips = Trips::default();
    let end = Instant::now() + span;
    while Instant::now() < end {
        for (node, times) in quiet.iter_mut().zip(&mut trips) {
            let next = Instant::now() + PACE;
            times.push(node.trip(&mesh, &hub));
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }
    trips
}

fn be_hub(mut hub: Node, shared: &Shared) {
    let mut began = Instant::now();
    let mut was_served = false;
    let mut is_flooded = false;
    while !shared.stop.load(Ordering::Relaxed) {
        if !is_flooded && shared.phase.load(Ordering::Relaxed) != 0 {
            is_flooded = true;
            take_the_processor();
        }
        let now = Instant::now();
        if was_served {
            shared.rotations.lock().unwrap().add(now - began);
        }
        began = now;
        let before = hub.seen.messages;
        let report = hub.engine.turn(&mut hub.seen);
        // With work left it was the flooder's share that ended the turn, not the flood.
        was_served = hub.seen.messages > before && report.work_left;
        shared.taken.store(hub.seen.messages, Ordering::Relaxed);
        if !report.work_left {
            hub.engine.wait(Some(SLEEP_MAX));
        }
    }
}

fn be_another(mut another: Node, shared: &Shared) {
    while !shared.stop.load(Ordering::Relaxed) {
        another.step(SLEEP_MAX);
    }
}

fn be_flooder(mut flooder: Node, shared: &Shared) {
    let mesh = mesh();
    let victims = FLOODED.map(|name| name.map(rid));
    flooder.await_ready(2);
    while let Some(victim) = victims.get(shared.phase.load(Ordering::Relaxed)) {
        let Some(to) = victim else {
            flooder.step(SLEEP_MAX);
            continue;
        };
        // As many as find room, then a turn, so that it answers the hub's asks.
        let sent = (0..1_000).try_for_each(|_| flooder.engine.outbox().send((&mesh, to), &[&[7_u8; 64]]));
        match sent {
            Ok(()) => flooder.step(Duration::ZERO),
            Err(SendError::WouldBlock) => flooder.step(PACE),
            Err(error) => panic!("{error}"),
        }
    }
}

/// The time that 99 of 100 of the times of all these rounds do not exceed.
fn p99<'a>(rounds: impl IntoIterator<Item = &'a Round>, phase: usize, number: usize) -> Duration {
    percentile(rounds, phase, number, 99)
}

fn percentile<'a>(
    rounds: impl IntoIterator<Item = &'a Round>,
    phase: usize,
    number: usize,
    percent: usize,
) -> Duration {
    let trips = rounds.into_iter().flat_map(|round| round[phase].trips[number].iter().copied());
    let mut sorted: Vec<Duration> = trips.collect();
    sorted.sort_unstable();
    at(&sorted, percent)
}

fn tell(all: &[Round], span: Duration) {
    let rounds = all.len();
    println!(
        "\nround trips of quiet nodes to a hub, microseconds, {rounds} rounds of {} s: of all together (min / median / max of \
         the rounds)\n",
        span.as_secs_f64()
    );
    let [alone, another, hub] = ["alone", "another is flooded", "the hub is flooded"];
    println!("| {:>26} | {alone:>34} | {another:>34} | {hub:>34} |", "");
    println!("|---|---:|---:|---:|");
    for (number, name) in QUIET.into_iter().enumerate() {
        for (what, percent) in [("p50", 50), ("p99", 99)] {
            let cells = [0, 1, HUB].map(|phase| {
                let each = all.iter().map(|round| micros(percentile([round], phase, number, percent)));
                format!("{:.0} ({})", micros(percentile(all, phase, number, percent)), spread(each, 0))
            });
            row(&format!("{name}, {what}"), &cells);
        }
    }
    let mut rotations = Histogram::default();
    for round in all {
        rotations.merge(&round[HUB].rotations);
    }
    let rotation = rotations.at(0.99);
    row("rotation of the hub, p99", &[String::new(), String::new(), format!("{:.0}", micros(rotation))]);
    let rates = spread(all.iter().map(|round| round[HUB].rate / 1e3), 0);
    row("flood, krec/s", &[String::new(), String::new(), rates]);
    println!(
        "\np99 of all rounds together, less one rotation, to what it is without a flood of the hub; at most {MOVED_MAX}\n"
    );
    println!("| {:>26} | {:>20} | {:>20} |", "", "to alone", "to another flooded");
    println!("|---|---:|---:|");
    for (number, name) in QUIET.into_iter().enumerate() {
        let moved = micros(p99(all, HUB, number).saturating_sub(rotation));
        let [alone, another] = [0, 1].map(|phase| format!("{:.2}", moved / micros(p99(all, phase, number))));
        println!("| {name:>26} | {alone:>20} | {another:>20} |");
    }
}

fn row(name: &str, [alone, another, hub]: &[String; 3]) {
    println!("| {name:>26} | {alone:>34} | {another:>34} | {hub:>34} |");
}
