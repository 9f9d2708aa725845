//! Wishes for connections: when each is to be tried again, what covers it meanwhile, and when it is given up or stands for
//! somebody else. Reconnecting is ours alone.

use super::agenda::CLOSE_PATIENCE;
use super::table::{Behind, Expects, Intent, IntentPhase};
use super::{Core, News, life, succession};
use crate::error::RegisterError;
use crate::link::connection::{Connection, End, Failure, LostReason, Phase, Side};
use crate::name::{Endpoint, TopologyName};
use crate::wire::{Admission, HostState, RejectReason};

/// An attempt or a connection of an intent ended: the host hears of a failed attempt, and the next one is planned.
pub(super) fn ended(core: &mut Core, intent: u32, end: End) {
    let moment = core.watch.moment();
    core.table.intents[intent as usize].last_end = Some(end);
    let is_covered = covering(core, intent).is_some();
    let wish = &mut core.table.intents[intent as usize];
    if let IntentPhase::Retired | IntentPhase::Covered { .. } = wish.phase {
        return;
    }
    if core.host_state == HostState::Stopped {
        wish.phase = IntentPhase::Off;
        return;
    }
    if let (End::Failed(failure), false) = (end, is_covered) {
        let topology = core.channels.get(wish.channel).name.clone();
        core.news.push_back(News::Failed { topology, endpoint: wish.endpoint.clone(), failure });
    }
    if let End::Failed(Failure::Refused(reason) | Failure::Unexpected(reason)) = end {
        if !reason.may_be_retried() {
            wish.phase = IntentPhase::NotRequired;
            return;
        }
    }
    let retry = moment.now.plus(wish.backoff.next());
    wish.phase = IntentPhase::Waiting { retry, give_up: moment.watched.plus(CLOSE_PATIENCE) };
    core.agenda.retry(retry, intent);
}

/// What was dialled led to a peer to which another connection stays: the intent needs none as long as that one lives.
pub(super) fn cover(core: &mut Core, dialled: u32, by: u32) {
    if let Some(intent) = core.table.get(dialled).and_then(Connection::intent) {
        core.table.intents[intent as usize].phase = IntentPhase::Covered { connection: by };
    }
    life::end(core, dialled, End::Unadmitted);
}

/// The connection that covered some intents is gone: they are wanted again.
pub(super) fn uncover(core: &mut Core, connection: u32) {
    let moment = core.watch.moment();
    for (intent, wish) in (0..).zip(&mut core.table.intents) {
        if wish.phase == (IntentPhase::Covered { connection }) {
            let retry = moment.now.plus(wish.backoff.next());
            wish.phase = IntentPhase::Waiting { retry, give_up: moment.watched.plus(CLOSE_PATIENCE) };
            core.agenda.retry(retry, intent);
        }
    }
}

/// A lane's last event came: its connections are physically gone.
pub(crate) fn stopped(core: &mut Core, lane: u32) {
    let Some(entry) = core.table.lanes.get(lane as usize) else { return };
    let Behind::Closed { intent } = entry.behind else { return };
    core.table.lanes.remove(lane as usize);
    let Some(intent) = intent else { return };
    if core.table.closing_of(intent).is_some() {
        return;
    }
    let wish = &mut core.table.intents[intent as usize];
    let heir = wish.heir.take();
    let (channel, endpoint) = (wish.channel, wish.endpoint.clone());
    // Others may have waited for the same endpoint.
    for (other, wish) in (0..).zip(&core.table.intents) {
        let leads_there = wish.channel == channel && wish.endpoint == endpoint;
        if let (true, IntentPhase::Waiting { retry, .. }) = (leads_there, wish.phase) {
            core.agenda.retry(retry, other);
        }
    }
    succession::come_in_at_last(core, heir);
}

/// An endpoint that needed no connection is tried again.
pub(super) fn try_again(core: &mut Core, intent: u32) {
    let moment = core.watch.moment();
    if let IntentPhase::Connected { connection } = core.table.intents[intent as usize].phase {
        return life::disown(core, connection);
    }
    let give_up = moment.watched.plus(CLOSE_PATIENCE);
    core.table.intents[intent as usize].phase = IntentPhase::Waiting { retry: moment.now, give_up };
    core.agenda.retry(moment.now, intent);
}

/// An intent is not wanted any more: its connection ends, and no other one follows.
fn retire(core: &mut Core, intent: u32) {
    forget_peer(core, intent);
    let wish = &mut core.table.intents[intent as usize];
    let before = std::mem::replace(&mut wish.phase, IntentPhase::Retired);
    if let IntentPhase::Connected { connection } = before {
        life::give_up(core, connection, LostReason::Retired);
    }
}

/// An intent is wanted for another endpoint or peer: its connection ends, and the first attempt on the new one waits until that
/// is physically closed (000 §5).
fn redirect(core: &mut Core, intent: u32, endpoint: Endpoint, expects: Expects) {
    forget_peer(core, intent);
    let moment = core.watch.moment();
    let phase = match core.table.dialled_for(intent) {
        Some(connection) => IntentPhase::Connected { connection },
        None => IntentPhase::Waiting { retry: moment.now, give_up: moment.watched.plus(CLOSE_PATIENCE) },
    };
    let wish = &mut core.table.intents[intent as usize];
    (wish.endpoint, wish.expects, wish.phase) = (endpoint, expects, phase);
    (wish.last_end, wish.was_ready) = (None, false);
    wish.backoff.reset();
    if let IntentPhase::Connected { connection } = phase {
        life::give_up(core, connection, LostReason::Retired);
        life::disown(core, connection);
    } else {
        core.agenda.retry(moment.now, intent);
    }
}

/// Whom an intent of a mesh led to is remembered for its sake no longer.
fn forget_peer(core: &mut Core, intent: u32) {
    let channel = core.table.intents[intent as usize].channel;
    if let Some(mesh) = core.channels.node_mut(channel) {
        mesh.roster.release(intent);
    }
}

/// Whom to dial, and what it must be.
pub(super) type Wish = (Endpoint, Expects);

/// Replaces the intents of one source by those of a new list. Those that stay are left alone; a new one takes the place of
/// one that goes where it has its endpoint or its RID, and is dialled when that one is physically closed.
pub(super) fn replace(core: &mut Core, channel: u32, wanted: Vec<Wish>, is_described: bool) {
    let intents = || {
        let is_its = |intent: &Intent| intent.channel == channel && intent.is_described == is_described;
        (0..).zip(&core.table.intents).filter(move |(_, intent)| is_its(intent))
    };
    let stays = |intent: &Intent, (endpoint, expects): &Wish| {
        intent.phase != IntentPhase::Retired && intent.endpoint == *endpoint && intent.expects == *expects
    };
    let mut going: Vec<u32> = intents()
        .filter(|(_, intent)| !wanted.iter().any(|wish| stays(intent, wish)))
        .map(|(number, _)| number)
        .collect();
    let mut coming: Vec<Wish> =
        wanted.into_iter().filter(|wish| !intents().any(|(_, intent)| stays(intent, wish))).collect();
    // Who has the endpoint of one that goes takes its place before who has only its RID.
    coming.sort_by_cached_key(|wish| predecessor(core, &going, wish, has_endpoint).is_none());
    let mut fresh = Vec::new();
    for wish in coming {
        let place = predecessor(core, &going, &wish, has_endpoint)
            .or_else(|| predecessor(core, &going, &wish, has_rid));
        if let Some(place) = place {
            redirect(core, going.swap_remove(place), wish.0, wish.1);
        } else {
            fresh.push(wish);
        }
    }
    for intent in going {
        retire(core, intent);
    }
    // Only now, because a new one may take the very place of one that is over and done with.
    for (endpoint, expects) in fresh {
        let intent = core.add_intent(channel, endpoint, expects);
        core.table.intents[intent as usize].is_described = is_described;
    }
}

fn has_endpoint(intent: &Intent, (endpoint, _): &Wish) -> bool {
    intent.endpoint == *endpoint
}

fn has_rid(intent: &Intent, (_, expects): &Wish) -> bool {
    expects.rid.is_some() && intent.expects.rid == expects.rid
}

/// The first of those that go whose place a new one can take.
fn predecessor(core: &Core, going: &[u32], wish: &Wish, fits: fn(&Intent, &Wish) -> bool) -> Option<usize> {
    going.iter().position(|intent| fits(&core.table.intents[*intent as usize], wish))
}

/// Whether each endpoint is named once.
pub(super) fn check_once(topology: &TopologyName, wanted: &[Wish]) -> Result<(), RegisterError> {
    for (at, (endpoint, _)) in wanted.iter().enumerate() {
        if wanted[..at].iter().any(|(earlier, _)| earlier == endpoint) {
            let (topology, endpoint) = (topology.clone(), endpoint.clone());
            return Err(RegisterError::EndpointTwice { topology, endpoint });
        }
    }
    Ok(())
}

/// Another connection to the peer that an intent is for, if there is one that stands or is about to.
pub(super) fn covering(core: &Core, intent: u32) -> Option<u32> {
    let wish = &core.table.intents[intent as usize];
    if !core.channels.get(wish.channel).is_mesh() {
        return None;
    }
    let is_other = |connection: &Connection| match connection.side {
        Side::Dialled { intent: of } => of != intent && connection.stands(),
        Side::Accepted { .. } => connection.stands() || connection.phase == Phase::Joining,
        Side::Own => false,
    };
    if let Some(rid) = &wish.expects.rid {
        let named = core.table.named(wish.channel, rid);
        return named.filter(|named| core.table.get(*named).is_some_and(is_other));
    }
    // What a node says of where it listens is believed where that endpoint itself has said that it has a connection.
    let is_duplicate =
        wish.last_end == Some(End::Failed(Failure::Refused(RejectReason::DuplicateConnection)));
    let leads_there = |connection: &Connection| {
        let was_dialled = connection.peer.as_ref().and_then(|peer| peer.endpoint());
        was_dialled == Some(&wish.endpoint)
            || is_duplicate && advertised(connection).as_ref() == Some(&wish.endpoint)
    };
    let of_this_mesh = core.table.iter().filter(|(_, connection)| connection.channel == wish.channel);
    let mut others = of_this_mesh.filter(|(_, connection)| is_other(connection));
    others.find(|(_, connection)| leads_there(connection)).map(|(index, _)| index)
}

/// Where the peer says that it takes application lanes.
fn advertised(connection: &Connection) -> Option<Endpoint> {
    Admission::parse(&connection.admission).ok()?.endpoint()?.parse().ok()
}
