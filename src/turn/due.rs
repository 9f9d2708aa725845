//! The due work of a turn: asks go out before verdicts fall, and both before anything of ours runs out of time.

use crate::clock::Moment;
use crate::liveness::{Due, Look, Verdict};
use crate::rotation::Looked;
use crate::topology::{Core, News, Unanswered, dialling, fanout, life, sweep};

/// How many requests, and how many handshakes, one turn lets run out of time.
const TIME_OUTS_PER_TURN_MAX: usize = 256;
/// How many attempts to connect one turn begins: each opens three sockets.
const DIALS_PER_TURN_MAX: usize = 4;

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

/// Ends what waited long enough for us: requests, handshakes and back-offs. None of it accuses a peer. What is beyond the
/// turn's bounds stays due, and so makes the next turn due at once.
pub(super) fn time_outs(core: &mut Core, moment: &Moment) {
    for _ in 0..TIME_OUTS_PER_TURN_MAX {
        let Some(request) = core.requests.next_expired(moment.now) else { break };
        core.news.push_back(News::Ended { request, why: Unanswered::TimedOut });
    }
    for _ in 0..TIME_OUTS_PER_TURN_MAX {
        let Some(id) = core.agenda.next_handshake(moment) else { break };
        sweep::handshake_over(core, id);
    }
    for _ in 0..TIME_OUTS_PER_TURN_MAX {
        let Some(id) = core.agenda.next_reminder(moment.now) else { break };
        sweep::remind(core, id);
    }
    for _ in 0..DIALS_PER_TURN_MAX {
        let Some(intent) = core.agenda.next_retry(moment.now) else { break };
        dialling::retry(core, intent);
    }
}
