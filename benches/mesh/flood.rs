//! What a flooding neighbour does to the others. One node, the hub, is dialled by a flooder and by a quiet node, so that
//! those two share its ROUTER, and dials another quiet one, whose lane is its own. The quiet ones ask it in turn, one
//! request a millisecond together. A rotation is the hub's: from one turn to the next while the flooder is served.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use wakeful::SendError;

use crate::node::{Node, listening, mesh, plain, rid};
use crate::support::histogram::Histogram;
use crate::{at, micros, spread};

const PACE: Duration = Duration::from_millis(1);
/// The sleep of whoever has nothing to do.
const SLEEP_MAX: Duration = Duration::from_millis(5);
/// What a flooding neighbour may add to the others' p99 beyond one rotation, as a share of it.
const ADDED_MAX: f64 = 0.2;
const QUIET: [&str; 2] = ["behind its ROUTER", "on a lane of its own"];

/// What the threads share.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    flood: AtomicBool,
    flooded: AtomicU64,
    rotations: Mutex<Histogram>,
}

/// The quiet nodes' round trips in one phase, sorted.
type Trips = [Vec<Duration>; 2];

/// One round: alone, then flooded.
struct Round {
    alone: Trips,
    flooded: Trips,
    rotation: Duration,
    /// Records of the flood that the hub took, a second.
    rate: f64,
}

pub fn measure(span: Duration, rounds: usize) {
    let shared = Arc::new(Shared::default());
    let (lane, lane_at) = Node::join(listening("lane"));
    let (hub, hub_at) = Node::join(listening("hub").peer(lane_at.unwrap()));
    let hub_at = hub_at.unwrap();
    let (beside, _) = Node::join(plain("beside").peer(hub_at.clone()));
    let (flooder, _) = Node::join(plain("flooder").peer(hub_at));
    let threads = [
        thread::spawn({
            let shared = shared.clone();
            move || be_hub(hub, &shared)
        }),
        thread::spawn({
            let shared = shared.clone();
            move || be_flooder(flooder, &shared)
        }),
    ];
    let mut quiet = [beside, lane];
    for node in &mut quiet {
        node.await_ready(1);
    }
    ask(&mut quiet, span.min(Duration::from_millis(200)));
    let all: Vec<Round> = (0..rounds).map(|_| round(&mut quiet, &shared, span)).collect();
    shared.stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(quiet.iter().all(|node| node.seen.lost == 0), "nobody may be lost");
    tell(&all, span);
}

fn round(quiet: &mut [Node; 2], shared: &Shared, span: Duration) -> Round {
    let alone = ask(quiet, span);
    let taken = shared.flooded.load(Ordering::Relaxed);
    *shared.rotations.lock().unwrap() = Histogram::default();
    shared.flood.store(true, Ordering::Relaxed);
    let flooded = ask(quiet, span);
    shared.flood.store(false, Ordering::Relaxed);
    let rotation = shared.rotations.lock().unwrap().at(0.99);
    let rate = (shared.flooded.load(Ordering::Relaxed) - taken) as f64 / span.as_secs_f64();
    // What is still queued is taken before the next phase.
    ask(quiet, span.min(Duration::from_millis(100)));
    Round { alone, flooded, rotation, rate }
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
    for times in &mut trips {
        times.sort_unstable();
    }
    trips
}

fn be_hub(mut hub: Node, shared: &Shared) {
    let mut began = Instant::now();
    let mut was_served = false;
    while !shared.stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        if was_served {
            shared.rotations.lock().unwrap().add(now - began);
        }
        began = now;
        let before = hub.seen.messages;
        let report = hub.engine.turn(&mut hub.seen);
        // With work left it was the flooder's share that ended the turn, not the flood.
        was_served = hub.seen.messages > before && report.work_left;
        shared.flooded.store(hub.seen.messages, Ordering::Relaxed);
        if !report.work_left {
            hub.engine.wait(Some(SLEEP_MAX));
        }
    }
}

fn be_flooder(mut flooder: Node, shared: &Shared) {
    let (mesh, hub) = (mesh(), rid("hub"));
    flooder.await_ready(1);
    while !shared.stop.load(Ordering::Relaxed) {
        if !shared.flood.load(Ordering::Relaxed) {
            flooder.step(SLEEP_MAX);
            continue;
        }
        // As many as find room, then a turn, so that it answers the hub's asks.
        let sent = (0..1_000).try_for_each(|_| flooder.engine.outbox().send((&mesh, &hub), &[&[7_u8; 64]]));
        match sent {
            Ok(()) => flooder.step(Duration::ZERO),
            Err(SendError::WouldBlock) => flooder.step(PACE),
            Err(error) => panic!("{error}"),
        }
    }
}

fn tell(all: &[Round], span: Duration) {
    let rounds = all.len();
    println!(
        "\nround trips to a node that a neighbour floods, microseconds: min / median / max of {rounds} rounds of {} s",
        span.as_secs_f64()
    );
    println!("{:>22} {:>5} {:>28} {:>28} {:>26}", "quiet node", "", "alone", "flooded", "flooded / alone");
    for (number, name) in QUIET.into_iter().enumerate() {
        for (what, percent) in [("p50", 50), ("p99", 99)] {
            let alone = |round: &Round| micros(at(&round.alone[number], percent));
            let flooded = |round: &Round| micros(at(&round.flooded[number], percent));
            println!(
                "{name:>22} {what:>5} {:>28} {:>28} {:>26}",
                spread(all.iter().map(alone), 1),
                spread(all.iter().map(flooded), 1),
                spread(all.iter().map(|round| flooded(round) / alone(round)), 3)
            );
        }
    }
    println!(
        "{:>28} {:>28}",
        "rotation of the hub, p99",
        spread(all.iter().map(|round| micros(round.rotation)), 1)
    );
    println!("{:>28} {:>28}", "flood, krec/s", spread(all.iter().map(|round| round.rate / 1e3), 1));
    for (number, name) in QUIET.into_iter().enumerate() {
        let holds = |round: &&Round| {
            let [alone, flooded] = [&round.alone, &round.flooded].map(|trips| at(&trips[number], 99));
            flooded <= alone.mul_f64(1.0 + ADDED_MAX) + round.rotation
        };
        let count = all.iter().filter(holds).count();
        println!("p99 {name}: within {ADDED_MAX} and one rotation of it alone in {count} of {rounds} rounds");
    }
}
