//! The life of a connection: dialled or met, greeted, admitted, ready, ended. Each transition stands here once.
//!
//! An end has two steps. [`end`] marks the connection and withdraws its readiness at once; the sweep, at the end of the
//! turn, tells the host and lets go. A transport loss has one step more: what is still readable is delivered first. The
//! two lanes of a pair end together.

use std::sync::Arc;
use std::time::Duration;

use super::table::Carries;
use super::{Core, News};
use crate::io::{Received, SendError};
use crate::link::connection::{Connection, End, Failure, LostReason, Peer, Phase, Route, Side};
use crate::liveness::{PEER_DEADLINE, Silence};
use crate::name::Rid;
use crate::wire::{Admission, HostState, Lane, Record, RejectReason};

/// How long a peer that said it stops may go on talking before it is ended all the same: as long as silence is borne.
const STANDING_LANE_PATIENCE: Duration = PEER_DEADLINE;
/// A fenced connection is told so at most this often, in clock time.
pub(super) const REJECT_INTERVAL: Duration = Duration::from_secs(1);
/// How many strangers are told in one such interval that the table is full; the others find out by their own patience.
const TURNED_AWAY_MAX: u32 = 100;

/// A route spoke that nobody knows: it gets a place in the table, if there is one.
pub(crate) fn meet(core: &mut Core, lane: u32, route: &[u8]) -> Option<u32> {
    let channel = core.table.listener(lane)?.channel;
    let entry = core.table.lane(lane)?;
    let key = entry.key;
    let leg = if entry.carries == Carries::Completion { Lane::Completion } else { Lane::Application };
    if core.table.len() >= core.config.connections_max as usize {
        return None;
    }
    let id = core.table.next_id();
    let share = core.rotation.add_peer(key, id.index)?;
    let side = Side::Accepted { route: Route::from_slice(route), descriptor: None };
    let mut connection = Connection::new(id, channel, lane, side, Phase::New, share);
    connection.leg = leg;
    Some(core.table.insert(connection))
}

/// The table is full: a stranger's hello is told so. No place is left to remember whom it was told, so all strangers share
/// one allowance.
pub(crate) fn turn_away(core: &mut Core, lane: u32, route: &[u8], received: &Received<'_>) {
    core.counters.unadmitted += 1;
    if !matches!(Record::parse(received.head, received.parts.len()), Ok(Record::Hello(_))) {
        return;
    }
    core.counters.refused += 1;
    let now = core.watch.moment().now;
    let (since, told) = &mut core.turned_away;
    if now.since(*since) >= REJECT_INTERVAL {
        (*since, *told) = (now, 0);
    }
    let Some(entry) = core.table.lane(lane).filter(|_| *told < TURNED_AWAY_MAX) else { return };
    *told += 1;
    core.head.clear();
    Record::Reject(RejectReason::ResourceLimit).emit(&mut core.head);
    if let Err(error) = core.io.send(entry.id, Some(route), &core.head, &[]) {
        log::debug!("a stranger could not be turned away: {error}");
    }
}

/// The transport of a dialled connection is up: our hello goes out.
pub(crate) fn connected(core: &mut Core, index: u32) {
    let Some(connection) = core.table.get_mut(index) else { return };
    if connection.phase != Phase::Dialling {
        return;
    }
    connection.phase = Phase::Greeting;
    // A publisher is not spoken to.
    if core.channels.get(connection.channel).body.is_some() {
        core.owe_greeting(index);
    }
}

/// Takes down who the peer is, as its admission says.
pub(crate) fn identify(core: &mut Core, index: u32, admission: &Admission<'_>) {
    let Some(connection) = core.table.get(index) else { return };
    let Ok(rid) = Rid::new(admission.rid()) else { return };
    let endpoint = match connection.side {
        Side::Dialled { intent } => Some(core.table.intents[intent as usize].endpoint.clone()),
        Side::Accepted { .. } | Side::Own => None,
    };
    let topology = core.channels.get(connection.channel).name.clone();
    let generation = admission.generation();
    let peer = Arc::new(Peer { connection: connection.id, topology, rid, generation, endpoint });
    let Some(connection) = core.table.get_mut(index) else { return };
    connection.peer = Some(peer);
    // The pair is the dialler's to draw: what an admit gives for it does not change our own.
    if connection.route().is_some() {
        connection.pair = admission.pair();
    }
    connection.peer_bytes_max = admission.max_message();
    remember(connection, admission);
}

/// Keeps the peer's newest admission.
pub(crate) fn remember(connection: &mut Connection, admission: &Admission<'_>) {
    connection.admission.clear();
    connection.admission.extend_from_slice(admission.body());
    connection.peer_state = admission.state();
}

/// Our hello or our admit went out.
pub(super) fn greeted(core: &mut Core, index: u32) {
    let moment = core.watch.moment();
    let Some(connection) = core.table.get_mut(index) else { return };
    let Side::Accepted { descriptor, .. } = connection.side else { return };
    let id = connection.id;
    match (connection.leg, core.channels.get(connection.channel).is_mesh()) {
        (Lane::Application, false) => connection.phase = Phase::Admitted,
        (Lane::Application, true) => connection.phase = Phase::Joining,
        (Lane::Completion, _) => connection.phase = Phase::Joined,
    }
    let (phase, peer) = (connection.phase, connection.peer.clone());
    if let Some(peer) = &peer {
        core.table.name(index, &peer.rid);
    }
    // The transport took our admit, so a number that both claim is this one's.
    if let Some(loser) = core.table.bind_descriptor(index, descriptor) {
        sever(core, loser);
    }
    match (phase, peer) {
        (Phase::Admitted, Some(peer)) => core.news.push_back(News::Admitted(peer)),
        (Phase::Joined, _) => return joined(core, index),
        _ => {}
    }
    core.agenda.handshake(&moment, id);
}

/// Our admit of a completion lane went out: the pair is admitted.
fn joined(core: &mut Core, completion: u32) {
    let application = core.table.head_of(completion);
    let Some(connection) = core.table.get_mut(application) else { return };
    if connection.phase != Phase::Joining {
        return;
    }
    connection.phase = Phase::Admitted;
    if let Some(peer) = connection.peer.clone() {
        core.news.push_back(News::Admitted(peer));
    }
}

/// The connection is ready: its deadline runs and its first ask goes out at once.
pub(crate) fn make_ready(core: &mut Core, index: u32) {
    let moment = core.watch.moment();
    let Some(connection) = core.table.get_mut(index) else { return };
    let Some(peer) = connection.peer.clone() else { return };
    let is_new = connection.phase != Phase::Admitted;
    connection.phase = Phase::Ready;
    connection.has_opened = true;
    let (key, id) = core.liveness.begin(index, &moment);
    connection.check = Some(key);
    if let Side::Dialled { intent } = connection.side {
        let wish = &mut core.table.intents[intent as usize];
        wish.backoff.reset();
        wish.was_ready = true;
        core.table.name(index, &peer.rid);
    }
    if is_new {
        core.news.push_back(News::Admitted(peer.clone()));
    }
    core.news.push_back(News::Ready(peer));
    core.ask(index, id);
    core.pay_waiting_update(index);
}

/// The transport of a connection is gone. What is still readable of an admitted one is delivered before the host hears.
pub(crate) fn sever(core: &mut Core, index: u32) {
    let Some(connection) = core.table.get_mut(index) else { return };
    connection.severed = true;
    let is_dialled = matches!(connection.side, Side::Dialled { .. });
    match connection.phase {
        Phase::Admitted | Phase::Ready => read_out(core, index, LostReason::Transport),
        Phase::Joined => {
            let head = core.table.head_of(index);
            match core.table.get(head).map(|head| head.phase) {
                Some(Phase::Admitted | Phase::Ready) => read_out(core, head, LostReason::Transport),
                _ => end_as(core, head, LostReason::Transport, Failure::Unreachable),
            }
        }
        Phase::Dialling | Phase::Greeting | Phase::Joining if is_dialled => {
            end(core, index, End::Failed(Failure::Unreachable));
        }
        Phase::ReadingOut(_) | Phase::Closing(_) => {}
        _ => end(core, index, End::Unadmitted),
    }
}

/// Takes a connection that stood out of use, and lets what is still readable of it be delivered.
pub(super) fn read_out(core: &mut Core, index: u32, reason: LostReason) {
    withdraw(core, index);
    let now = core.clock.now();
    let until = core.watch.moment().watched.plus(STANDING_LANE_PATIENCE);
    let partner = core.table.get(index).and_then(|connection| connection.partner);
    for each in [Some(index), partner].into_iter().flatten() {
        let Some(connection) = core.table.get_mut(each) else { continue };
        // One that is read out already is so for a better reason now.
        let before = std::mem::replace(&mut connection.phase, Phase::ReadingOut(reason));
        if let Phase::ReadingOut(_) = before {
            continue;
        }
        connection.read_out_since = Some(now);
        connection.read_out_until = Some(until);
        core.reading_out.push(each);
    }
}

/// Ends a connection now, and with it its pair: nothing that still arrives from it counts.
pub(crate) fn end(core: &mut Core, index: u32, end: End) {
    let head = core.table.head_of(index);
    let partner = core.table.get(head).and_then(|connection| connection.partner);
    withdraw(core, head);
    for (each, end) in [(Some(head), end), (partner, End::Unadmitted)] {
        let Some(connection) = each.and_then(|each| core.table.get_mut(each)) else { continue };
        if !matches!(connection.phase, Phase::Closing(_)) {
            connection.phase = Phase::Closing(end);
            core.closing.push_back(connection.id.index);
        }
    }
}

/// Ends a connection for a reason that has one name where it was admitted, and another where it never was.
pub(crate) fn end_as(core: &mut Core, index: u32, lost: LostReason, failed: Failure) {
    let head = core.table.head_of(index);
    let Some(connection) = core.table.get(head) else { return };
    end(core, head, connection.ended_as(lost, failed));
}

/// Ends a connection that this side wants no more.
pub(super) fn give_up(core: &mut Core, index: u32, reason: LostReason) {
    let head = core.table.head_of(index);
    if let Some(connection) = core.table.get(head) {
        end(core, head, given_up(connection, reason));
    }
}

/// How an attempt failed is nothing to its intent any more, which stands for somebody else.
pub(super) fn disown(core: &mut Core, index: u32) {
    if let Some(Connection { phase: Phase::Closing(end @ End::Failed(_)), .. }) = core.table.get_mut(index) {
        *end = End::Unadmitted;
    }
}

/// How a connection ends that this side gives up. One that is read out has its reason already. Of one that never was
/// admitted the host hears nothing, and of a mesh node's own one neither: it was told of no peer.
fn given_up(connection: &Connection, reason: LostReason) -> End {
    match connection.phase {
        _ if matches!(connection.side, Side::Own) => End::Unadmitted,
        Phase::Admitted | Phase::Ready => End::Lost(reason),
        Phase::ReadingOut(reason) => End::Lost(reason),
        _ => End::Unadmitted,
    }
}

/// Ends an accepted connection and tells it why, if the transport has a slot for that.
pub(crate) fn refuse(core: &mut Core, index: u32, reason: RejectReason) {
    // That no connection is needed is no failure (000 §3).
    core.counters.refused += u64::from(reason != RejectReason::NotRequired);
    reject(core, index, reason);
    end_as(core, index, LostReason::Protocol, Failure::Refused(reason));
}

/// Refuses a hello, and keeps an eye on the connection until it is physically gone.
pub(super) fn turn_down(core: &mut Core, index: u32, reason: RejectReason) {
    refuse(core, index, reason);
    claim_descriptor(core, index);
}

/// Ties a refused connection to its descriptor, so that its end is noticed.
pub(super) fn claim_descriptor(core: &mut Core, index: u32) {
    let Some(connection) = core.table.get(index) else { return };
    let Side::Accepted { descriptor, .. } = connection.side else { return };
    if connection.severed {
        return;
    }
    if let Some(loser) = core.table.bind_descriptor(index, descriptor) {
        sever(core, loser);
    }
}

/// Tells an accepted connection that it is not admitted, at most once a second. A dialled one is simply closed.
pub(crate) fn reject(core: &mut Core, index: u32, reason: RejectReason) {
    let now = core.watch.moment().now;
    let Some(connection) = core.table.get_mut(index) else { return };
    let is_told = connection.rejected.is_some_and(|at| now.since(at) < REJECT_INTERVAL);
    if is_told || connection.route().is_none() {
        return;
    }
    connection.rejected = Some(now);
    // A refusal that finds no slot is a refusal nobody needs. Where no route is left, nobody is left to be fenced.
    if core.send_record(index, Record::Reject(reason)) == Err(SendError::NoRoute) {
        sever(core, index);
    }
}

/// Takes a connection out of use. Its asks and its deadline end here, whatever comes.
fn withdraw(core: &mut Core, index: u32) {
    if let Some(key) = core.table.get_mut(index).and_then(|connection| connection.check.take()) {
        core.liveness.end(key);
    }
}

/// The host closes a connection.
pub(crate) fn close(core: &mut Core, index: u32) {
    reject(core, index, RejectReason::NotAdmitted);
    end(core, index, End::Lost(LostReason::Closed));
}

/// Liveness has judged a connection. It has forgotten it already.
pub(crate) fn judged(core: &mut Core, index: u32, silence: Silence) {
    if let Some(connection) = core.table.get_mut(index) {
        connection.check = None;
    }
    reject(core, index, RejectReason::NotAdmitted);
    end(core, index, End::Lost(LostReason::Silence(silence)));
}

/// The host enters another state, and every peer is told.
pub(crate) fn set_state(core: &mut Core, state: HostState) {
    if core.host_state == HostState::Stopped {
        return;
    }
    core.host_state = state;
    for index in 0..core.channels.list.len() {
        if core.channels.list[index].body.as_mut().is_some_and(|body| body.set_state(state)) {
            announce(core, index as u32);
        }
    }
}

/// What we say of ourselves on a channel changed: everyone connected by it is owed an update, as soon as it may be sent.
pub(crate) fn announce(core: &mut Core, channel: u32) {
    let standing: Vec<u32> = core
        .table
        .iter()
        .filter(|(_, connection)| connection.channel == channel)
        .filter(|(_, connection)| {
            connection.stands() || connection.is_opening() || connection.phase == Phase::Joined
        })
        .map(|(index, _)| index)
        .collect();
    for index in standing {
        core.owe_update(index);
    }
}
