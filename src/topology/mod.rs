//! What is registered, who is connected, and every transition between the two. The turn and the outbox both work on the
//! [`Core`]; only this room changes a connection's phase, and what the host must hear of it goes into [`News`].

pub(crate) mod agenda;
pub(crate) mod client_server;
pub(crate) mod dialling;
pub(crate) mod fanout;
mod filters;
pub(crate) mod intents;
pub(crate) mod life;
pub(crate) mod mesh;
pub(crate) mod node;
mod owed;
pub(crate) mod own;
pub(crate) mod register;
pub(crate) mod roster;
pub(crate) mod selection;
pub(crate) mod service;
mod succession;
pub(crate) mod sweep;
pub(crate) mod table;
pub(crate) mod witness;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, ClockTime, Watch};
use crate::config::Config;
use crate::error::RegisterError;
use crate::io::{Inbound, Io};
use crate::link::backoff::{Backoff, Draws};
use crate::link::connection::{Failure, LostReason, Peer};
use crate::link::publisher::Source;
use crate::link::replies::Replies;
use crate::link::requests::{RequestId, Requests};
use crate::liveness::{CheckKey, Liveness};
use crate::name::{BindEndpoint, ChannelName, Endpoint, MeshName, TopologyName};
use crate::rotation::Rotation;
use crate::wire::{AdmissionBody, HostState, Name};
use agenda::{Agenda, CLOSE_PATIENCE};
use fanout::Subscription;
use own::Loop;
use roster::Roster;
use selection::Members;
use table::{Carries, Expects, Intent, IntentPhase, LaneEntry, Table};

/// All that one engine has, but the host and the buffers of the running turn.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) watch: Watch,
    pub(crate) io: Io,
    pub(crate) liveness: Liveness,
    pub(crate) rotation: Rotation<Inbound>,
    pub(crate) table: Table,
    pub(crate) channels: Channels,
    pub(crate) requests: Requests,
    pub(crate) replies: Replies,
    pub(crate) agenda: Agenda,
    pub(crate) host_state: HostState,
    pub(crate) pressure: Pressure,
    pub(crate) counters: Counters,
    /// Connections that are owed a record.
    pub(crate) owing: Vec<u32>,
    /// Connections that are read out after their transport ended.
    pub(crate) reading_out: Vec<u32>,
    /// Connections that the sweep will let go.
    pub(crate) closing: VecDeque<u32>,
    /// Strangers that were turned away since that time, of whom no other memory is kept.
    pub(crate) turned_away: (ClockTime, u32),
    /// When the host was last told that a turn is due.
    pub(crate) told_due: Option<ClockTime>,
    /// More verdicts are due than one turn passes.
    pub(crate) verdicts_left: bool,
    /// What the host has not been told yet.
    pub(crate) news: VecDeque<News>,
    /// What mesh nodes of this engine sent to themselves.
    pub(crate) own: Loop,
    /// Whose record the host had last.
    pub(crate) spoke: Option<Arc<Peer>>,
    /// The head being written.
    pub(crate) head: Vec<u8>,
    draws: Draws,
}

impl Core {
    pub(crate) fn new(config: Config, clock: Clock, watch: Watch, io: Io) -> Self {
        let (requests_max, replies_max, seed) = (config.requests_max, config.replies_max, config.seed);
        Self {
            clock,
            watch,
            io,
            liveness: Liveness::new(),
            rotation: Rotation::new(config.caps()),
            table: Table::default(),
            channels: Channels::default(),
            requests: Requests::new(requests_max),
            replies: Replies::new(replies_max),
            agenda: Agenda::default(),
            host_state: HostState::Serving,
            pressure: Pressure::Running,
            counters: Counters::default(),
            owing: Vec::new(),
            reading_out: Vec::new(),
            closing: VecDeque::new(),
            turned_away: (clock.now(), 0),
            told_due: None,
            verdicts_left: false,
            news: VecDeque::new(),
            own: Loop::default(),
            spoke: None,
            head: Vec::new(),
            draws: Draws::new(seed),
            config,
        }
    }

    /// The next number of this engine's seeded sequence.
    pub(crate) fn draw(&mut self) -> u64 {
        self.draws.next()
    }

    /// Who speaks by a connection. Mostly it is whoever spoke last, and to take that one out of its place costs less than
    /// to count one more who knows it.
    #[inline]
    pub(crate) fn speaker(&mut self, index: u32) -> Option<Arc<Peer>> {
        let peer = self.table.get(index)?.peer.as_ref()?;
        match self.spoke.take() {
            Some(spoke) if Arc::ptr_eq(&spoke, peer) => Some(spoke),
            _ => Some(peer.clone()),
        }
    }

    /// The time at which a call is made: now, or the last turn's time if the host gave it a later one.
    pub(crate) fn clock_now(&self) -> ClockTime {
        self.clock.now().max(self.watch.moment().now)
    }

    /// The host enters a state of pressure, on every lane there is.
    pub(crate) fn set_pressure(&mut self, pressure: Pressure) {
        self.pressure = pressure;
        let pausable = |lane: &LaneEntry| lane.carries == Carries::Application;
        for (_, LaneEntry { key, .. }) in self.table.lanes.iter().filter(|(_, lane)| pausable(lane)) {
            match pressure {
                Pressure::Running => self.rotation.resume(*key),
                Pressure::Paused => self.rotation.pause(*key, self.config.pause_limits()),
            }
        }
    }

    /// Takes a new lane in, under the pressure that the host is in, before anyone can know of it.
    pub(crate) fn add_lane(&mut self, entry: LaneEntry) {
        if self.pressure == Pressure::Paused && entry.carries == Carries::Application {
            self.rotation.pause(entry.key, self.config.pause_limits());
        }
        self.table.lanes.insert(entry);
    }

    /// Takes in a new wish for a connection; its first attempt is due at once.
    pub(crate) fn add_intent(&mut self, channel: u32, endpoint: Endpoint, expects: Expects) -> u32 {
        let moment = self.watch.moment();
        let backoff = Backoff::new(self.draw());
        let give_up = moment.watched.plus(CLOSE_PATIENCE);
        let phase = IntentPhase::Waiting { retry: moment.now, give_up };
        let intent = Intent {
            channel,
            endpoint,
            expects,
            backoff,
            phase,
            is_described: false,
            heir: None,
            last_end: None,
            was_ready: false,
        };
        let index = self.table.add_intent(intent);
        self.agenda.retry(moment.now, index);
        index
    }

    /// Whether something waits that needs no new input.
    pub(crate) fn is_pressed(&self) -> bool {
        self.rotation.work_left()
            || self.verdicts_left
            || !self.news.is_empty()
            || !self.closing.is_empty()
            || self.own.has_work(self.pressure)
    }
}

/// One registered end of a topology: a server, a client, a publisher, a subscriber, or a mesh node.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) name: TopologyName,
    /// What we say of ourselves on it; nothing on a fanout channel, which has no handshake.
    pub(crate) body: Option<AdmissionBody>,
    /// The largest record we take; 0 is no limit.
    pub(crate) bytes_max: u32,
    pub(crate) end: ChannelEnd,
}

impl Channel {
    pub(crate) fn is_mesh(&self) -> bool {
        matches!(self.end, ChannelEnd::Mesh(_))
    }

    /// Whether this end offers a channel to its peers.
    fn serves(&self, channel: Name<'_>) -> bool {
        match &self.name {
            TopologyName::RouteMesh(_) => self.body.as_ref().is_some_and(|body| body.serves(channel)),
            TopologyName::ClientServer(name) | TopologyName::Fanout(name) => {
                name.as_str().as_bytes() == channel.as_bytes()
            }
        }
    }

    /// Whether we go by a larger RID than this one here.
    fn is_above(&self, rid: &[u8]) -> bool {
        self.body.as_ref().is_some_and(|body| body.identity().rid.as_bytes() > rid)
    }

    /// Whether a RID is the one we go by here.
    fn is_own(&self, rid: &[u8]) -> bool {
        self.body.as_ref().is_some_and(|body| body.identity().rid.as_bytes() == rid)
    }
}

/// Which end of its channel it is.
#[derive(Debug)]
pub(crate) enum ChannelEnd {
    /// It listens.
    Server { lane: u32, bound: BindEndpoint },
    /// It dials, and picks among those it reached. A member of the selector is an intent.
    Client { members: Members },
    /// It publishes; `published` counts its records.
    Publisher { lane: u32, bound: BindEndpoint, check: CheckKey, published: u32 },
    /// It hears each publisher on a lane of its own.
    Subscriber(Subscription),
    /// It dials other nodes of its mesh, and listens to those that dial it.
    Mesh(Box<Mesh>),
}

impl ChannelEnd {
    /// The lanes on which it listens or publishes.
    fn listening(&self) -> [Option<u32>; 2] {
        match self {
            Self::Server { lane, .. } | Self::Publisher { lane, .. } => [Some(*lane), None],
            Self::Client { .. } | Self::Subscriber(_) => [None, None],
            Self::Mesh(mesh) => mesh.listening.as_ref().map_or([None, None], |at| at.lanes.map(Some)),
        }
    }
}

/// A node of a RouteMesh.
#[derive(Debug)]
pub(crate) struct Mesh {
    pub(crate) listening: Option<Listening>,
    /// Who else is known.
    pub(crate) roster: Roster,
    /// The connection that stands for this node itself.
    pub(crate) own: u32,
    /// The configuration generation of the host's own list of endpoints.
    pub(crate) configuration: u64,
}

/// Where a mesh node listens: the application lane, then the completion lane.
#[derive(Debug)]
pub(crate) struct Listening {
    lanes: [u32; 2],
    pub(crate) bound: [BindEndpoint; 2],
}

/// The registered channels by number and by name. Few names are compared sooner than one is hashed.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    pub(crate) list: Vec<Channel>,
    meshes: BTreeMap<MeshName, u32>,
    /// Servers of a ClientServer channel, and mesh nodes by each channel they serve.
    served: BTreeMap<ChannelName, u32>,
    clients: BTreeMap<ChannelName, u32>,
    publishers: BTreeMap<ChannelName, u32>,
    subscribers: BTreeMap<ChannelName, u32>,
}

impl Channels {
    pub(crate) fn add(&mut self, channel: Channel) -> u32 {
        let index = self.list.len() as u32;
        let names = match channel.end {
            ChannelEnd::Server { .. } | ChannelEnd::Mesh(_) => &mut self.served,
            ChannelEnd::Client { .. } => &mut self.clients,
            ChannelEnd::Publisher { .. } => &mut self.publishers,
            ChannelEnd::Subscriber(_) => &mut self.subscribers,
        };
        match &channel.name {
            TopologyName::RouteMesh(mesh) => {
                self.meshes.insert(mesh.clone(), index);
                let serves = channel.body.iter().flat_map(AdmissionBody::channels);
                names.extend(serves.map(|(name, _)| (name.clone(), index)));
            }
            TopologyName::ClientServer(name) | TopologyName::Fanout(name) => {
                names.insert(name.clone(), index);
            }
        }
        self.list.push(channel);
        index
    }

    pub(crate) fn mesh(&self, name: &MeshName) -> Option<u32> {
        self.meshes.get(name).copied()
    }

    /// The server or mesh node that serves a channel.
    pub(crate) fn serving(&self, name: &ChannelName) -> Option<u32> {
        self.served.get(name).copied()
    }

    /// Whether a channel has a server here.
    pub(crate) fn is_server(&self, name: &ChannelName) -> bool {
        let channel = self.serving(name).map(|index| self.get(index));
        channel.is_some_and(|channel| matches!(channel.end, ChannelEnd::Server { .. }))
    }

    /// A channel as a ClientServer one, if it is none of another topology.
    fn client_server(&self, name: &ChannelName) -> Result<TopologyName, RegisterError> {
        self.as_one(name, TopologyName::ClientServer(name.clone()))
    }

    /// A channel as a fanout one, if it is none of another topology.
    fn fanout(&self, name: &ChannelName) -> Result<TopologyName, RegisterError> {
        self.as_one(name, TopologyName::Fanout(name.clone()))
    }

    fn as_one(&self, name: &ChannelName, wanted: TopologyName) -> Result<TopologyName, RegisterError> {
        match self.elsewhere(name, &wanted) {
            None => Ok(wanted),
            Some(there) => {
                Err(RegisterError::ChannelElsewhere { channel: name.clone(), topology: there.clone() })
            }
        }
    }

    /// The topology in which a channel is registered, if it is another one than `wanted`.
    pub(crate) fn elsewhere(&self, name: &ChannelName, wanted: &TopologyName) -> Option<&TopologyName> {
        let is_other = |there: &TopologyName| match (there, wanted) {
            (TopologyName::RouteMesh(there), TopologyName::RouteMesh(wanted)) => there != wanted,
            _ => std::mem::discriminant(there) != std::mem::discriminant(wanted),
        };
        [&self.served, &self.clients, &self.publishers, &self.subscribers]
            .into_iter()
            .filter_map(|names| names.get(name))
            .map(|index| &self.get(*index).name)
            .find(|there| is_other(there))
    }

    pub(crate) fn client(&self, name: &ChannelName) -> Option<u32> {
        self.clients.get(name).copied()
    }

    pub(crate) fn publisher(&self, name: &ChannelName) -> Option<u32> {
        self.publishers.get(name).copied()
    }

    pub(crate) fn subscriber(&self, name: &ChannelName) -> Option<u32> {
        self.subscribers.get(name).copied()
    }

    /// A channel is never removed, so a number given out stands for ever.
    pub(crate) fn get(&self, index: u32) -> &Channel {
        &self.list[index as usize]
    }

    /// The selector of a client's channel.
    pub(crate) fn members_mut(&mut self, index: u32) -> Option<&mut Members> {
        match &mut self.list[index as usize].end {
            ChannelEnd::Client { members } => Some(members),
            _ => None,
        }
    }

    /// The mesh node of this number.
    pub(crate) fn node(&self, index: u32) -> Option<&Mesh> {
        match &self.get(index).end {
            ChannelEnd::Mesh(mesh) => Some(mesh),
            _ => None,
        }
    }

    pub(crate) fn node_mut(&mut self, index: u32) -> Option<&mut Mesh> {
        match &mut self.list[index as usize].end {
            ChannelEnd::Mesh(mesh) => Some(mesh),
            _ => None,
        }
    }
}

/// Whether the host takes application records now (000 §9). It changes neither readiness nor any deadline, and does not
/// apply to what publishers send: that is delivered all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Pressure {
    /// They are delivered.
    #[default]
    Running,
    /// They are set aside, in order and within [`Config`]'s bounds, and delivered when the host runs again. Only the replies
    /// of mesh nodes, which have a lane of their own, come all the same.
    Paused,
}

/// Something the host is to hear, in the order in which it happened.
#[derive(Debug)]
pub(crate) enum News {
    Admitted(Arc<Peer>),
    Ready(Arc<Peer>),
    Missed { peer: Arc<Peer>, asks: u8 },
    Lost { peer: Arc<Peer>, reason: LostReason },
    Failed { topology: TopologyName, endpoint: Endpoint, failure: Failure },
    Ended { request: RequestId, why: Unanswered },
    Stalled { unwatched: Duration },
    PublisherReady(Arc<Source>),
    PublisherLost { source: Arc<Source>, reason: LostReason },
}

/// Why a request ended without an answer from the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unanswered {
    /// It took longer than the caller allowed.
    TimedOut,
    /// The caller took it back.
    Cancelled,
    /// The connection it was sent on has ended. It is not sent again to anyone (000 §6).
    RouteLost,
    /// This host stopped.
    Shutdown,
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimedOut => "timed out",
            Self::Cancelled => "cancelled",
            Self::RouteLost => "its connection was lost",
            Self::Shutdown => "this host stopped",
        })
    }
}

/// What is only counted. Each is a total since the engine was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Replies that met no pending request: late, repeated, or of another connection.
    pub late_replies: u64,
    /// Messages for a channel that is not served on the connection they came by.
    pub misdirected: u64,
    /// Records from connections that are not admitted, or no longer.
    pub unadmitted: u64,
    /// Published records that no filter asks for: their topics only begin like the beacon's.
    pub unsubscribed: u64,
    /// Records that broke the protocol.
    pub protocol_errors: u64,
    /// Connections refused.
    pub refused: u64,
    /// Accepted connections that did not complete ZeroMQ's own handshake: port scans, other protocols.
    pub strangers: u64,
    /// Admitted connections that ended because the peer said so.
    pub lost_orderly: u64,
    /// Admitted connections, publishers that were ready among them, that ended by a transport loss.
    pub lost_transport: u64,
    /// Admitted connections, publishers that were ready among them, that ended by their deadline.
    pub lost_silence: u64,
    /// Admitted connections that ended for any other reason.
    pub lost_otherwise: u64,
}

impl Counters {
    fn count(&mut self, reason: LostReason) {
        match reason {
            LostReason::Orderly => self.lost_orderly += 1,
            LostReason::Transport => self.lost_transport += 1,
            LostReason::Silence(_) => self.lost_silence += 1,
            _ => self.lost_otherwise += 1,
        }
    }
}
