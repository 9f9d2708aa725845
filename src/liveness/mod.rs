//! Who is asked, when silence counts, and when it is a verdict: one structure for all three topologies (000 §2).
//!
//! A [`Check`] stands for one connection that is asked and judged, one publisher that is heard and judged, or one
//! beacon that we owe. What we owe runs on the clock: a ring of checks in the order of their next grid point, swept
//! like a dial by a hand. What we hold against others runs on the watch: every deadline is "watched + 15 s", so the
//! order of arming is the order of expiry, and a ring in that order is a queue of deadlines. A connection without
//! evidence goes from `armed` to `suspects`, and only a second look in a later turn makes it a verdict.
//!
//! Nothing here knows a socket, a record or a host. The caller sends what it is told to send, says what the transport
//! did with it, and says which lanes it looked at.

mod ring;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use slab::Slab;

use crate::clock::{ClockTime, Moment, WATCH_AGAIN, WATCH_STEP, WatchTime};
use ring::{Axis, Links, Ring};

/// Every connection is asked, and every publisher sends a beacon, once in this span of clock: 5 s, configurable nowhere
/// (000 §2).
pub const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// A connection is kept this long without evidence, in watched time: 15 s, configurable nowhere (000 §2).
pub const PEER_DEADLINE: Duration = Duration::from_secs(15);
/// The clock time between the suspicion of a peer and the earliest verdict, so that what already waits in the kernel
/// when a stopped process wakes has its chance to be read: 50 ms.
pub const SECOND_LOOK: Duration = Duration::from_millis(50);
/// A turn sends at least this many due asks and beacons before the rest waits for the next turn.
pub(crate) const ASKS_PER_TURN_MIN: usize = 64;
/// A turn passes at most this many verdicts before the rest waits for the next turn.
pub(crate) const VERDICTS_PER_TURN_MAX: usize = 256;

/// A verdict takes this many asked grid points without an answer (004: silence is counted in probes).
const ASKS_BEFORE_VERDICT: u8 = (PEER_DEADLINE.as_secs() / CHECK_INTERVAL.as_secs()) as u8;
/// The longest identity a generation may have, so that a probe id stays below 2^63.
const GENERATION_MAX: u32 = (1 << 31) - 1;

const _: () = {
    assert!(ASKS_BEFORE_VERDICT == 3);
    assert!(PEER_DEADLINE.as_nanos() == ASKS_BEFORE_VERDICT as u128 * CHECK_INTERVAL.as_nanos());
    assert!(SECOND_LOOK.as_nanos() < WATCH_STEP.as_nanos());
    assert!(WATCH_STEP.as_nanos() <= CHECK_INTERVAL.as_nanos());
    // One connection's state is one cache line.
    assert!(size_of::<Check>() == 64);
};

/// A handle on one check. A handle whose check has ended is refused everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CheckKey {
    index: u32,
    generation: u32,
}

/// Something that must go out now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Send this probe on the owner's connection, then call [`Liveness::taken`] or [`Liveness::refused`].
    Ask {
        key: CheckKey,
        owner: u32,
        id: u64,
        /// How many asks have now stayed unanswered until the next grid point, every second of it watched, where the
        /// host wants an early warning: 1, 2, otherwise none.
        missed: Option<u8>,
    },
    /// Send the beacon on the owner's publisher.
    Beacon { owner: u32 },
}

/// What this turn saw of the lane that a check's evidence would come by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Not looked at: silence on it proves nothing.
    None,
    /// Read until empty.
    Empty,
    /// Every connection behind it had its chance, and more input waits.
    Unread,
    /// The host's pause keeps it unread.
    Paused,
}

/// Why a peer was judged. It never says that the peer is dead, only what this engine did and did not get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Silence {
    /// Three probes were sent and none was answered within 15 s of watched time.
    NoAnswer,
    /// As `NoAnswer`, while more input of its lane waited unread: the answer may lie behind the peer's own backlog.
    NoAnswerUnread,
    /// As `NoAnswer`, while the host's own pause kept the lane unread.
    NoAnswerPaused,
    /// No slot came free in the pipe for at least one of the three probes.
    NotAskable,
    /// A publisher sent no record for 15 s of watched time.
    NoRecord,
}

impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoAnswer => "no answer to three probes",
            Self::NoAnswerUnread => "no answer to three probes, and more input of its lane unread",
            Self::NoAnswerPaused => "no answer to three probes, and this host paused",
            Self::NotAskable => "no room for a probe to it",
            Self::NoRecord => "no record of the publisher",
        })
    }
}

/// A check that ended by its deadline. It is already forgotten here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) owner: u32,
    pub(crate) silence: Silence,
}

/// Why liveness wants the next turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// An ask or a beacon is due.
    Ask,
    /// A first or second look is due.
    Look,
    /// A deadline runs, and a turn vouches for no more than one step.
    Watch,
}

/// Where the outstanding ask of a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    /// None is outstanding.
    Answered,
    /// Handed to the caller, who has not yet said what the transport did. `sent`: the same id went out before.
    Handed { sent: bool },
    /// The transport refused it in every turn so far.
    Owed { sent: bool },
    /// The transport took it; `at_once` if in the very turn of its grid point.
    Taken { at_once: bool },
}

/// What a check does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Duty {
    /// Owes a beacon on each grid point.
    Beacon,
    /// Waits for a publisher's records.
    Hear,
    /// Asks a connection on each grid point and waits for its answers.
    Ask(Ask),
}

/// One connection's liveness.
#[derive(Debug)]
struct Check {
    /// The next grid point, if asks or beacons are owed.
    due: ClockTime,
    /// Without evidence until here, a suspect becomes a verdict.
    deadline: WatchTime,
    /// When the first look found no evidence; then the check hangs among the suspects.
    suspected: Option<ClockTime>,
    links: [Links; 2],
    generation: u32,
    /// Counts this check's probe ids.
    sequence: u32,
    owner: u32,
    duty: Duty,
    /// Grid points asked since the last evidence; saturates.
    asked: u8,
    /// Asks that stayed unanswered for a whole watched interval since the last evidence; saturates.
    missed: u8,
    /// Some grid point since the last evidence was refused in every turn of its interval.
    refused: bool,
}

impl Check {
    /// The id of the outstanding ask. The generation in it keeps an id of one connection from ever matching another's.
    fn id(&self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.sequence)
    }

    /// Opens a grid point: the outstanding id again, or a new one.
    fn ask(&mut self) -> u64 {
        let sent = match self.duty {
            Duty::Ask(Ask::Taken { .. } | Ask::Owed { sent: true } | Ask::Handed { sent: true }) => true,
            Duty::Ask(Ask::Owed { sent: false } | Ask::Handed { sent: false }) => false,
            Duty::Ask(Ask::Answered) | Duty::Beacon | Duty::Hear => {
                self.sequence = self.sequence.wrapping_add(1).max(1);
                false
            }
        };
        self.duty = Duty::Ask(Ask::Handed { sent });
        self.id()
    }

    /// Closes the grid point that `self.due` ends: what became of its ask, and whether the host is to be warned.
    fn close_point(&mut self, watching_since: ClockTime) -> Option<u8> {
        match self.duty {
            Duty::Ask(Ask::Owed { .. } | Ask::Handed { .. }) => {
                self.asked = self.asked.saturating_add(1);
                self.refused = true;
                None
            }
            Duty::Ask(Ask::Taken { at_once: true }) if watching_since.plus(CHECK_INTERVAL) <= self.due => {
                self.missed = self.missed.saturating_add(1);
                (self.missed < ASKS_BEFORE_VERDICT).then_some(self.missed)
            }
            _ => None,
        }
    }

    fn may_be_judged(&self, watched: WatchTime) -> bool {
        watched >= self.deadline && (self.duty == Duty::Hear || self.asked >= ASKS_BEFORE_VERDICT)
    }

    fn silence(&self, look: Look) -> Silence {
        match look {
            _ if self.duty == Duty::Hear => Silence::NoRecord,
            _ if self.refused => Silence::NotAskable,
            Look::Paused => Silence::NoAnswerPaused,
            Look::Unread => Silence::NoAnswerUnread,
            Look::Empty | Look::None => Silence::NoAnswer,
        }
    }
}

/// One sweep of the hand over the grid, good for one turn.
#[derive(Debug)]
pub(crate) struct Sweep {
    moment: Moment,
    left: usize,
}

/// All liveness of one engine.
#[derive(Debug)]
pub(crate) struct Liveness {
    checks: Slab<Check>,
    generation: u32,
    /// All that owes asks or beacons, in the order of `due`; the hand stands before the head.
    dial: Ring,
    /// Began since the hand last came by and asked once already; each joins the dial when the hand comes to its point.
    fresh: Ring,
    /// All that is judged and not suspect, in the order of `deadline`.
    armed: Ring,
    /// All suspects, in the order of `suspected`.
    suspects: Ring,
    /// After a gap of an interval or more the dial is out of order until the hand has been all around.
    disordered: bool,
    scratch: Vec<u32>,
}

impl Liveness {
    pub(crate) fn new() -> Self {
        Self {
            checks: Slab::new(),
            generation: 0,
            dial: Ring::new(Axis::Asks),
            fresh: Ring::new(Axis::Asks),
            armed: Ring::new(Axis::Deadlines),
            suspects: Ring::new(Axis::Deadlines),
            disordered: false,
            scratch: Vec::new(),
        }
    }

    /// How many checks there are.
    pub(crate) fn len(&self) -> usize {
        self.checks.len()
    }

    /// A connection became ready: its deadline runs, its grid begins here, and the ask returned goes out at once.
    pub(crate) fn begin(&mut self, owner: u32, moment: &Moment) -> (CheckKey, u64) {
        let key = self.insert(owner, Duty::Ask(Ask::Answered), moment);
        let id = self.checks[key.index as usize].ask();
        self.fresh.join(&mut self.checks, key.index);
        self.armed.join(&mut self.checks, key.index);
        (key, id)
    }

    /// A publisher's first valid record came: its deadline runs.
    pub(crate) fn hear(&mut self, owner: u32, moment: &Moment) -> CheckKey {
        let key = self.insert(owner, Duty::Hear, moment);
        self.armed.join(&mut self.checks, key.index);
        key
    }

    /// A publisher of ours opened: its grid begins here, and the first beacon goes out at once.
    pub(crate) fn beacon(&mut self, owner: u32, moment: &Moment) -> CheckKey {
        let key = self.insert(owner, Duty::Beacon, moment);
        self.fresh.join(&mut self.checks, key.index);
        key
    }

    /// The check's owner ended. Returns whether there was still something to end.
    pub(crate) fn end(&mut self, key: CheckKey) -> bool {
        let live = self.find(key).is_some();
        if live {
            self.remove(key.index);
        }
        live
    }

    /// The transport took the ask.
    pub(crate) fn taken(&mut self, key: CheckKey) {
        if let Some(check) = self.find_mut(key) {
            if let Duty::Ask(ask @ (Ask::Handed { .. } | Ask::Owed { .. })) = check.duty {
                check.asked = check.asked.saturating_add(1);
                check.duty = Duty::Ask(Ask::Taken { at_once: matches!(ask, Ask::Handed { .. }) });
            }
        }
    }

    /// The transport refused the ask: it is owed, to be tried first in every turn.
    pub(crate) fn refused(&mut self, key: CheckKey) {
        if let Some(check) = self.find_mut(key) {
            if let Duty::Ask(Ask::Handed { sent }) = check.duty {
                check.duty = Duty::Ask(Ask::Owed { sent });
            }
        }
    }

    /// The id of an owed ask.
    pub(crate) fn owed(&self, key: CheckKey) -> Option<u64> {
        let check = self.find(key)?;
        matches!(check.duty, Duty::Ask(Ask::Owed { .. })).then(|| check.id())
    }

    /// The id to ask with outside the grid, because the answer is wanted now: the outstanding one, or a new one. It is
    /// awaited from here on, whatever the transport does with it. The grid and its count of asked points do not move.
    pub(crate) fn prompt(&mut self, key: CheckKey) -> Option<u64> {
        let check = self.find_mut(key)?;
        match &mut check.duty {
            Duty::Beacon | Duty::Hear => return None,
            Duty::Ask(Ask::Answered) => {
                check.ask();
                check.duty = Duty::Ask(Ask::Taken { at_once: false });
            }
            Duty::Ask(Ask::Handed { sent } | Ask::Owed { sent }) => *sent = true,
            Duty::Ask(Ask::Taken { .. }) => {}
        }
        Some(check.id())
    }

    /// An ACK came on this connection. Returns whether it was the first one with the awaited id: that alone counts
    /// (000 §3). An id that never went out is awaited by nobody.
    pub(crate) fn answer(&mut self, key: CheckKey, id: u64, moment: &Moment) -> bool {
        let Some(check) = self.find_mut(key) else { return false };
        let awaited = matches!(
            check.duty,
            Duty::Ask(Ask::Taken { .. } | Ask::Owed { sent: true } | Ask::Handed { sent: true })
        );
        if !awaited || check.id() != id {
            return false;
        }
        check.duty = Duty::Ask(Ask::Answered);
        check.asked = 0;
        check.missed = 0;
        check.refused = false;
        self.rearm(key.index, moment);
        true
    }

    /// A valid record of a publisher came.
    pub(crate) fn heard(&mut self, key: CheckKey, moment: &Moment) {
        if self.find(key).is_some_and(|check| check.duty == Duty::Hear) {
            self.rearm(key.index, moment);
        }
    }

    /// Begins the turn's sweep: what is due by `moment.now` goes out, within a bound that never slows the grid.
    pub(crate) fn sweep(&mut self, moment: &Moment) -> Sweep {
        self.admit_fresh();
        let Some(late) = self.dial.head().and_then(|head| moment.now.past(self.checks[head as usize].due))
        else {
            return Sweep { moment: *moment, left: 0 };
        };
        if late >= CHECK_INTERVAL {
            // The whole dial is due. Its order is lost, because missed points are skipped, and found again at the end.
            self.disordered = true;
        }
        let left = if self.disordered { self.len() } else { asks_per_turn(self.len(), moment.gap) };
        Sweep { moment: *moment, left }
    }

    /// The next thing that must go out; none when the sweep is over.
    pub(crate) fn next_due(&mut self, sweep: &mut Sweep) -> Option<Due> {
        let Moment { now, watching_since, .. } = sweep.moment;
        self.admit_fresh();
        let head = self.dial.head()?;
        let check = &mut self.checks[head as usize];
        if check.due > now || sweep.left == 0 {
            if self.disordered {
                self.restore_order();
            }
            return None;
        }
        sweep.left -= 1;
        self.dial.rotate(&self.checks);
        let check = &mut self.checks[head as usize];
        let missed = check.close_point(watching_since);
        check.due = next_point(check.due, now);
        let owner = check.owner;
        if check.duty == Duty::Beacon {
            return Some(Due::Beacon { owner });
        }
        let key = CheckKey { index: head, generation: check.generation };
        Some(Due::Ask { key, owner, id: check.ask(), missed })
    }

    /// Looks at all that is without evidence: first looks become suspicions, second looks become verdicts. Call it once
    /// a turn, after the asks went out. Returns whether further verdicts wait for the next turn.
    pub(crate) fn judge(
        &mut self,
        moment: &Moment,
        look: impl Fn(u32) -> Look,
        verdicts: &mut Vec<Verdict>,
    ) -> bool {
        let more = self.look_again(moment, &look, verdicts);
        self.look_first(moment, &look);
        more
    }

    /// When a turn is wanted at the latest, and why; none while there is nothing to ask and nobody to judge.
    pub(crate) fn wanted(&self, moment: &Moment) -> Option<(ClockTime, Why)> {
        let asks = [&self.dial, &self.fresh]
            .into_iter()
            .filter_map(Ring::head)
            .map(|head| (self.checks[head as usize].due, Why::Ask));
        let looks = [self.first_look(moment), self.second_look(moment)].into_iter().flatten();
        let looks = looks.map(|at| {
            let again = moment.now.plus(WATCH_AGAIN);
            if at <= again { (at, Why::Look) } else { (again, Why::Watch) }
        });
        asks.chain(looks).min_by_key(|&(at, _)| at)
    }

    /// The second looks of a turn.
    fn look_again(
        &mut self,
        moment: &Moment,
        look: &impl Fn(u32) -> Look,
        verdicts: &mut Vec<Verdict>,
    ) -> bool {
        let most = verdicts.len() + VERDICTS_PER_TURN_MAX;
        let mut next = self.suspects.head();
        while let Some(index) = next {
            let check = &mut self.checks[index as usize];
            let suspected = check.suspected.unwrap_or(moment.now);
            let fresh = suspected < moment.watching_since;
            if !fresh && moment.now.since(suspected) < SECOND_LOOK {
                return false;
            }
            next = self.suspects.after(&self.checks, index);
            let check = &mut self.checks[index as usize];
            let look = look(check.owner);
            if look == Look::None {
                continue;
            }
            if fresh {
                // A gap that nobody watched lies between: this is a first look again.
                check.suspected = Some(moment.now);
                ring::leave([&mut self.suspects], &mut self.checks, index);
                self.suspects.join(&mut self.checks, index);
            } else if check.may_be_judged(moment.watched) {
                if verdicts.len() == most {
                    return true;
                }
                verdicts.push(Verdict { owner: check.owner, silence: check.silence(look) });
                self.remove(index);
            }
        }
        false
    }

    /// The first looks of a turn.
    fn look_first(&mut self, moment: &Moment, look: &impl Fn(u32) -> Look) {
        let mut next = self.armed.head();
        while let Some(index) = next {
            let check = &mut self.checks[index as usize];
            if moment.watched.plus(SECOND_LOOK) < check.deadline {
                return;
            }
            let looked = look(check.owner) != Look::None;
            next = self.armed.after(&self.checks, index);
            if looked {
                self.checks[index as usize].suspected = Some(moment.now);
                ring::leave([&mut self.armed], &mut self.checks, index);
                self.suspects.join(&mut self.checks, index);
            }
        }
    }

    /// When the next first look can happen, if every turn until then is watched.
    fn first_look(&self, moment: &Moment) -> Option<ClockTime> {
        let mut next = self.armed.head();
        let mut passed = None;
        while let Some(index) = next {
            let until = self.checks[index as usize].deadline.since(moment.watched.plus(SECOND_LOOK));
            if !until.is_zero() {
                return Some(moment.now.plus(until.min(passed.unwrap_or(until))));
            }
            // Its lane was not looked at: again before long.
            passed = Some(SECOND_LOOK);
            next = self.armed.after(&self.checks, index);
        }
        passed.map(|span| moment.now.plus(span))
    }

    /// When the next second look can happen, if every turn until then is watched.
    fn second_look(&self, moment: &Moment) -> Option<ClockTime> {
        let mut next = self.suspects.head();
        let mut passed = None;
        while let Some(index) = next {
            let check = &self.checks[index as usize];
            let looked = check.suspected.map_or(Duration::ZERO, |at| moment.now.since(at));
            // By then the deadline has passed too: the first look came no earlier than this span before it.
            let until = SECOND_LOOK.saturating_sub(looked);
            if !until.is_zero() {
                return Some(moment.now.plus(until.min(passed.unwrap_or(until))));
            }
            // Its lane was not looked at, or its third ask is still owed: again before long.
            passed = Some(SECOND_LOOK);
            next = self.suspects.after(&self.checks, index);
        }
        passed.map(|span| moment.now.plus(span))
    }

    /// Lets those that began on or before the hand's place join the dial, where their grid point belongs.
    fn admit_fresh(&mut self) {
        while let Some(index) = self.fresh.head() {
            let began_before_hand = self.dial.head().is_none_or(|head| {
                self.checks[index as usize].due < self.checks[head as usize].due.plus(CHECK_INTERVAL)
            });
            if !began_before_hand && !self.disordered {
                return;
            }
            ring::leave([&mut self.fresh], &mut self.checks, index);
            self.dial.join(&mut self.checks, index);
        }
    }

    /// Sorts the dial by its grid points again, after the hand has been all around.
    fn restore_order(&mut self) {
        let mut members = std::mem::take(&mut self.scratch);
        self.dial.take(&mut self.checks, &mut members);
        members.sort_by_key(|&index| self.checks[index as usize].due);
        for index in members.drain(..) {
            self.dial.join(&mut self.checks, index);
        }
        self.scratch = members;
        self.disordered = false;
    }

    fn insert(&mut self, owner: u32, duty: Duty, moment: &Moment) -> CheckKey {
        self.generation = if self.generation == GENERATION_MAX { 1 } else { self.generation + 1 };
        let index = self.checks.insert(Check {
            due: moment.now.plus(CHECK_INTERVAL),
            deadline: moment.watched.plus(PEER_DEADLINE),
            suspected: None,
            links: [Links::LOOSE; 2],
            generation: self.generation,
            sequence: 0,
            owner,
            duty,
            asked: 0,
            missed: 0,
            refused: false,
        });
        CheckKey { index: index as u32, generation: self.generation }
    }

    fn find(&self, key: CheckKey) -> Option<&Check> {
        self.checks.get(key.index as usize).filter(|check| check.generation == key.generation)
    }

    fn find_mut(&mut self, key: CheckKey) -> Option<&mut Check> {
        self.checks.get_mut(key.index as usize).filter(|check| check.generation == key.generation)
    }

    /// Verifies the order of every ring, and that each check hangs where its duty says. For tests: it walks everything.
    #[cfg(test)]
    pub(crate) fn verify(&self) {
        let walk = |ring: &Ring| {
            std::iter::successors(ring.head(), |&index| ring.after(&self.checks, index))
                .map(|index| &self.checks[index as usize])
                .collect::<Vec<_>>()
        };
        let (dial, fresh) = (walk(&self.dial), walk(&self.fresh));
        let (armed, suspects) = (walk(&self.armed), walk(&self.suspects));
        assert!(self.disordered || dial.is_sorted_by_key(|check| check.due));
        assert!(fresh.is_sorted_by_key(|check| check.due));
        assert!(armed.is_sorted_by_key(|check| check.deadline));
        assert!(suspects.is_sorted_by_key(|check| check.suspected));
        assert!(armed.iter().all(|check| check.suspected.is_none()));
        assert!(suspects.iter().all(|check| check.suspected.is_some()));
        let count =
            |wants: fn(Duty) -> bool| self.checks.iter().filter(|(_, check)| wants(check.duty)).count();
        assert_eq!(dial.len() + fresh.len(), count(|duty| duty != Duty::Hear));
        assert_eq!(armed.len() + suspects.len(), count(|duty| duty != Duty::Beacon));
    }

    /// Evidence: the deadline runs anew from here, and a suspicion is cleared.
    fn rearm(&mut self, index: u32, moment: &Moment) {
        ring::leave([&mut self.armed, &mut self.suspects], &mut self.checks, index);
        let check = &mut self.checks[index as usize];
        check.deadline = moment.watched.plus(PEER_DEADLINE);
        check.suspected = None;
        self.armed.join(&mut self.checks, index);
    }

    fn remove(&mut self, index: u32) {
        ring::leave([&mut self.dial, &mut self.fresh], &mut self.checks, index);
        ring::leave([&mut self.armed, &mut self.suspects], &mut self.checks, index);
        self.checks.remove(index as usize);
    }
}

/// How many asks and beacons one turn may send: its fair part of the grid, rounded up, and never less than the minimum.
fn asks_per_turn(checks: usize, gap: Duration) -> usize {
    let whole = CHECK_INTERVAL.as_micros() as u64;
    let gap = (gap.as_micros() as u64 + 1).min(whole);
    ASKS_PER_TURN_MIN.max((checks as u64 * gap).div_ceil(whole) as usize)
}

/// The first point after `now` on the grid that `due` lies on. Missed points are skipped, never caught up.
fn next_point(due: ClockTime, now: ClockTime) -> ClockTime {
    let late = now.since(due);
    if late < CHECK_INTERVAL {
        return due.plus(CHECK_INTERVAL);
    }
    due.plus(
        late + CHECK_INTERVAL - Duration::from_nanos((late.as_nanos() % CHECK_INTERVAL.as_nanos()) as u64),
    )
}
