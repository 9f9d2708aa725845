//! Attempts to connect: what is dialled when, on which lanes. Each begins with fresh lanes and reuses nothing.

use super::table::{Behind, Carries, IntentPhase, LaneEntry};
use super::{ChannelEnd, Core, fanout, intents, life, succession};
use crate::clock::WATCH_AGAIN;
use crate::config::random;
use crate::io::Dial;
use crate::link::connection::{Connection, End, Failure, Phase, Side};
use crate::name::Endpoint;
use crate::wire::{Admission, Lane, Pair};

/// An intent's retry came due: the next attempt begins, unless the last one's lanes are not physically closed yet, or
/// the attempt has another lane to open.
pub(crate) fn retry(core: &mut Core, intent: u32) {
    let moment = core.watch.moment();
    let (retry, give_up) = match core.table.intents[intent as usize].phase {
        IntentPhase::Waiting { retry, give_up } => (retry, give_up),
        IntentPhase::Connected { connection } => return dial_completion(core, connection),
        // Whoever waits for the end of its lanes has waited long enough.
        IntentPhase::Retired => {
            let heir = core.table.intents[intent as usize].heir.take();
            return succession::come_in_at_last(core, heir);
        }
        _ => return,
    };
    if retry > moment.now {
        return;
    }
    if core.table.is_closing_where(intent) && moment.watched < give_up {
        // The lane's last event brings the retry forward. Until then the watch runs, one step a turn at most.
        let again = moment.now.plus(give_up.since(moment.watched).min(WATCH_AGAIN));
        core.agenda.retry(again, intent);
        return;
    }
    let heir = core.table.intents[intent as usize].heir.take();
    succession::come_in_at_last(core, heir);
    match intents::covering(core, intent) {
        Some(connection) => core.table.intents[intent as usize].phase = IntentPhase::Covered { connection },
        None => dial(core, intent),
    }
}

/// Begins an attempt on an intent.
fn dial(core: &mut Core, intent: u32) {
    let wish = &core.table.intents[intent as usize];
    let (channel, endpoint) = (wish.channel, wish.endpoint.clone());
    // Whoever sees one pair must not know the next: with it a stranger could claim the other lane.
    let pair = Pair::new(random()).unwrap_or(Pair::FIRST);
    let Some(connection) = dial_lane(core, intent, &endpoint, Lane::Application, pair) else {
        return intents::ended(core, intent, End::Failed(Failure::NoSocket));
    };
    if let ChannelEnd::Subscriber(_) = core.channels.get(channel).end {
        fanout::open(core, connection);
    }
    core.table.intents[intent as usize].phase = IntentPhase::Connected { connection };
}

/// Dials the completion lane of a pair whose application lane is admitted.
fn dial_completion(core: &mut Core, index: u32) {
    let Some(connection) = core.table.get(index) else { return };
    let Side::Dialled { intent } = connection.side else { return };
    if connection.phase != Phase::Joining || connection.partner.is_some() {
        return;
    }
    let pair = connection.pair;
    let endpoint = Admission::parse(&connection.admission)
        .ok()
        .and_then(|admit| admit.completion())
        .and_then(|endpoint| endpoint.parse::<Endpoint>().ok());
    let dialled = endpoint.and_then(|endpoint| dial_lane(core, intent, &endpoint, Lane::Completion, pair));
    match dialled {
        Some(completion) => core.table.join(index, completion),
        None => life::end(core, index, End::Failed(Failure::NoSocket)),
    }
}

/// Opens a fresh lane for an intent; none if the system had no socket for it.
fn dial_lane(core: &mut Core, intent: u32, endpoint: &Endpoint, leg: Lane, pair: Pair) -> Option<u32> {
    let channel = core.table.intents[intent as usize].channel;
    let lane_index = core.table.lanes.vacant_key() as u32;
    let registered = core.channels.get(channel);
    let (kind, carries) = match (&registered.end, leg) {
        (ChannelEnd::Subscriber(_), _) => (Dial::Sub, Carries::Published),
        (ChannelEnd::Mesh(_), Lane::Application) => (Dial::Router, Carries::Application),
        (ChannelEnd::Mesh(_), Lane::Completion) => (Dial::Router, Carries::Completion),
        _ => (Dial::Dealer, Carries::Application),
    };
    let frame_bytes_max = match kind {
        Dial::Sub => fanout::frame_bytes_max(registered.bytes_max),
        Dial::Dealer | Dial::Router => registered.bytes_max,
    };
    let bound_as = (kind == Dial::Router).then_some([leg.bound_identity()]);
    let lane = core
        .io
        .dial(kind, endpoint, lane_index, frame_bytes_max)
        .inspect_err(|error| log::warn!("{endpoint}: {error}"))
        .ok()?;
    let id = core.table.next_id();
    let (key, share) = core.rotation.add_dedicated(lane_index, id.index);
    let behind = Behind::Dialled { connection: id.index };
    core.add_lane(LaneEntry { id: lane, key, behind, carries });
    let side = Side::Dialled { intent };
    let connection = Connection::new(id, channel, lane_index, side, Phase::Dialling, share);
    core.table.insert(Connection { leg, bound_as, pair, ..connection });
    core.agenda.handshake(&core.watch.moment(), id);
    Some(id.index)
}
