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

#[cfg(target_os = "linux")]
use rustix::process::setpriority_process;

pub const CHANNEL: &str = "bench";
/// What a thread stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Host,
    QuietPeer,
    Flooder,
}

/// Peers stand for other machines, which take no processor time of this one and wait for none of it: flooders run when
/// nobody else wants to (`SCHED_IDLE`), quiet peers whenever they want to (`SCHED_FIFO`, or nice -10 where that is not
/// allowed). So do the threads that ZeroMQ makes for this one from here on. Where the system allows nothing of it, it has to
/// do without.
#[cfg(target_os = "linux")]
pub fn be(part: Part) {
    use thread_priority::NormalThreadSchedulePolicy::{Idle, Other};
    use thread_priority::RealtimeThreadSchedulePolicy::Fifo;
    use thread_priority::ThreadSchedulePolicy::{Normal, Realtime};
    use thread_priority::{ThreadPriority, set_thread_priority_and_policy, thread_native_id};

    let policy = match part {
        Part::Host => Normal(Other),
        Part::QuietPeer => Realtime(Fifo),
        Part::Flooder => Normal(Idle),
    };
    let set = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy);
    // A thread has a niceness of its own here.
    let nice = if part == Part::QuietPeer && set.is_err() { -10 } else { 0 };
    let _ = setpriority_process(None, nice);
}

#[cfg(not(target_os = "linux"))]
pub fn be(_: Part) {}

/// With `--pin`, a host's loop has the first processor for itself, as hosts that cannot wait give it one: all that is made
/// from here on shares the others.
#[cfg(target_os = "linux")]
pub fn spare_a_processor() {
    pin(|first, processor| processor != first);
}

/// With `--pin`, takes the processor that was spared. The threads that ZeroMQ makes from here on take it too, so everything
/// is connected before.
#[cfg(target_os = "linux")]
pub fn take_the_processor() {
    pin(|first, processor| processor == first);
}

#[cfg(target_os = "linux")]
fn pin(is_ours: impl Fn(usize, usize) -> bool) {
    use std::sync::LazyLock;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    static ALLOWED: LazyLock<Vec<usize>> = LazyLock::new(|| {
        let set = sched_getaffinity(None).unwrap();
        (0..CpuSet::MAX_CPU).filter(|&processor| set.is_set(processor)).collect()
    });
    if !flag("--pin") {
        return;
    }
    assert!(ALLOWED.len() > 1, "--pin needs two processors");
    let mut set = CpuSet::new();
    ALLOWED.iter().filter(|&&processor| is_ours(ALLOWED[0], processor)).for_each(|&ours| set.set(ours));
    sched_setaffinity(None, &set).unwrap();
}

#[cfg(not(target_os = "linux"))]
pub fn spare_a_processor() {
    assert!(!flag("--pin"), "--pin is for Linux");
}

#[cfg(not(target_os = "linux"))]
pub fn take_the_processor() {}

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
