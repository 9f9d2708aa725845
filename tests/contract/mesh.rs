//! 000 §10, "Bidirectional check" and "Failure isolation", as far as they concern RouteMesh: at either end of a pair, unless
//! a test says otherwise. The peers are raw ROUTER lanes.

use std::time::Duration;

use wakeful::{
    Failure, HostState, LastFailure, LostReason, NoRoute, Owned, RejectReason, RouteState, SendError, Silence,
};

use crate::scene::{MeshScene, name};
use crate::support::mesh::{mesh, named, plain, weight};
use crate::support::raw::{
    self, ADMIT, Admission, Seen, UPDATE, ack, channel_request, channel_send, head, probe, reject, reply,
};
use crate::support::raw_mesh::{APPLICATION, COMPLETION, RawNode, host, node_request, node_send};
use crate::support::{Node, rid, s, until};

/// Says that peer 0 was judged at exactly `at`, and that this was the only end.
#[track_caller]
fn judged_at(scene: &mut MeshScene, at: Duration) {
    scene.follow(at + s(3));
    assert_eq!(scene.lost(), [(at, name(0), LostReason::Silence(Silence::NoAnswer))]);
}

fn send(scene: &mut MeshScene, peer: usize) -> Result<(), SendError> {
    scene.node.outbox().send((&mesh(), &rid(&name(peer))), &[b"anyone?"])
}

// ---- A probe every 5 s, with no application traffic ----

/// A pair is asked when it becomes ready, and then every 5 s though nothing is sent, each time with a new id.
#[test]
fn a_pair_is_asked_every_5_s_without_any_traffic() {
    for mut scene in MeshScene::either(1) {
        scene.answers = vec![true];
        let first = scene.asked(0);
        scene.ack(0, first);
        scene.follow(s(31));
        let times: Vec<Duration> = scene.probes[0].iter().map(|(at, _)| *at).collect();
        assert_eq!(times, [0, 5, 10, 15, 20, 25, 30].map(s));
        let mut ids: Vec<u64> = scene.probes[0].iter().map(|(_, id)| *id).collect();
        ids.dedup();
        assert_eq!(ids.len(), 7);
        assert_eq!(scene.lost(), []);
    }
}

/// One id is pending on a pair: while it is unanswered, only the same id is sent again.
#[test]
fn only_the_pending_id_of_a_pair_is_sent_again_before_an_ack() {
    for mut scene in MeshScene::either(1) {
        scene.follow(s(12));
        let id = scene.asked(0);
        assert_eq!(scene.probes[0], [s(0), s(5), s(10)].map(|at| (at, id)));
        scene.ack(0, id);
        scene.follow(s(21));
        let next = scene.asked(0);
        assert_ne!(next, id);
        assert_eq!(scene.probes[0][3..], [s(15), s(20)].map(|at| (at, next)));
    }
}

// ---- Only the first matching ACK moves the deadline ----

/// The first ACK with the pending id moves a pair's deadline to 15 s from there.
#[test]
fn the_first_matching_ack_moves_a_pairs_deadline() {
    for answered_after in [s(3), s(12)] {
        for mut scene in MeshScene::either(1) {
            scene.follow(answered_after);
            scene.ack(0, scene.asked(0));
            judged_at(&mut scene, answered_after + s(15));
        }
    }
}

/// The same ACK again, one with a previous id, one with an id that never went out: none of them changes anything.
#[test]
fn no_other_ack_moves_a_pairs_deadline() {
    for mut scene in MeshScene::either(1) {
        scene.follow(s(3));
        let previous = scene.asked(0);
        scene.ack(0, previous);
        scene.ack(0, previous);
        for later in [7, 12, 17] {
            scene.follow(s(later));
            let pending = scene.asked(0);
            assert_ne!(pending, previous);
            for id in [previous, pending + 1, pending - 1, 1, (1 << 63) - 1] {
                scene.ack(0, id);
            }
        }
        judged_at(&mut scene, s(18));
    }
}

/// An ACK that comes by another pair of the mesh is no evidence for this one, nor for the one it came by.
#[test]
fn an_ack_from_another_pair_changes_nothing() {
    for mut scene in MeshScene::either(2) {
        scene.follow(s(7));
        let ids = [scene.asked(0), scene.asked(1)];
        scene.ack(1, ids[0]);
        scene.ack(0, ids[1]);
        scene.follow(s(18));
        let silent = LostReason::Silence(Silence::NoAnswer);
        let mut lost = scene.lost();
        lost.sort_by(|one, other| one.1.cmp(&other.1));
        assert_eq!(lost, [(s(15), name(0), silent), (s(15), name(1), silent)]);
    }
}

// ---- Half-open, closed, cut off ----

/// A half-open pair becomes not ready at 15 s watched, with early warnings at 5 and 10 s.
#[test]
fn a_half_open_pair_is_lost_at_exactly_15_s() {
    for mut scene in MeshScene::either(1) {
        scene.follow(Duration::from_millis(14_999));
        assert!(scene.is_ready(0));
        assert_eq!(scene.missed(), [(s(5), name(0), 1), (s(10), name(0), 2)]);
        scene.follow(s(15));
        assert!(!scene.is_ready(0));
        judged_at(&mut scene, s(15));
    }
}

/// Both its lanes are closed as far as this end can: who dialled closes them, who listens tells the peer and lets nothing
/// more of either count.
#[test]
fn a_half_open_pair_is_closed_on_both_lanes_when_it_is_lost() {
    let mut dialling = MeshScene::dialling(1);
    dialling.follow(s(15));
    until(&mut [&mut dialling.node], "both lanes' ends", |_| dialling.raws[0].disconnected() == 2);

    let mut listening = MeshScene::listening(1);
    listening.follow(s(15));
    let (raw, node) = (&mut listening.raws[0], &mut listening.node);
    assert_eq!(raw.wait(node, APPLICATION, raw::REJECT).reason(), 14);
    assert_eq!(node.engine.snapshot().fenced_open, 2);
    let before = node.engine.snapshot().counters;
    raw.send(APPLICATION, &node_send(), &[b"a ghost"]);
    raw.send(COMPLETION, &reply(1, 0), &[]);
    until(&mut [node], "both dropped", |nodes| {
        nodes[0].engine.snapshot().counters.unadmitted == before.unadmitted + 2
    });
    raw.kill();
    until(&mut [node], "both lanes' ends", |nodes| nodes[0].engine.snapshot().fenced_open == 0);
    let told = |event: &Owned| matches!(event, Owned::Message { .. });
    assert!(!node.events().iter().any(told));
}

/// An orderly close of a pair takes effect at once, with a reason of its own: not ready, and no target.
#[test]
fn an_orderly_close_of_a_pair_takes_effect_at_once() {
    for mut scene in MeshScene::either(1) {
        scene.follow(s(1));
        scene.raws[0].update(raw::STOPPED);
        until(&mut [&mut scene.node], "not ready", |nodes| nodes[0].ready_peers() == 0);
        assert_eq!(send(&mut scene, 0), Err(SendError::RouteNotConnected(NoRoute::Unavailable)));
        scene.until_lost(1);
        assert_eq!(scene.lost(), [(s(1), name(0), LostReason::Orderly)]);
    }
}

/// So does one in the middle of the opening: by the application lane where the completion lane does not stand yet, and where
/// nobody was told of the peer, nobody hears of its end.
#[test]
fn an_orderly_close_before_a_pair_is_ready_takes_effect_at_once() {
    for is_whole in [false, true] {
        let (mut node, at) = Node::listens(host("node"));
        let mut raw = RawNode::dialling("raw", &at);
        raw.open_application(&mut node);
        if is_whole {
            raw.open_completion();
            raw.wait(&mut node, COMPLETION, ADMIT);
            assert!(matches!(&node.events()[..], [Owned::Admitted { .. }]));
            raw.update(raw::STOPPED);
        } else {
            let stopped = Admission { state: raw::STOPPED, revision: 2, ..raw.admission.clone() };
            raw.send(APPLICATION, &head(UPDATE, &stopped.bytes()), &[]);
        }
        until(&mut [&mut node], "the end", |nodes| {
            let now = nodes[0].engine.snapshot();
            (now.connections.len(), now.unadmitted) == (0, 0)
        });
        let told = node.events();
        match &told[..] {
            [] => assert!(!is_whole),
            [Owned::Lost { reason: LostReason::Orderly, .. }] => assert!(is_whole),
            _ => panic!("{told:?}"),
        }
    }
    let mut raw = RawNode::listening("raw");
    let (mut node, _) = Node::join(plain("node").peer(raw.at()));
    raw.hello(&mut node, APPLICATION);
    raw.send(APPLICATION, &head(ADMIT, &raw.body(APPLICATION)), &[]);
    raw.hello(&mut node, COMPLETION);
    let stopped = Admission { state: raw::STOPPED, revision: 2, ..raw.admission.clone() };
    raw.send(APPLICATION, &head(UPDATE, &stopped.bytes()), &[]);
    until(&mut [&mut node], "both lanes' ends", |_| raw.disconnected() == 2);
    let told = node.events();
    assert!(matches!(&told[..], [Owned::Failed { failure: Failure::Unreachable, .. }]), "{told:?}");
}

/// What came before the close of a pair is delivered before the host hears of it, by either lane.
#[test]
fn what_a_node_sent_before_its_stop_is_delivered_first() {
    for mut scene in MeshScene::either(1) {
        let request = scene.node.outbox().request((&mesh(), &rid(&name(0))), &[b"?"], s(60)).unwrap();
        let asked = scene.raws[0].wait(&mut scene.node, APPLICATION, raw::NODE_REQUEST);
        scene.events.clear();
        let raw = &mut scene.raws[0];
        (0..200).for_each(|_| raw.send(APPLICATION, &node_send(), &[b"last words"]));
        raw.send(COMPLETION, &reply(asked.number(), 0), &[b"!"]);
        raw.update(raw::STOPPED);
        scene.until_lost(1);
        let events: Vec<&Owned> = scene.events.iter().map(|(_, event)| event).collect();
        let messages = events.iter().filter(|event| matches!(event, Owned::Message { .. })).count();
        assert_eq!((events.len(), messages), (202, 200));
        let replied = Owned::Replied { request, parts: vec![b"!".to_vec()] };
        assert!(events[..201].contains(&&replied) && matches!(events[201], Owned::Lost { .. }));
    }
}

/// The loss of either lane's transport takes effect at once and ends the pair, with one reason and one event.
#[test]
fn the_loss_of_either_lane_ends_the_pair_at_once() {
    for leg in [APPLICATION, COMPLETION] {
        for mut scene in MeshScene::either(1) {
            scene.follow(s(1));
            scene.raws[0].lane(leg).close();
            scene.until_lost(1);
            assert_eq!(scene.lost(), [(s(1), name(0), LostReason::Transport)]);
            assert!(!scene.is_ready(0));
            // The other lane goes with it: who dialled closes it, who listens fences it.
            let other = scene.raws[0].lane(1 - leg);
            until(&mut [&mut scene.node], "the other lane's end", |nodes| {
                other.poll();
                other.disconnected == 1 || nodes[0].engine.snapshot().fenced_open == 1
            });
            scene.follow(s(20));
            assert_eq!(scene.lost().len(), 1);
        }
    }
}

/// Afterwards the snapshot still tells which it was, and that the node is known though not ready.
#[test]
fn the_snapshot_tells_the_ends_of_a_pair_apart() {
    type Ending = (fn(&mut MeshScene), LostReason);
    let endings: [Ending; 3] = [
        (|scene| scene.follow(s(15)), LostReason::Silence(Silence::NoAnswer)),
        (|scene| scene.raws[0].update(raw::STOPPED), LostReason::Orderly),
        (|scene| scene.raws[0].kill(), LostReason::Transport),
    ];
    for (end, reason) in endings {
        let mut scene = MeshScene::dialling(1);
        assert_eq!(scene.node.engine.snapshot().intents[0].last_failure, None);
        end(&mut scene);
        scene.until_lost(1);
        let snapshot = scene.node.engine.snapshot();
        assert_eq!(snapshot.intents[0].last_failure, Some(LastFailure::Lost(reason)));
        assert_eq!(snapshot.intents[0].state, RouteState::Reconnecting);
        let [node] = &snapshot.meshes[0].nodes[..] else { panic!("{snapshot:?}") };
        assert_eq!((&node.rid, node.is_ready), (&rid(&name(0)), false));
    }
}

/// A call after the loss of a node ends at once, as route not connected: unavailable while the node is wanted, not found
/// once nobody asks for it.
#[test]
fn a_call_to_a_node_that_is_not_ready_ends_at_once() {
    for (mut scene, why) in MeshScene::either(1).into_iter().zip([NoRoute::NotFound, NoRoute::Unavailable]) {
        assert_eq!(send(&mut scene, 0), Ok(()));
        scene.follow(s(15));
        let refused = Err(SendError::RouteNotConnected(why));
        assert_eq!(send(&mut scene, 0), refused);
        let request = scene.node.outbox().request((&mesh(), &rid(&name(0))), &[b"after"], s(1));
        assert_eq!(request.map(drop), refused);
        assert_eq!(scene.node.engine.snapshot().requests, 0);
    }
}

// ---- What reaches a handler, and what is evidence ----

/// No probe and no ACK of a mesh reaches the host.
#[test]
fn probes_and_acks_of_a_mesh_reach_no_handler() {
    for mut scene in MeshScene::either(1) {
        scene.events.clear();
        scene.answers = vec![true];
        scene.ack(0, scene.asked(0));
        for second in 1..40 {
            scene.follow(s(second));
            scene.raws[0].send(APPLICATION, &probe(second), &[]);
            scene.ack(0, second);
        }
        assert_eq!(scene.events, []);
        assert!(scene.is_ready(0));
    }
}

/// Nothing else that a node says extends its deadline: messages and requests to the node and to a channel, the node's own
/// probes, its updates, its replies.
#[test]
fn nothing_but_an_ack_extends_the_deadline_of_a_pair() {
    for mut scene in MeshScene::either(1) {
        for second in 1..15 {
            let to = rid(&name(0));
            scene.node.outbox().request((&mesh(), &to), &[b"well?"], s(60)).unwrap();
            let raw = &mut scene.raws[0];
            let asked = raw.wait(&mut scene.node, APPLICATION, raw::NODE_REQUEST);
            raw.send(COMPLETION, &reply(asked.number(), 0), &[b"very well"]);
            raw.update(raw::SERVING);
            for record in
                [node_send(), channel_send("work"), node_request(second), channel_request(second, "work")]
            {
                raw.send(APPLICATION, &record, &[b"still here"]);
            }
            raw.send(APPLICATION, &probe(second), &[]);
            raw.sync_completion(&mut scene.node);
            scene.follow(s(second));
        }
        judged_at(&mut scene, s(15));
        let count = |is: fn(&Owned) -> bool| scene.events.iter().filter(|(_, event)| is(event)).count();
        assert_eq!(count(|event| matches!(event, Owned::Message { .. })), 28);
        assert_eq!(count(|event| matches!(event, Owned::Request { .. })), 28);
        assert_eq!(count(|event| matches!(event, Owned::Replied { .. })), 14);
    }
}

// ---- Two lanes ----

/// A pair is two physical ROUTER-ROUTER connections. Data, requests, probes and ACKs go by one, replies and updates by the
/// other.
#[test]
fn a_pair_is_two_physical_lanes_of_which_each_carries_its_own() {
    for mut scene in MeshScene::either(1) {
        scene.answers = vec![true];
        scene.ack(0, scene.asked(0));
        send(&mut scene, 0).unwrap();
        scene.node.outbox().request((&mesh(), &rid(&name(0))), &[b"?"], s(60)).unwrap();
        let raw = &mut scene.raws[0];
        raw.send(APPLICATION, &channel_request(7, "nowhere"), &[b"?"]);
        raw.sync(&mut scene.node);
        scene.node.outbox().set_weight(&named("work"), weight(7));
        raw.sync_completion(&mut scene.node);
        raw.poll();
        let mut came = [APPLICATION, COMPLETION].map(|leg| {
            let seen: Vec<Seen> = std::mem::take(&mut raw.lane(leg).seen);
            assert!(seen.iter().all(|seen| seen.route == raw.lane(leg).route), "one connection a lane");
            let mut commands: Vec<u8> = seen.iter().map(Seen::command).collect();
            commands.sort_unstable();
            commands
        });
        came[0].retain(|command| *command != raw::PROBE && *command != raw::ACK);
        assert_eq!(came, [[raw::NODE_SEND, raw::NODE_REQUEST], [raw::UPDATE, raw::REPLY]]);
        let accepted = raw.lanes.iter().flatten().map(|lane| lane.accepted).collect::<Vec<_>>();
        assert!(accepted == [1, 1] || accepted == [0, 0], "{accepted:?}");
    }
}

/// Probes and ACKs are application records of the application lane, byte for byte as WIRE.md gives them.
#[test]
fn probes_and_acks_of_a_mesh_are_records_of_its_application_lane() {
    for mut scene in MeshScene::either(1) {
        scene.follow(s(5));
        let (raw, node) = (&mut scene.raws[0], &mut scene.node);
        let asked = scene.probes[0][1].1;
        node.pass(s(5));
        let seen = raw.wait(node, APPLICATION, raw::PROBE);
        assert_eq!(seen.frames, [[&[0x5A, 0x4D, 1, 5, 0][..], &asked.to_be_bytes()].concat()]);
        raw.send(APPLICATION, &[0x5A, 0x4D, 1, 5, 0, 1, 2, 3, 4, 5, 6, 7, 8], &[]);
        let answered = raw.wait_for(node, APPLICATION, "the ACK", |seen| seen.command() == raw::ACK);
        assert_eq!(answered.frames, [[0x5A, 0x4D, 1, 6, 0, 1, 2, 3, 4, 5, 6, 7, 8]]);
        raw.sync_completion(node);
        let (completion, late) = (raw.lane(COMPLETION), [raw::PROBE, raw::ACK]);
        assert!(late.into_iter().all(|command| completion.taken(command).is_empty()));
    }
}

/// On the completion lane neither is taken: it ends the pair as a protocol error, and is no evidence.
#[test]
fn a_probe_or_ack_by_the_completion_lane_is_a_protocol_error() {
    for record in [probe, ack] {
        for mut scene in MeshScene::either(1) {
            let id = scene.asked(0);
            scene.raws[0].send(COMPLETION, &record(id), &[]);
            scene.until_lost(1);
            assert_eq!(scene.lost(), [(s(0), name(0), LostReason::Protocol)]);
        }
    }
}

// ---- Failure isolation ----

/// How node 0 fails, and what the host is told of it.
type Failing = (fn(&mut MeshScene), LostReason);

const FAILINGS: [Failing; 8] = [
    (|scene| scene.follow(s(15)), LostReason::Silence(Silence::NoAnswer)),
    (|scene| scene.raws[0].update(raw::STOPPED), LostReason::Orderly),
    (|scene| scene.raws[0].kill(), LostReason::Transport),
    (|scene| scene.raws[0].lane(COMPLETION).close(), LostReason::Transport),
    (|scene| scene.raws[0].send(APPLICATION, &head(7, &[]), &[]), LostReason::Protocol),
    (|scene| scene.raws[0].send(COMPLETION, &head(7, &[]), &[]), LostReason::Protocol),
    (
        |scene| scene.raws[0].send(APPLICATION, &reject(14), &[]),
        LostReason::Rejected(RejectReason::NotAdmitted),
    ),
    (
        |scene| scene.raws[0].send(COMPLETION, &reject(14), &[]),
        LostReason::Rejected(RejectReason::NotAdmitted),
    ),
];

/// Whatever ends one pair, the others stay, are asked on, never warned about, and served; the host's state is its own.
#[test]
fn one_nodes_failure_leaves_the_other_pairs_and_the_host_alone() {
    for (fail, reason) in FAILINGS {
        for mut scene in MeshScene::either(2) {
            scene.answers[1] = true;
            scene.ack(1, scene.asked(1));
            fail(&mut scene);
            scene.until_lost(1);
            assert_eq!(scene.lost().pop().map(|(_, peer, why)| (peer, why)), Some((name(0), reason)));
            scene.follow(scene.elapsed() + s(32));
            assert_eq!(scene.lost().len(), 1, "{:?}", scene.lost());
            assert!(scene.is_ready(1) && !scene.is_ready(0));
            assert_eq!(scene.probes[1].len() as u64, 1 + scene.elapsed().as_secs() / 5);
            assert!(scene.missed().iter().all(|(_, peer, _)| *peer == name(0)));
            assert_eq!(scene.node.engine.snapshot().host, HostState::Serving);
            let asked = scene.node.outbox().request((&mesh(), &rid(&name(1))), &[b"on we go"], s(5)).unwrap();
            let raw = &mut scene.raws[1];
            let request = raw.wait(&mut scene.node, APPLICATION, raw::NODE_REQUEST);
            raw.send(COMPLETION, &reply(request.number(), 0), &[b"so we do"]);
            raw.sync_completion(&mut scene.node);
            scene.hear();
            let replied = Owned::Replied { request: asked, parts: vec![b"so we do".to_vec()] };
            assert!(scene.events.iter().any(|(_, event)| *event == replied));
        }
    }
}

/// Without a ready member a channel call of a mesh ends as unavailable where one is known, and as not found where none
/// serves.
#[test]
fn a_channel_call_of_a_mesh_says_which_kind_of_nobody_there_is() {
    let mut raw = RawNode::listening("raw");
    raw.admission.channels = vec![("play".into(), 10)];
    let (mut node, _) = Node::join(plain("node").peer(raw.at()));
    let call = |node: &mut Node| node.outbox().send((&mesh(), &named("play")), &[b"anyone?"]);
    assert_eq!(call(&mut node), Err(SendError::RouteNotConnected(NoRoute::NotFound)));
    raw.admit(&mut node);
    assert_eq!(call(&mut node), Ok(()));
    for (state, weight) in [(raw::DRAINING, 10), (raw::SERVING, 0)] {
        raw.admission.channels[0].1 = weight;
        raw.update(state);
        raw.sync_completion(&mut node);
        assert_eq!(node.ready_peers(), 1, "it leaves selection, not the connection");
        assert_eq!(call(&mut node), Err(SendError::RouteNotConnected(NoRoute::NotFound)));
    }
    raw.admission.channels[0].1 = 10;
    raw.update(raw::SERVING);
    raw.sync_completion(&mut node);
    assert_eq!(call(&mut node), Ok(()));
    raw.kill();
    until(&mut [&mut node], "the end", |nodes| nodes[0].ready_peers() == 0);
    assert_eq!(call(&mut node), Err(SendError::RouteNotConnected(NoRoute::Unavailable)));
}
