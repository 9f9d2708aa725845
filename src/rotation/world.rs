//! A world for the tests: sockets with queues, a clock that moves only by what things cost, and the driver's loop.

use std::collections::VecDeque;
use std::time::Duration;

use super::ring::{Link, NONE};
use super::*;

/// What one look at a socket costs, in nanoseconds.
pub(super) const RECEIVE: u64 = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) peer: usize,
    pub(super) number: u64,
    pub(super) bytes: u64,
    /// What the host's handling of it costs, in nanoseconds.
    pub(super) cost: u64,
}

/// libzmq's fair queue: the peers with input take turns; a peer that gets input joins behind the last of them in the
/// array, not in the order of turns, and one found empty swaps places with the last.
#[derive(Debug, Default)]
pub(super) struct FairQueue {
    pipes: Vec<(usize, VecDeque<Record>)>,
    active: usize,
    current: usize,
    /// Whether a peer found empty made the last one take its place, out of turn.
    left_order: bool,
}

impl FairQueue {
    fn push(&mut self, record: Record) {
        let known = self.pipes.iter().position(|(peer, _)| *peer == record.peer);
        let at = known.unwrap_or(self.pipes.len());
        if known.is_none() {
            self.pipes.push((record.peer, VecDeque::new()));
        }
        self.pipes[at].1.push_back(record);
        if at >= self.active {
            self.pipes.swap(at, self.active);
            self.active += 1;
        }
    }

    fn pop(&mut self) -> Option<Record> {
        while self.active > 0 {
            if let Some(record) = self.pipes[self.current].1.pop_front() {
                self.current = (self.current + 1) % self.active;
                return Some(record);
            }
            self.active -= 1;
            self.left_order |= self.current < self.active;
            self.pipes.swap(self.current, self.active);
            if self.current == self.active {
                self.current = 0;
            }
        }
        None
    }

    fn forget(&mut self, peer: usize) {
        if let Some((_, queue)) = self.pipes.iter_mut().find(|(owner, _)| *owner == peer) {
            queue.clear();
        }
    }

    fn len_of(&self, peer: usize) -> usize {
        self.pipes.iter().find(|(owner, _)| *owner == peer).map_or(0, |(_, queue)| queue.len())
    }
}

#[derive(Debug)]
pub(super) struct SimLane {
    pub(super) key: LaneKey,
    pub(super) socket: FairQueue,
    pub(super) paused: bool,
    pub(super) was_paused: bool,
    pub(super) gone: bool,
}

#[derive(Debug)]
pub(super) struct SimPeer {
    pub(super) key: PeerKey,
    pub(super) lane: usize,
    pub(super) sent: u64,
    /// Every record handled before this number, and no other.
    pub(super) handled: u64,
    pub(super) gone: bool,
}

/// One handled record, and where it came from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Handled {
    pub(super) record: Record,
    pub(super) from_hold: bool,
}

/// What the driver saw of one lane's service.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) lane: usize,
    pub(super) handled: Vec<Handled>,
    pub(super) began: u64,
    pub(super) ended: u64,
}

impl Served {
    pub(super) fn count(&self, peer: usize) -> usize {
        self.of(peer).count()
    }

    pub(super) fn of(&self, peer: usize) -> impl Iterator<Item = &Record> {
        self.handled.iter().map(|handled| &handled.record).filter(move |record| record.peer == peer)
    }
}

/// What a callback does at its n-th call of a turn.
#[derive(Debug, Clone, Copy)]
pub(super) enum Deed {
    RemovePeer(usize),
    RemoveLane(usize),
    Send { peer: usize, count: u64, bytes: u64, cost: u64 },
    Pause(usize, HoldLimits),
    Resume(usize),
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) rotation: Rotation<Record>,
    pub(super) lanes: Vec<SimLane>,
    pub(super) peers: Vec<SimPeer>,
    pub(super) clock: u64,
    pub(super) readings: u64,
}

impl World {
    pub(super) fn new(caps: Caps) -> Self {
        let rotation = Rotation::new(caps);
        Self { rotation, lanes: Vec::new(), peers: Vec::new(), clock: 0, readings: 0 }
    }

    pub(super) fn dedicated(&mut self) -> usize {
        let (lane, peer) = (self.lanes.len(), self.peers.len());
        let (lane_key, key) = self.rotation.add_dedicated(lane as u32, peer as u32);
        self.lanes.push(SimLane {
            key: lane_key,
            socket: FairQueue::default(),
            paused: false,
            was_paused: false,
            gone: false,
        });
        self.peers.push(SimPeer { key, lane, sent: 0, handled: 0, gone: false });
        peer
    }

    pub(super) fn shared(&mut self) -> usize {
        let lane = self.lanes.len();
        let key = self.rotation.add_shared(lane as u32);
        self.lanes.push(SimLane {
            key,
            socket: FairQueue::default(),
            paused: false,
            was_paused: false,
            gone: false,
        });
        lane
    }

    pub(super) fn peer(&mut self, lane: usize) -> usize {
        let peer = self.peers.len();
        let key = self.rotation.add_peer(self.lanes[lane].key, peer as u32).unwrap();
        self.peers.push(SimPeer { key, lane, sent: 0, handled: 0, gone: false });
        peer
    }

    pub(super) fn send(&mut self, peer: usize, count: u64, bytes: u64, cost: u64) {
        let SimPeer { lane, gone, .. } = self.peers[peer];
        if gone || count == 0 {
            return;
        }
        for _ in 0..count {
            let number = self.peers[peer].sent;
            self.peers[peer].sent += 1;
            self.lanes[lane].socket.push(Record { peer, number, bytes, cost });
        }
        self.rotation.mark(self.lanes[lane].key);
    }

    pub(super) fn unread(&self, peer: usize) -> usize {
        self.lanes[self.peers[peer].lane].socket.len_of(peer)
    }

    /// Whether a lane's socket took anyone out of turn since this was asked last.
    pub(super) fn left_order(&mut self, lane: usize) -> bool {
        std::mem::take(&mut self.lanes[lane].socket.left_order)
    }

    pub(super) fn holding(&self, peer: usize) -> Load {
        self.rotation.holding(self.peers[peer].key).unwrap()
    }

    pub(super) fn looked(&self, lane: usize) -> Looked {
        self.rotation.looked(self.lanes[lane].key)
    }

    pub(super) fn stopped(&self, lane: usize) -> Option<Stop> {
        self.rotation.stopped(self.lanes[lane].key)
    }

    pub(super) fn counters(&self, peer: usize) -> Counters {
        self.rotation.counters(self.peers[peer].key).unwrap()
    }

    pub(super) fn act(&mut self, deed: Deed) {
        match deed {
            Deed::RemovePeer(peer) => self.remove_peer(peer),
            Deed::RemoveLane(lane) => self.remove_lane(lane),
            Deed::Send { peer, count, bytes, cost } => self.send(peer, count, bytes, cost),
            Deed::Pause(lane, limits) => {
                self.lanes[lane].paused = true;
                self.lanes[lane].was_paused = true;
                self.rotation.pause(self.lanes[lane].key, limits);
            }
            Deed::Resume(lane) => {
                self.lanes[lane].paused = false;
                self.rotation.resume(self.lanes[lane].key);
            }
        }
    }

    fn remove_peer(&mut self, peer: usize) {
        let SimPeer { key, lane, gone, .. } = self.peers[peer];
        let held = self.rotation.holding(key).map(|load| load.records);
        assert_eq!(held.is_none(), gone);
        if self.rotation.lanes.get(self.lanes[lane].key.index as usize).is_some_and(Lane::is_dedicated)
            && !gone
        {
            self.lanes[lane].gone = true;
        }
        assert_eq!(self.rotation.remove_peer(key), held);
        assert_eq!(self.rotation.remove_peer(key), None);
        self.peers[peer].gone = true;
        self.lanes[lane].socket.forget(peer);
    }

    fn remove_lane(&mut self, lane: usize) {
        let key = self.lanes[lane].key;
        let held = self.rotation.lane_holding(key).map(|load| load.records);
        assert_eq!(held.is_none(), self.lanes[lane].gone);
        assert_eq!(self.rotation.remove_lane(key), held);
        self.lanes[lane].gone = true;
        for peer in self.peers.iter_mut().filter(|peer| peer.lane == lane) {
            assert_eq!(self.rotation.counters(peer.key), None);
            peer.gone = true;
        }
    }

    fn now(clock: u64) -> ClockTime {
        ClockTime::START.plus(Duration::from_nanos(clock))
    }

    fn done(&mut self) {
        let Self { rotation, clock, readings, .. } = self;
        rotation.done(|| {
            *readings += 1;
            Self::now(*clock)
        });
    }

    /// The host's handling: it takes time, and may do a deed.
    fn handle(&mut self, record: Record, deeds: &mut VecDeque<(u32, Deed)>) {
        self.clock += record.cost;
        let peer = &mut self.peers[record.peer];
        assert!(!peer.gone, "a record of a removed peer was handled");
        assert_eq!(record.number, peer.handled, "lost, twice or out of order");
        peer.handled += 1;
        if let Some((wait, deed)) = deeds.front_mut() {
            if *wait == 0 {
                let deed = *deed;
                deeds.pop_front();
                self.act(deed);
            } else {
                *wait -= 1;
            }
        }
    }

    pub(super) fn turn(&mut self) -> Vec<Served> {
        self.turn_with(&mut VecDeque::new())
    }

    /// One rotation by the driver's loop. Each deed waits for so many records after the one before.
    pub(super) fn turn_with(&mut self, deeds: &mut VecDeque<(u32, Deed)>) -> Vec<Served> {
        let mut turn = Vec::new();
        self.rotation.begin(Self::now(self.clock));
        while let Some(service) = self.rotation.next_lane() {
            let lane = service.owner as usize;
            assert_eq!(service.lane, self.lanes[lane].key);
            let mut served = Served { lane, handled: Vec::new(), began: self.clock, ended: 0 };
            while let Some(held) = self.rotation.next_held() {
                assert_eq!(held.owner as usize, held.record.peer);
                served.handled.push(Handled { record: held.record, from_hold: true });
                self.handle(held.record, deeds);
                self.done();
                self.rotation.check();
            }
            while self.rotation.may_read() {
                self.clock += RECEIVE;
                match self.lanes[lane].socket.pop() {
                    None => self.rotation.emptied(),
                    Some(record) => self.receive(record, &mut served, deeds),
                }
                self.done();
                self.rotation.check();
            }
            served.ended = self.clock;
            turn.push(served);
        }
        turn
    }

    fn receive(&mut self, record: Record, served: &mut Served, deeds: &mut VecDeque<(u32, Deed)>) {
        let SimPeer { key, lane, .. } = self.peers[record.peer];
        match self.rotation.offer(key, record.bytes, !self.lanes[lane].paused) {
            Offer::Deliver => {
                served.handled.push(Handled { record, from_hold: false });
                self.handle(record, deeds);
            }
            Offer::Hold => assert_eq!(self.rotation.hold(record), Ok(())),
            Offer::Gone => assert!(self.peers[record.peer].gone),
        }
    }
}

impl<R> Rotation<R> {
    /// Verifies that everything that is said in two places is said alike.
    pub(super) fn check(&self) {
        let mut ready = 0;
        for (index, lane) in &self.lanes {
            assert_eq!(lane.link.is_in(), lane.wants_service(), "lane {index}");
            ready += usize::from(lane.link.is_in());
            let mut load = Load::default();
            let (mut full, mut held) = (0, 0);
            for (_, peer) in self.peers.iter().filter(|(_, peer)| peer.lane as usize == index) {
                assert_eq!(peer.link.is_in(), peer.hold.is_some());
                assert_eq!(peer.hold.is_some(), peer.load().records > 0);
                load.records += peer.load().records;
                load.bytes += peer.load().bytes;
                full += u32::from(self.hold_limits.reached(peer.load()));
                held += usize::from(peer.link.is_in());
            }
            assert_eq!((lane.load, lane.full), (load, full));
            assert_eq!(walk(&lane.held, |at| self.peers[at as usize].link), held);
        }
        assert_eq!(walk(&self.ready, |at| self.lanes[at as usize].link), ready);
        for (_, peer) in &self.peers {
            assert!(self.lanes.contains(peer.lane as usize));
        }
    }
}

/// Walks a ring both ways and counts its entries.
fn walk(ring: &Ring, link: impl Fn(u32) -> Link) -> usize {
    let Some(head) = ring.head() else { return 0 };
    let (mut at, mut count) = (head, 0);
    loop {
        let (_, next) = link(at).ends();
        assert_ne!(next, NONE);
        assert_eq!(link(next).ends().0, at);
        count += 1;
        at = next;
        if at == head {
            return count;
        }
    }
}
