//! Requests and messages: each request ends once, and nothing old goes out anew.

use std::collections::HashSet;
use std::time::Instant;

use wakeful::{Client, Config, LostReason, NoRoute, Owned, RequestId, SendError, Unanswered};

use crate::proxy::Proxy;
use crate::raw::{RawClient, RawServer};
use crate::steps::*;
use crate::support::raw::{channel_request, reply};
use crate::support::*;

#[test]
fn case_46_two_requests_whose_replies_come_swapped_and_twice_each_complete_once_with_their_own() {
    let context = zmq::Context::new();
    let mut server = RawServer::listen(&context);
    let mut client = Node::client("client", &server.endpoint);
    client.turn();
    // Before anyone is ready a request is refused at the call, so none can be pending and meet another's reply.
    for _ in 0..2 {
        let refused = client.engine.outbox().request(&channel(), &[b"early"], s(5));
        assert_eq!(refused, Err(SendError::RouteNotConnected(NoRoute::Unavailable)));
    }
    assert_eq!(client.engine.snapshot().requests, 0);
    server.admit(&mut client);
    client.events();

    let first = client.engine.outbox().request(&channel(), &[b"first"], s(5)).unwrap();
    let second = client.engine.outbox().request(&channel(), &[b"second"], s(5)).unwrap();
    let correlations = [server.request(&mut client), server.request(&mut client)];
    assert_ne!(correlations[0], correlations[1]);
    for _ in 0..2 {
        server.send(&[&reply(correlations[1], 0), b"to the second"]);
        server.send(&[&reply(correlations[0], 0), b"to the first"]);
    }
    until(&mut [&mut client], "the repeated replies", |nodes| {
        nodes[0].engine.snapshot().counters.late_replies == 2
    });
    assert_eq!(client.events(), [replied(second, b"to the second"), replied(first, b"to the first")]);
}

fn replied(request: RequestId, part: &[u8]) -> Owned {
    Owned::Replied { request, parts: vec![part.to_vec()] }
}

#[test]
fn case_47_a_reply_after_the_time_out_is_counted_and_completes_nothing() {
    let context = zmq::Context::new();
    let mut server = RawServer::listen(&context);
    let mut client = Node::client("client", &server.endpoint);
    server.admit(&mut client);
    client.events();

    let request = client.engine.outbox().request(&channel(), &[b"slow"], ms(500)).unwrap();
    let correlation = server.request(&mut client);
    client.pass(s(1));
    assert_eq!(client.events(), [Owned::Unanswered { request, why: Unanswered::TimedOut }]);

    server.send(&[&reply(correlation, 0), b"late"]);
    let mut slowest = ms(0);
    until(&mut [&mut client], "the late reply", |nodes| {
        let begin = Instant::now();
        nodes[0].turn();
        slowest = slowest.max(begin.elapsed());
        nodes[0].engine.snapshot().counters.late_replies == 1
    });
    assert!(slowest < s(1), "a turn that reads nothing of use does not block: {slowest:?}");
    assert_eq!(client.events(), [], "no second completion");
    assert_eq!(client.engine.snapshot().requests, 0);

    let next = client.engine.outbox().request(&channel(), &[b"next"], s(5)).unwrap();
    let correlation = server.request(&mut client);
    server.send(&[&reply(correlation, 0), b"in time"]);
    until(&mut [&mut client], "the reply", |nodes| !nodes[0].inbox.events.is_empty());
    assert_eq!(client.events(), [replied(next, b"in time")]);
}

#[test]
fn case_49_a_thousand_requests_queued_at_a_verdict_each_end_once_and_none_of_their_bytes_go_out_later() {
    const QUEUED: usize = 1_000;
    let context = zmq::Context::new();
    let mut server = RawServer::listen(&context);
    let cable = Proxy::to(&server.endpoint);
    let mut client = Node::with(Config { queue_records_max: 2_000, seed: 7, ..Config::default() });
    client.engine.connect(Client::new(channel(), rid("client")).server(cable.endpoint.clone())).unwrap();
    server.admit(&mut client);
    client.events();

    cable.freeze();
    let mut requests = HashSet::new();
    // Large enough for the transport's own buffers to fill as well.
    let stale = b"stale".repeat(4_000);
    while requests.len() < QUEUED {
        requests.insert(client.engine.outbox().request(&channel(), &[&stale], s(600)).unwrap());
    }
    for _ in 0..17 {
        client.pass(s(1));
        arrive(&mut client, || ());
    }
    let events = client.events();
    assert!(matches!(lost(&events)[..], [(_, LostReason::Silence(_))]), "{:?}", lost(&events));
    let ended: Vec<RequestId> = events
        .iter()
        .filter_map(|event| match event {
            Owned::Unanswered { request, why: Unanswered::RouteLost } => Some(*request),
            _ => None,
        })
        .collect();
    assert_eq!(ended.len(), QUEUED);
    assert_eq!(ended.into_iter().collect::<HashSet<_>>(), requests, "each ended once");
    assert_eq!(client.engine.snapshot().requests, 0);

    client.pass(ms(300));
    server.admit(&mut client);
    let fresh = client.engine.outbox().request(&channel(), &[b"fresh"], s(5)).unwrap();
    let mut came = Vec::new();
    until(&mut [&mut client], "the fresh request", |_| {
        came.extend(std::iter::from_fn(|| server.receive()).filter(|record| record.len() > 1));
        !came.is_empty()
    });
    arrive(&mut client, || {
        came.extend(std::iter::from_fn(|| server.receive()).filter(|record| record.len() > 1));
    });
    assert_eq!(came.len(), 1, "and nothing else");
    assert_eq!(came[0][1], b"fresh");
    server.send(&[&reply(crate::raw::number(&came[0]), 0), b"done"]);
    until(&mut [&mut client], "the reply", |nodes| nodes[0].inbox.events.contains(&replied(fresh, b"done")));
}

#[test]
fn case_50_a_reply_to_a_peer_whose_queue_is_full_and_that_is_then_killed_returns_at_once() {
    let (mut server, endpoint) = Node::server("server");
    let cable = Proxy::to(&endpoint);
    let context = zmq::Context::new();
    let peer = RawClient::enter(&context, &cable.endpoint, &mut server, "peer");
    server.events();
    for correlation in 1..=2_000 {
        peer.send(&[&channel_request(correlation, CHANNEL), b"?"]);
    }
    until(&mut [&mut server], "the requests", |nodes| nodes[0].inbox.events.len() == 2_000);
    let requested = server.events();
    let mut tokens = requested.iter().filter_map(|event| match event {
        Owned::Request { token, .. } => Some(*token),
        _ => None,
    });

    cable.freeze();
    let mut calls = Calls::default();
    let large = vec![7; 20_000];
    // A token that met no room stays usable, so the one in hand is tried again and again.
    let mut token = tokens.next().unwrap();
    let mut answer = |server: &mut Node, calls: &mut Calls| {
        loop {
            match calls.time(|| server.engine.outbox().reply(token, &[&large])) {
                Ok(()) => token = tokens.next().unwrap(),
                Err(refused) => return refused,
            }
        }
    };
    assert_eq!(answer(&mut server, &mut calls), SendError::WouldBlock);
    for _ in 0..10 {
        calls.time(|| server.pass(ms(100)));
        assert_eq!(answer(&mut server, &mut calls), SendError::WouldBlock);
    }
    drop(peer);
    cable.tear();
    let begin = Instant::now();
    let gone = loop {
        calls.time(|| server.turn());
        let refused = answer(&mut server, &mut calls);
        if refused != SendError::WouldBlock {
            break refused;
        }
        assert!(begin.elapsed() < s(10), "it never learned");
    };
    assert!(matches!(gone, SendError::RouteNotConnected(_) | SendError::TokenSpent), "{gone:?}");
    until(&mut [&mut server], "the end", |nodes| !lost(&nodes[0].inbox.events).is_empty());
    calls.assert_quick();
}

#[test]
fn case_50_a_send_to_a_server_whose_queue_is_full_and_that_is_then_killed_returns_at_once() {
    let (mut server, endpoint) = Node::server("server");
    let cable = Proxy::to(&endpoint);
    let mut client = Node::client("client", &cable.endpoint);
    until(&mut [&mut server, &mut client], "ready", |nodes| nodes[1].ready_peers() == 1);
    cable.freeze();
    let mut calls = Calls::default();
    let large = vec![7; 20_000];
    let fill = |client: &mut Node, calls: &mut Calls| {
        loop {
            if let Err(refused) = calls.time(|| client.engine.outbox().send(&channel(), &[&large])) {
                return refused;
            }
        }
    };
    assert_eq!(fill(&mut client, &mut calls), SendError::WouldBlock);
    for _ in 0..10 {
        calls.time(|| client.pass(ms(100)));
        assert_eq!(fill(&mut client, &mut calls), SendError::WouldBlock);
    }
    cable.tear();
    let begin = Instant::now();
    let gone = loop {
        calls.time(|| client.turn());
        let refused = fill(&mut client, &mut calls);
        if refused != SendError::WouldBlock {
            break refused;
        }
        assert!(begin.elapsed() < s(10), "it never learned");
    };
    assert!(matches!(gone, SendError::RouteNotConnected(_)), "{gone:?}");
    calls.assert_quick();
}

/// How long calls took that must not wait for anyone.
#[derive(Default)]
struct Calls(Vec<std::time::Duration>);

impl Calls {
    fn time<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let result = call();
        self.0.push(begin.elapsed());
        result
    }

    /// None waited for a peer, and but for what a loaded machine adds to a few, each took less than 10 ms.
    fn assert_quick(mut self) {
        self.0.sort_unstable();
        let (usual, slowest) = (self.0[self.0.len() * 9 / 10], *self.0.last().unwrap());
        assert!(usual < ms(10) && slowest < s(1), "{usual:?}, {slowest:?}");
    }
}
