//! What is registered, who is connected, and every transition between the two. The turn and the outbox both work on the
//! [`Core`]; only this room changes a connection's phase, and what the host must hear of it goes into [`News`].

pub(crate) mod agenda;
pub(crate) mod client_server;
pub(crate) mod life;
mod owed;
pub(crate) mod register;
pub(crate) mod selection;
pub(crate) mod table;
pub(crate) mod witness;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, ClockTime, Watch};
use crate::config::Config;
use crate::io::{Inbound, Io};
use crate::link::connection::{Failure, LostReason, Peer};
use crate::link::replies::Replies;
use crate::link::requests::{RequestId, Requests};
use crate::liveness::Liveness;
use crate::name::{BindEndpoint, ChannelName, Endpoint};
use crate::rotation::Rotation;
use crate::wire::{AdmissionBody, HostState};
use agenda::Agenda;
use selection::Members;
use table::Table;

/// All that one engine has, but the host and the buffers of the running turn.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) watch: Watch,
    pub(crate) io: Io,
    pub(crate) liveness: Liveness,
    pub(crate) rotation: Rotation<Box<Inbound>>,
    pub(crate) table: Table,
    pub(crate) channels: Channels,
    pub(crate) requests: Requests,
    pub(crate) replies: Replies,
    pub(crate) agenda: Agenda,
    pub(crate) host_state: HostState,
    pub(crate) counters: Counters,
    /// Connections that are owed a record.
    pub(crate) owing: Vec<u32>,
    /// Connections that are read out after their transport ended.
    pub(crate) reading_out: Vec<u32>,
    /// Connections that the sweep will let go.
    pub(crate) closing: Vec<u32>,
    /// More verdicts are due than one turn passes.
    pub(crate) verdicts_left: bool,
    /// What the host has not been told yet.
    pub(crate) news: VecDeque<News>,
    /// The head being written.
    pub(crate) head: Vec<u8>,
    seed: u64,
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
            replies: Replies::new(replies_max, replies_max),
            agenda: Agenda::default(),
            host_state: HostState::Serving,
            counters: Counters::default(),
            owing: Vec::new(),
            reading_out: Vec::new(),
            closing: Vec::new(),
            verdicts_left: false,
            news: VecDeque::new(),
            head: Vec::new(),
            seed,
            config,
        }
    }

    /// The next number of this engine's seeded sequence.
    pub(crate) fn draw(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.seed ^ self.seed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// The time at which a call is made: now, or the last turn's time if the host gave it a later one.
    pub(crate) fn clock_now(&self) -> ClockTime {
        self.clock.now().max(self.watch.moment().now)
    }

    /// The due work that a call between turns can add to.
    pub(crate) fn due(&self) -> Due {
        Due { time_out: self.requests.earliest(), read_out: self.reading_out.len() }
    }

    /// Whether something is due now that was not, or was later, when `earlier` was taken.
    pub(crate) fn is_due_before(&self, earlier: Due) -> bool {
        let Due { time_out, read_out } = self.due();
        read_out > earlier.read_out || time_out.is_some_and(|at| earlier.time_out.is_none_or(|due| at < due))
    }

    /// Whether something waits that needs no new input.
    pub(crate) fn is_pressed(&self) -> bool {
        self.rotation.work_left() || self.verdicts_left || !self.news.is_empty() || !self.closing.is_empty()
    }
}

/// See [`Core::due`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Due {
    /// When the next request runs out of time.
    time_out: Option<ClockTime>,
    /// Connections that are read out.
    read_out: usize,
}

/// One registered server or client of a ClientServer channel.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) name: ChannelName,
    /// What we say of ourselves on it.
    pub(crate) body: AdmissionBody,
    /// The largest record we take; 0 is no limit.
    pub(crate) bytes_max: u32,
    pub(crate) end: ChannelEnd,
}

/// Which end of its channel it is.
#[derive(Debug)]
pub(crate) enum ChannelEnd {
    /// It listens.
    Server { lane: u32, bound: BindEndpoint },
    /// It dials, and picks among those it reached. A member of the selector is an intent.
    Client { members: Members },
}

/// The registered channels by number and by name.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    pub(crate) list: Vec<Channel>,
    servers: HashMap<ChannelName, u32>,
    clients: HashMap<ChannelName, u32>,
}

impl Channels {
    pub(crate) fn add(&mut self, channel: Channel) -> u32 {
        let index = self.list.len() as u32;
        let names = match channel.end {
            ChannelEnd::Server { .. } => &mut self.servers,
            ChannelEnd::Client { .. } => &mut self.clients,
        };
        names.insert(channel.name.clone(), index);
        self.list.push(channel);
        index
    }

    pub(crate) fn server(&self, name: &ChannelName) -> Option<u32> {
        self.servers.get(name).copied()
    }

    pub(crate) fn client(&self, name: &ChannelName) -> Option<u32> {
        self.clients.get(name).copied()
    }

    /// A channel is never removed, so a number given out stands for ever.
    pub(crate) fn get(&self, index: u32) -> &Channel {
        &self.list[index as usize]
    }

    /// The selector of a client's channel.
    pub(crate) fn members_mut(&mut self, index: u32) -> Option<&mut Members> {
        match &mut self.list[index as usize].end {
            ChannelEnd::Client { members } => Some(members),
            ChannelEnd::Server { .. } => None,
        }
    }
}

/// Something the host is to hear, in the order in which it happened.
#[derive(Debug)]
pub(crate) enum News {
    Admitted(Arc<Peer>),
    Ready(Arc<Peer>),
    Missed { peer: Arc<Peer>, asks: u8 },
    Lost { peer: Arc<Peer>, reason: LostReason },
    Failed { channel: ChannelName, endpoint: Endpoint, failure: Failure },
    Ended { request: RequestId, why: Unanswered },
    Stalled { unwatched: Duration },
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
    /// Records that broke the protocol.
    pub protocol_errors: u64,
    /// Connections refused.
    pub refused: u64,
}
