//! What a host changes while everybody publishes: its publishers and its filters, again and again.
#![allow(clippy::disallowed_methods, reason = "a test may allocate")]

use wakeful::{LostReason, Owned, PublisherDescriptor, Source, Subscriber};

use crate::support::{generation, ms, rid};
use crate::ticks::{RawPublisher, Stage, TOPIC, ticks};

const PUBLISHERS: usize = 12;
const SWAPS: u64 = 100;
const FILTERS: u32 = 10_000;
const ACCEPTED: u16 = zmq::SocketEvent::ACCEPTED as u16;
const DISCONNECTED: u16 = zmq::SocketEvent::DISCONNECTED as u16;

/// A number that looks drawn.
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

fn described(raws: &[RawPublisher], number: usize, run: u64) -> PublisherDescriptor {
    let endpoint = raws[number].endpoint.clone();
    PublisherDescriptor { endpoint, rid: rid(&format!("p{number}")), generation: generation(run) }
}

fn descriptor_of(source: &Source) -> PublisherDescriptor {
    let (rid, generation) = (source.rid().unwrap().clone(), source.generation().unwrap());
    PublisherDescriptor { endpoint: source.endpoint().clone(), rid, generation }
}

/// How many more connections a publisher accepted than it lost, since it was last asked.
fn changes(reader: &zmq::Socket) -> i64 {
    let mut more = 0;
    while let Ok(event) = reader.recv_multipart(zmq::DONTWAIT) {
        match u16::from_ne_bytes([event[0][0], event[0][1]]) {
            ACCEPTED => more += 1,
            DISCONNECTED => more -= 1,
            _ => {}
        }
    }
    more
}

/// What is told after a swap is of those that are wanted since, but for the end of those that are not; each is ready and lost
/// in turn. In the end each wanted one has one socket, and nothing is left of all the others.
#[test]
fn descriptors_swapped_under_load_leave_one_socket_for_each_that_is_wanted() {
    let context = zmq::Context::new();
    let raws: Vec<_> = (0..PUBLISHERS).map(|_| RawPublisher::among(&context)).collect();
    let readers: Vec<_> = raws.iter().map(|raw| raw.monitor(&context)).collect();
    let all = (0..PUBLISHERS).map(|number| described(&raws, number, 1));
    let wish = all.fold(Subscriber::new(ticks()).filter(b"t"), Subscriber::described_publisher);
    let mut stage = Stage::of(raws, wish);
    let (mut seed, mut delivered) = (1, 0);
    let mut ready: Vec<PublisherDescriptor> = Vec::new();
    let mut wanted = Vec::new();
    for swap in 1..=SWAPS {
        wanted.clear();
        for number in 0..PUBLISHERS {
            let (is_wanted, run) = (draw(&mut seed) % 3 != 0, 1 + u64::from(draw(&mut seed) % 8 == 0));
            if is_wanted || swap == SWAPS {
                wanted.push(described(&stage.raws, number, run));
            }
        }
        stage.node.engine.outbox().set_publishers(&ticks(), &wanted).unwrap();
        for _ in 0..10 {
            stage.raws.iter().for_each(|raw| raw.send(&[b"t", &swap.to_be_bytes()]));
            stage.node.now += ms(20);
            stage.turn();
            stage.node.engine.wait(Some(ms(1)));
        }
        for (_, event) in stage.diary.drain(..) {
            match event {
                Owned::PublisherReady { publisher } => {
                    let who = descriptor_of(&publisher);
                    assert!(wanted.contains(&who) && !ready.contains(&who), "swap {swap}: {who:?}");
                    ready.push(who);
                }
                Owned::PublisherLost { publisher, reason: LostReason::Retired } => {
                    let who = descriptor_of(&publisher);
                    let place = ready.iter().position(|each| *each == who).expect("it was ready");
                    assert!(!wanted.contains(&ready.swap_remove(place)), "swap {swap}: {who:?}");
                }
                Owned::Published { publisher, .. } => {
                    assert!(ready.contains(&descriptor_of(&publisher)), "swap {swap}: {publisher:?}");
                    delivered += 1;
                }
                other => panic!("swap {swap}: {other:?}"),
            }
        }
    }
    assert!(delivered > 10 * SWAPS, "{delivered} records");
    stage.until_later(ms(20), "all of the last swap ready", |stage| {
        stage.raws.iter().for_each(|raw| raw.send(&[b"t"]));
        stage.snapshot().sources.len() == PUBLISHERS
    });
    let mut last: Vec<_> = stage.snapshot().sources.iter().map(|each| descriptor_of(&each.source)).collect();
    last.sort_by_key(|each| stage.raws.iter().position(|raw| raw.endpoint == each.endpoint));
    assert_eq!((last, stage.snapshot().intents.len()), (wanted, PUBLISHERS));
    let mut sockets = [0_i64; PUBLISHERS];
    stage.until("one socket for each", |_| {
        for (reader, open) in readers.iter().zip(&mut sockets) {
            *open += changes(reader);
        }
        sockets == [1; PUBLISHERS]
    });
}

fn filter(number: u32) -> [u8; 5] {
    let [a, b, c, d] = number.to_be_bytes();
    [b'f', a, b, c, d]
}

/// Ten thousand filters come, and every other one goes, while both publishers publish. In the end exactly those that are left
/// are in force: for the publishers there are, and for the next socket.
#[test]
fn of_ten_thousand_filters_that_come_and_go_under_load_those_that_are_left_are_in_force() {
    let mut stage = Stage::ready(2, &[b"keep"]);
    for number in 0..FILTERS {
        let mut outbox = stage.node.engine.outbox();
        assert_eq!(outbox.add_filter(&ticks(), &filter(number)), Ok(true));
        if number % 2 == 1 {
            assert_eq!(outbox.remove_filter(&ticks(), &filter(number - 1)), Ok(true));
        }
        drop(outbox);
        if number % 100 == 0 {
            stage.raws.iter().for_each(|raw| raw.send(&[b"keep"]));
            stage.turn();
        }
    }
    let said = 2 + FILTERS as usize * 3 / 2;
    stage.until("all told", |stage| stage.raws.iter_mut().all(|raw| raw.hear().len() == said));
    stage.until("all read", |stage| stage.published().len() == 2 * FILTERS as usize / 100);
    stage.diary.clear();
    // Another socket, which is told of them anew.
    stage.raws[1].send(&[TOPIC]);
    stage.until("lost", |stage| stage.lost().len() == 1);
    stage.node.now += ms(500);
    let beacons = stage.raws[1].count(1, TOPIC);
    stage.until("told anew", |stage| stage.raws[1].count(1, TOPIC) > beacons);
    stage.diary.clear();
    for number in (0..FILTERS).step_by(97) {
        stage.raws.iter().for_each(|raw| raw.send(&[&filter(number), b"part"]));
    }
    stage.raws.iter().for_each(|raw| raw.send(&[b"keep"]));
    let is_end = |(_, record): &(usize, Vec<Vec<u8>>)| record[0] == b"keep";
    stage.until("all that is wanted", |stage| {
        stage.published().iter().filter(|each| is_end(each)).count() == 2
    });
    for publisher in 0..2 {
        let heard = stage.published().into_iter().filter(|(from, _)| *from == publisher);
        let expected = (0..FILTERS).step_by(97).filter(|number| number % 2 == 1).map(filter);
        let expected = expected.map(|topic| topic.to_vec()).chain([b"keep".to_vec()]);
        assert!(heard.map(|(_, record)| record[0].clone()).eq(expected), "publisher {publisher}");
    }
}
