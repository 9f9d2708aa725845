//! CASES that concern pairs of mesh nodes, by their numbers.
#![allow(clippy::disallowed_methods, reason = "a test on real sockets bounds its waits in real time")]

use std::net::{Ipv6Addr, TcpListener};
use std::time::Instant;

use wakeful::{Endpoint, LostReason, NoRoute, NodeEndpoint, Owned, SendError, Silence};

use crate::scene::{Cable, Talker, bury, come_to_rest, described_as};
use crate::support::mesh::{count, listening, mesh, plain};
use crate::support::{Node, generation, ms, pass_all, rid, s, until};

/// Both sides bind and connect, and half the messages vanished.
#[test]
fn case_37_ten_thousand_messages_each_way_after_ready_all_arrive() {
    let nodes = ["a", "b"].map(|name| Talker::listens(listening(name)));
    let [(mut a, at_a), (mut b, at_b)] = nodes;
    a.dials(&[(&at_b, None)]);
    b.dials(&[(&at_a, None)]);
    let begin = Instant::now();
    while [&a, &b].iter().any(|node| node.said_to_all() < 10_000) {
        assert!(begin.elapsed() < s(10), "{} and {}", a.said_to_all(), b.said_to_all());
        for node in [&mut a, &mut b] {
            node.step(ms(1));
            while node.said_to_all() < 10_000 && node.say_to_all() {}
        }
    }
    come_to_rest(&mut [("a", &mut a), ("b", &mut b)], 1, "10,000 messages");
    for (node, peer) in [(&a, "b"), (&b, "a")] {
        assert_eq!((node.times_ready(peer), node.lost()), (1, vec![]), "{}", node.story());
    }
    let dialled = [&a, &b].map(|node| node.engine.snapshot().connections[0].is_dialled());
    assert_ne!(dialled[0], dialled[1], "the same winner on both sides");
    bury((a, b));
}

/// A peer restarts under another name where the old one was.
#[test]
fn case_38_another_name_at_a_fixed_endpoint_is_admitted_or_refused_and_the_old_name_reaches_nobody() {
    let not = |why| Err(SendError::RouteNotConnected(why));
    for (expected, described) in [(None, false), (Some("b"), false), (None, true)] {
        let cable = Cable::new();
        let (mut b, at) = Talker::listens(listening("b").generation(generation(1)));
        cable.leads_to(&at);
        let (mut a, _) = Talker::join(plain("a"));
        if described {
            a.is_told_of(&[described_as("b", 1, &cable.endpoint)]);
        } else {
            a.dials(&[(&cable.endpoint, expected)]);
        }
        come_to_rest(&mut [("a", &mut a), ("b", &mut b)], 1, "b");
        let (mut c, at) = Talker::listens(listening("c").generation(generation(2)));
        cable.leads_to(&at);
        cable.tear();
        bury(b);
        let is_refused = expected.is_some() || described;
        while a.lost().is_empty()
            || (is_refused && a.count(|event| matches!(event, Owned::Failed { .. })) == 0)
        {
            for node in [&mut a, &mut c] {
                node.step(ms(20));
            }
        }
        if is_refused {
            assert!(c.ready().is_empty() && a.ready().is_empty());
            assert_eq!(a.engine.outbox().send((&mesh(), &rid("b")), &[b"?"]), not(NoRoute::Unavailable));
            if described {
                a.is_told_of(&[described_as("c", 2, &cable.endpoint)]);
            } else {
                a.dials(&[(&cable.endpoint, Some("c"))]);
            }
        }
        come_to_rest(&mut [("a", &mut a), ("c", &mut c)], 1, "c");
        assert_eq!(a.engine.outbox().send((&mesh(), &rid("b")), &[b"?"]), not(NoRoute::NotFound));
        bury((a, c, cable));
    }
}

/// A pair whose dialler or listener then freezes for good, its transport standing; and the next run of that one.
fn half_open(frozen: &'static str) -> (Node, Endpoint, Node, Node, Endpoint) {
    let (mut a, at_a) = Node::listens(listening("m").generation(generation(1)));
    let run = |run| Node::listens(listening(frozen).generation(generation(run)));
    let (mut old, at_old) = run(1);
    a.outbox().set_descriptors(&mesh(), &[described_as(frozen, 1, &at_old)]).unwrap();
    old.outbox().set_descriptors(&mesh(), &[described_as("m", 1, &at_a)]).unwrap();
    until(&mut [&mut a, &mut old], "ready", |nodes| nodes.iter().all(|node| node.ready_peers() == 1));
    pass_all(&mut [&mut a, &mut old], s(5), s(1));
    // Its age of silence is three seconds.
    for _ in 0..3 {
        a.pass(s(1));
    }
    a.events();
    let (new, at_new) = run(2);
    (a, at_a, old, new, at_new)
}

/// A device reboots, its old connection half-open. The descriptor tells at once; it need not be waited for.
#[test]
fn case_40_a_descriptor_of_the_new_run_spares_the_wait_for_the_old_ones_deadline() {
    for frozen in ["b", "z"] {
        let (mut a, at_a, old, mut new, at_new) = half_open(frozen);
        let m_dials = frozen == "z";
        a.outbox().set_descriptors(&mesh(), &[described_as(frozen, 2, &at_new)]).unwrap();
        new.outbox().set_descriptors(&mesh(), &[described_as("m", 1, &at_a)]).unwrap();
        if m_dials {
            // Its next attempt has its back-off, 250 ms at most.
            a.pass(ms(1));
            a.pass(ms(250));
        }
        // Otherwise no time passes at all: one round trip.
        until(&mut [&mut a, &mut new], "ready", |nodes| nodes.iter().all(|node| node.ready_peers() == 1));
        let events = a.events();
        let [
            Owned::Lost { peer: lost, reason: LostReason::Unverified },
            Owned::Admitted { .. },
            Owned::Ready { peer },
        ] = &events[..]
        else {
            panic!("{events:?}");
        };
        assert_eq!([lost.generation(), peer.generation()], [generation(1), generation(2)]);
        bury((a.engine, old.engine, new.engine));
    }
}

/// The end of the old one is what lets the new one in.
#[test]
fn case_40_without_a_descriptor_a_new_run_comes_in_when_the_old_one_is_judged() {
    for frozen in ["b", "z"] {
        let (mut a, at_a, old, mut new, _) = half_open(frozen);
        a.outbox().set_descriptors(&mesh(), &[]).unwrap();
        a.turn();
        let retired = count(&a.events(), |event| matches!(event, Owned::Lost { .. }));
        // Whom it had dialled it drops with the descriptor. Who has dialled stays, and is judged.
        assert_eq!(retired, usize::from(frozen == "z"));
        let dial = NodeEndpoint { endpoint: at_a, rid: None };
        new.outbox().set_endpoints(&mesh(), 0, &[dial]).unwrap();
        if frozen == "b" {
            // It answered last at its fifth second, or on a busy machine in its first: it has 15 s from there.
            let mut waited = 3;
            while a.peers() == ["b"] {
                until(&mut [&mut a, &mut new], "a moment", |_| true);
                assert!(new.peers().is_empty() && waited < 16, "{waited} s");
                a.pass(s(1));
                a.pass(ms(50));
                waited += 1;
            }
            assert!(waited >= 10, "the old one has its 15 s: {waited}");
        }
        until(&mut [&mut a, &mut new], "ready", |nodes| nodes.iter().all(|node| node.ready_peers() == 1));
        let events = a.events();
        let lost = |event: &Owned| {
            matches!(event, Owned::Lost { reason: LostReason::Silence(Silence::NoAnswer), .. })
        };
        assert_eq!(count(&events, lost), usize::from(frozen == "b"), "{events:?}");
        assert_eq!(count(&events, |event| matches!(event, Owned::Ready { .. })), 1);
        bury((a.engine, old.engine, new.engine));
    }
}

/// The host's address changes from IPv4 to IPv6.
#[test]
fn case_41_a_move_from_ipv4_to_ipv6_closes_the_old_before_it_opens_the_new() {
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        eprintln!("skipped: this machine has no IPv6 loopback");
        return;
    }
    let (mut b, at) = Talker::listens(listening("b").generation(generation(1)));
    let (mut a, _) = Talker::join(listening("a"));
    let cables = [Cable::new(), Cable::over_ipv6()];
    for cable in &cables {
        cable.leads_to(&at);
    }
    a.is_told_of(&[described_as("b", 1, &cables[0].endpoint)]);
    come_to_rest(&mut [("a", &mut a), ("b", &mut b)], 1, "IPv4");
    a.is_told_of(&[described_as("b", 1, &cables[1].endpoint)]);
    for _ in 0..500 {
        for node in [&mut a, &mut b] {
            node.step(ms(5));
            assert!(node.engine.snapshot().connections.len() <= 1 && node.lanes() <= 3, "{}", node.story());
        }
        if a.times_ready("b") == 2 && b.times_ready("a") == 2 {
            break;
        }
    }
    come_to_rest(&mut [("a", &mut a), ("b", &mut b)], 1, "IPv6");
    let dialled = a.engine.snapshot().connections[0].peer.endpoint().cloned();
    assert_eq!(dialled.as_ref(), Some(&cables[1].endpoint));
    assert_eq!((a.lost(), b.lost()), (vec![LostReason::Retired], vec![LostReason::Transport]));
    assert_eq!((a.times_ready("b"), b.times_ready("a")), (2, 2));
    bury((a, b, cables));
}

/// Each restart of one node added one more connection at the others.
#[test]
fn case_44_a_node_that_restarts_twenty_times_is_one_connection_and_one_ready_each_time() {
    let cables = [Cable::new(), Cable::new()];
    let [application, completion] = cables.each_ref().map(|cable| cable.endpoint.clone());
    let (mut a, at_a) = Talker::listens(listening("a"));
    a.dials(&[(&application, None)]);
    let mut last = None;
    for run in 1..=20 {
        let b = listening("b").advertised(application.clone(), completion.clone());
        let (mut b, bound) = Talker::join(b.generation(generation(run)));
        let bound = bound.unwrap();
        cables[0].leads_to(&Endpoint::try_from(&bound.application).unwrap());
        cables[1].leads_to(&Endpoint::try_from(&bound.completion).unwrap());
        if run % 3 == 0 {
            cables.iter().for_each(Cable::tear);
        }
        b.dials(&[(&at_a, (run % 2 == 0).then_some("a"))]);
        bury(last.take());
        come_to_rest(&mut [("a", &mut a), ("b", &mut b)], 1, &format!("run {run}"));
        assert_eq!((a.times_ready("b"), b.times_ready("a")), (run as usize, 1), "run {run}\n{}", a.story());
        last = Some(b);
    }
    assert_eq!(a.lost().len(), 19);
    bury((a, last, cables));
}
