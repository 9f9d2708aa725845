//! Messages and requests across a mesh.

use wakeful::{NoRoute, Owned, Pressure, SendError, Stopped};

use crate::support::mesh::{listening, mesh, mesh_pair, named, weight};
use crate::support::{Node, pass_all, rid, s, until};

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

/// DESIGN §3: a pause holds back what is for the host on application lanes; replies come by the completion lane.
#[test]
fn a_paused_host_still_gets_replies_and_its_messages_when_it_runs_again() {
    let (mut a, mut b) = mesh_pair();
    b.inbox.echo = true;
    a.outbox().set_pressure(Pressure::Paused);
    b.outbox().send((&mesh(), &rid("a")), &[b"later"]).unwrap();
    a.outbox().request((&mesh(), &named("work")), &[b"now"], s(5)).unwrap();
    until(&mut [&mut a, &mut b], "the answer", |nodes| !nodes[0].inbox.events.is_empty());
    pass_all(&mut [&mut a, &mut b], s(2), s(1));
    let events = a.events();
    assert!(matches!(&events[..], [Owned::Replied { .. }]), "{events:?}");
    a.outbox().set_pressure(Pressure::Running);
    until(&mut [&mut a, &mut b], "the message", |nodes| !nodes[0].inbox.events.is_empty());
    assert!(matches!(&a.events()[..], [Owned::Message { .. }]));
}

#[test]
fn a_pause_holds_back_what_a_node_sends_to_itself_too() {
    let (mut a, _) = Node::join(listening("a"));
    a.outbox().set_pressure(Pressure::Paused);
    a.outbox().send((&mesh(), &rid("a")), &[b"later"]).unwrap();
    assert!(!a.turn().work_left && a.events().is_empty());
    a.outbox().set_pressure(Pressure::Running);
    a.turn();
    assert!(matches!(&a.events()[..], [Owned::Message { .. }]));
}

#[test]
fn a_node_cannot_flood_itself_without_bound_nor_more_than_its_share_a_turn() {
    let (mut a, _) = Node::join(listening("a"));
    let sent = (0..100_000).take_while(|_| a.outbox().send((&mesh(), &rid("a")), &[b"!"]).is_ok()).count();
    assert_eq!(sent, 1_000, "the bound of its queue");
    assert_eq!(a.outbox().send((&mesh(), &rid("a")), &[b"!"]), Err(SendError::WouldBlock));
    let report = a.turn();
    assert!(report.records <= 64 && report.work_left, "{report:?}");
    assert_eq!(report.stopped, Stopped::Shares);
    while a.turn().work_left {}
    assert_eq!(a.events().len(), 1_000);
}
