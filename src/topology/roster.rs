//! The nodes of one mesh that are known, from descriptors or from their own admissions: what each of them serves, by which
//! connection it is reached, and which of them a call goes to. It knows no record and no lane.

use std::collections::HashMap;

use slab::Slab;

use super::selection::{Fitness, Members, Selection};
use crate::name::{ChannelName, Endpoint, Generation, Rid, SecurityId, Weight};
use crate::wire::Role;

/// The channels that a node serves, each with its weight.
pub(crate) type Serves = Vec<(ChannelName, Weight)>;

/// What a service registry says of one mesh node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeDescriptor {
    /// Its routing id.
    pub rid: Rid,
    /// Its lifecycle generation: the one run of its process that is meant.
    pub generation: Generation,
    /// The security identity that it must show; the empty one is one too.
    pub security: SecurityId,
    /// Its object role.
    pub role: Role,
    /// The channels it serves.
    pub serves: Vec<(ChannelName, Weight)>,
    /// Where it takes application lanes; none if it does not listen.
    pub endpoint: Option<Endpoint>,
}

impl NodeDescriptor {
    /// An Object Client that serves nothing: two such nodes need no connection (000 §3).
    pub(crate) fn is_bare_client(&self) -> bool {
        self.role == Role::Client && self.serves.is_empty()
    }
}

/// One known node.
#[derive(Debug)]
struct Known {
    rid: Rid,
    descriptor: Option<NodeDescriptor>,
    /// The ready connection to it.
    connection: Option<u32>,
    /// The intent that led to it, by which it is remembered while it is away.
    intent: Option<u32>,
    serves: Serves,
}

/// Where a call can go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Destination {
    /// By this connection.
    Connection(u32),
    /// To somebody who is known and not ready.
    Unavailable,
    /// To nobody who is known.
    NotFound,
}

/// All known nodes of one mesh.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    nodes: Slab<Known>,
    numbers: HashMap<Rid, u32>,
    /// Who serves a channel, by number.
    members: HashMap<ChannelName, Members>,
}

impl Roster {
    /// Replaces all descriptors by those of a new snapshot.
    pub(crate) fn describe(&mut self, descriptors: &[NodeDescriptor]) {
        for (_, known) in &mut self.nodes {
            known.descriptor = None;
        }
        for descriptor in descriptors {
            let number = self.number(&descriptor.rid);
            let known = &mut self.nodes[number as usize];
            known.descriptor = Some(descriptor.clone());
            if known.connection.is_none() {
                self.set_serves(number, descriptor.serves.clone());
            }
        }
        let numbers: Vec<u32> = self.nodes.iter().map(|(number, _)| number as u32).collect();
        for number in numbers {
            self.tidy(number);
        }
    }

    pub(crate) fn descriptor(&self, rid: &[u8]) -> Option<&NodeDescriptor> {
        self.known(rid)?.descriptor.as_ref()
    }

    pub(crate) fn descriptors(&self) -> impl Iterator<Item = &NodeDescriptor> {
        self.nodes.iter().filter_map(|(_, known)| known.descriptor.as_ref())
    }

    /// Every known node: its RID, the ready connection to it, and its descriptor.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Rid, Option<u32>, Option<&NodeDescriptor>)> {
        self.nodes.iter().map(|(_, known)| (&known.rid, known.connection, known.descriptor.as_ref()))
    }

    /// A node is ready by this connection, and says what it serves.
    pub(crate) fn arrived(&mut self, rid: &Rid, connection: u32, intent: Option<u32>, serves: Serves) {
        if let Some(intent) = intent {
            self.release(intent);
        }
        let number = self.number(rid);
        let known = &mut self.nodes[number as usize];
        known.connection = Some(connection);
        known.intent = intent.or(known.intent);
        self.set_serves(number, serves);
    }

    /// A node serves with other weights.
    pub(crate) fn reweighed(&mut self, rid: &Rid, serves: Serves) {
        if let Some(&number) = self.numbers.get(rid) {
            self.set_serves(number, serves);
        }
    }

    /// The connection to a node is gone. A node that nothing here asks for is forgotten; `covered` is an intent that asked
    /// for no other connection as long as this one stood.
    pub(crate) fn departed(&mut self, rid: &Rid, connection: u32, covered: Option<u32>) {
        let Some(&number) = self.numbers.get(rid) else { return };
        let known = &mut self.nodes[number as usize];
        if known.connection != Some(connection) {
            return;
        }
        known.connection = None;
        let (has_intent, described) = (known.intent.is_some(), known.descriptor.as_ref());
        if let Some(serves) = described.map(|descriptor| descriptor.serves.clone()) {
            self.set_serves(number, serves);
        }
        if let Some(intent) = covered.filter(|_| !has_intent) {
            self.release(intent);
            self.nodes[number as usize].intent = Some(intent);
        }
        self.tidy(number);
    }

    /// An intent is not wanted any more, or for somebody else.
    pub(crate) fn release(&mut self, intent: u32) {
        let held = self.nodes.iter_mut().find(|(_, known)| known.intent == Some(intent));
        if let Some((number, known)) = held {
            known.intent = None;
            self.tidy(number as u32);
        }
    }

    /// The way to a node, whatever it serves. `is_ready` speaks for a connection, which may have ended by now.
    pub(crate) fn route_to_node(&self, rid: &Rid, is_ready: impl FnOnce(u32) -> bool) -> Destination {
        let Some(known) = self.known(rid.as_bytes()) else { return Destination::NotFound };
        match known.connection.filter(|connection| is_ready(*connection)) {
            Some(connection) => Destination::Connection(connection),
            None => Destination::Unavailable,
        }
    }

    /// The member of a channel that the next call goes to. `fitness` speaks for a ready connection.
    pub(crate) fn route_to_channel(
        &mut self,
        channel: &ChannelName,
        mut fitness: impl FnMut(u32) -> Fitness,
    ) -> Destination {
        let Self { nodes, members, .. } = self;
        let Some(members) = members.get_mut(channel) else { return Destination::NotFound };
        let connection = |number: u32| nodes.get(number as usize).and_then(|known| known.connection);
        match members.pick(|number| connection(number).map_or(Fitness::NotReady, &mut fitness)) {
            Selection::Member(number) => {
                connection(number).map_or(Destination::Unavailable, Destination::Connection)
            }
            Selection::Unavailable => Destination::Unavailable,
            Selection::NotFound => Destination::NotFound,
        }
    }

    fn known(&self, rid: &[u8]) -> Option<&Known> {
        self.numbers.get(rid).and_then(|number| self.nodes.get(*number as usize))
    }

    /// The number of a node, which is known from now on.
    fn number(&mut self, rid: &Rid) -> u32 {
        if let Some(&number) = self.numbers.get(rid) {
            return number;
        }
        let known =
            Known { rid: rid.clone(), descriptor: None, connection: None, intent: None, serves: Vec::new() };
        let number = self.nodes.insert(known) as u32;
        self.numbers.insert(rid.clone(), number);
        number
    }

    fn set_serves(&mut self, number: u32, mut serves: Serves) {
        // A peer may name 65,535 channels, and all of them again in every update: no name is looked for one by one.
        serves.sort_unstable();
        for (channel, weight) in &serves {
            self.members.entry(channel.clone()).or_default().set(number, *weight);
        }
        let before = std::mem::replace(&mut self.nodes[number as usize].serves, serves);
        let after = &self.nodes[number as usize].serves;
        let stays = |old: &ChannelName| after.binary_search_by(|(new, _)| new.cmp(old)).is_ok();
        for (channel, _) in before.iter().filter(|(old, _)| !stays(old)) {
            if let Some(members) = self.members.get_mut(channel) {
                members.remove(number);
                if members.is_empty() {
                    self.members.remove(channel);
                }
            }
        }
    }

    /// Forgets a node that is neither described, nor connected, nor wanted.
    fn tidy(&mut self, number: u32) {
        let Some(known) = self.nodes.get(number as usize) else { return };
        if known.descriptor.is_none() && known.connection.is_none() && known.intent.is_none() {
            self.set_serves(number, Vec::new());
            let known = self.nodes.remove(number as usize);
            self.numbers.remove(&known.rid);
        }
    }
}
