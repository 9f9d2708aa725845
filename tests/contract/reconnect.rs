//! 000 §10, "Reconnect and termination", as far as it concerns ClientServer: what a new connection redoes and what it
//! takes over from the old one, which is nothing. How it all ends stands in [`crate::termination`].

use wakeful::{
    Client, Failure, LostReason, NoRoute, Owned, RejectReason, RouteState, SecurityId, SendError, Silence,
    Unanswered,
};

use crate::scene::{Scene, name};
use crate::support::raw::{self, Admission, Raw, channel_request, channel_send, head, reply};
use crate::support::{CHANNEL, Node, channel, generation, rid, s, until};

/// A client whose server has just said that it stops, though it goes on listening.
fn client_after_a_loss() -> Scene {
    let mut scene = Scene::at_client(1);
    lose(&mut scene);
    scene
}

fn lose(scene: &mut Scene) {
    let ends = scene.lost().len();
    scene.raws[0].update(raw::STOPPED);
    scene.raws[0].admission.state = raw::SERVING;
    scene.until_lost(ends + 1);
}

/// Lets the back-off pass, and awaits the next connection's hello.
fn next_hello(scene: &mut Scene) -> Admission {
    scene.follow(scene.elapsed() + s(1));
    scene.raws[0].hello(&mut scene.node)
}

/// After the first probe's ACK, at 2 s, a second connection of peer 0 says hello. Returns it, and the id with which the
/// first one is asked at once.
fn second_hello(scene: &mut Scene) -> (Raw, u64) {
    scene.ack(0, scene.asked(0));
    scene.follow(s(2));
    let newer = Raw::client(&name(0), &scene.raws[0].endpoint);
    newer.send(&head(raw::HELLO, &newer.admission.bytes()), &[]);
    let asked = scene.raws[0].wait(&mut scene.node, raw::PROBE).number();
    scene.probes[0].push((s(2), asked));
    (newer, asked)
}

fn send(scene: &mut Scene) -> Result<(), SendError> {
    scene.node.engine.outbox().send(&channel(), &[b"anyone?"])
}

// ---- What is done anew ----

/// A client that lost its server opens another physical connection and says its whole hello again.
#[test]
fn a_reconnect_redoes_the_handshake_on_a_new_connection() {
    let mut scene = Scene::at_client(1);
    let (old_route, old_pair) = (scene.raws[0].route.clone(), scene.raws[0].admission.pair);
    for again in 1..=3 {
        lose(&mut scene);
        let hello = next_hello(&mut scene);
        assert_eq!((hello.rid.as_str(), hello.name.as_str()), ("client", CHANNEL));
        assert_ne!(hello.pair, old_pair, "a pair is drawn for each attempt");
        assert_ne!(scene.raws[0].route, old_route);
        assert_eq!(scene.raws[0].accepted, 1 + again);
        scene.raws[0].admit(&mut scene.node);
        assert!(scene.is_ready(0));
    }
}

/// Whoever answers is verified again: another RID, generation or security identity than expected is refused each time,
/// and the right one is taken.
#[test]
fn a_reconnect_redoes_the_verification_of_identity() {
    type Change = (fn(&mut Admission), RejectReason);
    let changes: [Change; 4] = [
        (|admission| admission.rid = "someone-else".to_owned(), RejectReason::IdentityMismatch),
        (|admission| admission.generation = 4, RejectReason::LifecycleGenerationStale),
        (|admission| admission.generation = 6, RejectReason::LifecycleGenerationStale),
        (|admission| admission.security = "mallory".to_owned(), RejectReason::SecurityIdentityMismatch),
    ];
    let mut raw = Raw::server(&name(0));
    raw.admission.generation = 5;
    raw.admission.security = "alice".to_owned();
    let security = Some(SecurityId::new("alice").unwrap());
    let mut node = Node::new();
    let client = Client::new(channel(), rid("client"));
    let client = client.expected_server(raw.endpoint.clone(), rid(&name(0)), Some(generation(5)), security);
    node.engine.connect(client).unwrap();
    raw.hello(&mut node);
    raw.admit(&mut node);
    let mut scene = Scene::begin(node, vec![raw]);
    for (change, reason) in changes {
        lose(&mut scene);
        next_hello(&mut scene);
        let right = scene.raws[0].admission.clone();
        change(&mut scene.raws[0].admission);
        scene.events.clear();
        scene.raws[0].send(&head(raw::ADMIT, &scene.raws[0].admission.bytes()), &[]);
        scene.until("the refusal", |events| {
            events.iter().any(|(_, event)| matches!(event, Owned::Failed { .. }))
        });
        let [(_, Owned::Failed { failure, .. })] = &scene.events[..] else { panic!("{:?}", scene.events) };
        assert_eq!(*failure, Failure::Unexpected(reason));
        assert!(!scene.is_ready(0));

        scene.raws[0].admission = right;
        next_hello(&mut scene);
        scene.raws[0].admit(&mut scene.node);
        assert!(scene.is_ready(0));
    }
}

/// A server verifies a client that comes back likewise: a hello for another channel, in another role, or with the
/// server's own RID is refused though the same client was ready before.
#[test]
fn a_server_verifies_a_client_that_comes_back() {
    type Change = (fn(&mut Admission), u32);
    let changes: [Change; 4] = [
        (|hello| hello.topology = 1, 2),
        (|hello| hello.role = 2, 2),
        (|hello| hello.rid = "server".to_owned(), 3),
        (|hello| hello.name = "another".to_owned(), 5),
    ];
    let mut scene = Scene::at_server(1);
    for (change, reason) in changes {
        let mut raw = Raw::client(&name(0), &scene.raws[0].endpoint);
        change(&mut raw.admission);
        raw.send(&head(raw::HELLO, &raw.admission.bytes()), &[]);
        assert_eq!(raw.wait(&mut scene.node, raw::REJECT).reason(), reason);
        scene.hear();
        assert!(scene.is_ready(0) && scene.lost().is_empty());
    }
}

// ---- What is not taken over ----

/// Ready is the state of one connection: until the new one is admitted there is no ready peer and a call ends at once.
#[test]
fn the_ready_state_is_not_taken_over() {
    let mut scene = client_after_a_loss();
    next_hello(&mut scene);
    assert!(!scene.is_ready(0));
    assert_eq!(scene.node.engine.snapshot().intents[0].state, RouteState::Reconnecting);
    assert_eq!(send(&mut scene), Err(SendError::RouteNotConnected(NoRoute::Unavailable)));
    scene.raws[0].admit(&mut scene.node);
    assert_eq!(send(&mut scene), Ok(()));

    let mut scene = Scene::at_server(1);
    scene.raws[0].kill();
    scene.until_lost(1);
    let mut raw = Raw::client(&name(0), &scene.raws[0].endpoint);
    raw.send(&head(raw::HELLO, &raw.admission.bytes()), &[]);
    raw.wait(&mut scene.node, raw::ADMIT);
    assert!(!scene.is_ready(0), "an admitted client is ready with its first probe, as it was the first time");
    raw.sync(&mut scene.node);
    assert!(scene.is_ready(0));
}

/// The deadline begins anew with the new connection, and the old connection's id answers nothing on it.
#[test]
fn the_pending_probe_is_not_taken_over() {
    let mut scene = client_after_a_loss();
    let old = scene.asked(0);
    next_hello(&mut scene);
    let ready = scene.elapsed();
    scene.raws[0].admit(&mut scene.node);
    scene.hear();
    assert_ne!(scene.asked(0), old);
    scene.ack(0, old);
    scene.follow(ready + s(16));
    let silent = LostReason::Silence(Silence::NoAnswer);
    assert_eq!(scene.lost()[1..], [(ready + s(15), name(0), silent)]);
}

/// A request that was pending ended with its connection: its reply on the new one is counted and dropped.
#[test]
fn a_pending_request_is_not_taken_over() {
    let mut scene = Scene::at_client(1);
    let request = scene.node.engine.outbox().request(&channel(), &[b"?"], s(60)).unwrap();
    let asked = scene.raws[0].wait(&mut scene.node, raw::CHANNEL_REQUEST);
    lose(&mut scene);
    let ended = Owned::Unanswered { request, why: Unanswered::RouteLost };
    assert!(scene.events.iter().any(|(_, event)| *event == ended));
    next_hello(&mut scene);
    scene.raws[0].admit(&mut scene.node);
    scene.hear();
    scene.events.clear();
    scene.raws[0].send(&reply(asked.number(), 0), &[b"late"]);
    scene.hear();
    assert_eq!(scene.events, []);
    assert_eq!(scene.node.engine.snapshot().counters.late_replies, 1);
}

/// A reply token ended with the connection its request came by: the peer's next connection never sees that reply.
#[test]
fn a_reply_token_is_not_taken_over() {
    let mut scene = Scene::at_server(1);
    scene.raws[0].send(&channel_request(77, CHANNEL), &[b"?"]);
    scene.hear();
    let token = scene.events.iter().find_map(|(_, event)| match event {
        Owned::Request { token, .. } => Some(*token),
        _ => None,
    });
    scene.raws[0].kill();
    scene.until_lost(1);
    scene.raws[0] = Raw::join(&name(0), &scene.raws[0].endpoint.clone(), &mut scene.node);
    let sent = scene.node.engine.outbox().reply(token.unwrap(), &[b"!"]);
    assert_eq!(sent, Err(SendError::TokenSpent));
    scene.hear();
    assert_eq!(scene.raws[0].taken(raw::REPLY), []);
}

/// What still comes by a connection that was judged changes nothing for its successor: neither its ACKs, nor its probes,
/// nor its data.
#[test]
fn a_connection_that_has_ended_cannot_speak_for_its_successor() {
    let mut scene = Scene::at_server(1);
    scene.follow(s(15));
    assert_eq!(scene.lost().len(), 1);
    let new = Raw::join(&name(0), &scene.raws[0].endpoint.clone(), &mut scene.node);
    let old = std::mem::replace(&mut scene.raws[0], new);
    scene.hear();
    scene.events.clear();
    let before = scene.node.engine.snapshot().counters.unadmitted;
    old.send(&raw::ack(scene.asked(0)), &[]);
    old.send(&raw::probe(1), &[]);
    old.send(&channel_send(CHANNEL), &[b"a ghost"]);
    old.send(&channel_request(1, CHANNEL), &[b"a ghost"]);
    until(&mut [&mut scene.node], "all four dropped", |nodes| {
        nodes[0].engine.snapshot().counters.unadmitted == before + 4
    });
    scene.follow(s(31));
    assert_eq!(scene.lost(), [(s(30), name(0), LostReason::Silence(Silence::NoAnswer))]);
    let delivered = |event: &Owned| matches!(event, Owned::Message { .. } | Owned::Request { .. });
    assert!(!scene.events.iter().any(|(_, event)| delivered(event)));
}

/// A peer's newer connection waits for the end of the older one, which is asked at once, with its one pending id; it is
/// admitted in the turn of that end and not before.
#[test]
fn a_newer_connection_waits_for_the_end_of_the_older_one() {
    let mut scene = Scene::at_server(1);
    let (mut newer, asked) = second_hello(&mut scene);
    scene.follow(s(15));
    let times: Vec<_> = scene.probes[0][1..].iter().map(|&(at, id)| (at, id == asked)).collect();
    assert_eq!(times, [2, 5, 10].map(|at| (s(at), true)));
    assert_eq!(scene.lost(), [(s(15), name(0), LostReason::Silence(Silence::NoAnswer))]);
    newer.wait(&mut scene.node, raw::ADMIT);
    newer.sync(&mut scene.node);
    assert!(scene.is_ready(0));
    assert_eq!(scene.elapsed(), s(15));
}

/// Where the older one answers, it stays, and the newer one is refused.
#[test]
fn an_older_connection_that_answers_stays() {
    const DUPLICATE: u32 = 10;
    let mut scene = Scene::at_server(1);
    let (mut newer, asked) = second_hello(&mut scene);
    scene.ack(0, asked);
    assert_eq!(newer.wait(&mut scene.node, raw::REJECT).reason(), DUPLICATE);
    scene.follow(s(16));
    assert!(scene.is_ready(0) && scene.lost().is_empty());
}

// ---- What is not sent again ----

/// Whatever was sent on a lost connection, read there or not, is not sent again on the next one.
#[test]
fn nothing_is_sent_again_on_the_next_connection() {
    let mut scene = Scene::at_client(1);
    scene.raws[0].sync(&mut scene.node);
    for _ in 0..20 {
        send(&mut scene).unwrap();
        scene.node.engine.outbox().request(&channel(), &[b"once"], s(60)).unwrap();
    }
    scene.raws[0].kill();
    scene.until_lost(1);
    scene.raws[0] = Raw::server_at(&name(0), scene.raws[0].endpoint.as_str());
    next_hello(&mut scene);
    scene.raws[0].admit(&mut scene.node);
    scene.hear();
    assert!(scene.is_ready(0));
    assert_eq!(
        [raw::CHANNEL_SEND, raw::CHANNEL_REQUEST].map(|command| scene.raws[0].taken(command)),
        [[], []]
    );
}

/// Nor is it sent to another server of the channel, though one is ready all the time.
#[test]
fn nothing_is_sent_again_to_another_server() {
    let mut scene = Scene::at_client(2);
    scene.answers = vec![false, true];
    scene.ack(1, scene.asked(1));
    for _ in 0..10 {
        scene.node.engine.outbox().request(&channel(), &[b"once"], s(60)).unwrap();
    }
    scene.hear();
    let asked = [0, 1].map(|peer| scene.raws[peer].taken(raw::CHANNEL_REQUEST).len());
    assert_eq!(asked, [5, 5]);
    scene.follow(s(20));
    assert_eq!(scene.lost().len(), 1);
    let lost = |event: &Owned| matches!(event, Owned::Unanswered { why: Unanswered::RouteLost, .. });
    assert_eq!(scene.events.iter().filter(|(_, event)| lost(event)).count(), 5);
    assert_eq!(scene.raws[1].taken(raw::CHANNEL_REQUEST), []);
}
