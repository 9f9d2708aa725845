//! Flood and fairness: who is quiet is heard, what was left unread is never forgotten, and what has gone leaves nothing.

use std::cell::RefCell;

use wakeful::{Config, Endpoint, Engine, Event, Outbox, Server, Stopped};

use crate::crowding::{config, one_flood, starvation, three_floods, unfairness};
use crate::raw::{ADMIT, PROBE, RawClient, check, command};
use crate::support::*;

#[test]
fn case_14_whoever_was_registered_after_a_flooder_is_served_in_every_rotation() {
    let turns = three_floods(Engine::new(config()).unwrap());
    assert_eq!(unfairness(&turns), None);
}

#[test]
fn case_20_a_quiet_peer_is_answered_in_time_while_another_floods() {
    let mut seen = one_flood(Engine::new(config()).unwrap());
    assert_eq!(starvation(&mut seen), None);
}

#[test]
fn case_17_ten_thousand_messages_and_then_silence_are_all_delivered_while_a_second_peer_is_served_between() {
    const FLOOD: usize = 10_000;
    let mut server = Node::with(Config { queue_records_max: 10_000, seed: 7, ..Config::default() });
    let bound =
        server.engine.serve(Server::new(channel(), rid("server"), "tcp://127.0.0.1:0".parse().unwrap()));
    let endpoint = Endpoint::try_from(&bound.unwrap()).unwrap();
    let context = zmq::Context::new();
    let flooder = RawClient::enter(&context, &endpoint, &mut server, "flooder");
    let second = RawClient::enter(&context, &endpoint, &mut server, "second");
    settle(&mut [&mut server]);

    for _ in 0..FLOOD / 2 {
        flooder.message("flood");
    }
    for _ in 0..20 {
        second.message("second");
    }
    for _ in 0..FLOOD / 2 {
        flooder.message("flood");
    }

    let came = RefCell::new(Vec::new());
    let mut host = |event: Event<'_>, _: &mut Outbox<'_>| {
        if let Event::Message { parts, .. } = event {
            came.borrow_mut().push(parts.get(0) == Some(b"flood"));
        }
    };
    // The contract of a host and nothing beside it: turn again at once while work is left, else wait for the descriptor.
    // Virtual time stands still, so that no timer ever comes to the rescue.
    let (mut at_once, mut left) = (0, false);
    while came.borrow().len() < FLOOD + 20 {
        if left {
            at_once += 1;
        } else {
            assert!(wait_readable(&server), "stranded after {}", came.borrow().len());
        }
        let before = came.borrow().len();
        let report = server.engine.turn_at(server.now, &mut host);
        left = report.work_left;
        let shares = came.borrow()[before..].iter().filter(|from_flood| **from_flood).count();
        assert!(shares <= 64, "{shares} of one peer in one turn");
        assert!(left || report.stopped == Stopped::Empty, "what is left is said to be left");
    }
    let came = came.into_inner();
    assert_eq!(came.iter().filter(|from_flood| **from_flood).count(), FLOOD);
    let last = came.iter().rposition(|from_flood| !from_flood).unwrap();
    assert!(last < FLOOD, "the second peer had its turn before the flood was over, not at {last}");
    assert!(at_once > 0, "the engine asked to be turned at once");
}

#[test]
fn case_22_peers_that_come_and_go_leave_nothing_in_any_table() {
    const PEERS: usize = 50;
    let (mut server, endpoint) = Node::server("server");
    for cycle in 1..=10 {
        let context = zmq::Context::new();
        let clients: Vec<_> = (0..PEERS).map(|_| RawClient::dial(&context, &endpoint)).collect();
        for (number, client) in clients.iter().enumerate() {
            client.hello(&format!("peer-{number}"), cycle);
        }
        until(&mut [&mut server], "all ready", |nodes| {
            for client in &clients {
                if client.receive().is_some_and(|record| command(&record) == ADMIT) {
                    client.send(&[&check(PROBE, 1)]);
                }
            }
            nodes[0].ready_peers() == PEERS
        });
        drop(clients);
        until(&mut [&mut server], "all gone", |nodes| {
            let now = nodes[0].engine.snapshot();
            now.connections.len() + now.fenced_open + now.unadmitted + now.requests + now.replies == 0
        });
        let counters = server.engine.snapshot().counters;
        assert_eq!(
            counters.lost_transport,
            PEERS as u64 * cycle,
            "each end is of its own kind, and counted once"
        );
        server.events();
    }
}

/// Waits on the descriptor as a foreign loop does; false if it stays silent for 5 s.
fn wait_readable(node: &Node) -> bool {
    use std::os::fd::AsRawFd;
    let mut poll = mio::Poll::new().unwrap();
    let mut events = mio::Events::with_capacity(4);
    let descriptor = node.engine.as_raw_fd();
    let mut source = mio::unix::SourceFd(&descriptor);
    poll.registry().register(&mut source, mio::Token(0), mio::Interest::READABLE).unwrap();
    poll.poll(&mut events, Some(s(5))).unwrap();
    !events.is_empty()
}
