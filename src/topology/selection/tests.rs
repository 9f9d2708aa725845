//! The rules of selection one by one, and its evenness for random weights and random changes.

use proptest::prelude::*;

use super::*;

fn weight(weight: u32) -> Weight {
    Weight::new(weight).unwrap()
}

fn members(weights: &[u32]) -> Members {
    let mut members = Members::default();
    for (number, &each) in (0..).zip(weights) {
        members.set(number, weight(each));
    }
    members
}

fn all_ready(_: u32) -> Fitness {
    Fitness::Ready
}

fn picks(members: &mut Members, count: usize) -> String {
    let letter = |selection| match selection {
        Selection::Member(number) => char::from(b'a' + number as u8),
        _ => '-',
    };
    (0..count).map(|_| letter(members.pick(all_ready))).collect()
}

#[test]
fn picks_interleave() {
    assert_eq!(picks(&mut members(&[1, 1, 1]), 6), "abcabc");
    assert_eq!(picks(&mut members(&[5, 1, 1]), 14), "aaabaacaaabaac");
    assert_eq!(picks(&mut members(&[3, 2]), 10), "abaababaab");
    assert_eq!(picks(&mut members(&[2, 0, 1]), 6), "aacaac");
}

#[test]
fn no_member_is_not_found() {
    assert_eq!(Members::default().pick(all_ready), Selection::NotFound);
}

#[test]
fn members_of_weight_0_or_out_of_service_are_not_found() {
    assert_eq!(members(&[0, 0]).pick(all_ready), Selection::NotFound);
    assert_eq!(members(&[1, 2]).pick(|_| Fitness::NotServing), Selection::NotFound);
    let mixed = |number| if number == 0 { Fitness::NotReady } else { Fitness::NotServing };
    assert_eq!(members(&[0, 2]).pick(mixed), Selection::NotFound);
}

#[test]
fn a_serving_member_without_a_ready_connection_is_unavailable() {
    let mixed = |number| if number == 0 { Fitness::NotReady } else { Fitness::NotServing };
    assert_eq!(members(&[1, 2]).pick(mixed), Selection::Unavailable);
    assert_eq!(members(&[1, 0]).pick(|_| Fitness::NotReady), Selection::Unavailable);
}

#[test]
fn changes_take_effect_with_the_next_pick() {
    let mut members = members(&[10_000, 1]);
    picks(&mut members, 100);
    members.set(0, weight(0));
    assert_eq!(picks(&mut members, 3), "bbb");
    members.set(0, weight(1));
    members.set(2, weight(1));
    assert_eq!(picks(&mut members, 6).matches('c').count(), 2);
    assert!(members.remove(1));
    assert!(!members.remove(1));
    assert_eq!(picks(&mut members, 4).matches('b').count(), 0);
}

#[test]
fn nobody_pays_long_for_what_it_got_at_other_weights() {
    let mut members = members(&[10_000, 10_000]);
    assert_eq!(picks(&mut members, 1), "a");
    members.set(0, weight(1));
    members.set(1, weight(1));
    assert_eq!(picks(&mut members, 8), "bbababab");
}

#[test]
fn who_comes_back_makes_up_for_nothing() {
    let mut members = members(&[1, 1, 1]);
    for _ in 0..100 {
        members.pick(|number| if number == 2 { Fitness::NotReady } else { Fitness::Ready });
    }
    assert_eq!(picks(&mut members, 6).matches('c').count(), 2);
}

fn any_weights() -> impl Strategy<Value = Vec<u32>> {
    prop_oneof![
        prop::collection::vec(0..8_u32, 1..8),
        prop::collection::vec(prop_oneof![Just(0), 1..4_u32, 50..200_u32], 1..8),
        prop::collection::vec(0..10_001_u32, 1..4),
    ]
}

/// A step of a channel's life: a member's weight, or its leaving, or who is ready, and some picks after it.
type Change = (u32, Option<u32>, u8, usize);

fn any_change() -> impl Strategy<Value = Change> {
    (0..6_u32, prop::option::of(prop_oneof![0..5_u32, 0..10_001_u32]), any::<u8>(), 0..40_usize)
}

/// Makes a step, and checks each of its picks. Returns who is ready.
fn live(members: &mut Members, (number, change, ready, count): Change) -> u8 {
    match change {
        Some(each) => members.set(number, weight(each)),
        None => drop(members.remove(number)),
    }
    let eligible = |member: &Member| member.weight.get() > 0;
    let is_ready = |number: u32| ready & (1 << number) != 0;
    let fitness = |number| if is_ready(number) { Fitness::Ready } else { Fitness::NotReady };
    for _ in 0..count {
        let expected_some = members.members.iter().any(|member| eligible(member) && is_ready(member.number));
        match members.pick(fitness) {
            Selection::Member(number) => {
                let at = members.find(number).unwrap();
                assert!(eligible(&members.members[at]) && is_ready(number));
            }
            Selection::Unavailable => assert!(!expected_some && members.members.iter().any(eligible)),
            Selection::NotFound => assert!(!members.members.iter().any(eligible)),
        }
    }
    ready
}

proptest! {
    /// Each is within one pick of its share at every moment, a round gives each exactly its weight, and no burst is longer
    /// than the best row of picks would need it, and one.
    #[test]
    fn nobody_is_ever_a_whole_pick_away_from_its_share(weights in any_weights()) {
        let mut members = members(&weights);
        let sum: u32 = weights.iter().sum();
        let round = i64::from(sum);
        let mut counts = vec![0_i64; weights.len()];
        let (mut last, mut run) = (u32::MAX, 0_u32);
        for pick in 1..=2 * round {
            let Selection::Member(number) = members.pick(all_ready) else { panic!("all are ready") };
            counts[number as usize] += 1;
            run = if last == number { run + 1 } else { 1 };
            last = number;
            let own = weights[number as usize];
            let others = sum - own;
            prop_assert!(others == 0 || run <= own.div_ceil(others) + 1, "a run of {run} for {own} of {sum}");
            for (&count, &weight) in counts.iter().zip(&weights) {
                let ahead = count * round - pick * i64::from(weight);
                prop_assert!(ahead == 0 || ahead.abs() < round, "{ahead} of {round} after {pick}");
            }
            if pick % round == 0 {
                let expected: Vec<i64> = weights.iter().map(|&weight| i64::from(weight) * pick / round).collect();
                prop_assert_eq!(&counts, &expected);
            }
        }
        if round == 0 {
            prop_assert_eq!(members.pick(all_ready), Selection::NotFound);
        }
    }

    /// Whatever happened before, from here on everyone gets its share, give or take two picks.
    #[test]
    fn the_past_costs_nobody_more_than_two_picks(
        weights in prop::collection::vec(0..10_001_u32, 0..6),
        changes in prop::collection::vec(any_change(), 0..30),
    ) {
        let mut members = members(&weights);
        let mut ready = u8::MAX;
        for change in changes {
            ready = live(&mut members, change);
        }
        let fitness = |number: u32| if ready & (1 << number) != 0 { Fitness::Ready } else { Fitness::NotReady };
        let mut counts = [0_i64; 6];
        let shares: Vec<(u32, i64)> = members.members.iter()
            .filter(|member| ready & (1 << member.number) != 0)
            .map(|member| (member.number, member.earns())).collect();
        let round: i64 = shares.iter().map(|(_, weight)| weight).sum();
        for pick in 1..=500 {
            let Selection::Member(number) = members.pick(fitness) else { break };
            counts[number as usize] += 1;
            for &(number, weight) in &shares {
                let ahead = counts[number as usize] * round - pick * weight;
                prop_assert!(ahead.abs() <= 2 * round, "{number}: {ahead} of {round} after {pick}");
            }
        }
    }

    #[test]
    fn the_same_life_makes_the_same_picks(changes in prop::collection::vec(any_change(), 0..30)) {
        let [one, other] = [(); 2].map(|()| {
            let mut members = Members::default();
            for &change in &changes {
                live(&mut members, change);
            }
            picks(&mut members, 50)
        });
        prop_assert_eq!(one, other);
    }
}

#[test]
fn a_pick_allocates_nothing() {
    let mut members = members(&[1, 20, 300, 4_000]);
    let heap = allocation_counter::measure(|| {
        for _ in 0..1_000 {
            members.pick(all_ready);
        }
    });
    assert_eq!(heap.count_total, 0);
}
