//! Why a node will not have a connection.

use std::fmt;

use super::bytes::{DecodeError, Fault};
use super::values::Command;

/// Why a hello was refused or a connection is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RejectReason {
    /// Another major version.
    ProtocolVersionUnsupported,
    /// A topology, lane or role that does not fit the listener, or another mesh.
    TopologyMismatch,
    /// Another RID than expected, or the listener's own.
    IdentityMismatch,
    /// Another security identity than expected.
    SecurityIdentityMismatch,
    /// Another ClientServer channel.
    ChannelMismatch,
    /// Another lifecycle generation than the descriptor's.
    LifecycleGenerationStale,
    /// A revision below one already seen.
    DescriptorRevisionStale,
    /// Something is asked of the node that it cannot do.
    CapabilityMismatch,
    /// The host is not serving.
    RuntimeNotServing,
    /// A connection of this peer exists and stays.
    DuplicateConnection,
    /// The admission breaks the layout or a bound.
    InvalidDescriptor,
    /// A table is full.
    ResourceLimit,
    /// Both are Object Clients without a Server membership: no connection is needed (000 §3).
    NotRequired,
    /// The connection was never admitted, or the acceptor has ended it.
    NotAdmitted,
    /// A number this version has no name for: a refusal that may be retried.
    Unknown(UnknownReason),
}

/// A reject reason's number that has no name here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UnknownReason(u32);

/// The reasons with their names, in the order of their numbers, which begin at 1.
const NAMED: [(RejectReason, &str); 14] = [
    (RejectReason::ProtocolVersionUnsupported, "protocolVersionUnsupported"),
    (RejectReason::TopologyMismatch, "topologyMismatch"),
    (RejectReason::IdentityMismatch, "identityMismatch"),
    (RejectReason::SecurityIdentityMismatch, "securityIdentityMismatch"),
    (RejectReason::ChannelMismatch, "channelMismatch"),
    (RejectReason::LifecycleGenerationStale, "lifecycleGenerationStale"),
    (RejectReason::DescriptorRevisionStale, "descriptorRevisionStale"),
    (RejectReason::CapabilityMismatch, "capabilityMismatch"),
    (RejectReason::RuntimeNotServing, "runtimeNotServing"),
    (RejectReason::DuplicateConnection, "duplicateConnection"),
    (RejectReason::InvalidDescriptor, "invalidDescriptor"),
    (RejectReason::ResourceLimit, "resourceLimit"),
    (RejectReason::NotRequired, "notRequired"),
    (RejectReason::NotAdmitted, "notAdmitted"),
];

impl RejectReason {
    /// The reason of this number.
    pub(crate) fn from_number(number: u32) -> Self {
        let index = (number as usize).wrapping_sub(1);
        NAMED.get(index).map_or(Self::Unknown(UnknownReason(number)), |&(reason, _)| reason)
    }

    /// The number on the wire.
    pub fn number(self) -> u32 {
        match self {
            Self::Unknown(UnknownReason(number)) => number,
            named => 1 + NAMED.iter().take_while(|(reason, _)| *reason != named).count() as u32,
        }
    }

    /// The reason's name as WIRE.md spells it.
    pub fn name(self) -> &'static str {
        NAMED.iter().find(|(reason, _)| *reason == self).map_or("unknown", |&(_, name)| name)
    }

    /// Whether dialling again could ever help. Only `NotRequired` ends an intent (000 §3).
    pub fn may_be_retried(self) -> bool {
        self != Self::NotRequired
    }

    /// What an acceptor answers to a head that does not parse, or `None` for a reject, which is never answered.
    ///
    /// Another major version is told so, whatever the record was. A broken hello is an invalid descriptor. After any
    /// other protocol error the connection counts as not admitted.
    pub(crate) fn for_malformed(head: &[u8], error: &DecodeError) -> Option<Self> {
        let command = head.get(3).copied().and_then(Command::from_number);
        match (command, error.fault) {
            (_, Fault::Magic) => Some(Self::NotAdmitted),
            (Some(Command::Reject), _) => None,
            (_, Fault::Major { .. }) => Some(Self::ProtocolVersionUnsupported),
            (Some(Command::Hello), _) => Some(Self::InvalidDescriptor),
            _ => Some(Self::NotAdmitted),
        }
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(UnknownReason(number)) => write!(f, "unknown ({number})"),
            named => f.write_str(named.name()),
        }
    }
}
