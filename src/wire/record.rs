//! The service record: its head, what each command carries, and who may send it where.

use std::ops::RangeInclusive;

use super::admission::Admission;
use super::bytes::{DecodeError, Fault, Reader, put_bytes8};
use super::outcome::Outcome;
use super::refusal::RejectReason;
use super::values::{Command, Correlation, HostState, Lane, Name, ProbeId, Sender, Topology};

/// The most payload parts of an application record.
pub(crate) const PARTS_MAX: usize = 255;

const MAGIC: [u8; 2] = [0x5A, 0x4D];
const MAJOR: u8 = 1;
const FLAGS: u8 = 0;
/// Where the body begins.
pub(super) const BODY_AT: usize = 5;

/// The head of a service record, understood. The payload parts behind it are the application's and pass untouched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// A dialler says who it is.
    Hello(Admission<'a>),
    /// The acceptor says who it is and takes the dialler in.
    Admit(Admission<'a>),
    /// This connection is not wanted. Never answered.
    Reject(RejectReason),
    /// A node's state, weights or extensions changed.
    Update(Admission<'a>),
    /// Are you there?
    LivenessProbe(ProbeId),
    /// I am, and I heard this probe.
    LivenessAck(ProbeId),
    /// A message to the node.
    NodeSend,
    /// A request to the node.
    NodeRequest { correlation: Correlation },
    /// A message to a channel.
    ChannelSend { channel: Name<'a> },
    /// A request to a channel.
    ChannelRequest { correlation: Correlation, channel: Name<'a> },
    /// What became of a request.
    Reply { correlation: Correlation, outcome: Outcome },
}

/// Whether WIRE.md's table gives a record to this sender on this lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// It does.
    Yes,
    /// Only while the connection's completion lane does not stand yet: an orderly close during the opening.
    BeforeCompletion,
    /// It does not: a protocol error.
    No,
}

impl<'a> Record<'a> {
    /// Reads the head of a record that came with `parts` payload parts behind it. Borrows, and allocates nothing.
    #[inline]
    pub(crate) fn parse(head: &'a [u8], parts: usize) -> Result<Self, DecodeError> {
        let &[0x5A, 0x4D, MAJOR, command, FLAGS, ..] = head else {
            return Err(head_fault(head));
        };
        let Some(command) = Command::from_number(command) else {
            return Err(Fault::Command { command }.at(3));
        };
        let mut body = Reader::new(head, BODY_AT);
        let record = match command {
            Command::Hello => return Self::parse_admission(Self::Hello, body, parts),
            Command::Admit => return Self::parse_admission(Self::Admit, body, parts),
            Command::Update => return Self::parse_admission(Self::Update, body, parts),
            Command::Reject => Self::Reject(RejectReason::from_number(body.u32("reason")?)),
            Command::LivenessProbe => Self::LivenessProbe(probe_id(&mut body)?),
            Command::LivenessAck => Self::LivenessAck(probe_id(&mut body)?),
            Command::NodeSend => Self::NodeSend,
            Command::NodeRequest => Self::NodeRequest { correlation: correlation(&mut body)? },
            Command::ChannelSend => Self::ChannelSend { channel: channel(&mut body)? },
            Command::ChannelRequest => {
                Self::ChannelRequest { correlation: correlation(&mut body)?, channel: channel(&mut body)? }
            }
            Command::Reply => Self::Reply {
                correlation: correlation(&mut body)?,
                outcome: body.checked("outcome", Reader::u8, Outcome::from_number)?,
            },
        };
        record.ending(body, parts)
    }

    /// The channel that the head of a message names; none if it is a message to the node. Only for a head that was
    /// understood before: nothing is checked.
    #[inline]
    pub(crate) fn channel_of(head: &[u8]) -> Option<Name<'_>> {
        head.get(BODY_AT + 1..).map(Name::understood)
    }

    /// Out of line, so that an application record pays nothing for the size of an admission.
    #[inline(never)]
    fn parse_admission(
        record: fn(Admission<'a>) -> Self,
        mut body: Reader<'a>,
        parts: usize,
    ) -> Result<Self, DecodeError> {
        record(Admission::read(&mut body)?).ending(body, parts)
    }

    /// This record, if its body ends here and it takes so many payload parts.
    #[inline]
    fn ending(self, body: Reader<'_>, parts: usize) -> Result<Self, DecodeError> {
        body.end()?;
        if self.parts().contains(&parts) { Ok(self) } else { Err(Fault::Parts { parts }.at(3)) }
    }

    /// Appends the head to `out`, which keeps what it holds: the caller clears it where it is to be reused.
    #[inline]
    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        put_head(self.command(), out);
        match *self {
            Self::Hello(admission) | Self::Admit(admission) | Self::Update(admission) => {
                out.extend_from_slice(admission.body());
            }
            Self::Reject(reason) => out.extend_from_slice(&reason.number().to_be_bytes()),
            Self::LivenessProbe(id) | Self::LivenessAck(id) => out.extend_from_slice(&id.get().to_be_bytes()),
            Self::NodeSend => {}
            Self::NodeRequest { correlation } => out.extend_from_slice(&correlation.get().to_be_bytes()),
            Self::ChannelSend { channel } => put_bytes8(out, channel.as_bytes()),
            Self::ChannelRequest { correlation, channel } => {
                out.extend_from_slice(&correlation.get().to_be_bytes());
                put_bytes8(out, channel.as_bytes());
            }
            Self::Reply { correlation, outcome } => {
                out.extend_from_slice(&correlation.get().to_be_bytes());
                out.push(outcome.number());
            }
        }
    }

    /// What the record says, without what it says it with.
    #[inline]
    pub(crate) const fn command(&self) -> Command {
        match self {
            Self::Hello(_) => Command::Hello,
            Self::Admit(_) => Command::Admit,
            Self::Reject(_) => Command::Reject,
            Self::Update(_) => Command::Update,
            Self::LivenessProbe(_) => Command::LivenessProbe,
            Self::LivenessAck(_) => Command::LivenessAck,
            Self::NodeSend => Command::NodeSend,
            Self::NodeRequest { .. } => Command::NodeRequest,
            Self::ChannelSend { .. } => Command::ChannelSend,
            Self::ChannelRequest { .. } => Command::ChannelRequest,
            Self::Reply { .. } => Command::Reply,
        }
    }

    /// Whether this is an application record: one for the host, not for the engine.
    pub(crate) const fn carries_payload(&self) -> bool {
        self.command().number() >= Command::NodeSend.number()
    }

    /// How many payload parts go with this head.
    #[inline]
    pub(crate) const fn parts(&self) -> RangeInclusive<usize> {
        match self {
            Self::NodeSend
            | Self::NodeRequest { .. }
            | Self::ChannelSend { .. }
            | Self::ChannelRequest { .. } => 1..=PARTS_MAX,
            Self::Reply { outcome: Outcome::Reply, .. } => 0..=PARTS_MAX,
            _ => 0..=0,
        }
    }

    /// Whether `sender` may send this on this lane. What phase the connection is in is not looked at.
    #[inline]
    pub(crate) fn allowed(&self, topology: Topology, lane: Lane, sender: Sender) -> Allowed {
        let command = self.command();
        let allowed = match (topology, lane) {
            (Topology::RouteMesh, Lane::Application) => match command {
                Command::LivenessProbe
                | Command::LivenessAck
                | Command::NodeSend
                | Command::NodeRequest
                | Command::ChannelSend
                | Command::ChannelRequest => true,
                Command::Update => return self.allowed_while_opening(),
                _ => opens_lane(command, sender),
            },
            (Topology::RouteMesh, Lane::Completion) => match command {
                Command::Update | Command::Reply => true,
                _ => opens_lane(command, sender),
            },
            (Topology::ClientServer, Lane::Application) => match command {
                Command::LivenessProbe | Command::LivenessAck | Command::Update => true,
                Command::ChannelSend | Command::ChannelRequest => sender == Sender::Dialler,
                Command::Reply => sender == Sender::Acceptor,
                _ => opens_lane(command, sender),
            },
            (Topology::ClientServer, Lane::Completion) => false,
        };
        if allowed { Allowed::Yes } else { Allowed::No }
    }

    /// An update on a RouteMesh application lane: an orderly close that cannot wait for the lane updates belong to.
    fn allowed_while_opening(&self) -> Allowed {
        match self {
            Self::Update(admission) if admission.state() == HostState::Stopped => Allowed::BeforeCompletion,
            _ => Allowed::No,
        }
    }
}

/// Whether the command opens or refuses a lane, on either lane of either topology, and `sender` may send it.
const fn opens_lane(command: Command, sender: Sender) -> bool {
    match command {
        Command::Hello => matches!(sender, Sender::Dialler),
        Command::Admit => matches!(sender, Sender::Acceptor),
        Command::Reject => true,
        _ => false,
    }
}

/// Appends the five bytes every head begins with.
#[inline]
pub(super) fn put_head(command: Command, out: &mut Vec<u8>) {
    out.extend_from_slice(&[MAGIC[0], MAGIC[1], MAJOR, command.number(), FLAGS]);
}

#[inline]
fn probe_id(body: &mut Reader<'_>) -> Result<ProbeId, DecodeError> {
    body.checked("id", Reader::u64, ProbeId::new)
}

#[inline]
fn correlation(body: &mut Reader<'_>) -> Result<Correlation, DecodeError> {
    body.checked("correlation", Reader::u64, Correlation::new)
}

#[inline]
fn channel<'a>(body: &mut Reader<'a>) -> Result<Name<'a>, DecodeError> {
    Name::read(body, "channel")
}

/// What is wrong with the first five bytes.
#[cold]
fn head_fault(head: &[u8]) -> DecodeError {
    match *head {
        [0x5A, 0x4D, MAJOR, _, flags, ..] => Fault::Flags { flags }.at(4),
        [] | [0x5A] | [0x5A, 0x4D] | [0x5A, 0x4D, MAJOR, ..] => Fault::Truncated { what: "head" }.at(0),
        [0x5A, 0x4D, major, ..] => Fault::Major { major }.at(2),
        _ => Fault::Magic.at(0),
    }
}
