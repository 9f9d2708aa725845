//! RouteMesh: who is let in on each of a pair's two lanes, which of two mutual dials stays, and when the pair stands
//! (000 §3, §5, WIRE.md "Opening"). The larger RID decides between two dials: it gives up its own for the other's hello
//! until its own pair is complete, and the smaller waits for what it does.

use super::roster::{Destination, Serves};
use super::selection::Fitness;
use super::table::{Intent, IntentPhase};
use super::{Channel, Core, intents, life, succession};
use crate::link::connection::{Connection, End, Failure, LostReason, Phase, Side};
use crate::name::{ChannelName, MeshName, Rid};
use crate::wire::{
    Admission, AdmissionBody, AdmissionChange, HostState, Lane, RejectReason, Sender, Topology, UpdateFault,
};

/// Whether the hello of an application lane may come in, and behind which connection of the same peer it has to wait.
pub(super) fn judge_hello(
    core: &Core,
    index: u32,
    hello: &Admission<'_>,
) -> Result<Option<u32>, RejectReason> {
    let Some(connection) = core.table.get(index) else { return Err(RejectReason::NotAdmitted) };
    let channel = core.channels.get(connection.channel);
    judge_node(core, connection.channel, hello, Lane::Application, Sender::Dialler)?;
    if core.host_state != HostState::Serving {
        return Err(RejectReason::RuntimeNotServing);
    }
    if needs_no_connection(channel, hello) {
        return Err(RejectReason::NotRequired);
    }
    succession::behind_whom(core, connection.channel, hello)
}

/// Whether an admission is of another node of this mesh, and the one that the host's descriptors name. A complete
/// descriptor holds against whoever comes and however it was dialled (000 §5).
fn judge_node(
    core: &Core,
    channel: u32,
    admission: &Admission<'_>,
    lane: Lane,
    sender: Sender,
) -> Result<(), RejectReason> {
    let own = core.channels.get(channel);
    let is_of_this_mesh = admission.name().as_bytes() == own.name.as_str().as_bytes();
    if !is_of_this_mesh || !admission.fits(Topology::RouteMesh, lane, sender) {
        return Err(RejectReason::TopologyMismatch);
    }
    if own.is_own(admission.rid()) {
        return Err(RejectReason::IdentityMismatch);
    }
    if admission.state() == HostState::Stopped {
        return Err(RejectReason::RuntimeNotServing);
    }
    judge_described(core, channel, admission)
}

/// Whether an admission is what the descriptor of its node says, if there is one.
fn judge_described(core: &Core, channel: u32, admission: &Admission<'_>) -> Result<(), RejectReason> {
    let roster = core.channels.node(channel).map(|mesh| &mesh.roster);
    let Some(descriptor) = roster.and_then(|roster| roster.descriptor(admission.rid())) else {
        return Ok(());
    };
    if descriptor.security.as_str() != admission.security() {
        return Err(RejectReason::SecurityIdentityMismatch);
    }
    if descriptor.generation != admission.generation() {
        return Err(RejectReason::LifecycleGenerationStale);
    }
    Ok(())
}

/// Two Object Clients that serve nothing have nothing to say to each other (000 §1).
fn needs_no_connection(channel: &Channel, peer: &Admission<'_>) -> bool {
    peer.is_bare_client() && channel.body.as_ref().is_some_and(AdmissionBody::is_bare_client)
}

/// A hello on the completion lane: it joins the application lane that the same node opened with the same pair.
pub(super) fn second_hello(core: &mut Core, index: u32, hello: &Admission<'_>) {
    match judge_second(core, index, hello) {
        Ok(application) => {
            if let Some(connection) = core.table.get_mut(index) {
                connection.pair = hello.pair();
            }
            core.table.join(application, index);
            remember_newer(core, application, hello);
            core.owe_greeting(index);
        }
        Err(reason) => life::turn_down(core, index, reason),
    }
}

fn judge_second(core: &Core, index: u32, hello: &Admission<'_>) -> Result<u32, RejectReason> {
    let Some(connection) = core.table.get(index) else { return Err(RejectReason::NotAdmitted) };
    judge_node(core, connection.channel, hello, Lane::Completion, Sender::Dialler)?;
    let rid = Rid::new(hello.rid()).map_err(|_| RejectReason::InvalidDescriptor)?;
    let application = core.table.named(connection.channel, &rid).ok_or(RejectReason::NotAdmitted)?;
    let Some(first) = core.table.get(application) else { return Err(RejectReason::NotAdmitted) };
    if first.route().is_none() || first.pair != hello.pair() {
        return Err(RejectReason::NotAdmitted);
    }
    if first.partner.is_some() || first.phase != Phase::Joining {
        return Err(RejectReason::DuplicateConnection);
    }
    completes(first, hello)?;
    Ok(application)
}

/// Whether the admission of a completion lane says the same as that of its application lane, or has only moved on since.
fn completes(application: &Connection, admission: &Admission<'_>) -> Result<(), RejectReason> {
    let first = Admission::parse(&application.admission).map_err(|_| RejectReason::NotAdmitted)?;
    match admission.updates(&first) {
        Ok(_) => Ok(()),
        Err(UpdateFault::Identity { what: "security" }) => Err(RejectReason::SecurityIdentityMismatch),
        Err(UpdateFault::Identity { what: "generation" }) => Err(RejectReason::LifecycleGenerationStale),
        Err(UpdateFault::Identity { what: "rid" }) => Err(RejectReason::IdentityMismatch),
        Err(UpdateFault::Older { .. }) => Err(RejectReason::DescriptorRevisionStale),
        Err(UpdateFault::Identity { .. } | UpdateFault::Conflicting { .. }) => {
            Err(RejectReason::InvalidDescriptor)
        }
    }
}

fn remember_newer(core: &mut Core, application: u32, admission: &Admission<'_>) {
    let Some(connection) = core.table.get_mut(application) else { return };
    let change = Admission::parse(&connection.admission).map(|first| admission.updates(&first));
    if let Ok(Ok(AdmissionChange::Newer)) = change {
        life::remember(connection, admission);
    }
}

/// The application lane that we dialled was admitted: the completion lane comes next, unless another connection to the
/// same peer stays.
pub(super) fn admitted(core: &mut Core, index: u32, admit: &Admission<'_>) {
    if let Err(reason) = judge_admit(core, index, admit) {
        return life::end(core, index, End::Failed(Failure::Unexpected(reason)));
    }
    life::identify(core, index, admit);
    let Some((channel, rid)) = succession::identity(core, index) else { return };
    if let Some(other) = core.table.named(channel, &rid) {
        let is_smaller = !core.channels.get(channel).is_above(rid.as_bytes());
        match core.table.get(other).map(|other| other.phase) {
            // The larger has decided for this one.
            Some(Phase::Joining | Phase::Admitted) if is_smaller => replace(core, other),
            Some(Phase::Joining | Phase::Admitted | Phase::Ready) => {
                succession::ask_again(core, other);
                return intents::cover(core, index, other);
            }
            _ => {}
        }
    }
    let Some(connection) = core.table.get_mut(index) else { return };
    connection.phase = Phase::Joining;
    if let Some(intent) = connection.intent() {
        core.agenda.retry(core.watch.moment().now, intent);
    }
}

/// Another connection of the same peer takes this one's place, and its peer is told.
fn replace(core: &mut Core, index: u32) {
    life::reject(core, index, RejectReason::DuplicateConnection);
    life::give_up(core, index, LostReason::Replaced);
}

/// Whether the node that admitted us is the one we wanted.
fn judge_admit(core: &Core, index: u32, admit: &Admission<'_>) -> Result<(), RejectReason> {
    let Some(connection) = core.table.get(index) else { return Err(RejectReason::NotAdmitted) };
    let Side::Dialled { intent } = connection.side else { return Err(RejectReason::TopologyMismatch) };
    let channel = connection.channel;
    judge_node(core, channel, admit, Lane::Application, Sender::Acceptor)?;
    if needs_no_connection(core.channels.get(channel), admit) {
        return Err(RejectReason::NotRequired);
    }
    let wish = &core.table.intents[intent as usize];
    wish.expects.judge(admit)?;
    let described_there = core.channels.node(channel).and_then(|mesh| {
        mesh.roster.descriptors().find(|each| each.endpoint.as_ref() == Some(&wish.endpoint))
    });
    if described_there.is_some_and(|descriptor| descriptor.rid.as_bytes() != admit.rid()) {
        return Err(RejectReason::IdentityMismatch);
    }
    let rid = Rid::new(admit.rid()).map_err(|_| RejectReason::InvalidDescriptor)?;
    let another = core.table.named(channel, &rid).and_then(|another| core.table.get(another));
    let before = another.and_then(|another| Admission::parse(&another.admission).ok());
    if before.is_some_and(|before| before.security() != admit.security()) {
        return Err(RejectReason::SecurityIdentityMismatch);
    }
    // The pair is ours to draw, and without a completion endpoint there can be none.
    if admit.pair() != connection.pair || admit.completion().is_none() {
        return Err(RejectReason::InvalidDescriptor);
    }
    Ok(())
}

/// The completion lane that we dialled was admitted: the pair is ready.
pub(super) fn second_admit(core: &mut Core, index: u32, admit: &Admission<'_>) {
    let application = core.table.head_of(index);
    let Some(first) = core.table.get(application) else { return };
    let judged = judge_node(core, first.channel, admit, Lane::Completion, Sender::Acceptor)
        .and_then(|()| completes(first, admit));
    if let Err(reason) = judged {
        return life::end(core, index, End::Failed(Failure::Unexpected(reason)));
    }
    let (channel, rid) = (first.channel, first.peer.as_ref().map(|peer| peer.rid.clone()));
    remember_newer(core, application, admit);
    if let Some(connection) = core.table.get_mut(index) {
        connection.phase = Phase::Joined;
    }
    // A peer that goes on with both of two dials is held to this one.
    if let Some(other) = rid.and_then(|rid| core.table.named(channel, &rid)) {
        let phase = core.table.get(other).map(|other| other.phase);
        if let Some(Phase::Joining | Phase::Admitted | Phase::Ready) = phase {
            replace(core, other);
        }
    }
    life::make_ready(core, application);
    became_ready(core, application);
    core.pay_waiting_update(index);
}

/// A pair is ready: calls may go to its peer, and other dials to the same peer are given up.
pub(super) fn became_ready(core: &mut Core, index: u32) {
    let Some((channel, rid)) = succession::identity(core, index) else { return };
    let Some(connection) = core.table.get(index) else { return };
    let intent = connection.intent();
    let serves = Admission::parse(&connection.admission).map(|admission| serves(&admission));
    if let (Some(mesh), Ok(serves)) = (core.channels.node_mut(channel), serves) {
        mesh.roster.arrived(&rid, index, intent, serves);
    }
    succession::give_up_dials(core, index);
}

/// A connection is let go: its peer is not reached by it any more, and who did without a dial for its sake dials again.
pub(super) fn departed(core: &mut Core, index: u32) {
    let Some((channel, rid)) = succession::identity(core, index) else { return };
    let is_covered = |wish: &Intent| wish.phase == (IntentPhase::Covered { connection: index });
    let covered = (0..).zip(&core.table.intents).find(|(_, wish)| is_covered(wish)).map(|(intent, _)| intent);
    if let Some(mesh) = core.channels.node_mut(channel) {
        mesh.roster.departed(&rid, index, covered);
    }
    intents::uncover(core, index);
}

/// The peer gives its memberships other weights.
pub(super) fn weigh(core: &mut Core, index: u32, admission: &Admission<'_>) {
    let Some((channel, rid)) = succession::identity(core, index) else { return };
    let is_ready = core.table.get(index).is_some_and(Connection::is_ready);
    if let (true, Some(mesh)) = (is_ready, core.channels.node_mut(channel)) {
        mesh.roster.reweighed(&rid, serves(admission));
    }
}

/// The node that the next call on a channel of a mesh goes to; none if this engine has no node of that mesh.
pub(crate) fn route_to_channel(
    core: &mut Core,
    mesh: &MeshName,
    channel: &ChannelName,
) -> Option<Destination> {
    let Core { channels, table, .. } = core;
    let index = channels.mesh(mesh)?;
    let roster = &mut channels.node_mut(index)?.roster;
    Some(roster.route_to_channel(channel, |connection| Fitness::of(table.get(connection))))
}

/// The way to one node of a mesh; none if this engine has no node of that mesh.
pub(crate) fn route_to_node(core: &Core, mesh: &MeshName, rid: &Rid) -> Option<Destination> {
    let roster = &core.channels.node(core.channels.mesh(mesh)?)?.roster;
    Some(roster.route_to_node(rid, |connection| core.table.get(connection).is_some_and(Connection::is_ready)))
}

/// What this node serves has other weights; it is a member of its own channels.
pub(crate) fn own_weights_changed(core: &mut Core, channel: u32) {
    let Some(body) = &core.channels.get(channel).body else { return };
    let (rid, serves) = (body.identity().rid.clone(), body.channels().to_vec());
    if let Some(mesh) = core.channels.node_mut(channel) {
        mesh.roster.reweighed(&rid, serves);
    }
}

/// What a node serves, as its admission says.
fn serves(admission: &Admission<'_>) -> Serves {
    admission
        .channels()
        .filter_map(|(name, weight)| Some((ChannelName::new(name.as_str()).ok()?, weight)))
        .collect()
}

/// When the descriptors of a mesh change: what is connected to somebody they do not name so is not verified any more.
pub(super) fn verify_all(core: &mut Core, channel: u32) {
    let fault = |connection: &Connection| {
        let admission = Admission::parse(&connection.admission).ok()?;
        judge_described(core, channel, &admission).err()
    };
    let unverified: Vec<(u32, RejectReason)> = core
        .table
        .iter()
        .filter(|(_, connection)| connection.channel == channel && !connection.has_ended())
        .filter(|(_, connection)| !matches!(connection.side, Side::Own))
        .filter_map(|(index, connection)| Some((index, fault(connection)?)))
        .collect();
    for (index, reason) in unverified {
        // A hello that waits is refused for what it is; a connection that was let in is at its end (WIRE.md).
        let is_held = core.table.get(index).is_some_and(|connection| connection.phase == Phase::Held);
        life::reject(core, index, if is_held { reason } else { RejectReason::NotAdmitted });
        life::end_as(core, index, LostReason::Unverified, Failure::Unexpected(reason));
    }
}
