//! The rotation against a model, over random worlds.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;

use super::world::{Deed, RECEIVE, Served, World};
use super::*;

/// What a record may cost the host at most, in nanoseconds: four time caps.
const COST_MAX: u64 = 400_000;

fn caps() -> Caps {
    Caps { bytes: 4096, time: Duration::from_micros(100), turn_time: Duration::from_micros(400) }
}

/// Small ones mostly, and each at either end of its bounds.
fn any_caps() -> impl Strategy<Value = Caps> {
    let ends = (
        select(&[BYTES_MIN, BYTES_MAX][..]),
        select(&[TIME_MIN, TIME_MAX][..]),
        select(&[TURN_TIME_MIN, TURN_TIME_MAX][..]),
    );
    prop_oneof![
        3 => Just(caps()),
        2 => ends.prop_map(|(bytes, time, turn_time)| Caps { bytes, time, turn_time }),
    ]
}

#[derive(Debug, Clone, Copy)]
enum Op {
    Turn { wait: u32, deed: Option<Act> },
    Act(Act),
    AddPeer { lane: usize },
    AddDedicated,
}

/// A [`Deed`] whose targets are still to be found among those that exist.
#[derive(Debug, Clone, Copy)]
enum Act {
    Send { peer: usize, count: u64, bytes: u64, cost: u64 },
    RemovePeer(usize),
    RemoveLane(usize),
    Pause(usize, u32),
    Resume(usize),
}

fn sends() -> impl Strategy<Value = Act> {
    let bytes = prop_oneof![8 => 1u64..64, 1 => 64u64..6000];
    let cost = prop_oneof![8 => 20u64..400, 3 => 400u64..20_000, 1 => 20_000u64..COST_MAX];
    (any::<usize>(), 1u64..200, bytes, cost).prop_map(|(peer, count, bytes, cost)| Act::Send {
        peer,
        count,
        bytes,
        cost,
    })
}

fn acts() -> impl Strategy<Value = Act> {
    prop_oneof![
        20 => sends(),
        2 => any::<usize>().prop_map(Act::RemovePeer),
        1 => any::<usize>().prop_map(Act::RemoveLane),
        1 => (any::<usize>(), 1u32..300).prop_map(|(lane, records)| Act::Pause(lane, records)),
        2 => any::<usize>().prop_map(Act::Resume),
    ]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        8 => (0u32..200, prop::option::weighted(0.3, acts())).prop_map(|(wait, deed)| Op::Turn { wait, deed }),
        10 => acts().prop_map(Op::Act),
        1 => any::<usize>().prop_map(|lane| Op::AddPeer { lane }),
        1 => Just(Op::AddDedicated),
    ];
    prop::collection::vec(op, 1..60)
}

fn deed(world: &World, act: Act) -> Deed {
    let lane = |at: usize| at % world.lanes.len();
    let peer = |at: usize| at % world.peers.len();
    match act {
        Act::Send { peer: at, count, bytes, cost } => Deed::Send { peer: peer(at), count, bytes, cost },
        Act::RemovePeer(at) => Deed::RemovePeer(peer(at)),
        Act::RemoveLane(at) => Deed::RemoveLane(lane(at)),
        Act::Pause(at, records) => Deed::Pause(lane(at), HoldLimits { records, bytes: 1 << 20 }),
        Act::Resume(at) => Deed::Resume(lane(at)),
    }
}

/// Two shared lanes with three peers each, and three dedicated ones.
fn world(caps: Caps) -> World {
    let mut world = World::new(caps);
    for _ in 0..2 {
        let lane = world.shared();
        for _ in 0..3 {
            world.peer(lane);
        }
    }
    for _ in 0..3 {
        world.dedicated();
    }
    world
}

/// No peer had more than its caps and the record that crosses them; no hold more than its limits and two records.
fn check_caps(world: &World, turn: &[Served]) {
    let caps = world.rotation.caps;
    for peer in 0..world.peers.len() {
        let records: Vec<_> = turn.iter().flat_map(|served| served.of(peer)).collect();
        assert!(records.len() <= usize::from(COUNT_CAP));
        if let Some((_, before)) = records.split_last() {
            assert!(before.iter().map(|record| record.bytes).sum::<u64>() < caps.bytes);
        }
        if world.peers[peer].gone {
            continue;
        }
        let sim = &world.lanes[world.peers[peer].lane];
        let is_dedicated = world.rotation.lane(sim.key).is_some_and(Lane::is_dedicated);
        let unmetered = records.len().saturating_sub(usize::from(STRIDE_MAX));
        if is_dedicated {
            let time: u64 = records[..unmetered].iter().map(|record| record.cost).sum();
            assert!(u128::from(time) < caps.time.as_nanos());
        }
    }
}

fn check_holds(world: &World) {
    for peer in world.peers.iter().filter(|peer| !peer.gone) {
        let load = world.rotation.holding(peer.key).unwrap();
        if !world.lanes[peer.lane].was_paused {
            assert!(load.records <= u32::from(COUNT_CAP) + 1);
            assert!(load.bytes < world.rotation.caps.bytes + 2 * 6000);
        }
    }
    for lane in world.lanes.iter().filter(|lane| !lane.gone) {
        let load = world.rotation.lane_holding(lane.key).unwrap();
        let peers =
            world.peers.iter().filter(|peer| !peer.gone && world.lanes[peer.lane].key == lane.key).count();
        assert!(load.records as usize <= 65 * peers + 300);
    }
}

/// The order of service as a plain queue: the front is served and goes to the back, once a turn.
#[derive(Default)]
struct Order {
    queue: VecDeque<usize>,
}

impl Order {
    /// Brings in what became ready, takes out what is not; newcomers are told to stand in the order of marking.
    fn update(&mut self, world: &World) {
        self.queue.retain(|&lane| is_ready(world, lane));
        for lane in 0..world.lanes.len() {
            if is_ready(world, lane) && !self.queue.contains(&lane) {
                self.queue.push_back(lane);
            }
        }
    }
}

fn is_ready(world: &World, lane: usize) -> bool {
    world.rotation.lane(world.lanes[lane].key).is_some_and(|lane| lane.link.is_in())
}

fn run(caps: Caps, ops: Vec<Op>) -> World {
    let mut world = world(caps);
    let mut order = Order::default();
    for op in ops {
        match op {
            Op::Act(act) => {
                let deed = deed(&world, act);
                world.act(deed);
            }
            Op::AddPeer { lane } => {
                let lane = lane % world.lanes.len();
                if world.rotation.lane(world.lanes[lane].key).is_some_and(|lane| lane.kind == Kind::Shared) {
                    world.peer(lane);
                }
            }
            Op::AddDedicated => {
                world.dedicated();
            }
            Op::Turn { wait, deed: act } => {
                let mut deeds: VecDeque<_> = act.map(|act| (wait, deed(&world, act))).into_iter().collect();
                let is_calm = deeds.is_empty();
                let began = world.clock;
                let expected = order.queue.clone();
                let turn = world.turn_with(&mut deeds);
                let lanes: Vec<_> = turn.iter().map(|served| served.lane).collect();
                if is_calm {
                    assert_eq!(lanes, expected.iter().copied().take(lanes.len()).collect::<Vec<_>>());
                }
                order.queue.rotate_left(lanes.len().min(expected.len()));
                if !is_calm {
                    // A callback changed the order; take it as it is.
                    order.queue = world.ready_order();
                }
                check_caps(&world, &turn);
                check_holds(&world);
                let overrun = u64::from(STRIDE_MAX) * (COST_MAX + RECEIVE);
                assert!(world.clock - began <= caps.turn_time.as_nanos() as u64 + overrun);
                if world.rotation.report().end != End::TurnTime && is_calm {
                    assert_eq!(lanes.len(), expected.len(), "a round serves everyone");
                }
            }
        }
        order.update(&world);
        assert_eq!(order.queue, world.ready_order());
        world.rotation.check();
    }
    world
}

impl World {
    pub(super) fn ready_order(&self) -> VecDeque<usize> {
        let mut order = VecDeque::new();
        let Some(head) = self.rotation.ready.head() else { return order };
        let mut at = head;
        loop {
            let lane = &self.rotation.lanes[at as usize];
            order.push_back(lane.owner as usize);
            at = lane.link.ends().1;
            if at == head {
                return order;
            }
        }
    }

    fn drain(&mut self) {
        for lane in 0..self.lanes.len() {
            self.act(Deed::Resume(lane));
        }
        let mut turns = 0;
        while self.rotation.work_left() {
            let handled: u64 = self.peers.iter().map(|peer| peer.handled).sum();
            let turn = self.turn();
            check_caps(self, &turn);
            let after: u64 = self.peers.iter().map(|peer| peer.handled).sum();
            assert!(after > handled || !self.rotation.work_left() || !turn.is_empty());
            turns += 1;
            assert!(turns < 20_000, "it never ends");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_caps_order_and_holds_stand_and_nothing_is_lost(caps in any_caps(), ops in ops()) {
        let mut world = run(caps, ops);
        world.drain();
        for peer in world.peers.iter().filter(|peer| !peer.gone) {
            prop_assert_eq!(peer.handled, peer.sent);
        }
    }

    #[test]
    fn nobody_waits_longer_than_the_sum_of_the_others_caps(
        loads in prop::collection::vec((1u64..300, 1u64..64, 20u64..40_000), 2..12),
        shared in any::<bool>(),
    ) {
        let mut world = World::new(caps());
        for &(count, bytes, cost) in &loads {
            let peer = world.dedicated();
            world.send(peer, count, bytes, cost);
        }
        if shared {
            let lane = world.shared();
            for &(count, bytes, cost) in &loads {
                let peer = world.peer(lane);
                world.send(peer, count, bytes, cost);
            }
        }
        // Since a lane was last served: how often each other one was, and for how long.
        let lanes = world.lanes.len();
        let mut waits = vec![vec![(0u32, 0u64); lanes]; lanes];
        while world.rotation.work_left() {
            for served in world.turn() {
                for (lane, wait) in waits.iter_mut().enumerate() {
                    let other = &mut wait[served.lane];
                    if lane != served.lane {
                        *other = (other.0 + 1, other.1 + served.ended - served.began);
                    }
                }
                let longest = |lane: usize| {
                    let cap = if lane < loads.len() { caps().time } else { caps().turn_time };
                    cap.as_nanos() as u64 + u64::from(STRIDE_MAX) * (40_000 + RECEIVE)
                };
                for (other, (times, time)) in std::mem::take(&mut waits[served.lane]).into_iter().enumerate() {
                    prop_assert!(times <= 1 && time <= longest(other));
                }
                waits[served.lane] = vec![(0, 0); lanes];
            }
        }
    }

    #[test]
    fn a_quiet_peer_gets_one_record_for_each_of_a_flooders_and_its_whole_64(
        flooders in 1usize..4,
        bursts in prop::collection::vec((0u64..200, any::<prop::sample::Index>()), 1..30),
        quiet in 1usize..4,
        cost in prop_oneof![Just(100u64), 100u64..20_000],
    ) {
        // The turn's time must not be what ends the lane, or nothing at all is promised within one turn.
        let caps = Caps { bytes: 1 << 20, time: Duration::from_micros(100), turn_time: Duration::from_secs(1) };
        let mut world = World::new(caps);
        let lane = world.shared();
        let flooders: Vec<_> = (0..flooders).map(|_| world.peer(lane)).collect();
        let quiet: Vec<_> = (0..quiet).map(|_| world.peer(lane)).collect();
        for (burst, who) in bursts {
            for &flooder in &flooders {
                let unread = world.unread(flooder) as u64;
                world.send(flooder, 1000 - unread.min(1000), 10, cost);
            }
            world.send(*who.get(&quiet), burst, 10, cost);
            let waiting: Vec<_> = quiet.iter().map(|&peer| world.unread(peer) + world.holding(peer).records as usize).collect();
            let crossed = flooders.iter().chain(&quiet).any(|&peer| world.holding(peer).records > 64);
            let slow: Vec<_> = quiet.iter().map(|&peer| world.counters(peer).capped_by_time).collect();
            let turn = world.turn();
            prop_assert_eq!(turn.len(), 1);
            // A full hold ends the reading; its peer may have had less than another flooder.
            let full = flooders.iter().chain(&quiet).filter(|&&peer| world.holding(peer).records >= 64);
            let least = full.map(|&peer| turn[0].count(peer)).min().unwrap_or(usize::MAX);
            // One record less where a hold had to take a 65th before, and one where the fair queue left its order.
            let less = usize::from(crossed) + usize::from(world.left_order(lane));
            for ((&peer, &waiting), &slow) in quiet.iter().zip(&waiting).zip(&slow) {
                let due = waiting.min(if cost == 100 { 64 } else { least }.saturating_sub(less));
                let spent_its_time = world.counters(peer).capped_by_time > slow;
                let count = turn[0].count(peer);
                prop_assert!(count >= due || spent_its_time, "{count} of {due}");
            }
        }
    }
}
