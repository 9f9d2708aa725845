//! 000 §10, "Bidirectional check", as far as it concerns ClientServer: at either end, unless a test says otherwise.

use std::time::Duration;

use wakeful::{
    CHECK_INTERVAL, Config, LastFailure, LostReason, NoRoute, Owned, PEER_DEADLINE, RouteState, SendError,
    Silence,
};

use crate::scene::{Scene, name};
use crate::support::raw::{self, Raw, channel_request, channel_send, probe, reply};
use crate::support::{CHANNEL, Node, channel, ms, s, until};

/// Says that peer 0 was judged at exactly `at`, and that this was the only end.
#[track_caller]
fn judged_at(scene: &mut Scene, at: Duration) {
    scene.follow(at + s(3));
    assert_eq!(scene.lost(), [(at, name(0), LostReason::Silence(Silence::NoAnswer))]);
}

// ---- A probe every 5 s, with no application traffic ----

/// A probe goes out when the connection becomes ready, and then every 5 s though nothing is sent.
#[test]
fn a_probe_goes_out_every_5_s_without_any_traffic() {
    for mut scene in Scene::at_either_end(1) {
        scene.answers = vec![true];
        scene.hear();
        let first = scene.asked(0);
        scene.ack(0, first);
        scene.follow(s(31));
        let times: Vec<Duration> = scene.probes[0].iter().map(|(at, _)| *at).collect();
        assert_eq!(times, [0, 5, 10, 15, 20, 25, 30].map(s));
        let mut ids: Vec<u64> = scene.probes[0].iter().map(|(_, id)| *id).collect();
        ids.dedup();
        assert_eq!(ids.len(), 7, "each answered probe is followed by one with a new id");
        assert!(ids.iter().all(|id| (1..1 << 63).contains(id)), "{ids:?}");
        assert_eq!(scene.lost(), []);
    }
}

/// The interval is kept to the turn: nothing a hundredth of a second before, the probe in the turn at 5.0, 10.0, 15.0 s.
#[test]
fn a_probe_goes_out_in_the_very_turn_of_its_grid_point() {
    for mut scene in Scene::at_either_end(1) {
        for point in [s(5), s(10), s(15)] {
            let asked = scene.probes[0].len();
            scene.follow(point - ms(10));
            assert_eq!(scene.probes[0].len(), asked, "nothing before {point:?}");
            if point == s(10) {
                scene.ack(0, scene.asked(0));
            }
            let rest = ms(10);
            scene.node.pass(rest);
            scene.hear();
            assert_eq!(scene.probes[0].len(), asked + 1, "the turn at {point:?} asks");
        }
    }
}

/// One id is pending per connection: while it is unanswered, only the same id is sent again.
#[test]
fn only_the_pending_id_is_sent_again_before_an_ack() {
    for mut scene in Scene::at_either_end(1) {
        scene.follow(s(12));
        let id = scene.asked(0);
        assert_eq!(scene.probes[0], [s(0), s(5), s(10)].map(|at| (at, id)));
        scene.ack(0, id);
        scene.follow(s(21));
        let next = scene.asked(0);
        assert_ne!(next, id, "after its ACK an id is not used again");
        assert_eq!(scene.probes[0][3..], [s(15), s(20)].map(|at| (at, next)));
    }
}

// ---- Only the first matching ACK moves the deadline ----

/// The first ACK with the pending id moves the deadline to 15 s from there, whichever of its sendings it answers.
#[test]
fn the_first_matching_ack_moves_the_deadline() {
    for answered_after in [s(3), s(12), ms(14_970)] {
        for mut scene in Scene::at_either_end(1) {
            scene.follow(answered_after);
            scene.ack(0, scene.asked(0));
            judged_at(&mut scene, answered_after + s(15));
        }
    }
}

/// A second ACK with the same id changes nothing.
#[test]
fn a_duplicate_ack_changes_nothing() {
    for mut scene in Scene::at_either_end(1) {
        scene.follow(s(3));
        let id = scene.asked(0);
        scene.ack(0, id);
        scene.follow(s(4));
        scene.ack(0, id);
        judged_at(&mut scene, s(18));
    }
}

/// An ACK for an earlier id changes nothing while a later one is pending.
#[test]
fn an_ack_with_a_previous_id_changes_nothing() {
    for mut scene in Scene::at_either_end(1) {
        scene.follow(s(3));
        let previous = scene.asked(0);
        scene.ack(0, previous);
        for later in [s(7), s(12), ms(17_970)] {
            scene.follow(later);
            assert_ne!(scene.asked(0), previous);
            scene.ack(0, previous);
        }
        judged_at(&mut scene, s(18));
    }
}

/// An ACK that comes by another connection is no evidence for this one, nor for the one it came by.
#[test]
fn an_ack_from_another_connection_changes_nothing() {
    for mut scene in Scene::at_either_end(2) {
        scene.follow(s(7));
        let ids = [scene.asked(0), scene.asked(1)];
        assert_ne!(ids[0], ids[1]);
        scene.ack(1, ids[0]);
        scene.follow(s(8));
        scene.ack(0, ids[1]);
        scene.follow(s(18));
        let silent = LostReason::Silence(Silence::NoAnswer);
        let mut lost = scene.lost();
        lost.sort_by(|one, other| one.1.cmp(&other.1));
        assert_eq!(lost, [(s(15), name(0), silent), (s(15), name(1), silent)]);
    }
}

/// An ACK with an id that never went out changes nothing.
#[test]
fn an_ack_with_an_id_never_sent_changes_nothing() {
    for mut scene in Scene::at_either_end(1) {
        scene.follow(s(7));
        let id = scene.asked(0);
        for other in [id + 1, id - 1, 1, (1 << 63) - 1] {
            scene.ack(0, other);
        }
        judged_at(&mut scene, s(15));
    }
}

// ---- Half-open, closed, cut off ----

/// A half-open connection becomes not ready at 15 s watched, with early warnings at 5 and 10 s.
#[test]
fn a_half_open_connection_is_lost_at_exactly_15_s() {
    for mut scene in Scene::at_either_end(1) {
        scene.follow(ms(14_999));
        assert!(scene.is_ready(0));
        assert_eq!(scene.missed(), [(s(5), name(0), 1), (s(10), name(0), 2)]);
        scene.follow(s(15));
        assert!(!scene.is_ready(0));
        assert_eq!(scene.lost(), [(s(15), name(0), LostReason::Silence(Silence::NoAnswer))]);
        judged_at(&mut scene, s(15));
    }
}

/// Its transport is closed as far as this end can: a client closes it, a server tells the peer that it is not admitted
/// any more.
#[test]
fn a_half_open_connection_is_closed_when_it_is_lost() {
    let mut at_client = Scene::at_client(1);
    at_client.follow(s(15));
    let raw = &mut at_client.raws[0];
    until(&mut [&mut at_client.node], "the transport's end", |_| {
        raw.poll();
        raw.disconnected == 1
    });

    let mut at_server = Scene::at_server(1);
    at_server.follow(s(15));
    let told = at_server.raws[0].wait(&mut at_server.node, raw::REJECT);
    assert_eq!(told.reason(), 14);
    assert_eq!(at_server.node.engine.snapshot().fenced_open, 1);
    at_server.raws[0].kill();
    until(&mut [&mut at_server.node], "the transport's end", |nodes| {
        nodes[0].engine.snapshot().fenced_open == 0
    });
}

/// An orderly close takes effect at once, with a reason of its own.
#[test]
fn an_orderly_close_takes_effect_at_once() {
    for mut scene in Scene::at_either_end(1) {
        scene.follow(s(1));
        scene.raws[0].update(raw::STOPPED);
        scene.until_lost(1);
        assert_eq!(scene.lost(), [(s(1), name(0), LostReason::Orderly)]);
        assert!(!scene.is_ready(0));
    }
}

/// A transport loss takes effect at once, with another reason.
#[test]
fn a_transport_loss_takes_effect_at_once() {
    for mut scene in Scene::at_either_end(1) {
        scene.follow(s(1));
        scene.raws[0].kill();
        scene.until_lost(1);
        assert_eq!(scene.lost(), [(s(1), name(0), LostReason::Transport)]);
        assert!(!scene.is_ready(0));
    }
}

/// Afterwards the snapshot still tells which of the three it was.
#[test]
fn the_snapshot_tells_the_ends_apart() {
    type Ending = (fn(&mut Scene), LostReason);
    let endings: [Ending; 3] = [
        (|scene| scene.follow(s(15)), LostReason::Silence(Silence::NoAnswer)),
        (|scene| scene.raws[0].update(raw::STOPPED), LostReason::Orderly),
        (|scene| scene.raws[0].kill(), LostReason::Transport),
    ];
    for (end, reason) in endings {
        let mut scene = Scene::at_client(1);
        assert_eq!(scene.node.engine.snapshot().intents[0].last_failure, None);
        end(&mut scene);
        scene.until_lost(1);
        let intent = &scene.node.engine.snapshot().intents[0];
        assert_eq!(intent.last_failure, Some(LastFailure::Lost(reason)));
        assert_eq!(intent.state, RouteState::Reconnecting);
    }
}

/// A call after the loss of the only peer ends at once, as route not connected.
#[test]
fn a_call_without_a_ready_peer_ends_at_once() {
    let mut scene = Scene::at_client(1);
    scene.node.send("before");
    scene.follow(s(15));
    let unavailable = Err(SendError::RouteNotConnected(NoRoute::Unavailable));
    assert_eq!(scene.node.engine.outbox().send(&channel(), &[b"after"]), unavailable);
    let request = scene.node.engine.outbox().request(&channel(), &[b"after"], s(1));
    assert_eq!(request.map(drop), unavailable);
}

// ---- What reaches a handler, and what is evidence ----

/// No probe and no ACK of any kind reaches the host.
#[test]
fn probes_and_acks_reach_no_handler() {
    for mut scene in Scene::at_either_end(1) {
        scene.events.clear();
        scene.answers = vec![true];
        scene.ack(0, scene.asked(0));
        for second in 1..40 {
            scene.follow(s(second));
            scene.raws[0].send(&probe(second), &[]);
            scene.ack(0, second);
        }
        assert_eq!(scene.events, []);
        assert!(scene.is_ready(0));
    }
}

/// Application records do not extend the deadline, however many: a peer that sends and never answers is judged.
#[test]
fn application_records_do_not_extend_the_deadline() {
    let mut at_server = Scene::at_server(1);
    for tick in 1..150 {
        at_server.raws[0].send(&channel_send(CHANNEL), &[b"still here"]);
        at_server.raws[0].send(&channel_request(tick, CHANNEL), &[b"and you?"]);
        at_server.follow(ms(tick * 100));
    }
    let snapshot = at_server.node.engine.snapshot();
    assert_eq!(snapshot.connections[0].last_received, Some(Duration::ZERO));
    judged_at(&mut at_server, s(15));
    let messages =
        at_server.events.iter().filter(|(_, event)| matches!(event, Owned::Message { .. })).count();
    let requests =
        at_server.events.iter().filter(|(_, event)| matches!(event, Owned::Request { .. })).count();
    assert_eq!((messages, requests), (149, 149));

    let mut at_client = Scene::at_client(1);
    for tick in 1..150 {
        at_client.node.engine.outbox().request(&channel(), &[b"well?"], s(60)).unwrap();
        let request = at_client.raws[0].wait(&mut at_client.node, raw::CHANNEL_REQUEST);
        at_client.raws[0].send(&reply(request.number(), 0), &[b"very well"]);
        at_client.follow(ms(tick * 100));
    }
    judged_at(&mut at_client, s(15));
    let replies = at_client.events.iter().filter(|(_, event)| matches!(event, Owned::Replied { .. })).count();
    assert_eq!(replies, 149);
}

/// Neither do the peer's own probes, nor its updates.
#[test]
fn other_service_records_do_not_extend_the_deadline() {
    for mut scene in Scene::at_either_end(1) {
        for second in 1..15 {
            scene.raws[0].send(&probe(second), &[]);
            scene.raws[0].update(raw::SERVING);
            scene.follow(s(second));
        }
        judged_at(&mut scene, s(15));
    }
}

// ---- One lane ----

/// Everything between a client and a server travels on one physical DEALER-ROUTER connection.
#[test]
fn one_physical_connection_carries_everything() {
    let mut scene = Scene::at_client(1);
    scene.node.send("message");
    scene.node.engine.outbox().request(&channel(), &[b"request"], s(5)).unwrap();
    let (raw, node) = (&mut scene.raws[0], &mut scene.node);
    let request = raw.wait(node, raw::CHANNEL_REQUEST);
    let message = raw.wait(node, raw::CHANNEL_SEND);
    raw.send(&reply(request.number(), 0), &[b"reply"]);
    scene.follow(s(6));
    let replied =
        |event: &Owned| matches!(event, Owned::Replied { parts, .. } if parts == &[b"reply".to_vec()]);
    assert!(scene.events.iter().any(|(_, event)| replied(event)));
    assert_eq!(scene.probes[0].len(), 2);
    let raw = &mut scene.raws[0];
    raw.poll();
    assert_eq!((raw.accepted, raw.disconnected), (1, 0));
    assert!([request, message].iter().all(|seen| seen.route == raw.route));
}

/// Probes and ACKs are application records of that lane, byte for byte as WIRE.md gives them.
#[test]
fn probes_and_acks_are_application_records_of_that_lane() {
    for (mut raw, mut node) in [Raw::ready_client("raw"), Raw::ready_server("raw")] {
        let asked = raw.wait(&mut node, raw::PROBE);
        let id = asked.number();
        assert_eq!(asked.frames, [[&[0x5A, 0x4D, 1, 5, 0][..], &id.to_be_bytes()].concat()]);
        assert_eq!(asked.route, raw.route);
        raw.send(&[0x5A, 0x4D, 1, 5, 0, 1, 2, 3, 4, 5, 6, 7, 8], &[]);
        let answered = raw.wait(&mut node, raw::ACK);
        assert_eq!(answered.frames, [[0x5A, 0x4D, 1, 6, 0, 1, 2, 3, 4, 5, 6, 7, 8]]);
        assert_eq!(answered.route, raw.route);
    }
}

// ---- Not to be set ----

/// The two times are 5 s and 15 s, and no setting, at whichever of its bounds, moves them.
#[test]
fn no_setting_moves_the_fixed_times() {
    assert_eq!((CHECK_INTERVAL, PEER_DEADLINE), (s(5), s(15)));
    let least = Config {
        receive_bytes_max: 4 << 10,
        receive_time_max: Duration::from_micros(50),
        turn_time_max: Duration::from_micros(100),
        queue_records_max: 2,
        connections_max: 1,
        requests_max: 1,
        replies_max: 1,
        seed: 0,
        ..Config::default()
    };
    let most = Config {
        receive_bytes_max: 16 << 20,
        receive_time_max: ms(10),
        turn_time_max: ms(100),
        queue_records_max: 10_000,
        connections_max: 1_000_000,
        requests_max: 1 << 24,
        replies_max: 1 << 24,
        seed: u64::MAX,
        ..Config::default()
    };
    for config in [least, most] {
        let (mut node, endpoint) = Node::server_with(config, "server");
        let raw = Raw::join(&name(0), &endpoint, &mut node);
        let mut scene = Scene::begin(node, vec![raw]);
        judged_at(&mut scene, s(15));
        let times: Vec<Duration> = scene.probes[0].iter().map(|(at, _)| *at).collect();
        assert_eq!(times, [0, 5, 10].map(s));
    }
    let settings = format!("{:?}", Config::default());
    for word in ["interval", "deadline", "probe", "ask", "beacon", "liveness", "watch", "patience"] {
        assert!(!settings.contains(word), "{word} is nobody's to set: {settings}");
    }
}
