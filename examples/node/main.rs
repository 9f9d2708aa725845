//! A node that anyone can run, and any program can drive: flags in, one JSON object a line out, commands on standard
//! input. Flags, lines and commands are a contract.
//!
//! ```text
//! cargo run --example node -- server --channel orders --bind tcp://127.0.0.1:5555 --echo
//! cargo run --example node -- client --channel orders --connect tcp://127.0.0.1:5555 --request hello --every 500
//! cargo run --example node -- mesh --mesh lobby --rid a --serve matches --echo \
//!     --bind tcp://127.0.0.1:5557 --bind-completion tcp://127.0.0.1:5558
//! cargo run --example node -- mesh --mesh lobby --rid b --connect tcp://127.0.0.1:5557 --request matches=hello
//! cargo run --example node -- publisher --channel ticks --bind tcp://127.0.0.1:5556 --publish EUR=1.1 --every 500
//! cargo run --example node -- subscriber --channel ticks --connect tcp://127.0.0.1:5556 --subscribe EUR
//! ```
//!
//! | `event` | carries beside `at_ms` |
//! |---|---|
//! | `listening` | `topology`, `name`, `rid`, `endpoint`, `completion` (null but on a mesh) |
//! | `admitted`, `ready` | `topology`, `name`, `rid` |
//! | `missed` | these and `asks` |
//! | `lost` | these and `reason` |
//! | `refused` (an attempt to connect failed) | `topology`, `name`, `endpoint`, `reason` |
//! | `message`, `request` | `topology`, `name`, `rid`, `channel` (null: sent to this node itself), `parts` (texts) |
//! | `completed` | `outcome`, `parts` |
//! | `publisher_ready`, `publisher_lost` | `topology`, `name`, `rid` (null if unknown), `endpoint`; when lost `reason` |
//! | `published` | these and `topic`, `parts` |
//! | `stall` | `unwatched_ms` |
//! | `snapshot` | what `wakeful::Snapshot` holds |
//! | `stopped` | nothing; the last line |
//!
//! Commands: `drain`, `pause`, `run`, `weight CHANNEL N`, `snapshot`, `stop`.
// ci: server --channel orders --bind tcp://127.0.0.1:0 --for 2 --report 500
// ci: mesh --mesh lobby --rid a --bind tcp://127.0.0.1:0 --bind-completion tcp://127.0.0.1:0 --serve matches --echo --request matches=hello --every 500 --for 2
// ci: publisher --channel ticks --bind tcp://127.0.0.1:0 --publish EUR=1.1 --every 100 --for 2 --report 500
#![allow(clippy::disallowed_methods, reason = "a host has its own clock")]

mod flags;
mod host;
mod lines;
mod pace;
mod roles;

use std::error::Error;
use std::io::{self, BufRead};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use wakeful::{ChannelName, Config, Engine, Pressure, RegisterError, Weight};

use flags::Role;
use host::{RESPONSE_MAX, Sends};
use lines::Lines;
use pace::Pace;
use roles::FANOUT;

fn main() -> ExitCode {
    let flags = match flags::parse() {
        Ok(flags) => flags,
        Err(error) if !error.use_stderr() => {
            print!("{error}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{}", flags::one_line(&error));
            return ExitCode::from(2);
        }
    };
    match run(flags.role) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            match error.downcast_ref() {
                None | Some(RegisterError::Io { .. }) => ExitCode::FAILURE,
                // What cannot be registered are bad flags too, such as one endpoint twice.
                Some(_) => ExitCode::from(2),
            }
        }
    }
}

// ---- The loop ----

fn run(role: Role) -> Result<(), Box<dyn Error>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let commands = read_commands();
    let mut engine = Engine::new(Config::default())?;
    let (mut node, common) = roles::begin(&mut engine, role)?;
    let began = node.lines.began;
    let end = common.seconds.map(|seconds| began + Duration::from_secs(seconds));
    let mut report = common.report.map(|every| Pace::new(began, every));

    while !stop.load(Ordering::Relaxed) && !node.lines.closed {
        for command in commands.try_iter() {
            if obey(&command, &mut engine, &mut node.lines) {
                stop.store(true, Ordering::Relaxed);
            }
        }
        let now = Instant::now();
        if end.is_some_and(|end| now >= end) {
            break;
        }
        if report.as_mut().is_some_and(|pace| pace.is_due(now)) {
            node.lines.snapshot(&engine.snapshot());
        }
        node.answer_left(&mut engine.outbox());
        node.send(&mut engine.outbox(), now);

        let timers = [end, report.as_ref().map(|pace| pace.next)].into_iter().flatten();
        let next = timers
            .chain(node.sends.iter().filter_map(Sends::next))
            .min()
            .map_or(RESPONSE_MAX, |at| at.duration_since(now));
        engine.wait(Some(next.min(node.sleep_max())));
        engine.turn(&mut node);
    }
    engine.stop(&mut node);
    node.lines.print("stopped", json!({}));
    Ok(())
}

// ---- Commands ----

/// Reads standard input on a thread of its own, because reading it may block. Its end is no command to stop.
fn read_commands() -> Receiver<String> {
    let (sender, commands) = mpsc::channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    commands
}

/// Does what a command says. Returns whether it says to stop.
fn obey(command: &str, engine: &mut Engine, lines: &mut Lines) -> bool {
    let words: Vec<&str> = command.split_whitespace().collect();
    match words[..] {
        [] => {}
        ["stop"] => return true,
        ["drain" | "pause" | "run"] | ["weight", _, _] if lines.topology == FANOUT => {
            eprintln!("{command}: a publisher or subscriber takes snapshot and stop, and nothing else");
        }
        ["drain"] => engine.drain(true),
        ["snapshot"] => lines.snapshot(&engine.snapshot()),
        ["weight", channel, weight] => {
            if let Err(what) = set_weight(engine, channel, weight) {
                eprintln!("weight: {what}");
            }
        }
        ["pause"] => engine.outbox().set_pressure(Pressure::Paused),
        ["run"] => engine.outbox().set_pressure(Pressure::Running),
        _ => eprintln!(
            "{command}: no such command; there are drain, pause, run, weight CHANNEL N, snapshot and stop"
        ),
    }
    false
}

fn set_weight(engine: &mut Engine, channel: &str, weight: &str) -> Result<(), String> {
    let name = ChannelName::new(channel).map_err(|error| error.to_string())?;
    let number = weight.parse().map_err(|_| format!("{weight} is no number from 0 to 10000"))?;
    let weight = Weight::new(number).map_err(|error| error.to_string())?;
    if engine.outbox().set_weight(&name, weight) {
        return Ok(());
    }
    Err(format!("channel {channel} is not served here"))
}
