//! 000 §10, "Fanout", its first three lines, and what "Failure isolation" says of a publisher.

use wakeful::{
    Counters, Endpoint, HostState, LostReason, Owned, Publisher, RouteState, SendError, Silence, Subscriber,
};

use crate::scene::{receive, turn_when_due};
use crate::support::raw::Raw;
use crate::support::{Node, channel, s, until};

const TOPIC: [u8; 5] = [0x01, 0x5A, 0x4C, 0x46, 0x31];
const PAYLOAD: [u8; 4] = [0x5A, 0x46, 0x01, 0x01];

/// An engine that subscribes to all of these publishers, each of which has heard so and said nothing yet.
fn subscriber(publishers: &mut [Raw]) -> Node {
    let wish = Subscriber::new(channel()).filter(b"news");
    let wish = publishers.iter().fold(wish, |wish, raw| wish.publisher(raw.endpoint.clone()));
    let mut node = Node::new();
    node.engine.subscribe(wish).unwrap();
    until(&mut [&mut node], "both filters at each publisher", |_| {
        publishers.iter_mut().all(|raw| {
            raw.poll();
            raw.seen.len() == 2
        })
    });
    for raw in publishers {
        raw.seen.clear();
    }
    node
}

/// Two publishers, ready by a beacon each.
fn two_publishers() -> ([Raw; 2], Node) {
    let mut publishers = [Raw::publisher(), Raw::publisher()];
    let mut node = subscriber(&mut publishers);
    for raw in &publishers {
        raw.send(&TOPIC, &[&PAYLOAD]);
    }
    until(&mut [&mut node], "both ready", |nodes| states(nodes[0]) == [RouteState::Ready; 2]);
    node.events();
    (publishers, node)
}

fn states(node: &Node) -> Vec<RouteState> {
    node.engine.snapshot().intents.iter().map(|intent| intent.state).collect()
}

/// The publishers lost so far, with the reasons. Nothing else may have been told.
#[track_caller]
fn lost(node: &mut Node) -> Vec<(Endpoint, LostReason)> {
    let lost = node.events().into_iter().map(|event| match event {
        Owned::PublisherLost { publisher, reason } => (publisher.endpoint().clone(), reason),
        other => panic!("{other:?}"),
    });
    lost.collect()
}

/// Each publisher is connected by its own socket: the end of one closes that connection and no other.
#[test]
fn each_publisher_has_a_socket_of_its_own() {
    let (mut publishers, mut node) = two_publishers();
    publishers[0].send(&TOPIC, &[b"wrong"]);
    until(&mut [&mut node], "the first one's transport closed", |_| {
        publishers.iter_mut().for_each(Raw::poll);
        publishers[0].disconnected == 1
    });
    assert_eq!((publishers[1].accepted, publishers[1].disconnected), (1, 0));
}

/// A connected publisher is not ready; its first application record makes it so, or its first beacon, and also a record
/// that no filter asks for.
#[test]
fn a_publisher_is_ready_with_its_first_record() {
    let longer = [&TOPIC[..], b"!"].concat();
    let firsts: [(&[u8], &[u8]); 3] = [(b"news", b"of today"), (&TOPIC, &PAYLOAD), (&longer, b"")];
    for (topic, payload) in firsts {
        let mut publishers = [Raw::publisher()];
        let mut node = subscriber(&mut publishers);
        for _ in 0..19 {
            node.pass(s(1));
        }
        assert_eq!(states(&node), [RouteState::Connecting], "it is connected and has said nothing");
        assert_eq!(node.events(), []);
        publishers[0].send(topic, &[payload]);
        until(&mut [&mut node], "ready", |nodes| states(nodes[0]) == [RouteState::Ready]);
        assert!(matches!(node.events()[0], Owned::PublisherReady { .. }));
    }
}

/// A publisher's beacon has exactly two frames, `01 5A 4C 46 31` and `5A 46 01 01`, and goes out every 5 s whether or not
/// anything is published.
#[test]
fn the_beacon_has_two_frames_of_fixed_bytes_every_5_s() {
    let mut node = Node::new();
    let bind = "tcp://127.0.0.1:0".parse().unwrap();
    let bound = node.engine.broadcast(Publisher::new(channel(), bind)).unwrap();
    let mut raw = Raw::subscriber(&Endpoint::try_from(&bound).unwrap());
    // Records are lost until the subscription has arrived; the one that comes first shows that it has.
    until(&mut [&mut node], "the subscription", |nodes| {
        nodes[0].engine.outbox().publish(&channel(), b"first", &[]).unwrap();
        raw.poll();
        !raw.seen.is_empty()
    });
    let began = node.now;
    for second in 1..=17 {
        node.now = began + s(second);
        node.turn();
        for _ in 0..3 {
            node.engine.outbox().publish(&channel(), b"news", &[b"of today"]).unwrap();
        }
        // The five-second points are 5, 10 and 15.
        assert_eq!(beacons_until_a_mark(&mut raw, &mut node), usize::from(second % 5 == 0), "{second} s");
    }
    for second in 18..=32 {
        node.now = began + s(second);
        node.turn();
    }
    assert_eq!(beacons_until_a_mark(&mut raw, &mut node), 3, "at 20, 25 and 30 s, with nothing published");
}

/// Publishes a mark, and counts the beacons that a subscriber has received before it.
fn beacons_until_a_mark(raw: &mut Raw, node: &mut Node) -> usize {
    node.engine.outbox().publish(&channel(), b"mark", &[]).unwrap();
    until(&mut [node], "the mark", |_| {
        raw.poll();
        raw.seen.last().is_some_and(|seen| seen.frames == [b"mark"])
    });
    let mut beacons: Vec<_> = raw.seen.drain(..).map(|seen| seen.frames).collect();
    beacons.retain(|frames| frames[0] == TOPIC);
    assert!(beacons.iter().all(|frames| *frames == [TOPIC.to_vec(), PAYLOAD.to_vec()]), "{beacons:?}");
    beacons.len()
}

/// Nothing is sent back for a beacon, no event tells of it, no counter counts it; only the deadline moves.
#[test]
fn a_beacon_is_neither_answered_nor_delivered_nor_counted() {
    let (mut publishers, mut node) = two_publishers();
    for _ in 0..20 {
        // Time alone would end both of them at 15 s.
        node.pass(s(1));
        for raw in &publishers {
            raw.send(&TOPIC, &[&PAYLOAD]);
        }
        receive(&mut node, 2);
    }
    assert_eq!(states(&node), [RouteState::Ready; 2]);
    assert_eq!(node.events(), []);
    let snapshot = node.engine.snapshot();
    assert_eq!((snapshot.counters, snapshot.connections.len()), (Counters::default(), 0));
    for raw in &mut publishers {
        raw.poll();
        assert_eq!(raw.seen, []);
    }
}

/// The application cannot publish under exactly that topic; a topic that only begins like it is its own.
#[test]
fn the_reserved_topic_is_nobodys_to_publish() {
    let mut node = Node::new();
    let bind = "tcp://127.0.0.1:0".parse().unwrap();
    node.engine.broadcast(Publisher::new(channel(), bind)).unwrap();
    let mut publish = |topic: &[u8]| node.engine.outbox().publish(&channel(), topic, &[&PAYLOAD]);
    assert_eq!(publish(&TOPIC), Err(SendError::ReservedTopic));
    assert_eq!(publish(&[&TOPIC[..], b"!"].concat()), Ok(()));
    assert_eq!(publish(&TOPIC[..4]), Ok(()));
}

/// The reserved topic with another payload or frame count ends that publisher at once and no other, and is not delivered.
#[test]
fn a_malformed_beacon_ends_only_that_publisher() {
    let malformed: [&[&[u8]]; 4] = [&[], &[b"\x5A\x46\x01\x02"], &[b""], &[&PAYLOAD, b"more"]];
    for parts in malformed {
        let (publishers, mut node) = two_publishers();
        publishers[0].send(&TOPIC, parts);
        let mut ends = Vec::new();
        until(&mut [&mut node], "the end", |nodes| {
            ends.extend(lost(nodes[0]));
            !ends.is_empty()
        });
        assert_eq!(ends, [(publishers[0].endpoint.clone(), LostReason::Protocol)]);
        assert_eq!(states(&node), [RouteState::Reconnecting, RouteState::Ready]);
    }
}

/// A publisher that says nothing for 15 s is lost alone, at exactly 15 s; the other stays, and so does the host's state.
#[test]
fn one_publishers_silence_is_nobody_elses() {
    let (publishers, mut node) = two_publishers();
    let began = node.now;
    for second in 1..=16 {
        publishers[1].send(b"news", &[b"of today"]);
        until(&mut [&mut node], "the record", |nodes| {
            let events = nodes[0].events();
            assert!(events.iter().all(|event| matches!(event, Owned::Published { .. })), "{events:?}");
            !events.is_empty()
        });
        let end = began + s(second);
        while !turn_when_due(&mut node, end) {
            for (endpoint, reason) in lost(&mut node) {
                let silent = LostReason::Silence(Silence::NoRecord);
                assert_eq!((endpoint, reason), (publishers[0].endpoint.clone(), silent));
                assert_eq!((second, node.now - began), (15, s(15)));
            }
        }
    }
    assert_eq!(states(&node), [RouteState::Reconnecting, RouteState::Ready]);
    assert_eq!(node.engine.snapshot().host, HostState::Serving);
}
