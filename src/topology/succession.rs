//! Who speaks for a peer: a hello that comes while an older connection of the same peer stands is held until that one's
//! end is observed, and the older one is asked at once. Its answer refuses the newcomer (000 §5).

use super::{Core, life};
use crate::link::connection::{ConnectionId, Phase, Side};
use crate::wire::{Admission, RejectReason, RevisionOrder};

/// Whether a hello may follow the connection that speaks for the same peer now.
pub(super) fn judge_successor(core: &Core, existing: u32, hello: &Admission<'_>) -> Result<(), RejectReason> {
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

/// Lets a hello wait for the end of the connection that speaks for the same peer, which is asked at once.
pub(super) fn hold(core: &mut Core, index: u32, existing: u32) {
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
}

/// The connection that a held hello waited for is gone.
pub(super) fn admit_held(core: &mut Core, held: Option<ConnectionId>) {
    let held = held.and_then(|held| core.table.find(held)).filter(|held| held.phase == Phase::Held);
    if let Some(index) = held.map(|held| held.id.index) {
        core.owe_greeting(index);
    }
}

/// A held hello is not wanted: the peer's older connection lives, or a newer one came.
pub(super) fn refuse_held(core: &mut Core, held: Option<ConnectionId>) {
    let Some(held) = held.and_then(|held| core.table.find(held)) else { return };
    if held.phase == Phase::Held {
        let index = held.id.index;
        life::refuse(core, index, RejectReason::DuplicateConnection);
    }
}
