//! ClientServer: whom a server lets in, and whom a client takes for its server (000 §3, WIRE.md).

use super::roster::Destination;
use super::selection::{Fitness, Selection};
use super::table::IntentPhase;
use super::{Core, life, succession};
use crate::link::connection::{End, Failure, Side};
use crate::name::ChannelName;
use crate::wire::{Admission, HostState, Lane, RejectReason, Sender, Topology};

/// Whether a hello may come in, and behind which connection of the same peer it has to wait.
pub(super) fn judge_hello(
    core: &Core,
    index: u32,
    hello: &Admission<'_>,
) -> Result<Option<u32>, RejectReason> {
    let Some(connection) = core.table.get(index) else { return Err(RejectReason::NotAdmitted) };
    let channel = core.channels.get(connection.channel);
    if !hello.fits(Topology::ClientServer, Lane::Application, Sender::Dialler) {
        return Err(RejectReason::TopologyMismatch);
    }
    if hello.name().as_bytes() != channel.name.as_str().as_bytes() {
        return Err(RejectReason::ChannelMismatch);
    }
    if channel.is_own(hello.rid()) {
        return Err(RejectReason::IdentityMismatch);
    }
    if core.host_state != HostState::Serving || hello.state() == HostState::Stopped {
        return Err(RejectReason::RuntimeNotServing);
    }
    succession::behind_whom(core, connection.channel, hello)
}

/// The server answered our hello.
pub(super) fn admitted(core: &mut Core, index: u32, admit: &Admission<'_>) {
    match judge_admit(core, index, admit) {
        Ok(()) => {
            life::identify(core, index, admit);
            weigh(core, index, admit);
            life::make_ready(core, index);
        }
        Err(reason) => life::end(core, index, End::Failed(Failure::Unexpected(reason))),
    }
}

/// Whether the server that admitted us is the one we wanted.
fn judge_admit(core: &Core, index: u32, admit: &Admission<'_>) -> Result<(), RejectReason> {
    let Some(connection) = core.table.get(index) else { return Err(RejectReason::NotAdmitted) };
    let Side::Dialled { intent } = connection.side else { return Err(RejectReason::TopologyMismatch) };
    let channel = core.channels.get(connection.channel);
    if !admit.fits(Topology::ClientServer, Lane::Application, Sender::Acceptor) {
        return Err(RejectReason::TopologyMismatch);
    }
    if admit.name().as_bytes() != channel.name.as_str().as_bytes() {
        return Err(RejectReason::ChannelMismatch);
    }
    if channel.is_own(admit.rid()) {
        return Err(RejectReason::IdentityMismatch);
    }
    if admit.state() == HostState::Stopped {
        return Err(RejectReason::RuntimeNotServing);
    }
    core.table.intents[intent as usize].expects.judge(admit)
}

/// The server that the next call on a channel goes to; none if no client of it is registered here.
pub(crate) fn route(core: &mut Core, channel: &ChannelName) -> Option<Destination> {
    let index = core.channels.client(channel)?;
    let (intents, table) = (&core.table.intents, &core.table);
    let connection = |member: u32| match intents[member as usize].phase {
        IntentPhase::Connected { connection } => Some(connection),
        _ => None,
    };
    let members = core.channels.members_mut(index)?;
    let picked = members.pick(|member| match intents[member as usize].phase {
        IntentPhase::NotRequired | IntentPhase::Retired | IntentPhase::Off => Fitness::NotServing,
        IntentPhase::Waiting { .. } | IntentPhase::Covered { .. } => Fitness::NotReady,
        IntentPhase::Connected { connection } => Fitness::of(table.get(connection)),
    });
    Some(match picked {
        Selection::Member(member) => {
            connection(member).map_or(Destination::Unavailable, Destination::Connection)
        }
        Selection::Unavailable => Destination::Unavailable,
        Selection::NotFound => Destination::NotFound,
    })
}

/// Takes over the weight that a server gives itself.
pub(super) fn weigh(core: &mut Core, index: u32, admission: &Admission<'_>) {
    let Some(connection) = core.table.get(index) else { return };
    let Side::Dialled { intent } = connection.side else { return };
    let channel = connection.channel;
    let weight = admission.channels().find(|(name, _)| *name == admission.name()).map(|(_, weight)| weight);
    if let (Some(weight), Some(members)) = (weight, core.channels.members_mut(channel)) {
        members.set(intent, weight);
    }
}
