//! How often the clock is read while records are handled, and who pays for the time between two readings.
//!
//! A reading costs a fifth of a record, so fast records share one; slow ones each get their own, so that a slow
//! consumer pays exactly. This room is given its readings and says when it wants one.

use std::time::Duration;

use super::{Caps, PeerKey};
use crate::clock::ClockTime;

/// The most steps (records handled or held, or looks at an empty lane) between two readings of the clock.
///
/// A rotation exceeds its turn's time by what is done between the last reading before the end and the first after it.
/// That is at most this many steps, if a peer's records turn slow in the middle; one record where each of them takes
/// more than a sixteenth of the time cap, because every lane and every hold begins with a reading of its own; and less
/// than an eighth of the time cap where they are faster than that and alike. A peer exceeds its time cap by no more.
pub(crate) const STRIDE_MAX: u8 = 16;

/// The part of a cap that may pass unmetered. A stride of records that would take longer, and a record that is larger,
/// bring the stride back to one.
const UNMETERED: u32 = 16;

#[derive(Debug)]
pub(super) struct Meter {
    now: ClockTime,
    /// Who is to pay for each step since the last reading; the first `steps` count.
    payers: [PeerKey; STRIDE_MAX as usize],
    steps: u8,
    /// How many of these steps were records handled. Other steps are cheap, and tell nothing of what a record costs.
    handled: u8,
    /// After how many records handled the clock is read.
    stride: u8,
    slow: Duration,
    large: u64,
}

impl Meter {
    pub(super) fn new(caps: &Caps) -> Self {
        Self {
            now: ClockTime::START,
            payers: [PeerKey::NOBODY; STRIDE_MAX as usize],
            steps: 0,
            handled: 0,
            stride: 1,
            slow: caps.time.min(caps.turn_time) / UNMETERED,
            large: caps.bytes / u64::from(UNMETERED),
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
        self.turn_to_another();
    }

    /// What comes next may cost more than what came before: its first record is measured.
    pub(super) fn turn_to_another(&mut self) {
        self.stride = 1;
        self.handled = 0;
    }

    /// Counts one step; true if the clock must now be read.
    pub(super) fn step(&mut self, payer: PeerKey, bytes: u64, handled: bool) -> bool {
        self.payers[usize::from(self.steps)] = payer;
        self.steps += 1;
        self.handled += u8::from(handled);
        if bytes >= self.large {
            self.stride = 1;
        }
        self.handled >= self.stride || self.steps >= STRIDE_MAX
    }

    /// Takes a reading. Returns who pays for what passed since the last one, and how much each: a slow record's peer
    /// all of it, otherwise everyone alike.
    pub(super) fn read(&mut self, now: ClockTime) -> (Duration, &[PeerKey]) {
        let elapsed = now.since(self.now);
        self.now = now.max(self.now);
        let steps = std::mem::take(&mut self.steps);
        let handled = std::mem::take(&mut self.handled);
        let is_measured = handled == 1 && self.stride == 1;
        if handled > 0 {
            let is_slow = elapsed * u32::from(self.stride) > self.slow * u32::from(handled);
            self.stride = if is_slow { 1 } else { (self.stride * 2).min(STRIDE_MAX) };
        }
        let first = if is_measured { steps - 1 } else { 0 };
        let payers = &self.payers[usize::from(first)..usize::from(steps)];
        (elapsed / u32::from(steps - first).max(1), payers)
    }
}
