//! Whose turn it is to be read: the ready set, the cursor, the three caps and the holds (000 §4).
//!
//! Every lane with unread input, or with records held, is in the ready set, a ring whose head is the lane right after
//! the one where the last rotation stopped. A rotation serves each lane at most once: a dedicated lane until its one
//! peer has had its share (64 records, a byte cap, a time cap), a shared lane until it is empty or a hold is full.
//! Behind a shared lane the share is kept per peer: what is read for a peer that has had it goes into that peer's hold,
//! in order, and is served first in the next rotation. So one peer's volume never changes when another is heard. Where one
//! peer alone has input there is nobody to read on for, and the lane stops with its share.
//!
//! This room owns the order and the accounts. It knows no socket, no record and no clock: the driver reads, handles
//! and tells it, and time is an argument. The driver's loop is
//!
//! ```text
//! rotation.begin(now);
//! while let Some(lane) = rotation.next_lane() {
//!     while let Some(held) = rotation.next_held() {
//!         handle(held);
//!         rotation.done(|| clock.now());
//!     }
//!     while rotation.may_read() {
//!         match receive(lane) {
//!             None => rotation.emptied(),
//!             Some((peer, bytes, record)) => match rotation.offer(peer, bytes, true) {
//!                 Offer::Deliver => handle(record),
//!                 Offer::Hold => rotation.hold(record)?,
//!                 Offer::Gone => drop(record),
//!             },
//!         }
//!         rotation.done(|| clock.now());
//!     }
//! }
//! ```
//!
//! `handle` may mark, add, pause and remove any lane or peer, the ones being served too.

mod caps;
mod lane;
mod meter;
mod peer;
#[cfg(test)]
mod properties;
mod ring;
mod serve;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;

use slab::Slab;

pub(crate) use self::{
    caps::{
        BYTES_DEFAULT, BYTES_MAX, BYTES_MIN, COUNT_CAP, Caps, HoldLimits, Load, TIME_DEFAULT, TIME_MAX,
        TIME_MIN, TURN_TIME_DEFAULT, TURN_TIME_MAX, TURN_TIME_MIN,
    },
    lane::Looked,
    peer::Counters,
    serve::{End, Offer, Report, Service},
};
#[cfg(test)]
pub(crate) use self::{lane::Stop, meter::STRIDE_MAX, peer::Cap};

use self::lane::{Kind, Lane};
use self::meter::Meter;
use self::peer::{Hold, Peer};
use self::ring::{NONE, Ring};
use self::serve::{InHand, Serving};
use crate::clock::ClockTime;

/// How many emptied holds keep their storage for the next peer that needs one, and for how many records at most: a
/// peer that is capped in every rotation allocates nothing per record.
const SPARES_MAX: usize = 64;
const SPARE_RECORDS_MAX: usize = 2 * COUNT_CAP as usize;

/// Names a lane until it is removed, and nothing afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct LaneKey {
    index: u32,
    generation: u32,
}

/// Names a peer behind a lane until it is removed, and nothing afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PeerKey {
    index: u32,
    generation: u32,
}

impl PeerKey {
    /// Names no peer, for a record that comes from none.
    pub(crate) const NOBODY: Self = Self { index: NONE, generation: 0 };
}

/// The ready set, the accounts of the running rotation, and every record held. See the [module](self).
#[derive(Debug)]
pub(crate) struct Rotation<R> {
    caps: Caps,
    hold_limits: HoldLimits,
    lanes: Slab<Lane>,
    peers: Slab<Peer<R>>,
    /// The last generation given to a lane or a peer.
    generation: u32,
    ready: Ring,
    /// Which rotation is running; it tells its own accounts from older ones, which need no clearing.
    number: u64,
    turn_end: ClockTime,
    meter: Meter,
    serving: Option<Serving>,
    in_hand: Option<InHand>,
    /// Whether the clock is to be read after the record being handled; none if none is.
    metered: Option<bool>,
    #[expect(clippy::vec_box, reason = "the boxes go back and forth between here and the peers")]
    spares: Vec<Box<Hold<R>>>,
    report: Report,
}

impl<R> Rotation<R> {
    pub(crate) fn new(caps: Caps) -> Self {
        Self {
            caps,
            hold_limits: HoldLimits::of_share(&caps),
            lanes: Slab::new(),
            peers: Slab::new(),
            generation: 0,
            ready: Ring::EMPTY,
            number: 0,
            turn_end: ClockTime::START,
            meter: Meter::new(&caps),
            serving: None,
            in_hand: None,
            metered: None,
            spares: Vec::new(),
            report: Report::default(),
        }
    }

    /// Serves each lane until it is empty from here on, so that a test can show what the caps are for.
    #[cfg(test)]
    pub(crate) fn lift_caps(&mut self) {
        self.caps = Caps::LIFTED;
        self.meter = Meter::new(&self.caps);
    }

    /// Adds a dialled socket and the one peer behind it; the two live and end together. The owners are the caller's
    /// own numbers, handed back with every service and every held record.
    pub(crate) fn add_dedicated(&mut self, lane_owner: u32, peer_owner: u32) -> (LaneKey, PeerKey) {
        let peer = self.peers.vacant_key() as u32;
        let lane = self.add_lane(lane_owner, Kind::Dedicated(peer));
        (lane, self.insert_peer(lane.index, peer_owner))
    }

    /// Adds a bound socket, with no peer behind it yet.
    pub(crate) fn add_shared(&mut self, owner: u32) -> LaneKey {
        self.add_lane(owner, Kind::Shared)
    }

    /// Adds a peer behind a shared lane. `None`, and nothing changed, if the lane is gone or not shared.
    pub(crate) fn add_peer(&mut self, lane: LaneKey, owner: u32) -> Option<PeerKey> {
        self.lane(lane).filter(|lane| lane.kind == Kind::Shared)?;
        Some(self.insert_peer(lane.index, owner))
    }

    /// Removes a lane with every peer behind it, and drops what they hold. Returns how many records that were, or
    /// `None` if the lane was gone. A shared lane costs a walk over all peers; it ends with its listener.
    pub(crate) fn remove_lane(&mut self, key: LaneKey) -> Option<u32> {
        let dropped = self.lane(key)?.load.records;
        if self.serving.as_ref().is_some_and(|serving| serving.lane == key.index) {
            self.serving = None;
        }
        if self.lanes[key.index as usize].link.is_in() {
            self.ready.remove(&mut self.lanes, key.index);
        }
        match self.lanes.remove(key.index as usize).kind {
            Kind::Dedicated(peer) => drop(self.peers.remove(peer as usize)),
            Kind::Shared => self.peers.retain(|_, peer| peer.lane != key.index),
        }
        Some(dropped)
    }

    /// Removes a peer, and its lane with it if that is dedicated, and drops what it holds. Returns how many records
    /// that were, or `None` if the peer was gone.
    pub(crate) fn remove_peer(&mut self, key: PeerKey) -> Option<u32> {
        let index = self.peer(key)?.lane;
        let lane = &mut self.lanes[index as usize];
        if lane.is_dedicated() {
            let generation = lane.generation;
            return self.remove_lane(LaneKey { index, generation });
        }
        let load = self.peers[key.index as usize].load();
        if load.records > 0 {
            lane.held.remove(&mut self.peers, key.index);
            lane.load.take(load);
            lane.full -= u32::from(self.hold_limits.reached(load));
        }
        if let Some(hold) = self.peers.remove(key.index as usize).hold {
            self.recycle(hold);
        }
        self.settle(index);
        Some(load.records)
    }

    /// The lane's socket may have unread input. A lane that was not ready joins behind all that are.
    pub(crate) fn mark(&mut self, lane: LaneKey) {
        self.set_readable(lane, true);
    }

    /// The host is paused for this lane: nothing held is served, and the lane is read until all its holds together
    /// reach `limits`. Which of the records read may still be handled is the driver's to decide.
    pub(crate) fn pause(&mut self, lane: LaneKey, limits: HoldLimits) {
        self.set_pause(lane, Some(limits));
    }

    /// The host runs again for this lane: what is held is served, in order, before anything more is read for it.
    pub(crate) fn resume(&mut self, lane: LaneKey) {
        self.set_pause(lane, None);
    }

    /// Whether another rotation would find something to do.
    pub(crate) fn work_left(&self) -> bool {
        self.ready.head().is_some()
    }

    /// What the running rotation can say about a lane. A lane that is not ready had nothing to read; whether it was
    /// polled, and what a pause means, is the caller's to know. A lane that is gone was not looked at.
    #[cfg(test)]
    pub(crate) fn looked(&self, lane: LaneKey) -> Looked {
        self.lane(lane).map_or(Looked::No, |lane| lane.looked(self.number))
    }

    /// The same for one peer: its own records that wait in its hold come first, whatever its lane saw.
    pub(crate) fn looked_at_peer(&self, peer: PeerKey) -> Looked {
        match self.peer(peer) {
            Some(peer) if peer.hold.is_none() => self.lanes[peer.lane as usize].looked(self.number),
            Some(peer) if peer.share.is_begun(self.number) => Looked::Unread,
            _ => Looked::No,
        }
    }

    /// Whether the host's pause keeps records of this peer from being handled: some are held, or its lane is not read.
    pub(crate) fn is_held_back(&self, peer: PeerKey) -> bool {
        self.peer(peer).is_some_and(|peer| {
            let lane = &self.lanes[peer.lane as usize];
            lane.pause.is_some() && (peer.hold.is_some() || lane.is_pause_full())
        })
    }

    /// What ended the lane's last service; `None` before the first, and while one runs.
    #[cfg(test)]
    pub(crate) fn stopped(&self, lane: LaneKey) -> Option<Stop> {
        self.lane(lane)?.stop
    }

    pub(crate) fn counters(&self, peer: PeerKey) -> Option<Counters> {
        Some(self.peer(peer)?.counters)
    }

    /// What is held for a peer now.
    #[cfg(test)]
    pub(crate) fn holding(&self, peer: PeerKey) -> Option<Load> {
        Some(self.peer(peer)?.load())
    }

    /// What is held for all peers behind a lane now.
    #[cfg(test)]
    pub(crate) fn lane_holding(&self, lane: LaneKey) -> Option<Load> {
        Some(self.lane(lane)?.load)
    }

    fn add_lane(&mut self, owner: u32, kind: Kind) -> LaneKey {
        let generation = self.next_generation();
        let index = self.lanes.insert(Lane::new(generation, owner, kind)) as u32;
        LaneKey { index, generation }
    }

    fn insert_peer(&mut self, lane: u32, owner: u32) -> PeerKey {
        let generation = self.next_generation();
        let index = self.peers.insert(Peer::new(generation, owner, lane)) as u32;
        PeerKey { index, generation }
    }

    fn next_generation(&mut self) -> u32 {
        self.generation = self.generation.wrapping_add(1);
        self.generation
    }

    fn lane(&self, key: LaneKey) -> Option<&Lane> {
        self.lanes.get(key.index as usize).filter(|lane| lane.generation == key.generation)
    }

    fn peer(&self, key: PeerKey) -> Option<&Peer<R>> {
        self.peers.get(key.index as usize).filter(|peer| peer.generation == key.generation)
    }

    fn set_readable(&mut self, key: LaneKey, readable: bool) {
        if self.lane(key).is_some() {
            self.lanes[key.index as usize].readable = readable;
            self.settle(key.index);
        }
    }

    fn set_pause(&mut self, key: LaneKey, pause: Option<HoldLimits>) {
        if self.lane(key).is_some() {
            self.lanes[key.index as usize].pause = pause;
            self.settle(key.index);
        }
    }

    /// Puts the lane into the ready set or takes it out, as what is known of it now demands.
    fn settle(&mut self, index: u32) {
        let lane = &self.lanes[index as usize];
        match (lane.wants_service(), lane.link.is_in()) {
            (true, false) => self.ready.push(&mut self.lanes, index),
            (false, true) => self.ready.remove(&mut self.lanes, index),
            _ => {}
        }
    }

    /// Keeps the storage of an emptied or dropped hold, within bounds.
    fn recycle(&mut self, mut hold: Box<Hold<R>>) {
        if self.spares.len() < SPARES_MAX && hold.capacity() <= SPARE_RECORDS_MAX {
            hold.clear();
            self.spares.push(hold);
        }
    }
}
