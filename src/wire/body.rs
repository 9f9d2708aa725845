//! What our own node says of itself, as typed values that cannot make an illegal admission.

use thiserror::Error;

use super::bytes::{HEAD_BYTES_MAX, put_bytes8, put_text16};
use super::record::{BODY_AT, put_head};
use super::values::{Command, HostState, Lane, Name, Pair, Revision, Role, Topology};
use crate::name::{ChannelName, Endpoint, Generation, MeshName, Rid, SecurityId, Weight};

/// What a node is in its topology.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Service {
    /// A node of a RouteMesh. `completion` is where it takes completion lanes, if it listens.
    RouteMesh { mesh: MeshName, role: Role, completion: Option<Endpoint> },
    /// A client of a ClientServer channel. `max_message` is the largest record it takes, in bytes; 0 is no limit.
    Client { channel: ChannelName, max_message: u32 },
    /// A server of a ClientServer channel.
    Server { channel: ChannelName, max_message: u32 },
}

/// What stays the same for one lifecycle generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) service: Service,
    pub(crate) rid: Rid,
    pub(crate) generation: Generation,
    pub(crate) security: SecurityId,
    /// Where the node takes application lanes, if it listens.
    pub(crate) endpoint: Option<Endpoint>,
}

/// Which record carries an admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Announce {
    /// The dialler's first record on a lane.
    Hello,
    /// The acceptor's answer.
    Admit,
    /// A later change.
    Update,
}

/// All that a node says of itself in hello, admit and update but lane and pair, which are the connection's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AdmissionBody {
    identity: Identity,
    revision: Revision,
    state: HostState,
    /// Strictly ascending by name.
    channels: Vec<(ChannelName, Weight)>,
    /// Strictly ascending by id.
    extensions: Vec<(u8, Box<[u8]>)>,
}

/// Why an admission cannot be made. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum AdmissionBodyError {
    /// A Server membership was given twice.
    #[error("channel {channel} is given twice")]
    DuplicateChannel {
        /// Which channel.
        channel: ChannelName,
    },
    /// An extension was given twice.
    #[error("extension {id} is given twice")]
    DuplicateExtension {
        /// Which extension.
        id: u8,
    },
    /// More Server memberships than the wire can count.
    #[error("{channels} channels are too many; at most 65535 fit an admission")]
    TooManyChannels {
        /// How many were given.
        channels: usize,
    },
    /// The record would be longer than a head may be.
    #[error("the admission would take {bytes} bytes; at most {HEAD_BYTES_MAX} fit a head")]
    TooLong {
        /// How long its head would be.
        bytes: usize,
    },
}

impl AdmissionBody {
    /// Takes memberships and extensions in any order, each name and id once, and no more than fit one head of 1 MiB.
    pub(crate) fn new(
        identity: Identity,
        state: HostState,
        mut channels: Vec<(ChannelName, Weight)>,
        mut extensions: Vec<(u8, Box<[u8]>)>,
    ) -> Result<Self, AdmissionBodyError> {
        if channels.len() > u16::MAX.into() {
            return Err(AdmissionBodyError::TooManyChannels { channels: channels.len() });
        }
        channels.sort_unstable();
        if let Some(twice) = channels.windows(2).find(|two| two[0].0 == two[1].0) {
            return Err(AdmissionBodyError::DuplicateChannel { channel: twice[0].0.clone() });
        }
        extensions.sort_unstable_by_key(|&(id, _)| id);
        if let Some(twice) = extensions.windows(2).find(|two| two[0].0 == two[1].0) {
            return Err(AdmissionBodyError::DuplicateExtension { id: twice[0].0 });
        }
        let body = Self { identity, revision: Revision::FIRST, state, channels, extensions };
        match body.head_bytes() {
            0..=HEAD_BYTES_MAX => Ok(body),
            bytes => Err(AdmissionBodyError::TooLong { bytes }),
        }
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    pub(crate) fn state(&self) -> HostState {
        self.state
    }

    /// The Server memberships, ascending by name.
    pub(crate) fn channels(&self) -> &[(ChannelName, Weight)] {
        &self.channels
    }

    /// Whether a channel is among the Server memberships, whatever its weight.
    pub(crate) fn serves(&self, channel: Name<'_>) -> bool {
        self.channels.binary_search_by(|(name, _)| name.as_str().as_bytes().cmp(channel.as_bytes())).is_ok()
    }

    /// The node's role and nothing it serves make it one that other such nodes need no connection to (000 §3).
    pub(crate) fn is_bare_client(&self) -> bool {
        self.identity.service.role() == Role::Client && self.channels.is_empty()
    }

    /// Enters a state; the revision rises if it is another one. Says whether it did.
    pub(crate) fn set_state(&mut self, state: HostState) -> bool {
        let news = self.state != state;
        if news {
            self.state = state;
            self.revision = self.revision.next();
        }
        news
    }

    /// Gives a membership another weight; the revision rises if it is another one. Says whether it did, or `None` where
    /// there is no such membership.
    pub(crate) fn set_weight(&mut self, channel: &ChannelName, weight: Weight) -> Option<bool> {
        let at = self.channels.binary_search_by(|(name, _)| name.cmp(channel)).ok()?;
        let news = self.channels[at].1 != weight;
        if news {
            self.channels[at].1 = weight;
            self.revision = self.revision.next();
        }
        Some(news)
    }

    /// Appends the head of a hello, admit or update for a lane of the connection that `pair` names. ClientServer has one
    /// lane, and its admissions name that one whatever `lane` is.
    pub(crate) fn emit(&self, announce: Announce, lane: Lane, pair: Pair, out: &mut Vec<u8>) {
        let Identity { service, rid, generation, security, endpoint } = &self.identity;
        let lane = if service.topology() == Topology::RouteMesh { lane } else { Lane::Application };
        out.reserve(self.head_bytes());
        let start = out.len();

        put_head(announce.command(), out);
        let state = self.state.number();
        out.extend_from_slice(&[service.topology().number(), lane.number(), service.role().number(), state]);
        put_bytes8(out, service.name().as_bytes());
        put_bytes8(out, rid.as_bytes());
        for number in [generation.get(), self.revision.get(), pair.get()] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        put_bytes8(out, security.as_str().as_bytes());
        put_text16(out, text(endpoint.as_ref()));
        put_text16(out, text(service.completion()));
        out.extend_from_slice(&service.max_message().to_be_bytes());

        out.extend_from_slice(&(self.channels.len() as u16).to_be_bytes());
        for (name, weight) in &self.channels {
            put_bytes8(out, name.as_str().as_bytes());
            out.extend_from_slice(&weight.get().to_be_bytes());
        }
        out.extend_from_slice(&(self.extension_bytes() as u32).to_be_bytes());
        for (id, bytes) in &self.extensions {
            out.push(*id);
            out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
            out.extend_from_slice(bytes);
        }
        debug_assert_eq!(out.len() - start, self.head_bytes());
    }

    /// The length of a head that carries this.
    fn head_bytes(&self) -> usize {
        // Four numbers of one byte, three lengths of one, three numbers of eight, two lengths of two, the record limit,
        // the count of channels, the total of the extensions.
        const FIXED: usize = BODY_AT + 4 + 3 + 3 * 8 + 2 * 2 + 4 + 2 + 4;
        let Identity { service, rid, security, endpoint, .. } = &self.identity;
        FIXED
            + service.name().as_bytes().len()
            + rid.as_bytes().len()
            + security.as_str().len()
            + text(endpoint.as_ref()).len()
            + text(service.completion()).len()
            + self.channels.iter().map(|(name, _)| 1 + name.as_str().len() + 2).sum::<usize>()
            + self.extension_bytes()
    }

    fn extension_bytes(&self) -> usize {
        self.extensions.iter().map(|(_, bytes)| 1 + 4 + bytes.len()).sum()
    }
}

impl Announce {
    const fn command(self) -> Command {
        match self {
            Self::Hello => Command::Hello,
            Self::Admit => Command::Admit,
            Self::Update => Command::Update,
        }
    }
}

impl Service {
    pub(crate) const fn topology(&self) -> Topology {
        match self {
            Self::RouteMesh { .. } => Topology::RouteMesh,
            Self::Client { .. } | Self::Server { .. } => Topology::ClientServer,
        }
    }

    pub(crate) const fn role(&self) -> Role {
        match self {
            Self::RouteMesh { role, .. } => *role,
            Self::Client { .. } => Role::Client,
            Self::Server { .. } => Role::Server,
        }
    }

    pub(crate) fn name(&self) -> Name<'_> {
        match self {
            Self::RouteMesh { mesh, .. } => mesh.into(),
            Self::Client { channel, .. } | Self::Server { channel, .. } => channel.into(),
        }
    }

    const fn completion(&self) -> Option<&Endpoint> {
        match self {
            Self::RouteMesh { completion, .. } => completion.as_ref(),
            Self::Client { .. } | Self::Server { .. } => None,
        }
    }

    const fn max_message(&self) -> u32 {
        match self {
            Self::RouteMesh { .. } => 0,
            Self::Client { max_message, .. } | Self::Server { max_message, .. } => *max_message,
        }
    }
}

fn text(endpoint: Option<&Endpoint>) -> &str {
    endpoint.map_or("", Endpoint::as_str)
}
