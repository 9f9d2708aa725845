//! What the benches share: the wire by hand, a crowd of peers in a process of their own, a histogram, a plot.
#![allow(dead_code, reason = "no bench uses all of it")]
#![allow(
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a bench measures time and divides it"
)]

pub mod crowd;
pub mod histogram;
pub mod plot;
pub mod wire;

use std::fs;
use std::str::FromStr;
use std::time::Duration;

use rustix::process::setpriority_process;

pub const CHANNEL: &str = "bench";
/// How nice peers are.
pub const FLOODER: i32 = 10;
pub const QUIET_PEER: i32 = -10;

/// Peers stand for other machines, which take no processor time of this one and wait for none of it: flooders yield to
/// everyone else, quiet peers come before all others. So do the threads that ZeroMQ makes for this one from here on.
/// Where the system does not allow it, it has to do without.
pub fn be(nice: i32) {
    // On Linux a thread has a priority of its own.
    let _ = setpriority_process(None, nice);
}

pub fn arguments() -> impl Iterator<Item = String> {
    std::env::args().skip(1)
}

pub fn flag(name: &str) -> bool {
    arguments().any(|argument| argument == name)
}

/// What `name` was set to on the command line: `--name VALUE`.
pub fn option<T: FromStr>(name: &str) -> Option<T> {
    let text = arguments().skip_while(|argument| argument != name).nth(1)?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} cannot be {text}")))
}

/// How long this thread has run on a processor, and waited for one; zero where the system does not say.
pub fn on_processor() -> (Duration, Duration) {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let mut nanos = text.split_whitespace().map(|number| Duration::from_nanos(number.parse().unwrap_or(0)));
    (nanos.next().unwrap_or_default(), nanos.next().unwrap_or_default())
}

/// How long all threads of this process have run on a processor, ZeroMQ's own included; zero where the system does not
/// say.
pub fn cpu_of_process() -> Duration {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return Duration::ZERO };
    let ran = tasks.flatten().filter_map(|task| {
        let stat = fs::read_to_string(task.path().join("schedstat")).ok()?;
        stat.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(ran.sum())
}

/// Memory that a process has in use, in KiB; zero where the system does not say.
pub fn resident_kib(process: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
