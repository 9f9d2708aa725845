//! One physical connection: which end of it we are, how far it has come, and what it is owed. It is never reused after
//! it ends. It knows no socket and no other connection.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::clock::{ClockTime, WatchTime};
use crate::link::publisher::Source;
use crate::liveness::{CheckKey, Silence};
use crate::name::{Endpoint, Generation, Rid, TopologyName};
use crate::rotation::PeerKey;
use crate::wire::{HostState, Lane, Pair, ProbeId, RejectReason};

/// The routing id that ZeroMQ gave an accepted connection: five bytes, unless a foreign dialler chose its own.
pub(crate) type Route = SmallVec<[u8; 8]>;

/// The longest head that is remembered.
const USUAL_HEAD_MAX: usize = 24;

/// Names one physical connection for as long as it exists, and none after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Who is at the other end of an admitted connection. It stays the same as long as the connection lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub(crate) connection: ConnectionId,
    pub(crate) topology: TopologyName,
    pub(crate) rid: Rid,
    pub(crate) generation: Generation,
    pub(crate) endpoint: Option<Endpoint>,
}

impl Peer {
    /// The connection to it. In a RouteMesh this is the pair of its two lanes, and they end together.
    pub fn connection(&self) -> ConnectionId {
        self.connection
    }

    /// The mesh or the channel by which it is connected.
    pub fn topology(&self) -> &TopologyName {
        &self.topology
    }

    /// Its routing id.
    pub fn rid(&self) -> &Rid {
        &self.rid
    }

    /// Its lifecycle generation: another one is another run of its process.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The endpoint that was dialled to reach it; none if it dialled us.
    pub fn endpoint(&self) -> Option<&Endpoint> {
        self.endpoint.as_ref()
    }
}

/// Why a connection that was admitted ended. The host hears it once, as the last word on that connection (000 §9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// The peer said that it stops.
    Orderly,
    /// The transport ended without a word: a killed process, a cut cable that the system noticed.
    Transport,
    /// The peer's deadline passed: see [`Silence`] for what exactly was and was not seen.
    Silence(Silence),
    /// The peer sent something that WIRE.md does not allow.
    Protocol,
    /// The peer refused the connection after it had admitted it.
    Rejected(RejectReason),
    /// It was admitted and did not come to be ready in time.
    NeverReady,
    /// The host's descriptor of this peer names another lifecycle generation or security identity.
    Unverified,
    /// Another connection between the same two nodes stands in its place.
    Replaced,
    /// This host closed it.
    Closed,
    /// The host's descriptors, or its own list of endpoints, no longer name it.
    Retired,
    /// This host stops.
    Stopped,
}

/// Why an attempt to connect came to nothing. It says nothing about any connection that was ever ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Failure {
    /// Nobody answers at the endpoint, or the connection ended before it was admitted: that is also how it looks where a
    /// ZeroMQ socket of a kind that does not fit answers.
    Unreachable,
    /// What answers there does not speak ZeroMQ.
    NotZeroMq,
    /// It was not admitted within 20 s of watched time, or no first record of a publisher came.
    TimedOut,
    /// The other side refused.
    Refused(RejectReason),
    /// The other side's admission does not fit what was expected of it.
    Unexpected(RejectReason),
    /// The other side sent something that WIRE.md does not allow.
    Protocol,
    /// The system had no socket for it.
    NoSocket,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Orderly => "the peer stopped",
            Self::Transport => "the transport ended",
            Self::Silence(silence) => return silence.fmt(f),
            Self::Protocol => "the peer broke the protocol",
            Self::Rejected(reason) => return write!(f, "the peer rejected the connection: {reason}"),
            Self::NeverReady => "admitted, but not ready in time",
            Self::Unverified => "not the one that this host's descriptor names",
            Self::Replaced => "another connection of the same peer took its place",
            Self::Closed => "closed by this host",
            Self::Retired => "no longer wanted by this host",
            Self::Stopped => "this host stopped",
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreachable => "unreachable",
            Self::NotZeroMq => "what answers speaks no ZeroMQ",
            Self::TimedOut => "no admission or first record in time",
            Self::Refused(reason) => return write!(f, "refused: {reason}"),
            Self::Unexpected(reason) => return write!(f, "not what was expected: {reason}"),
            Self::Protocol => "the other side broke the protocol",
            Self::NoSocket => "the system had no socket for it",
        })
    }
}

/// Which end of the connection we are.
#[derive(Debug)]
pub(crate) enum Side {
    /// We dialled, for this intent.
    Dialled { intent: u32 },
    /// The peer dialled; ZeroMQ gave it this route.
    Accepted { route: Route, descriptor: Option<i32> },
    /// Both: what a mesh node sends to itself never leaves the engine, and nobody judges it.
    Own,
}

/// How far a connection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Dialled: the transport is not up yet.
    Dialling,
    /// Dialled: our hello went out or is owed.
    Greeting,
    /// Accepted: it has not said anything valid.
    New,
    /// Accepted: its hello waits until an older connection of the same peer has ended.
    Held,
    /// RouteMesh: the application lane is admitted, and the completion lane on its way.
    Joining,
    /// Accepted: our admit went out; its first probe makes it ready.
    Admitted,
    /// RouteMesh: a completion lane that is admitted. It stands and falls with its application lane.
    Joined,
    /// In use.
    Ready,
    /// Ended by the transport or in order: what is still readable is delivered, then the host hears of the end.
    ReadingOut(LostReason),
    /// Ended: the sweep at the end of the turn tells the host and lets go.
    Closing(End),
    /// Accepted and ended, while the transport still stands: nothing from it counts.
    Fenced,
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It was admitted once.
    Lost(LostReason),
    /// A dialled one that never was.
    Failed(Failure),
    /// An accepted one that never was, or a dialled one that this host gave up: the host hears nothing of it.
    Unadmitted,
}

/// The records that wait for the next free slot, of each kind at most one.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    /// Our hello, or our admit.
    pub(crate) greeting: bool,
    /// Our current state, weights and extensions.
    pub(crate) update: bool,
    /// The answer to this probe.
    pub(crate) ack: Option<ProbeId>,
    /// Whether the connection is listed for the next retry.
    pub(crate) listed: bool,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    /// The registered end that it belongs to, by number.
    pub(crate) channel: u32,
    /// The lane its records come and go by.
    pub(crate) lane: u32,
    /// Which of its pair's two lanes that is; ClientServer has the one.
    pub(crate) leg: Lane,
    /// The connection that is its pair's other lane.
    pub(crate) partner: Option<u32>,
    /// The identity by which a bound ROUTER that it dialled is addressed.
    pub(crate) bound_as: Option<[u8; 1]>,
    pub(crate) side: Side,
    pub(crate) phase: Phase,
    pub(crate) share: PeerKey,
    pub(crate) check: Option<CheckKey>,
    pub(crate) pair: Pair,
    /// Set when it has said who it is.
    pub(crate) peer: Option<Arc<Peer>>,
    /// Set when a publisher's first record came.
    pub(crate) source: Option<Arc<Source>>,
    /// The peer's last admission body.
    pub(crate) admission: Vec<u8>,
    pub(crate) peer_state: HostState,
    /// The largest record the peer takes; 0 is no limit.
    pub(crate) peer_bytes_max: u32,
    pub(crate) owed: Owed,
    /// The newer connection of the same peer whose hello waits for the end of this one.
    pub(crate) successor: Option<ConnectionId>,
    /// The transport is known to be gone.
    pub(crate) severed: bool,
    /// It came to be ready, or said the probe that would have made it so.
    pub(crate) has_opened: bool,
    /// Since when rounds of its lane bring none of its records, by the true clock, while it is read out.
    pub(crate) quiet_since: Option<ClockTime>,
    /// Since when it is read out, by the true clock.
    pub(crate) read_out_since: Option<ClockTime>,
    /// How long it may be read out while its transport still stands.
    pub(crate) read_out_until: Option<WatchTime>,
    /// For diagnostics only: it extends no deadline (000 §2).
    pub(crate) last_received: Option<ClockTime>,
    pub(crate) rejected: Option<ClockTime>,
    /// The head of its last message, if that is short: the next one mostly has the same.
    pub(crate) usual_head: SmallVec<[u8; USUAL_HEAD_MAX]>,
}

impl Connection {
    pub(crate) fn new(
        id: ConnectionId,
        channel: u32,
        lane: u32,
        side: Side,
        phase: Phase,
        share: PeerKey,
    ) -> Self {
        Self {
            id,
            channel,
            lane,
            leg: Lane::Application,
            partner: None,
            bound_as: None,
            side,
            phase,
            share,
            check: None,
            pair: Pair::FIRST,
            peer: None,
            source: None,
            admission: Vec::new(),
            peer_state: HostState::Preparing,
            peer_bytes_max: 0,
            owed: Owed::default(),
            successor: None,
            severed: false,
            has_opened: false,
            quiet_since: None,
            read_out_since: None,
            read_out_until: None,
            last_received: None,
            rejected: None,
            usual_head: SmallVec::new(),
        }
    }

    /// Whether its last message had the same head.
    #[inline]
    pub(crate) fn said_before(&self, head: &[u8]) -> bool {
        !head.is_empty() && *self.usual_head == *head
    }

    /// Remembers the head of a message that was understood, if it is short enough.
    pub(crate) fn keep_head(&mut self, head: &[u8]) {
        self.usual_head.clear();
        if head.len() <= USUAL_HEAD_MAX {
            self.usual_head.extend_from_slice(head);
        }
    }

    /// The route of an accepted connection.
    pub(crate) fn route(&self) -> Option<&[u8]> {
        match &self.side {
            Side::Accepted { route, .. } => Some(route),
            Side::Dialled { .. } | Side::Own => None,
        }
    }

    /// The intent that a dialled connection is for.
    pub(crate) fn intent(&self) -> Option<u32> {
        match self.side {
            Side::Dialled { intent } => Some(intent),
            Side::Accepted { .. } | Side::Own => None,
        }
    }

    /// By what a ROUTER addresses it.
    pub(crate) fn address(&self) -> Option<&[u8]> {
        self.route().or(self.bound_as.as_ref().map(<[u8; 1]>::as_slice))
    }

    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Ready)
    }

    /// Whether what it sends can still reach the host.
    pub(crate) fn may_deliver(&self) -> bool {
        matches!(self.phase, Phase::Ready | Phase::ReadingOut(_))
    }

    /// Whether nothing more will come of it.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::ReadingOut(_) | Phase::Closing(_) | Phase::Fenced)
    }

    /// Whether it stands in the host's eyes: admitted and not ended.
    pub(crate) fn stands(&self) -> bool {
        matches!(self.phase, Phase::Admitted | Phase::Ready)
    }

    /// Whether its handshake is under way.
    pub(crate) fn is_opening(&self) -> bool {
        matches!(self.phase, Phase::Dialling | Phase::Greeting | Phase::Joining | Phase::Admitted)
    }

    /// How it ended, in the words for one that stood and for one that never did.
    pub(crate) fn ended_as(&self, lost: LostReason, failed: Failure) -> End {
        match (&self.side, self.phase) {
            (_, Phase::Admitted | Phase::Ready | Phase::ReadingOut(_)) => End::Lost(lost),
            (Side::Dialled { .. }, _) => End::Failed(failed),
            (Side::Accepted { .. } | Side::Own, _) => End::Unadmitted,
        }
    }
}
