//! What a host does from within its own events, and between turns.

use std::os::fd::AsRawFd;

use wakeful::{Config, Event, Host, LostReason, Outbox, Owned, Pressure, PublisherDescriptor, Subscriber};

use crate::support::{Node, generation, ms, rid, until};
use crate::ticks::{RawPublisher, RawSubscriber, Stage, TOPIC, publisher_node, ticks};

fn described(raw: &RawPublisher) -> PublisherDescriptor {
    PublisherDescriptor { endpoint: raw.endpoint.clone(), rid: rid("p"), generation: generation(1) }
}

/// Whether a host that waits on the engine's descriptor would wake.
fn would_wake(node: &Node) -> bool {
    let mut items = [zmq::PollItem::from_fd(node.engine.as_raw_fd(), zmq::POLLIN)];
    zmq::poll(&mut items, 0).unwrap() == 1
}

#[test]
fn a_sleeping_host_is_woken_for_publishers_it_named_between_turns() {
    let mut node = Node::new();
    node.engine.subscribe(Subscriber::new(ticks())).unwrap();
    crate::support::until(&mut [&mut node], "asleep", |nodes| !would_wake(nodes[0]));
    let mut raw = RawPublisher::new();
    node.engine.outbox().set_publishers(&ticks(), &[described(&raw)]).unwrap();
    assert!(would_wake(&node));
    raw.subscribed(&mut node, 1, ms(0));
}

/// Gives up its publisher, or the filter, as soon as it hears that it is ready.
struct Fickle {
    publisher: bool,
    events: Vec<Owned>,
}

impl Host for Fickle {
    fn on_event(&mut self, event: Event<'_>, outbox: &mut Outbox<'_>) {
        if matches!(event, Event::PublisherReady { .. }) {
            if self.publisher {
                outbox.set_publishers(&ticks(), &[]).unwrap();
            } else {
                outbox.remove_filter(&ticks(), b"a").unwrap();
            }
        }
        self.events.push(event.into());
    }
}

#[test]
fn nothing_is_delivered_of_what_the_host_gives_up_on_hearing_of_it() {
    for publisher in [true, false] {
        let raw = RawPublisher::new();
        let wish = Subscriber::new(ticks()).described_publisher(described(&raw)).filter(b"a");
        let Stage { mut node, raws, .. } = Stage::of(vec![raw], wish);
        raws[0].send(&[b"a", b"first"]);
        raws[0].send(&[b"a", b"second"]);
        let mut host = Fickle { publisher, events: Vec::new() };
        let begin = node.now;
        while host.events.len() < usize::from(publisher) + 1 {
            node.engine.wait(Some(ms(10)));
            node.now += ms(1);
            node.engine.turn_at(node.now, &mut host);
            assert!(node.now - begin < ms(5_000), "not told: {:?}", host.events);
        }
        node.engine.turn_at(node.now, &mut host);
        assert!(matches!(host.events[0], Owned::PublisherReady { .. }));
        match &host.events[1..] {
            [] if !publisher => {}
            [Owned::PublisherLost { reason: LostReason::Retired, .. }] if publisher => {}
            other => panic!("{other:?}"),
        }
    }
}

/// A filter that was named twice is one filter.
#[test]
fn a_filter_that_was_named_twice_goes_with_one_removal() {
    let mut stage = Stage::ready(1, &[b"a", b"b", b"a"]);
    assert_eq!(stage.node.engine.outbox().remove_filter(&ticks(), b"a"), Ok(true));
    stage.until("the publisher told", |stage| stage.raws[0].count(0, b"a") == 1);
    stage.publish(0, &[b"b"]);
    assert_eq!(stage.published(), [(0, vec![b"b".to_vec()])]);
}

/// ZeroMQ drops what a full queue has no room for, filters too. However small the queue, every filter arrives.
#[test]
fn more_filters_than_a_queue_has_room_for_all_reach_the_publisher() {
    let raw = RawPublisher::new();
    let filters: Vec<[u8; 4]> = (0..3_000_u32).map(u32::to_be_bytes).collect();
    let wish = Subscriber::new(ticks()).publisher(raw.endpoint.clone());
    let wish = filters.iter().fold(wish, |wish, filter| wish.filter(filter));
    let mut node = Node::with(Config { queue_records_max: 2, seed: 1, ..Config::default() });
    node.engine.subscribe(wish).unwrap();
    let mut stage = Stage::with(node, vec![raw]);
    stage.until("all of them", |stage| stage.raws[0].hear().len() == 3_001);
    // A beacon that comes proves that the filters are in force.
    assert_eq!(stage.raws[0].asked.last().unwrap(), b"\x01\x01ZLF1");
    for number in 3_000..6_000_u32 {
        stage.node.engine.outbox().add_filter(&ticks(), &number.to_be_bytes()).unwrap();
    }
    stage.until("and as many again", |stage| stage.raws[0].hear().len() == 6_001);
}

/// Publishers that are taken back and named again before their sockets are closed get one new socket each.
#[test]
fn publishers_taken_back_and_named_again_at_once_are_dialled_once_more() {
    let raw = RawPublisher::new();
    let descriptor = described(&raw);
    let wish = Subscriber::new(ticks()).described_publisher(descriptor.clone());
    let mut stage = Stage::of(vec![raw], wish);
    stage.beacon(0);
    for turns in [0, 1] {
        let before = stage.raws[0].count(1, TOPIC);
        stage.node.engine.outbox().set_publishers(&ticks(), &[]).unwrap();
        (0..turns).for_each(|_| stage.turn());
        stage.node.engine.outbox().set_publishers(&ticks(), std::slice::from_ref(&descriptor)).unwrap();
        stage.until_later(ms(5), "dialled again", |stage| stage.raws[0].count(1, TOPIC) > before);
        stage.beacon(0);
        assert_eq!(stage.snapshot().intents.len(), 1);
    }
    assert_eq!((stage.lost().len(), stage.became_ready().len()), (2, 3));
}

/// A stopped subscriber leaves nothing behind, and its publishers see it go.
#[test]
fn a_stopped_subscriber_leaves_no_timer_and_no_socket() {
    let mut stage = Stage::ready(1, &[b""]);
    stage.node.engine.stop(&mut stage.node.inbox);
    stage.until("its socket closed", |stage| stage.raws[0].count(0, TOPIC) == 1);
    assert!(stage.node.engine.next_due().is_none());
    assert!(matches!(stage.lost()[..], [(_, 0, LostReason::Stopped)]));
    stage.raws[0].beacon();
    let told = stage.diary.len();
    for _ in 0..60 {
        stage.node.now += crate::support::s(1);
        stage.turn();
    }
    assert_eq!(stage.diary.len(), told);
}

/// A stopped publisher sends no beacon more, and its subscribers lose it at once.
#[test]
fn a_stopped_publisher_says_nothing_more_and_is_gone() {
    let (mut node, endpoint) = publisher_node();
    let subscriber = RawSubscriber::new(&endpoint, &[b""], 1_000);
    subscriber.join(&mut node, b"join");
    let mut hearer = Node::new();
    hearer.engine.subscribe(Subscriber::new(ticks()).publisher(endpoint)).unwrap();
    until(&mut [&mut hearer, &mut node], "heard", |nodes| {
        nodes[1].now += ms(100);
        !nodes[0].inbox.events.is_empty()
    });
    node.engine.outbox().publish(&ticks(), b"last", &[]).unwrap();
    node.engine.stop(&mut node.inbox);
    // What was published before the stop still leaves.
    subscriber.up_to(&[b"last".to_vec()]);
    until(&mut [&mut hearer], "lost", |nodes| {
        let transport = LostReason::Transport;
        matches!(nodes[0].inbox.events[..], [_, Owned::PublisherLost { reason, .. }] if reason == transport)
    });
    for _ in 0..60 {
        node.pass(ms(900));
    }
    assert_eq!((node.engine.next_due(), node.events()), (None, vec![]));
    assert_eq!(subscriber.take(), None);
}

/// Two runs of one publisher, named side by side, are two publishers: each has its own socket and its own end.
#[test]
fn two_generations_of_a_publisher_side_by_side_are_two_publishers() {
    let raws = vec![RawPublisher::new(), RawPublisher::new()];
    let mut descriptors: Vec<_> = raws.iter().map(described).collect();
    descriptors[1].generation = generation(2);
    let wish = descriptors.iter().cloned().fold(Subscriber::new(ticks()), Subscriber::described_publisher);
    let mut stage = Stage::of(raws, wish);
    stage.beacon(0);
    stage.beacon(1);
    stage.node.engine.outbox().set_publishers(&ticks(), &descriptors[1..]).unwrap();
    stage.turn();
    assert!(matches!(stage.lost()[..], [(_, 0, LostReason::Retired)]));
    assert!(stage.is_ready(1));
    assert_eq!(stage.raws[1].count(1, TOPIC), 1);
}

/// A pause is for service records: what publishers send is delivered on, by the lanes there are and by those to come, and
/// counts for their liveness (000 §9 excludes PUB/SUB).
#[test]
fn a_paused_host_hears_its_publishers_on() {
    let mut stage = Stage::ready(2, &[b""]);
    stage.node.engine.outbox().set_pressure(Pressure::Paused);
    stage.publish(0, &[b"present"]);
    stage.raws[1].send(&[TOPIC]);
    stage.until_later(ms(5), "another socket", |stage| stage.raws[1].count(1, TOPIC) == 2);
    stage.publish(1, &[b"new"]);
    assert_eq!(stage.published(), [(0, vec![b"present".to_vec()]), (1, vec![b"new".to_vec()])]);
    assert!(stage.is_ready(0) && stage.is_ready(1));
}
