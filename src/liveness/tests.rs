//! The rules of liveness one by one, and all of them at once against a model under random turns, losses and answers.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::clock::Watch;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl CheckKey {
    fn id_of(self, sequence: u32) -> u64 {
        u64::from(self.generation) << 32 | u64::from(sequence)
    }
}

/// A liveness, its watch, and a way to turn it.
struct Rig {
    liveness: Liveness,
    watch: Watch,
    moment: Moment,
}

/// What one turn did.
#[derive(Default, Debug, PartialEq)]
struct Did {
    asks: Vec<(u32, u64)>,
    warnings: Vec<(u32, u8)>,
    beacons: Vec<u32>,
    verdicts: Vec<(u32, Silence)>,
}

impl Rig {
    fn new() -> Self {
        let watch = Watch::start(ClockTime::START);
        let moment = watch.moment();
        Self { liveness: Liveness::new(), watch, moment }
    }

    fn pass(&mut self, gap: Duration) {
        self.moment = self.watch.advance(self.moment.now.plus(gap));
    }

    /// Begins a connection whose first ask the transport takes.
    fn begin(&mut self, owner: u32) -> (CheckKey, u64) {
        let (key, id) = self.liveness.begin(owner, &self.moment);
        self.liveness.taken(key);
        (key, id)
    }

    fn answer(&mut self, key: CheckKey, id: u64) -> bool {
        self.liveness.answer(key, id, &self.moment)
    }

    /// The due work of a turn at the current moment.
    fn work(&mut self, takes: impl Fn(u32) -> bool, look: impl Fn(u32) -> Look) -> Did {
        let mut did = Did::default();
        let mut sweep = self.liveness.sweep(&self.moment);
        while let Some(due) = self.liveness.next_due(&mut sweep) {
            match due {
                Due::Beacon { owner } => did.beacons.push(owner),
                Due::Ask { key, owner, id, missed } => {
                    did.asks.push((owner, id));
                    did.warnings.extend(missed.map(|missed| (owner, missed)));
                    if takes(owner) { self.liveness.taken(key) } else { self.liveness.refused(key) }
                }
            }
        }
        let mut verdicts = Vec::new();
        self.liveness.judge(&self.moment, look, &mut verdicts);
        did.verdicts = verdicts.iter().map(|verdict| (verdict.owner, verdict.silence)).collect();
        self.liveness.verify();
        did
    }

    /// A turn after `gap` on a good day: the transport takes all, and every lane is read until empty.
    fn turn(&mut self, gap: Duration) -> Did {
        self.pass(gap);
        self.work(|_| true, |_| Look::Empty)
    }

    /// Turns as a host that follows `wanted` does, for `span`; returns all that was done and when.
    fn follow(&mut self, span: Duration) -> Vec<(Duration, Did)> {
        let begin = self.moment.now;
        let mut story = Vec::new();
        while let Some((at, _)) = self.liveness.wanted(&self.moment) {
            if at.since(begin) > span {
                break;
            }
            let did = self.turn(at.since(self.moment.now));
            if did != Did::default() {
                story.push((self.moment.now.since(begin), did));
            }
        }
        story
    }
}

#[test]
fn a_dead_peer_is_asked_three_times_warned_of_twice_and_judged_at_exactly_15_s() {
    let mut rig = Rig::new();
    let (_, id) = rig.begin(7);
    let story = rig.follow(s(60));
    let asks = |did: &Did| did.asks.clone();
    assert_eq!(story.len(), 3, "{story:?}");
    assert_eq!((story[0].0, asks(&story[0].1)), (s(5), vec![(7, id)]));
    assert_eq!(story[0].1.warnings, vec![(7, 1)]);
    assert_eq!((story[1].0, asks(&story[1].1)), (s(10), vec![(7, id)]));
    assert_eq!(story[1].1.warnings, vec![(7, 2)]);
    assert_eq!((story[2].0, asks(&story[2].1)), (s(15), vec![(7, id)]));
    assert_eq!(story[2].1.verdicts, vec![(7, Silence::NoAnswer)]);
    assert_eq!(rig.liveness.len(), 0);
}

#[test]
fn only_the_first_ack_with_the_awaited_id_counts() {
    let mut rig = Rig::new();
    let (key, first) = rig.begin(1);
    let (other, foreign) = rig.begin(2);
    assert_ne!(first, foreign);
    assert!(!rig.answer(key, foreign), "an id of another connection");
    assert!(!rig.answer(key, first + 1), "an id that was never sent");
    rig.pass(s(1));
    assert!(rig.answer(key, first));
    assert!(!rig.answer(key, first), "a duplicate");
    rig.turn(ms(400));
    assert!(rig.answer(other, foreign));
    let second = rig.turn(ms(3600)).asks[0].1;
    assert_ne!(second, first, "a new id once the old one was answered");
    assert!(!rig.answer(key, first), "an older id");
    assert!(rig.answer(key, second));
    rig.liveness.end(key);
    assert!(!rig.answer(key, second), "an ended connection");
}

#[test]
fn an_id_that_never_went_out_is_answered_by_nobody() {
    let mut rig = Rig::new();
    let (key, id) = rig.liveness.begin(1, &rig.moment);
    rig.liveness.refused(key);
    assert_eq!(rig.liveness.owed(key), Some(id));
    assert!(!rig.answer(key, id));
    rig.liveness.taken(key);
    assert_eq!(rig.liveness.owed(key), None);
    assert!(rig.answer(key, id));
}

#[test]
fn an_answer_settles_an_owed_ask_of_the_same_id() {
    let mut rig = Rig::new();
    let (key, id) = rig.begin(1);
    rig.pass(s(5));
    rig.work(|_| false, |_| Look::Empty);
    assert_eq!(rig.liveness.owed(key), Some(id));
    assert!(rig.answer(key, id));
    assert_eq!(rig.liveness.owed(key), None);
}

#[test]
fn an_ask_outside_the_grid_is_awaited_and_moves_neither_the_grid_nor_its_counts() {
    let mut rig = Rig::new();
    let (key, first) = rig.begin(1);
    assert_eq!(rig.liveness.prompt(key), Some(first), "the outstanding id again");
    assert!(rig.answer(key, first));
    rig.pass(s(1));
    let second = rig.liveness.prompt(key).unwrap();
    assert_ne!(second, first);
    assert_eq!(rig.liveness.prompt(key), Some(second));
    for _ in 0..3 {
        assert_eq!(rig.turn(s(1)), Did::default());
    }
    let did = rig.turn(s(1));
    assert_eq!((did.asks, did.warnings), (vec![(1, second)], vec![]), "not unanswered for a whole interval");
    assert!(rig.answer(key, second));

    rig.turn(s(1));
    let publisher = rig.liveness.hear(2, &rig.moment);
    let beacon = rig.liveness.beacon(3, &rig.moment);
    rig.liveness.end(key);
    for key in [publisher, beacon, key] {
        assert_eq!(rig.liveness.prompt(key), None);
    }
}

#[test]
fn an_owed_ask_that_went_out_outside_the_grid_can_be_answered() {
    let mut rig = Rig::new();
    let (key, id) = rig.liveness.begin(1, &rig.moment);
    rig.liveness.refused(key);
    assert_eq!(rig.liveness.prompt(key), Some(id));
    assert!(rig.answer(key, id));
    assert_eq!(rig.liveness.owed(key), None);
}

#[test]
fn a_crowd_that_is_refused_is_handed_out_once_a_grid_point_and_the_rest_wanted_at_once() {
    let mut rig = Rig::new();
    let crowd = 3 * ASKS_PER_TURN_MIN as u32 + 8;
    let keys: Vec<_> = (0..crowd).map(|owner| rig.begin(owner).0).collect();
    (0..4).for_each(|_| _ = rig.turn(s(1)));
    rig.pass(s(1));
    let mut handed = Vec::new();
    for count in [64, 64, 64, 8, 0] {
        let did = rig.work(|_| false, |_| Look::Empty);
        assert_eq!(did.asks.len(), count);
        handed.extend(did.asks.iter().map(|&(owner, _)| owner));
        let left = handed.len() < crowd as usize;
        assert_eq!(rig.liveness.wanted(&rig.moment).unwrap().0 <= rig.moment.now, left);
        rig.pass(Duration::ZERO);
    }
    assert_eq!(handed, (0..crowd).collect::<Vec<_>>());
    assert!(keys.iter().all(|&key| rig.liveness.owed(key).is_some()));
}

#[test]
fn ids_stay_legal_and_apart_when_their_counters_start_again() {
    let mut rig = Rig::new();
    rig.liveness.generation = GENERATION_MAX - 1;
    let (last, last_id) = rig.begin(1);
    let (first, first_id) = rig.begin(2);
    assert_eq!((last.generation, first.generation), (GENERATION_MAX, 1));
    assert!(i64::try_from(last_id).is_ok() && first_id > 0 && first_id != last_id);

    rig.liveness.checks[first.index as usize].sequence = u32::MAX;
    assert!(rig.answer(first, first.id_of(u32::MAX)));
    let again = rig.turn(s(5)).asks[1].1;
    assert_eq!(again, first.id_of(1), "zero is no sequence");
}

#[test]
fn a_pipe_that_never_has_a_slot_is_not_askable_and_says_only_that() {
    let mut rig = Rig::new();
    let (key, _) = rig.liveness.begin(3, &rig.moment);
    rig.liveness.refused(key);
    let mut verdicts = Vec::new();
    for second in 1..=16 {
        rig.pass(s(1));
        let did = rig.work(|_| false, |_| Look::Empty);
        assert_eq!(did.asks.len(), usize::from(second % 5 == 0), "at {second} s");
        assert!(did.warnings.is_empty(), "an ask that never went out is not unanswered");
        verdicts.extend(did.verdicts.into_iter().map(|verdict| (second, verdict)));
    }
    assert_eq!(verdicts, vec![(16, (3, Silence::NotAskable))]);
}

#[test]
fn a_third_ask_that_is_still_owed_holds_the_verdict_back_until_its_interval_is_over() {
    let mut rig = Rig::new();
    let (key, id) = rig.begin(1);
    (0..10).for_each(|_| _ = rig.turn(s(1)));
    assert!(rig.answer(key, id), "evidence at 10 s, after three asks: they count no more");
    let mut verdicts = Vec::new();
    for second in 11..=31 {
        rig.pass(s(1));
        let did = rig.work(|_| second < 25, |_| Look::Empty);
        verdicts.extend(did.verdicts.into_iter().map(|verdict| (second, verdict)));
    }
    assert_eq!(verdicts, vec![(30, (1, Silence::NotAskable))]);
}

#[test]
fn a_connection_that_begins_in_a_late_turn_delays_nobodys_next_grid_point() {
    let mut rig = Rig::new();
    rig.begin(1);
    rig.turn(s(5) - ms(100));
    rig.pass(ms(400));
    rig.begin(2);
    assert_eq!(rig.work(|_| true, |_| Look::Empty).asks.len(), 1, "the first one is 300 ms late");
    rig.turn(ms(4_600));
    assert_eq!(rig.turn(ms(100)).asks[0].0, 1, "at 10.0 s, not with the other at 10.3 s");
    assert!(rig.turn(ms(200)).asks.is_empty());
    assert_eq!(rig.turn(ms(100)).asks[0].0, 2);
}

#[test]
fn the_reason_tells_what_the_second_look_saw() {
    for (look, silence) in [
        (Look::Empty, Silence::NoAnswer),
        (Look::Unread, Silence::NoAnswerUnread),
        (Look::Paused, Silence::NoAnswerPaused),
    ] {
        let mut rig = Rig::new();
        rig.begin(1);
        let mut verdicts = Vec::new();
        for _ in 0..17 {
            rig.pass(s(1));
            verdicts.extend(rig.work(|_| true, |_| look).verdicts);
        }
        assert_eq!(verdicts, vec![(1, silence)]);
    }
}

#[test]
fn a_lane_nobody_looked_at_convicts_nobody() {
    let mut rig = Rig::new();
    let (key, id) = rig.begin(1);
    for _ in 0..100 {
        rig.pass(s(1));
        assert!(rig.work(|_| true, |_| Look::None).verdicts.is_empty());
        let (at, _) = rig.liveness.wanted(&rig.moment).unwrap();
        assert!(at > rig.moment.now, "no host spins for a lane that the next rotation reads anyway");
    }
    assert!(rig.answer(key, id));
}

#[test]
fn case_4_a_jump_of_three_hours_accuses_nobody_and_a_peer_really_gone_is_judged_at_15_s_watched() {
    let mut rig = Rig::new();
    let (key, id) = rig.begin(1);
    rig.turn(s(1));
    assert!(rig.answer(key, id));
    let did = rig.turn(s(3 * 3600));
    assert!(did.verdicts.is_empty() && did.warnings.is_empty());
    assert_eq!(did.asks.len(), 1, "missed points are skipped, never caught up");
    let watched = rig.moment.watched;
    let story = rig.follow(s(60));
    let (_, did) = story.last().unwrap();
    assert_eq!(did.verdicts, vec![(1, Silence::NoAnswer)]);
    assert_eq!(rig.moment.watched.since(watched), s(14), "one second of the jump was vouched for");
}

#[test]
fn case_5_after_a_jump_200_peers_are_asked_once_each_in_the_first_turn() {
    let mut rig = Rig::new();
    let keys: Vec<_> = (0..200)
        .map(|owner| {
            rig.turn(ms(21));
            rig.begin(owner)
        })
        .collect();
    for &(key, id) in &keys {
        rig.liveness.answer(key, id, &rig.moment);
    }
    let did = rig.turn(s(600));
    let mut owners: Vec<_> = did.asks.iter().map(|&(owner, _)| owner).collect();
    owners.sort_unstable();
    assert_eq!(owners, (0..200).collect::<Vec<_>>());
    assert!(did.verdicts.is_empty() && did.warnings.is_empty());
    assert!(rig.turn(ms(0)).asks.is_empty());
}

#[test]
fn case_8_an_ack_that_waits_while_the_process_was_stopped_counts() {
    let mut rig = Rig::new();
    let (key, id) = rig.begin(1);
    for _ in 0..14 {
        rig.turn(s(1));
    }
    // Timers before input, in the first turn after the stall: a suspicion at most.
    assert!(rig.turn(s(40)).verdicts.is_empty());
    assert!(rig.answer(key, id));
    assert!(rig.follow(s(14)).iter().all(|(_, did)| did.verdicts.is_empty()));
}

#[test]
fn a_stall_between_the_two_looks_makes_the_suspicion_a_fresh_one() {
    let mut rig = Rig::new();
    rig.begin(1);
    for _ in 0..15 {
        rig.turn(s(1));
    }
    assert!(rig.turn(s(2)).verdicts.is_empty(), "the turn after the stall is a first look again");
    assert!(rig.turn(ms(49)).verdicts.is_empty());
    assert_eq!(rig.turn(ms(1)).verdicts, vec![(1, Silence::NoAnswer)]);
}

#[test]
fn case_31_all_that_are_due_are_judged_in_the_same_turn() {
    let mut rig = Rig::new();
    rig.begin(1);
    let (alive, id) = rig.begin(2);
    rig.begin(3);
    for _ in 0..4 {
        rig.turn(s(1));
    }
    assert!(rig.answer(alive, id));
    let story = rig.follow(ms(11_000));
    let (at, did) = story.last().unwrap();
    assert_eq!(*at, s(11));
    assert_eq!(did.verdicts, vec![(1, Silence::NoAnswer), (3, Silence::NoAnswer)]);
}

#[test]
fn case_32_a_lost_ack_means_the_same_id_again_and_a_new_connection_a_new_one() {
    let mut rig = Rig::new();
    let (key, id) = rig.begin(1);
    for _ in 0..2 {
        for _ in 0..4 {
            assert!(rig.turn(s(1)).asks.is_empty());
        }
        assert_eq!(rig.turn(s(1)).asks, vec![(1, id)]);
    }
    rig.liveness.end(key);
    let (again, new) = rig.begin(1);
    assert_ne!(new, id);
    assert!(!rig.answer(again, id));
}

#[test]
fn more_verdicts_than_one_turn_passes_wait_for_the_next() {
    let mut rig = Rig::new();
    let many = VERDICTS_PER_TURN_MAX as u32 + 10;
    (0..many).for_each(|owner| _ = rig.begin(owner));
    (0..15).for_each(|_| _ = rig.turn(s(1)));
    rig.pass(s(1));
    let mut verdicts = Vec::new();
    assert!(rig.liveness.judge(&rig.moment, |_| Look::Empty, &mut verdicts));
    assert_eq!(verdicts.len(), VERDICTS_PER_TURN_MAX);
    assert!(!rig.liveness.judge(&rig.moment, |_| Look::Empty, &mut verdicts));
    assert_eq!(verdicts.len(), many as usize);
}

#[test]
fn a_publisher_is_judged_by_its_silence_and_any_record_is_evidence() {
    let mut rig = Rig::new();
    let quiet = rig.liveness.hear(1, &rig.moment);
    let loud = rig.liveness.hear(2, &rig.moment);
    let mut verdicts = Vec::new();
    for second in 1..=40 {
        rig.pass(s(1));
        rig.liveness.heard(loud, &rig.moment);
        let did = rig.work(|_| true, |_| Look::Empty);
        assert!(did.asks.is_empty(), "a publisher is never asked");
        verdicts.extend(did.verdicts.into_iter().map(|verdict| (second, verdict)));
    }
    assert_eq!(verdicts, vec![(16, (1, Silence::NoRecord))]);
    rig.liveness.heard(quiet, &rig.moment);
    assert!(!rig.liveness.end(quiet));
    assert!(rig.liveness.end(loud));
}

#[test]
fn beacons_keep_to_a_grid_of_5_s_of_clock_and_are_never_judged() {
    let mut rig = Rig::new();
    let key = rig.liveness.beacon(9, &rig.moment);
    assert_eq!(rig.liveness.wanted(&rig.moment), Some((rig.moment.now.plus(s(5)), Why::Ask)));
    let mut at = Vec::new();
    for step in 1..=60 {
        if !rig.turn(ms(700)).beacons.is_empty() {
            at.push(step * 700);
        }
    }
    assert_eq!(at, vec![5600, 10_500, 15_400, 20_300, 25_200, 30_100, 35_000, 40_600]);
    assert!(rig.turn(s(60)).beacons == vec![9], "once, not twelve times");
    assert!(rig.liveness.end(key));
    assert_eq!(rig.liveness.wanted(&rig.moment), None);
}

#[test]
fn the_bound_on_asks_never_slows_the_grid() {
    let mut rig = Rig::new();
    let crowd = 500;
    let keys: Vec<_> = (0..crowd).map(|owner| rig.begin(owner)).collect();
    for &(key, id) in &keys {
        rig.answer(key, id);
    }
    let mut asked = vec![0u32; crowd as usize];
    let mut most = 0;
    let mut outstanding = Vec::new();
    for _ in 0..15_010 {
        let did = rig.turn(ms(1));
        most = most.max(did.asks.len());
        for &(owner, _) in &did.asks {
            asked[owner as usize] += 1;
        }
        outstanding.extend(did.asks);
        for (owner, id) in outstanding.drain(..) {
            rig.liveness.answer(keys[owner as usize].0, id, &rig.moment);
        }
    }
    assert!(most <= ASKS_PER_TURN_MIN, "{most}");
    assert!(asked.iter().all(|&times| times == 2 || times == 3), "500 with one grid point go out 64 a turn");
    assert_eq!(rig.liveness.len(), crowd as usize);
}

#[test]
fn a_crowd_with_one_grid_point_is_asked_within_the_interval_whatever_the_gap() {
    // A hundred milliseconds' part of the crowd is no whole number, and more than the minimum.
    let crowd = 6_430;
    let mut rig = Rig::new();
    (0..crowd).for_each(|owner| _ = rig.begin(owner));
    rig.turn(s(1));
    rig.pass(ms(3_900));
    for _ in 0..2 {
        let mut asked = vec![0; crowd as usize];
        for _ in 0..50 {
            let did = rig.turn(ms(100));
            assert!(did.asks.len() <= crowd as usize / 50 + 1);
            did.asks.iter().for_each(|&(owner, _)| asked[owner as usize] += 1);
        }
        assert!(asked.iter().all(|&times| times == 1));
    }
}

#[test]
fn a_host_that_follows_wanted_never_sleeps_longer_than_a_step_while_a_deadline_runs() {
    let mut rig = Rig::new();
    rig.begin(1);
    for _ in 0..100 {
        let Some((at, why)) = rig.liveness.wanted(&rig.moment) else { break };
        let sleep = at.since(rig.moment.now);
        assert!(sleep <= WATCH_STEP && !sleep.is_zero(), "{sleep:?} {why:?}");
        rig.turn(sleep);
    }
    assert_eq!(rig.liveness.len(), 0);
}

mod model {
    //! One turn after another under random gaps, refusals, lost looks and answers of every kind, each judged by a model
    //! that keeps whole histories instead of counters.

    use super::*;

    #[derive(Debug, Clone)]
    enum Reply {
        Nothing,
        Awaited,
        Twice,
        Older,
        Foreign,
    }

    #[derive(Debug, Clone)]
    struct Step {
        gap: Duration,
        takes: u8,
        looks: u8,
        prompts: u8,
        replies: [Reply; PEERS],
    }

    const PEERS: usize = 3;

    /// When a check's grid began and how many of its points came; a publisher that is heard has none.
    type Grid = Option<(ClockTime, u128)>;

    /// What the model remembers of one peer, since its last evidence unless it says otherwise.
    struct Peer {
        key: CheckKey,
        /// Of its whole life.
        began: ClockTime,
        points: u128,
        last_id: u64,
        outstanding: Option<u64>,
        sent: bool,
        owed: bool,
        /// The grid point in whose very turn the outstanding ask went out last, if it did.
        at_once: Option<ClockTime>,
        /// Whole watched intervals without an answer.
        missed: u8,
        /// Grid points that were refused in every turn of their interval.
        refused: u32,
        /// Grid points asked: taken, or refused in every turn of their interval.
        asked: u32,
        evidence: WatchTime,
        /// Turns that looked at the lane near the deadline, without a stall since.
        looks: Vec<ClockTime>,
        judged: bool,
    }

    fn gap() -> impl Strategy<Value = Duration> {
        prop_oneof![
            4 => (0u64..5_000).prop_map(Duration::from_micros),
            8 => (5u64..1_000).prop_map(ms),
            6 => Just(s(1)),
            3 => (1_001u64..20_000).prop_map(ms),
            1 => (1u64..5).prop_map(|points| points as u32 * CHECK_INTERVAL),
            1 => (20u64..20_000).prop_map(s),
        ]
    }

    fn reply() -> impl Strategy<Value = Reply> {
        prop_oneof![
            12 => Just(Reply::Nothing),
            3 => Just(Reply::Awaited),
            1 => Just(Reply::Twice),
            1 => Just(Reply::Older),
            1 => Just(Reply::Foreign),
        ]
    }

    fn step() -> impl Strategy<Value = Step> {
        let bits = || prop_oneof![4 => Just(0xFFu8), 1 => any::<u8>()];
        let prompts = prop_oneof![9 => Just(0u8), 1 => any::<u8>()];
        let replies = [reply(), reply(), reply()];
        (gap(), bits(), bits(), prompts, replies).prop_map(|(gap, takes, looks, prompts, replies)| Step {
            gap,
            takes,
            looks,
            prompts,
            replies,
        })
    }

    fn bit(bits: u8, index: usize) -> bool {
        bits >> index & 1 == 1
    }

    fn receive(rig: &mut Rig, peers: &mut [Peer], index: usize, reply: &Reply) {
        let foreign = peers[(index + 1) % PEERS].last_id;
        let peer = &mut peers[index];
        let acks: &[u64] = match reply {
            Reply::Nothing => &[],
            Reply::Awaited => &[peer.last_id],
            Reply::Twice => &[peer.last_id, peer.last_id],
            Reply::Older => &[peer.last_id - 1],
            Reply::Foreign => &[foreign],
        };
        for &id in acks {
            let counts = !peer.judged && peer.sent && peer.outstanding == Some(id);
            assert_eq!(rig.answer(peer.key, id), counts, "{reply:?} of peer {index}");
            if counts {
                peer.outstanding = None;
                peer.sent = false;
                peer.owed = false;
                peer.at_once = None;
                peer.missed = 0;
                peer.refused = 0;
                peer.asked = 0;
                peer.evidence = rig.moment.watched;
                peer.looks.clear();
            }
        }
    }

    fn prompt(rig: &mut Rig, peer: &mut Peer) {
        let id = rig.liveness.prompt(peer.key);
        if peer.judged {
            assert_eq!(id, None);
            return;
        }
        let id = id.unwrap();
        match peer.outstanding {
            Some(outstanding) => assert_eq!(id, outstanding),
            None => assert!(id > peer.last_id),
        }
        peer.outstanding = Some(id);
        peer.last_id = id;
        peer.sent = true;
    }

    /// A turn of the model: checks each ask, warning and verdict of the real one, and that none is missing.
    fn check(rig: &Rig, peers: &mut [Peer], step: &Step, did: &Did) {
        for (index, peer) in peers.iter_mut().enumerate().filter(|(_, peer)| !peer.judged) {
            let now = rig.moment.now;
            let points = now.since(peer.began).as_nanos() / CHECK_INTERVAL.as_nanos();
            let asks: Vec<u64> =
                did.asks.iter().filter(|ask| ask.0 == index as u32).map(|ask| ask.1).collect();
            assert_eq!(asks.len(), usize::from(points > peer.points), "the grid is kept to the turn");
            let missed =
                points > peer.points && peer.at_once.is_some_and(|point| rig.moment.watching_since <= point);
            peer.missed += u8::from(missed);
            let warned: Vec<u8> = did
                .warnings
                .iter()
                .filter(|warning| warning.0 == index as u32)
                .map(|warning| warning.1)
                .collect();
            let due = missed && peer.missed <= 2;
            assert_eq!(warned, if due { vec![peer.missed] } else { vec![] }, "peer {index}");
            if let [id] = asks[..] {
                peer.asked += u32::from(peer.owed);
                peer.refused += u32::from(peer.owed);
                match peer.outstanding {
                    Some(outstanding) => assert_eq!(id, outstanding, "at most one outstanding id"),
                    None => assert!(id > peer.last_id, "a new id, once the last was answered"),
                }
                peer.outstanding = Some(id);
                peer.last_id = id;
                peer.owed = !bit(step.takes, index);
                peer.sent |= !peer.owed;
                peer.at_once = (!peer.owed).then(|| peer.began.plus(CHECK_INTERVAL * points as u32));
                peer.asked += u32::from(!peer.owed);
            }
            peer.points = points;

            if rig.moment.gap > WATCH_STEP {
                peer.looks.clear();
            }
            let watched = rig.moment.watched.since(peer.evidence);
            let looked = bit(step.looks, index);
            let suspect_for = peer.looks.first().map(|&at| now.since(at));
            let due = looked
                && watched >= PEER_DEADLINE
                && peer.asked >= 3
                && suspect_for.is_some_and(|span| span >= SECOND_LOOK);
            let reason = if peer.refused > 0 { Silence::NotAskable } else { Silence::NoAnswer };
            let judged = did.verdicts.iter().find(|verdict| verdict.0 == index as u32);
            assert!(judged.is_none_or(|verdict| verdict.1 == reason));
            let judged = judged.is_some();
            assert_eq!(
                judged, due,
                "peer {index}: watched {watched:?}, asked {}, suspect for {suspect_for:?}",
                peer.asked
            );
            peer.judged = judged;
            if looked && watched + SECOND_LOOK >= PEER_DEADLINE {
                peer.looks.push(now);
            }
        }
    }

    fn run(steps: &[Step], mut inspect: impl FnMut(&Rig, &Did)) -> Vec<bool> {
        let mut rig = Rig::new();
        let mut peers: Vec<Peer> = (0..PEERS as u32)
            .map(|owner| {
                rig.pass(ms(137));
                let (key, id) = rig.begin(owner);
                Peer {
                    key,
                    began: rig.moment.now,
                    points: 0,
                    last_id: id,
                    outstanding: Some(id),
                    sent: true,
                    owed: false,
                    at_once: Some(rig.moment.now),
                    missed: 0,
                    refused: 0,
                    asked: 1,
                    evidence: rig.moment.watched,
                    looks: Vec::new(),
                    judged: false,
                }
            })
            .collect();
        for step in steps {
            rig.pass(step.gap);
            for (index, peer) in peers.iter_mut().enumerate() {
                assert_eq!(rig.liveness.owed(peer.key).is_some(), peer.owed && !peer.judged);
                if rig.liveness.owed(peer.key).is_some() && bit(step.takes, index) {
                    rig.liveness.taken(peer.key);
                    peer.owed = false;
                    peer.sent = true;
                    peer.asked += 1;
                }
            }
            for (index, peer) in peers.iter_mut().enumerate().filter(|&(index, _)| bit(step.prompts, index)) {
                prompt(&mut rig, peer);
                assert_eq!(rig.liveness.owed(peer.key).is_some(), peer.owed && !peer.judged, "{index}");
            }
            for (index, reply) in step.replies.iter().enumerate() {
                receive(&mut rig, &mut peers, index, reply);
            }
            let did = rig.work(
                |owner| bit(step.takes, owner as usize),
                |owner| if bit(step.looks, owner as usize) { Look::Empty } else { Look::None },
            );
            check(&rig, &mut peers, step, &did);
            inspect(&rig, &did);
        }
        peers.iter().map(|peer| peer.judged).collect()
    }

    fn plain(gap: Duration) -> Step {
        let replies = [Reply::Nothing, Reply::Nothing, Reply::Nothing];
        Step { gap, takes: 0xFF, looks: 0xFF, prompts: 0, replies }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(600))]

        /// Every ask, warning and verdict, in every turn, is the one that the histories call for: none before 15 s watched,
        /// none without three asked points, none in the first turn that could have seen it, and none missing.
        #[test]
        fn whatever_happens_every_ask_warning_and_verdict_is_the_models(steps in prop::collection::vec(step(), 1..120)) {
            run(&steps, |_, _| {});
        }

        #[test]
        fn a_peer_that_answers_within_5_s_watched_is_never_judged(
            gaps in prop::collection::vec(gap(), 1..300),
            patience in 0u64..5_000,
        ) {
            let mut rig = Rig::new();
            let (key, id) = rig.begin(1);
            let mut asked = Some((rig.moment.watched, id));
            for gap in gaps {
                rig.pass(gap);
                if let Some((at, id)) = asked {
                    // The latest turn that is still within the peer's answering time: the next one may be too late.
                    if rig.moment.watched.since(at) + s(1) > ms(patience) {
                        rig.answer(key, id);
                        asked = None;
                    }
                }
                let did = rig.work(|_| true, |_| Look::Empty);
                prop_assert!(did.verdicts.is_empty());
                if let (None, &[(_, id)]) = (asked, &did.asks[..]) {
                    asked = Some((rig.moment.watched, id));
                }
            }
        }

        #[test]
        fn a_dead_peer_is_judged_within_two_steps_of_15_s_watched_whatever_the_gaps_up_to_one_step(
            gaps in prop::collection::vec(1u64..=1_000, 40..4_000),
        ) {
            let mut rig = Rig::new();
            rig.begin(1);
            let mut judged = None;
            for gap in gaps {
                let did = rig.turn(ms(gap));
                if !did.verdicts.is_empty() {
                    judged = Some(rig.moment.watched.since(WatchTime::START));
                    break;
                }
                prop_assert!(rig.moment.watched.since(WatchTime::START) < PEER_DEADLINE + 2 * WATCH_STEP);
            }
            if let Some(watched) = judged {
                prop_assert!(watched >= PEER_DEADLINE && watched <= PEER_DEADLINE + 2 * WATCH_STEP);
            }
        }

        #[test]
        fn a_host_that_follows_wanted_judges_the_dead_at_15_s_exactly_and_a_late_one_little_later(
            offsets in prop::collection::vec((0u64..7_000, 0u8..3), 1..6),
            late_micros in prop_oneof![Just(0), 0u64..40_000],
        ) {
            let mut rig = Rig::new();
            let beacon = rig.liveness.beacon(99, &rig.moment);
            let mut evidence = Vec::new();
            for (owner, &(offset, kind)) in offsets.iter().enumerate() {
                rig.turn(ms(offset).min(WATCH_STEP));
                if kind == 0 {
                    rig.liveness.hear(owner as u32, &rig.moment);
                } else {
                    rig.begin(owner as u32);
                }
                evidence.push(rig.moment.watched);
            }
            while rig.liveness.len() > 1 {
                let (at, _) = rig.liveness.wanted(&rig.moment).unwrap();
                prop_assert!(at.since(rig.moment.now) <= WATCH_STEP);
                let late = Duration::from_micros(late_micros);
                let did = rig.turn(at.since(rig.moment.now) + late);
                for (owner, _) in did.verdicts {
                    let watched = rig.moment.watched.since(evidence[owner as usize]);
                    prop_assert!(watched >= PEER_DEADLINE);
                    prop_assert!(watched <= PEER_DEADLINE + 2 * late, "{watched:?}");
                }
            }
            // With nobody to judge any more, the beacon alone says when.
            let (at, why) = rig.liveness.wanted(&rig.moment).unwrap();
            prop_assert!(why == Why::Ask && at.since(rig.moment.now) <= CHECK_INTERVAL);
            prop_assert!(rig.liveness.end(beacon));
            prop_assert_eq!(rig.liveness.wanted(&rig.moment), None);
        }

        /// One thing ends or begins before each step of a sweep, its own head included.
        #[test]
        fn the_grid_is_kept_though_checks_come_and_go_in_the_middle_of_a_sweep(
            turns in prop::collection::vec(
                (gap(), prop::collection::vec((0u8..6, any::<prop::sample::Index>()), 0..8)), 1..40,
            ),
        ) {
            let mut rig = Rig::new();
            let mut owners = 0;
            let mut live: Vec<(CheckKey, u32, Grid)> = Vec::new();
            for (gap, mut deeds) in turns {
                rig.pass(gap);
                let now = rig.moment.now;
                let mut visited = Vec::new();
                let mut sweep = rig.liveness.sweep(&rig.moment);
                loop {
                    if let Some((kind, which)) = deeds.pop() {
                        owners += 1;
                        let moment = &rig.moment;
                        match kind {
                            // Never more than one turn may ask.
                            kind if live.len() == ASKS_PER_TURN_MIN || kind == 0 && !live.is_empty() => {
                                let (key, ..) = live.swap_remove(which.index(live.len()));
                                prop_assert!(rig.liveness.end(key));
                            }
                            1 => live.push((rig.liveness.hear(owners, moment), owners, None)),
                            2 => live.push((rig.liveness.beacon(owners, moment), owners, Some((now, 0)))),
                            _ => live.push((rig.liveness.begin(owners, moment).0, owners, Some((now, 0)))),
                        }
                        rig.liveness.verify();
                    }
                    match rig.liveness.next_due(&mut sweep) {
                        Some(Due::Ask { owner, .. } | Due::Beacon { owner }) => visited.push(owner),
                        None if deeds.is_empty() => break,
                        None => {}
                    }
                    rig.liveness.verify();
                }
                for (_, owner, grid) in &mut live {
                    let visits = visited.iter().filter(|&visited| visited == owner).count();
                    let mut due = false;
                    if let Some((began, points)) = grid {
                        let passed = now.since(*began).as_nanos() / CHECK_INTERVAL.as_nanos();
                        due = passed > *points;
                        *points = passed;
                    }
                    prop_assert_eq!(visits, usize::from(due));
                }
                rig.liveness.judge(&rig.moment, |_| Look::None, &mut Vec::new());
            }
        }

        #[test]
        fn jumps_of_hours_alone_never_make_a_verdict(jumps in prop::collection::vec(3_600u64..40_000, 1..14)) {
            let judged = run(&jumps.iter().map(|&jump| plain(s(jump))).collect::<Vec<_>>(), |_, did| {
                assert!(did.verdicts.is_empty() && did.warnings.is_empty());
            });
            prop_assert!(judged.iter().all(|judged| !judged));
        }
    }
}
