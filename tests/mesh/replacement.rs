//! Who speaks for a node when a second connection claims to: the descriptor decides where there is one, and otherwise the
//! end of the first (000 §5, DESIGN §5 "Replacement").

use wakeful::{
    Endpoint, Failure, LostReason, NodeDescriptor, NodeEndpoint, Owned, RejectReason, SecurityId, Silence,
};

use crate::scene::described_as;
use crate::support::mesh::{count, listening, mesh};
use crate::support::raw::{
    ACK, ADMIT, HELLO, NODE_REQUEST, PROBE, REJECT, STOPPED, Seen, ack, head, probe, reply,
};
use crate::support::raw_mesh::{APPLICATION, COMPLETION, RawLane, RawNode, node_send};
use crate::support::{Node, generation, ms, rid, s, settle, until};

/// A node of our own, where it listens, and a raw peer that is ready there and has answered all that it was asked.
pub fn served() -> (Node, Endpoint, RawNode) {
    let (mut node, at) = Node::listens(listening("node"));
    let mut first = RawNode::enter("peer", &at, &mut node);
    answer(&mut first, &mut node);
    node.events();
    (node, at, first)
}

/// The same for a raw peer that our node has dialled.
pub fn dialled() -> (Node, Endpoint, RawNode) {
    let mut first = RawNode::listening("peer");
    let (mut node, at) = Node::listens(listening("node").peer(first.at()));
    first.admit(&mut node);
    answer(&mut first, &mut node);
    node.events();
    (node, at, first)
}

/// Answers what the peer was asked last.
fn answer(peer: &mut RawNode, node: &mut Node) {
    if let Some(id) = peer.probes().last() {
        peer.send(APPLICATION, &ack(*id), &[]);
    }
    peer.sync(node);
}

/// Another connection that says it is the same peer.
pub fn second(at: &Endpoint, first: &RawNode, run: u64) -> RawNode {
    let mut second = RawNode::dialling("peer", at);
    second.admission = first.admission.clone();
    second.admission.pair += 1;
    second.admission.generation = run;
    second
}

fn say_hello(peer: &RawNode) {
    peer.send(APPLICATION, &head(HELLO, &peer.body(APPLICATION)), &[]);
}

/// The descriptor of the raw peer, which says of no endpoint, so that our node does not dial it.
fn descriptor(run: u64) -> NodeDescriptor {
    NodeDescriptor { endpoint: None, ..described_as("peer", run, &"tcp://127.0.0.1:9".parse().unwrap()) }
}

fn describe(node: &mut Node, run: u64) {
    node.outbox().set_descriptors(&mesh(), &[descriptor(run)]).unwrap();
}

/// Opens its other lane, to where our node listens.
fn dial_completion(peer: &mut RawNode, node: &Node) {
    let bound = node.engine.snapshot().meshes[0].bound.clone().unwrap();
    let lane = RawLane::dial(COMPLETION, &Endpoint::try_from(&bound.completion).unwrap());
    peer.lanes[COMPLETION] = Some(lane);
}

/// The rest of a held peer's handshake, once it may come in.
fn comes_in(peer: &mut RawNode, node: &mut Node) {
    peer.wait(node, APPLICATION, ADMIT);
    dial_completion(peer, node);
    peer.open_completion();
    peer.wait(node, COMPLETION, ADMIT);
    peer.sync(node);
}

fn is_refused(peer: &mut RawNode, node: &mut Node, reason: u32) {
    assert_eq!(peer.wait(node, APPLICATION, REJECT).reason(), reason);
}

/// What is left when nobody but the first peer was ever there.
fn nobody_was_disturbed(node: &mut Node, first: &mut RawNode) {
    first.sync(node);
    assert!(node.events().is_empty());
    assert_eq!(node.peers(), ["peer"]);
    assert!(
        first.lane(APPLICATION).taken(REJECT).is_empty() && first.lane(COMPLETION).taken(REJECT).is_empty()
    );
}

pub fn lost(node: &mut Node) -> Vec<LostReason> {
    let lost = |event| if let Owned::Lost { reason, .. } = event { Some(reason) } else { None };
    node.events().into_iter().filter_map(lost).collect()
}

#[test]
fn a_peer_that_answers_at_once_keeps_its_place_against_a_newer_connection() {
    for first_is in [served, dialled] {
        let (mut node, at, mut first) = first_is();
        let mut newer = second(&at, &first, 1);
        say_hello(&newer);
        // It is asked outside the grid: no virtual time passes.
        let asked = first.wait(&mut node, APPLICATION, PROBE).number();
        assert!(newer.lane(APPLICATION).take(|_| true).is_none(), "the newer one waits");
        first.send(APPLICATION, &ack(asked + 1), &[]);
        first.sync(&mut node);
        assert!(newer.lane(APPLICATION).take(|_| true).is_none(), "another ACK settles nothing");
        first.send(APPLICATION, &ack(asked), &[]);
        is_refused(&mut newer, &mut node, 10);
        nobody_was_disturbed(&mut node, &mut first);
    }
}

#[test]
fn a_peer_whose_transport_is_gone_makes_room_at_once() {
    for first_is in [served, dialled] {
        let (mut node, at, mut first) = first_is();
        let mut newer = second(&at, &first, 1);
        say_hello(&newer);
        first.wait(&mut node, APPLICATION, PROBE);
        first.kill();
        comes_in(&mut newer, &mut node);
        let events = node.events();
        let [
            Owned::Lost { reason: LostReason::Transport, .. },
            Owned::Admitted { .. },
            Owned::Ready { peer },
        ] = &events[..]
        else {
            panic!("{events:?}");
        };
        assert!(node.outbox().is_ready(peer.connection()));
    }
}

#[test]
fn a_peer_that_is_silent_makes_room_when_it_is_judged() {
    for first_is in [served, dialled] {
        let (mut node, at, mut first) = first_is();
        let mut newer = second(&at, &first, 1);
        say_hello(&newer);
        first.wait(&mut node, APPLICATION, PROBE);
        for _ in 0..14 {
            node.pass(s(1));
        }
        assert!(newer.lane(APPLICATION).take(|_| true).is_none());
        node.pass(s(1));
        node.pass(ms(50));
        assert_eq!(lost(&mut node), [LostReason::Silence(Silence::NoAnswer)]);
        comes_in(&mut newer, &mut node);
        assert_eq!(node.peers(), ["peer"]);
        drop(first);
    }
}

#[test]
fn of_those_that_wait_only_the_newest_comes_in() {
    for first_is in [served, dialled] {
        let (mut node, at, mut first) = first_is();
        let mut waiting: Vec<RawNode> = (0..3).map(|_| second(&at, &first, 1)).collect();
        for number in 0..3 {
            waiting[number].admission.pair += number as u64;
            say_hello(&waiting[number]);
            if number > 0 {
                is_refused(&mut waiting[number - 1], &mut node, 10);
            } else {
                first.wait(&mut node, APPLICATION, PROBE);
            }
        }
        until(&mut [&mut node], "the newest waits", |nodes| nodes[0].engine.snapshot().unadmitted == 1);
        first.kill();
        comes_in(&mut waiting[2], &mut node);
        assert_eq!(lost(&mut node), [LostReason::Transport]);
        assert_eq!(node.peers(), ["peer"]);
    }
}

#[test]
fn one_that_waits_and_goes_leaves_no_trace() {
    let (mut node, at, mut first) = served();
    let mut newer = second(&at, &first, 1);
    say_hello(&newer);
    first.wait(&mut node, APPLICATION, PROBE);
    newer.kill();
    until(&mut [&mut node], "it is gone", |nodes| nodes[0].engine.snapshot().unadmitted == 0);
    first.kill();
    until(&mut [&mut node], "the first too", |nodes| nodes[0].engine.snapshot().connections.is_empty());
    assert_eq!(lost(&mut node), [LostReason::Transport]);
    assert_eq!(node.engine.snapshot().fenced_open, 0);
    let mut third = second(&at, &first, 1);
    third.open(&mut node);
    assert_eq!(node.peers(), ["peer"]);
}

#[test]
fn a_descriptor_of_another_run_ends_the_old_one_and_lets_the_new_one_in_at_once() {
    for first_is in [served, dialled] {
        let (mut node, at, mut first) = first_is();
        describe(&mut node, 1);
        first.sync(&mut node);
        // The new run comes before the registry has said so, and after.
        let mut newer = second(&at, &first, 2);
        say_hello(&newer);
        is_refused(&mut newer, &mut node, 6);
        nobody_was_disturbed(&mut node, &mut first);
        describe(&mut node, 2);
        assert!(node.peers().is_empty(), "readiness is withdrawn at once");
        node.turn();
        assert_eq!(lost(&mut node), [LostReason::Unverified]);
        let mut newer = second(&at, &first, 2);
        newer.open(&mut node);
        let events = node.events();
        assert!(matches!(&events[..], [Owned::Admitted { .. }, Owned::Ready { .. }]), "{events:?}");
        // Whoever comes with the old generation now is late.
        let mut late = second(&at, &first, 1);
        say_hello(&late);
        is_refused(&mut late, &mut node, 6);
        assert_eq!(node.peers(), ["peer"]);
        drop(first);
    }
}

#[test]
fn one_that_waits_comes_in_when_the_descriptor_names_it() {
    for first_is in [served, dialled] {
        let (mut node, at, mut first) = first_is();
        let mut newer = second(&at, &first, 2);
        say_hello(&newer);
        first.wait(&mut node, APPLICATION, PROBE);
        describe(&mut node, 2);
        comes_in(&mut newer, &mut node);
        let events = node.events();
        let [
            Owned::Lost { reason: LostReason::Unverified, .. },
            Owned::Admitted { .. },
            Owned::Ready { peer },
        ] = &events[..]
        else {
            panic!("{events:?}");
        };
        assert_eq!(peer.generation(), generation(2));
    }
}

#[test]
fn the_place_of_one_that_we_dialled_is_free_when_its_close_was_observed_and_not_when_it_was_asked_for() {
    let (mut node, at, mut first) = dialled();
    let mut newer = second(&at, &first, 2);
    say_hello(&newer);
    first.wait(&mut node, APPLICATION, PROBE);
    describe(&mut node, 2);
    node.turn();
    // Both lanes are closed, and nobody has looked.
    while first.disconnected() < 2 {
        std::thread::yield_now();
    }
    for _ in 0..10 {
        node.engine.wait(Some(ms(1)));
        assert!(newer.lane(APPLICATION).take(|_| true).is_none());
    }
    comes_in(&mut newer, &mut node);
}

#[test]
fn one_that_waits_is_refused_when_the_descriptor_names_the_first() {
    let (mut node, at, mut first) = served();
    let mut newer = second(&at, &first, 2);
    say_hello(&newer);
    first.wait(&mut node, APPLICATION, PROBE);
    describe(&mut node, 1);
    is_refused(&mut newer, &mut node, 6);
    nobody_was_disturbed(&mut node, &mut first);
    first.kill();
    until(&mut [&mut node], "the end", |nodes| nodes[0].engine.snapshot().connections.is_empty());
    settle(&mut [&mut node]);
    assert!(newer.lane(APPLICATION).taken(ADMIT).is_empty());
}

#[test]
fn an_impostor_with_another_security_identity_is_refused_and_disturbs_nobody() {
    for first_is in [served, dialled] {
        for described in [false, true] {
            let (mut node, at, mut first) = first_is();
            if described {
                describe(&mut node, 1);
            }
            for run in [1, 2] {
                let mut impostor = second(&at, &first, run);
                impostor.admission.security = "mallory".to_owned();
                say_hello(&impostor);
                is_refused(&mut impostor, &mut node, 4);
                assert!(first.probes().is_empty(), "nobody is asked for an impostor's sake");
                // Nor does the lane that it was never given help it.
                impostor.admission.pair = first.admission.pair;
                dial_completion(&mut impostor, &node);
                impostor.open_completion();
                let reason = impostor.wait(&mut node, COMPLETION, REJECT).reason();
                assert!([4, 10, 14].contains(&reason), "{reason}");
            }
            nobody_was_disturbed(&mut node, &mut first);
        }
    }
}

#[test]
fn a_security_identity_that_the_descriptor_does_not_name_ends_the_connection() {
    let (mut node, at, mut first) = served();
    let mallory = SecurityId::new("mallory").unwrap();
    let other = NodeDescriptor { security: mallory, ..descriptor(1) };
    node.outbox().set_descriptors(&mesh(), &[other]).unwrap();
    node.turn();
    assert_eq!(lost(&mut node), [LostReason::Unverified]);
    is_refused(&mut first, &mut node, 14);
    let mut again = second(&at, &first, 1);
    say_hello(&again);
    is_refused(&mut again, &mut node, 4);
}

#[test]
fn late_records_of_the_old_connection_change_nothing() {
    let (mut node, at, mut first) = served();
    let mut newer = second(&at, &first, 2);
    say_hello(&newer);
    let asked = first.wait(&mut node, APPLICATION, PROBE).number();
    describe(&mut node, 2);
    comes_in(&mut newer, &mut node);
    let request = node.outbox().request((&mesh(), &rid("peer")), &[b"?"], s(60)).unwrap();
    node.events();
    let correlation = newer.wait(&mut node, APPLICATION, NODE_REQUEST).number();
    for record in [node_send(), probe(7), ack(asked), head(HELLO, &first.body(APPLICATION))] {
        let parts: &[&[u8]] = if record == node_send() { &[b"late"] } else { &[] };
        first.send(APPLICATION, &record, parts);
    }
    first.send(COMPLETION, &reply(correlation, 0), &[b"late"]);
    first.update(STOPPED);
    for _ in 0..3 {
        settle(&mut [&mut node]);
        newer.sync(&mut node);
    }
    assert!(node.events().is_empty(), "nothing of it is heard");
    assert_eq!(node.engine.snapshot().requests, 1, "nor does it answer for the new one");
    for leg in [APPLICATION, COMPLETION] {
        first.poll();
        let told: Vec<u32> =
            first.lane(leg).seen.iter().filter(|seen| seen.command() == REJECT).map(Seen::reason).collect();
        assert!(told.len() <= 1 && told.iter().all(|reason| *reason == 14), "{told:?}");
        assert!(first.lane(leg).taken(ACK).len() <= 2, "its probe is not answered any more");
    }
    newer.send(COMPLETION, &reply(correlation, 0), &[b"mine"]);
    until(&mut [&mut node], "the reply", |nodes| !nodes[0].inbox.events.is_empty());
    let events = node.events();
    assert!(
        matches!(&events[..], [Owned::Replied { request: of, parts }] if *of == request && parts == &[b"mine".to_vec()]),
        "{events:?}"
    );
    first.kill();
    until(&mut [&mut node], "it is gone", |nodes| nodes[0].engine.snapshot().fenced_open == 0);
    assert_eq!(node.peers(), ["peer"]);
    assert!(node.events().is_empty());
}

#[test]
fn a_revision_that_does_not_rise_is_refused_whatever_it_says() {
    let (mut node, at) = Node::listens(listening("node"));
    let mut first = RawNode::dialling("peer", &at);
    first.admission.revision = 5;
    first.open(&mut node);
    answer(&mut first, &mut node);
    node.events();
    let mut older = second(&at, &first, 1);
    older.admission.revision = 4;
    say_hello(&older);
    is_refused(&mut older, &mut node, 7);
    let mut other = second(&at, &first, 1);
    other.admission.revision = 5;
    other.admission.channels = vec![("work".to_owned(), 1)];
    say_hello(&other);
    is_refused(&mut other, &mut node, 11);
    assert!(first.probes().is_empty(), "nobody is asked for their sake");
    nobody_was_disturbed(&mut node, &mut first);
    // Another run's revisions are its own, and a higher one is a newer connection's good right.
    for (run, revision) in [(2, 1), (1, 6)] {
        let mut newer = second(&at, &first, run);
        newer.admission.revision = revision;
        say_hello(&newer);
        let asked = first.wait(&mut node, APPLICATION, PROBE).number();
        first.send(APPLICATION, &ack(asked), &[]);
        is_refused(&mut newer, &mut node, 10);
    }
    nobody_was_disturbed(&mut node, &mut first);
}

/// One that waits behind a connection that is read out must not come in beside one that came to be ready meanwhile.
#[test]
fn one_that_waits_finds_another_in_its_place() {
    for name in ["node", "zebra"] {
        let (mut node, at) = Node::listens(listening(name));
        let mut first = RawNode::enter("peer", &at, &mut node);
        answer(&mut first, &mut node);
        let mut newer = second(&at, &first, 1);
        say_hello(&newer);
        first.wait(&mut node, APPLICATION, PROBE);
        first.update(STOPPED);
        // As long as it talks, it is not over.
        let mut talk = |node: &mut Node| {
            first.send(APPLICATION, &node_send(), &[b"and another thing"]);
            node.turn();
            node.engine.wait(Some(ms(1)));
        };
        until_so(&mut node, &mut talk, |node| node.ready_peers() == 0);
        let mut third = RawNode::listening("peer");
        let to = NodeEndpoint { endpoint: third.at(), rid: None };
        node.outbox().set_endpoints(&mesh(), 0, &[to]).unwrap();
        for leg in [APPLICATION, COMPLETION] {
            until_so(&mut node, &mut talk, |_| {
                third.lane(leg).poll();
                third.lane(leg).seen.iter().any(|seen| seen.command() == HELLO)
            });
            third.hello(&mut node, leg);
            third.send(leg, &head(ADMIT, &third.body(leg)), &[]);
        }
        until_so(&mut node, &mut talk, |node| node.ready_peers() == 1);
        let asked = third.wait(&mut node, APPLICATION, PROBE).number();
        third.send(APPLICATION, &ack(asked), &[]);
        third.sync(&mut node);
        until(&mut [&mut node], "the first is over", |nodes| {
            count(&nodes[0].inbox.events, |event| matches!(event, Owned::Lost { .. })) == 1
        });
        let asked = third.wait(&mut node, APPLICATION, PROBE).number();
        assert!(newer.lane(APPLICATION).take(|_| true).is_none(), "{name}: the third is asked first");
        third.send(APPLICATION, &ack(asked), &[]);
        is_refused(&mut newer, &mut node, 10);
        assert_eq!(node.peers(), ["peer"]);
    }
}

fn until_so(node: &mut Node, turn: &mut impl FnMut(&mut Node), mut done: impl FnMut(&mut Node) -> bool) {
    for _ in 0..5_000 {
        if done(node) {
            return;
        }
        turn(node);
    }
    panic!("not in 5,000 turns: {:?}", node.inbox.events);
}

#[test]
fn an_impostor_that_our_node_dials_disturbs_nobody_either() {
    for name in ["node", "zebra"] {
        for is_ready in [true, false] {
            let (mut node, at) = Node::listens(listening(name));
            let mut first = RawNode::dialling("peer", &at);
            if is_ready {
                first.open(&mut node);
                answer(&mut first, &mut node);
            } else {
                first.open_application(&mut node);
            }
            node.events();
            let mut impostor = RawNode::listening("peer");
            impostor.admission.security = "mallory".to_owned();
            let to = NodeEndpoint { endpoint: impostor.at(), rid: None };
            node.outbox().set_endpoints(&mesh(), 0, &[to]).unwrap();
            impostor.hello(&mut node, APPLICATION);
            impostor.send(APPLICATION, &head(ADMIT, &impostor.body(APPLICATION)), &[]);
            until(&mut [&mut node], "the impostor is known", |nodes| !nodes[0].inbox.events.is_empty());
            let why = Failure::Unexpected(RejectReason::SecurityIdentityMismatch);
            let events = node.events();
            assert!(matches!(&events[..], [Owned::Failed { failure, .. }] if *failure == why), "{events:?}");
            if !is_ready {
                first.open_completion();
                first.wait(&mut node, COMPLETION, ADMIT);
                first.sync(&mut node);
                node.events();
            }
            nobody_was_disturbed(&mut node, &mut first);
        }
    }
}
