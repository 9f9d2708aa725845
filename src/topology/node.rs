//! A node of a RouteMesh as the host wants it: what it says of itself, where it listens, whom it dials. Everything is
//! checked whole before anything is changed.

use std::sync::Arc;

use super::intents::{self, Wish};
use super::roster::{NodeDescriptor, Roster, Serves};
use super::table::{Behind, Carries, Expects, Intent, IntentPhase, LaneEntry, Listener};
use super::{Channel, ChannelEnd, Core, Listening, Mesh, mesh};
use crate::config::random;
use crate::error::{RegisterError, SERVES_MAX};
use crate::io::{Linger, Listen};
use crate::link::connection::{Connection, End, Failure, Peer, Phase, Side};
use crate::name::{
    BindEndpoint, ChannelName, Endpoint, Generation, MeshName, Rid, SecurityId, TopologyName, Weight,
};
use crate::rotation::PeerKey;
use crate::wire::{AdmissionBody, HostState, Identity, Lane, RejectReason, Role, Service};

/// A node of a RouteMesh, to be registered with [`Engine::join`](crate::Engine::join).
///
/// Each pair of nodes has two lanes: probes, messages and requests go by the application lane, replies and updates by the
/// completion lane. The deadline is the application lane's (000 §3). Should the other one alone fall silent, with no word
/// from the system, nobody is judged for it: requests run out of their time. No record that a mesh node sends is too
/// large for another: only the senders can keep them small (see [`Server::message_bytes_max`](crate::Server)).
///
/// ```
/// use wakeful::{ChannelName, MeshName, MeshNode, Rid, Weight};
/// let node = MeshNode::new(MeshName::new("lobby")?, Rid::new("game-3")?)
///     .listen("tcp://127.0.0.1:0".parse()?, "tcp://127.0.0.1:0".parse()?)
///     .serve(ChannelName::new("matches")?, Weight::new(100)?)
///     .peer("tcp://127.0.0.1:5555".parse()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "it does nothing until it is registered"]
pub struct MeshNode {
    mesh: MeshName,
    rid: Rid,
    generation: Generation,
    security: SecurityId,
    role: Role,
    serves: Serves,
    bind: Option<[BindEndpoint; 2]>,
    advertised: Option<[Endpoint; 2]>,
    peers: Vec<NodeEndpoint>,
}

/// An endpoint from the host's own list: a node is dialled there, whoever it is or only if it is this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeEndpoint {
    /// Where it takes application lanes.
    pub endpoint: Endpoint,
    /// Who it must be.
    pub rid: Option<Rid>,
}

/// Where a mesh node listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeshBound {
    /// For application lanes.
    pub application: BindEndpoint,
    /// For completion lanes.
    pub completion: BindEndpoint,
}

impl From<&[BindEndpoint; 2]> for MeshBound {
    fn from([application, completion]: &[BindEndpoint; 2]) -> Self {
        Self { application: application.clone(), completion: completion.clone() }
    }
}

impl MeshNode {
    /// A node that does not listen, serves nothing, knows nobody, and has no object role; its generation is random.
    pub fn new(mesh: MeshName, rid: Rid) -> Self {
        // One draw in 2^64 is zero; its neighbour is as random.
        let generation = Generation::new(random()).unwrap_or(Generation::FIRST);
        Self {
            mesh,
            rid,
            generation,
            security: SecurityId::default(),
            role: Role::None,
            serves: Vec::new(),
            bind: None,
            advertised: None,
            peers: Vec::new(),
        }
    }

    /// Sets the lifecycle generation: another one for each run of the process.
    pub fn generation(mut self, generation: Generation) -> Self {
        self.generation = generation;
        self
    }

    /// Sets the security identity that it shows to its peers.
    pub fn security(mut self, security: SecurityId) -> Self {
        self.security = security;
        self
    }

    /// Sets its object role; leave it at [`Role::None`] without objects, which are not built here. Two Object Clients of which neither serves a channel have no connection (000 §3).
    pub fn role(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    /// Adds a channel that it serves, with the weight by which it is picked; [`SERVES_MAX`] at most. Only the weight can
    /// change afterwards, with [`Outbox::set_weight`](crate::Outbox::set_weight).
    pub fn serve(mut self, channel: ChannelName, weight: Weight) -> Self {
        self.serves.push((channel, weight));
        self
    }

    /// Lets it listen, for the two lanes that each other node opens to it; others dial the first.
    pub fn listen(mut self, application: BindEndpoint, completion: BindEndpoint) -> Self {
        self.bind = Some([application, completion]);
        self
    }

    /// Sets the endpoints at which others reach it, where those are not the ones it binds. A wildcard host needs them.
    pub fn advertised(mut self, application: Endpoint, completion: Endpoint) -> Self {
        self.advertised = Some([application, completion]);
        self
    }

    /// Adds a node to dial by its application endpoint, the first of its `listen`, whoever it turns out to be; the other
    /// endpoint is learnt from it. [`Outbox::set_endpoints`](crate::Outbox::set_endpoints) replaces
    /// them all.
    pub fn peer(self, endpoint: Endpoint) -> Self {
        self.dial(NodeEndpoint { endpoint, rid: None })
    }

    /// Adds a node to dial that must show this RID.
    pub fn expected_peer(self, endpoint: Endpoint, rid: Rid) -> Self {
        self.dial(NodeEndpoint { endpoint, rid: Some(rid) })
    }

    fn dial(mut self, peer: NodeEndpoint) -> Self {
        self.peers.push(peer);
        self
    }
}

/// Registers a mesh node: it listens, and its first attempts are due at once.
pub(crate) fn join(core: &mut Core, node: MeshNode) -> Result<Option<MeshBound>, RegisterError> {
    check(core, &node)?;
    let topology = TopologyName::RouteMesh(node.mesh.clone());
    let wishes = wishes_of(&topology, &node.peers)?;
    let number = core.channels.list.len() as u32;
    let listening = match &node.bind {
        Some(bind) => Some(listen(core, bind, number)?),
        None => None,
    };
    let reached = |at: usize| {
        let bound = &listening.as_ref()?.bound[at];
        let advertised = node.advertised.as_ref().map(|advertised| advertised[at].clone());
        advertised.or_else(|| Endpoint::try_from(bound).ok())
    };
    let service = Service::RouteMesh { mesh: node.mesh.clone(), role: node.role, completion: reached(1) };
    let identity = Identity {
        service,
        rid: node.rid.clone(),
        generation: node.generation,
        security: node.security.clone(),
        endpoint: reached(0),
    };
    let body = AdmissionBody::new(identity, core.host_state, node.serves.clone(), Vec::new())
        .expect("channels named once, and so few of them, always fit an admission");
    let bound = listening.as_ref().map(|listening| MeshBound::from(&listening.bound));
    let own = own_connection(core, number, &topology, &node);
    let mut roster = Roster::default();
    roster.arrived(&node.rid, own, None, node.serves);
    let end = ChannelEnd::Mesh(Box::new(Mesh { listening, roster, own, configuration: 0 }));
    let index = core.channels.add(Channel { name: topology, body: Some(body), bytes_max: 0, end });
    debug_assert_eq!(index, number);
    for (endpoint, expects) in wishes {
        core.add_intent(index, endpoint, expects);
    }
    Ok(bound)
}

fn check(core: &Core, node: &MeshNode) -> Result<(), RegisterError> {
    if core.host_state == HostState::Stopped {
        return Err(RegisterError::ShuttingDown);
    }
    if core.channels.mesh(&node.mesh).is_some() {
        return Err(RegisterError::SecondMesh { mesh: node.mesh.clone() });
    }
    if node.serves.len() > SERVES_MAX {
        return Err(RegisterError::TooManyChannels { channels: node.serves.len() });
    }
    let topology = TopologyName::RouteMesh(node.mesh.clone());
    for (at, (channel, _)) in node.serves.iter().enumerate() {
        if node.serves[..at].iter().any(|(earlier, _)| earlier == channel) {
            return Err(RegisterError::ChannelTwice { channel: channel.clone() });
        }
        if let Some(there) = core.channels.elsewhere(channel, &topology) {
            return Err(RegisterError::ChannelElsewhere {
                channel: channel.clone(),
                topology: there.clone(),
            });
        }
    }
    let open = node.bind.iter().flatten().find(|bind| bind.has_open_host());
    if let (Some(bind), None) = (open, &node.advertised) {
        return Err(RegisterError::NotDialable { endpoint: bind.clone() });
    }
    Ok(())
}

/// Lets a node listen on both lanes, or on none.
fn listen(core: &mut Core, bind: &[BindEndpoint; 2], number: u32) -> Result<Listening, RegisterError> {
    let mut opened = Vec::new();
    let mut bound = Vec::new();
    for (leg, endpoint) in [Lane::Application, Lane::Completion].into_iter().zip(bind) {
        let lane = core.table.lanes.vacant_key() as u32;
        let kind = Listen::Router { identity: leg.bound_identity() };
        match core.io.listen(kind, endpoint, lane, 0) {
            Ok((id, at)) => {
                let key = core.rotation.add_shared(lane);
                let behind = Behind::Listener(Listener::new(number));
                let carries =
                    if leg == Lane::Application { Carries::Application } else { Carries::Completion };
                core.add_lane(LaneEntry { id, key, behind, carries });
                opened.push(lane);
                bound.push(at);
            }
            Err(error) => {
                for lane in opened {
                    let entry = &mut core.table.lanes[lane as usize];
                    entry.behind = Behind::Closed { intent: None };
                    core.rotation.remove_lane(entry.key);
                    core.io.close(entry.id, Linger::None);
                }
                return Err(RegisterError::Io { endpoint: endpoint.clone(), error });
            }
        }
    }
    let lanes = opened.try_into().expect("two lanes were opened");
    let bound = bound.try_into().expect("two lanes were opened");
    Ok(Listening { lanes, bound })
}

/// Makes the connection that stands for a node itself.
fn own_connection(core: &mut Core, channel: u32, topology: &TopologyName, node: &MeshNode) -> u32 {
    let id = core.table.next_id();
    let (topology, rid, generation) = (topology.clone(), node.rid.clone(), node.generation);
    let peer = Arc::new(Peer { connection: id, topology, rid, generation, endpoint: None });
    let connection = Connection::new(id, channel, u32::MAX, Side::Own, Phase::Ready, PeerKey::NOBODY);
    let peer_state = HostState::Serving;
    core.table.insert(Connection { peer: Some(peer), peer_state, has_opened: true, ..connection })
}

/// Replaces the descriptors of a mesh by a new snapshot of the host's service registry. Of two described nodes one dials:
/// where both listen the one with the smaller RID, where one listens the other.
pub(crate) fn set_descriptors(
    core: &mut Core,
    name: &MeshName,
    descriptors: &[NodeDescriptor],
) -> Result<(), RegisterError> {
    let index = registered(core, name)?;
    for (at, descriptor) in descriptors.iter().enumerate() {
        if descriptors[..at].iter().any(|earlier| earlier.rid == descriptor.rid) {
            return Err(RegisterError::NodeTwice { rid: descriptor.rid.clone() });
        }
    }
    let channel = core.channels.get(index);
    let wishes: Vec<Wish> = descriptors
        .iter()
        .filter(|descriptor| !channel.is_own(descriptor.rid.as_bytes()))
        .filter(|descriptor| dialler(channel, descriptor) == Dialler::Here)
        .filter_map(|descriptor| {
            let rid = Some(descriptor.rid.clone());
            let (generation, security) = (Some(descriptor.generation), Some(descriptor.security.clone()));
            Some((descriptor.endpoint.clone()?, Expects { rid, generation, security }))
        })
        .collect();
    intents::check_once(&channel.name, &wishes)?;
    let others: Vec<NodeDescriptor> =
        descriptors.iter().filter(|each| !channel.is_own(each.rid.as_bytes())).cloned().collect();
    if let Some(mesh) = core.channels.node_mut(index) {
        mesh.roster.describe(&others);
    }
    mesh::verify_all(core, index);
    intents::replace(core, index, wishes, true);
    Ok(())
}

/// Which of two described nodes dials the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialler {
    /// This one.
    Here,
    /// The other one.
    There,
    /// Neither, because neither listens: they are not connected until one does.
    Nobody,
    /// Neither, because both are Object Clients that serve nothing (000 §3).
    NotRequired,
}

/// Which end dials: of two that listen the one with the smaller RID, otherwise the one that does not (000 §3).
pub(crate) fn dialler(channel: &Channel, descriptor: &NodeDescriptor) -> Dialler {
    let Some(body) = &channel.body else { return Dialler::Nobody };
    if body.is_bare_client() && descriptor.is_bare_client() {
        return Dialler::NotRequired;
    }
    match (body.identity().endpoint.is_some(), descriptor.endpoint.is_some()) {
        (true, true) if channel.is_above(descriptor.rid.as_bytes()) => Dialler::There,
        (_, true) => Dialler::Here,
        (true, false) => Dialler::There,
        (false, false) => Dialler::Nobody,
    }
}

/// Replaces the host's own list of nodes to dial. Those that are in both are left alone, except that another
/// configuration generation lets an endpoint that needed no connection be tried again.
pub(crate) fn set_endpoints(
    core: &mut Core,
    name: &MeshName,
    configuration: u64,
    endpoints: &[NodeEndpoint],
) -> Result<(), RegisterError> {
    let index = registered(core, name)?;
    let wishes = wishes_of(&core.channels.get(index).name, endpoints)?;
    intents::replace(core, index, wishes, false);
    let Some(mesh) = core.channels.node_mut(index) else { return Ok(()) };
    if std::mem::replace(&mut mesh.configuration, configuration) == configuration {
        return Ok(());
    }
    let is_not_required = |wish: &Intent| {
        match wish.phase {
        IntentPhase::NotRequired => true,
        // So it is said already, and not swept yet.
        IntentPhase::Connected { connection } => core.table.get(connection).is_some_and(|connection| {
            use Failure::{Refused, Unexpected};
            let not_required = RejectReason::NotRequired;
            matches!(connection.phase, Phase::Closing(End::Failed(Refused(why) | Unexpected(why))) if why == not_required)
        }),
        _ => false,
    }
    };
    let again: Vec<u32> = (0..)
        .zip(&core.table.intents)
        .filter(|(_, wish)| wish.channel == index && !wish.is_described && is_not_required(wish))
        .map(|(intent, _)| intent)
        .collect();
    for intent in again {
        intents::try_again(core, intent);
    }
    Ok(())
}

fn registered(core: &Core, name: &MeshName) -> Result<u32, RegisterError> {
    if core.host_state == HostState::Stopped {
        return Err(RegisterError::ShuttingDown);
    }
    core.channels.mesh(name).ok_or_else(|| RegisterError::UnknownMesh { mesh: name.clone() })
}

fn wishes_of(topology: &TopologyName, endpoints: &[NodeEndpoint]) -> Result<Vec<Wish>, RegisterError> {
    let expects = |rid: &Option<Rid>| Expects { rid: rid.clone(), ..Expects::default() };
    let wishes = endpoints.iter().map(|each| (each.endpoint.clone(), expects(&each.rid))).collect::<Vec<_>>();
    intents::check_once(topology, &wishes)?;
    Ok(wishes)
}
