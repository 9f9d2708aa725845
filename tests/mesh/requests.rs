//! Calls on a mesh: what was sent to whom, how it ends, and what a stop leaves of it. The cases are those of CASES.md.
#![allow(clippy::disallowed_methods, reason = "a test on real sockets bounds its waits in real time")]

use std::time::Instant;

use wakeful::{LostReason, NoRoute, Owned, SendError};

use crate::support::mesh::{listening, mesh, named, weight};
use crate::support::raw;
use crate::support::raw_mesh::{APPLICATION, RawNode, node_send};
use crate::support::{Node, rid, s, until};

#[test]
fn a_node_that_stops_does_not_lose_itself() {
    let (mut a, _) = Node::join(listening("a").serve(named("work"), weight(1)));
    a.turn();
    a.engine.stop(&mut a.inbox);
    assert_eq!(a.events(), []);
}

#[test]
fn a_node_that_said_it_stops_is_no_target_though_it_is_still_read_out() {
    for (mut raw, mut node) in [RawNode::ready_dialler("raw"), RawNode::ready_listener("raw")] {
        node.events();
        raw.update(raw::STOPPED);
        until(&mut [&mut node], "not ready", |nodes| nodes[0].ready_peers() == 0);
        let sent = node.outbox().send((&mesh(), &rid("raw")), &[b"x"]);
        assert_eq!(sent, Err(SendError::RouteNotConnected(NoRoute::Unavailable)));
        assert!(!node.engine.snapshot().meshes[0].nodes.iter().any(|node| node.is_ready));
    }
}

#[test]
fn a_node_that_said_it_stops_is_told_of_its_end_once_at_most() {
    let (mut raw, mut node) = RawNode::ready_dialler("raw");
    node.events();
    raw.update(raw::STOPPED);
    until(&mut [&mut node], "not ready", |nodes| !nodes[0].inbox.events.is_empty());
    raw.poll();
    let told = [0, 1].map(|leg| raw.lane(leg).taken(raw::REJECT).len());
    assert!(told.iter().all(|times| *times <= 1), "{told:?}");
}

/// What a peer sent before it said that it stops is delivered; but it may not go on for ever.
#[test]
fn a_peer_that_goes_on_talking_after_its_stop_is_lost_after_15_s_watched() {
    for (mut raw, mut node) in [RawNode::ready_dialler("raw"), RawNode::ready_listener("raw")] {
        node.events();
        let lost = |node: &Node| {
            let is = |event: &Owned| matches!(event, Owned::Lost { reason: LostReason::Orderly, .. });
            node.inbox.events.iter().any(is)
        };
        let talk = |raw: &RawNode| {
            (0..1_000).for_each(|_| raw.send(APPLICATION, &node_send(), &[b"still here"]));
        };
        raw.update(raw::STOPPED);
        talk(&raw);
        until(&mut [&mut node], "not ready", |nodes| nodes[0].ready_peers() == 0);
        let begin = Instant::now();
        for second in 0..15 {
            assert!(!lost(&node), "lost after {second} s and {:?}", begin.elapsed());
            talk(&raw);
            node.pass(s(1));
        }
        node.turn();
        assert!(lost(&node), "it talks and talks");
    }
}
