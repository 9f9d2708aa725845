//! How much one peer may take of a rotation, and how much may be set aside for it: the limits, as values.

use std::time::Duration;

/// The most records one peer is served in one rotation. Fixed by 000 §4 and configurable nowhere.
pub(crate) const COUNT_CAP: u16 = 64;

/// Bounds and default of [`Caps::bytes`].
pub(crate) const BYTES_MIN: u64 = 4 << 10;
pub(crate) const BYTES_DEFAULT: u64 = 256 << 10;
pub(crate) const BYTES_MAX: u64 = 16 << 20;
/// Bounds and default of [`Caps::time`].
pub(crate) const TIME_MIN: Duration = Duration::from_micros(50);
pub(crate) const TIME_DEFAULT: Duration = Duration::from_micros(250);
pub(crate) const TIME_MAX: Duration = Duration::from_millis(10);
/// Bounds and default of [`Caps::turn_time`].
pub(crate) const TURN_TIME_MIN: Duration = Duration::from_micros(100);
pub(crate) const TURN_TIME_DEFAULT: Duration = Duration::from_millis(2);
pub(crate) const TURN_TIME_MAX: Duration = Duration::from_millis(100);

const _: () = assert!(BYTES_MIN <= BYTES_DEFAULT && BYTES_DEFAULT <= BYTES_MAX);
const _: () = assert!(TIME_MIN.as_nanos() <= TIME_DEFAULT.as_nanos());
const _: () = assert!(TIME_DEFAULT.as_nanos() <= TIME_MAX.as_nanos());
// With its default, a turn has room for several peers that use their whole time.
const _: () = assert!(TURN_TIME_DEFAULT.as_nanos() >= 4 * TIME_DEFAULT.as_nanos());
const _: () = assert!(TURN_TIME_MIN.as_nanos() >= 2 * TIME_MIN.as_nanos());
const _: () = assert!(TURN_TIME_MAX.as_nanos() >= TIME_MAX.as_nanos());

/// What stops a peer's share of one rotation besides [`COUNT_CAP`], and what stops the rotation itself (000 §4).
///
/// The room that takes these from the host has checked them against their bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caps {
    /// Bytes of records served to one peer in one rotation; the record that crosses it is still served. Also the most
    /// bytes in one peer's hold. More lets peers with large records through in fewer rotations; less bounds the
    /// memory that holds can take (at most this and two records for each peer behind a shared lane).
    pub(crate) bytes: u64,
    /// Time spent on one peer's records in one rotation, the host's own handling included, so that a slow consumer
    /// pays with its own share. More wastes fewer turns on a slow handler; less lets the others wait less for it.
    pub(crate) time: Duration,
    /// Time for all receiving in one turn. More spreads the fixed cost of a turn over more records; less gives the
    /// host its loop back sooner. What is exceeded is stated at [`STRIDE_MAX`](super::meter::STRIDE_MAX).
    pub(crate) turn_time: Duration,
}

impl Default for Caps {
    fn default() -> Self {
        Self { bytes: BYTES_DEFAULT, time: TIME_DEFAULT, turn_time: TURN_TIME_DEFAULT }
    }
}

#[cfg(test)]
impl Caps {
    /// No caps at all, not even [`COUNT_CAP`]: what the tests hold the caps against.
    pub(super) const LIFTED: Self =
        Self { bytes: u64::MAX, time: Duration::MAX, turn_time: Duration::from_secs(3_600) };

    pub(super) fn are_lifted(&self) -> bool {
        *self == Self::LIFTED
    }
}

/// How much may be held before nothing more is read: whichever is reached first. The record that reaches it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HoldLimits {
    /// Records.
    pub(crate) records: u32,
    /// Bytes of all these records.
    pub(crate) bytes: u64,
}

impl HoldLimits {
    /// What one peer's hold takes while the host runs: a share of the next rotation.
    pub(super) fn of_share(caps: &Caps) -> Self {
        Self { records: COUNT_CAP.into(), bytes: caps.bytes }
    }

    pub(super) fn reached(self, load: Load) -> bool {
        load.records >= self.records || load.bytes >= self.bytes
    }
}

/// What is held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Records.
    pub(crate) records: u32,
    /// Bytes of all these records.
    pub(crate) bytes: u64,
}

impl Load {
    pub(super) fn add(&mut self, bytes: u64) {
        self.records += 1;
        self.bytes += bytes;
    }

    pub(super) fn take(&mut self, of: Self) {
        self.records -= of.records;
        self.bytes -= of.bytes;
    }
}
