//! One to three flooders and quiet peers around one host: what the quiet peers notice of the flood. Through one ROUTER
//! all are clients of one server. Through lanes of their own the host subscribes to the flooders and is a client of quiet
//! servers (a server can start nothing, so publishers are what floods a dialled lane). In the fanout all are publishers,
//! one of the flooders with records of 1 MiB.
//!
//! Each scenario runs with the engine and, alternating, with a `zmq::poll` loop over the same sockets that drains each
//! readable one, as a user would write it. `cargo bench --bench flood` measures, with
//! * `-- --seconds N`: how long the engine is watched in each scenario, all rounds together (default 20)
//! * `--baseline-seconds N`: the same for the `zmq::poll` loop (default: the engine's)
//! * `--rounds N` (default 2), `--flooders N` (1 to 3, default 3), `--only TEXT`: the scenarios with this in their name
//! * `--pin`: the host's loop has a processor for itself, whichever end it is (Linux, two processors at least)
//! * `--plot`: draws `benches/plots/flood.svg`
//! * `--sweep`: the engine alone, with one cap at a time at other values, `--seconds` for each (default 5)
//!
//! Under `cargo test` it runs tiny.
//!
//! A round trip is a quiet peer's own: from its probe's sending to its ACK's arrival; what is not answered in the end
//! counts with its age. A delay is from when a quiet peer's message was to be sent until the host has it. Both hold what
//! the machine's scheduler does to a dozen threads.
#![expect(
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a bench measures time and divides it"
)]

#[path = "../support/mod.rs"]
mod support;

mod ends;
mod peers;
mod quiet;
mod run;
mod sweep;

use std::time::Duration;

use run::{End, Outcome, Scenario, Through, run};
use support::plot::{Axis, Line, Plot};
use support::{flag, option};
use wakeful::Config;

const SMALL: usize = 64;
const LARGE: usize = 1 << 20;
const ENDS: [(End, &str); 2] = [(End::Greedy, "zmq::poll"), (End::Engine, "engine")];
const WAYS: [(Through, &str); 2] = [(Through::OneRouter, "one ROUTER"), (Through::OwnLanes, "own lanes")];

/// How long each end is watched in one round.
struct Spans {
    rounds: u32,
    engine: Duration,
    greedy: Duration,
}

fn main() {
    let full = flag("--bench");
    if flag("--sweep") {
        return sweep::run(Duration::from_secs_f64(option("--seconds").unwrap_or(5.0)));
    }
    let seconds = option("--seconds").unwrap_or(if full { 20.0 } else { 0.05 });
    let rounds = option("--rounds").unwrap_or(if full { 2 } else { 1 });
    let each = |seconds| Duration::from_secs_f64(seconds) / rounds;
    let baseline = option("--baseline-seconds").unwrap_or(seconds);
    let only = option("--only").unwrap_or_else(String::new);
    let mut scenarios = scenarios();
    scenarios.retain(|(name, _)| name.contains(&only) && (full || name.ends_with("empty handler")));
    measure(&scenarios, &Spans { rounds, engine: each(seconds), greedy: each(baseline) });
}

fn scenario(through: Through, flooders: &[usize], each: Duration) -> Scenario {
    let count = option("--flooders").unwrap_or(3);
    // The last ones stay: the 1 MiB publisher is one.
    let flooders = flooders[flooders.len().saturating_sub(count)..].to_vec();
    Scenario {
        through,
        flooders,
        quiet: if flag("--bench") { 8 } else { 3 },
        each,
        config: Config::default(),
    }
}

/// All of them, with their names.
fn scenarios() -> Vec<(String, Scenario)> {
    let us = Duration::from_micros;
    let works = [("empty handler", us(0)), ("1 us a record", us(1)), ("2 ms a record", us(2_000))];
    let mut all = Vec::new();
    for (through, way) in WAYS {
        for (work, each) in works {
            all.push((format!("{way}, 64 B, {work}"), scenario(through, &[SMALL; 3], each)));
        }
        all.push((format!("{way}, 1 MiB, empty handler"), scenario(through, &[LARGE; 3], us(0))));
    }
    for (work, each) in works {
        let name = format!("fanout, 64 B and 1 MiB, {work}");
        all.push((name, scenario(Through::Fanout, &[SMALL, SMALL, LARGE], each)));
    }
    all
}

fn measure(scenarios: &[(String, Scenario)], spans: &Spans) {
    println!(
        "{} rounds of {:?} (zmq::poll) and {:?} (engine); milliseconds as p50 / p99 / max",
        spans.rounds, spans.greedy, spans.engine
    );
    println!("flood: records a second; share: those of the least served flooder to those of the most served");
    println!(
        "quiet: messages of the least served quiet peer; capped: flooders' shares ended by records / bytes / time"
    );
    println!("host: its thread ran / waited for a processor; lost: quiet peers / flooders\n");
    heading();
    let (mut lines, mut quiet_lost) = (Vec::new(), 0);
    for (name, scenario) in scenarios {
        let mut outcomes = [Outcome::default(), Outcome::default()];
        for _ in 0..spans.rounds {
            for (outcome, (end, _)) in outcomes.iter_mut().zip(ENDS) {
                let span = if end == End::Engine { spans.engine } else { spans.greedy };
                outcome.merge(&run(scenario, end, span));
            }
        }
        quiet_lost += outcomes[1].lost_quiet.len();
        for (outcome, (_, end)) in outcomes.iter().zip(ENDS) {
            row(&format!("{name}: {end}"), outcome);
            if name.ends_with("64 B, 1 us a record") {
                let (way, _) = name.split_once(',').unwrap();
                lines.push(line(format!("{end}, {way}"), outcome));
            }
        }
    }
    if flag("--plot") {
        draw(&lines);
    }
    assert_eq!(quiet_lost, 0, "the engine lost quiet peers");
}

fn heading() {
    println!(
        "| {:<49} | {:>23} | {:>6} | {:>23} | {:>31} | {:>7} | {:>5} | {:>5} | {:>20} | {:>9} | lost |",
        "",
        "round trip",
        "no ACK",
        "delay",
        "turn p50 / p99 / p99.9 / max",
        "flood",
        "share",
        "quiet",
        "capped",
        "host",
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
}

fn row(name: &str, outcome: &Outcome) {
    let (least, most) = (outcome.flooders.iter().min(), outcome.flooders.iter().max());
    let share = least.map_or(0.0, |&least| least as f64) / most.map_or(1.0, |&most| most.max(1) as f64);
    let percent = |span: Duration| span.as_secs_f64() / outcome.seconds * 100.0;
    let [records, bytes, time] = outcome.capped;
    println!(
        "| {name:<49} | {:>23} | {:>6} | {:>23} | {:>31} | {:>7.0} | {share:>5.2} | {:>5} | {:>20} | {:>2.0} / {:>2.0} % | {} / {} |",
        outcome.round_trips.text(&[0.5, 0.99]),
        outcome.unanswered,
        outcome.delays.text(&[0.5, 0.99]),
        outcome.turns.text(&[0.5, 0.99, 0.999]),
        outcome.records_per_second(),
        outcome.quiet.iter().min().unwrap_or(&0),
        format!("{records} / {bytes} / {time}"),
        percent(outcome.ran),
        percent(outcome.waited),
        outcome.lost_quiet.len(),
        outcome.lost_flooders.len(),
    );
    for lost in outcome.lost_quiet.iter().chain(&outcome.lost_flooders) {
        eprintln!("lost: {lost}");
    }
}

/// The round trips of one end: over one part in how many of its probes took so long.
fn line(name: String, outcome: &Outcome) -> Line {
    let parts = [2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0];
    let millis = |part: f64| outcome.round_trips.at(1.0 - 1.0 / part).as_secs_f64() * 1e3;
    Line { name, points: parts.map(|part| (part, millis(part))).to_vec() }
}

fn draw(lines: &[Line]) {
    let plot = Plot {
        title: "Probe round trip of quiet peers while three others flood (64 B, 1 µs a record)",
        across: Axis {
            name: "probes answered by then",
            text: |part| format!("{}", 100.0 - 100.0 / part) + " %",
        },
        up: Axis { name: "milliseconds", text: |millis| millis.to_string() },
        lines,
    };
    plot.write("flood.svg");
}
