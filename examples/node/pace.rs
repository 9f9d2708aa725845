//! When what is done again and again is due.

use std::time::{Duration, Instant};

/// A point in time that comes again and again. Points that were missed are skipped.
pub struct Pace {
    pub next: Instant,
    every: Duration,
}

impl Pace {
    pub fn new(began: Instant, every: u64) -> Self {
        let every = Duration::from_millis(every);
        Self { next: began + every, every }
    }

    pub fn is_due(&mut self, now: Instant) -> bool {
        if now < self.next {
            return false;
        }
        self.next += self.every;
        if self.next <= now {
            self.next = now + self.every;
        }
        true
    }
}
