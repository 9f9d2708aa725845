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
        let asks: Vec<u64> = did.asks.iter().filter(|ask| ask.0 == index as u32).map(|ask| ask.1).collect();
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
            prop_assert!(rig.moment.gap <= WATCH_STEP, "to be woken a little late is no stall");
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
