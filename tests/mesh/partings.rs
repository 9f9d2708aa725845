//! How a pair ends: by the loss of either lane, or in order by the word on one lane after what was said on the other.

use wakeful::{Endpoint, LostReason, NodeEndpoint, Owned};

use crate::replacement::{dialled, lost, second, served};
use crate::scene::{Cable, Talker, bury, come_to_rest};
use crate::support::mesh::{count, listening, mesh};
use crate::support::raw::STOPPED;
use crate::support::raw_mesh::{APPLICATION, COMPLETION, node_send};
use crate::support::{Node, ms, rid, settle, until};

#[test]
fn the_loss_of_either_lane_ends_the_pair_once_and_leaves_nothing() {
    for first_is in [served, dialled] {
        for leg in [APPLICATION, COMPLETION] {
            let (mut node, at, mut first) = first_is();
            first.lane(leg).close();
            until(&mut [&mut node], "readiness is withdrawn", |nodes| nodes[0].ready_peers() == 0);
            assert!(node.outbox().send((&mesh(), &rid("peer")), &[b"?"]).is_err());
            until(&mut [&mut node], "told", |nodes| !nodes[0].inbox.events.is_empty());
            settle(&mut [&mut node]);
            assert_eq!(lost(&mut node), [LostReason::Transport], "lane {leg}");
            let mut next = second(&at, &first, 1);
            next.open(&mut node);
            assert_eq!(node.peers(), ["peer"]);
            first.kill();
            until(&mut [&mut node], "nothing of it is left", |nodes| {
                nodes[0].engine.snapshot().fenced_open == 0
            });
            assert_eq!(node.peers(), ["peer"]);
        }
    }
}

#[test]
fn both_ends_of_a_pair_that_loses_one_lane_say_the_same() {
    for leg in 0..2 {
        for dialler in 0..2 {
            let cables = [Cable::new(), Cable::new()];
            let [application, completion] = cables.each_ref().map(|cable| cable.endpoint.clone());
            let names = [["a", "b"], ["b", "a"]][dialler];
            let (mut there, bound) =
                Talker::join(listening(names[1]).advertised(application.clone(), completion));
            let bound = bound.unwrap();
            cables[0].leads_to(&Endpoint::try_from(&bound.application).unwrap());
            cables[1].leads_to(&Endpoint::try_from(&bound.completion).unwrap());
            let (mut here, _) = Talker::join(listening(names[0]));
            here.dials(&[(&application, None)]);
            let case = format!("lane {leg}, dialled by {}", names[0]);
            come_to_rest(&mut [(names[0], &mut here), (names[1], &mut there)], 1, &case);
            cables[leg].tear();
            until_told(&mut [&mut here, &mut there], &case);
            come_to_rest(&mut [(names[0], &mut here), (names[1], &mut there)], 1, &case);
            for node in [&here, &there] {
                assert_eq!(node.lost(), [LostReason::Transport], "{case}\n{}", node.story());
            }
            bury((here, there, cables));
        }
    }
}

/// Turns both until each has been told that it lost the other.
fn until_told(nodes: &mut [&mut Talker; 2], case: &str) {
    for _ in 0..2_000 {
        if nodes.iter().all(|node| !node.lost().is_empty()) {
            return;
        }
        for node in nodes.iter_mut() {
            node.step(ms(0));
        }
    }
    panic!("{case}: not told\n{}\n{}", nodes[0].story(), nodes[1].story());
}

#[test]
fn what_was_sent_before_an_orderly_close_is_delivered_though_the_close_comes_by_the_other_lane() {
    for first_is in [served, dialled] {
        let (mut node, _, mut first) = first_is();
        for number in 0..1_000_u32 {
            first.send(APPLICATION, &node_send(), &[&number.to_be_bytes()]);
        }
        first.update(STOPPED);
        until(&mut [&mut node], "the end", |nodes| {
            count(&nodes[0].inbox.events, |event| matches!(event, Owned::Lost { .. })) == 1
        });
        first.kill();
        let events = node.events();
        let Some((Owned::Lost { reason: LostReason::Orderly, .. }, before)) = events.split_last() else {
            panic!("{:?}", events.last());
        };
        let numbers: Vec<u32> = before
            .iter()
            .map(|event| match event {
                Owned::Message { parts, .. } => u32::from_be_bytes(parts[0][..].try_into().unwrap()),
                event => panic!("{event:?}"),
            })
            .collect();
        assert!(numbers.iter().copied().eq(0..1_000), "{} of 1,000", numbers.len());
        until(&mut [&mut node], "nothing is left", |nodes| nodes[0].engine.snapshot().fenced_open == 0);
    }
}

#[test]
fn an_engine_that_stops_is_heard_out_by_its_peers() {
    for (stops, stays) in [("a", "b"), ("b", "a")] {
        for dials in [true, false] {
            let (mut one, at_one) = Node::listens(listening(stops));
            let (mut other, at_other) = Node::listens(listening(stays));
            let (dialler, to) = if dials { (&mut one, at_other) } else { (&mut other, at_one) };
            let to = NodeEndpoint { endpoint: to, rid: None };
            dialler.outbox().set_endpoints(&mesh(), 0, &[to]).unwrap();
            until(&mut [&mut one, &mut other], "ready", |nodes| {
                nodes.iter().all(|node| node.ready_peers() == 1)
            });
            settle(&mut [&mut one, &mut other]);
            other.events();
            let mut sent = 0;
            while sent < 500 && one.outbox().send((&mesh(), &rid(stays)), &[b"last words"]).is_ok() {
                sent += 1;
            }
            one.engine.stop(&mut one.inbox);
            until(&mut [&mut other], "the end", |nodes| {
                count(&nodes[0].inbox.events, |event| matches!(event, Owned::Lost { .. })) == 1
            });
            let events = other.events();
            assert!(matches!(events.last(), Some(Owned::Lost { reason: LostReason::Orderly, .. })));
            assert_eq!(events.len(), sent + 1, "{stops} stops, {dials}: every word before the last is heard");
            assert_eq!(sent, 500);
        }
    }
}
