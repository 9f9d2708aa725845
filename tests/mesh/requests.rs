//! Calls on a mesh: what was sent to whom, how it ends, and what a stop leaves of it. The cases are those of CASES.md.
#![allow(clippy::disallowed_methods, reason = "a test on real sockets bounds its waits in real time")]

use std::collections::HashSet;
use std::time::{Duration, Instant};

use wakeful::{
    Config, Endpoint, ErrorKind, Event, Host, LostReason, NoRoute, Outbox, Owned, Pressure, ReplyToken,
    RequestId, SendError, Unanswered,
};

use crate::proxy::Proxy;
use crate::support::mesh::{application, listening, mesh, named, plain, weight};
use crate::support::raw::{self, reply};
use crate::support::raw_mesh::{APPLICATION, COMPLETION, RawLane, RawNode, host, node_request, node_send};
use crate::support::{Node, ms, rid, s, settle, until};

fn request(node: &mut Node, text: &[u8], timeout: Duration) -> Result<RequestId, SendError> {
    node.outbox().request((&mesh(), &rid("raw")), &[text], timeout)
}

fn replied(request: RequestId, part: &[u8]) -> Owned {
    Owned::Replied { request, parts: vec![part.to_vec()] }
}

/// The correlation of the next request that came.
fn asked(raw: &mut RawNode, node: &mut Node) -> u64 {
    raw.wait(node, APPLICATION, raw::NODE_REQUEST).number()
}

#[test]
fn case_46_two_requests_whose_replies_come_swapped_and_twice_each_complete_once_with_their_own() {
    let mut raw = RawNode::listening("raw");
    let (mut node, _) = Node::join(plain("node").peer(raw.at()));
    node.turn();
    // Before anyone is ready a request is refused at the call, so none can be pending and meet another's reply.
    let early = request(&mut node, b"early", s(5));
    assert_eq!(early, Err(SendError::RouteNotConnected(NoRoute::NotFound)));
    raw.hello(&mut node, APPLICATION);
    raw.send(APPLICATION, &raw::head(raw::ADMIT, &raw.body(APPLICATION)), &[]);
    raw.hello(&mut node, COMPLETION);
    assert!(request(&mut node, b"early", s(5)).is_err(), "one lane makes no pair");
    raw.send(COMPLETION, &raw::head(raw::ADMIT, &raw.body(COMPLETION)), &[]);
    raw.sync(&mut node);
    node.events();

    let first = request(&mut node, b"first", s(5)).unwrap();
    let second = request(&mut node, b"second", s(5)).unwrap();
    let correlations = [asked(&mut raw, &mut node), asked(&mut raw, &mut node)];
    assert_ne!(correlations[0], correlations[1]);
    for _ in 0..2 {
        raw.send(COMPLETION, &reply(correlations[1], 0), &[b"to the second"]);
        raw.send(COMPLETION, &reply(correlations[0], 0), &[b"to the first"]);
    }
    until(&mut [&mut node], "the repeated replies", |nodes| {
        nodes[0].engine.snapshot().counters.late_replies == 2
    });
    assert_eq!(node.events(), [replied(second, b"to the second"), replied(first, b"to the first")]);
}

#[test]
fn case_47_a_reply_after_the_time_out_is_counted_and_completes_nothing() {
    for (mut raw, mut node) in [RawNode::ready_dialler("raw"), RawNode::ready_listener("raw")] {
        node.events();
        let slow = request(&mut node, b"slow", ms(500)).unwrap();
        let correlation = asked(&mut raw, &mut node);
        // Its time began with the true clock, which may be ahead of the virtual one.
        until(&mut [&mut node], "the time-out", |nodes| {
            nodes[0].pass(ms(500));
            !nodes[0].inbox.events.is_empty()
        });
        assert_eq!(node.events(), [Owned::Unanswered { request: slow, why: Unanswered::TimedOut }]);
        raw.send(COMPLETION, &reply(correlation, 0), &[b"late"]);
        let mut calls = Calls::default();
        until(&mut [&mut node], "the late reply", |nodes| {
            calls.time(|| nodes[0].turn());
            nodes[0].engine.snapshot().counters.late_replies == 1
        });
        calls.assert_quick();
        assert_eq!((node.events(), node.engine.snapshot().requests), (vec![], 0));

        let next = request(&mut node, b"next", s(5)).unwrap();
        let correlation = asked(&mut raw, &mut node);
        raw.send(COMPLETION, &reply(correlation, 0), &[b"in time"]);
        until(&mut [&mut node], "the reply", |nodes| !nodes[0].inbox.events.is_empty());
        assert_eq!(node.events(), [replied(next, b"in time")]);
    }
}

#[test]
fn case_49_a_thousand_requests_queued_at_a_verdict_each_end_once_and_none_of_their_bytes_go_out_later() {
    const QUEUED: usize = 1_000;
    let mut raw = RawNode::listening("raw");
    let cable = Proxy::to(&raw.at());
    let wish = plain("node").peer(cable.endpoint.clone());
    let (mut node, _) =
        Node::join_with(Config { queue_records_max: 2_000, seed: 7, ..Config::default() }, wish);
    raw.admit(&mut node);
    node.events();

    cable.freeze();
    let mut requests = HashSet::new();
    // Large enough for the transport's own buffers to fill as well.
    let stale = b"stale".repeat(4_000);
    while requests.len() < QUEUED {
        requests.insert(request(&mut node, &stale, s(600)).unwrap());
    }
    for _ in 0..17 {
        node.pass(s(1));
        settle(&mut [&mut node]);
    }
    let events = node.events();
    let is_verdict = |event: &Owned| matches!(event, Owned::Lost { reason: LostReason::Silence(_), .. });
    assert_eq!(events.iter().filter(|event| is_verdict(event)).count(), 1);
    let ended: Vec<RequestId> = events
        .iter()
        .filter_map(|event| match event {
            Owned::Unanswered { request, why: Unanswered::RouteLost } => Some(*request),
            _ => None,
        })
        .collect();
    assert_eq!(ended.len(), QUEUED);
    assert_eq!(ended.into_iter().collect::<HashSet<_>>(), requests, "each ended once");
    assert_eq!(node.engine.snapshot().requests, 0);

    raw.poll();
    raw.lanes.iter_mut().flatten().for_each(|lane| lane.seen.retain(|seen| seen.command() == raw::HELLO));
    node.pass(ms(300));
    raw.admit(&mut node);
    let fresh = request(&mut node, b"fresh", s(5)).unwrap();
    let came = raw.wait(&mut node, APPLICATION, raw::NODE_REQUEST);
    assert_eq!(came.frames[1], b"fresh");
    raw.send(COMPLETION, &reply(came.number(), 0), &[b"done"]);
    until(&mut [&mut node], "the reply", |nodes| nodes[0].inbox.events.contains(&replied(fresh, b"done")));
    raw.sync(&mut node);
    assert_eq!(raw.lane(APPLICATION).taken(raw::NODE_REQUEST), [], "and nothing else");
}

/// Calls `call` until it is refused, and says why.
fn fill(
    node: &mut Node,
    calls: &mut Calls,
    call: &mut dyn FnMut(&mut Node) -> Result<(), SendError>,
) -> SendError {
    loop {
        if let Err(refused) = calls.time(|| call(node)) {
            return refused;
        }
    }
}

/// With a cable frozen, `call` fills the queue; then the peer is killed. Says what the last call was told.
fn full_then_gone(
    node: &mut Node,
    cable: &Proxy,
    call: &mut dyn FnMut(&mut Node) -> Result<(), SendError>,
) -> SendError {
    cable.freeze();
    let mut calls = Calls::default();
    assert_eq!(fill(node, &mut calls, call), SendError::WouldBlock);
    for _ in 0..10 {
        calls.time(|| node.pass(ms(100)));
        assert_eq!(fill(node, &mut calls, call), SendError::WouldBlock);
    }
    cable.tear();
    let begin = Instant::now();
    let gone = loop {
        calls.time(|| node.turn());
        let refused = fill(node, &mut calls, call);
        if refused != SendError::WouldBlock {
            break refused;
        }
        assert!(begin.elapsed() < s(10), "it never learned");
    };
    until(&mut [node], "the end", |nodes| {
        nodes[0].inbox.events.iter().any(|event| matches!(event, Owned::Lost { .. }))
    });
    calls.assert_quick();
    gone
}

#[test]
fn case_50_a_send_to_a_node_whose_queue_is_full_and_that_is_then_killed_returns_at_once() {
    let mut raw = RawNode::listening("raw");
    let cable = Proxy::to(&raw.at());
    let (mut node, _) = Node::join(plain("node").peer(cable.endpoint.clone()));
    raw.admit(&mut node);
    let large = vec![7; 20_000];
    let gone =
        full_then_gone(&mut node, &cable, &mut |node| node.outbox().send((&mesh(), &rid("raw")), &[&large]));
    assert!(matches!(gone, SendError::RouteNotConnected(_)), "{gone:?}");
}

#[test]
fn case_50_a_reply_to_a_node_whose_completion_lane_is_full_and_that_is_then_killed_returns_at_once() {
    let (mut node, bound) = Node::join(host("node"));
    let bound = bound.unwrap();
    let completion = Proxy::to(&Endpoint::try_from(&bound.completion).unwrap());
    let mut raw = RawNode::dialling("raw", &Endpoint::try_from(&bound.application).unwrap());
    raw.open_application(&mut node);
    raw.lanes[COMPLETION] = Some(RawLane::dial(COMPLETION, &completion.endpoint));
    raw.open_completion();
    raw.wait(&mut node, COMPLETION, raw::ADMIT);
    raw.sync(&mut node);
    node.events();
    for correlation in 1..=2_000 {
        raw.send(APPLICATION, &node_request(correlation), &[b"?"]);
    }
    until(&mut [&mut node], "the requests", |nodes| nodes[0].inbox.events.len() == 2_000);
    let requested = node.events();
    let mut tokens = requested.iter().filter_map(|event| match event {
        Owned::Request { token, .. } => Some(*token),
        _ => None,
    });
    let large = vec![7; 20_000];
    // A token that met no room stays usable, so the one in hand is tried again and again.
    let mut token: ReplyToken = tokens.next().unwrap();
    let gone = full_then_gone(&mut node, &completion, &mut |node| {
        node.outbox().reply(token, &[&large])?;
        token = tokens.next().unwrap();
        Ok(())
    });
    assert!(matches!(gone, SendError::RouteNotConnected(_) | SendError::TokenSpent), "{gone:?}");
}

/// How long calls took that must not wait for anyone.
#[derive(Default)]
struct Calls(Vec<Duration>);

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

// ---- Answers ----

const KINDS: [ErrorKind; 13] = [
    ErrorKind::NotFound,
    ErrorKind::AlreadyExists,
    ErrorKind::TypeMismatch,
    ErrorKind::NotConfigured,
    ErrorKind::Rejected,
    ErrorKind::Unavailable,
    ErrorKind::CapacityExceeded,
    ErrorKind::DeadlineExceeded,
    ErrorKind::ShuttingDown,
    ErrorKind::ProtocolError,
    ErrorKind::InvalidOperation,
    ErrorKind::DataLost,
    ErrorKind::InternalFailure,
];

/// The token of the next request that came to a node.
fn token(node: &mut Node) -> ReplyToken {
    let mut token = None;
    until(&mut [node], "the request", |nodes| {
        token = nodes[0].events().into_iter().find_map(|event| match event {
            Owned::Request { token, .. } => Some(token),
            _ => None,
        });
        token.is_some()
    });
    token.unwrap()
}

#[test]
fn the_reason_why_a_request_gets_no_reply_crosses_the_wire_as_it_is_both_ways() {
    for (mut raw, mut node) in [RawNode::ready_dialler("raw"), RawNode::ready_listener("raw")] {
        node.events();
        for (kind, outcome) in KINDS.into_iter().zip(1..) {
            raw.send(APPLICATION, &node_request(u64::from(outcome)), &[b"?"]);
            let token = token(&mut node);
            node.outbox().decline(token, kind).unwrap();
            let declined = raw.wait(&mut node, COMPLETION, raw::REPLY);
            assert_eq!(declined.frames, [reply(outcome.into(), outcome)]);

            let asking = request(&mut node, b"?", s(5)).unwrap();
            let correlation = asked(&mut raw, &mut node);
            raw.send(COMPLETION, &reply(correlation, outcome), &[]);
            until(&mut [&mut node], "the answer", |nodes| !nodes[0].inbox.events.is_empty());
            assert_eq!(node.events(), [Owned::Declined { request: asking, kind }]);
        }
    }
}

#[test]
fn a_request_beyond_the_places_for_answers_or_for_nobodys_channel_is_declined_by_the_engine() {
    let (mut node, bound) =
        Node::join_with(Config { replies_max: 4, seed: 7, ..Config::default() }, host("node"));
    let mut raw = RawNode::enter("raw", &application(&bound.unwrap()), &mut node);
    node.events();
    // One node may take a quarter of the places.
    for correlation in [1, 2] {
        raw.send(APPLICATION, &raw::channel_request(correlation, "work"), &[b"?"]);
    }
    let refused = raw.wait(&mut node, COMPLETION, raw::REPLY);
    assert_eq!(refused.frames, [reply(2, 7)]);
    let first = token(&mut node);
    node.outbox().reply(first, &[b"!"]).unwrap();
    assert_eq!(raw.wait(&mut node, COMPLETION, raw::REPLY).frames, [reply(1, 0), b"!".to_vec()]);
    raw.send(APPLICATION, &raw::channel_request(3, "play"), &[b"?"]);
    assert_eq!(raw.wait(&mut node, COMPLETION, raw::REPLY).frames, [reply(3, 1)]);
    raw.send(APPLICATION, &raw::channel_send("play"), &[b"misdirected"]);
    raw.sync(&mut node);
    assert_eq!((node.events(), node.engine.snapshot().counters.misdirected), (vec![], 1));
    assert_eq!(node.engine.snapshot().replies, 0);
}

/// Replies of one node answer no request that another was asked, whoever they say they are for.
#[test]
fn a_reply_by_another_pair_completes_nothing() {
    let mut raws = ["raw", "other"].map(RawNode::listening);
    let (mut node, _) = Node::join(plain("node").peer(raws[0].at()).peer(raws[1].at()));
    for raw in &mut raws {
        raw.admit(&mut node);
    }
    node.events();
    let asking = request(&mut node, b"?", s(5)).unwrap();
    let correlation = asked(&mut raws[0], &mut node);
    raws[1].send(COMPLETION, &reply(correlation, 0), &[b"forged"]);
    raws[1].sync_completion(&mut node);
    assert_eq!((node.events(), node.engine.snapshot().counters.late_replies), (vec![], 2));
    raws[0].send(COMPLETION, &reply(correlation, 0), &[b"genuine"]);
    until(&mut [&mut node], "the reply", |nodes| !nodes[0].inbox.events.is_empty());
    assert_eq!(node.events(), [replied(asking, b"genuine")]);
}

/// A node that asks itself: answered late, twice or never, cancelled, timed out, stopped. Each request ends once, and of
/// itself as a peer the node hears nothing.
#[test]
fn a_request_to_oneself_ends_exactly_once_whatever_races() {
    for seed in 0..20_u64 {
        let (mut node, _) = Node::join(plain("node").serve(named("work"), weight(1)));
        let mut state = seed;
        let mut roll = |sides: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % sides
        };
        let (mut begun, mut tokens, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..200 {
            match roll(8) {
                0..3 => {
                    let timeout = ms(roll(300));
                    let to_channel = roll(2) == 0;
                    let (mesh, me, work) = (mesh(), rid("node"), named("work"));
                    let mut outbox = node.outbox();
                    begun.extend(if to_channel {
                        outbox.request((&mesh, &work), &[b"?"], timeout)
                    } else {
                        outbox.request((&mesh, &me), &[b"?"], timeout)
                    });
                }
                3 if !tokens.is_empty() => {
                    let token = tokens[roll(tokens.len() as u64) as usize];
                    let _ = match roll(2) {
                        0 => node.outbox().reply(token, &[b"!"]),
                        _ => node.outbox().decline(token, ErrorKind::Rejected),
                    };
                }
                4 if !begun.is_empty() => {
                    let request = begun[roll(begun.len() as u64) as usize];
                    node.outbox().cancel(request);
                }
                5 => {
                    let pressure = [Pressure::Running, Pressure::Paused][roll(2) as usize];
                    node.outbox().set_pressure(pressure);
                }
                _ => {
                    node.pass(ms(roll(100)));
                }
            }
            for event in node.events() {
                match event {
                    Owned::Request { token, .. } => tokens.push(token),
                    Owned::Replied { request, .. }
                    | Owned::Declined { request, .. }
                    | Owned::Unanswered { request, .. } => ends.push(request),
                    other => panic!("{other:?}"),
                }
            }
        }
        node.engine.stop(&mut node.inbox);
        node.turn();
        ends.extend(node.events().into_iter().map(|event| match event {
            Owned::Unanswered { request, .. } => request,
            other => panic!("{other:?}"),
        }));
        let (unique, all): (HashSet<_>, HashSet<_>) = (ends.iter().collect(), begun.iter().collect());
        assert!(begun.len() > 30 && unique.len() == ends.len() && unique == all, "seed {seed}");
    }
}

/// A host that closes a pair while it hears of it, as a handler may.
struct Closing {
    log: Vec<Owned>,
}

impl Host for Closing {
    fn on_event(&mut self, event: Event<'_>, outbox: &mut Outbox<'_>) {
        if let Event::Message { peer, .. } = &event {
            assert!(outbox.close(peer.connection()));
            let gone = outbox.send((&mesh(), peer.rid()), &[b"too late"]);
            assert!(matches!(gone, Err(SendError::RouteNotConnected(_))), "{gone:?}");
        }
        self.log.push(event.into());
    }
}

#[test]
fn a_pair_that_a_handler_closes_brings_nothing_more_by_either_lane() {
    for (mut raw, mut node) in [RawNode::ready_dialler("raw"), RawNode::ready_listener("raw")] {
        let asking = request(&mut node, b"?", s(5)).unwrap();
        let correlation = asked(&mut raw, &mut node);
        let mut host = Closing { log: Vec::new() };
        for _ in 0..10 {
            raw.send(APPLICATION, &node_send(), &[b"x"]);
        }
        let begin = Instant::now();
        let mut is_answered = false;
        while !host.log.iter().any(|event| matches!(event, Owned::Lost { .. })) {
            assert!(begin.elapsed() < s(10), "not in 10 s: the end");
            node.engine.turn_at(node.now, &mut host);
            if !host.log.is_empty() && !is_answered {
                is_answered = true;
                raw.lanes[COMPLETION].as_ref().unwrap().try_send(&reply(correlation, 0), &[b"late"]);
            }
        }
        let ended = Owned::Unanswered { request: asking, why: Unanswered::RouteLost };
        let [Owned::Message { .. }, told, Owned::Lost { reason: LostReason::Closed, .. }] = &host.log[..]
        else {
            panic!("{:?}", host.log);
        };
        assert_eq!(*told, ended);
        settle(&mut [&mut node]);
        let late = node.events();
        assert!(
            !late.iter().any(|event| matches!(event, Owned::Message { .. } | Owned::Replied { .. })),
            "{late:?}"
        );
    }
}

// ---- What a stop leaves ----

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
