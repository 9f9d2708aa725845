//! What a host can set, each with its unit, default and bounds. The fixed values (5 s, 15 s, 64) are not here, because
//! 000 §2 lets nobody set them.

use std::ops::RangeInclusive;
use std::time::Duration;

use thiserror::Error;

use crate::rotation::{self, Caps, HoldLimits};

/// The settings of one engine, checked whole when it is made.
///
/// ```
/// use wakeful::Config;
/// let config = Config { connections_max: 200, ..Config::default() };
/// assert!(config.check().is_ok());
/// assert!(Config { connections_max: 0, ..Config::default() }.check().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Bytes of records taken from one connection in one turn; the record that crosses it is still taken. Default
    /// 256 KiB, 4 KiB to 16 MiB. More moves large records in fewer turns; less bounds what a turn can take, and the
    /// memory of records set aside: at most this and one record for each peer behind a bound socket.
    pub receive_bytes_max: u64,
    /// Time spent on the records of one connection in one turn, the host's own handling included (000 §4). Default
    /// 250 µs, 50 µs to 10 ms. More wastes fewer turns on a slow handler; less makes the others wait less for it.
    pub receive_time_max: Duration,
    /// Time for all receiving in one turn. Default 2 ms, 100 µs to 100 ms. More spreads a turn's fixed cost over more
    /// records; less gives the host its loop back sooner. It is overrun by one record where records are slow to handle, and
    /// by at most 16 where they turn slow in the middle of a turn: the clock is not read for each of those that are fast.
    pub turn_time_max: Duration,
    /// Records that each connection queues in each direction (ZeroMQ's high-water marks). Default 1,000, 2 to 10,000.
    /// A full queue is `WouldBlock`. A connection can hold twice this many records of its largest size. ZeroMQ hands
    /// free slots back in batches of half of it, so a larger queue needs a faster peer to stay askable.
    ///
    /// A check signal waits behind all that was sent before it, the kernel's buffers included, and has 10 s to come
    /// through (the deadline less one interval). Towards a host that keeps its pipe full all the time that means, with
    /// the default and with Linux's own buffers: some 38,000 records of 64 bytes (3.3 MB) lie in between, a peer that
    /// handled 5,000 of them a second was never judged, one that handled 4,000 a second was (measured over loopback).
    pub queue_records_max: u16,
    /// Records that a paused host lets the engine set aside from each lane before it stops reading it (000 §9). Default
    /// 10,000, 1 to 1,000,000. Behind a full one probes are not answered either, and 000 §3 applies to all behind it.
    pub pause_records_max: u32,
    /// The same in bytes of what the records carry, for each lane, and one record more. Default 64 MiB, 64 KiB to 4 GiB. A
    /// frame takes some 64 bytes beside what it carries, so many small parts take more memory than they count.
    pub pause_bytes_max: u64,
    /// Connections of all topologies together, those included whose end is not physical yet; each mesh node counts as one,
    /// and each pair of nodes as two. Default 10,000, 1 to 1,000,000. Above it a newcomer is refused (`resourceLimit`). A connection takes about 1 KiB of the engine's own
    /// memory and what its peer's admission is long (some 100 bytes, 1 MiB at most), in a mesh some 250 bytes for each
    /// channel that the peer serves (65,535 at most), and ZeroMQ's own for its sockets.
    pub connections_max: u32,
    /// Requests of this node that may wait for their reply at once. Default 65,536, 1 to 16,777,216; some 40 bytes each.
    pub requests_max: u32,
    /// Requests of peers that may wait for this host's reply at once. Default 65,536, 1 to 16,777,216; some 40 bytes
    /// each. A peer may hold a third as many places as are then still free: alone a quarter of all, and each that comes
    /// after it a quarter of what is left. Above that a request is answered with `CapacityExceeded`.
    pub replies_max: u32,
    /// Seeds the jitter of retries, so that a run can be repeated. Default: drawn at random.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            receive_bytes_max: rotation::BYTES_DEFAULT,
            receive_time_max: rotation::TIME_DEFAULT,
            turn_time_max: rotation::TURN_TIME_DEFAULT,
            queue_records_max: 1_000,
            pause_records_max: 10_000,
            pause_bytes_max: 64 << 20,
            connections_max: 10_000,
            requests_max: 65_536,
            replies_max: 65_536,
            seed: random(),
        }
    }
}

/// A setting outside its bounds. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{setting} is {value}; it takes {min} to {max}{}", if setting.contains("_time_") { " (nanoseconds)" } else { "" })]
pub struct ConfigError {
    /// The field of [`Config`].
    pub setting: &'static str,
    /// What it was set to; times in nanoseconds.
    pub value: u64,
    /// The least it takes.
    pub min: u64,
    /// The most it takes.
    pub max: u64,
}

impl Config {
    /// Whether every setting lies within its bounds, and if not, the first that does not.
    pub fn check(&self) -> Result<(), ConfigError> {
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let times = |min, max| nanos(min)..=nanos(max);
        bound("receive_bytes_max", self.receive_bytes_max, rotation::BYTES_MIN..=rotation::BYTES_MAX)?;
        let time = times(rotation::TIME_MIN, rotation::TIME_MAX);
        bound("receive_time_max", nanos(self.receive_time_max), time)?;
        let turn_time = times(rotation::TURN_TIME_MIN, rotation::TURN_TIME_MAX);
        bound("turn_time_max", nanos(self.turn_time_max), turn_time)?;
        bound("queue_records_max", self.queue_records_max.into(), 2..=10_000)?;
        bound("pause_records_max", self.pause_records_max.into(), 1..=1_000_000)?;
        bound("pause_bytes_max", self.pause_bytes_max, 64 << 10..=4 << 30)?;
        bound("connections_max", self.connections_max.into(), 1..=1_000_000)?;
        bound("requests_max", self.requests_max.into(), 1..=1 << 24)?;
        bound("replies_max", self.replies_max.into(), 1..=1 << 24)
    }

    pub(crate) fn pause_limits(&self) -> HoldLimits {
        HoldLimits { records: self.pause_records_max, bytes: self.pause_bytes_max }
    }

    pub(crate) fn caps(&self) -> Caps {
        Caps { bytes: self.receive_bytes_max, time: self.receive_time_max, turn_time: self.turn_time_max }
    }
}

fn bound(setting: &'static str, value: u64, range: RangeInclusive<u64>) -> Result<(), ConfigError> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(ConfigError { setting, value, min: *range.start(), max: *range.end() })
}

/// A number nobody can guess, from the keys that the standard library draws for its hash maps.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_lie_within_their_bounds() {
        assert_eq!(Config::default().check(), Ok(()));
    }

    #[test]
    fn a_setting_out_of_bounds_is_named_with_its_bounds() {
        let config = Config { turn_time_max: Duration::from_secs(1), ..Config::default() };
        let error = config.check().unwrap_err();
        assert_eq!(
            error.to_string(),
            "turn_time_max is 1000000000; it takes 100000 to 100000000 (nanoseconds)"
        );
        assert_eq!(Config { queue_records_max: 1, ..Config::default() }.check().unwrap_err().min, 2);
    }
}
