//! The only room that reads a clock, and the watch that turns clock into watched time.
//!
//! Two kinds of time run through the engine and never mix, because they are two types. What we owe others follows
//! [`ClockTime`], the monotonic clock; what we hold against others follows [`WatchTime`], the time this engine was
//! awake and watching (000 §2 and 004). A turn vouches for at most one [`WATCH_STEP`] of silence. Whatever a longer gap
//! held is time nobody watched: it is counted, and it accuses nobody. There is no suspend detection and no second
//! clock here, because none is needed.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

/// The most silence one turn can vouch for: 1 s. A longer gap between two turns adds only this much watched time.
pub const WATCH_STEP: Duration = Duration::from_secs(1);

/// How soon after a turn the next one is wanted while anything is watched: a step, less what a host may be woken late
/// without its sleep being taken for a stall.
pub(crate) const WATCH_AGAIN: Duration = Duration::from_millis(900);
const _: () = assert!(WATCH_AGAIN.as_nanos() < WATCH_STEP.as_nanos());

/// A reading of the monotonic clock, in nanoseconds since the engine was made. Never zero, so that an `Option` of it
/// costs nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClockTime(NonZeroU64);

impl ClockTime {
    /// The moment the engine was made.
    pub(crate) const START: Self = Self(NonZeroU64::MIN);

    /// This time and `span` more; saturates after five centuries.
    #[must_use]
    pub(crate) const fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }

    /// How long after `earlier` this is; zero if it is not after it.
    pub(crate) const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(earlier.0.get()))
    }

    /// How late this is for something due at `due`; none while it is not due yet.
    pub(crate) fn past(self, due: Self) -> Option<Duration> {
        (self >= due).then(|| self.since(due))
    }
}

/// Watched time: the sum of what the turns so far can vouch for, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct WatchTime(u64);

impl WatchTime {
    /// Nothing watched yet.
    pub(crate) const START: Self = Self(0);

    /// This much watched time and `span` more; saturates.
    #[must_use]
    pub(crate) const fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }

    /// How much was watched after `earlier`; zero if this is not after it.
    pub(crate) const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A span in whole nanoseconds; saturates after five centuries.
const fn nanos(span: Duration) -> u64 {
    let whole = span.as_nanos();
    if whole > u64::MAX as u128 { u64::MAX } else { whole as u64 }
}

/// The monotonic clock, counted from the moment the engine was made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock whose start is now.
    #[expect(clippy::disallowed_methods, reason = "this is the room that reads the clock")]
    pub(crate) fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// Reads the clock.
    #[expect(clippy::disallowed_methods, reason = "this is the room that reads the clock")]
    pub(crate) fn now(&self) -> ClockTime {
        self.at(Instant::now())
    }

    /// The instant at which this clock shows `time`.
    pub(crate) fn instant(&self, time: ClockTime) -> Instant {
        self.origin + time.since(ClockTime::START)
    }

    /// What this clock showed at `instant`; the start for anything before it.
    pub(crate) fn at(&self, instant: Instant) -> ClockTime {
        ClockTime::START.plus(instant.saturating_duration_since(self.origin))
    }
}

/// What a turn knows about time: one reading of the clock and what the watch made of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    /// The clock at this turn; never earlier than at the turn before.
    pub(crate) now: ClockTime,
    /// All that was watched up to this turn.
    pub(crate) watched: WatchTime,
    /// The clock time since the turn before.
    pub(crate) gap: Duration,
    /// The last turn that came after a stall, or the start: everything from here to `now` was watched.
    pub(crate) watching_since: ClockTime,
}

/// The clock of watched time, and the count of what it could not vouch for.
#[derive(Debug)]
pub(crate) struct Watch {
    moment: Moment,
    stalls: u64,
    unwatched: Duration,
    longest_gap: Duration,
}

impl Watch {
    /// A watch that begins at `now` with nothing watched.
    pub(crate) fn start(now: ClockTime) -> Self {
        let moment = Moment { now, watched: WatchTime::START, gap: Duration::ZERO, watching_since: now };
        Self { moment, stalls: 0, unwatched: Duration::ZERO, longest_gap: Duration::ZERO }
    }

    /// Takes a turn's clock reading. A reading earlier than the last one counts as no time passed.
    pub(crate) fn advance(&mut self, now: ClockTime) -> Moment {
        let now = now.max(self.moment.now);
        let gap = now.since(self.moment.now);
        let stalled = gap > WATCH_STEP;
        if stalled {
            self.stalls += 1;
            self.unwatched += gap - WATCH_STEP;
        }
        self.longest_gap = self.longest_gap.max(gap);
        self.moment = Moment {
            now,
            watched: self.moment.watched.plus(gap.min(WATCH_STEP)),
            gap,
            watching_since: if stalled { now } else { self.moment.watching_since },
        };
        self.moment
    }

    /// The last turn's moment.
    pub(crate) fn moment(&self) -> Moment {
        self.moment
    }

    /// How many gaps between turns were longer than [`WATCH_STEP`].
    pub(crate) fn stalls(&self) -> u64 {
        self.stalls
    }

    /// All the clock time that passed unwatched.
    pub(crate) fn unwatched(&self) -> Duration {
        self.unwatched
    }

    /// The longest gap between two turns.
    pub(crate) fn longest_gap(&self) -> Duration {
        self.longest_gap
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> ClockTime {
        ClockTime::START.plus(Duration::from_secs_f64(seconds))
    }

    #[test]
    fn a_turn_vouches_for_at_most_one_step() {
        let mut watch = Watch::start(at(0.0));
        assert_eq!(watch.advance(at(0.4)).watched, WatchTime::START.plus(Duration::from_millis(400)));
        let after_sleep = watch.advance(at(3.0 * 3600.0));
        assert_eq!(after_sleep.watched, WatchTime::START.plus(Duration::from_millis(1400)));
        assert_eq!(after_sleep.watching_since, after_sleep.now);
        assert_eq!(watch.stalls(), 1);
        assert_eq!(watch.longest_gap(), after_sleep.gap);
        assert_eq!(watch.unwatched(), after_sleep.gap - WATCH_STEP);
    }

    #[test]
    fn a_gap_of_exactly_one_step_is_watched_whole() {
        let mut watch = Watch::start(at(0.0));
        let moment = watch.advance(at(1.0));
        assert_eq!(moment.watched, WatchTime::START.plus(WATCH_STEP));
        assert_eq!(moment.watching_since, at(0.0));
        assert_eq!((watch.stalls(), watch.unwatched()), (0, Duration::ZERO));
    }

    #[test]
    fn a_clock_reading_that_goes_back_is_no_time_at_all() {
        let mut watch = Watch::start(at(5.0));
        watch.advance(at(6.0));
        let back = watch.advance(at(2.0));
        assert_eq!((back.now, back.gap), (at(6.0), Duration::ZERO));
        assert_eq!(watch.moment(), back);
    }

    #[test]
    fn time_before_the_start_reads_as_the_start() {
        let early = Clock::start();
        let late = Clock { origin: early.origin + Duration::from_secs(9) };
        assert_eq!(late.at(early.origin), ClockTime::START);
        assert!(early.now() >= ClockTime::START);
    }
}
