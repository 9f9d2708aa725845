//! Every call on the fanout that can be made wrongly: each gives a typed error and changes nothing (issue 6).

use std::fmt::Debug;

use wakeful::{
    BindEndpoint, ChannelName, Endpoint, Engine, FILTER_BYTES_MAX, Generation, IoError, MESSAGE_BYTES_MIN,
    NameError, Publisher, PublisherDescriptor, RegisterError, SendError, Subscriber, TopologyName,
};

use crate::support::{Node, generation, rid};
use crate::ticks::{TOPIC, publisher_node, ticks};

fn any() -> BindEndpoint {
    "tcp://127.0.0.1:0".parse().unwrap()
}

fn endpoint(port: u16) -> Endpoint {
    format!("tcp://127.0.0.1:{port}").parse().unwrap()
}

fn descriptor(port: u16, number: u64) -> PublisherDescriptor {
    PublisherDescriptor { endpoint: endpoint(port), rid: rid("p"), generation: generation(number) }
}

/// Everything that can be seen of an engine from outside.
fn state(engine: &mut Engine) -> String {
    format!("{:#?} {:?}", engine.snapshot(), engine.next_due())
}

/// Makes a call that must not be taken, and checks that it changed nothing.
#[track_caller]
fn refused<T: Debug + PartialEq, E: Debug + PartialEq>(
    node: &mut Node,
    error: E,
    call: impl FnOnce(&mut Engine) -> Result<T, E>,
) {
    let before = state(&mut node.engine);
    assert_eq!(call(&mut node.engine), Err(error));
    assert_eq!(state(&mut node.engine), before, "something changed");
}

#[test]
fn an_empty_channel_a_zero_generation_and_an_endpoint_nobody_can_dial_are_refused_before_any_call() {
    assert!(matches!(ChannelName::new(""), Err(NameError::Empty { .. })));
    assert!(Generation::new(0).is_err());
    for endpoint in ["tcp://*:5555", "tcp://127.0.0.1:0", "tcp://example.org:5555", "inproc://x", ""] {
        assert!(endpoint.parse::<Endpoint>().is_err(), "{endpoint}");
    }
}

#[test]
fn a_second_publisher_or_subscriber_of_a_channel_is_refused() {
    let (mut node, _) = publisher_node();
    node.engine.subscribe(Subscriber::new(ticks())).unwrap();
    refused(&mut node, RegisterError::SecondPublisher { channel: ticks() }, |engine| {
        engine.broadcast(Publisher::new(ticks(), any()))
    });
    refused(&mut node, RegisterError::SecondSubscriber { channel: ticks() }, |engine| {
        engine.subscribe(Subscriber::new(ticks()).publisher(endpoint(9)))
    });
}

#[test]
fn a_port_in_use_is_refused_and_another_one_taken() {
    let (_other, taken) = publisher_node();
    let mut node = Node::new();
    // What is opened once stays: the first socket brings ZeroMQ's context.
    node.engine.broadcast(Publisher::new(ChannelName::new("other").unwrap(), any())).unwrap();
    let bind: BindEndpoint = taken.as_str().parse().unwrap();
    let error = RegisterError::Io { endpoint: bind.clone(), error: IoError::AddressInUse };
    refused(&mut node, error, |engine| engine.broadcast(Publisher::new(ticks(), bind)));
    node.engine.broadcast(Publisher::new(ticks(), any())).unwrap();
}

#[test]
fn one_endpoint_named_twice_is_refused() {
    let mut node = Node::new();
    let twice =
        || RegisterError::EndpointTwice { topology: TopologyName::Fanout(ticks()), endpoint: endpoint(9) };
    refused(&mut node, twice(), |engine| {
        engine.subscribe(Subscriber::new(ticks()).publisher(endpoint(9)).publisher(endpoint(9)))
    });
    refused(&mut node, twice(), |engine| {
        let wish = Subscriber::new(ticks()).described_publisher(descriptor(9, 1));
        engine.subscribe(wish.described_publisher(descriptor(9, 2)))
    });
    node.engine.subscribe(Subscriber::new(ticks()).described_publisher(descriptor(7, 1))).unwrap();
    refused(&mut node, twice(), |engine| {
        engine.outbox().set_publishers(&ticks(), &[descriptor(9, 1), descriptor(9, 2)])
    });
}

#[test]
fn a_channel_that_is_not_registered_is_refused() {
    let (mut node, _) = publisher_node();
    let other = ChannelName::new("other").unwrap();
    let unknown = || RegisterError::UnknownChannel { channel: ticks() };
    refused(&mut node, SendError::UnknownChannel, |engine| engine.outbox().publish(&other, b"t", &[]));
    // A publisher of the channel is no subscriber of it.
    refused(&mut node, unknown(), |engine| engine.outbox().add_filter(&ticks(), b"t"));
    refused(&mut node, unknown(), |engine| engine.outbox().remove_filter(&ticks(), b"t"));
    refused(&mut node, unknown(), |engine| engine.outbox().set_publishers(&ticks(), &[]));
    let mut node = Node::new();
    node.engine.subscribe(Subscriber::new(ticks())).unwrap();
    refused(&mut node, SendError::UnknownChannel, |engine| engine.outbox().publish(&ticks(), b"t", &[]));
}

#[test]
fn the_reserved_topic_and_too_many_parts_are_refused() {
    let (mut node, _) = publisher_node();
    node.engine.subscribe(Subscriber::new(ticks())).unwrap();
    refused(&mut node, SendError::ReservedTopic, |engine| engine.outbox().publish(&ticks(), TOPIC, &[]));
    refused(&mut node, SendError::TooManyParts { parts: 255 }, |engine| {
        engine.outbox().publish(&ticks(), b"t", &[&b""[..]; 255])
    });
    refused(&mut node, RegisterError::ReservedTopic, |engine| engine.outbox().add_filter(&ticks(), TOPIC));
    refused(&mut node, RegisterError::ReservedTopic, |engine| {
        let other = Subscriber::new(ChannelName::new("other").unwrap());
        engine.subscribe(other.filter(TOPIC))
    });
}

#[test]
fn a_limit_on_records_of_1_to_4095_bytes_is_refused() {
    let mut node = Node::new();
    for bytes in [1, 100, MESSAGE_BYTES_MIN - 1] {
        refused(&mut node, RegisterError::MessageLimit { bytes }, |engine| {
            engine.subscribe(Subscriber::new(ticks()).message_bytes_max(bytes))
        });
    }
    node.engine.subscribe(Subscriber::new(ticks()).message_bytes_max(MESSAGE_BYTES_MIN)).unwrap();
}

/// One of 16 KiB overflowed the stack of a thread with 2 MiB, within ZeroMQ.
#[test]
fn a_filter_of_more_than_1024_bytes_is_refused() {
    let mut node = Node::new();
    node.engine.subscribe(Subscriber::new(ticks())).unwrap();
    let other = || Subscriber::new(ChannelName::new("other").unwrap());
    for bytes in [FILTER_BYTES_MAX + 1, 16 << 10, 64 << 20] {
        let (filter, error) = (vec![0; bytes], RegisterError::FilterTooLong { bytes });
        refused(&mut node, error.clone(), |engine| engine.outbox().add_filter(&ticks(), &filter));
        refused(&mut node, error.clone(), |engine| engine.outbox().remove_filter(&ticks(), &filter));
        refused(&mut node, error, |engine| engine.subscribe(other().filter(&filter)));
    }
}

#[test]
fn after_the_stop_every_call_is_refused() {
    let (mut node, _) = publisher_node();
    node.engine.subscribe(Subscriber::new(ticks())).unwrap();
    node.engine.stop(&mut node.inbox);
    node.turn();
    let stopped = || RegisterError::ShuttingDown;
    refused(&mut node, stopped(), |engine| engine.broadcast(Publisher::new(ticks(), any())));
    refused(&mut node, stopped(), |engine| engine.subscribe(Subscriber::new(ticks())));
    refused(&mut node, stopped(), |engine| engine.outbox().add_filter(&ticks(), b"t"));
    refused(&mut node, stopped(), |engine| engine.outbox().remove_filter(&ticks(), b"t"));
    refused(&mut node, stopped(), |engine| engine.outbox().set_publishers(&ticks(), &[descriptor(9, 1)]));
    refused(&mut node, SendError::ShuttingDown, |engine| engine.outbox().publish(&ticks(), b"t", &[]));
    assert!(node.engine.next_due().is_none());
}
