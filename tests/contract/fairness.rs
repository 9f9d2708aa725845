//! 000 §10, "Fanout", its last line, which 000 §4 lays on every path that serves several connections.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::{Duration, Instant};

use wakeful::{Completion, Config, Event, LostReason, Outbox, Owned, Pressure, Silence, Stopped, Subscriber};

use crate::scene::{Scene, name};
use crate::support::raw::{self, Raw, channel_send, reply};
use crate::support::{CHANNEL, Node, channel, ms, s, until};
use crate::ticks::{PAYLOAD, TOPIC};
use crate::zmtp::{Trap, record};

/// Two clients of one server, whose turns are ended by the count alone.
fn two_clients() -> Scene {
    let config = Config {
        receive_time_max: ms(10),
        turn_time_max: ms(100),
        receive_bytes_max: 16 << 20,
        ..Config::default()
    };
    let (mut node, endpoint) = Node::server_with(config, "server");
    let raws = (0..2).map(|peer| Raw::join(&name(peer), &endpoint, &mut node)).collect();
    Scene::begin(node, raws)
}

/// How many messages each of the two has had delivered in what the host heard.
fn delivered(events: &[Owned]) -> [usize; 2] {
    [name(0), name(1)].map(|name| {
        let from =
            |event: &&Owned| matches!(event, Owned::Message { peer, .. } if peer.rid().to_string() == name);
        events.iter().filter(from).count()
    })
}

/// While one peer floods, another one behind the same socket is served in every turn, and no turn takes more than 64
/// records of the flooder.
#[test]
fn a_flooder_leaves_every_turn_room_for_the_others() {
    const FLOOD: usize = 3_000;
    const FEW: usize = 20;
    let mut scene = two_clients();
    for _ in 0..FLOOD {
        scene.raws[0].send(&channel_send(CHANNEL), &[b"flood"]);
    }
    for _ in 0..FEW {
        scene.raws[1].send(&channel_send(CHANNEL), &[b"drop"]);
    }
    let (mut of_flood, mut of_few, mut most) = (0, 0, 0);
    let mut flood_before_the_last_drop = 0;
    until(&mut [&mut scene.node], "everything delivered", |nodes| {
        let [flood, few] = delivered(&nodes[0].events());
        most = most.max(flood);
        (of_flood, of_few) = (of_flood + flood, of_few + few);
        if few > 0 {
            flood_before_the_last_drop = of_flood;
        }
        of_flood == FLOOD && of_few == FEW
    });
    assert!(most <= 64, "{most} records of one peer in one turn");
    assert!(
        flood_before_the_last_drop < FLOOD / 2,
        "the quiet peer waited for {flood_before_the_last_drop} records of the flooder"
    );
}

/// A flood does not keep the others' liveness from being checked, and is no evidence for the flooder.
#[test]
fn a_flood_costs_nobody_else_its_check_signal() {
    let mut scene = two_clients();
    scene.answers[1] = true;
    scene.ack(1, scene.asked(1));
    for second in 1..=30 {
        if scene.is_ready(0) {
            for _ in 0..500 {
                scene.raws[0].send(&channel_send(CHANNEL), &[b"flood"]);
            }
        }
        scene.follow(s(second));
    }
    assert!(scene.is_ready(1));
    assert_eq!(scene.probes[1].len(), 7);
    let [(at, peer, LostReason::Silence(Silence::NoAnswer | Silence::NoAnswerUnread))] = &scene.lost()[..]
    else {
        panic!("only the flooder is lost, by its own silence: {:?}", scene.lost());
    };
    assert_eq!((*at, peer), (s(15), &name(0)));
    assert!(scene.missed().iter().all(|(_, peer, _)| *peer == name(0)));
}

/// A rotation that is cut short goes on, in the next turn, right after the connection where it stopped.
#[test]
fn each_rotation_starts_after_the_one_that_stopped() {
    const PEERS: usize = 3;
    const EACH: usize = 64;
    let mut scene = Scene::at_client(PEERS);
    for _ in 0..PEERS * EACH {
        scene.node.engine.outbox().request(&channel(), &[b"who?"], s(60)).unwrap();
    }
    // All answers are there before the first is delivered.
    scene.node.engine.outbox().set_pressure(Pressure::Paused);
    scene.hear();
    for (peer, raw) in scene.raws.iter_mut().enumerate() {
        for request in raw.taken(raw::CHANNEL_REQUEST) {
            raw.send(&reply(request.number(), 0), &[&[peer as u8]]);
        }
    }
    until(&mut [&mut scene.node], "all answers set aside", |nodes| {
        nodes[0].engine.snapshot().connections.iter().all(|each| each.held == EACH as u64)
    });
    scene.node.engine.outbox().set_pressure(Pressure::Running);

    // The host takes longer for one record than a connection's share lasts, and for two than a whole turn does.
    let mut visits = Vec::new();
    while visits.len() < PEERS * EACH / 2 {
        let mut served = Vec::new();
        let mut host = |event: Event<'_>, _: &mut Outbox<'_>| {
            if let Event::Completed { outcome: Completion::Reply(parts), .. } = event {
                served.push(parts.get(0).unwrap()[0]);
                spend(ms(1));
            }
        };
        let report = scene.node.engine.turn_at(scene.node.now, &mut host);
        assert_eq!(report.stopped, Stopped::TurnTime);
        served.dedup();
        visits.extend(served);
    }
    let round = &visits[..PEERS];
    assert!((0..PEERS as u8).all(|peer| round.contains(&peer)), "{round:?}");
    let rounds = || visits.chunks_exact(PEERS);
    assert!(rounds().all(|next| next == round), "nobody is visited twice before all others: {visits:?}");
}

/// The same where each connection is a publisher's.
#[test]
fn each_rotation_over_publishers_starts_after_the_one_that_stopped() {
    const PUBLISHERS: usize = 3;
    const EACH: usize = 200;
    let traps = [(); PUBLISHERS].map(|()| Trap::new());
    let wish = Subscriber::new(channel()).filter(b"t");
    let wish = traps.iter().fold(wish, |wish, trap| wish.publisher(trap.endpoint.clone()));
    let mut node = Node::new();
    node.engine.subscribe(wish).unwrap();
    let mut streams = traps.each_ref().map(|trap| trap.met(&mut node));
    for stream in &mut streams {
        stream.write_all(&record(&[TOPIC, PAYLOAD])).unwrap();
    }
    until(&mut [&mut node], "all ready", |nodes| nodes[0].engine.snapshot().sources.len() == PUBLISHERS);
    for (number, stream) in (0..).zip(&mut streams) {
        // What is written at once arrives at once.
        stream.write_all(&record(&[b"t", &[number]]).repeat(EACH)).unwrap();
    }

    // The host takes longer for one record than a publisher's share lasts, and for two than a whole turn does.
    let (mut visits, mut visited) = (Vec::new(), BTreeSet::new());
    let begin = node.now;
    while visits.len() < 10 * PUBLISHERS {
        let mut served = Vec::new();
        let mut host = |event: Event<'_>, _: &mut Outbox<'_>| {
            if let Event::Published { parts, .. } = event {
                served.push(parts.get(0).unwrap()[0]);
                spend(ms(1));
            }
        };
        node.now += ms(1);
        node.engine.turn_at(node.now, &mut host);
        node.engine.wait(Some(ms(1)));
        assert!(node.now - begin < s(10), "not in 10,000 turns: {visits:?}");
        served.dedup();
        // Once each was visited, everything is there.
        if visited.len() == PUBLISHERS {
            visits.extend(&served);
        }
        visited.extend(served);
    }
    let round = &visits[..PUBLISHERS];
    assert!(visited.iter().all(|publisher| round.contains(publisher)), "{round:?}");
    let mut rounds = visits.chunks_exact(PUBLISHERS);
    assert!(rounds.all(|next| next == round), "nobody is visited twice before all others: {visits:?}");
}

/// Spends real time, as a slow handler does.
#[expect(clippy::disallowed_methods, reason = "the shares of a turn are real time")]
fn spend(span: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < span {
        std::hint::spin_loop();
    }
}
