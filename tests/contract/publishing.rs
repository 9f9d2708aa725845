//! 000 §4 and §10, "Fanout": what a publisher sends, seen by a plain SUB socket byte for byte.

use std::time::Duration;

use wakeful::{Endpoint, Owned, RegisterError, SendError, Subscriber};

use crate::support::{Node, ms, s};
use crate::ticks::{PAYLOAD, RawSubscriber, Record, TOPIC, publisher_node, ticks};

/// A publisher that was just registered, and a plain subscriber to everything, whose subscription is in force.
fn publisher() -> (Node, Endpoint, RawSubscriber) {
    let (mut node, endpoint) = publisher_node();
    let subscriber = RawSubscriber::new(&endpoint, &[b""], 1_000);
    subscriber.join(&mut node, b"join");
    (node, endpoint, subscriber)
}

/// Publishes the end of a list, and takes everything that was sent before it.
fn sent(node: &mut Node, subscriber: &RawSubscriber) -> Vec<Record> {
    node.engine.outbox().publish(&ticks(), b"end", &[]).unwrap();
    subscriber.up_to(&[b"end".to_vec()])
}

fn beacon() -> Record {
    vec![TOPIC.to_vec(), PAYLOAD.to_vec()]
}

/// The beacon is exactly these two frames, and one goes out in the very turn of each grid point of 5 s, though the
/// publisher publishes all the time.
#[test]
fn a_beacon_of_exactly_two_frames_goes_out_every_5_s_beside_traffic() {
    let (mut node, _, subscriber) = publisher();
    let began = node.now;
    let mut story: Vec<(Duration, Record)> = Vec::new();
    for step in 1..=170 {
        // Turns come every 97 ms, and whenever the engine wants one before.
        let end = began + ms(97) * step;
        while node.now < end {
            node.now = node.engine.next_due().unwrap().at.min(end);
            node.turn();
            let at = node.now - began;
            story.extend(sent(&mut node, &subscriber).into_iter().map(|record| (at, record)));
        }
    }
    assert_eq!(story, [5, 10, 15].map(|second| (s(second), beacon())));
}

/// Nothing else makes a beacon: without any traffic there are as many.
#[test]
fn a_beacon_goes_out_every_5_s_without_any_traffic() {
    let (mut node, _, subscriber) = publisher();
    let end = node.now + s(60);
    while let Some(due) = node.engine.next_due().map(|due| due.at).filter(|at| *at <= end) {
        node.now = due;
        node.turn();
    }
    assert_eq!(sent(&mut node, &subscriber), vec![beacon(); 12]);
}

/// A grid point that nobody was awake for is skipped, and the grid does not move (000 §2: one period).
#[test]
fn beacons_that_were_slept_through_are_not_caught_up() {
    let (mut node, _, subscriber) = publisher();
    node.pass(s(17));
    assert_eq!(sent(&mut node, &subscriber), [beacon()]);
    node.pass(ms(2_999));
    assert_eq!(sent(&mut node, &subscriber), Vec::<Record>::new());
    node.pass(ms(1));
    assert_eq!(sent(&mut node, &subscriber), [beacon()]);
}

/// The application cannot use exactly the reserved topic: not to publish, not as a filter, not at registration. Nothing is
/// changed by trying.
#[test]
fn the_reserved_topic_is_a_call_argument_error() {
    let (mut node, _, subscriber) = publisher();
    for parts in [&[][..], &[PAYLOAD], &[b"x", b"y"]] {
        assert_eq!(node.engine.outbox().publish(&ticks(), TOPIC, parts), Err(SendError::ReservedTopic));
    }
    assert_eq!(sent(&mut node, &subscriber), Vec::<Record>::new());

    let refused = node.engine.subscribe(Subscriber::new(ticks()).filter(b"a").filter(TOPIC));
    assert_eq!(refused, Err(RegisterError::ReservedTopic));
    node.engine.subscribe(Subscriber::new(ticks())).unwrap();
    let mut outbox = node.engine.outbox();
    assert_eq!(outbox.add_filter(&ticks(), TOPIC), Err(RegisterError::ReservedTopic));
    assert_eq!(outbox.remove_filter(&ticks(), TOPIC), Err(RegisterError::ReservedTopic));
}

/// Every other topic is an application's, also those that begin with the same bytes, and the empty one.
#[test]
fn every_other_topic_can_be_published() {
    let (mut node, _, subscriber) = publisher();
    let topics = [&b""[..], &TOPIC[..4], b"\x01ZLF1 ", b"\x01ZLF1\x00", b"\x01ZLF2", b"\x01ZLF1ZF\x01\x01"];
    for topic in topics {
        node.engine.outbox().publish(&ticks(), topic, &[PAYLOAD]).unwrap();
    }
    let expected = topics.map(|topic| vec![topic.to_vec(), PAYLOAD.to_vec()]);
    assert_eq!(sent(&mut node, &subscriber), expected);
}

/// A record goes out with 0 to 254 parts behind its topic, and not with more.
#[test]
fn a_record_carries_0_to_254_parts() {
    let (mut node, _, subscriber) = publisher();
    for count in [0, 1, 254] {
        node.engine.outbox().publish(&ticks(), b"t", &vec![&b"p"[..]; count]).unwrap();
        assert_eq!(sent(&mut node, &subscriber)[0].len(), 1 + count);
    }
    let refused = node.engine.outbox().publish(&ticks(), b"t", &[&b"p"[..]; 255]);
    assert_eq!(refused, Err(SendError::TooManyParts { parts: 255 }));
    assert_eq!(sent(&mut node, &subscriber), Vec::<Record>::new());
}

/// A publisher hears nothing: whatever a subscriber sends changes nothing, and is no event.
#[test]
fn a_publisher_takes_nothing_from_its_subscribers() {
    let (mut node, endpoint, subscriber) = publisher();
    let chatter = zmq::Context::new().socket(zmq::XSUB).unwrap();
    chatter.set_linger(0).unwrap();
    chatter.connect(endpoint.as_str()).unwrap();
    for said in [&b"\x01"[..], b"\x02hello", b"ZM\x01\x05\x00", b""] {
        chatter.send(said, 0).unwrap();
    }
    // Its own subscription is in force when a record comes back, so what it said before was read.
    let mut number = 0_u32;
    crate::support::until(&mut [&mut node], "heard by the chatter", |nodes| {
        number += 1;
        nodes[0].engine.outbox().publish(&ticks(), b"t", &[&number.to_be_bytes()]).unwrap();
        chatter.poll(zmq::POLLIN, 0) == Ok(1)
    });
    assert!(node.events().is_empty());
    assert_eq!(sent(&mut node, &subscriber).len() as u32, number);
    assert_eq!(node.engine.snapshot().counters, wakeful::Counters::default());
}

/// A subscriber that is not there, and one that reads nothing and whose queues are full, block no publish, and the other
/// subscribers lose nothing by them.
#[test]
fn a_full_or_absent_subscriber_never_blocks_a_publish() {
    let (mut node, endpoint) = publisher_node();
    for _ in 0..3_000 {
        node.engine.outbox().publish(&ticks(), b"nobody", &[b"hears"]).unwrap();
    }
    let full = RawSubscriber::new(&endpoint, &[b"f"], 1);
    let healthy = RawSubscriber::new(&endpoint, &[b""], 1_000);
    full.join(&mut node, b"full");
    healthy.join(&mut node, b"join");
    let body = vec![0; 16_384];
    for round in 0..100 {
        for _ in 0..20 {
            node.engine.outbox().publish(&ticks(), b"flood", &[&body]).unwrap();
        }
        node.pass(ms(50));
        assert_eq!(
            sent(&mut node, &healthy).iter().filter(|record| record[0] == b"flood").count(),
            20,
            "round {round}"
        );
    }
    let mut kept = 0;
    while full.take().is_some() {
        kept += 1;
    }
    assert!(kept < 2_000, "the full one lost something: it has {kept}");
    assert!(node.events().iter().all(|event| !matches!(event, Owned::PublisherLost { .. })));
}
