//! How two nodes come together, and how they part.

use wakeful::{LostReason, Owned};

use crate::support::mesh::{application, count, listening, mesh_pair, plain};
use crate::support::{Node, ms, pass_all, rid, s, settle, until};

#[test]
fn both_lanes_are_admitted_and_each_side_is_told_once() {
    let (mut b, at) = Node::listens(listening("b"));
    let (mut a, _) = Node::join(plain("a").peer(at));
    until(&mut [&mut a, &mut b], "both ready", |nodes| nodes.iter().all(|node| node.ready_peers() == 1));
    settle(&mut [&mut a, &mut b]);
    for (node, peer) in [(&mut a, "b"), (&mut b, "a")] {
        let events = node.events();
        let [Owned::Admitted { peer: admitted }, Owned::Ready { peer: ready }] = &events[..] else {
            panic!("{events:?}");
        };
        assert_eq!((admitted, ready.rid().to_string().as_str()), (ready, peer));
    }
    pass_all(&mut [&mut a, &mut b], s(60), s(1));
    assert!(a.events().is_empty() && b.events().is_empty(), "a minute of probes is nothing to hear of");
}

#[test]
fn a_node_that_stops_is_lost_in_order_at_once() {
    let (mut a, mut b) = mesh_pair();
    a.engine.stop(&mut a.inbox);
    until(&mut [&mut b], "the end", |nodes| nodes[0].ready_peers() == 0);
    until(&mut [&mut b], "told", |nodes| !nodes[0].inbox.events.is_empty());
    let events = b.events();
    assert!(matches!(&events[..], [Owned::Lost { reason: LostReason::Orderly, .. }]), "{events:?}");
    assert_eq!(b.engine.snapshot().connections.len(), 0);
}

#[test]
fn a_node_that_stops_is_not_told_that_it_lost_itself() {
    let (mut a, mut b) = mesh_pair();
    b.engine.stop(&mut b.inbox);
    let events = b.events();
    let [Owned::Lost { peer, reason: LostReason::Stopped }] = &events[..] else { panic!("{events:?}") };
    assert_eq!(peer.rid(), &rid("a"));
    a.engine.stop(&mut a.inbox);
}

#[test]
fn two_nodes_that_dial_each_other_keep_one_connection() {
    for (first, second) in [("a", "b"), ("b", "a")] {
        let (mut one, at_one) = Node::listens(listening(first));
        let (mut other, bound) = Node::join(listening(second).peer(at_one));
        let at_other = application(&bound.unwrap());
        let dial = [wakeful::NodeEndpoint { endpoint: at_other, rid: None }];
        one.outbox().set_endpoints(&crate::support::mesh::mesh(), 0, &dial).unwrap();
        until(&mut [&mut one, &mut other], "ready", |nodes| nodes.iter().all(|node| node.ready_peers() == 1));
        pass_all(&mut [&mut one, &mut other], s(30), ms(500));
        assert_eq!((one.ready_peers(), other.ready_peers()), (1, 1));
        for node in [&mut one, &mut other] {
            let events = node.events();
            let ready = count(&events, |event| matches!(event, Owned::Ready { .. }));
            let lost = count(&events, |event| matches!(event, Owned::Lost { .. }));
            assert_eq!((ready, lost), (1, 0), "{events:?}");
            assert_eq!(node.engine.snapshot().connections.len(), 1);
        }
    }
}
