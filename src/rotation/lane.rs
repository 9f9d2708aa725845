//! One lane: whether it has work, what it holds, and what ended its last service.

use super::peer::Cap;
use super::ring::{Link, Linked, NONE, Ring};
use super::{HoldLimits, Load};

/// What ended a lane's service in a rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Nothing was left to read.
    Empty,
    /// The one peer that had input behind the lane has had its share.
    Capped(Cap),
    /// A hold became full, and everyone else behind the lane had one more chance after that.
    HoldFull,
    /// A hold was still full after the holds were served, so the lane was not read.
    StillFull,
    /// A record of too many frames was read on for a while. The socket gives nobody else's before its end.
    PassedOver,
    /// The host is paused and the lane holds all that its pause allows.
    PauseFull,
    /// The turn's time for receiving was used up.
    TurnTime,
}

/// What the last rotation can say about a lane for a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Looked {
    /// Not every connection behind the lane had its chance.
    No,
    /// There was nothing to read, or nothing more.
    Empty,
    /// Every connection behind the lane had its chance; more may lie unread or in a hold.
    Unread,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A dialled socket with this one peer, by index.
    Dedicated(u32),
    /// A bound socket with any number of peers.
    Shared,
}

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) generation: u32,
    pub(super) owner: u32,
    pub(super) kind: Kind,
    /// The socket may have unread input.
    pub(super) readable: bool,
    /// Its place in the ready set.
    pub(super) link: Link,
    /// The last rotation that served it.
    pub(super) served: u64,
    pub(super) stop: Option<Stop>,
    /// The bound of all its holds while the host is paused.
    pub(super) pause: Option<HoldLimits>,
    /// The peers that have a hold; the head is the peer cursor.
    pub(super) held: Ring,
    pub(super) load: Load,
    /// How many of the holds are full.
    pub(super) full: u32,
    /// The peer whose record was read last.
    pub(super) last_read: u32,
}

impl Lane {
    pub(super) fn new(generation: u32, owner: u32, kind: Kind) -> Self {
        Self {
            generation,
            owner,
            kind,
            readable: false,
            link: Link::OUT,
            served: 0,
            stop: None,
            pause: None,
            held: Ring::EMPTY,
            load: Load::default(),
            full: 0,
            last_read: NONE,
        }
    }

    /// Whether a rotation could do anything for it.
    pub(super) fn wants_service(&self) -> bool {
        match self.pause {
            None => self.readable || self.load.records > 0,
            Some(_) => self.readable && !self.is_pause_full(),
        }
    }

    pub(super) fn is_pause_full(&self) -> bool {
        self.pause.is_some_and(|limits| limits.reached(self.load))
    }

    pub(super) fn is_dedicated(&self) -> bool {
        matches!(self.kind, Kind::Dedicated(_))
    }

    pub(super) fn looked(&self, rotation: u64) -> Looked {
        if self.served != rotation {
            return if self.link.is_in() { Looked::No } else { Looked::Empty };
        }
        match self.stop {
            Some(Stop::Empty) => Looked::Empty,
            Some(Stop::HoldFull | Stop::Capped(_)) => Looked::Unread,
            Some(_) if self.is_dedicated() => Looked::Unread,
            _ => Looked::No,
        }
    }
}

impl Linked for Lane {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}
