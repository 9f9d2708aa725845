//! What a mesh costs and how its nodes get along, three parts:
//! * `ready`: how long 2, 8 and 16 nodes take until every pair of them is ready on both sides, where the later one dials and
//!   where both do
//! * `trips`: round trips of requests from node to node, beside a raw loop over the same four ROUTER sockets (requests by
//!   the one pair of them, replies by the other), alternating
//! * `flood`: round trips of two quiet nodes to a third, alone, beside a flood of others, and while a neighbour floods it,
//!   alternating
//!
//! `cargo bench --bench mesh` measures, `-- --only PART` one of them, `--rounds N` in so many rounds, `--seconds N` with
//! so long a flood in each, `--pin` with a processor for the loop of the flooded node alone. Under `cargo test` it runs tiny.
#![expect(
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a bench measures time and divides it"
)]

#[path = "../support/mod.rs"]
mod support;

mod flood;
mod node;
mod raw;
mod ready;

use std::time::Duration;

use support::{flag, option};

fn main() {
    let full = flag("--bench");
    let only: Option<String> = option("--only");
    let is_wanted = |part: &str| only.as_ref().is_none_or(|only| only == part);
    let rounds = |default| option("--rounds").unwrap_or(if full { default } else { 1 });
    if is_wanted("ready") {
        ready::measure(if full { &[2, 8, 16] } else { &[2, 4] }, rounds(7));
    }
    if is_wanted("trips") {
        trips(if full { 10_000 } else { 50 }, rounds(9));
    }
    if is_wanted("flood") {
        let seconds = option("--seconds").unwrap_or(if full { 1.0 } else { 0.2 });
        flood::measure(Duration::from_secs_f64(seconds), rounds(15));
    }
}

/// Round trips of so many requests of 64 bytes in each round.
fn trips(count: usize, rounds: usize) {
    let all: Vec<[Vec<Duration>; 2]> = (0..rounds).map(|_| [raw::trips(count), node::trips(count)]).collect();
    println!("\nround trips, microseconds: min / median / max of {rounds} rounds of {count}\n");
    println!("| {:>4} | {:>24} | {:>24} | {:>21} |", "", "raw ROUTER-ROUTER", "mesh", "mesh / raw");
    println!("|---|---:|---:|---:|");
    for (what, percent) in [("p50", 50), ("p99", 99)] {
        let pairs: Vec<[f64; 2]> =
            all.iter().map(|ends| ends.each_ref().map(|times| micros(at(times, percent)))).collect();
        let raw = spread(pairs.iter().map(|pair| pair[0]), 1);
        let mesh = spread(pairs.iter().map(|pair| pair[1]), 1);
        let ratio = spread(pairs.iter().map(|pair| pair[1] / pair[0]), 3);
        println!("| {what:>4} | {raw:>24} | {mesh:>24} | {ratio:>21} |");
    }
}

/// The time that so many of a hundred of the sorted times do not exceed.
fn at(sorted: &[Duration], percent: usize) -> Duration {
    sorted.get(sorted.len() * percent / 100).copied().unwrap_or_default()
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// How values are spread, with so many digits after the point.
fn spread(values: impl Iterator<Item = f64>, digits: usize) -> String {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let (low, middle, high) = (sorted[0], sorted[sorted.len() / 2], sorted[sorted.len() - 1]);
    format!("{low:.digits$} / {middle:.digits$} / {high:.digits$}")
}
