//! The serving side of the rotation: which lane, which record, and when to stop.

use slab::Slab;

use super::lane::Stop;
use super::peer::{Cap, Cost, Peer};
use super::ring::NONE;
use super::{LaneKey, Load, PeerKey, Rotation};
use crate::clock::ClockTime;

/// A lane whose service begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Service {
    /// The lane.
    pub(crate) lane: LaneKey,
    /// The number its caller gave it.
    pub(crate) owner: u32,
}

/// A record that was held and is served now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Held<R> {
    /// Whose it is.
    pub(crate) peer: PeerKey,
    /// The number its caller gave the peer.
    pub(crate) owner: u32,
    /// How large it was said to be.
    pub(crate) bytes: u64,
    /// The record.
    pub(crate) record: R,
}

/// What to do with a record just read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Offer {
    /// Handle it now: it is charged to its peer.
    Deliver,
    /// Its peer has had its share, or earlier records of it wait, or nobody can take it now: [`Rotation::hold`] it.
    Hold,
    /// Its peer was removed: drop it.
    Gone,
}

/// How a rotation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum End {
    /// Nothing was left.
    #[default]
    Empty,
    /// Every lane that was ready had its service; some have more.
    Round,
    /// The turn's time for receiving was used up.
    TurnTime,
}

/// What a rotation did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Report {
    /// Lanes served.
    pub(crate) lanes: u32,
    /// Records handled.
    pub(crate) records: u32,
    /// Bytes of the records handled.
    pub(crate) bytes: u64,
    /// Records put into holds.
    pub(crate) held: u32,
    /// What stopped it.
    pub(crate) end: End,
}

/// The lane being served. Peers are bare indexes here: should one be removed and its place taken within this service,
/// the newcomer is taken for it, which costs at most its place in one round.
#[derive(Debug)]
pub(super) struct Serving {
    pub(super) lane: u32,
    /// The holds are done with; the lane itself is read.
    reading: bool,
    /// When the holds must leave the rest of the lane's time to reading.
    holds_end: ClockTime,
    /// The held peer being served.
    held_peer: Option<u32>,
    /// The holds' time ended before every held peer had its share.
    cut_short: bool,
    /// A hold is full: the next record of this peer is the last one read.
    last_reader: Option<u32>,
    /// The peer whose record was read first.
    first_reader: u32,
    /// How many were read.
    reads: u32,
    /// Somebody else's was read too.
    in_company: bool,
}

impl Serving {
    fn note_reader(&mut self, index: u32) {
        if self.reads == 0 {
            self.first_reader = index;
        }
        self.reads += 1;
        self.in_company |= index != self.first_reader;
    }

    /// Whether this peer alone has input behind the lane. ZeroMQ's fair queue alternates between those that have, so two
    /// records in a row show it.
    fn reads_only(&self, index: u32) -> bool {
        self.first_reader == index && self.reads >= 2 && !self.in_company
    }
}

/// The record between [`Offer::Hold`] and [`Rotation::hold`].
#[derive(Debug)]
pub(super) struct InHand {
    peer: PeerKey,
    bytes: u64,
    /// The peer whose record was read before this one.
    before: u32,
}

impl<R> Rotation<R> {
    /// Begins the turn's one rotation, and the turn's time for receiving.
    pub(crate) fn begin(&mut self, now: ClockTime) {
        self.number += 1;
        self.meter.begin(now);
        self.turn_end = self.meter.now().plus(self.caps.turn_time);
        self.serving = None;
        self.in_hand = None;
        self.metered = None;
        self.report = Report::default();
    }

    /// The next lane to serve; `None` when each had its service or the turn's time is used up. The lane goes to the
    /// tail of the ready set before it is served, so that the next rotation starts right behind it whatever happens.
    pub(crate) fn next_lane(&mut self) -> Option<Service> {
        self.serving = None;
        let index = self.ready.head()?;
        let now = self.meter.now();
        if self.lanes[index as usize].served == self.number || now >= self.turn_end {
            return None;
        }
        self.ready.start_after(&mut self.lanes, index);
        let lane = &mut self.lanes[index as usize];
        lane.served = self.number;
        lane.stop = None;
        let time = self.turn_end.since(now);
        // Rounded up, so that at least one held record is served.
        let holds_time = if lane.is_dedicated() { time } else { time - time / 2 };
        self.serving = Some(Serving {
            lane: index,
            reading: false,
            holds_end: now.plus(holds_time),
            held_peer: None,
            cut_short: false,
            last_reader: None,
            first_reader: NONE,
            reads: 0,
            in_company: false,
        });
        self.report.lanes += 1;
        Some(Service { lane: LaneKey { index, generation: lane.generation }, owner: lane.owner })
    }

    /// The next held record of the lane being served; `None` when reading may begin. Call [`done`](Self::done) after it.
    pub(crate) fn next_held(&mut self) -> Option<Held<R>> {
        if self.serving.as_ref()?.reading {
            return None;
        }
        let Some(index) = self.next_held_peer() else {
            self.begin_reading();
            return None;
        };
        let held = self.take_held(index)?;
        self.charge_record(held.peer, held.bytes);
        Some(held)
    }

    /// Whether one more record may be read from the lane being served. Call [`done`](Self::done) after it.
    pub(crate) fn may_read(&self) -> bool {
        self.serving
            .as_ref()
            .is_some_and(|serving| serving.reading && self.lanes[serving.lane as usize].stop.is_none())
    }

    /// The lane being served had nothing more to read.
    pub(crate) fn emptied(&mut self) {
        if let Some(Serving { lane: index, .. }) = self.serving {
            self.lanes[index as usize].readable = false;
            self.stop(Stop::Empty);
            self.settle(index);
        }
    }

    /// Says what to do with a record of `bytes` just read for `peer` from the lane being served. What is to be handled is
    /// charged at once, so one that nobody `can_take` now, because the host is paused, must say so here.
    pub(crate) fn offer(&mut self, key: PeerKey, bytes: u64, can_take: bool) -> Offer {
        let (Some(serving), Some(peer)) = (&mut self.serving, peer_mut(&mut self.peers, key)) else {
            return Offer::Gone;
        };
        serving.note_reader(key.index);
        let lane = &mut self.lanes[serving.lane as usize];
        let before = std::mem::replace(&mut lane.last_read, key.index);
        if serving.last_reader == Some(key.index) {
            lane.stop.get_or_insert(Stop::HoldFull);
        }
        if can_take && peer.hold.is_none() && peer.share.spent(self.number).is_none() {
            self.charge_record(key, bytes);
            return Offer::Deliver;
        }
        self.in_hand = Some(InHand { peer: key, bytes, before });
        Offer::Hold
    }

    /// Sets the record just offered aside for its peer's next share. Gives it back if that peer is gone.
    pub(crate) fn hold(&mut self, record: R) -> Result<(), R> {
        let Some(InHand { peer: key, bytes, before }) = self.in_hand.take() else { return Err(record) };
        let Some(peer) = peer_mut(&mut self.peers, key) else { return Err(record) };
        let hold = peer.hold.get_or_insert_with(|| self.spares.pop().unwrap_or_default());
        let was_full = self.hold_limits.reached(hold.load());
        hold.push(record, bytes);
        let is_full = self.hold_limits.reached(hold.load());
        peer.counters.held += 1;
        self.report.held += 1;

        let lane = &mut self.lanes[peer.lane as usize];
        lane.load.add(bytes);
        lane.full += u32::from(is_full && !was_full);
        let index = peer.lane;
        let spent = if lane.is_dedicated() {
            // A paused lane is read into its hold, and nothing else bounds how much of it in one rotation.
            peer.charge(self.number, &self.caps, Cost::Record { bytes })
        } else {
            // With nobody else there, reading on would only fill its hold.
            peer.share.spent(self.number).filter(|_| lane.pause.is_none())
        };
        if !peer.link.is_in() {
            lane.held.push(&mut self.peers, key.index);
        }
        if let Some(cap) = spent {
            self.stop_spent(key.index, cap);
        }
        let lane = &self.lanes[index as usize];
        if lane.pause.is_some() {
            self.settle(index);
            if self.lanes[index as usize].is_pause_full() {
                self.stop(Stop::PauseFull);
            }
        } else if is_full {
            self.hold_is_full(key.index, was_full, before);
        }
        Ok(())
    }

    /// The record just offered is dropped, for its peer has had its share and nothing of it is worth keeping. The lane is done
    /// for this rotation, as when a hold is full.
    pub(crate) fn drop_offered(&mut self) {
        self.in_hand = None;
        self.stop(Stop::HoldFull);
    }

    /// A record of too many frames was read on for a while. The lane is done for this rotation, and says nothing of those
    /// whose records wait behind it.
    pub(crate) fn passed_over(&mut self) {
        self.stop(Stop::PassedOver);
    }

    /// Ends one step: a record handled or held, or a look that found nothing. `now` is asked only if a reading of the
    /// clock is wanted; what passed since the last one is charged to those served in between.
    pub(crate) fn done(&mut self, now: impl FnOnce() -> ClockTime) {
        let wants_reading = self.metered.take().unwrap_or_else(|| self.meter.step());
        // A lane ends with a reading, so that none pays for another.
        if wants_reading || !self.is_serving() {
            self.charge_time(now());
        }
    }

    /// What the rotation did, and what stopped it.
    pub(crate) fn report(&self) -> Report {
        let end = if self.ready.head().is_none() {
            End::Empty
        } else if self.meter.now() >= self.turn_end {
            End::TurnTime
        } else {
            End::Round
        };
        Report { end, ..self.report }
    }

    /// Charges a record that is about to be handled.
    fn charge_record(&mut self, key: PeerKey, bytes: u64) {
        self.report.records += 1;
        self.report.bytes += bytes;
        let peer = &mut self.peers[key.index as usize];
        peer.counters.served += 1;
        self.metered = Some(self.meter.step_handled(key, bytes, peer.stride));
        if let Some(cap) = peer.charge(self.number, &self.caps, Cost::Record { bytes }) {
            self.stop_spent(key.index, cap);
        }
    }

    fn charge_time(&mut self, now: ClockTime) {
        let reading = self.meter.read(now);
        let mut spent = None;
        for &key in reading.unproved {
            if let Some(peer) = peer_mut(&mut self.peers, key) {
                peer.stride = 1;
            }
        }
        for run in reading.payers.chunk_by(|one, next| one == next) {
            let Some(peer) = peer_mut(&mut self.peers, run[0]) else { continue };
            peer.stride = reading.stride;
            let time = reading.each * run.len() as u64;
            if let Some(cap) = peer.charge(self.number, &self.caps, Cost::Time(time)) {
                spent = Some((run[0].index, cap));
            }
        }
        if let Some((index, cap)) = spent {
            self.stop_spent(index, cap);
        }
        if self.meter.now() >= self.turn_end {
            self.stop(Stop::TurnTime);
        }
    }

    fn is_serving(&self) -> bool {
        self.serving.as_ref().is_some_and(|serving| self.lanes[serving.lane as usize].stop.is_none())
    }

    /// Stops the lane being served; the first reason stands.
    fn stop(&mut self, stop: Stop) {
        if let Some(serving) = &self.serving {
            self.lanes[serving.lane as usize].stop.get_or_insert(stop);
        }
    }

    /// Stops the lane being served if this peer of it, which has had its share, is the only one that has anything to be
    /// read there.
    fn stop_spent(&mut self, index: u32, cap: Cap) {
        let lane = self.peers[index as usize].lane;
        let Some(serving) = self.serving.as_ref().filter(|serving| serving.lane == lane) else { return };
        if self.lanes[lane as usize].is_dedicated() || serving.reads_only(index) {
            self.stop(Stop::Capped(cap));
        }
    }

    /// A hold that is full ends the reading, but not before everyone else behind the lane had one more chance: the
    /// socket takes them in turn, so that round is over with the peer that was read before the full one, or at the
    /// latest when the full one comes again, which is then one record over. Without it, who joins behind a flooder
    /// would always get one record less than it.
    ///
    /// With it, a quiet peer gets one record less, and that one first thing in the next rotation, for each of two: the
    /// hold began the rotation with one record over, or the socket left its order because it found someone empty. The
    /// first cannot be helped: whoever reads the last record that may be due to a quiet peer has to risk one of the
    /// flooder's, and with 64 served in a rotation and 65 read the hold would grow by one each time.
    fn hold_is_full(&mut self, index: u32, was_full: bool, before: u32) {
        let Some(serving) = &mut self.serving else { return };
        if !serving.cut_short {
            self.lanes[serving.lane as usize].held.start_after(&mut self.peers, index);
        }
        if was_full || before == index {
            self.stop(Stop::HoldFull);
        } else {
            serving.last_reader.get_or_insert(before);
        }
    }

    /// The held peer to serve next, each up to its share, until the round or the holds' time is over. Leaves the cursor
    /// behind the peer that stopped.
    fn next_held_peer(&mut self) -> Option<u32> {
        let serving = self.serving.as_mut()?;
        let lane = &mut self.lanes[serving.lane as usize];
        if lane.pause.is_some() {
            return None;
        }
        let is_over = self.meter.now() >= serving.holds_end;
        let is_spent =
            |peers: &Slab<Peer<R>>, index: u32| peers[index as usize].share.spent(self.number).is_some();
        let head = lane.held.head()?;
        if serving.held_peer == Some(head) && (is_over || is_spent(&self.peers, head)) {
            lane.held.start_after(&mut self.peers, head);
            serving.held_peer = None;
        }
        let head = lane.held.head()?;
        if is_spent(&self.peers, head) {
            return None;
        }
        if is_over {
            serving.cut_short = true;
            return None;
        }
        serving.held_peer = Some(head);
        Some(head)
    }

    fn take_held(&mut self, index: u32) -> Option<Held<R>> {
        let peer = &mut self.peers[index as usize];
        let lane_index = peer.lane;
        let lane = &mut self.lanes[lane_index as usize];
        let hold = peer.hold.as_mut()?;
        let was_full = self.hold_limits.reached(hold.load());
        let (record, bytes) = hold.pop()?;
        let is_full = self.hold_limits.reached(hold.load());
        let is_empty = hold.load().records == 0;
        let served =
            Held { peer: PeerKey { index, generation: peer.generation }, owner: peer.owner, bytes, record };
        lane.load.take(Load { records: 1, bytes });
        lane.full -= u32::from(was_full && !is_full);
        if is_empty {
            let emptied = peer.hold.take();
            lane.held.remove(&mut self.peers, index);
            if let Some(storage) = emptied {
                self.recycle(storage);
            }
            self.settle(lane_index);
        }
        Some(served)
    }

    /// The holds had their time: the lane is read now, unless something says no.
    fn begin_reading(&mut self) {
        let Some(serving) = &mut self.serving else { return };
        serving.reading = true;
        let lane = &mut self.lanes[serving.lane as usize];
        let stop = if !lane.readable {
            Stop::Empty
        } else if lane.is_pause_full() {
            Stop::PauseFull
        } else if lane.pause.is_none() && lane.full > 0 {
            Stop::StillFull
        } else {
            return;
        };
        lane.stop.get_or_insert(stop);
    }
}

fn peer_mut<R>(peers: &mut Slab<Peer<R>>, key: PeerKey) -> Option<&mut Peer<R>> {
    peers.get_mut(key.index as usize).filter(|peer| peer.generation == key.generation)
}
