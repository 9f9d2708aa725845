//! Service records: what each means on a connection in each phase, as far as ClientServer and RouteMesh share it (000 §3,
//! WIRE.md). What only one of the two knows stands in its own room.

use super::{Core, client_server, life, mesh, succession, witness};
use crate::io::Received;
use crate::link::connection::{Connection, Failure, LostReason, Phase, Side};
use crate::link::replies::ReplyToken;
use crate::link::requests::RequestId;
use crate::wire::{
    Admission, AdmissionChange, Allowed, Correlation, ErrorKind, HostState, Lane, Name, Outcome, Record,
    RejectReason, Sender, Topology,
};

/// What a record asks of the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step<'a> {
    /// Nothing more.
    Done,
    /// Hand its parts to the host as a message, to this channel or to the node itself.
    Message(Option<Name<'a>>),
    /// Hand its parts to the host as a request likewise.
    Request(Option<Name<'a>>, ReplyToken),
    /// Hand its parts to the host as the answer to its request.
    Answer(RequestId, Outcome),
}

/// The record is not allowed in this phase, from this side, or with this content: a protocol error.
struct Violation;

type Taken<'a> = Result<Step<'a>, Violation>;

/// Takes in one record that came on a connection.
#[inline]
pub(crate) fn take<'a>(core: &mut Core, index: u32, received: &Received<'a>) -> Step<'a> {
    let now = core.watch.moment().now;
    let Some(connection) = core.table.get_mut(index) else { return Step::Done };
    connection.last_received = Some(now);
    connection.quiet_since = None;
    let bytes_max = core.channels.get(connection.channel).bytes_max as usize;
    // As long as a connection is ready, the same words mean the same and need not be read again.
    let is_usual = connection.is_ready() && connection.said_before(received.head);
    if is_usual && !received.parts.is_empty() && !received.exceeds(bytes_max) {
        return Step::Message(Record::channel_of(received.head));
    }
    understand(core, index, received, bytes_max)
}

/// Reads what a record says, and does what that asks for.
fn understand<'a>(core: &mut Core, index: u32, received: &Received<'a>, bytes_max: usize) -> Step<'a> {
    let Some(phase) = core.table.get(index).map(|connection| connection.phase) else { return Step::Done };
    let parsed = Record::parse(received.head, received.parts.len());
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
            broken(core, index, RejectReason::for_malformed(received.head, error));
            return Step::Done;
        }
    };
    let taken = match phase {
        _ if received.exceeds(bytes_max) => Err(Violation),
        Phase::Ready | Phase::ReadingOut(_) | Phase::Joined => established(core, index, record),
        Phase::Admitted | Phase::Joining => opening(core, index, record),
        Phase::New => newcomer(core, index, record),
        Phase::Greeting => greeting(core, index, record),
        // Nobody answers a hello that was not sent, and nobody waits in line with more than a hello.
        Phase::Dialling | Phase::Held | Phase::Fenced | Phase::Closing(_) => Err(Violation),
    };
    if let (Ok(Step::Message(_)), Some(connection)) = (&taken, core.table.get_mut(index)) {
        connection.keep_head(received.head);
    }
    taken.unwrap_or_else(|Violation| {
        // A reject is never answered (WIRE.md).
        let is_reject = matches!(record, Record::Reject(_));
        broken(core, index, (!is_reject).then_some(RejectReason::NotAdmitted));
        Step::Done
    })
}

/// A record on a connection in use, or on one whose last records are read out.
fn established<'a>(core: &mut Core, index: u32, record: &Record<'a>) -> Taken<'a> {
    let Some(connection) = core.table.get(index) else { return Ok(Step::Done) };
    let is_allowed = match connection.side {
        Side::Own => true,
        Side::Dialled { .. } | Side::Accepted { .. } => {
            let topology = topology(core, connection);
            match record.allowed(topology, connection.leg, sender(connection)) {
                Allowed::Yes => true,
                // It was sent while the pair was opened, and the transport's end was heard of before it.
                Allowed::BeforeCompletion => matches!(connection.phase, Phase::ReadingOut(_)),
                Allowed::No => false,
            }
        }
    };
    // Nothing of the host's comes before the probe that opens a connection, though its transport has ended meanwhile.
    let is_open = connection.has_opened || connection.leg == Lane::Completion;
    if !is_allowed || (record.carries_payload() && !is_open) {
        return Err(Violation);
    }
    let channel = core.channels.get(connection.channel);
    // A pair's requests belong to its application lane, whichever lane this came by.
    let owner = core.table.head_of(index);
    match *record {
        Record::NodeSend => return Ok(Step::Message(None)),
        Record::ChannelSend { channel: wanted } => {
            if channel.serves(wanted) {
                return Ok(Step::Message(Some(wanted)));
            }
            core.counters.misdirected += 1;
        }
        Record::NodeRequest { correlation } => return Ok(request(core, owner, correlation, None)),
        Record::ChannelRequest { correlation, channel: wanted } => {
            if channel.serves(wanted) {
                return Ok(request(core, owner, correlation, Some(wanted)));
            }
            core.decline(owner, correlation, ErrorKind::NotFound);
        }
        Record::Reply { correlation, outcome } => match core.requests.complete(correlation.get(), owner) {
            Some(request) => return Ok(Step::Answer(request, outcome)),
            None => core.counters.late_replies += 1,
        },
        Record::LivenessProbe(id) => {
            core.owe_ack(index, id);
            // Of one that is read out it is heard without making it ready any more.
            if let Some(connection) = core.table.get_mut(index) {
                connection.has_opened = true;
            }
        }
        Record::LivenessAck(id) => answered(core, index, id.get()),
        Record::Update(ref admission) => return updated(core, index, admission),
        Record::Reject(reason) => {
            let failure = Failure::Refused(reason);
            life::end_as(core, index, LostReason::Rejected(reason), failure);
        }
        // A second greeting on a connection that stands.
        Record::Hello(_) | Record::Admit(_) => return Err(Violation),
    }
    Ok(Step::Done)
}

/// A request that this node serves: the host gets it with the right to answer, as long as there is room for one more.
fn request<'a>(core: &mut Core, owner: u32, correlation: Correlation, to: Option<Name<'a>>) -> Step<'a> {
    if let Ok(token) = core.replies.expect(owner, correlation.get()) {
        return Step::Request(to, token);
    }
    core.decline(owner, correlation, ErrorKind::CapacityExceeded);
    Step::Done
}

/// A record between the admit of a lane and the first probe: the probe that makes the connection ready, or the end of it.
fn opening<'a>(core: &mut Core, index: u32, record: &Record<'a>) -> Taken<'a> {
    let phase = core.table.get(index).map(|connection| connection.phase);
    match record {
        Record::LivenessProbe(_) if phase == Some(Phase::Admitted) => {
            life::make_ready(core, index);
            mesh::became_ready(core, index);
            established(core, index, record)
        }
        Record::Update(admission) if admission.state() == HostState::Stopped => {
            updated(core, index, admission)
        }
        Record::Reject(_) => established(core, index, record),
        _ => Err(Violation),
    }
}

/// Takes down by which descriptor the end of somebody just met will be noticed, whatever its first record says.
pub(crate) fn trace(core: &mut Core, index: u32, descriptor: Option<i32>) {
    let Some(connection) = core.table.get_mut(index) else { return };
    let Side::Accepted { descriptor: known, .. } = &mut connection.side else { return };
    *known = descriptor;
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
fn newcomer<'a>(core: &mut Core, index: u32, record: &Record<'_>) -> Taken<'a> {
    let Record::Hello(hello) = record else { return Err(Violation) };
    let Some(connection) = core.table.get(index) else { return Ok(Step::Done) };
    let judged = match (topology(core, connection), connection.leg) {
        (Topology::ClientServer, _) => client_server::judge_hello(core, index, hello),
        (Topology::RouteMesh, Lane::Application) => mesh::judge_hello(core, index, hello),
        (Topology::RouteMesh, Lane::Completion) => {
            mesh::second_hello(core, index, hello);
            return Ok(Step::Done);
        }
    };
    match judged {
        Ok(existing) => {
            life::identify(core, index, hello);
            succession::come_in(core, index, existing);
        }
        Err(reason) => life::turn_down(core, index, reason),
    }
    Ok(Step::Done)
}

/// The answer to our hello.
fn greeting<'a>(core: &mut Core, index: u32, record: &Record<'_>) -> Taken<'a> {
    let Some(connection) = core.table.get(index) else { return Ok(Step::Done) };
    match record {
        Record::Admit(admit) => match (topology(core, connection), connection.leg) {
            (Topology::ClientServer, _) => client_server::admitted(core, index, admit),
            (Topology::RouteMesh, Lane::Application) => mesh::admitted(core, index, admit),
            (Topology::RouteMesh, Lane::Completion) => mesh::second_admit(core, index, admit),
        },
        Record::Reject(reason) => {
            let failure = Failure::Refused(*reason);
            life::end_as(core, index, LostReason::Rejected(*reason), failure);
        }
        _ => return Err(Violation),
    }
    Ok(Step::Done)
}

/// Evidence came, perhaps: the first ACK with the awaited id. It also settles who speaks for the peer.
fn answered(core: &mut Core, index: u32, id: u64) {
    let moment = core.watch.moment();
    let Some(connection) = core.table.get_mut(index) else { return };
    let Some(key) = connection.check else { return };
    if core.liveness.answer(key, id, &moment) {
        let held = connection.successor.take();
        succession::refuse_held(core, held);
    }
}

/// The peer's state, weights or extensions changed. A pair has them on its application lane, whichever lane says so; the
/// admission names the lane it comes by.
fn updated<'a>(core: &mut Core, index: u32, admission: &Admission<'_>) -> Taken<'a> {
    if core.table.get(index).is_some_and(|connection| connection.leg != admission.lane()) {
        return Err(Violation);
    }
    let index = core.table.head_of(index);
    let Some(connection) = core.table.get_mut(index) else { return Ok(Step::Done) };
    let change = Admission::parse(&connection.admission).map(|earlier| admission.updates(&earlier));
    match change {
        Ok(Ok(AdmissionChange::Repeated)) => {}
        Ok(Ok(AdmissionChange::Newer)) => {
            life::remember(connection, admission);
            if admission.state() == HostState::Stopped {
                stopped(core, index);
            } else {
                client_server::weigh(core, index, admission);
                mesh::weigh(core, index, admission);
            }
        }
        Ok(Err(_)) | Err(_) => return Err(Violation),
    }
    Ok(Step::Done)
}

/// The peer closes in order. On a pair it says so by one lane while the other may still bring what was sent before.
fn stopped(core: &mut Core, index: u32) {
    let Some(connection) = core.table.get(index) else { return };
    // The transport's end may have been heard of before the word that announced it.
    let may_bring_more = matches!(connection.phase, Phase::Admitted | Phase::Ready | Phase::ReadingOut(_));
    if may_bring_more && connection.partner.is_some() {
        life::read_out(core, index, LostReason::Orderly);
    } else {
        life::end_as(core, index, LostReason::Orderly, Failure::Unreachable);
    }
}

/// The peer broke the protocol: an accepted connection is fenced, and told so unless what it sent is a reject; a dialled
/// one is closed.
fn broken(core: &mut Core, index: u32, told: Option<RejectReason>) {
    core.counters.protocol_errors += 1;
    if let Some(reason) = told {
        life::reject(core, index, reason);
    }
    life::end_as(core, index, LostReason::Protocol, Failure::Protocol);
    life::claim_descriptor(core, index);
}

/// Which of the two topologies with service records a connection belongs to.
fn topology(core: &Core, connection: &Connection) -> Topology {
    if core.channels.get(connection.channel).is_mesh() { Topology::RouteMesh } else { Topology::ClientServer }
}

/// Which end the records that come on a connection are from.
fn sender(connection: &Connection) -> Sender {
    match connection.side {
        Side::Dialled { .. } | Side::Own => Sender::Acceptor,
        Side::Accepted { .. } => Sender::Dialler,
    }
}

impl Core {
    /// Answers a request that reaches no handler. Where no slot is free, or the next one belongs to a check signal, the
    /// caller's own time-out answers it.
    pub(super) fn decline(&mut self, index: u32, correlation: Correlation, kind: ErrorKind) {
        let lane = self.reply_lane(index);
        if self.table.get(lane).is_none_or(|connection| self.owes(connection)) {
            return;
        }
        let reply = Record::Reply { correlation, outcome: Outcome::Failed(kind) };
        if let Err(error) = self.send_record(lane, reply) {
            log::debug!("a request could not be declined: {error}");
        }
    }

    /// The lane by which replies go out to the peer of an application lane.
    pub(crate) fn reply_lane(&self, index: u32) -> u32 {
        self.table.get(index).and_then(|connection| connection.partner).unwrap_or(index)
    }
}
