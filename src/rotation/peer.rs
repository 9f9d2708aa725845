//! One peer's share of the running rotation, and its hold.

use std::collections::VecDeque;

use super::ring::{Link, Linked};
use super::{COUNT_CAP, Caps, Load};

/// Which cap ended a peer's share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cap {
    /// 64 records.
    Records,
    /// [`Caps::bytes`].
    Bytes,
    /// [`Caps::time`].
    Time,
}

/// What a peer has had of one rotation. It starts afresh by itself when the rotation's number is another.
#[derive(Debug)]
pub(super) struct Share {
    rotation: u64,
    /// Nanoseconds.
    time: u64,
    bytes: u64,
    records: u16,
    spent: Option<Cap>,
}

impl Share {
    const UNTOUCHED: Self = Self { rotation: 0, time: 0, bytes: 0, records: 0, spent: None };

    /// Whether anything was charged to it in this rotation.
    pub(super) fn is_begun(&self, rotation: u64) -> bool {
        self.rotation == rotation
    }

    /// Which cap this rotation's share has reached.
    #[inline]
    pub(super) fn spent(&self, rotation: u64) -> Option<Cap> {
        self.spent.filter(|_| self.rotation == rotation)
    }

    /// Charges this share of `rotation`; says which cap that reached, if it is the first.
    fn charge(&mut self, rotation: u64, caps: &Caps, cost: Cost) -> Option<Cap> {
        if self.rotation != rotation {
            *self = Self { rotation, ..Self::UNTOUCHED };
        }
        let reached = match cost {
            Cost::Record { bytes } => {
                self.records += 1;
                self.bytes = self.bytes.saturating_add(bytes);
                if self.records >= COUNT_CAP {
                    Some(Cap::Records)
                } else {
                    (self.bytes >= caps.bytes).then_some(Cap::Bytes)
                }
            }
            Cost::Time(time) => {
                self.time = self.time.saturating_add(time);
                (u128::from(self.time) >= caps.time.as_nanos()).then_some(Cap::Time)
            }
        };
        if self.spent.is_some() {
            return None;
        }
        self.spent = reached;
        self.spent
    }
}

/// What a share is charged with.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cost {
    Record {
        bytes: u64,
    },
    /// Nanoseconds.
    Time(u64),
}

/// Records set aside, in the order they were read.
#[derive(Debug)]
pub(super) struct Hold<R> {
    records: VecDeque<(R, u64)>,
    bytes: u64,
}

impl<R> Default for Hold<R> {
    fn default() -> Self {
        Self { records: VecDeque::new(), bytes: 0 }
    }
}

impl<R> Hold<R> {
    pub(super) fn load(&self) -> Load {
        Load { records: self.records.len() as u32, bytes: self.bytes }
    }

    pub(super) fn push(&mut self, record: R, bytes: u64) {
        self.records.push_back((record, bytes));
        self.bytes += bytes;
    }

    pub(super) fn pop(&mut self) -> Option<(R, u64)> {
        let (record, bytes) = self.records.pop_front()?;
        self.bytes -= bytes;
        Some((record, bytes))
    }

    pub(super) fn clear(&mut self) {
        self.records.clear();
        self.bytes = 0;
    }

    /// How many records its storage has room for.
    pub(super) fn capacity(&self) -> usize {
        self.records.capacity()
    }
}

/// What happened to a peer's records since it was added.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Records handled.
    pub(crate) served: u64,
    /// Records that went through its hold.
    pub(crate) held: u64,
    /// Rotations in which 64 records ended its share.
    pub(crate) capped_by_records: u32,
    /// Rotations in which the byte cap did.
    pub(crate) capped_by_bytes: u32,
    /// Rotations in which the time cap did.
    pub(crate) capped_by_time: u32,
}

impl Counters {
    pub(super) fn capped(&mut self, cap: Cap) {
        let count = match cap {
            Cap::Records => &mut self.capped_by_records,
            Cap::Bytes => &mut self.capped_by_bytes,
            Cap::Time => &mut self.capped_by_time,
        };
        *count = count.saturating_add(1);
    }
}

#[derive(Debug)]
pub(super) struct Peer<R> {
    pub(super) generation: u32,
    pub(super) owner: u32,
    pub(super) lane: u32,
    /// After how many of its records the clock is read; one until it is known to be fast.
    pub(super) stride: u8,
    /// Its place among the held peers of its lane; it has one exactly while it has a hold.
    pub(super) link: Link,
    pub(super) share: Share,
    /// Never an empty one. Boxed because few peers have one at a time.
    pub(super) hold: Option<Box<Hold<R>>>,
    pub(super) counters: Counters,
}

impl<R> Peer<R> {
    pub(super) fn new(generation: u32, owner: u32, lane: u32) -> Self {
        Self {
            generation,
            owner,
            lane,
            stride: 1,
            link: Link::OUT,
            share: Share::UNTOUCHED,
            hold: None,
            counters: Counters::default(),
        }
    }
}

impl<R> Peer<R> {
    /// Charges its share of `rotation`; says, and counts, which cap that reached, if it is the first.
    pub(super) fn charge(&mut self, rotation: u64, caps: &Caps, cost: Cost) -> Option<Cap> {
        #[cfg(test)]
        if caps.are_lifted() {
            return None;
        }
        let cap = self.share.charge(rotation, caps, cost)?;
        self.counters.capped(cap);
        Some(cap)
    }

    pub(super) fn load(&self) -> Load {
        self.hold.as_ref().map_or(Load::default(), |hold| hold.load())
    }
}

impl<R> Linked for Peer<R> {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}
