//! ClientServer: what each record means on a connection in each phase, and who is let in (000 §3, WIRE.md).

use super::{Core, life, witness};
use crate::io::Inbound;
use crate::link::connection::{Connection, ConnectionId, End, Failure, LostReason, Phase, Side};
use crate::link::replies::ReplyToken;
use crate::link::requests::RequestId;
use crate::name::Rid;
use crate::wire::{
    Admission, AdmissionChange, Allowed, Correlation, ErrorKind, HostState, Lane, Outcome, Record,
    RejectReason, RevisionOrder, Sender, Topology,
};

/// What a record asks of the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing more.
    Done,
    /// Hand its parts to the host as a message.
    Message,
    /// Hand its parts to the host as a request.
    Request(ReplyToken),
    /// Hand its parts to the host as the answer to its request.
    Answer(RequestId, Outcome),
}

/// The record is not allowed in this phase, from this side, or with this content: a protocol error.
struct Violation;

type Taken = Result<Step, Violation>;

/// Takes in one record that came on a connection.
pub(crate) fn take(core: &mut Core, index: u32, inbound: &mut Inbound) -> Step {
    let now = core.watch.moment().now;
    let Some(connection) = core.table.get_mut(index) else { return Step::Done };
    connection.last_received = Some(now);
    connection.quiet_since = None;
    let phase = connection.phase;
    let bytes_max = core.channels.get(connection.channel).bytes_max as usize;
    if matches!(phase, Phase::New) {
        trace(core, index, inbound.descriptor());
    }
    let parsed = Record::parse(inbound.head(), inbound.parts().len());
    if let Phase::Fenced | Phase::Closing(_) = phase {
        core.counters.unadmitted += 1;
        if phase == Phase::Fenced && !matches!(parsed, Ok(Record::Reject(_))) {
            life::reject(core, index, RejectReason::NotAdmitted);
        }
        return Step::Done;
    }
    let record = match &parsed {
        Ok(record) => record,
        Err(error) => {
            log::debug!("a malformed record: {error}");
            return broken(core, index, RejectReason::for_malformed(inbound.head(), error));
        }
    };
    let is_oversize = inbound.is_truncated() || (bytes_max != 0 && inbound.bytes() > bytes_max);
    let taken = match phase {
        _ if is_oversize => Err(Violation),
        Phase::Ready | Phase::ReadingOut(_) => established(core, index, record),
        Phase::Admitted => admitted(core, index, record),
        Phase::New => newcomer(core, index, record),
        Phase::Greeting => greeting(core, index, record),
        // Nobody answers a hello that was not sent, and nobody waits in line with more than a hello.
        Phase::Dialling | Phase::Held | Phase::Fenced | Phase::Closing(_) => Err(Violation),
    };
    taken.unwrap_or_else(|Violation| {
        // A reject is never answered (WIRE.md).
        let is_reject = matches!(record, Record::Reject(_));
        broken(core, index, (!is_reject).then_some(RejectReason::NotAdmitted))
    })
}

/// A record on a connection in use, or on one whose last records are read out.
fn established(core: &mut Core, index: u32, record: &Record<'_>) -> Taken {
    let Some(connection) = core.table.get(index) else { return Ok(Step::Done) };
    if record.allowed(Topology::ClientServer, Lane::Application, sender(connection)) != Allowed::Yes {
        return Err(Violation);
    }
    let own = core.channels.get(connection.channel).name.as_str().as_bytes();
    match *record {
        Record::ChannelSend { channel } => {
            if channel.as_bytes() == own {
                return Ok(Step::Message);
            }
            core.counters.misdirected += 1;
        }
        Record::ChannelRequest { correlation, channel } => {
            if channel.as_bytes() != own {
                core.decline(index, correlation, ErrorKind::NotFound);
            } else if let Ok(token) = core.replies.expect(index, correlation.get()) {
                return Ok(Step::Request(token));
            } else {
                core.decline(index, correlation, ErrorKind::CapacityExceeded);
            }
        }
        Record::Reply { correlation, outcome } => match core.requests.complete(correlation.get(), index) {
            Some(request) => return Ok(Step::Answer(request, outcome)),
            None => core.counters.late_replies += 1,
        },
        Record::LivenessProbe(id) => core.owe_ack(index, id),
        Record::LivenessAck(id) => answered(core, index, id.get()),
        Record::Update(ref admission) => return updated(core, index, admission),
        Record::Reject(reason) => life::end(core, index, End::Lost(LostReason::Rejected(reason))),
        // A second greeting on a connection that stands.
        Record::Hello(_) | Record::Admit(_) | Record::NodeSend | Record::NodeRequest { .. } => {
            return Err(Violation);
        }
    }
    Ok(Step::Done)
}

/// The first record after our admit: the probe that makes the connection ready, or the end of it.
fn admitted(core: &mut Core, index: u32, record: &Record<'_>) -> Taken {
    match record {
        Record::LivenessProbe(_) => {
            life::make_ready(core, index);
            established(core, index, record)
        }
        Record::Update(admission) if admission.state() == HostState::Stopped => {
            updated(core, index, admission)
        }
        Record::Reject(_) => established(core, index, record),
        _ => Err(Violation),
    }
}

/// Takes down by which descriptor the end of somebody unknown will be noticed, whatever it has said.
fn trace(core: &mut Core, index: u32, number: Option<i32>) {
    let Some(connection) = core.table.get_mut(index) else { return };
    let Side::Accepted { descriptor, .. } = &mut connection.side else { return };
    *descriptor = number;
    // Whoever had this number before must be known to be gone.
    let lane = connection.lane;
    if let Some(entry) = core.table.lane(lane) {
        let lane = entry.id;
        core.io.drain_monitor(lane);
        // If this one has gone itself, the transport shall know it before it is answered.
        core.io.refresh(lane);
        witness::hear(core);
    }
}

/// The first record of somebody unknown.
fn newcomer(core: &mut Core, index: u32, record: &Record<'_>) -> Taken {
    let Record::Hello(hello) = record else {
        return Err(Violation);
    };
    match judge_hello(core, index, hello) {
        Ok(existing) => {
            life::identify(core, index, hello);
            match existing {
                None => core.owe_greeting(index),
                Some(existing) => hold(core, index, existing),
            }
        }
        Err(reason) => {
            life::refuse(core, index, reason);
            claim_descriptor(core, index);
        }
    }
    Ok(Step::Done)
}

/// Whether a hello may come in, and behind which connection of the same peer it has to wait.
fn judge_hello(core: &Core, index: u32, hello: &Admission<'_>) -> Result<Option<u32>, RejectReason> {
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
    if core.host_state != HostState::Serving {
        return Err(RejectReason::RuntimeNotServing);
    }
    let rid = Rid::new(hello.rid()).map_err(|_| RejectReason::InvalidDescriptor)?;
    let Some(existing) = core.table.named(connection.channel, &rid) else { return Ok(None) };
    let earlier = core.table.get(existing).map(|existing| Admission::parse(&existing.admission));
    if let Some(Ok(earlier)) = earlier
        .filter(|earlier| earlier.as_ref().is_ok_and(|earlier| earlier.generation() == hello.generation()))
    {
        match hello.revision_order(&earlier) {
            RevisionOrder::Older => return Err(RejectReason::DescriptorRevisionStale),
            RevisionOrder::Conflicting => return Err(RejectReason::InvalidDescriptor),
            RevisionOrder::Same | RevisionOrder::Newer => {}
        }
    }
    Ok(Some(existing))
}

/// Lets a hello wait for the end of the connection that speaks for the same peer, which is asked at once.
fn hold(core: &mut Core, index: u32, existing: u32) {
    let Some(newer) = core.table.get_mut(index) else { return };
    newer.phase = Phase::Held;
    let id = newer.id;
    if let Side::Accepted { descriptor: Some(number), .. } = newer.side {
        let lane = newer.lane;
        if core.table.listener(lane).is_some_and(|listener| listener.at_descriptor(number).is_none()) {
            core.table.bind_descriptor(index, Some(number));
        }
    }
    let Some(connection) = core.table.get_mut(existing) else { return };
    let overtaken = connection.successor.replace(id);
    let check = connection.check;
    refuse_held(core, overtaken);
    if let Some(id) = check.and_then(|key| core.liveness.prompt(key)) {
        core.prompt(existing, id);
    }
}

/// A held hello is not wanted: the peer's older connection lives, or a newer one came.
fn refuse_held(core: &mut Core, held: Option<ConnectionId>) {
    let Some(held) = held.and_then(|held| core.table.find(held)) else { return };
    if held.phase == Phase::Held {
        let index = held.id.index;
        life::refuse(core, index, RejectReason::DuplicateConnection);
    }
}

/// Ties a refused connection to its descriptor, so that its end is noticed.
fn claim_descriptor(core: &mut Core, index: u32) {
    let Some(connection) = core.table.get(index) else { return };
    let Side::Accepted { descriptor, .. } = connection.side else { return };
    if connection.severed {
        return;
    }
    if let Some(loser) = core.table.bind_descriptor(index, descriptor) {
        life::sever(core, loser);
    }
}

/// The answer to our hello.
fn greeting(core: &mut Core, index: u32, record: &Record<'_>) -> Taken {
    match *record {
        Record::Admit(ref admit) => match judge_admit(core, index, admit) {
            Ok(()) => {
                life::identify(core, index, admit);
                weigh(core, index, admit);
                life::make_ready(core, index);
            }
            Err(reason) => life::end(core, index, End::Failed(Failure::Unexpected(reason))),
        },
        Record::Reject(reason) => life::end(core, index, End::Failed(Failure::Refused(reason))),
        _ => return Err(Violation),
    }
    Ok(Step::Done)
}

/// Whether the server that admitted us is the one we wanted.
fn judge_admit(core: &Core, index: u32, admit: &Admission<'_>) -> Result<(), RejectReason> {
    let Some(connection) = core.table.get(index) else { return Err(RejectReason::NotAdmitted) };
    let Side::Dialled { intent } = connection.side else { return Err(RejectReason::TopologyMismatch) };
    let channel = core.channels.get(connection.channel);
    let expects = &core.table.intents[intent as usize].expects;
    if !admit.fits(Topology::ClientServer, Lane::Application, Sender::Acceptor) {
        return Err(RejectReason::TopologyMismatch);
    }
    if admit.name().as_bytes() != channel.name.as_str().as_bytes() {
        return Err(RejectReason::ChannelMismatch);
    }
    let rid = admit.rid();
    if channel.is_own(rid) || expects.rid.as_ref().is_some_and(|expected| expected.as_bytes() != rid) {
        return Err(RejectReason::IdentityMismatch);
    }
    if expects.generation.is_some_and(|expected| expected != admit.generation()) {
        return Err(RejectReason::LifecycleGenerationStale);
    }
    if expects.security.as_ref().is_some_and(|expected| expected.as_str() != admit.security()) {
        return Err(RejectReason::SecurityIdentityMismatch);
    }
    Ok(())
}

/// Evidence came, perhaps: the first ACK with the awaited id. It also settles who speaks for the peer.
fn answered(core: &mut Core, index: u32, id: u64) {
    let moment = core.watch.moment();
    let Some(connection) = core.table.get_mut(index) else { return };
    let Some(key) = connection.check else { return };
    if core.liveness.answer(key, id, &moment) {
        let held = connection.successor.take();
        refuse_held(core, held);
    }
}

/// The peer's state, weights or extensions changed.
fn updated(core: &mut Core, index: u32, admission: &Admission<'_>) -> Taken {
    let Some(connection) = core.table.get_mut(index) else { return Ok(Step::Done) };
    let change = Admission::parse(&connection.admission).map(|earlier| admission.updates(&earlier));
    match change {
        Ok(Ok(AdmissionChange::Repeated)) => {}
        Ok(Ok(AdmissionChange::Newer)) => {
            life::remember(connection, admission);
            if admission.state() == HostState::Stopped {
                life::end(core, index, End::Lost(LostReason::Orderly));
            } else {
                weigh(core, index, admission);
            }
        }
        Ok(Err(_)) | Err(_) => return Err(Violation),
    }
    Ok(Step::Done)
}

/// Takes over the weight that a server gives itself.
fn weigh(core: &mut Core, index: u32, admission: &Admission<'_>) {
    let Some(connection) = core.table.get(index) else { return };
    let Side::Dialled { intent } = connection.side else { return };
    let channel = connection.channel;
    let weight = admission.channels().find(|(name, _)| *name == admission.name()).map(|(_, weight)| weight);
    if let (Some(weight), Some(members)) = (weight, core.channels.members_mut(channel)) {
        members.set(intent, weight);
    }
}

/// The peer broke the protocol: an accepted connection is fenced, and told so unless what it sent is a reject; a dialled
/// one is closed.
fn broken(core: &mut Core, index: u32, told: Option<RejectReason>) -> Step {
    core.counters.protocol_errors += 1;
    if let Some(reason) = told {
        life::reject(core, index, reason);
    }
    life::end_as(core, index, LostReason::Protocol, Failure::Protocol);
    claim_descriptor(core, index);
    Step::Done
}

/// Which end the records that come on a connection are from.
fn sender(connection: &Connection) -> Sender {
    match connection.side {
        Side::Dialled { .. } => Sender::Acceptor,
        Side::Accepted { .. } => Sender::Dialler,
    }
}

impl Core {
    /// Answers a request that reaches no handler. Where no slot is free the caller's own time-out answers it.
    pub(super) fn decline(&mut self, index: u32, correlation: Correlation, kind: ErrorKind) {
        let reply = Record::Reply { correlation, outcome: Outcome::Failed(kind) };
        if let Err(error) = self.send_record(index, reply) {
            log::debug!("a request could not be declined: {error}");
        }
    }
}
