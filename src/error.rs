//! What a call on the engine can refuse, as values a host can match on. Each says what, why, and that nothing changed.

use thiserror::Error;

use crate::config::ConfigError;
use crate::io::IoError;
use crate::name::{BindEndpoint, ChannelName, Endpoint, MeshName, Rid, TopologyName};
use crate::wire::PARTS_MAX;

/// Why an engine could not be made. Nothing is left behind.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StartError {
    /// A setting lies outside its bounds.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The system refused the poller.
    #[error("no poller: {0}")]
    Io(#[from] IoError),
}

/// Why a server, client, mesh node, publisher or subscriber could not be registered, or its registration not be changed. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// This engine already has a server of that channel.
    #[error("channel {channel} already has a server here")]
    SecondServer {
        /// The channel.
        channel: ChannelName,
    },
    /// This engine already has a client of that channel.
    #[error("channel {channel} already has a client here")]
    SecondClient {
        /// The channel.
        channel: ChannelName,
    },
    /// This engine already has a publisher of that channel.
    #[error("channel {channel} already has a publisher here")]
    SecondPublisher {
        /// The channel.
        channel: ChannelName,
    },
    /// This engine already has a subscriber of that channel.
    #[error("channel {channel} already has a subscriber here")]
    SecondSubscriber {
        /// The channel.
        channel: ChannelName,
    },
    /// A subscriber has its publishers from fixed endpoints or from descriptors, never from both.
    #[error("a subscriber of channel {channel} takes fixed endpoints or descriptors, not both")]
    MixedSources {
        /// The channel.
        channel: ChannelName,
    },
    /// The topic of the liveness beacon is no application's (000 §4).
    #[error("the topic 01 5A 4C 46 31 is reserved for the liveness beacon")]
    ReservedTopic,
    /// The filter is longer than [`FILTER_BYTES_MAX`].
    #[error("a filter of {bytes} bytes; at most {FILTER_BYTES_MAX} are taken")]
    FilterTooLong {
        /// How long it is.
        bytes: usize,
    },
    /// A client names no server endpoint.
    #[error("a client of channel {channel} names no endpoint to connect to")]
    NoEndpoint {
        /// The channel.
        channel: ChannelName,
    },
    /// One endpoint is named twice.
    #[error("endpoint {endpoint} is named twice for {topology}")]
    EndpointTwice {
        /// The mesh or channel.
        topology: TopologyName,
        /// The endpoint.
        endpoint: Endpoint,
    },
    /// This engine already has a node of that mesh.
    #[error("mesh {mesh} already has a node here")]
    SecondMesh {
        /// The mesh.
        mesh: MeshName,
    },
    /// This engine has no node of that mesh.
    #[error("mesh {mesh} has no node here")]
    UnknownMesh {
        /// The mesh.
        mesh: MeshName,
    },
    /// One channel name belongs to one topology.
    #[error("channel {channel} is registered in another topology here: {topology}")]
    ChannelElsewhere {
        /// The channel.
        channel: ChannelName,
        /// Where it is registered.
        topology: TopologyName,
    },
    /// A mesh node serves one channel twice.
    #[error("channel {channel} is served twice by one node")]
    ChannelTwice {
        /// The channel.
        channel: ChannelName,
    },
    /// A mesh node serves more channels than [`SERVES_MAX`](crate::SERVES_MAX).
    #[error("{channels} channels; one node serves at most {SERVES_MAX}")]
    TooManyChannels {
        /// How many there were.
        channels: usize,
    },
    /// One node is described twice.
    #[error("node {rid} is described twice")]
    NodeTwice {
        /// Its RID.
        rid: Rid,
    },
    /// A mesh node tells its peers where to dial it, and nobody can dial a wildcard host.
    #[error("{endpoint} cannot be dialled; say which endpoints to advertise")]
    NotDialable {
        /// What was to be bound.
        endpoint: BindEndpoint,
    },
    /// Nothing of that kind is registered for that channel here.
    #[error("channel {channel} has no such registration here")]
    UnknownChannel {
        /// The channel.
        channel: ChannelName,
    },
    /// The limit on records is smaller than any admission.
    #[error("message_bytes_max is {bytes}; it takes 0 (no limit) or {MESSAGE_BYTES_MIN} and more")]
    MessageLimit {
        /// What it was set to.
        bytes: u32,
    },
    /// The host has stopped, or is on its way out.
    #[error("the engine is shutting down")]
    ShuttingDown,
    /// The system refused to listen or to open a socket.
    #[error("{endpoint}: {error}")]
    Io {
        /// Where.
        endpoint: BindEndpoint,
        /// Why.
        error: IoError,
    },
}

/// The most channels that one mesh node of this engine serves; their names fit one admission whatever their length.
pub const SERVES_MAX: usize = 1_000;

/// The smallest limit a record size can be given, in bytes: every admission fits it.
pub const MESSAGE_BYTES_MIN: u32 = 4096;

/// The longest filter of a subscriber, in bytes. ZeroMQ goes down its filters by recursion, a step for each byte, so a long
/// one could overflow the stack of the host's thread: one of 16 KiB did, on a stack of 2 MiB.
pub const FILTER_BYTES_MAX: usize = 1024;

/// Why nothing was sent. No request exists, a reply token stays usable unless it says otherwise, nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SendError {
    /// No ready connection leads there (000 §6).
    #[error("route not connected: {0}")]
    RouteNotConnected(NoRoute),
    /// The queue to the peer is full, or its next free slot belongs to a check signal. Try again after a turn. Room that
    /// comes free mostly wakes the descriptor, but no promise is made of it: a host that waits for room turns on its own
    /// timer.
    #[error("no room now")]
    WouldBlock,
    /// No client or publisher of that channel is registered here. A server can start nothing towards its clients, and a
    /// channel of a mesh is named together with its mesh: `(&mesh, &channel)`.
    #[error("this engine has no client or publisher of that channel")]
    UnknownChannel,
    /// No node of that mesh is registered here.
    #[error("this engine has no node of that mesh")]
    UnknownMesh,
    /// The topic of the liveness beacon is no application's (000 §4).
    #[error("the topic 01 5A 4C 46 31 is reserved for the liveness beacon")]
    ReservedTopic,
    /// A record carries at least one payload part.
    #[error("a message or request takes at least one part")]
    NoParts,
    /// More payload parts than a record carries.
    #[error("{parts} parts; at most {PARTS_MAX} fit a message, one less a published record")]
    TooManyParts {
        /// How many there were.
        parts: usize,
    },
    /// The record is larger than the peer accepts.
    #[error("the record has {bytes} bytes; the peer accepts {bytes_max}")]
    TooLarge {
        /// Head and parts together.
        bytes: usize,
        /// The peer's limit.
        bytes_max: u32,
    },
    /// As many requests as [`Config::requests_max`](crate::Config::requests_max) wait for their replies.
    #[error("too many requests wait for their replies")]
    TooManyRequests,
    /// The token was used, or the connection its request came on has ended.
    #[error("the reply token is spent, or its connection has ended")]
    TokenSpent,
    /// The host has stopped or no longer takes new work.
    #[error("the engine is shutting down")]
    ShuttingDown,
}

/// Why no route was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NoRoute {
    /// No member is known, or all have weight 0 or are draining; or the node is not known.
    #[error("no such node is known, or nobody serves the channel")]
    NotFound,
    /// Members are known, and none of them is ready.
    #[error("nobody who serves the channel is ready")]
    Unavailable,
    /// The connection has just gone.
    #[error("the connection is gone")]
    Lost,
}
