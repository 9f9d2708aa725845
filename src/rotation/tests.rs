//! The rules of the rotation one by one.

use std::collections::VecDeque;
use std::time::Duration;

use super::world::{Deed, RECEIVE, Served, World};
use super::*;

const CAPS: Caps =
    Caps { bytes: 100_000, time: Duration::from_micros(500), turn_time: Duration::from_millis(2) };
/// A record that takes more than the sixteenth of the time cap, so that each is measured.
const SLOW: u64 = 40_000;

fn lanes(turn: &[Served]) -> Vec<usize> {
    turn.iter().map(|served| served.lane).collect()
}

fn total(turn: &[Served], peer: usize) -> usize {
    turn.iter().map(|served| served.count(peer)).sum()
}

/// The peers of the records that came out of holds, each named once per run.
fn from_holds(served: &Served) -> Vec<usize> {
    let mut peers: Vec<_> = served
        .handled
        .iter()
        .filter(|handled| handled.from_hold)
        .map(|handled| handled.record.peer)
        .collect();
    peers.dedup();
    peers
}

fn deed(wait: u32, deed: Deed) -> VecDeque<(u32, Deed)> {
    VecDeque::from([(wait, deed)])
}

/// A shared lane with so many peers; returns the lane and the first peer.
fn shared(world: &mut World, peers: usize) -> (usize, usize) {
    let lane = world.shared();
    let first = world.peer(lane);
    for _ in 1..peers {
        world.peer(lane);
    }
    (lane, first)
}

// CASES 14.
#[test]
fn a_flooder_registered_first_does_not_starve_those_behind_it() {
    let mut world = World::new(CAPS);
    let (a, b, c) = (world.dedicated(), world.dedicated(), world.dedicated());
    for _ in 0..30 {
        world.send(a, 200, 100, 20_000);
        world.send(b, 1, 100, 1_000);
        world.send(c, 1, 100, 1_000);
        let began = world.clock;
        let turn = world.turn();
        assert_eq!((total(&turn, b), total(&turn, c)), (1, 1));
        assert!(total(&turn, a) > 0);
        assert!(world.clock - began < 500_000 + 3 * 20_000, "nobody waits longer than the others' caps");
    }
    let mut tight = World::new(Caps { turn_time: Duration::from_micros(100), ..CAPS });
    for peer in 0..3 {
        tight.dedicated();
        tight.send(peer, 500, 100, SLOW);
    }
    let starts: Vec<_> = (0..6).map(|_| tight.turn()[0].lane).collect();
    assert_eq!(starts, [0, 1, 2, 0, 1, 2], "the start moves on");
}

// 000 §4: the count cap is fixed at 64 per rotation.
#[test]
fn a_dedicated_lane_is_left_after_64_records() {
    let mut world = World::new(CAPS);
    let peer = world.dedicated();
    world.send(peer, 100, 10, 100);
    assert_eq!(total(&world.turn(), peer), 64);
    assert_eq!((world.stopped(0), world.looked(0)), (Some(Stop::Capped(Cap::Records)), Looked::Unread));
    assert_eq!(world.rotation.report().end, End::Round);
    assert!(world.rotation.work_left());
    assert_eq!(total(&world.turn(), peer), 36);
    assert_eq!((world.stopped(0), world.looked(0)), (Some(Stop::Empty), Looked::Empty));
    assert_eq!(world.rotation.report().end, End::Empty);
    assert!(!world.rotation.work_left());
    let counters = Counters { served: 100, capped_by_records: 1, ..Counters::default() };
    assert_eq!(world.counters(peer), counters);
}

#[test]
fn the_byte_cap_lets_the_record_through_that_crosses_it() {
    let mut world = World::new(CAPS);
    let peer = world.dedicated();
    world.send(peer, 10, 30_000, 100);
    assert_eq!(total(&world.turn(), peer), 4);
    assert_eq!(world.stopped(0), Some(Stop::Capped(Cap::Bytes)));
    assert_eq!(world.counters(peer).capped_by_bytes, 1);

    let exact = world.dedicated();
    world.send(exact, 10, 25_000, 100);
    assert_eq!(total(&world.turn(), exact), 4, "no record crosses what is reached");
}

#[test]
fn a_slow_consumer_pays_with_its_own_share() {
    let mut world = World::new(CAPS);
    let (slow, quick) = (world.dedicated(), world.dedicated());
    world.send(slow, 64, 10, 100_000);
    world.send(quick, 64, 10, 100);
    let turn = world.turn();
    assert_eq!((total(&turn, slow), total(&turn, quick)), (5, 64));
    assert_eq!(world.stopped(0), Some(Stop::Capped(Cap::Time)));
    assert_eq!((world.counters(slow).capped_by_time, world.counters(quick).capped_by_time), (1, 0));
}

#[test]
fn a_slow_consumer_behind_a_shared_lane_pays_alone() {
    let mut world = World::new(CAPS);
    let (_, slow) = shared(&mut world, 2);
    let quick = slow + 1;
    world.send(slow, 30, 10, 100_000);
    world.send(quick, 60, 10, 100);
    let turn = world.turn();
    assert_eq!((total(&turn, slow), total(&turn, quick)), (5, 60));
    assert_eq!((world.counters(slow).capped_by_time, world.counters(quick).capped_by_time), (1, 0));
    assert_eq!(world.holding(slow).records, 25);
}

#[test]
fn the_next_rotation_starts_right_after_the_lane_where_time_ran_out() {
    let mut world = World::new(CAPS);
    for peer in 0..6 {
        world.dedicated();
        world.send(peer, 40, 10, 100_000);
    }
    assert_eq!(lanes(&world.turn()), [0, 1, 2, 3]);
    assert_eq!((world.stopped(3), world.looked(3)), (Some(Stop::Capped(Cap::Time)), Looked::Unread));
    assert_eq!(world.looked(4), Looked::No);
    assert_eq!(world.rotation.report().end, End::TurnTime);
    assert_eq!(lanes(&world.turn()), [4, 5, 0, 1]);
    assert_eq!(lanes(&world.turn()), [2, 3, 4, 5]);
}

#[test]
fn a_lane_that_becomes_ready_joins_behind_all_that_are() {
    let mut world = World::new(CAPS);
    for peer in 0..3 {
        world.dedicated();
        world.send(peer, 100, 10, 100);
    }
    world.turn();
    let late = world.dedicated();
    world.send(late, 1, 10, 100);
    assert_eq!(lanes(&world.turn()), [0, 1, 2, late]);
}

#[test]
fn a_lane_is_served_once_in_a_rotation_though_a_callback_brings_it_more() {
    let mut world = World::new(CAPS);
    let (a, b) = (world.dedicated(), world.dedicated());
    world.send(a, 1, 10, 100);
    world.send(b, 1, 10, 100);
    let more = Deed::Send { peer: a, count: 5, bytes: 10, cost: 100 };
    assert_eq!(lanes(&world.turn_with(&mut deed(1, more))), [0, 1]);
    assert!(world.rotation.work_left());
    assert_eq!(lanes(&world.turn()), [0]);
}

// CASES 17.
#[test]
fn ten_thousand_records_are_served_though_the_socket_never_wakes_again() {
    let mut world = World::new(CAPS);
    let (flooder, other) = (world.dedicated(), world.dedicated());
    world.send(flooder, 10_000, 10, 100);
    let mut turns = 0;
    while world.rotation.work_left() {
        world.send(other, 1, 10, 100);
        assert_eq!(total(&world.turn(), other), 1);
        turns += 1;
    }
    assert_eq!((world.counters(flooder).served, turns), (10_000, 10_000_u32.div_ceil(64)));
}

/// Gives somebody else one record, so that whoever floods the lane is not alone behind it and goes on into its hold.
fn in_company(world: &mut World, other: usize) {
    world.send(other, 1, 10, 100);
}

#[test]
fn a_flooder_alone_behind_a_shared_lane_is_capped_like_one_on_a_lane_of_its_own() {
    let mut world = World::new(CAPS);
    let (lane, flooder) = shared(&mut world, 2);
    world.send(flooder, 1_000, 10, 1_000_000);
    assert_eq!(total(&world.turn(), flooder), 1);
    let held = world.holding(flooder).records;
    assert_eq!(
        (held, world.stopped(lane)),
        (1, Some(Stop::Capped(Cap::Time))),
        "the second record in a row shows it"
    );
    while world.rotation.work_left() {
        world.turn();
        assert!(world.holding(flooder).records <= 64);
    }
    assert_eq!(world.counters(flooder).served, 1_000);
}

#[test]
fn who_alone_is_read_is_not_stopped_by_the_share_of_one_whose_hold_was_served() {
    let mut world = World::new(CAPS);
    let (lane, reader) = shared(&mut world, 2);
    let held = reader + 1;
    // Both are known to be fast; then ten slow records are left in the hold.
    world.send(reader, 20, 10, 100);
    world.send(held, 64, 10, 100);
    world.send(held, 10, 10, 100_000);
    world.turn();
    assert_eq!(world.holding(held).records, 10);
    // They are measured together with the first six of the reader's, and of these sixteen they pay the larger part.
    world.send(reader, 60, 10, 100);
    assert_eq!(total(&world.turn(), reader), 60);
    assert_eq!((world.counters(held).capped_by_time, world.counters(reader).capped_by_time), (1, 0));
    assert_eq!(world.stopped(lane), Some(Stop::Empty));
}

#[test]
fn behind_a_shared_lane_a_quiet_peer_gets_its_whole_64_beside_a_flooder() {
    let mut world = World::new(CAPS);
    let (lane, flooder) = shared(&mut world, 2);
    let quiet = flooder + 1;
    for _ in 0..20 {
        world.send(flooder, 1000, 10, 100);
        let turn = world.turn();
        assert_eq!(total(&turn, flooder), 64);
        let stop = Some(Stop::Capped(Cap::Records));
        assert_eq!(
            (world.holding(flooder).records, world.stopped(lane)),
            (0, stop),
            "alone it fills no hold"
        );
        assert_eq!(world.looked(lane), Looked::Unread);
    }
    for _ in 0..20 {
        world.send(quiet, 64, 10, 100);
        assert_eq!(total(&world.turn(), quiet), 64);
        assert!(world.holding(flooder).records <= 65);
    }
}

#[test]
fn a_quiet_peer_gets_one_record_less_after_a_hold_took_a_65th_and_gets_it_first_in_the_next_rotation() {
    let mut world = World::new(CAPS);
    let (_, flooder) = shared(&mut world, 3);
    let quiet = flooder + 1;
    world.send(flooder, 1000, 10, 100);
    in_company(&mut world, flooder + 2);
    world.turn();
    // It runs dry within the last round, so that the flooder comes again before anyone else.
    world.send(quiet, 63, 10, 100);
    assert_eq!(total(&world.turn(), quiet), 63);
    assert_eq!(world.holding(flooder).records, 65);

    world.send(quiet, 64, 10, 100);
    let turn = world.turn();
    assert_eq!((total(&turn, quiet), total(&turn, flooder)), (63, 64));
    assert_eq!(world.holding(flooder).records, 64, "it does not grow");

    world.send(quiet, 64, 10, 100);
    let turn = world.turn();
    assert_eq!((total(&turn, quiet), total(&turn, flooder)), (64, 64));
    assert_eq!(turn[0].of(quiet).next().unwrap().number, 126, "the one that was left");
}

#[test]
fn a_hold_takes_64_records_or_one_byte_cap() {
    let mut world = World::new(CAPS);
    let (lane, flooder) = shared(&mut world, 2);
    world.send(flooder, 20, 30_000, 100);
    in_company(&mut world, flooder + 1);
    assert_eq!(total(&world.turn(), flooder), 4);
    assert_eq!(world.holding(flooder), Load { records: 4, bytes: 120_000 });
    assert_eq!(world.stopped(lane), Some(Stop::HoldFull));
}

/// Four peers with 60 records of 100 µs each, all but five of each read into holds; half of a turn's time is enough
/// for two of them and one record of a third.
fn four_slow_peers(records: u64) -> (World, usize, usize) {
    let mut world = World::new(Caps { turn_time: Duration::from_micros(2_200), ..CAPS });
    let (lane, first) = shared(&mut world, 5);
    for peer in first..first + 4 {
        world.send(peer, records, 10, 100_000);
    }
    let turn = world.turn();
    assert!((first..first + 4).all(|peer| total(&turn, peer) == 5));
    (world, lane, first)
}

#[test]
fn what_is_held_is_served_first_from_the_peer_after_the_one_that_stopped() {
    let (mut world, lane, first) = four_slow_peers(60);
    assert!((first..first + 4).all(|peer| world.holding(peer).records == 55));
    let order: Vec<_> = (0..4).map(|_| from_holds(&world.turn()[0])).collect();
    assert_eq!(order, [[0, 1, 2], [3, 0, 1], [2, 3, 0], [1, 2, 3]]);
    assert_eq!(world.stopped(lane), Some(Stop::Empty));
}

#[test]
fn a_hold_that_becomes_full_does_not_move_the_cursor_off_those_whose_holds_had_no_time() {
    let (mut world, lane, first) = four_slow_peers(60);
    world.send(first, 20, 10, 100_000);
    in_company(&mut world, first + 4);
    assert_eq!(from_holds(&world.turn()[0]), [0, 1, 2]);
    assert_eq!((world.holding(first).records, world.stopped(lane)), (64, Some(Stop::HoldFull)));
    assert_eq!(from_holds(&world.turn()[0]), [3, 0, 1]);
}

#[test]
fn holds_take_half_the_lanes_time_and_the_lane_is_read_in_the_other() {
    let (mut world, lane, first) = four_slow_peers(60);
    let quiet = first + 4;
    world.send(quiet, 10, 10, 100);
    let turn = world.turn();
    assert_eq!((from_holds(&turn[0]).len(), total(&turn, quiet)), (3, 10));
    assert_eq!(world.looked(lane), Looked::Empty);
    assert!(world.rotation.work_left(), "a lane with held records is ready");
    let looked: Vec<_> =
        (first..=quiet).map(|peer| world.rotation.looked_at_peer(world.peers[peer].key)).collect();
    assert_eq!(looked, [Looked::Unread, Looked::Unread, Looked::Unread, Looked::No, Looked::Empty]);
}

#[test]
fn a_lane_whose_hold_is_still_full_is_not_read() {
    let (mut world, lane, first) = four_slow_peers(200);
    assert_eq!((world.holding(first + 3).records, world.stopped(lane)), (64, Some(Stop::HoldFull)));
    let unread = world.unread(first);
    let turn = world.turn();
    assert_eq!(from_holds(&turn[0]).len(), 3);
    assert_eq!((world.stopped(lane), world.looked(lane)), (Some(Stop::StillFull), Looked::No));
    assert_eq!(world.unread(first), unread);
    world.turn();
    assert!(world.unread(first) < unread, "the peer cursor came to the full one");
}

#[test]
fn a_removed_lane_or_peer_is_served_no_more_not_even_in_the_middle() {
    for removal in [Deed::RemoveLane(0), Deed::RemovePeer(0)] {
        let mut world = World::new(CAPS);
        let (gone, other) = (world.dedicated(), world.dedicated());
        world.send(gone, 10, 10, 100);
        world.send(other, 10, 10, 100);
        let turn = world.turn_with(&mut deed(3, removal));
        assert_eq!((total(&turn, gone), total(&turn, other)), (4, 10));
        assert!(!world.rotation.work_left());
    }
    let mut world = World::new(CAPS);
    let (_, gone) = shared(&mut world, 2);
    world.send(gone, 200, 10, 100);
    world.send(gone + 1, 200, 10, 100);
    world.turn();
    assert_eq!(world.holding(gone).records, 64);
    let turn = world.turn_with(&mut deed(3, Deed::RemovePeer(gone)));
    assert_eq!((total(&turn, gone) + total(&turn, gone + 1)), 4 + 64);
}

#[test]
fn a_stale_key_is_a_value() {
    let mut rotation = Rotation::<()>::new(CAPS);
    let (lane, peer) = rotation.add_dedicated(1, 2);
    assert_eq!(rotation.remove_peer(peer), Some(0));
    let (_, second) = rotation.add_dedicated(3, 4);
    assert_ne!(peer, second);
    assert_eq!((rotation.remove_lane(lane), rotation.remove_peer(peer)), (None, None));
    assert_eq!((rotation.add_peer(lane, 0), rotation.counters(peer)), (None, None));
    assert_eq!((rotation.stopped(lane), rotation.looked(lane)), (None, Looked::No));
    rotation.mark(lane);
    rotation.pause(lane, HoldLimits { records: 1, bytes: 1 });
    assert!(!rotation.work_left());
    assert_eq!(rotation.offer(peer, 1, true), Offer::Gone);
    assert_eq!(rotation.hold(()), Err(()));
}

#[test]
fn a_paused_lane_is_read_into_its_holds_until_the_pause_is_full() {
    for dedicated in [true, false] {
        let mut world = World::new(CAPS);
        let peer = if dedicated { world.dedicated() } else { shared(&mut world, 1).1 };
        world.act(Deed::Pause(0, HoldLimits { records: 100, bytes: 1 << 20 }));
        assert!(!world.rotation.is_held_back(world.peers[peer].key), "it is read, and nothing is held");
        world.send(peer, 150, 10, 100);
        let mut turns = 0;
        while world.rotation.work_left() {
            assert_eq!(total(&world.turn(), peer), 0);
            turns += 1;
        }
        assert_eq!((world.holding(peer).records, world.unread(peer)), (100, 50));
        assert_eq!(world.stopped(0), Some(Stop::PauseFull));
        assert!(world.rotation.is_held_back(world.peers[peer].key));
        assert_eq!(turns, if dedicated { 2 } else { 1 });
        world.act(Deed::Resume(0));
        assert!(!world.rotation.is_held_back(world.peers[peer].key));
        let served: Vec<_> = (0..3).map(|_| total(&world.turn(), peer)).collect();
        assert_eq!(served, [64, 64, 22]);
        assert!(!world.rotation.work_left());
    }
}

#[test]
fn what_a_dedicated_lane_holds_is_served_before_anything_more_is_read() {
    let mut world = World::new(Caps { turn_time: Duration::from_micros(200), ..CAPS });
    let peer = world.dedicated();
    world.act(Deed::Pause(0, HoldLimits { records: 100, bytes: 1 << 20 }));
    world.send(peer, 50, 10, 20_000);
    while world.rotation.work_left() {
        world.turn();
    }
    world.act(Deed::Resume(0));
    world.send(peer, 50, 10, 20_000);
    assert_eq!(total(&world.turn(), peer), 10);
    assert_eq!((world.holding(peer).records, world.unread(peer)), (40, 50));
}

#[test]
fn fast_records_share_readings_of_the_clock_and_slow_or_large_ones_have_their_own() {
    for (bytes, cost, at_most, at_least) in
        [(10, 10, 8, 5), (10, SLOW, 64, 12), (6_250, 10, 64, 16), (10, 10_000, 40, 20)]
    {
        let mut world = World::new(CAPS);
        let peer = world.dedicated();
        world.send(peer, 64, bytes, cost);
        let served = total(&world.turn(), peer) as u64;
        assert!(served > 0 && (at_least..=at_most).contains(&world.readings), "{cost}: {}", world.readings);
        if at_most == 64 {
            assert_eq!(world.readings, served);
        }
    }
}

#[test]
fn a_slow_peer_is_known_by_records_that_came_alone() {
    let mut world = World::new(CAPS);
    let peer = world.dedicated();
    for _ in 0..5 {
        world.send(peer, 1, 10, 20_000);
        world.turn();
    }
    world.send(peer, 64, 10, 20_000);
    let before = world.readings;
    let served = total(&world.turn(), peer);
    assert!(served <= 26, "one record more than the time cap holds");
    assert!(world.readings - before > served as u64 / 2, "two share a reading at most");
}

#[test]
fn nobody_pays_for_the_lane_before() {
    let mut world = World::new(CAPS);
    let (turned_slow, quick) = (world.dedicated(), world.dedicated());
    world.send(turned_slow, 63, 10, 100);
    world.turn();
    world.send(turned_slow, 3, 10, 300_000);
    world.send(quick, 60, 10, 100);
    assert_eq!(total(&world.turn(), quick), 60);
    assert_eq!((world.counters(turned_slow).capped_by_time, world.counters(quick).capped_by_time), (1, 0));
}

#[test]
fn a_turn_exceeds_its_time_by_one_slow_record_or_one_stride() {
    let turn_time = CAPS.turn_time.as_nanos() as u64;
    let mut world = World::new(CAPS);
    for peer in 0..10 {
        world.dedicated();
        world.send(peer, 20, 10, 300_000);
    }
    world.turn();
    assert!(world.clock <= turn_time + 300_000 + RECEIVE);

    let mut world = World::new(CAPS);
    let peer = world.dedicated();
    world.send(peer, 31, 10, 10);
    world.send(peer, 33, 10, 1_000_000);
    world.turn();
    let fast = 31 * (10 + RECEIVE);
    assert_eq!(world.clock, fast + u64::from(STRIDE_MAX) * (1_000_000 + RECEIVE));
}

#[test]
fn a_slow_peer_does_not_hide_behind_another_that_is_measured() {
    const SLOW: u64 = 2_000_000;
    let mut world = World::new(CAPS);
    shared(&mut world, 3);
    (0..3).for_each(|peer| world.send(peer, 40, 10, 10));
    while world.turn().iter().any(|served| !served.handled.is_empty()) {}
    // The first is known to be slow before the others turn slow too.
    world.send(0, 1, 10, SLOW);
    world.turn();
    (0..3).for_each(|peer| world.send(peer, 20, 10, SLOW));
    let counts: Vec<usize> = (0..60)
        .map(|_| world.turn().iter().map(|served| served.handled.len()).sum())
        .take_while(|&count| count > 0)
        .collect();
    assert_eq!(counts.iter().sum::<usize>(), 60, "{counts:?}");
    let beyond = counts.iter().filter(|&&count| count > 1).count();
    assert!(beyond <= 3, "each can surprise once: {counts:?}");
}

#[test]
fn a_peer_that_is_capped_in_every_rotation_reuses_its_storage() {
    let mut world = World::new(CAPS);
    let (_, flooder) = shared(&mut world, 2);
    world.send(flooder, 64_000, 10, 100);
    in_company(&mut world, flooder + 1);
    world.turn();
    let storage = std::ptr::from_ref(world.rotation.peers[0].hold.as_deref().unwrap());
    let capacity = world.rotation.peers[0].hold.as_deref().unwrap().capacity();
    for _ in 0..100 {
        in_company(&mut world, flooder + 1);
        world.turn();
        let hold = world.rotation.peers[0].hold.as_deref().unwrap();
        assert_eq!((std::ptr::from_ref(hold), hold.capacity()), (storage, capacity));
    }
}

/// Prints what the rotation itself costs; run it alone, in release mode, with `--ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn the_driver_loop_costs_nanoseconds_a_record() {
    for is_shared in [false, true] {
        let clock = crate::clock::Clock::start();
        let mut rotation = Rotation::<u64>::new(Caps::default());
        let (lane, peer) = if is_shared {
            let lane = rotation.add_shared(0);
            (lane, rotation.add_peer(lane, 0).unwrap())
        } else {
            rotation.add_dedicated(0, 0)
        };
        rotation.mark(lane);
        let mut handled = 0u64;
        let began = clock.now();
        while handled < 64_000_000 {
            rotation.begin(clock.now());
            while rotation.next_lane().is_some() {
                while let Some(held) = rotation.next_held() {
                    handled += std::hint::black_box(held.record);
                    rotation.done(|| clock.now());
                }
                while rotation.may_read() {
                    match rotation.offer(std::hint::black_box(peer), std::hint::black_box(100), true) {
                        Offer::Deliver => handled += std::hint::black_box(1),
                        Offer::Hold => rotation.hold(1).unwrap(),
                        Offer::Gone => unreachable!(),
                    }
                    rotation.done(|| clock.now());
                }
            }
        }
        let picos = clock.now().since(began).as_nanos() as u64 * 1000 / handled;
        let lane = if is_shared { "shared, every record held" } else { "dedicated" };
        println!("{lane}: {picos} ps a record, readings of the clock included");
    }
    println!("bytes: lane {}, peer {}", std::mem::size_of::<Lane>(), std::mem::size_of::<Peer<[u8; 64]>>());
}
