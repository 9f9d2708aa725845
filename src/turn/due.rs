//! The due work of a turn: asks go out before verdicts fall, and both before anything of ours runs out of time.

use crate::clock::Moment;
use crate::liveness::{Due, Look, Verdict};
use crate::rotation::Looked;
use crate::topology::{Core, News, Unanswered, fanout, intents, life};

/// Sends the asks and beacons that are due.
pub(super) fn asks(core: &mut Core, moment: &Moment) {
    let mut sweep = core.liveness.sweep(moment);
    while let Some(due) = core.liveness.next_due(&mut sweep) {
        let (owner, id, missed) = match due {
            Due::Ask { owner, id, missed, .. } => (owner, id, missed),
            Due::Beacon { owner } => {
                fanout::beacon(core, owner);
                continue;
            }
        };
        let peer = core.table.get(owner).and_then(|connection| connection.peer.clone());
        if let (Some(asks), Some(peer)) = (missed, peer) {
            core.news.push_back(News::Missed { peer, asks });
        }
        core.ask(owner, id);
    }
}

/// Passes the verdicts that are due.
pub(super) fn verdicts(core: &mut Core, moment: &Moment, verdicts: &mut Vec<Verdict>) {
    let Core { liveness, table, rotation, .. } = core;
    let look = |owner| {
        let Some(share) = table.get(owner).map(|connection| connection.share) else { return Look::None };
        if rotation.is_held_back(share) {
            return Look::Paused;
        }
        match rotation.looked_at_peer(share) {
            Looked::Empty => Look::Empty,
            Looked::Unread => Look::Unread,
            Looked::No => Look::None,
        }
    };
    core.verdicts_left = liveness.judge(moment, look, verdicts);
    for verdict in verdicts.drain(..) {
        life::judged(core, verdict.owner, verdict.silence);
    }
}

/// Ends what waited long enough for us: requests, handshakes and back-offs. None of it accuses a peer.
pub(super) fn time_outs(core: &mut Core, moment: &Moment) {
    while let Some(request) = core.requests.next_expired(moment.now) {
        core.news.push_back(News::Ended { request, why: Unanswered::TimedOut });
    }
    while let Some(id) = core.agenda.next_handshake(moment) {
        life::handshake_over(core, id);
    }
    while let Some(id) = core.agenda.next_reminder(moment.now) {
        life::remind(core, id);
    }
    while let Some(intent) = core.agenda.next_retry(moment.now) {
        intents::retry(core, intent);
    }
}
