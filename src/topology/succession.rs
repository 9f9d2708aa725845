//! Who speaks for a peer: a hello that comes while an older connection of the same peer stands is held until that one's
//! end is observed, and the older one is asked at once. Its answer refuses the newcomer (000 §5). Of two mesh nodes that
//! dial each other the one with the larger RID gives up its dial for the other's hello.

use super::agenda::CLOSE_PATIENCE;
use super::table::{Intent, IntentPhase};
use super::{Core, life};
use crate::link::connection::{Connection, ConnectionId, End, Phase, Side};
use crate::name::Rid;
use crate::wire::{Admission, HostState, RejectReason, RevisionOrder};

/// Behind which connection of the same peer a hello has to wait, or why it may not even do that.
pub(super) fn behind_whom(
    core: &Core,
    channel: u32,
    hello: &Admission<'_>,
) -> Result<Option<u32>, RejectReason> {
    let rid = Rid::new(hello.rid()).map_err(|_| RejectReason::InvalidDescriptor)?;
    let Some(existing) = core.table.named(channel, &rid) else { return Ok(None) };
    judge_successor(core, existing, hello)?;
    Ok(Some(existing))
}

/// Whether a hello may follow the connection that speaks for the same peer now.
fn judge_successor(core: &Core, existing: u32, hello: &Admission<'_>) -> Result<(), RejectReason> {
    let Some(Ok(earlier)) = core.table.get(existing).map(|existing| Admission::parse(&existing.admission))
    else {
        return Ok(());
    };
    if earlier.security() != hello.security() {
        return Err(RejectReason::SecurityIdentityMismatch);
    }
    if earlier.generation() == hello.generation() {
        match hello.revision_order(&earlier) {
            RevisionOrder::Older => return Err(RejectReason::DescriptorRevisionStale),
            RevisionOrder::Conflicting => return Err(RejectReason::InvalidDescriptor),
            RevisionOrder::Same | RevisionOrder::Newer => {}
        }
    }
    Ok(())
}

/// Lets in whoever said a fitting hello, as soon as nobody else speaks for the same peer.
pub(super) fn come_in(core: &mut Core, index: u32, existing: Option<u32>) {
    match existing {
        Some(existing) => hold(core, index, existing),
        None if make_way(core, index) => core.owe_greeting(index),
        None => {}
    }
}

/// What a held hello waited for is gone. Another connection may have come to speak for its peer meanwhile.
pub(super) fn come_in_at_last(core: &mut Core, held: Option<ConnectionId>) {
    let held = held.and_then(|held| core.table.find(held)).filter(|held| held.phase == Phase::Held);
    let Some(Connection { id, channel, peer: Some(peer), .. }) = held else { return };
    let (index, existing) = (id.index, core.table.named(*channel, &peer.rid));
    if core.host_state == HostState::Serving {
        come_in(core, index, existing);
    } else {
        life::turn_down(core, index, RejectReason::RuntimeNotServing);
    }
}

/// A hello may come in, and says who it is. Returns whether it may be answered now; otherwise it is held.
fn make_way(core: &mut Core, index: u32) -> bool {
    let Some((channel, rid)) = identity(core, index) else { return true };
    if core.channels.get(channel).is_above(rid.as_bytes()) {
        give_up_dials(core, index);
    }
    // What was dialled to the same peer before may not be physically closed yet. It is not waited for without end.
    let watched = core.watch.moment().watched;
    let is_closing = |intent: u32, wish: &Intent| {
        wish.channel == channel
            && wish.expects.rid.as_ref() == Some(&rid)
            && match wish.phase {
                IntentPhase::Waiting { give_up, .. } => watched < give_up,
                phase => phase == IntentPhase::Retired,
            }
            && core.table.closing_of(intent).is_some()
    };
    let closing = (0..).zip(&core.table.intents).find(|(intent, wish)| is_closing(*intent, wish));
    let Some((intent, _)) = closing else { return true };
    let Some(id) = wait(core, index) else { return true };
    inherit(core, intent, id);
    false
}

/// A hello waits from now on. Its end shall be noticed, unless another connection has its number.
fn wait(core: &mut Core, index: u32) -> Option<ConnectionId> {
    let newer = core.table.get_mut(index)?;
    newer.phase = Phase::Held;
    let (id, lane) = (newer.id, newer.lane);
    if let Side::Accepted { descriptor: Some(number), .. } = newer.side {
        if core.table.listener(lane).is_some_and(|listener| listener.at_descriptor(number).is_none()) {
            core.table.bind_descriptor(index, Some(number));
        }
    }
    Some(id)
}

/// Lets a hello wait for the end of the connection that speaks for the same peer, which is asked at once.
fn hold(core: &mut Core, index: u32, existing: u32) {
    let Some(id) = wait(core, index) else { return };
    let Some(connection) = core.table.get_mut(existing) else { return };
    let overtaken = connection.successor.replace(id);
    refuse_held(core, overtaken);
    ask_again(core, existing);
}

/// Asks a connection at once, outside the grid, because another one claims to speak for its peer.
pub(super) fn ask_again(core: &mut Core, index: u32) {
    let check = core.table.get(index).and_then(|connection| connection.check);
    if let Some(id) = check.and_then(|key| core.liveness.prompt(key)) {
        core.prompt(index, id);
    }
}

/// Lets a held hello wait until the lanes of an intent, which led to the same peer, are physically closed.
pub(super) fn inherit(core: &mut Core, intent: u32, held: ConnectionId) {
    let overtaken = core.table.intents[intent as usize].heir.replace(held);
    refuse_held(core, overtaken);
    // The last event of those lanes is not waited for without end.
    core.agenda.retry(core.watch.moment().now.plus(CLOSE_PATIENCE), intent);
}

/// A held hello is not wanted: the peer's older connection lives, or a newer one came.
pub(super) fn refuse_held(core: &mut Core, held: Option<ConnectionId>) {
    let Some(held) = held.and_then(|held| core.table.find(held)) else { return };
    if held.phase == Phase::Held {
        let index = held.id.index;
        life::refuse(core, index, RejectReason::DuplicateConnection);
    }
}

/// Gives up every dial under way that leads to the peer of this connection.
pub(super) fn give_up_dials(core: &mut Core, index: u32) {
    let Some((channel, rid)) = identity(core, index) else { return };
    let rival = |wish: &Intent| {
        let IntentPhase::Connected { connection } = wish.phase else { return None };
        let dial = core.table.get(connection).filter(|dial| dial.id.index != index)?;
        let is_under_way = matches!(dial.phase, Phase::Dialling | Phase::Greeting | Phase::Joining);
        let leads_to = dial.peer.as_ref().map(|peer| &peer.rid).or(wish.expects.rid.as_ref());
        (wish.channel == channel && is_under_way && leads_to == Some(&rid)).then_some(connection)
    };
    let rivals: Vec<u32> = core.table.intents.iter().filter_map(rival).collect();
    for rival in rivals {
        life::end(core, rival, End::Unadmitted);
    }
}

/// The mesh and the peer of a pair whose peer is known.
pub(super) fn identity(core: &Core, index: u32) -> Option<(u32, Rid)> {
    let connection = core.table.get(index)?;
    let peer = connection.peer.as_ref()?;
    core.channels.get(connection.channel).is_mesh().then(|| (connection.channel, peer.rid.clone()))
}
