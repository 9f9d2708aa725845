//! The caller's requests: each completes exactly once, by whichever comes first of its reply, its time-out, its
//! cancellation, the loss of its connection and shutdown (000 §6). This room says which requests are over; it never
//! sees a reply, sends nothing, and nothing is ever resubmitted.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Full;
use super::pending::{Pending, Share};
use crate::clock::ClockTime;
use crate::slots::Key;

/// Dead deadlines that may lie in the heap beside as many as are alive, before it is worth a pass over all.
const DEAD_DEADLINES_MAX: usize = 64;

/// Names one request of this engine, from the call that began it to its completion and after.
///
/// No other request gets the same name before 2^32 - 1 more have begun, which takes over an hour at a million a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId(Key);

impl RequestId {
    /// What stands for this request on the wire, never zero. A late reply could meet its successor only where the peer
    /// kept it for 2^32 - 1 further requests, and then only on the same connection and in the same slot.
    pub(crate) const fn correlation(self) -> u64 {
        self.0.to_u64()
    }
}

/// The requests that wait for their end.
#[derive(Debug)]
pub(crate) struct Requests {
    pending: Pending<()>,
    /// A deadline for each pending request, the earliest on top, and some of requests that are over; the top is alive.
    deadlines: BinaryHeap<Reverse<(ClockTime, Key)>>,
}

impl Requests {
    /// At most `most` requests are pending at a time.
    pub(crate) const fn new(most: u32) -> Self {
        Self { pending: Pending::new(most, Share::All), deadlines: BinaryHeap::new() }
    }

    /// Begins a request over connection `owner`, due to end by `deadline` at the latest. Where the transport then refuses
    /// it, [`Requests::abandon`] it.
    pub(crate) fn begin(&mut self, owner: u32, deadline: ClockTime) -> Result<RequestId, Full> {
        let key = self.pending.add(owner, ())?;
        self.deadlines.push(Reverse((deadline, key)));
        Ok(RequestId(key))
    }

    /// Ends the request that a reply from connection `owner` answers. None for a reply that is late, repeated, made up or
    /// from another connection: it completes nothing, and the caller counts and drops it.
    pub(crate) fn complete(&mut self, correlation: u64, owner: u32) -> Option<RequestId> {
        let key = Key::from_u64(correlation)?;
        let (asked, ()) = self.pending.get(key)?;
        (asked == owner && self.end(key)).then_some(RequestId(key))
    }

    /// Ends a request that its caller no longer wants; false if it was over already.
    pub(crate) fn cancel(&mut self, id: RequestId) -> bool {
        self.end(id.0)
    }

    /// Takes back a request that the transport refused: it never existed, and nothing completes it.
    pub(crate) fn abandon(&mut self, id: RequestId) {
        let ended = self.end(id.0);
        debug_assert!(ended, "only a request that just began is abandoned");
    }

    /// Ends the next request whose deadline has come, the earliest first.
    pub(crate) fn next_expired(&mut self, now: ClockTime) -> Option<RequestId> {
        let &Reverse((deadline, key)) = self.deadlines.peek()?;
        (deadline <= now && self.end(key)).then_some(RequestId(key))
    }

    /// Ends the oldest request of a connection that was lost. `owner` may stand for another connection once this is none.
    pub(crate) fn next_of(&mut self, owner: u32) -> Option<RequestId> {
        let (key, ()) = self.pending.pop(owner)?;
        self.tidy();
        Some(RequestId(key))
    }

    /// Ends every request, as far as it is iterated: shutdown.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = RequestId> {
        std::iter::from_fn(|| {
            let &Reverse((deadline, _)) = self.deadlines.peek()?;
            self.next_expired(deadline)
        })
    }

    /// When the next request runs out of time.
    pub(crate) fn earliest(&self) -> Option<ClockTime> {
        self.deadlines.peek().map(|Reverse((deadline, _))| *deadline)
    }

    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    fn end(&mut self, key: Key) -> bool {
        let was_pending = self.pending.remove(key).is_some();
        self.tidy();
        was_pending
    }

    /// Keeps the heap in proportion to what is pending, and its top alive.
    fn tidy(&mut self) {
        let Self { pending, deadlines } = self;
        if deadlines.len() > 2 * pending.len() + DEAD_DEADLINES_MAX {
            deadlines.retain(|Reverse((_, key))| pending.contains(*key));
        }
        while deadlines.peek().is_some_and(|Reverse((_, key))| !pending.contains(*key)) {
            deadlines.pop();
        }
    }
}

#[cfg(test)]
mod tests;
