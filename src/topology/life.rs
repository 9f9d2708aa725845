//! The life of a connection: dialled or met, greeted, admitted, ready, ended, swept. Each transition stands here once.
//!
//! An end has two steps. [`end`] marks the connection and withdraws its readiness at once; [`sweep`], at the end of the
//! turn, tells the host and lets go. A transport loss has one step more: what is still readable is delivered first.

use std::sync::Arc;
use std::time::Duration;

use super::table::{Behind, Carries, IntentPhase};
use super::{ChannelEnd, Core, News, Unanswered, fanout, intents, mesh, service};
use crate::io::{Inbound, Linger, SendError};
use crate::link::connection::{Connection, ConnectionId, End, Failure, LostReason, Peer, Phase, Route, Side};
use crate::liveness::{PEER_DEADLINE, Silence};
use crate::name::Rid;
use crate::rotation::Looked;
use crate::wire::{Admission, HostState, Lane, Record, RejectReason};

/// How long a connection that is read out must bring nothing, by the true clock.
pub(crate) const READ_OUT_PAUSE: Duration = Duration::from_millis(5);
/// How long a lane is read out whose transport still stands: as long as an orderly close lets its last records take.
const STANDING_LANE_PAUSE: Duration = Duration::from_millis(200);
/// How long a peer that said it stops may go on talking before it is ended all the same: as long as silence is borne.
const STANDING_LANE_PATIENCE: Duration = PEER_DEADLINE;
/// A fenced connection is told so at most this often, in clock time.
const REJECT_INTERVAL: Duration = Duration::from_secs(1);
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
pub(crate) fn turn_away(core: &mut Core, lane: u32, inbound: &Inbound) {
    core.counters.unadmitted += 1;
    if !matches!(Record::parse(inbound.head(), inbound.parts().len()), Ok(Record::Hello(_))) {
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
    if let Err(error) = core.io.send(entry.id, Some(inbound.peer()), &core.head, &[]) {
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
        (Phase::Joined, _) => return mesh::joined(core, index),
        _ => {}
    }
    core.agenda.handshake(&moment, id);
}

/// The connection is ready: its deadline runs and its first ask goes out at once.
pub(crate) fn make_ready(core: &mut Core, index: u32) {
    let moment = core.watch.moment();
    let Some(connection) = core.table.get_mut(index) else { return };
    let Some(peer) = connection.peer.clone() else { return };
    let is_new = connection.phase != Phase::Admitted;
    connection.phase = Phase::Ready;
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
    mesh::became_ready(core, index);
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
            core.closing.push(connection.id.index);
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

/// How a connection ends that this side gives up. One that is read out has its reason already, and of one that never was
/// admitted the host hears nothing.
fn given_up(connection: &Connection, reason: LostReason) -> End {
    match (&connection.side, connection.phase) {
        // The host was never told of itself as a peer.
        (Side::Own, _) => End::Unadmitted,
        (_, Phase::Admitted | Phase::Ready) => End::Lost(reason),
        (_, Phase::ReadingOut(reason)) => End::Lost(reason),
        _ => End::Unadmitted,
    }
}

/// Ends an accepted connection and tells it why, if the transport has a slot for that.
pub(crate) fn refuse(core: &mut Core, index: u32, reason: RejectReason) {
    core.counters.refused += 1;
    reject(core, index, reason);
    end_as(core, index, LostReason::Protocol, Failure::Refused(reason));
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

/// A connection that is read out is over when a whole round of its lane brought none of its records and ZeroMQ has no route
/// to it any more, which is so once it was read to its end; or when whole rounds brought none for a moment. One round alone
/// is not enough: ZeroMQ's monitor tells of the end shortly before the last records become readable.
pub(crate) fn finish_reading_out(core: &mut Core) {
    if core.reading_out.is_empty() {
        return;
    }
    let (now, watched) = (core.clock.now(), core.watch.moment().watched);
    let mut reading_out = std::mem::take(&mut core.reading_out);
    reading_out.retain(|&index| {
        let Some(connection) = core.table.get_mut(index) else { return false };
        let Phase::ReadingOut(reason) = connection.phase else { return false };
        let share = connection.share;
        if core.rotation.is_held_back(share) || core.rotation.looked_at_peer(share) == Looked::No {
            return true;
        }
        // Nothing bounds what comes by a lane that stands.
        if !connection.severed && connection.read_out_until.is_some_and(|until| watched >= until) {
            end(core, index, End::Lost(reason));
            return false;
        }
        // What this round brought of it has cleared the mark.
        let Some(quiet_since) = connection.quiet_since else {
            connection.quiet_since = Some(now);
            return true;
        };
        // A lane of a pair can outlive the other: what was sent on it has the time that an orderly close leaves it.
        let is_over = if connection.severed {
            now.since(quiet_since) >= READ_OUT_PAUSE || has_no_route(core, index)
        } else {
            connection.read_out_since.is_none_or(|since| now.since(since) >= STANDING_LANE_PAUSE)
        };
        if !is_over {
            return true;
        }
        let Some(connection) = core.table.get_mut(index) else { return false };
        connection.read_out_since = None;
        let partner = connection.partner.and_then(|partner| core.table.get(partner));
        if partner.is_none_or(|partner| partner.read_out_since.is_none()) {
            end(core, index, End::Lost(reason));
        }
        false
    });
    core.reading_out.append(&mut reading_out);
}

/// Whether ZeroMQ has forgotten an accepted connection. Only sending tells; what is sent to one that is gone reaches nobody.
fn has_no_route(core: &mut Core, index: u32) -> bool {
    let Some(connection) = core.table.get(index) else { return true };
    let is_accepted = connection.route().is_some();
    is_accepted
        && core.send_record(index, Record::Reject(RejectReason::NotAdmitted))
            == Err(crate::io::SendError::NoRoute)
}

/// Whether a turn before long could finish reading somebody out. What the host's pause holds back waits for the host.
pub(crate) fn is_reading_out(core: &Core) -> bool {
    core.reading_out.iter().filter_map(|&index| core.table.get(index)).any(|connection| {
        matches!(connection.phase, Phase::ReadingOut(_)) && !core.rotation.is_held_back(connection.share)
    })
}

/// The second step of every end: what was marked is let go, and the host is told once.
pub(crate) fn sweep(core: &mut Core) {
    // Letting one go can admit another, which may end in turn: lists are taken and walked until there is none.
    while !core.closing.is_empty() {
        for index in std::mem::take(&mut core.closing) {
            sweep_one(core, index);
        }
    }
}

fn sweep_one(core: &mut Core, index: u32) {
    let Some(connection) = core.table.get_mut(index) else { return };
    let Phase::Closing(how) = connection.phase else { return };
    let successor = connection.successor.take();
    let peer = connection.peer.clone();
    let source = connection.source.take();
    core.table.unname(index);
    mesh::departed(core, index);
    while let Some(request) = core.requests.next_of(index) {
        core.news.push_back(News::Ended { request, why: Unanswered::RouteLost });
    }
    core.replies.forget(index);
    if let (End::Lost(reason), Some(peer)) = (how, peer) {
        core.counters.count(reason);
        core.news.push_back(News::Lost { peer, reason });
    }
    fanout::lost(core, source, how);
    let intent = core.table.get(index).and_then(Connection::intent);
    // The close of a dialled lane has a witness, and the successor waits for it.
    if let (Some(intent), Some(successor)) = (intent, successor) {
        service::inherit(core, intent, successor);
    }
    let_go(core, index, how);
    if intent.is_none() {
        service::come_in_at_last(core, successor);
    }
}

/// Gives up the transport of an ended connection, as far as this side can.
fn let_go(core: &mut Core, index: u32, how: End) {
    let Some(connection) = core.table.get_mut(index) else { return };
    let lane = connection.lane;
    let share = connection.share;
    let leg = connection.leg;
    core.table.part(index);
    let Some(connection) = core.table.get_mut(index) else { return };
    match connection.side {
        Side::Own => {
            core.table.remove(index);
        }
        Side::Accepted { .. } if connection.severed => {
            core.rotation.remove_peer(share);
            core.table.remove(index);
        }
        // Only the peer can close it. Until it does, it is fenced, and what it said of itself, up to 1 MiB, is let go.
        Side::Accepted { .. } => {
            connection.phase = Phase::Fenced;
            connection.admission = Vec::new();
            core.agenda.remind(core.watch.moment().now.plus(REJECT_INTERVAL), connection.id);
        }
        Side::Dialled { intent } => {
            core.rotation.remove_peer(share);
            core.table.remove(index);
            let is_orderly = core.host_state == HostState::Stopped;
            let linger = if is_orderly { Linger::Orderly } else { Linger::None };
            if let Some(entry) = core.table.lanes.get_mut(lane as usize) {
                core.io.close(entry.id, linger);
                entry.behind = Behind::Closed { intent: Some(intent) };
            }
            if leg == Lane::Application {
                intents::ended(core, intent, how);
            }
        }
    }
}

/// A fenced connection is told once more that it has ended, so that the transport says whether it is still there: its
/// monitor may have spoken before its descriptor was known. Without a descriptor no monitor ever speaks, and it is asked
/// again and again.
pub(crate) fn remind(core: &mut Core, id: ConnectionId) {
    if core.table.find(id).is_none_or(|connection| connection.phase != Phase::Fenced) {
        return;
    }
    reject(core, id.index, RejectReason::NotAdmitted);
    let Some(Connection { side, severed, .. }) = core.table.find(id) else { return };
    if *severed {
        end(core, id.index, End::Unadmitted);
    } else if matches!(side, Side::Accepted { descriptor: None, .. }) {
        core.agenda.remind(core.watch.moment().now.plus(REJECT_INTERVAL), id);
    }
}

/// A handshake had its time.
pub(crate) fn handshake_over(core: &mut Core, id: ConnectionId) {
    let Some(connection) = core.table.find(id) else { return };
    match connection.phase {
        Phase::Admitted => {
            reject(core, id.index, RejectReason::NotAdmitted);
            end(core, id.index, End::Lost(LostReason::NeverReady));
        }
        Phase::Dialling | Phase::Greeting | Phase::Joining => {
            reject(core, id.index, RejectReason::NotAdmitted);
            end_as(core, id.index, LostReason::NeverReady, Failure::TimedOut);
        }
        _ => {}
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

/// Ends everything in order: peers are told, requests end, lanes linger for what was just sent.
pub(crate) fn stop(core: &mut Core) {
    if core.host_state == HostState::Stopped {
        return;
    }
    set_state(core, HostState::Stopped);
    core.agenda.clear();
    core.own.clear();
    core.owing.clear();
    core.reading_out.clear();
    let ended = core.requests.drain().map(|request| News::Ended { request, why: Unanswered::Shutdown });
    core.news.extend(ended);
    let all: Vec<u32> = core.table.iter().map(|(index, _)| index).collect();
    for index in all {
        give_up(core, index, LostReason::Stopped);
    }
    sweep(core);
    for intent in core.table.intents.iter_mut().filter(|intent| intent.phase != IntentPhase::Retired) {
        intent.phase = IntentPhase::Off;
    }
    for channel in &core.channels.list {
        for lane in channel.end.listening().into_iter().flatten() {
            let Some(entry) = core.table.lanes.get_mut(lane as usize) else { continue };
            core.io.close(entry.id, Linger::Orderly);
            core.rotation.remove_lane(entry.key);
        }
        if let ChannelEnd::Publisher { check, .. } = channel.end {
            core.liveness.end(check);
        }
    }
    core.table.forget_accepted();
}
