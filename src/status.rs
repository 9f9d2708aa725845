//! A copy of what the engine knows at one moment (000 §9): for operators and tests, never for the engine itself.

use std::fmt;
use std::time::Duration;

use crate::link::connection::{Connection, End, Failure, LostReason, Peer, Phase, Side};
use crate::link::publisher::Source;
use crate::name::{BindEndpoint, Endpoint, MeshName, Rid, TopologyName};
use crate::rotation;
use crate::topology::node::{Dialler, MeshBound, dialler};
use crate::topology::table::{Intent, IntentPhase};
use crate::topology::{Channel, ChannelEnd, Core, Counters, Pressure};
use crate::wire::HostState;

/// What the engine knew when it was asked. It borrows nothing and changes nothing; making it allocates.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Snapshot {
    /// The host's own state.
    pub host: HostState,
    /// Whether the host takes application records.
    pub pressure: Pressure,
    /// Gaps between turns that were longer than the engine can vouch for.
    pub stalls: u64,
    /// All the clock time that passed unwatched. Nobody was held to account for it.
    pub unwatched: Duration,
    /// The longest gap between two turns.
    pub longest_gap: Duration,
    /// Every endpoint that a client, subscriber or mesh node wants, connected or not.
    pub intents: Vec<IntentStatus>,
    /// Every server that listens here.
    pub servers: Vec<ListenerStatus>,
    /// Every publisher that publishes here.
    pub publishers: Vec<ListenerStatus>,
    /// Every mesh that has a node here.
    pub meshes: Vec<MeshStatus>,
    /// Every connection that is admitted, ready, or being read out.
    pub connections: Vec<ConnectionStatus>,
    /// Every publisher that is ready, or being read out.
    pub sources: Vec<SourceStatus>,
    /// Accepted connections that have ended here while their transport still stands.
    pub fenced_open: usize,
    /// Accepted connections that have not been admitted yet, those included that are admitted on one lane of two.
    pub unadmitted: usize,
    /// Requests of this host that wait for their replies.
    pub requests: usize,
    /// Requests of peers that wait for this host's replies.
    pub replies: usize,
    /// Further contexts of ZeroMQ are opened on demand, each with two threads of its own.
    pub contexts: usize,
    /// What is only counted.
    pub counters: Counters,
}

/// One wish for a connection.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct IntentStatus {
    /// The mesh, or the channel of the client or subscriber.
    pub topology: TopologyName,
    /// What is dialled.
    pub endpoint: Endpoint,
    /// How far it is.
    pub state: RouteState,
    /// How the last attempt, or the last connection, ended.
    pub last_failure: Option<LastFailure>,
}

/// How an attempt or a connection ended: an orderly end and an exceeded deadline are told apart (000 §9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LastFailure {
    /// The attempt came to nothing.
    Failed(Failure),
    /// The connection was lost.
    Lost(LostReason),
}

impl fmt::Display for LastFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(failure) => failure.fmt(f),
            Self::Lost(reason) => reason.fmt(f),
        }
    }
}

/// The states that 000 §9 tells apart; the last failure stands beside them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RouteState {
    /// Wanted, and nothing has been tried yet, or nothing will be any more.
    Configured,
    /// A first connection is on its way.
    Connecting,
    /// Verified, and not ready yet.
    Admitted,
    /// In use.
    Ready,
    /// It was ready before, and the next connection is on its way.
    Reconnecting,
    /// The other side said that no connection is needed.
    NotRequired,
}

/// One server or publisher that listens.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ListenerStatus {
    /// Its channel.
    pub topology: TopologyName,
    /// Where it listens.
    pub bound: BindEndpoint,
}

/// One mesh that has a node here.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MeshStatus {
    /// Its name.
    pub mesh: MeshName,
    /// Where this node listens, if it does.
    pub bound: Option<MeshBound>,
    /// The other nodes that are known.
    pub nodes: Vec<NodeStatus>,
}

/// One other node of a mesh.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NodeStatus {
    /// Its RID.
    pub rid: Rid,
    /// Whether it is ready.
    pub is_ready: bool,
    /// Which end dials, as the descriptors have it; none for a node that is not described. Where it is
    /// [`Dialler::NotRequired`], being not ready is no failure (000 §3).
    pub dialler: Option<Dialler>,
}

/// One connection.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConnectionStatus {
    /// Who is at the other end.
    pub peer: Peer,
    /// Admitted or ready; a connection that is read out after its end is neither and shows as reconnecting.
    pub state: RouteState,
    /// How long ago the last record came, in clock time. For diagnostics: it extends no deadline.
    pub last_received: Option<Duration>,
    /// Records handled.
    pub served: u64,
    /// Records that were set aside first, because the peer had had its share.
    pub held: u64,
    /// Turns in which 64 records, the byte cap and the time cap ended its share.
    pub capped: [u32; 3],
}

/// One publisher that a subscriber hears.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SourceStatus {
    /// Which publisher.
    pub source: Source,
    /// Ready; one that is read out after its end shows as reconnecting.
    pub state: RouteState,
    /// How long ago its last record came, beacons included, in clock time.
    pub last_received: Option<Duration>,
    /// Turns in which 64 records, the byte cap and the time cap ended its share.
    pub capped: [u32; 3],
}

impl Snapshot {
    pub(crate) fn of(core: &Core) -> Self {
        let count = |wanted: fn(&Connection) -> bool| {
            core.table.iter().filter(|(_, connection)| wanted(connection)).count()
        };
        let intents = core.table.intents.iter().filter(|intent| intent.phase != IntentPhase::Retired);
        let servers = core.channels.list.iter().filter_map(|channel| match &channel.end {
            ChannelEnd::Server { bound, .. } => {
                Some(ListenerStatus { topology: channel.name.clone(), bound: bound.clone() })
            }
            _ => None,
        });
        let publishers = core.channels.list.iter().filter_map(|channel| match &channel.end {
            ChannelEnd::Publisher { bound, .. } => {
                Some(ListenerStatus { topology: channel.name.clone(), bound: bound.clone() })
            }
            _ => None,
        });
        Self {
            host: core.host_state,
            pressure: core.pressure,
            stalls: core.watch.stalls(),
            unwatched: core.watch.unwatched(),
            longest_gap: core.watch.longest_gap(),
            intents: intents.map(|intent| intent_status(core, intent)).collect(),
            servers: servers.collect(),
            publishers: publishers.collect(),
            meshes: core.channels.list.iter().filter_map(|channel| mesh_status(core, channel)).collect(),
            connections: core.table.iter().filter_map(|(_, each)| connection_status(core, each)).collect(),
            sources: core.table.iter().filter_map(|(_, each)| source_status(core, each)).collect(),
            fenced_open: count(|connection| connection.phase == Phase::Fenced),
            unadmitted: count(is_unadmitted),
            requests: core.requests.len(),
            replies: core.replies.len(),
            contexts: core.io.contexts(),
            counters: core.counters,
        }
    }
}

fn intent_status(core: &Core, intent: &Intent) -> IntentStatus {
    let on_its_way = if intent.was_ready { RouteState::Reconnecting } else { RouteState::Connecting };
    let state = match intent.phase {
        IntentPhase::NotRequired => RouteState::NotRequired,
        IntentPhase::Off | IntentPhase::Retired => RouteState::Configured,
        IntentPhase::Waiting { .. } if intent.last_end.is_none() => RouteState::Configured,
        IntentPhase::Waiting { .. } => on_its_way,
        IntentPhase::Connected { connection } | IntentPhase::Covered { connection } => {
            match core.table.get(connection).map(|each| each.phase) {
                Some(Phase::Ready) => RouteState::Ready,
                Some(Phase::Admitted) => RouteState::Admitted,
                _ => on_its_way,
            }
        }
    };
    IntentStatus {
        topology: core.channels.get(intent.channel).name.clone(),
        endpoint: intent.endpoint.clone(),
        state,
        last_failure: intent.last_end.and_then(|end| match end {
            End::Failed(failure) => Some(LastFailure::Failed(failure)),
            End::Lost(reason) => Some(LastFailure::Lost(reason)),
            End::Unadmitted => None,
        }),
    }
}

fn mesh_status(core: &Core, channel: &Channel) -> Option<MeshStatus> {
    let (TopologyName::RouteMesh(mesh), ChannelEnd::Mesh(node)) = (&channel.name, &channel.end) else {
        return None;
    };
    let nodes = node.roster.iter().filter(|(_, connection, _)| *connection != Some(node.own)).map(
        |(rid, connection, descriptor)| NodeStatus {
            rid: rid.clone(),
            is_ready: connection.and_then(|it| core.table.get(it)).is_some_and(Connection::is_ready),
            dialler: descriptor.map(|descriptor| dialler(channel, descriptor)),
        },
    );
    let bound = node.listening.as_ref().map(|listening| MeshBound::from(&listening.bound));
    Some(MeshStatus { mesh: mesh.clone(), bound, nodes: nodes.collect() })
}

fn connection_status(core: &Core, connection: &Connection) -> Option<ConnectionStatus> {
    if let Side::Own = connection.side {
        return None;
    }
    let counters = core.rotation.counters(connection.share).unwrap_or_default();
    Some(ConnectionStatus {
        peer: Peer::clone(connection.peer.as_ref()?),
        state: state_of(connection)?,
        last_received: last_received(core, connection),
        served: counters.served,
        held: counters.held,
        capped: capped(counters),
    })
}

fn source_status(core: &Core, connection: &Connection) -> Option<SourceStatus> {
    Some(SourceStatus {
        source: Source::clone(connection.source.as_ref()?),
        state: state_of(connection)?,
        last_received: last_received(core, connection),
        capped: capped(core.rotation.counters(connection.share).unwrap_or_default()),
    })
}

fn is_unadmitted(connection: &Connection) -> bool {
    let is_accepted = connection.route().is_some();
    is_accepted && matches!(connection.phase, Phase::New | Phase::Held | Phase::Joining)
}

fn state_of(connection: &Connection) -> Option<RouteState> {
    match connection.phase {
        Phase::Ready => Some(RouteState::Ready),
        Phase::Admitted => Some(RouteState::Admitted),
        Phase::ReadingOut(_) => Some(RouteState::Reconnecting),
        _ => None,
    }
}

fn last_received(core: &Core, connection: &Connection) -> Option<Duration> {
    let now = core.watch.moment().now;
    connection.last_received.map(|at| now.since(at))
}

fn capped(counters: rotation::Counters) -> [u32; 3] {
    [counters.capped_by_records, counters.capped_by_bytes, counters.capped_by_time]
}

impl ConnectionStatus {
    /// Whether this side dialled.
    pub fn is_dialled(&self) -> bool {
        self.peer.endpoint().is_some()
    }
}
