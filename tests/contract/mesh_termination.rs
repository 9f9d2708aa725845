//! 000 §10, "Reconnect and termination", on RouteMesh, the second half: each request ends once, nothing is sent again, and a
//! node that stops leaves nothing.

use std::collections::HashMap;

use wakeful::{Endpoint, LostReason, Owned, RequestId, Unanswered};

use crate::mesh_reconnect::{lose, next_hello};
use crate::scene::{MeshScene, name};
use crate::support::mesh::{application, listening, mesh, named};
use crate::support::raw::{self, ADMIT, HELLO, Seen, channel_request, head, reply};
use crate::support::raw_mesh::{APPLICATION, COMPLETION, RawLane, RawNode, host, node_request};
use crate::support::{Node, ms, rid, s, until};
use crate::termination::{Dice, ending, nothing_remains};

fn request(scene: &mut MeshScene, peer: usize) -> RequestId {
    scene.node.outbox().request((&mesh(), &rid(&name(peer))), &[b"?"], s(60)).unwrap()
}

/// One race: requests with short time-outs to a node that answers late, twice or never and whose pairs break, a host that
/// cancels, and in the end a shutdown. Returns how often each way to end won.
fn race(seed: u64) -> HashMap<&'static str, usize> {
    let mut dice = Dice(seed);
    let mut scene = MeshScene::dialling(1);
    let to = rid(&name(0));
    let (mut begun, mut correlations): (Vec<RequestId>, Vec<u64>) = (Vec::new(), Vec::new());
    let asked = |scene: &mut MeshScene, correlations: &mut Vec<u64>| {
        scene.raws[0].poll();
        let requests = scene.raws[0].lane(APPLICATION).taken(raw::NODE_REQUEST);
        correlations.extend(requests.iter().map(Seen::number));
    };
    let answer = |scene: &MeshScene, correlation: u64, outcome: u8| {
        let lane = scene.raws[0].lanes[COMPLETION].as_ref();
        lane.is_some_and(|lane| lane.try_send(&reply(correlation, outcome), &[]))
    };
    for _ in 0..60 {
        match dice.roll(16) {
            0..5 => {
                let timeout = ms(dice.roll(1_500));
                begun.extend(scene.node.outbox().request((&mesh(), &to), &[b"?"], timeout));
            }
            5..9 => {
                asked(&mut scene, &mut correlations);
                if let Some(correlation) = dice.pick(&correlations) {
                    answer(&scene, correlation, if dice.roll(3) == 0 { 6 } else { 0 });
                }
            }
            9..11 => {
                if let Some(request) = dice.pick(&begun) {
                    scene.node.outbox().cancel(request);
                }
            }
            11..13 => drop(scene.node.pass(ms(dice.roll(400)))),
            13 => scene.hear(),
            14 => drop(scene.node.turn()),
            _ => {
                asked(&mut scene, &mut correlations);
                lose(&mut scene);
                scene.follow(scene.elapsed() + s(1));
                scene.raws[0].admit(&mut scene.node);
            }
        }
    }
    scene.hear();
    asked(&mut scene, &mut correlations);
    scene.node.engine.stop(&mut scene.node.inbox);
    answer(&scene, dice.pick(&correlations).unwrap_or(1), 0);
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

/// Reply, time-out, cancellation, disconnect and shutdown race on a mesh: each request ends exactly once, by one of them, and
/// the node that was asked sees none of them twice.
#[test]
fn each_request_on_a_mesh_ends_exactly_once_whatever_races() {
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

/// Whatever was sent on a lost pair, read there or not, is not sent again on the next one.
#[test]
fn nothing_is_sent_again_on_the_next_pair() {
    let mut scene = MeshScene::dialling(1);
    let to = rid(&name(0));
    for _ in 0..20 {
        scene.node.outbox().send((&mesh(), &to), &[b"once"]).unwrap();
        request(&mut scene, 0);
    }
    lose(&mut scene);
    scene.raws[0].poll();
    scene.raws[0].lanes.iter_mut().flatten().for_each(|lane| lane.seen.clear());
    next_hello(&mut scene);
    let (raw, node) = (&mut scene.raws[0], &mut scene.node);
    raw.send(APPLICATION, &head(ADMIT, &raw.body(APPLICATION)), &[]);
    raw.hello(node, COMPLETION);
    raw.send(COMPLETION, &head(ADMIT, &raw.body(COMPLETION)), &[]);
    raw.sync(node);
    let again = [raw::NODE_SEND, raw::NODE_REQUEST].map(|command| raw.lane(APPLICATION).taken(command));
    assert_eq!(again, [[], []]);
}

/// Nor is it sent to another node that serves the channel, though one is ready all the time.
#[test]
fn nothing_is_sent_again_to_another_member() {
    let mut raws = [0, 1].map(|peer| RawNode::listening(&name(peer)));
    for raw in &mut raws {
        raw.admission.channels = vec![("play".into(), 10)];
    }
    let wish = raws.iter().fold(host("node"), |wish, raw| wish.peer(raw.at()));
    let (mut node, _) = Node::join(wish);
    for raw in &mut raws {
        raw.admit(&mut node);
    }
    let mut scene = MeshScene::begin(node, raws.into());
    scene.answers = vec![false, true];
    scene.ack(1, scene.asked(1));
    for _ in 0..10 {
        scene.node.outbox().request((&mesh(), &named("play")), &[b"once"], s(60)).unwrap();
    }
    scene.hear();
    let asked = |scene: &mut MeshScene, peer: usize| {
        scene.raws[peer].poll();
        scene.raws[peer].lane(APPLICATION).taken(raw::CHANNEL_REQUEST).len()
    };
    assert_eq!([0, 1].map(|peer| asked(&mut scene, peer)), [5, 5]);
    scene.follow(s(20));
    assert_eq!(scene.lost().len(), 1);
    let lost = |event: &Owned| matches!(event, Owned::Unanswered { why: Unanswered::RouteLost, .. });
    assert_eq!(scene.events.iter().filter(|(_, event)| lost(event)).count(), 5);
    assert_eq!(asked(&mut scene, 1), 0);
}

// ---- Nothing remains ----

/// A node that stops with a ready pair at either end, half a pair at either end, one that was judged, one that nobody
/// listens at, and requests pending both ways and to itself: no probe, retry, handshake or time-out remains.
#[test]
fn a_node_that_stops_leaves_no_timer_behind() {
    let mut raws: Vec<RawNode> = (0..3).map(|peer| RawNode::listening(&name(peer))).collect();
    let nobody: Endpoint = RawNode::listening("gone").at();
    let wish = raws.iter().fold(host("node").peer(nobody), |wish, raw| wish.peer(raw.at()));
    let (mut node, bound) = Node::join(wish);
    let at = application(&bound.unwrap());
    raws[0].admit(&mut node);
    raws[1].hello(&mut node, APPLICATION);
    raws[1].send(APPLICATION, &head(ADMIT, &raws[1].body(APPLICATION)), &[]);
    raws[1].hello(&mut node, COMPLETION);
    raws[2].hello(&mut node, APPLICATION);
    let ready = RawNode::enter("ready", &at, &mut node);
    ready.send(APPLICATION, &node_request(1), &[b"?"]);
    let mut half = RawNode::dialling("half", &at);
    half.open_application(&mut node);
    let mut fenced = RawNode::dialling("fenced", &at);
    fenced.send(APPLICATION, &head(7, &[]), &[]);
    fenced.wait(&mut node, APPLICATION, raw::REJECT);
    let silent = RawLane::dial(APPLICATION, &at);
    node.outbox().request((&mesh(), &rid(&name(0))), &[b"?"], s(60)).unwrap();
    node.outbox().request((&mesh(), &rid("node")), &[b"?"], s(60)).unwrap();
    until(&mut [&mut node], "the requests", |nodes| nodes[0].engine.snapshot().replies == 2);
    assert!(node.engine.next_due().is_some());
    node.engine.stop(&mut node.inbox);
    nothing_remains(&mut node);
    drop((raws, ready, half, fenced, silent));
}

/// The peers are told in order, on the completion lane, then both lanes close: nobody need wait for any deadline.
#[test]
fn a_node_that_stops_tells_its_peers_and_closes_both_lanes() {
    for mut scene in MeshScene::either(1) {
        scene.node.engine.stop(&mut scene.node.inbox);
        let (raw, node) = (&mut scene.raws[0], &mut scene.node);
        let told = raw.wait(node, COMPLETION, raw::UPDATE).admission();
        assert_eq!((told.state, told.lane, told.revision), (raw::STOPPED, 2, 2));
        until(&mut [node], "both lanes' ends", |_| raw.disconnected() == 2);
        assert_eq!(raw.lane(APPLICATION).taken(raw::UPDATE), []);
    }
}

/// Where the completion lane does not stand yet, the word of the stop goes by the application lane.
#[test]
fn a_node_that_stops_before_its_pair_is_complete_says_so_on_the_application_lane() {
    let (mut node, at) = Node::listens(host("node"));
    let mut dialler = RawNode::dialling("raw", &at);
    dialler.open_application(&mut node);
    let mut listener = RawNode::listening("raw");
    let (mut other, _) = Node::join(listening("node").peer(listener.at()));
    listener.hello(&mut other, APPLICATION);
    listener.send(APPLICATION, &head(ADMIT, &listener.body(APPLICATION)), &[]);
    listener.hello(&mut other, COMPLETION);
    for (raw, node) in [(&mut dialler, &mut node), (&mut listener, &mut other)] {
        node.engine.stop(&mut node.inbox);
        let told = raw.wait(node, APPLICATION, raw::UPDATE).admission();
        assert_eq!((told.state, told.lane), (raw::STOPPED, 1));
        assert!(!node.events().iter().any(|event| matches!(event, Owned::Lost { .. })));
    }
}

/// Callbacks end before pairs do: a host hears how its requests ended, then that its peers are gone, each once, and nothing
/// of itself.
#[test]
fn pending_callbacks_of_a_node_end_before_its_pairs() {
    let mut scene = MeshScene::dialling(2);
    let mut requests: Vec<RequestId> = [0, 1, 0, 1].map(|peer| request(&mut scene, peer)).into();
    requests.push(scene.node.outbox().request((&mesh(), &named("work")), &[b"?"], s(60)).unwrap());
    scene.hear();
    scene.events.clear();
    scene.node.engine.stop(&mut scene.node.inbox);
    scene.hear();
    let events: Vec<&Owned> = scene.events.iter().map(|(_, event)| event).collect();
    assert_eq!(events.len(), 7, "{events:?}");
    for event in &events[..5] {
        let is_its = |request: &RequestId| {
            **event == Owned::Unanswered { request: *request, why: Unanswered::Shutdown }
        };
        assert!(requests.iter().any(is_its), "{event:?}");
    }
    assert!(events[5..].iter().all(|event| matches!(event, Owned::Lost { reason: LostReason::Stopped, .. })));
}

/// A node that drains takes no new pair, keeps those it has, goes on checking them, and answers what it had accepted.
#[test]
fn a_draining_node_keeps_its_pairs_for_accepted_work() {
    const NOT_SERVING: u32 = 9;
    for (mut scene, is_listening) in MeshScene::either(1).into_iter().zip([true, false]) {
        scene.answers = vec![true];
        scene.ack(0, scene.asked(0));
        scene.raws[0].send(APPLICATION, &channel_request(7, "work"), &[b"?"]);
        scene.hear();
        scene.node.engine.drain(true);
        let told = scene.raws[0].wait(&mut scene.node, COMPLETION, raw::UPDATE);
        assert_eq!(told.admission().state, raw::DRAINING);
        scene.follow(s(31));
        assert!(scene.is_ready(0));
        assert_eq!(scene.probes[0].len(), 7);
        if is_listening {
            let mut late = RawNode::dialling("late", &scene.raws[0].lane(APPLICATION).endpoint.clone());
            late.send(APPLICATION, &head(HELLO, &late.body(APPLICATION)), &[]);
            assert_eq!(late.wait(&mut scene.node, APPLICATION, raw::REJECT).reason(), NOT_SERVING);
        }
        let token = scene.events.iter().find_map(|(_, event)| match event {
            Owned::Request { token, .. } => Some(*token),
            _ => None,
        });
        scene.node.outbox().reply(token.unwrap(), &[b"!"]).unwrap();
        assert_eq!(scene.raws[0].wait(&mut scene.node, COMPLETION, raw::REPLY).number(), 7);
    }
}
