//! Faults that a reading of the code and an attack from outside found, each by the right value.
#![allow(clippy::disallowed_methods, reason = "a test on real sockets bounds its waits in real time")]

use std::time::Instant;

use wakeful::{LostReason, NoRoute, NodeEndpoint, Owned, RouteState, SendError};

use crate::replacement::{second, served};
use crate::scene::described_as;
use crate::support::mesh::{count, listening, mesh, named, plain, weight};
use crate::support::raw::{ADMIT, HELLO, PROBE, REJECT, SERVING, STOPPED, UPDATE, head, probe};
use crate::support::raw_mesh::{APPLICATION, COMPLETION, RawNode, node_send};
use crate::support::{Node, ms, rid, s, settle, until};

#[test]
fn a_peer_with_every_channel_there_can_be_changes_its_weights_without_holding_anybody_up() {
    let (mut node, at) = Node::listens(listening("node"));
    let mut peer = RawNode::dialling("peer", &at);
    peer.admission.channels = (0..65_535_u32).map(|number| (format!("{number:05}"), 1)).collect();
    peer.open(&mut node);
    let begin = Instant::now();
    for round in 2..12 {
        for channel in &mut peer.admission.channels {
            channel.1 = round;
        }
        peer.update(SERVING);
        peer.sync_completion(&mut node);
    }
    // Comparing each name with each took seconds for one update.
    assert!(begin.elapsed() < s(8), "{:?} for ten updates", begin.elapsed());
    node.outbox().send((&mesh(), &named("65534")), &[b"still there"]).unwrap();
}

#[test]
fn a_stop_leaves_no_retry_of_a_dial_that_another_connection_covered() {
    let (mut b, at) = Node::listens(listening("b"));
    let (mut a, at_a) = Node::listens(listening("a"));
    b.outbox().set_endpoints(&mesh(), 0, &[NodeEndpoint { endpoint: at_a, rid: None }]).unwrap();
    until(&mut [&mut a, &mut b], "ready", |nodes| nodes.iter().all(|node| node.ready_peers() == 1));
    settle(&mut [&mut a, &mut b]);
    a.outbox().set_endpoints(&mesh(), 0, &[NodeEndpoint { endpoint: at, rid: Some(rid("b")) }]).unwrap();
    until(&mut [&mut a, &mut b], "it is covered", |nodes| {
        nodes[0].engine.snapshot().intents[0].state == RouteState::Ready
    });
    a.engine.stop(&mut a.inbox);
    assert_eq!(a.engine.next_due().filter(|due| due.reason != wakeful::DueReason::WorkLeft), None);
}

/// What the acceptor has not read of a dialler that closed in order while the pair was opened, or right after, is heard
/// out: the word of the close where it belongs, and what was sent before it.
#[test]
fn an_orderly_close_is_no_breach_though_its_transport_has_ended_and_costs_nothing_that_was_sent_before() {
    for opened in [false, true] {
        let (mut node, at) = Node::listens(listening("node"));
        let mut peer = RawNode::dialling("peer", &at);
        peer.open_application(&mut node);
        peer.open_completion();
        peer.wait(&mut node, COMPLETION, ADMIT);
        node.events();
        if opened {
            peer.send(APPLICATION, &probe(1), &[]);
            peer.send(APPLICATION, &node_send(), &[b"last words"]);
            peer.update(STOPPED);
        } else {
            peer.admission.revision += 1;
            peer.admission.state = STOPPED;
            peer.send(APPLICATION, &head(UPDATE, &peer.body(APPLICATION)), &[]);
        }
        // Both words lie before the engine when it looks next.
        peer.kill();
        until(&mut [&mut node], "the end", |nodes| {
            !nodes[0].inbox.events.is_empty() && nodes[0].peers().is_empty()
        });
        until(&mut [&mut node], "told", |nodes| count(&nodes[0].inbox.events, is_lost) == 1);
        let events = node.events();
        assert_eq!(node.engine.snapshot().counters.protocol_errors, 0, "{events:?}");
        assert!(matches!(
            events.last(),
            Some(Owned::Lost { reason: LostReason::Orderly | LostReason::Transport, .. })
        ));
    }
}

fn is_lost(event: &Owned) -> bool {
    matches!(event, Owned::Lost { .. })
}

#[test]
fn a_node_that_is_wanted_is_remembered_though_it_was_the_one_that_dialled() {
    let (mut a, at_a) = Node::listens(listening("a"));
    let (mut b, at_b) = Node::listens(listening("b").serve(named("work"), weight(1)).peer(at_a));
    until(&mut [&mut a, &mut b], "ready", |nodes| nodes.iter().all(|node| node.ready_peers() == 1));
    let wish = [NodeEndpoint { endpoint: at_b, rid: Some(rid("b")) }];
    a.outbox().set_endpoints(&mesh(), 0, &wish).unwrap();
    settle(&mut [&mut a, &mut b]);
    drop(b);
    until(&mut [&mut a], "it is lost", |nodes| count(&nodes[0].inbox.events, is_lost) == 1);
    let unavailable = Err(SendError::RouteNotConnected(NoRoute::Unavailable));
    assert_eq!(a.outbox().send((&mesh(), &named("work")), &[b"?"]), unavailable);
    assert_eq!(a.outbox().send((&mesh(), &rid("b")), &[b"?"]), unavailable);
    a.outbox().set_endpoints(&mesh(), 1, &[]).unwrap();
    let not_found = Err(SendError::RouteNotConnected(NoRoute::NotFound));
    assert_eq!(a.outbox().send((&mesh(), &named("work")), &[b"?"]), not_found);
}

/// 000 §5: whoever wants it, an endpoint is dialled again only when what was dialled there before is physically closed.
#[test]
fn an_endpoint_that_goes_from_the_list_to_the_descriptors_is_not_dialled_twice_at_a_time() {
    let (mut b, at) = Node::listens(listening("b"));
    let (mut a, _) = Node::join(plain("a").peer(at.clone()));
    until(&mut [&mut a, &mut b], "ready", |nodes| nodes.iter().all(|node| node.ready_peers() == 1));
    let generation = a.engine.snapshot().connections[0].peer.generation();
    let described = wakeful::NodeDescriptor { generation, ..described_as("b", 1, &at) };
    a.outbox().set_endpoints(&mesh(), 1, &[]).unwrap();
    a.outbox().set_descriptors(&mesh(), &[described]).unwrap();
    for _ in 0..2_000 {
        a.turn();
        b.turn();
        let seen = b.engine.snapshot();
        assert!(seen.connections.len() + seen.unadmitted <= 1, "{seen:?}");
        if b.ready_peers() == 1 && count(&b.inbox.events, is_lost) == 1 {
            break;
        }
        a.engine.wait(Some(ms(1)));
        a.now += ms(1);
        b.now += ms(1);
    }
    assert_eq!((a.ready_peers(), b.ready_peers()), (1, 1));
}

#[test]
fn that_no_connection_is_needed_is_counted_as_no_refusal() {
    let (mut node, at) = Node::listens(listening("node").role(wakeful::Role::Client));
    let (mut other, _) = Node::join(plain("other").role(wakeful::Role::Client).peer(at));
    until(&mut [&mut node, &mut other], "it is said", |nodes| {
        nodes[1].engine.snapshot().intents[0].state == RouteState::NotRequired
    });
    assert_eq!(node.engine.snapshot().counters.refused, 0);
}

#[test]
fn a_peer_that_stops_while_it_says_hello_or_admits_is_not_let_in() {
    let (mut node, at) = Node::listens(listening("node"));
    let mut peer = RawNode::dialling("peer", &at);
    peer.admission.state = STOPPED;
    peer.send(APPLICATION, &head(HELLO, &peer.body(APPLICATION)), &[]);
    assert_eq!(peer.wait(&mut node, APPLICATION, REJECT).reason(), 9);
    let mut acceptor = RawNode::listening("acceptor");
    acceptor.admission.state = STOPPED;
    let (mut dialler, _) = Node::join(plain("dialler").peer(acceptor.at()));
    acceptor.hello(&mut dialler, APPLICATION);
    acceptor.send(APPLICATION, &head(ADMIT, &acceptor.body(APPLICATION)), &[]);
    until(&mut [&mut dialler], "it is told", |nodes| !nodes[0].inbox.events.is_empty());
    assert!(matches!(&dialler.events()[..], [Owned::Failed { .. }]));
}

#[test]
fn a_hello_that_waits_is_refused_by_a_host_that_has_left_service_meanwhile() {
    let (mut node, at, mut first) = served();
    let mut newer = second(&at, &first, 2);
    newer.send(APPLICATION, &head(HELLO, &newer.body(APPLICATION)), &[]);
    first.wait(&mut node, APPLICATION, PROBE);
    node.engine.drain(true);
    first.kill();
    assert_eq!(newer.wait(&mut node, APPLICATION, REJECT).reason(), 9);
}
