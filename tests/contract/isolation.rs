//! 000 §10, "Failure isolation and authority", as far as it concerns ClientServer.

use wakeful::{HostState, LostReason, NoRoute, Owned, RejectReason, SendError, Silence};

use crate::scene::{Scene, name};
use crate::support::raw::{self, channel_send, head, reject, reply};
use crate::support::{CHANNEL, channel, s};

/// How peer 0 fails, and what the host is told of it.
type Failing = (fn(&mut Scene), LostReason);

const FAILINGS: [Failing; 5] = [
    (|scene| scene.follow(s(15)), LostReason::Silence(Silence::NoAnswer)),
    (|scene| scene.raws[0].update(raw::STOPPED), LostReason::Orderly),
    (|scene| scene.raws[0].kill(), LostReason::Transport),
    (|scene| scene.raws[0].send(&head(7, &[]), &[]), LostReason::Protocol),
    (|scene| scene.raws[0].send(&reject(14), &[]), LostReason::Rejected(RejectReason::NotAdmitted)),
];

/// Peer 0 of two fails, peer 1 answers every probe.
fn one_of_two_fails(mut scene: Scene, (fail, reason): Failing) -> Scene {
    scene.answers[1] = true;
    scene.ack(1, scene.asked(1));
    fail(&mut scene);
    scene.until_lost(1);
    assert_eq!(scene.lost().pop().map(|(_, peer, why)| (peer, why)), Some((name(0), reason)));
    scene.follow(scene.elapsed() + s(32));
    scene
}

/// Whatever ends one connection, the other one stays, is asked on and is never warned about.
#[test]
fn one_peers_failure_leaves_the_other_connections_alone() {
    for failing in FAILINGS {
        for scene in Scene::at_either_end(2) {
            let scene = one_of_two_fails(scene, failing);
            assert_eq!(scene.lost().len(), 1, "{:?}", scene.lost());
            assert!(scene.is_ready(1) && !scene.is_ready(0));
            assert_eq!(scene.probes[1].len() as u64, 1 + scene.elapsed().as_secs() / 5);
            assert!(scene.missed().iter().all(|(_, peer, _)| *peer == name(0)));
        }
    }
}

/// The host's state is its own: no failure of a peer changes it, not even the last one's.
#[test]
fn one_peers_failure_does_not_change_the_hosts_state() {
    for failing in FAILINGS {
        for scene in Scene::at_either_end(2) {
            let mut scene = one_of_two_fails(scene, failing);
            assert_eq!(scene.node.engine.snapshot().host, HostState::Serving);
            scene.raws[1].kill();
            scene.until_lost(2);
            assert_eq!(scene.node.engine.snapshot().host, HostState::Serving);
        }
    }
}

/// The other peers' work goes on: a server hears its other clients, a client calls its other servers.
#[test]
fn the_others_are_served_while_one_fails() {
    for failing in FAILINGS {
        let mut scene = one_of_two_fails(Scene::at_server(2), failing);
        scene.raws[1].send(&channel_send(CHANNEL), &[b"on we go"]);
        scene.hear();
        let came =
            |event: &Owned| matches!(event, Owned::Message { peer, .. } if peer.rid().to_string() == name(1));
        assert!(scene.events.iter().any(|(_, event)| came(event)));

        let mut scene = one_of_two_fails(Scene::at_client(2), failing);
        for _ in 0..3 {
            let asked = scene.node.engine.outbox().request(&channel(), &[b"on we go"], s(5)).unwrap();
            let request = scene.raws[1].wait(&mut scene.node, raw::CHANNEL_REQUEST);
            scene.raws[1].send(&reply(request.number(), 0), &[b"so we do"]);
            scene.hear();
            let replied =
                |event: &Owned| matches!(event, Owned::Replied { request, .. } if *request == asked);
            assert!(scene.events.iter().any(|(_, event)| replied(event)));
        }
    }
}

/// Without a ready peer a call ends as unavailable where one is known, and as not found where none serves.
#[test]
fn without_a_ready_peer_a_call_says_which_kind_of_nobody_there_is() {
    let mut scene = Scene::at_client(1);
    let call = |scene: &mut Scene| scene.node.engine.outbox().send(&channel(), &[b"anyone?"]);
    scene.raws[0].update(raw::DRAINING);
    scene.hear();
    assert!(scene.is_ready(0), "draining leaves selection, not the connection");
    assert_eq!(call(&mut scene), Err(SendError::RouteNotConnected(NoRoute::NotFound)));
    scene.raws[0].update(raw::SERVING);
    scene.hear();
    assert_eq!(call(&mut scene), Ok(()));
    scene.raws[0].kill();
    scene.until_lost(1);
    assert_eq!(call(&mut scene), Err(SendError::RouteNotConnected(NoRoute::Unavailable)));
}
