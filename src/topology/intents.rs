//! Wishes for connections: when each is tried, how its last attempt ended, and when it is given up. Reconnecting is ours
//! alone: a fresh lane for every attempt, redone from the handshake, reusing nothing.

use std::time::Duration;

use super::table::{Behind, Expects, IntentPhase, LaneEntry};
use super::{ChannelEnd, Core, News, fanout, life};
use crate::clock::WATCH_AGAIN;
use crate::io::Dial;
use crate::link::connection::{End, Failure, LostReason, Phase, Side};
use crate::name::Endpoint;
use crate::wire::{HostState, Pair};

/// How long a redial waits for the last lane to be physically closed, in watched time.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// Begins an attempt on an intent.
pub(crate) fn dial(core: &mut Core, intent: u32) {
    let wish = &core.table.intents[intent as usize];
    let channel = wish.channel;
    let lane_index = core.table.lanes.vacant_key() as u32;
    let bytes_max = core.channels.get(channel).bytes_max;
    let is_fanout = matches!(core.channels.get(channel).end, ChannelEnd::Subscriber(_));
    let kind = if is_fanout { Dial::Sub } else { Dial::Dealer };
    let lane = match core.io.dial(kind, &wish.endpoint, lane_index, bytes_max) {
        Ok(lane) => lane,
        Err(error) => {
            log::warn!("{}: {error}", wish.endpoint);
            ended(core, intent, End::Failed(Failure::NoSocket), None);
            return;
        }
    };
    let id = core.table.next_id();
    let (key, share) = core.rotation.add_dedicated(lane_index, id.index);
    let behind = Behind::Dialled { connection: id.index };
    core.add_lane(LaneEntry { id: lane, key, behind, is_fanout });
    let pair = Pair::new(core.draw()).unwrap_or(Pair::FIRST);
    life::add(core, id, channel, lane_index, Side::Dialled { intent }, Phase::Dialling, share, pair);
    if is_fanout {
        fanout::open(core, id.index);
    }
    core.table.intents[intent as usize].phase = IntentPhase::Connected { connection: id.index };
    core.agenda.handshake(&core.watch.moment(), id);
}

/// An attempt or a connection of an intent ended: the host hears of a failed attempt, and the next one is planned.
/// `closing` is the lane that must be physically closed first.
pub(super) fn ended(core: &mut Core, intent: u32, end: End, closing: Option<u32>) {
    let moment = core.watch.moment();
    let wish = &mut core.table.intents[intent as usize];
    wish.last_end = Some(end);
    if wish.phase == IntentPhase::Retired {
        return;
    }
    if core.host_state == HostState::Stopped {
        wish.phase = IntentPhase::Off;
        return;
    }
    if let End::Failed(failure) = end {
        let channel = core.channels.get(wish.channel).name.clone();
        core.news.push_back(News::Failed { channel, endpoint: wish.endpoint.clone(), failure });
    }
    if let End::Failed(Failure::Refused(reason)) = end {
        if !reason.may_be_retried() {
            wish.phase = IntentPhase::NotRequired;
            return;
        }
    }
    let retry = moment.now.plus(wish.backoff.next());
    wish.phase = IntentPhase::Waiting { retry, closing, give_up: moment.watched.plus(CLOSE_PATIENCE) };
    core.agenda.retry(retry, intent);
}

/// An intent's retry came due: the next attempt begins, unless the last one's lane is not physically closed yet.
pub(crate) fn retry(core: &mut Core, intent: u32) {
    let moment = core.watch.moment();
    let IntentPhase::Waiting { retry, closing, give_up } = core.table.intents[intent as usize].phase else {
        return;
    };
    if retry > moment.now {
        return;
    }
    if closing.is_some() && moment.watched < give_up {
        // The lane's last event brings the retry forward. Until then the watch runs, one step a turn at most.
        let again = moment.now.plus(give_up.since(moment.watched).min(WATCH_AGAIN));
        core.agenda.retry(again, intent);
        return;
    }
    dial(core, intent);
}

/// A lane's last event came: its connections are physically gone.
pub(crate) fn stopped(core: &mut Core, lane: u32) {
    let Some(entry) = core.table.lanes.get(lane as usize) else { return };
    let Behind::Closed { intent } = entry.behind else { return };
    core.table.lanes.remove(lane as usize);
    let Some(intent) = intent else { return };
    if let IntentPhase::Waiting { retry, closing, .. } = &mut core.table.intents[intent as usize].phase {
        if *closing == Some(lane) {
            *closing = None;
            core.agenda.retry(*retry, intent);
        }
    }
}

/// An intent is not wanted any more: its connection ends, and no other one follows.
pub(super) fn retire(core: &mut Core, intent: u32) {
    let wish = &mut core.table.intents[intent as usize];
    let before = std::mem::replace(&mut wish.phase, IntentPhase::Retired);
    if let IntentPhase::Connected { connection } = before {
        life::give_up(core, connection, LostReason::Retired);
    }
}

/// An intent is wanted for another publisher: its connection ends, and the first attempt on the new one waits until that
/// is physically closed (000 §5).
pub(super) fn redirect(core: &mut Core, intent: u32, endpoint: Endpoint, expects: Expects) {
    let moment = core.watch.moment();
    let phase = match core.table.dialled_for(intent) {
        Some(connection) => IntentPhase::Connected { connection },
        None => IntentPhase::Waiting {
            retry: moment.now,
            closing: core.table.closing_of(intent),
            give_up: moment.watched.plus(CLOSE_PATIENCE),
        },
    };
    let wish = &mut core.table.intents[intent as usize];
    (wish.endpoint, wish.expects, wish.phase) = (endpoint, expects, phase);
    (wish.last_end, wish.was_ready) = (None, false);
    wish.backoff.reset();
    if let IntentPhase::Connected { connection } = phase {
        life::give_up(core, connection, LostReason::Retired);
    } else {
        core.agenda.retry(moment.now, intent);
    }
}
