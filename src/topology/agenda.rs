//! What is due at some later time beside liveness: retries by the clock, the patience of handshakes by the watch.
//! Entries are not taken back; whoever pops one looks whether it still means anything.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use crate::clock::{ClockTime, Moment, WATCH_AGAIN, WatchTime};
use crate::link::connection::ConnectionId;

/// How long an attempt to connect may take until it is admitted and ready, in watched time.
pub(crate) const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(20);

/// How long a redial waits for what was dialled there before to be physically closed, in watched time, and a held hello by
/// the clock.
pub(crate) const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// What is due when.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    retries: BinaryHeap<Reverse<(ClockTime, u32)>>,
    /// In the order in which they began: all have the same patience.
    handshakes: VecDeque<(WatchTime, ConnectionId)>,
    /// In the order in which they fall due: all have the same interval.
    reminders: VecDeque<(ClockTime, ConnectionId)>,
}

impl Agenda {
    /// An intent wants its next attempt at `at`.
    pub(crate) fn retry(&mut self, at: ClockTime, intent: u32) {
        self.retries.push(Reverse((at, intent)));
    }

    /// A handshake begins now.
    pub(crate) fn handshake(&mut self, moment: &Moment, connection: ConnectionId) {
        self.handshakes.push_back((moment.watched.plus(HANDSHAKE_PATIENCE), connection));
    }

    /// The next intent whose attempt is due.
    pub(crate) fn next_retry(&mut self, now: ClockTime) -> Option<u32> {
        let &Reverse((at, intent)) = self.retries.peek()?;
        (at <= now).then(|| {
            self.retries.pop();
            intent
        })
    }

    /// The next connection whose handshake has had its time.
    pub(crate) fn next_handshake(&mut self, moment: &Moment) -> Option<ConnectionId> {
        let &(until, connection) = self.handshakes.front()?;
        (until <= moment.watched).then(|| {
            self.handshakes.pop_front();
            connection
        })
    }

    /// A fenced connection is to be reminded at `at`. It wants no turn of its own: there is no hurry to forget it.
    pub(crate) fn remind(&mut self, at: ClockTime, connection: ConnectionId) {
        self.reminders.push_back((at, connection));
    }

    /// The next connection whose reminder is due.
    pub(crate) fn next_reminder(&mut self, now: ClockTime) -> Option<ConnectionId> {
        let &(at, connection) = self.reminders.front()?;
        (at <= now).then(|| {
            self.reminders.pop_front();
            connection
        })
    }

    /// When the next retry is due.
    pub(crate) fn retry_at(&self) -> Option<ClockTime> {
        self.retries.peek().map(|&Reverse((at, _))| at)
    }

    /// When a turn is wanted for the sake of a handshake. `stands` says whether a connection is still in one; those that
    /// are not are forgotten here.
    pub(crate) fn handshake_at(
        &mut self,
        moment: &Moment,
        stands: impl Fn(ConnectionId) -> bool,
    ) -> Option<ClockTime> {
        while let Some(&(until, connection)) = self.handshakes.front() {
            if stands(connection) {
                return Some(moment.now.plus(until.since(moment.watched).min(WATCH_AGAIN)));
            }
            self.handshakes.pop_front();
        }
        None
    }

    /// Nothing is due any more.
    pub(crate) fn clear(&mut self) {
        self.retries.clear();
        self.handshakes.clear();
        self.reminders.clear();
    }
}
