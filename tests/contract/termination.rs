//! 000 §10, "Reconnect and termination", the second half: each request ends once, and a host that stops leaves nothing.

use std::collections::HashMap;
use std::time::Duration;

use wakeful::{Client, DueReason, Endpoint, HostState, LostReason, Owned, RequestId, Unanswered};

use crate::scene::{Scene, name};
use crate::support::raw::{self, Raw, Seen, channel_request, head, reply};
use crate::support::{CHANNEL, Node, channel, ms, rid, s, until};

/// A small generator, so that a race can be run again from its seed.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % sides
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        (!of.is_empty()).then(|| of[self.roll(of.len() as u64) as usize])
    }
}

/// How a request ended, as the race counts it.
pub fn ending(event: &Owned) -> Option<(RequestId, &'static str)> {
    match event {
        Owned::Replied { request, .. } => Some((*request, "reply")),
        Owned::Declined { request, .. } => Some((*request, "refusal")),
        Owned::Unanswered { request, why } => Some((
            *request,
            match why {
                Unanswered::TimedOut => "time-out",
                Unanswered::Cancelled => "cancellation",
                Unanswered::RouteLost => "disconnect",
                Unanswered::Shutdown => "shutdown",
                _ => "something else",
            },
        )),
        _ => None,
    }
}

/// One race: requests with short time-outs against a server that answers late, twice or never and loses its connections,
/// a host that cancels, and in the end a shutdown. Returns how often each way to end won.
fn race(seed: u64) -> HashMap<&'static str, usize> {
    let mut dice = Dice(seed);
    let mut scene = Scene::at_client(1);
    let (mut begun, mut correlations): (Vec<RequestId>, Vec<u64>) = (Vec::new(), Vec::new());
    for _ in 0..60 {
        match dice.roll(16) {
            0..5 => {
                let timeout = ms(dice.roll(1_500));
                begun.extend(scene.node.engine.outbox().request(&channel(), &[b"?"], timeout));
            }
            5..9 => {
                scene.raws[0].poll();
                correlations.extend(scene.raws[0].taken(raw::CHANNEL_REQUEST).iter().map(Seen::number));
                if let Some(correlation) = dice.pick(&correlations) {
                    let outcome = if dice.roll(3) == 0 { 6 } else { 0 };
                    scene.raws[0].try_send(&reply(correlation, outcome), &[]);
                }
            }
            9..11 => {
                if let Some(request) = dice.pick(&begun) {
                    scene.node.engine.outbox().cancel(request);
                }
            }
            11..13 => drop(scene.node.pass(ms(dice.roll(400)))),
            13 => scene.hear(),
            14 => drop(scene.node.turn()),
            _ => {
                scene.raws[0].poll();
                correlations.extend(scene.raws[0].taken(raw::CHANNEL_REQUEST).iter().map(Seen::number));
                lose(&mut scene, dice.roll(2) == 0);
            }
        }
    }
    scene.hear();
    correlations.extend(scene.raws[0].taken(raw::CHANNEL_REQUEST).iter().map(Seen::number));
    scene.node.engine.stop(&mut scene.node.inbox);
    scene.raws[0].try_send(&reply(dice.pick(&correlations).unwrap_or(1), 0), &[]);
    scene.follow(scene.elapsed() + s(5));

    let mut ends: HashMap<RequestId, usize> = HashMap::new();
    let mut ways = HashMap::new();
    for (request, way) in scene.events.iter().filter_map(|(_, event)| ending(event)) {
        *ends.entry(request).or_default() += 1;
        *ways.entry(way).or_default() += 1;
    }
    for request in &begun {
        assert_eq!(ends.remove(request), Some(1), "seed {seed}: {request:?}");
    }
    assert!(ends.is_empty(), "seed {seed}: an end without a beginning");
    let sent = correlations.len();
    correlations.sort_unstable();
    correlations.dedup();
    assert_eq!(correlations.len(), sent, "seed {seed}: a request was seen twice");
    ways
}

/// The server loses its connection, in order or not, and takes the next one.
fn lose(scene: &mut Scene, orderly: bool) {
    let ends = scene.lost().len();
    if orderly {
        scene.raws[0].update(raw::STOPPED);
        scene.raws[0].admission.state = raw::SERVING;
    } else {
        scene.raws[0].send(&head(7, &[]), &[]);
    }
    scene.until_lost(ends + 1);
    scene.follow(scene.elapsed() + s(1));
    scene.raws[0].hello(&mut scene.node);
    scene.raws[0].admit(&mut scene.node);
}

/// Reply, time-out, cancellation, disconnect and shutdown race: each request ends exactly once, by one of them, and the
/// server sees none of them twice.
#[test]
fn each_request_ends_exactly_once_whatever_races() {
    let mut ways: HashMap<&str, usize> = HashMap::new();
    for seed in 0..40 {
        for (way, count) in race(seed) {
            *ways.entry(way).or_default() += count;
        }
    }
    for way in ["reply", "refusal", "time-out", "cancellation", "disconnect", "shutdown"] {
        assert!(ways.get(way).is_some_and(|count| *count >= 5), "the races were no races: {ways:?}");
    }
    assert_eq!(ways.len(), 6, "{ways:?}");
}

// ---- Nothing remains ----

/// Says that the engine has nothing to do any more, now and for as long as anyone looks.
#[track_caller]
pub fn nothing_remains(node: &mut Node) {
    assert_eq!(node.engine.next_due(), None);
    node.events();
    for _ in 0..120 {
        let report = node.pass(ms(500));
        assert_eq!((report.next, report.work_left, report.records), (None, false, 0));
        node.engine.wait(Some(Duration::ZERO));
    }
    assert_eq!(node.events(), []);
    let snapshot = node.engine.snapshot();
    assert_eq!(snapshot.host, HostState::Stopped);
    assert_eq!((snapshot.connections.len(), snapshot.unadmitted, snapshot.fenced_open), (0, 0, 0));
    assert_eq!((snapshot.requests, snapshot.replies), (0, 0));
}

/// A client that stops with a ready server, one that was lost, one that does not answer the hello, one that nobody
/// listens at, and a pending request: no probe, retry, handshake or time-out remains.
#[test]
fn a_client_that_stops_leaves_no_timer_behind() {
    let mut raws: Vec<Raw> = (0..3).map(|peer| Raw::server(&name(peer))).collect();
    let nobody: Endpoint = {
        let mut gone = Raw::server("gone");
        gone.kill();
        gone.endpoint
    };
    let client = Client::new(channel(), rid("client")).server(nobody);
    let client = raws.iter().fold(client, |client, raw| client.server(raw.endpoint.clone()));
    let mut node = Node::new();
    node.engine.connect(client).unwrap();
    for raw in &mut raws[..2] {
        raw.hello(&mut node);
        raw.admit(&mut node);
    }
    raws[2].hello(&mut node);
    raws[1].update(raw::STOPPED);
    until(&mut [&mut node], "one ready, one lost", |nodes| nodes[0].ready_peers() == 1);
    node.engine.outbox().request(&channel(), &[b"?"], s(60)).unwrap();
    assert!(node.engine.next_due().is_some());
    node.engine.stop(&mut node.inbox);
    nothing_remains(&mut node);
}

/// A server that stops with a ready client, an admitted one, one that said nothing, one that was judged, and an
/// unanswered request: likewise.
#[test]
fn a_server_that_stops_leaves_no_timer_behind() {
    let mut scene = Scene::at_server(1);
    scene.follow(s(15));
    assert_eq!(scene.node.engine.snapshot().fenced_open, 1);
    let endpoint = scene.raws[0].endpoint.clone();
    let ready = Raw::join("ready", &endpoint, &mut scene.node);
    ready.send(&channel_request(1, CHANNEL), &[b"?"]);
    let mut admitted = Raw::client("admitted", &endpoint);
    admitted.send(&head(raw::HELLO, &admitted.admission.bytes()), &[]);
    admitted.wait(&mut scene.node, raw::ADMIT);
    let _silent = Raw::client("silent", &endpoint);
    until(&mut [&mut scene.node], "the request", |nodes| nodes[0].engine.snapshot().replies == 1);
    let due = scene.node.engine.next_due().map(|due| due.reason);
    assert_eq!(due, Some(DueReason::Watch));
    scene.node.engine.stop(&mut scene.node.inbox);
    nothing_remains(&mut scene.node);
}

/// The peer is told in order, then the transport closes: it need not wait for any deadline.
#[test]
fn a_host_that_stops_tells_its_peers_and_closes() {
    for mut scene in Scene::at_either_end(1) {
        scene.node.engine.stop(&mut scene.node.inbox);
        let told = scene.raws[0].wait(&mut scene.node, raw::UPDATE);
        assert_eq!(told.admission().state, raw::STOPPED);
        let raw = &mut scene.raws[0];
        until(&mut [&mut scene.node], "the transport's end", |_| {
            raw.poll();
            raw.disconnected == 1
        });
    }
}

/// Callbacks end before connections do: a host hears how its requests ended, then that its peers are gone, each once.
#[test]
fn pending_callbacks_end_before_their_connections() {
    let mut scene = Scene::at_client(2);
    let requests = [(); 4].map(|()| scene.node.engine.outbox().request(&channel(), &[b"?"], s(60)).unwrap());
    scene.hear();
    scene.events.clear();
    scene.node.engine.stop(&mut scene.node.inbox);
    scene.hear();
    let events: Vec<&Owned> = scene.events.iter().map(|(_, event)| event).collect();
    assert_eq!(events.len(), 6, "{events:?}");
    for event in &events[..4] {
        assert!(
            requests
                .iter()
                .any(|&request| **event == Owned::Unanswered { request, why: Unanswered::Shutdown })
        );
    }
    assert!(events[4..].iter().all(|event| matches!(event, Owned::Lost { reason: LostReason::Stopped, .. })));
}

/// A host that drains takes no new peer, keeps the connections it has, goes on checking them, and answers what it had
/// accepted.
#[test]
fn a_draining_host_keeps_its_connections_for_accepted_work() {
    const NOT_SERVING: u32 = 9;
    let mut scene = Scene::at_server(1);
    scene.answers = vec![true];
    scene.ack(0, scene.asked(0));
    scene.raws[0].send(&channel_request(7, CHANNEL), &[b"?"]);
    scene.hear();
    scene.node.engine.drain(true);
    let told = scene.raws[0].wait(&mut scene.node, raw::UPDATE);
    assert_eq!(told.admission().state, raw::DRAINING);
    scene.follow(s(31));
    assert!(scene.is_ready(0));
    assert_eq!(scene.probes[0].len(), 7);
    let mut late = Raw::client("late", &scene.raws[0].endpoint);
    late.send(&head(raw::HELLO, &late.admission.bytes()), &[]);
    assert_eq!(late.wait(&mut scene.node, raw::REJECT).reason(), NOT_SERVING);
    let token = scene.events.iter().find_map(|(_, event)| match event {
        Owned::Request { token, .. } => Some(*token),
        _ => None,
    });
    scene.node.engine.outbox().reply(token.unwrap(), &[b"!"]).unwrap();
    assert_eq!(scene.raws[0].wait(&mut scene.node, raw::REPLY).number(), 7);
}
