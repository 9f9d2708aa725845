//! The last step of every end: what still can be read of a lost connection is read, what was marked is let go, and the
//! host hears of it once.

use std::time::Duration;

use super::table::{Behind, IntentPhase};
use super::{ChannelEnd, Core, News, Unanswered, fanout, intents, life, mesh, succession};
use crate::io::{Linger, SendError};
use crate::link::connection::{Connection, ConnectionId, End, Failure, LostReason, Phase, Side};
use crate::rotation::Looked;
use crate::wire::{HostState, Lane, Record, RejectReason};

/// How long a connection that is read out must bring nothing, by the true clock.
pub(crate) const READ_OUT_PAUSE: Duration = Duration::from_millis(5);
/// How long a lane is read out whose transport still stands: as long as an orderly close lets its last records take.
const STANDING_LANE_QUIET: Duration = Duration::from_millis(200);
/// How many ended connections one turn lets go. Those left over are work left for the next one.
const LET_GO_PER_TURN_MAX: usize = 256;

/// A connection that is read out is over when a whole round of its lane brought none of its records and ZeroMQ has no route
/// to it any more, which is so once it was read to its end; or when whole rounds brought none for a moment. One round alone
/// is not enough: ZeroMQ's monitor tells of the end shortly before the last records become readable. A lane of a pair whose
/// transport still stands is over once it is quiet when a moment has passed, and in any case at the end of its patience.
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
            life::end(core, index, End::Lost(reason));
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
            connection.read_out_since.is_none_or(|since| now.since(since) >= STANDING_LANE_QUIET)
        };
        if !is_over {
            return true;
        }
        let Some(connection) = core.table.get_mut(index) else { return false };
        connection.read_out_since = None;
        let partner = connection.partner.and_then(|partner| core.table.get(partner));
        if partner.is_none_or(|partner| partner.read_out_since.is_none()) {
            life::end(core, index, End::Lost(reason));
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
        && core.send_record(index, Record::Reject(RejectReason::NotAdmitted)) == Err(SendError::NoRoute)
}

/// Whether a turn before long could finish reading somebody out. What the host's pause holds back waits for the host.
pub(crate) fn is_reading_out(core: &Core) -> bool {
    core.reading_out.iter().filter_map(|&index| core.table.get(index)).any(|connection| {
        matches!(connection.phase, Phase::ReadingOut(_)) && !core.rotation.is_held_back(connection.share)
    })
}

/// The second step of every end: what was marked is let go, in order, and the host is told once. Letting one go can admit
/// another, which may end in turn.
pub(crate) fn sweep(core: &mut Core) {
    for _ in 0..LET_GO_PER_TURN_MAX {
        let Some(index) = core.closing.pop_front() else { return };
        sweep_one(core, index);
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
        succession::inherit(core, intent, successor);
    }
    let_go(core, index, how);
    if intent.is_none() {
        succession::come_in_at_last(core, successor);
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
            core.agenda.remind(core.watch.moment().now.plus(life::REJECT_INTERVAL), connection.id);
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
    life::reject(core, id.index, RejectReason::NotAdmitted);
    let Some(Connection { side, severed, .. }) = core.table.find(id) else { return };
    if *severed {
        life::end(core, id.index, End::Unadmitted);
    } else if matches!(side, Side::Accepted { descriptor: None, .. }) {
        core.agenda.remind(core.watch.moment().now.plus(life::REJECT_INTERVAL), id);
    }
}

/// A handshake had its time.
pub(crate) fn handshake_over(core: &mut Core, id: ConnectionId) {
    let Some(connection) = core.table.find(id) else { return };
    if connection.is_opening() {
        life::reject(core, id.index, RejectReason::NotAdmitted);
        life::end_as(core, id.index, LostReason::NeverReady, Failure::TimedOut);
    }
}

/// Ends everything in order: peers are told, requests end, lanes linger for what was just sent.
pub(crate) fn stop(core: &mut Core) {
    if core.host_state == HostState::Stopped {
        return;
    }
    life::set_state(core, HostState::Stopped);
    core.own.clear();
    core.owing.clear();
    core.reading_out.clear();
    let ended = core.requests.drain().map(|request| News::Ended { request, why: Unanswered::Shutdown });
    core.news.extend(ended);
    let all: Vec<u32> = core.table.iter().map(|(index, _)| index).collect();
    for index in all {
        life::give_up(core, index, LostReason::Stopped);
    }
    while !core.closing.is_empty() {
        sweep(core);
    }
    // Only now: what was let go planned reminders and retries.
    core.agenda.clear();
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
