//! Races one by one, and every race against a model.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

const fn at(millis: u64) -> ClockTime {
    ClockTime::START.plus(Duration::from_millis(millis))
}

const A: u32 = 0;
const B: u32 = 1;

/// CASES 46.
#[test]
fn replies_that_come_swapped_complete_each_its_own_request() {
    let mut requests = Requests::new(8);
    let [first, second] = [1_000, 1_000].map(|millis| requests.begin(A, at(millis)).unwrap());
    assert_ne!(first.correlation(), second.correlation());
    assert_eq!(requests.complete(second.correlation(), A), Some(second));
    assert_eq!(requests.complete(first.correlation(), A), Some(first));
    for late in [first, second] {
        assert_eq!(requests.complete(late.correlation(), A), None);
    }
}

/// CASES 47.
#[test]
fn a_reply_after_the_time_out_completes_nothing_not_even_a_successor() {
    let mut requests = Requests::new(1);
    let late = requests.begin(A, at(10)).unwrap();
    assert_eq!(requests.next_expired(at(9)), None);
    assert_eq!(requests.next_expired(at(10)), Some(late));
    let successor = requests.begin(A, at(20)).unwrap();
    assert_eq!(requests.complete(late.correlation(), A), None);
    assert!(!requests.cancel(late));
    assert_eq!(requests.complete(successor.correlation(), A), Some(successor));
}

#[test]
fn a_reply_from_another_connection_completes_nothing() {
    let mut requests = Requests::new(8);
    let id = requests.begin(A, at(10)).unwrap();
    assert_eq!(requests.complete(id.correlation(), B), None);
    assert_eq!(requests.complete(0, A), None);
    assert_eq!(requests.complete(u64::MAX, A), None);
    assert_eq!(requests.complete(id.correlation(), A), Some(id));
}

/// CASES 49.
#[test]
fn a_lost_connection_ends_each_of_its_own_requests_once() {
    let mut requests = Requests::new(2_000);
    let mut begin = |owner| requests.begin(owner, at(10)).unwrap();
    let ids: Vec<[RequestId; 2]> = (0..1_000).map(|_| [begin(A), begin(B)]).collect();
    for [of_a, _] in &ids {
        assert_eq!(requests.next_of(A), Some(*of_a));
    }
    assert_eq!((requests.next_of(A), requests.next_of(7)), (None, None));
    assert_eq!(requests.len(), 1_000);
    assert_eq!(requests.next_expired(at(10)), Some(ids[0][1]));
}

#[test]
fn a_request_that_the_transport_refused_never_existed() {
    let mut requests = Requests::new(1);
    let id = requests.begin(A, at(10)).unwrap();
    assert_eq!(requests.begin(B, at(10)), Err(Full { most: 1 }));
    requests.abandon(id);
    assert_eq!((requests.len(), requests.earliest()), (0, None));
    assert_eq!((requests.next_expired(at(10)), requests.next_of(A)), (None, None));
    assert!(requests.begin(B, at(10)).is_ok());
}

#[test]
fn shutdown_ends_everything_the_earliest_deadline_first() {
    let mut requests = Requests::new(8);
    let ids = [30, 10, 20].map(|millis| requests.begin(A, at(millis)).unwrap());
    let far = requests.begin(B, ClockTime::START.plus(Duration::MAX)).unwrap();
    assert_eq!(requests.drain().collect::<Vec<_>>(), [ids[1], ids[2], ids[0], far]);
    assert_eq!((requests.len(), requests.earliest()), (0, None));
}

#[test]
fn a_steady_state_allocates_nothing_and_dead_deadlines_do_not_pile_up() {
    let mut requests = Requests::new(1_000);
    let mut ring: Vec<RequestId> = (0..1_000).map(|_| requests.begin(A, at(1_000)).unwrap()).collect();
    let mut exchange = |times: usize| {
        for turn in 0..times {
            let slot = &mut ring[turn * 7 % 1_000];
            assert!(requests.complete(slot.correlation(), A).is_some());
            *slot = requests.begin(A, at(1_000 + turn as u64)).unwrap();
            assert!(requests.deadlines.len() <= 2 * 1_000 + DEAD_DEADLINES_MAX + 1);
        }
    };
    exchange(10_000);
    let heap = allocation_counter::measure(|| exchange(100_000));
    assert_eq!(heap.count_total, 0);
}

#[derive(Debug, Clone)]
enum Step {
    Begin { owner: u32, span: u64, refused: bool },
    Reply { which: prop::sample::Index, owner: u32 },
    MadeUpReply { correlation: u64, owner: u32 },
    Cancel { which: prop::sample::Index },
    Pass { span: u64, ends_max: usize },
    Lost { owner: u32, ends_max: usize },
    Shutdown { ends_max: usize },
}

fn any_step() -> impl Strategy<Value = Step> {
    let span = || prop_oneof![0..20_u64, 0..100_000_u64];
    prop_oneof![
        8 => (0..4_u32, span(), prop::bool::weighted(0.1))
            .prop_map(|(owner, span, refused)| Step::Begin { owner, span, refused }),
        6 => (any::<prop::sample::Index>(), 0..4_u32).prop_map(|(which, owner)| Step::Reply { which, owner }),
        1 => (any::<u64>(), 0..4_u32)
            .prop_map(|(correlation, owner)| Step::MadeUpReply { correlation, owner }),
        2 => any::<prop::sample::Index>().prop_map(|which| Step::Cancel { which }),
        2 => (0..20_u64, 0..10_usize).prop_map(|(span, ends_max)| Step::Pass { span, ends_max }),
        1 => (0..4_u32, 0..10_usize).prop_map(|(owner, ends_max)| Step::Lost { owner, ends_max }),
        1 => (0..4_usize).prop_map(|ends_max| Step::Shutdown { ends_max }),
    ]
}

/// A request as the model sees it.
#[derive(Debug)]
struct Known {
    id: RequestId,
    owner: u32,
    deadline: u64,
    pending: bool,
}

/// All requests ever begun, in that order.
#[derive(Debug, Default)]
struct Model(Vec<Known>);

impl Model {
    /// Ends the pending request with this key, which must be the one that the model says.
    fn end(&mut self, which: Option<usize>) -> Option<RequestId> {
        which.map(|which| {
            assert!(std::mem::take(&mut self.0[which].pending));
            self.0[which].id
        })
    }

    fn pending(&self) -> impl Iterator<Item = (usize, &Known)> {
        self.0.iter().enumerate().filter(|(_, known)| known.pending)
    }

    fn earliest(&self) -> Option<(u64, usize)> {
        self.pending().map(|(which, known)| (known.deadline, which)).min()
    }

    fn oldest_of(&self, owner: u32) -> Option<usize> {
        self.pending().find(|(_, known)| known.owner == owner).map(|(which, _)| which)
    }
}

/// Does the same to the requests and to the model, and compares all they tell.
fn race(requests: &mut Requests, model: &mut Model, now: &mut u64, most: usize, step: &Step) {
    match *step {
        Step::Begin { owner, span, refused } => {
            let deadline = *now + span;
            let begun = requests.begin(owner, at(deadline));
            assert_eq!(begun.is_ok(), model.pending().count() < most);
            let Ok(id) = begun else { return };
            assert!(model.0.iter().all(|known| known.id != id));
            if refused {
                requests.abandon(id);
            }
            model.0.push(Known { id, owner, deadline, pending: !refused });
        }
        Step::Reply { which, owner } if !model.0.is_empty() => {
            let which = which.index(model.0.len());
            let known = &model.0[which];
            let completed = requests.complete(known.id.correlation(), owner);
            let expected = known.pending && known.owner == owner;
            assert_eq!(completed, model.end(expected.then_some(which)));
        }
        Step::MadeUpReply { correlation, owner } => {
            let known = model.0.iter().any(|known| known.id.correlation() == correlation);
            assert!(known || requests.complete(correlation, owner).is_none());
        }
        Step::Cancel { which } if !model.0.is_empty() => {
            let which = which.index(model.0.len());
            let pending = model.0[which].pending;
            assert_eq!(requests.cancel(model.0[which].id), pending);
            model.end(pending.then_some(which));
        }
        Step::Pass { span, ends_max } => {
            *now += span;
            for _ in 0..ends_max {
                let due = model.earliest().filter(|(deadline, _)| *deadline <= *now);
                assert_eq!(requests.next_expired(at(*now)), model.end(due.map(|(_, which)| which)));
            }
        }
        Step::Lost { owner, ends_max } => {
            for _ in 0..ends_max {
                assert_eq!(requests.next_of(owner), model.end(model.oldest_of(owner)));
            }
        }
        Step::Shutdown { ends_max } => {
            for id in requests.drain().take(ends_max) {
                let (_, which) = model.earliest().unwrap();
                assert_eq!(Some(id), model.end(Some(which)));
            }
        }
        Step::Reply { .. } | Step::Cancel { .. } => {}
    }
}

proptest! {
    #[test]
    fn every_request_completes_exactly_once_whatever_races(
        most in 1..40_u32,
        steps in prop::collection::vec(any_step(), 0..300),
    ) {
        let (mut requests, mut model, mut now) = (Requests::new(most), Model::default(), 0);
        for step in steps {
            race(&mut requests, &mut model, &mut now, most as usize, &step);
            requests.pending.verify();
            prop_assert_eq!(requests.len(), model.pending().count());
            prop_assert_eq!(requests.earliest(), model.earliest().map(|(deadline, _)| at(deadline)));
            prop_assert!(requests.deadlines.len() <= 2 * requests.len() + DEAD_DEADLINES_MAX);
        }
        let left = requests.len();
        prop_assert_eq!(requests.drain().count(), left);
        for known in &model.0 {
            prop_assert_eq!(requests.complete(known.id.correlation(), known.owner), None);
        }
    }
}
