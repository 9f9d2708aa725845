//! What liveness costs for 1,000 to 1,000,000 connections: bytes a connection, nanoseconds an ask, an ACK, a verdict and
//! a turn with nothing due. `cargo bench --bench liveness` measures; under `cargo test` it runs tiny, as a check.
//!
//! The structure is private, so its source is compiled in here rather than made public for a bench.
#![allow(dead_code, unreachable_pub, missing_docs)]
#![expect(
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a bench measures time and divides it"
)]

#[path = "../src/clock.rs"]
mod clock;
#[path = "../src/liveness/mod.rs"]
mod liveness;

use std::hint::black_box;
use std::time::{Duration, Instant};

use clock::{ClockTime, Moment, Watch};
use liveness::{CHECK_INTERVAL, CheckKey, Due, Liveness, Look, Verdict};

/// Times `work` and returns nanoseconds for each of `count`; fails if it allocated.
fn lean(count: usize, work: impl FnOnce()) -> f64 {
    let mut spent = Duration::ZERO;
    let allocations = allocation_counter::measure(|| {
        let begin = Instant::now();
        work();
        spent = begin.elapsed();
    });
    assert_eq!(allocations.count_total, 0, "a steady state allocates nothing");
    spent.as_nanos() as f64 / count as f64
}

struct Bench {
    liveness: Liveness,
    watch: Watch,
    moment: Moment,
    keys: Vec<CheckKey>,
    /// The asks that wait for an answer, in the order in which they went out.
    asked: Vec<(CheckKey, u64)>,
}

impl Bench {
    /// `count` connections that became ready evenly over one interval. Returns heap bytes a connection with it.
    fn new(count: usize) -> (Self, f64) {
        let watch = Watch::start(ClockTime::START);
        let moment = watch.moment();
        let asked = Vec::with_capacity(count);
        let mut bench =
            Self { liveness: Liveness::new(), watch, moment, keys: Vec::with_capacity(count), asked };
        let heap = allocation_counter::measure(|| {
            for owner in 0..count {
                bench.pass(CHECK_INTERVAL / count as u32);
                let (key, id) = bench.liveness.begin(owner as u32, &bench.moment);
                bench.liveness.taken(key);
                bench.keys.push(key);
                bench.asked.push((key, id));
            }
        });
        (bench, heap.bytes_current as f64 / count as f64)
    }

    fn pass(&mut self, gap: Duration) {
        self.moment = self.watch.advance(self.moment.now.plus(gap));
    }

    /// All that is due now goes out and is taken.
    fn sweep(&mut self) {
        let mut sweep = self.liveness.sweep(&self.moment);
        while let Some(due) = self.liveness.next_due(&mut sweep) {
            if let Due::Ask { key, id, .. } = due {
                self.liveness.taken(key);
                self.asked.push((key, id));
            }
        }
    }

    /// One interval in turns of some twenty asks each; every connection is asked once.
    fn interval(&mut self) {
        let turns = self.keys.len() as u32 / 20;
        for _ in 0..turns {
            self.pass(CHECK_INTERVAL / turns);
            self.sweep();
        }
    }

    /// Every outstanding ask is answered, in the order of `self.asked`.
    fn answer(&mut self) {
        for (key, id) in self.asked.drain(..) {
            assert!(self.liveness.answer(key, id, &self.moment));
        }
    }

    fn shuffle(&mut self) {
        let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
        for place in (1..self.asked.len()).rev() {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            self.asked.swap(place, (seed % (place as u64 + 1)) as usize);
        }
    }
}

/// One row: bytes a connection, then nanoseconds an ask, an ACK in order, an ACK out of order, an idle turn, a verdict.
fn measure(count: usize) -> [f64; 6] {
    let (mut bench, bytes) = Bench::new(count);
    bench.answer();
    bench.interval();
    assert_eq!(bench.asked.len(), count);
    bench.answer();

    let ask = lean(count, || bench.interval());
    let ack = lean(count, || bench.answer());
    bench.interval();
    bench.shuffle();
    let ack_shuffled = lean(count, || bench.answer());
    let mut verdicts: Vec<Verdict> = Vec::with_capacity(count);
    let turns = 100_000.min(count * 10);
    let idle = lean(turns, || {
        for _ in 0..turns {
            bench.sweep();
            bench.liveness.judge(&bench.moment, |_| Look::Empty, &mut verdicts);
            black_box(bench.liveness.wanted(&bench.moment));
        }
    });
    assert_eq!(verdicts.len(), 0);

    // Nobody answers any more: 16 s on, all are judged.
    bench.asked = Vec::with_capacity(5 * count);
    (0..4).for_each(|_| bench.interval());
    bench.liveness.judge(&bench.moment, |_| Look::Empty, &mut verdicts);
    bench.pass(Duration::from_secs(1));
    let verdict =
        lean(count, || while bench.liveness.judge(&bench.moment, |_| Look::Empty, &mut verdicts) {});
    assert_eq!((verdicts.len(), bench.liveness.len()), (count, 0));
    [bytes, ask, ack, ack_shuffled, idle, verdict]
}

fn main() {
    let full = std::env::args().any(|arg| arg == "--bench");
    let (counts, rounds): (&[usize], _) =
        if full { (&[1_000, 10_000, 100_000, 1_000_000], 5) } else { (&[1_000], 1) };
    println!("min / median / max of {rounds} rounds; bytes a connection, otherwise nanoseconds each");
    println!(
        "{:>11} {:>22} {:>22} {:>22} {:>22} {:>22} {:>22}",
        "connections", "bytes", "ask", "ACK", "ACK shuffled", "idle turn", "verdict"
    );
    for &count in counts {
        let rows: Vec<[f64; 6]> = (0..rounds).map(|_| measure(count)).collect();
        print!("{count:>11}");
        for column in 0..6 {
            let mut values: Vec<f64> = rows.iter().map(|row| row[column]).collect();
            values.sort_by(f64::total_cmp);
            let (low, middle, high) = (values[0], values[rounds / 2], values[rounds - 1]);
            print!(" {:>22}", format!("{low:.1} / {middle:.1} / {high:.1}"));
        }
        println!();
    }
}
