//! How often the clock is read while records are handled, and who pays for the time between two readings.
//!
//! A reading costs a fifth of a record, so the records of fast peers share one; those of a slow peer each get their
//! own, so that a slow consumer pays exactly. This room is given its readings and says when it wants one.

use super::{Caps, PeerKey};
use crate::clock::ClockTime;

/// The most steps (records handled or held, or looks at an empty lane) between two readings of the clock.
///
/// A rotation exceeds its turn's time by what is done between the last reading before the end and the first after it.
/// That is at most this many steps, if a peer's records turn slow in the middle; one record where each of them takes
/// more than a sixteenth of the time cap; and less than an eighth of the time cap where they are faster than that and
/// alike. A peer exceeds its time cap by no more.
pub(crate) const STRIDE_MAX: u8 = 16;

/// The part of a cap that may pass unmetered. A peer whose stride would take longer is measured record by record, and
/// a record that is larger is measured at once.
const UNMETERED: u64 = 16;

#[derive(Debug)]
pub(super) struct Meter {
    now: ClockTime,
    /// Who is to pay for each step since the last reading; the first `steps` count.
    payers: [PeerKey; STRIDE_MAX as usize],
    steps: u8,
    /// How many of these steps were records handled. Other steps are cheap, and tell nothing of what a record costs.
    handled: u8,
    /// After how many records handled the clock is read: the shortest stride of those who pay.
    stride: u8,
    /// Nanoseconds that may pass unmetered.
    slow: u64,
    large: u64,
}

/// What one reading says of each step since the one before.
#[derive(Debug)]
pub(super) struct Reading<'a> {
    /// Nanoseconds.
    pub(super) each: u64,
    /// After how many records these peers want the next reading.
    pub(super) stride: u8,
    pub(super) payers: &'a [PeerKey],
    /// Those before them, who pay nothing because they are thought to be fast: the next record of each is to show it.
    pub(super) unproved: &'a [PeerKey],
}

impl Meter {
    pub(super) fn new(caps: &Caps) -> Self {
        Self {
            now: ClockTime::START,
            payers: [PeerKey::NOBODY; STRIDE_MAX as usize],
            steps: 0,
            handled: 0,
            stride: STRIDE_MAX,
            slow: caps.time.min(caps.turn_time).as_nanos() as u64 / UNMETERED,
            large: caps.bytes / UNMETERED,
        }
    }

    /// The last reading.
    pub(super) fn now(&self) -> ClockTime {
        self.now
    }

    /// Begins a rotation: what passed before `now` is charged to nobody.
    pub(super) fn begin(&mut self, now: ClockTime) {
        self.now = now.max(self.now);
        self.steps = 0;
        self.handled = 0;
        self.stride = STRIDE_MAX;
    }

    /// Counts a step that handled no record, which nobody pays; true if the clock must now be read.
    pub(super) fn step(&mut self) -> bool {
        self.add(PeerKey::NOBODY)
    }

    /// Counts a record handled for a peer with this stride; true if the clock must now be read.
    #[inline]
    pub(super) fn step_handled(&mut self, payer: PeerKey, bytes: u64, stride: u8) -> bool {
        self.handled += 1;
        self.stride = if bytes >= self.large { 1 } else { self.stride.min(stride) };
        self.add(payer) || self.handled >= self.stride
    }

    fn add(&mut self, payer: PeerKey) -> bool {
        self.payers[usize::from(self.steps)] = payer;
        self.steps += 1;
        self.steps >= STRIDE_MAX
    }

    /// Takes a reading. What passed since the last one is paid by everyone alike, unless the last step was to be
    /// measured by itself: then those before it were thought to be cheap.
    pub(super) fn read(&mut self, now: ClockTime) -> Reading<'_> {
        let elapsed = now.since(self.now).as_nanos() as u64;
        self.now = now.max(self.now);
        let steps = std::mem::take(&mut self.steps);
        let handled = std::mem::take(&mut self.handled);
        let stride = std::mem::replace(&mut self.stride, STRIDE_MAX);
        let first = if stride == 1 { steps - 1 } else { 0 };
        let (unproved, payers) = self.payers[..usize::from(steps)].split_at(usize::from(first));
        let whole_stride = elapsed.saturating_mul(stride.into()) / u64::from(handled.clamp(1, stride));
        Reading {
            each: elapsed / u64::from(steps - first).max(1),
            stride: if whole_stride > self.slow { 1 } else { (stride * 2).min(STRIDE_MAX) },
            payers,
            unproved,
        }
    }
}
