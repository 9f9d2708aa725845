//! Classic fanout over real loopback sockets (000 §4), in virtual time.

use wakeful::*;

use crate::support::*;

fn ticks() -> ChannelName {
    ChannelName::new("ticks").unwrap()
}

/// A publisher; returns where it publishes.
fn publisher() -> (Node, Endpoint) {
    let mut node = Node::new();
    let bound = node.engine.broadcast(Publisher::new(ticks(), "tcp://127.0.0.1:0".parse().unwrap())).unwrap();
    (node, Endpoint::try_from(&bound).unwrap())
}

fn subscriber(endpoints: &[&Endpoint], filters: &[&[u8]]) -> Node {
    let mut node = Node::new();
    let mut wish = Subscriber::new(ticks());
    for endpoint in endpoints {
        wish = wish.publisher((*endpoint).clone());
    }
    for filter in filters {
        wish = wish.filter(filter);
    }
    node.engine.subscribe(wish).unwrap();
    node
}

/// What a subscriber heard of: readiness by endpoint, losses with their reasons, records by topic.
#[derive(Debug, Default, PartialEq)]
struct Heard {
    ready: Vec<Endpoint>,
    lost: Vec<(Endpoint, LostReason)>,
    topics: Vec<Vec<u8>>,
    other: Vec<Owned>,
}

fn heard(node: &mut Node) -> Heard {
    let mut heard = Heard::default();
    for event in node.events() {
        match event {
            Owned::PublisherReady { publisher } => heard.ready.push(publisher.endpoint().clone()),
            Owned::PublisherLost { publisher, reason } => {
                heard.lost.push((publisher.endpoint().clone(), reason));
            }
            Owned::Published { topic, .. } => heard.topics.push(topic),
            other => heard.other.push(other),
        }
    }
    heard
}

fn is_ready(node: &Node) -> bool {
    node.engine.snapshot().intents.iter().all(|intent| intent.state == RouteState::Ready)
}

/// Lets the publisher's next beacon reach the subscriber.
fn ready(publisher: &mut Node, subscriber: &mut Node) {
    until(&mut [subscriber, publisher], "ready", |nodes| {
        nodes[1].now += ms(100);
        is_ready(nodes[0])
    });
}

#[test]
fn a_subscriber_is_ready_on_the_first_beacon_and_hears_what_its_filters_ask_for() {
    let (mut publisher, endpoint) = publisher();
    let mut subscriber = subscriber(&[&endpoint], &[b"EUR"]);
    ready(&mut publisher, &mut subscriber);
    assert_eq!(heard(&mut subscriber), Heard { ready: vec![endpoint], ..Heard::default() });
    for topic in [&b"EURUSD"[..], b"USDJPY", b"EUR", b"\x01ZLF1 longer", b"E"] {
        publisher.engine.outbox().publish(&ticks(), topic, &[b"1.1"]).unwrap();
    }
    let mut topics = Vec::new();
    until(&mut [&mut subscriber, &mut publisher], "two records", |nodes| {
        topics.extend(heard(nodes[0]).topics);
        topics.len() == 2
    });
    settle(&mut [&mut subscriber, &mut publisher]);
    assert_eq!(topics, vec![b"EURUSD".to_vec(), b"EUR".to_vec()]);
    assert_eq!(
        subscriber.engine.snapshot().counters.unsubscribed,
        1,
        "the longer topic came by the beacon's filter"
    );
}

#[test]
fn a_publisher_that_goes_silent_is_lost_at_15_s_and_the_other_stays() {
    let (mut silent, silent_endpoint) = publisher();
    let (mut alive, alive_endpoint) = publisher();
    let mut subscriber = subscriber(&[&silent_endpoint, &alive_endpoint], &[]);
    until(&mut [&mut subscriber, &mut silent, &mut alive], "both ready", |nodes| {
        nodes[1].now += ms(100);
        nodes[2].now += ms(100);
        is_ready(nodes[0])
    });
    heard(&mut subscriber);
    let mut story = Vec::new();
    for second in 1..=17 {
        subscriber.pass(s(1));
        alive.pass(s(1));
        settle(&mut [&mut subscriber, &mut alive]);
        story.extend(heard(&mut subscriber).lost.into_iter().map(|lost| (second, lost)));
    }
    assert_eq!(story, vec![(16, (silent_endpoint, LostReason::Silence(Silence::NoRecord)))]);
    drop(silent);
}

#[test]
fn a_closed_publisher_is_lost_at_once_and_heard_again_when_it_returns() {
    let (mut publisher, endpoint) = publisher();
    let mut subscriber = subscriber(&[&endpoint], &[b""]);
    ready(&mut publisher, &mut subscriber);
    heard(&mut subscriber);
    drop(publisher);
    let mut lost = Vec::new();
    until(&mut [&mut subscriber], "lost", |nodes| {
        lost.extend(heard(nodes[0]).lost);
        !lost.is_empty()
    });
    assert_eq!(lost, vec![(endpoint.clone(), LostReason::Transport)]);
    let mut again = Node::new();
    again.engine.broadcast(Publisher::new(ticks(), endpoint.as_str().parse().unwrap())).unwrap();
    until(&mut [&mut subscriber, &mut again], "ready again", |nodes| {
        nodes[0].now += ms(100);
        nodes[1].now += ms(100);
        is_ready(nodes[0])
    });
}
