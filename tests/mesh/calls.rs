//! Messages and requests across a mesh.

use wakeful::{NoRoute, Owned, SendError};

use crate::support::mesh::{listening, mesh, mesh_pair, named, weight};
use crate::support::{Node, rid, s, until};

#[test]
fn a_message_reaches_a_node_and_a_channel_and_says_which() {
    let (mut a, mut b) = mesh_pair();
    a.outbox().send((&mesh(), &rid("b")), &[b"to you"]).unwrap();
    a.outbox().send((&mesh(), &named("work")), &[b"to work"]).unwrap();
    until(&mut [&mut a, &mut b], "both", |nodes| nodes[1].inbox.events.len() == 2);
    let events = b.events();
    let [Owned::Message { channel: None, .. }, Owned::Message { channel: Some(channel), .. }] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(channel, "work");
}

#[test]
fn a_request_is_answered_from_either_side() {
    let (mut a, mut b) = mesh_pair();
    a.inbox.echo = true;
    b.inbox.echo = true;
    a.outbox().request((&mesh(), &named("work")), &[b"one"], s(5)).unwrap();
    b.outbox().request((&mesh(), &rid("a")), &[b"two"], s(5)).unwrap();
    until(&mut [&mut a, &mut b], "answers", |nodes| {
        nodes.iter().all(|node| node.inbox.events.iter().any(|event| matches!(event, Owned::Replied { .. })))
    });
}

#[test]
fn a_node_serves_its_own_calls_too() {
    let (mut a, _) = Node::join(listening("a").serve(named("work"), weight(1)));
    a.inbox.echo = true;
    a.outbox().request((&mesh(), &named("work")), &[b"mine"], s(5)).unwrap();
    a.turn();
    a.turn();
    let events = a.events();
    assert!(
        matches!(&events[..], [Owned::Request { .. }, Owned::Replied { parts, .. }] if parts == &[b"mine".to_vec()]),
        "{events:?}"
    );
    let nobody = a.outbox().send((&mesh(), &named("other")), &[b"?"]);
    assert_eq!(nobody, Err(SendError::RouteNotConnected(NoRoute::NotFound)));
    assert_eq!(
        a.outbox().send((&mesh(), &rid("x")), &[b"?"]),
        Err(SendError::RouteNotConnected(NoRoute::NotFound))
    );
}
