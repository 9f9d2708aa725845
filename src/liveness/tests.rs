//! The rules of liveness one by one, and all of them at once against a model under random turns, losses and answers.

mod model;

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
