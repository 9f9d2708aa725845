//! The one table of connections, lanes and intents, with every index on them. An index changes only here, together with
//! what it points to; [`Table::verify`] says whether they agree.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};

use slab::Slab;

use crate::clock::{ClockTime, WatchTime};
use crate::config::random;
use crate::io::LaneId;
use crate::link::backoff::Backoff;
use crate::link::connection::{Connection, ConnectionId, End, Phase, Route, Side};
use crate::name::{Endpoint, Generation, Rid, SecurityId};
use crate::rotation::LaneKey;
use crate::wire::{Admission, Lane, RejectReason};

/// One lane: its socket, its place in the rotation, and who is behind it.
#[derive(Debug)]
pub(crate) struct LaneEntry {
    pub(crate) id: LaneId,
    pub(crate) key: LaneKey,
    pub(crate) behind: Behind,
    pub(crate) carries: Carries,
}

/// What comes by a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carries {
    /// Service records; a pause of the host holds back those that are for it.
    Application,
    /// Replies and updates of a RouteMesh. No pause applies to them.
    Completion,
    /// Published records. No pause applies to them either.
    Published,
}

/// Who is behind a lane.
#[derive(Debug)]
pub(crate) enum Behind {
    /// The one peer that was dialled.
    Dialled { connection: u32 },
    /// All who dialled a listening server.
    Listener(Listener),
    /// Whoever hears our publisher. Nothing comes from there.
    Publisher,
    /// Nobody any more: the socket is closed and its last event is awaited.
    Closed { intent: Option<u32> },
}

/// What a listening lane knows of the connections it shares.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) channel: u32,
    routes: HashMap<Route, u32, RouteHashes>,
    /// The route that was found last, and its connection: records come in runs, and comparing costs less than hashing.
    last_found: Option<(Route, u32)>,
    descriptors: HashMap<i32, u32>,
}

/// A wish for a connection, and what became of it so far.
#[derive(Debug)]
pub(crate) struct Intent {
    pub(crate) channel: u32,
    pub(crate) endpoint: Endpoint,
    pub(crate) expects: Expects,
    pub(crate) backoff: Backoff,
    pub(crate) phase: IntentPhase,
    /// It came from a descriptor, not from the host's own list of endpoints.
    pub(crate) is_described: bool,
    /// The accepted connection of the same peer whose hello waits until this intent's lanes are physically closed.
    pub(crate) heir: Option<ConnectionId>,
    /// How the last attempt, or the last connection, ended.
    pub(crate) last_end: Option<End>,
    /// It was ready before.
    pub(crate) was_ready: bool,
}

/// What the other side must show at the handshake; what is none may be anything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Expects {
    pub(crate) rid: Option<Rid>,
    pub(crate) generation: Option<Generation>,
    pub(crate) security: Option<SecurityId>,
}

impl Expects {
    /// Whether an admission is the expected one, and if not, which reject says why.
    pub(crate) fn judge(&self, admission: &Admission<'_>) -> Result<(), RejectReason> {
        if self.rid.as_ref().is_some_and(|expected| expected.as_bytes() != admission.rid()) {
            return Err(RejectReason::IdentityMismatch);
        }
        if self.generation.is_some_and(|expected| expected != admission.generation()) {
            return Err(RejectReason::LifecycleGenerationStale);
        }
        if self.security.as_ref().is_some_and(|expected| expected.as_str() != admission.security()) {
            return Err(RejectReason::SecurityIdentityMismatch);
        }
        Ok(())
    }
}

/// What an intent does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IntentPhase {
    /// Waits for its next attempt, and for the lanes of the last one to be physically closed, though not beyond `give_up`.
    Waiting { retry: ClockTime, give_up: WatchTime },
    /// Has a connection, ready or on its way.
    Connected { connection: u32 },
    /// Needs none, as long as this other connection leads to the same peer.
    Covered { connection: u32 },
    /// The other side said that no connection is needed. Not retried.
    NotRequired,
    /// Not wanted any more. Its place is free once nothing is left of its last connection.
    Retired,
    /// The host stopped.
    Off,
}

/// All connections, lanes and intents of one engine.
#[derive(Debug, Default)]
pub(crate) struct Table {
    connections: Slab<Connection>,
    generation: u32,
    pub(crate) lanes: Slab<LaneEntry>,
    pub(crate) intents: Vec<Intent>,
    /// The connection that speaks for a peer of a channel.
    peers: HashMap<(u32, Rid), u32>,
}

/// Hashes routing ids, one lookup a record. They are short, so this costs a third of what the standard library's does; and
/// it is keyed with a number nobody can guess, because a dialler may choose its own id.
#[derive(Debug, Clone)]
struct RouteHashes {
    key: u64,
}

#[derive(Debug)]
struct RouteHasher {
    key: u64,
    hash: u64,
}

impl Default for RouteHashes {
    fn default() -> Self {
        Self { key: random() | 1 }
    }
}

impl BuildHasher for RouteHashes {
    type Hasher = RouteHasher;

    fn build_hasher(&self) -> RouteHasher {
        RouteHasher { key: self.key, hash: self.key.rotate_left(32) }
    }
}

impl Hasher for RouteHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.hash ^ word) * u128::from(self.key);
        self.hash = product as u64 ^ (product >> 64) as u64;
    }

    fn write_usize(&mut self, length: usize) {
        self.hash = self.hash.wrapping_add(length as u64);
    }

    fn finish(&self) -> u64 {
        self.hash
    }
}

impl Listener {
    pub(crate) fn new(channel: u32) -> Self {
        Self { channel, routes: HashMap::default(), last_found: None, descriptors: HashMap::new() }
    }

    pub(crate) fn at_route(&self, route: &[u8]) -> Option<u32> {
        self.routes.get(route).copied()
    }

    /// The same, for the next record that came.
    #[inline]
    pub(crate) fn find_route(&mut self, route: &[u8]) -> Option<u32> {
        match &self.last_found {
            Some((last, index)) if last[..] == *route => Some(*index),
            _ => {
                let index = self.at_route(route)?;
                self.last_found = Some((Route::from_slice(route), index));
                Some(index)
            }
        }
    }

    pub(crate) fn at_descriptor(&self, descriptor: i32) -> Option<u32> {
        self.descriptors.get(&descriptor).copied()
    }
}

impl Table {
    /// How many connections there are, those included whose end is not physical yet.
    pub(crate) fn len(&self) -> usize {
        self.connections.len()
    }

    /// Every connection, in the order of the slab.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Connection)> {
        self.connections.iter().map(|(index, connection)| (index as u32, connection))
    }

    pub(crate) fn find(&self, id: ConnectionId) -> Option<&Connection> {
        self.get(id.index).filter(|connection| connection.id == id)
    }

    pub(crate) fn get(&self, index: u32) -> Option<&Connection> {
        self.connections.get(index as usize)
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut Connection> {
        self.connections.get_mut(index as usize)
    }

    /// The id that the next connection will have.
    pub(crate) fn next_id(&mut self) -> ConnectionId {
        self.generation = self.generation.wrapping_add(1);
        ConnectionId { index: self.connections.vacant_key() as u32, generation: self.generation }
    }

    /// Adds a connection under the id it was given, with its route.
    pub(crate) fn insert(&mut self, connection: Connection) -> u32 {
        let index = connection.id.index;
        debug_assert_eq!(index as usize, self.connections.vacant_key());
        if let Side::Accepted { route, .. } = &connection.side {
            let route = route.clone();
            if let Some(listener) = self.listener_mut(connection.lane) {
                listener.routes.insert(route, index);
            }
        }
        self.connections.insert(connection);
        index
    }

    /// Ties the two lanes of a pair together.
    pub(crate) fn join(&mut self, application: u32, completion: u32) {
        for (one, other) in [(application, completion), (completion, application)] {
            if let Some(connection) = self.get_mut(one) {
                connection.partner = Some(other);
            }
        }
    }

    /// Unties a lane from its pair's other one.
    pub(crate) fn part(&mut self, index: u32) {
        let partner = self.get_mut(index).and_then(|connection| connection.partner.take());
        if let Some(partner) = partner.and_then(|partner| self.get_mut(partner)) {
            partner.partner = None;
        }
    }

    /// The connection that stands for a pair: its application lane, where that is still known.
    pub(crate) fn head_of(&self, index: u32) -> u32 {
        match self.get(index) {
            Some(Connection { leg: Lane::Completion, partner: Some(application), .. }) => *application,
            _ => index,
        }
    }

    /// Forgets a connection and every index on it.
    pub(crate) fn remove(&mut self, index: u32) -> Option<Connection> {
        self.unname(index);
        self.part(index);
        self.bind_descriptor(index, None);
        let connection = self.connections.try_remove(index as usize)?;
        if let Side::Accepted { route, .. } = &connection.side {
            if let Some(listener) = self.listener_mut(connection.lane) {
                listener.routes.remove(route);
                listener.last_found = None;
            }
        }
        Some(connection)
    }

    /// The connection that speaks for a peer of a channel.
    pub(crate) fn named(&self, channel: u32, rid: &Rid) -> Option<u32> {
        self.peers.get(&(channel, rid.clone())).copied()
    }

    /// Lets a connection speak for its peer.
    pub(crate) fn name(&mut self, index: u32, rid: &Rid) {
        if let Some(connection) = self.get(index) {
            self.peers.insert((connection.channel, rid.clone()), index);
        }
    }

    /// The connection no longer speaks for its peer.
    pub(crate) fn unname(&mut self, index: u32) {
        let Some(connection) = self.get(index) else { return };
        let Some(peer) = &connection.peer else { return };
        let name = (connection.channel, peer.rid.clone());
        if self.peers.get(&name) == Some(&index) {
            self.peers.remove(&name);
        }
    }

    /// Ties an accepted connection to its descriptor, or unties it. Returns another connection that had claimed the same
    /// number and has lost it.
    pub(crate) fn bind_descriptor(&mut self, index: u32, descriptor: Option<i32>) -> Option<u32> {
        let connection = self.connections.get_mut(index as usize)?;
        let lane = connection.lane;
        let Side::Accepted { descriptor: bound, .. } = &mut connection.side else { return None };
        let before = std::mem::replace(bound, descriptor);
        let listener = self.listener_mut(lane)?;
        if let Some(before) = before.filter(|before| listener.at_descriptor(*before) == Some(index)) {
            listener.descriptors.remove(&before);
        }
        let loser = listener.descriptors.insert(descriptor?, index).filter(|&loser| loser != index);
        if let Some(Connection { side: Side::Accepted { descriptor, .. }, .. }) =
            loser.and_then(|loser| self.get_mut(loser))
        {
            *descriptor = None;
        }
        loser
    }

    /// Takes in an intent, in the place of one that is over and done with if there is one.
    pub(crate) fn add_intent(&mut self, intent: Intent) -> u32 {
        let is_over = |index| self.dialled_for(index).is_none() && self.closing_of(index).is_none();
        let free = (0..)
            .zip(&self.intents)
            .find(|&(index, old)| old.phase == IntentPhase::Retired && is_over(index));
        if let Some((index, _)) = free {
            self.intents[index as usize] = intent;
            return index;
        }
        self.intents.push(intent);
        self.intents.len() as u32 - 1
    }

    /// The connection that was dialled for an intent, until the sweep has let go of it.
    pub(crate) fn dialled_for(&self, intent: u32) -> Option<u32> {
        let is_its = |each: &Connection| {
            each.leg == Lane::Application && matches!(each.side, Side::Dialled { intent: of } if of == intent)
        };
        self.iter().find(|(_, each)| is_its(each)).map(|(index, _)| index)
    }

    /// A lane of an intent that was closed and is not physically gone yet.
    pub(crate) fn closing_of(&self, intent: u32) -> Option<u32> {
        let is_its =
            |lane: &LaneEntry| matches!(lane.behind, Behind::Closed { intent: of } if of == Some(intent));
        self.lanes.iter().find(|(_, lane)| is_its(lane)).map(|(index, _)| index as u32)
    }

    /// Whether something that was dialled where an intent leads, for whichever intent, is not physically gone yet.
    pub(crate) fn is_closing_where(&self, intent: u32) -> bool {
        let wish = &self.intents[intent as usize];
        let leads_there = |of: u32| {
            let other = &self.intents[of as usize];
            of == intent || (other.channel == wish.channel && other.endpoint == wish.endpoint)
        };
        let is_lane_closing =
            |lane: &LaneEntry| matches!(lane.behind, Behind::Closed { intent: Some(of) } if leads_there(of));
        let is_ending = |connection: &Connection| {
            matches!(connection.phase, Phase::Closing(_)) && connection.intent().is_some_and(leads_there)
        };
        self.lanes.iter().any(|(_, lane)| is_lane_closing(lane))
            || self.iter().any(|(_, connection)| is_ending(connection))
    }

    /// Forgets all who dialled us, and that anybody listens: the listening lanes are closed.
    pub(crate) fn forget_accepted(&mut self) {
        let accepted: Vec<u32> = self
            .iter()
            .filter(|(_, connection)| connection.route().is_some())
            .map(|(index, _)| index)
            .collect();
        for index in accepted {
            self.remove(index);
        }
        for (_, entry) in &mut self.lanes {
            if matches!(entry.behind, Behind::Listener(_) | Behind::Publisher) {
                entry.behind = Behind::Closed { intent: None };
            }
        }
    }

    pub(crate) fn lane(&self, lane: u32) -> Option<&LaneEntry> {
        self.lanes.get(lane as usize)
    }

    pub(crate) fn listener(&self, lane: u32) -> Option<&Listener> {
        match &self.lane(lane)?.behind {
            Behind::Listener(listener) => Some(listener),
            Behind::Dialled { .. } | Behind::Publisher | Behind::Closed { .. } => None,
        }
    }

    pub(crate) fn listener_mut(&mut self, lane: u32) -> Option<&mut Listener> {
        match &mut self.lanes.get_mut(lane as usize)?.behind {
            Behind::Listener(listener) => Some(listener),
            Behind::Dialled { .. } | Behind::Publisher | Behind::Closed { .. } => None,
        }
    }

    /// Verifies every index against the connections. It walks everything: for tests and debug builds.
    pub(crate) fn verify(&self) {
        for ((channel, rid), index) in &self.peers {
            let connection = self.get(*index);
            assert!(
                connection.is_some_and(|connection| connection.channel == *channel
                    && connection.peer.as_ref().is_some_and(|peer| peer.rid == *rid)),
                "a name points to the connection of its peer"
            );
        }
        for (lane, entry) in &self.lanes {
            let Behind::Listener(listener) = &entry.behind else { continue };
            let last_found = listener.last_found.iter().map(|(route, index)| (route, index));
            for (route, index) in listener.routes.iter().chain(last_found) {
                let connection = self.get(*index);
                assert!(connection.is_some_and(|connection| connection.lane as usize == lane
                    && connection.route() == Some(route.as_slice())));
            }
            for (number, index) in &listener.descriptors {
                let side = self.get(*index).map(|connection| &connection.side);
                assert!(
                    matches!(side, Some(Side::Accepted { descriptor, .. }) if *descriptor == Some(*number))
                );
            }
        }
        for (index, connection) in self.iter() {
            assert_eq!(connection.id.index, index);
            let is_judged = connection.phase == Phase::Ready && !matches!(connection.side, Side::Own);
            assert_eq!(connection.check.is_some(), is_judged, "{connection:?}");
            if let Some(partner) = connection.partner {
                let partner = self.get(partner).expect("a lane's partner is there");
                assert!(partner.partner == Some(index) && partner.leg != connection.leg, "{connection:?}");
                assert!(partner.pair == connection.pair && partner.channel == connection.channel);
            }
            if let Some(route) = connection.route() {
                assert_eq!(
                    self.listener(connection.lane).and_then(|listener| listener.at_route(route)),
                    Some(index)
                );
            }
        }
    }
}
