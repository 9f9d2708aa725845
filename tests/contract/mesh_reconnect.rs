//! 000 §10, "Reconnect and termination", as far as it concerns RouteMesh: what a new pair redoes and what it takes over from
//! the old one, which is nothing; and which pairs are never wanted. How it all ends stands in [`crate::mesh_termination`].

use wakeful::{
    Dialler, Endpoint, Failure, LostReason, NoRoute, NodeDescriptor, NodeEndpoint, Owned, RejectReason, Role,
    RouteState, SecurityId, SendError, Silence, Unanswered,
};

use crate::scene::{MeshScene, name};
use crate::support::mesh::{listening, mesh, named, plain, weight};
use crate::support::raw::{
    self, ADMIT, Admission, HELLO, ack, channel_request, channel_send, head, probe, reject, reply,
};
use crate::support::raw_mesh::{APPLICATION, COMPLETION, RawLane, RawNode, host, node_request, node_send};
use crate::support::{Node, generation, ms, rid, s, settle, until};

/// A pair that the engine has dialled breaks.
pub fn lose(scene: &mut MeshScene) {
    let ends = scene.lost().len();
    scene.raws[0].send(APPLICATION, &head(7, &[]), &[]);
    scene.until_lost(ends + 1);
}

/// Lets the back-off pass, and awaits the hello of the next application lane.
pub fn next_hello(scene: &mut MeshScene) -> Admission {
    scene.follow(scene.elapsed() + s(1));
    scene.raws[0].hello(&mut scene.node, APPLICATION)
}

fn send(scene: &mut MeshScene) -> Result<(), SendError> {
    scene.node.outbox().send((&mesh(), &rid(&name(0))), &[b"anyone?"])
}

/// Another pair of peer 0 begins, by a hello on its application lane.
fn second_hello(scene: &mut MeshScene) -> RawNode {
    let raw = RawNode::dialling(&name(0), &scene.raws[0].lane(APPLICATION).endpoint.clone());
    raw.send(APPLICATION, &head(HELLO, &raw.body(APPLICATION)), &[]);
    raw
}

// ---- What is done anew ----

/// A node that lost a pair opens two other physical connections, and says its whole hello again on each, for a new pair.
#[test]
fn a_lost_pair_redoes_both_handshakes_on_new_lanes() {
    let mut scene = MeshScene::dialling(1);
    for again in 1..=3 {
        let old = scene.raws[0].admission.pair;
        let routes = [APPLICATION, COMPLETION].map(|leg| scene.raws[0].lane(leg).route.clone());
        lose(&mut scene);
        let first = next_hello(&mut scene);
        assert_eq!((first.rid.as_str(), first.lane, first.channels.len()), ("node", 1, 1));
        assert_ne!(first.pair, old, "a pair is drawn for each attempt");
        let (raw, node) = (&mut scene.raws[0], &mut scene.node);
        raw.send(APPLICATION, &head(ADMIT, &raw.body(APPLICATION)), &[]);
        let second = raw.hello(node, COMPLETION);
        assert_eq!(second, Admission { lane: 2, ..first });
        assert_eq!(node.ready_peers(), 0, "one lane makes no pair");
        raw.send(COMPLETION, &head(ADMIT, &raw.body(COMPLETION)), &[]);
        raw.sync(node);
        assert!(scene.is_ready(0));
        for (leg, route) in [APPLICATION, COMPLETION].into_iter().zip(routes) {
            let lane = scene.raws[0].lane(leg);
            lane.poll();
            assert_ne!(lane.route, route);
            assert_eq!((lane.accepted, lane.disconnected), (1 + again, again));
        }
    }
}

/// Whoever answers is verified again, against the descriptor where there is one: another RID, generation or security
/// identity is refused each time, though the right one was ready before, and is taken when it comes back.
#[test]
fn a_reconnect_of_a_pair_redoes_the_verification_of_identity() {
    type Change = (fn(&mut Admission), RejectReason);
    let changes: [Change; 5] = [
        (|admission| admission.rid = "someone-else".to_owned(), RejectReason::IdentityMismatch),
        (|admission| admission.generation = 4, RejectReason::LifecycleGenerationStale),
        (|admission| admission.generation = 6, RejectReason::LifecycleGenerationStale),
        (|admission| admission.security = "mallory".to_owned(), RejectReason::SecurityIdentityMismatch),
        (|admission| admission.name = "hall".to_owned(), RejectReason::TopologyMismatch),
    ];
    let mut raw = RawNode::listening(&name(0));
    raw.admission.generation = 5;
    raw.admission.security = "alice".to_owned();
    let (mut node, _) = Node::join(host("node"));
    let (endpoint, security) = (Some(raw.at()), SecurityId::new("alice").unwrap());
    let (role, serves) = (Role::None, Vec::new());
    let described =
        NodeDescriptor { rid: rid(&name(0)), generation: generation(5), security, role, serves, endpoint };
    node.outbox().set_descriptors(&mesh(), &[described]).unwrap();
    raw.admit(&mut node);
    let mut scene = MeshScene::begin(node, vec![raw]);
    for (change, reason) in changes {
        lose(&mut scene);
        next_hello(&mut scene);
        let right = scene.raws[0].admission.clone();
        change(&mut scene.raws[0].admission);
        scene.events.clear();
        scene.raws[0].send(APPLICATION, &head(ADMIT, &scene.raws[0].body(APPLICATION)), &[]);
        scene.until("the refusal", |events| {
            events.iter().any(|(_, event)| matches!(event, Owned::Failed { .. }))
        });
        let [(_, Owned::Failed { failure, .. })] = &scene.events[..] else { panic!("{:?}", scene.events) };
        assert_eq!(*failure, Failure::Unexpected(reason));
        assert!(!scene.is_ready(0));

        scene.raws[0].admission = right;
        scene.follow(scene.elapsed() + s(1));
        scene.raws[0].admit(&mut scene.node);
        assert!(scene.is_ready(0));
    }
}

/// A node that listens verifies one that comes back likewise, though the same was ready before.
#[test]
fn a_node_that_comes_back_is_verified_by_the_listener() {
    type Change = (fn(&mut Admission), u32);
    let changes: [Change; 4] = [
        (|hello| hello.name = "hall".to_owned(), 2),
        (|hello| hello.rid = "node".to_owned(), 3),
        (|hello| hello.security = "mallory".to_owned(), 4),
        (|hello| hello.generation = 2, 6),
    ];
    let mut scene = MeshScene::listening(1);
    let at = scene.raws[0].lane(APPLICATION).endpoint.clone();
    let (security, role, serves) = (SecurityId::default(), Role::None, Vec::new());
    let described = NodeDescriptor {
        rid: rid(&name(0)),
        generation: generation(1),
        security,
        role,
        serves,
        endpoint: None,
    };
    scene.node.outbox().set_descriptors(&mesh(), &[described]).unwrap();
    scene.raws[0].kill();
    scene.until_lost(1);
    for (change, reason) in changes {
        let mut raw = RawNode::dialling(&name(0), &at);
        change(&mut raw.admission);
        raw.send(APPLICATION, &head(HELLO, &raw.body(APPLICATION)), &[]);
        assert_eq!(raw.wait(&mut scene.node, APPLICATION, raw::REJECT).reason(), reason);
    }
    scene.raws[0] = RawNode::enter(&name(0), &at, &mut scene.node);
    assert!(scene.is_ready(0));
}

// ---- What is not taken over ----

/// Ready is the state of one pair: until the new one is complete there is no ready peer and a call ends at once.
#[test]
fn the_ready_state_of_a_pair_is_not_taken_over() {
    let mut scene = MeshScene::dialling(1);
    lose(&mut scene);
    next_hello(&mut scene);
    assert_eq!(scene.node.engine.snapshot().intents[0].state, RouteState::Reconnecting);
    assert_eq!(send(&mut scene), Err(SendError::RouteNotConnected(NoRoute::Unavailable)));
    let (raw, node) = (&mut scene.raws[0], &mut scene.node);
    raw.send(APPLICATION, &head(ADMIT, &raw.body(APPLICATION)), &[]);
    raw.hello(node, COMPLETION);
    assert_eq!(send(&mut scene), Err(SendError::RouteNotConnected(NoRoute::Unavailable)));
    let (raw, node) = (&mut scene.raws[0], &mut scene.node);
    raw.send(COMPLETION, &head(ADMIT, &raw.body(COMPLETION)), &[]);
    raw.sync(node);
    assert_eq!(send(&mut scene), Ok(()));

    let mut scene = MeshScene::listening(1);
    let at = scene.raws[0].lane(APPLICATION).endpoint.clone();
    scene.raws[0].kill();
    scene.until_lost(1);
    let mut raw = RawNode::dialling(&name(0), &at);
    raw.open_application(&mut scene.node);
    raw.open_completion();
    raw.wait(&mut scene.node, COMPLETION, ADMIT);
    assert!(!scene.is_ready(0), "an admitted node is ready with its first probe, as it was the first time");
    raw.sync(&mut scene.node);
    assert!(scene.is_ready(0));
}

/// The deadline begins anew with the new pair, and the old pair's id answers nothing on it.
#[test]
fn the_pending_probe_of_a_pair_is_not_taken_over() {
    let mut scene = MeshScene::dialling(1);
    let old = scene.asked(0);
    lose(&mut scene);
    scene.follow(s(1));
    let ready = scene.elapsed();
    scene.raws[0].admit(&mut scene.node);
    scene.hear();
    assert_ne!(scene.asked(0), old);
    scene.ack(0, old);
    scene.follow(ready + s(16));
    let silent = LostReason::Silence(Silence::NoAnswer);
    assert_eq!(scene.lost()[1..], [(ready + s(15), name(0), silent)]);
}

/// A request that was pending ended with its pair: its reply on the new one is counted and dropped.
#[test]
fn a_pending_request_of_a_pair_is_not_taken_over() {
    let mut scene = MeshScene::dialling(1);
    let request = scene.node.outbox().request((&mesh(), &rid(&name(0))), &[b"?"], s(60)).unwrap();
    let asked = scene.raws[0].wait(&mut scene.node, APPLICATION, raw::NODE_REQUEST);
    lose(&mut scene);
    let ended = Owned::Unanswered { request, why: Unanswered::RouteLost };
    assert!(scene.events.iter().any(|(_, event)| *event == ended));
    scene.follow(s(1));
    scene.raws[0].admit(&mut scene.node);
    scene.hear();
    scene.events.clear();
    scene.raws[0].send(COMPLETION, &reply(asked.number(), 0), &[b"late"]);
    scene.raws[0].sync_completion(&mut scene.node);
    scene.hear();
    assert_eq!(scene.events, []);
    // The other one is that of the exchange itself.
    assert_eq!(scene.node.engine.snapshot().counters.late_replies, 2);
}

/// A reply token ended with the pair its request came by: the node's next pair never sees that reply.
#[test]
fn a_reply_token_of_a_pair_is_not_taken_over() {
    let mut scene = MeshScene::listening(1);
    let at = scene.raws[0].lane(APPLICATION).endpoint.clone();
    scene.raws[0].send(APPLICATION, &node_request(77), &[b"?"]);
    scene.hear();
    let token = scene.events.iter().find_map(|(_, event)| match event {
        Owned::Request { token, .. } => Some(*token),
        _ => None,
    });
    scene.raws[0].kill();
    scene.until_lost(1);
    scene.raws[0] = RawNode::enter(&name(0), &at, &mut scene.node);
    assert_eq!(scene.node.outbox().reply(token.unwrap(), &[b"!"]), Err(SendError::TokenSpent));
    scene.raws[0].sync_completion(&mut scene.node);
    assert_eq!(scene.raws[0].lane(COMPLETION).taken(raw::REPLY), []);
}

/// What still comes by either lane of a pair that was judged changes nothing for its successor: neither ACKs, nor probes, nor
/// data, nor replies, nor updates.
#[test]
fn a_pair_that_has_ended_cannot_speak_for_its_successor() {
    let mut scene = MeshScene::listening(1);
    scene.follow(s(15));
    assert_eq!(scene.lost().len(), 1);
    let at = scene.raws[0].lane(APPLICATION).endpoint.clone();
    let new = RawNode::enter(&name(0), &at, &mut scene.node);
    let mut old = std::mem::replace(&mut scene.raws[0], new);
    scene.hear();
    scene.events.clear();
    let request = scene.node.outbox().request((&mesh(), &rid(&name(0))), &[b"?"], s(60)).unwrap();
    let asked = scene.raws[0].wait(&mut scene.node, APPLICATION, raw::NODE_REQUEST).number();
    let before = scene.node.engine.snapshot().counters.unadmitted;
    for record in [ack(scene.asked(0)), probe(1)] {
        old.send(APPLICATION, &record, &[]);
    }
    for record in [node_send(), node_request(1), channel_send("work"), channel_request(1, "work")] {
        old.send(APPLICATION, &record, &[b"a ghost"]);
    }
    old.send(COMPLETION, &reply(asked, 0), &[b"a ghost"]);
    old.update(raw::STOPPED);
    until(&mut [&mut scene.node], "all eight dropped", |nodes| {
        nodes[0].engine.snapshot().counters.unadmitted == before + 8
    });
    assert_eq!(scene.node.engine.snapshot().requests, 1);
    scene.follow(s(31));
    assert_eq!(scene.lost(), [(s(30), name(0), LostReason::Silence(Silence::NoAnswer))]);
    let ends: Vec<&Owned> = scene
        .events
        .iter()
        .map(|(_, event)| event)
        .filter(|event| !matches!(event, Owned::Missed { .. } | Owned::Lost { .. }))
        .collect();
    assert_eq!(ends, [&Owned::Unanswered { request, why: Unanswered::RouteLost }]);
}

/// A node's newer pair waits for the end of the older one, which is asked at once, with its one pending id; it is admitted
/// in the turn of that end and not before.
#[test]
fn a_newer_pair_waits_for_the_end_of_the_older_one() {
    let mut scene = MeshScene::listening(1);
    scene.ack(0, scene.asked(0));
    scene.follow(s(2));
    let mut newer = second_hello(&mut scene);
    let asked = scene.raws[0].wait(&mut scene.node, APPLICATION, raw::PROBE).number();
    scene.follow(ms(14_999));
    assert!(scene.probes[0][1..].iter().all(|(_, id)| *id == asked));
    assert_eq!(newer.lane(APPLICATION).seen, []);
    scene.follow(s(15));
    assert_eq!(scene.lost(), [(s(15), name(0), LostReason::Silence(Silence::NoAnswer))]);
    let admit = newer.wait(&mut scene.node, APPLICATION, ADMIT).admission();
    newer.lanes[COMPLETION] = Some(RawLane::dial(COMPLETION, &admit.completion.parse().unwrap()));
    newer.open_completion();
    newer.wait(&mut scene.node, COMPLETION, ADMIT);
    newer.sync(&mut scene.node);
    assert!(scene.is_ready(0));
    assert_eq!(scene.elapsed(), s(15));
}

/// Where the older pair answers, it stays, and the newer one is refused.
#[test]
fn an_older_pair_that_answers_stays() {
    const DUPLICATE: u32 = 10;
    let mut scene = MeshScene::listening(1);
    scene.ack(0, scene.asked(0));
    scene.follow(s(2));
    let mut newer = second_hello(&mut scene);
    let asked = scene.raws[0].wait(&mut scene.node, APPLICATION, raw::PROBE).number();
    scene.ack(0, asked);
    assert_eq!(newer.wait(&mut scene.node, APPLICATION, raw::REJECT).reason(), DUPLICATE);
    scene.follow(s(16));
    assert!(scene.is_ready(0) && scene.lost().is_empty());
}

// ---- Two Object Clients that serve nothing ----

fn client(name: &str, endpoint: Option<Endpoint>) -> NodeDescriptor {
    let (generation, security) = (generation(1), SecurityId::default());
    NodeDescriptor { rid: rid(name), generation, security, role: Role::Client, serves: Vec::new(), endpoint }
}

/// With descriptors the pair is left out before anything is dialled: there is no intent and no socket, it is shown as not
/// required, and nothing is due. A membership, or another role, on either side makes the difference.
#[test]
fn descriptors_leave_out_a_pair_of_object_clients() {
    let mut raw = RawNode::listening("raw");
    let (mut node, _) = Node::join(plain("node").role(Role::Client));
    let described = client("raw", Some(raw.at()));
    node.outbox().set_descriptors(&mesh(), std::slice::from_ref(&described)).unwrap();
    nobody_dials(&mut node, &mut raw);
    let snapshot = node.engine.snapshot();
    let [known] = &snapshot.meshes[0].nodes[..] else { panic!("{snapshot:?}") };
    assert_eq!((known.is_ready, known.dialler), (false, Some(Dialler::NotRequired)));
    assert_eq!((snapshot.intents.len(), raw.lane(APPLICATION).accepted, node.events()), (0, 0, vec![]));

    for needed in [
        NodeDescriptor { role: Role::None, ..described.clone() },
        NodeDescriptor { role: Role::Server, ..described.clone() },
        NodeDescriptor { serves: vec![(named("work"), weight(0))], ..described },
    ] {
        let mut raw = RawNode::listening("raw");
        let needed = NodeDescriptor { endpoint: Some(raw.at()), ..needed };
        let (mut node, _) = Node::join(plain("node").role(Role::Client));
        node.outbox().set_descriptors(&mesh(), &[needed]).unwrap();
        raw.hello(&mut node, APPLICATION);
        let snapshot = node.engine.snapshot();
        assert_eq!(snapshot.meshes[0].nodes[0].dialler, Some(Dialler::Here));
    }
}

/// A raw Object Client that listens, and how it lets a node that needs no connection know: by a reject, or by an admit that
/// the node has to judge itself.
fn not_required(raw: &mut RawNode, node: &mut Node, by_reject: bool) {
    raw.admission.role = 1;
    raw.hello(node, APPLICATION);
    let answer = if by_reject { reject(13) } else { head(ADMIT, &raw.body(APPLICATION)) };
    raw.send(APPLICATION, &answer, &[]);
    until(&mut [node], "not required", |nodes| {
        nodes[0].engine.snapshot().intents[0].state == RouteState::NotRequired
    });
}

/// Lets ten minutes pass, and says that nobody has dialled meanwhile.
#[track_caller]
fn nobody_dials(node: &mut Node, raw: &mut RawNode) {
    let before = raw.lane(APPLICATION).accepted;
    settle(&mut [node]);
    assert_eq!(node.engine.next_due(), None);
    for _ in 0..600 {
        node.pass(s(1));
    }
    settle(&mut [node]);
    raw.poll();
    assert_eq!((raw.lane(APPLICATION).accepted, node.engine.next_due()), (before, None));
}

/// A manual pair of two Object Clients is closed before it is ever admitted, whichever end finds out. No probe goes out, no
/// deadline runs, the same configuration is not tried again, and it is shown apart from what is not connected.
#[test]
fn a_manual_pair_of_object_clients_ends_as_not_required_before_ready() {
    let told = [Failure::Refused(RejectReason::NotRequired), Failure::Unexpected(RejectReason::NotRequired)];
    for (by_reject, failure) in [true, false].into_iter().zip(told) {
        let mut raw = RawNode::listening("raw");
        let (mut node, _) = Node::join(plain("node").role(Role::Client).peer(raw.at()));
        not_required(&mut raw, &mut node, by_reject);
        nobody_dials(&mut node, &mut raw);
        let events = node.events();
        let [Owned::Failed { failure: heard, .. }] = &events[..] else { panic!("{events:?}") };
        assert_eq!(*heard, failure);
        assert_eq!((raw.probes(), raw.disconnected()), (vec![], 1));
        let snapshot = node.engine.snapshot();
        assert_eq!((snapshot.connections.len(), snapshot.counters.lost_silence), (0, 0));
    }
    // Two engines, of which one finds out: nobody hears of a peer at either end.
    let (mut one, at) = Node::listens(listening("one").role(Role::Client));
    let (mut other, _) = Node::join(plain("other").role(Role::Client).peer(at));
    until(&mut [&mut one, &mut other], "not required", |nodes| {
        nodes[1].engine.snapshot().intents[0].state == RouteState::NotRequired
    });
    until(&mut [&mut one, &mut other], "nothing left", |nodes| {
        let now = nodes[0].engine.snapshot();
        (now.connections.len(), now.unadmitted, now.fenced_open) == (0, 0, 0)
    });
    assert_eq!((one.events(), other.events().len()), (vec![], 1));
}

/// It is tried again when the endpoint, the expected RID or the configuration generation is another one, and only then.
#[test]
fn a_pair_that_was_not_required_is_tried_again_for_another_wish() {
    let mut raw = RawNode::listening("raw");
    let (mut node, _) = Node::join(plain("node").role(Role::Client).peer(raw.at()));
    let wish = |node: &mut Node, configuration: u64, endpoint: &Endpoint, expected: Option<&str>| {
        let wish = NodeEndpoint { endpoint: endpoint.clone(), rid: expected.map(rid) };
        node.outbox().set_endpoints(&mesh(), configuration, &[wish]).unwrap();
    };
    not_required(&mut raw, &mut node, true);
    let at = raw.at();
    wish(&mut node, 0, &at, None);
    nobody_dials(&mut node, &mut raw);

    wish(&mut node, 1, &at, None);
    not_required(&mut raw, &mut node, true);
    wish(&mut node, 1, &at, None);
    nobody_dials(&mut node, &mut raw);

    wish(&mut node, 1, &at, Some("raw"));
    not_required(&mut raw, &mut node, false);
    wish(&mut node, 1, &at, Some("raw"));
    nobody_dials(&mut node, &mut raw);
    assert_eq!(raw.lane(APPLICATION).accepted, 3);

    let mut elsewhere = RawNode::listening("raw");
    wish(&mut node, 1, &elsewhere.at(), Some("raw"));
    not_required(&mut elsewhere, &mut node, false);
    nobody_dials(&mut node, &mut elsewhere);
    // A change of mind at the other end counts as soon as it is asked again.
    wish(&mut node, 2, &elsewhere.at(), Some("raw"));
    elsewhere.admission.role = 2;
    elsewhere.admit(&mut node);
    assert_eq!(node.peers(), ["raw"]);
}
