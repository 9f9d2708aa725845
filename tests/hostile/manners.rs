//! A stranger's life with a server: who is let in, who is turned away, and what is still said to whom.

use wakeful::{Config, HostState, LostReason, Owned, Pressure};

use crate::raw::{self, Admission, Stranger};
use crate::scene::Scene;
use crate::support::{CHANNEL, channel, ms, rid};

fn hello(rid: &str) -> Admission {
    Admission::client(CHANNEL, rid)
}

#[test]
fn a_fenced_peer_is_told_at_most_once_a_second_and_everything_it_says_is_counted() {
    let mut scene = Scene::new();
    let mut stranger = scene.ready("broken");
    stranger.send(&[b"not a record"]);
    scene.until("it is told", |_| stranger.rejected() == Some(14));
    let before = scene.snapshot().counters.unadmitted;
    let mut told = 0;
    for step in 1..=20 {
        scene.server.now += ms(250);
        scene.neighbour.now += ms(250);
        for at in 0..10 {
            let record = if at % 2 == 0 { raw::send(CHANNEL, "let me in") } else { hello("broken").hello() };
            assert!(stranger.send(&record));
        }
        scene.until("all of it is counted", |scene| {
            scene.snapshot().counters.unadmitted - before == step * 10
        });
        scene.settle();
        while let Some(reason) = stranger.rejected() {
            assert_eq!(reason, 14);
            told += 1;
        }
    }
    assert_eq!(told, 5, "5 s went by");
    assert_eq!(scene.lost("broken"), Some(LostReason::Protocol));
    assert!(!scene.server.inbox.events.iter().any(|event| matches!(event, Owned::Message { .. })));
    // What it rejects in its turn is counted and not answered.
    scene.server.now += ms(2_000);
    scene.neighbour.now += ms(2_000);
    stranger.send(&raw::reject(14));
    scene.until("the reject is counted", |scene| scene.snapshot().counters.unadmitted - before == 201);
    scene.settle();
    assert_eq!(stranger.rejected(), None);
    scene.neighbour_is_served();
    drop(stranger);
    scene.all_gone();
}

#[test]
fn a_full_table_turns_strangers_away_and_has_room_again_when_somebody_leaves() {
    let config = Config { connections_max: 3, seed: 7, ..Config::default() };
    let mut scene = Scene::with(config, |server| server);
    let first = scene.ready("first");
    let mut second = scene.stranger();
    second.send(&[b"never admitted, and has its place all the same"]);
    scene.until("it is told", |_| second.rejected() == Some(14));
    let mut late: Vec<Stranger> = (0..150).map(|_| scene.stranger()).collect();
    for stranger in &late {
        stranger.send(&hello("late").hello());
    }
    let mut told = 0;
    scene.until("all their hellos came", |scene| {
        told +=
            late.iter_mut().filter_map(Stranger::rejected).inspect(|reason| assert_eq!(*reason, 12)).count();
        scene.snapshot().counters.refused == 150
    });
    scene.settle();
    told += late.iter_mut().filter_map(Stranger::rejected).count();
    assert_eq!(told, 100, "all of them together are answered 100 times a second");
    // A record that is no hello gets no answer.
    late[0].send(&raw::send(CHANNEL, "x"));
    scene.pass(1);
    assert_eq!(late[0].rejected(), None);
    let now = scene.snapshot();
    assert_eq!((now.connections.len(), now.fenced_open, now.unadmitted), (2, 1, 0));
    scene.neighbour_is_served();
    drop(first);
    scene.until("one has left", |scene| scene.lost("first").is_some());
    assert!(late[0].send(&hello("late").hello()));
    scene.until("an admit", |_| late[0].got(raw::ADMIT).is_some());
    drop((late, second));
    scene.all_gone();
    scene.neighbour_is_served();
}

#[test]
fn a_draining_host_admits_nobody_and_keeps_who_is_there() {
    let mut scene = Scene::new();
    let mut known = scene.ready("known");
    scene.server.engine.drain(true);
    let mut stranger = scene.stranger();
    stranger.send(&hello("late").hello());
    scene.until("it is refused", |_| stranger.rejected() == Some(9));
    scene.until("the known one is told", |_| known.got(raw::UPDATE).is_some_and(|update| update[0][8] == 3));
    known.send(&raw::send(CHANNEL, "still here"));
    scene.until("its message", |scene| {
        scene.server.inbox.events.iter().any(|event| matches!(event, Owned::Message { .. }))
    });
    scene.server.engine.drain(false);
    assert_eq!(scene.snapshot().host, HostState::Serving);
    let again = scene.admitted(&hello("late"));
    drop((known, stranger, again));
    scene.all_gone();
    scene.neighbour_is_served();
}

#[test]
fn a_hello_with_a_revision_that_was_overtaken_is_refused_while_the_newer_one_stands() {
    let mut scene = Scene::new();
    let mut known = scene.ready("known");
    for (revision, state, reason) in [(4, 1, 7), (5, 3, 11)] {
        let mut stranger = scene.stranger();
        let other = hello("known").but(|hello| (hello.revision, hello.state) = (revision, state));
        stranger.send(&other.hello());
        scene.until("it is refused", |_| stranger.rejected() == Some(reason));
    }
    known.send(&raw::send(CHANNEL, "still here"));
    scene.until("its message", |scene| {
        scene.server.inbox.events.iter().any(|event| matches!(event, Owned::Message { .. }))
    });
    assert_eq!((scene.lost("known"), known.rejected()), (None, None));
    drop(known);
    scene.all_gone();
}

/// The transport's end is mostly heard of before the words it brought, and what is still readable is delivered: but only
/// what the probe that opens a connection goes before.
#[test]
fn words_before_the_first_probe_are_not_delivered_though_the_transport_has_ended_meanwhile() {
    for probes in [true, false] {
        let mut scene = Scene::new();
        let stranger = scene.admitted(&hello("hasty"));
        if probes {
            stranger.send(&raw::probe(1));
        }
        stranger.send(&raw::send(CHANNEL, "too soon"));
        stranger.leave();
        scene.until("it is lost", |scene| scene.lost("hasty").is_some());
        let is_message = |event: &Owned| matches!(event, Owned::Message { .. });
        assert_eq!(scene.server.inbox.events.iter().any(is_message), probes);
        scene.neighbour_is_served();
        scene.all_gone();
    }
}

/// However many end at once, one turn lets go of so many only, and says that work is left.
#[test]
fn a_crowd_that_ends_at_once_is_let_go_in_more_than_one_turn() {
    const CROWD: usize = 300;
    let mut scene = Scene::new();
    let strangers: Vec<Stranger> = (0..CROWD).map(|at| scene.ready(&format!("one-{at}"))).collect();
    let is_ready = |event: &Owned| match event {
        Owned::Ready { peer } => Some(peer.connection()),
        _ => None,
    };
    let crowd: Vec<_> = scene.server.events().iter().filter_map(is_ready).collect();
    let mut outbox = scene.server.engine.outbox();
    assert_eq!(crowd.iter().filter(|&&connection| outbox.close(connection)).count(), CROWD);
    drop(outbox);
    let mut turn = || {
        let work_left = scene.server.turn().work_left;
        let is_lost = |event: &Owned| matches!(event, Owned::Lost { reason: LostReason::Closed, .. });
        (scene.server.events().iter().filter(|event| is_lost(event)).count(), work_left)
    };
    assert_eq!(turn(), (256, true));
    assert_eq!(turn().0, CROWD - 256);
    assert_eq!(turn().0, 0);
    scene.neighbour_is_served();
    drop(strangers);
    scene.all_gone();
}

/// While the host is paused nothing of a fenced peer is set aside, and it has its share of a turn all the same, no more.
#[test]
fn a_fenced_peer_that_floods_a_paused_host_has_one_share_of_each_turn() {
    let mut scene = Scene::new();
    let mut stranger = scene.ready("broken");
    stranger.send(&[b"not a record"]);
    scene.until("it is told", |_| stranger.rejected() == Some(14));
    scene.server.engine.outbox().set_pressure(Pressure::Paused);
    let before = scene.snapshot().counters.unadmitted;
    let mut seen = 0;
    let sent = 600;
    for _ in 0..sent {
        assert!(stranger.send(&raw::send(CHANNEL, "let me in")));
    }
    let begin = std::time::Instant::now();
    while seen < sent {
        assert!(begin.elapsed() < ms(10_000), "{seen} of {sent}");
        // Whoever else is there shows that the lane is shared.
        scene.neighbour.send("still here");
        scene.neighbour.turn();
        scene.server.engine.wait(Some(ms(2)));
        scene.server.turn();
        let now = scene.snapshot().counters.unadmitted - before;
        assert!(now - seen <= 66, "{} in one turn", now - seen);
        seen = now;
    }
    scene.server.engine.outbox().set_pressure(Pressure::Running);
    scene.neighbour_is_served();
    drop(stranger);
    scene.all_gone();
}

/// A hundred impostors cannot push out a peer that answers, nor make a crowd of themselves in the tables. Those that do
/// not even show its security identity are not compared with it.
#[test]
fn who_claims_the_rid_of_a_living_peer_is_refused_when_that_one_answers() {
    let mut scene = Scene::new();
    let mut impostors: Vec<Stranger> = (0..100).map(|_| scene.stranger()).collect();
    for (at, stranger) in impostors.iter().enumerate() {
        let claim = hello("neighbour").but(|hello| {
            hello.generation = 1_000 + at as u64;
            if at % 2 == 0 {
                hello.security.clear();
            }
        });
        stranger.send(&claim.hello());
    }
    let mut refused = 0;
    scene.until("all are refused", |_| {
        refused += impostors
            .iter_mut()
            .enumerate()
            .filter_map(|(at, stranger)| Some((at, stranger.rejected()?)))
            .inspect(|(at, reason)| assert_eq!(*reason, if at % 2 == 0 { 10 } else { 4 }))
            .count();
        refused == 100
    });
    assert_eq!(scene.server.ready_peers(), 1);
    scene.neighbour_is_served();
    // The one that speaks while its hello is held loses its turn.
    drop(impostors);
    scene.all_gone();
}

#[test]
fn a_held_stranger_that_speaks_is_fenced_and_a_silent_one_comes_in_when_the_old_one_is_gone() {
    let mut scene = Scene::new();
    let old = scene.ready("twice");
    let mut hasty = scene.stranger();
    hasty.send(&hello("twice").hello());
    hasty.send(&raw::probe(1));
    scene.until("it is fenced", |_| hasty.rejected() == Some(14));
    let mut patient = scene.stranger();
    patient.send(&hello("twice").hello());
    scene.until("its hello is held", |scene| scene.snapshot().unadmitted == 1);
    scene.settle();
    assert!(patient.got(raw::ADMIT).is_none());
    drop(old);
    scene.until("it comes in", |_| patient.got(raw::ADMIT).is_some());
    assert_eq!(scene.lost("twice"), Some(LostReason::Transport));
    drop((hasty, patient));
    scene.all_gone();
    scene.neighbour_is_served();
}

#[test]
fn a_stranger_may_choose_its_own_routing_id_of_any_length() {
    let mut scene = Scene::new();
    let mut strangers = Vec::new();
    for (at, length) in [1, 2, 4, 5, 8, 9, 100, 255].into_iter().enumerate() {
        let mut stranger =
            Stranger::dial(&scene.context, &scene.endpoint, Some(&vec![b'A' + at as u8; length]));
        stranger.send(&hello(&format!("chosen-{length}")).hello());
        scene.until("an admit", |_| stranger.got(raw::ADMIT).is_some());
        stranger.send(&raw::probe(3));
        scene.until("an ACK", |_| stranger.got(raw::ACK).is_some());
        strangers.push(stranger);
    }
    assert_eq!(scene.server.ready_peers(), 9);
    strangers[7].send(&[b"no record"]);
    scene.until("one is lost", |scene| scene.lost("chosen-255") == Some(LostReason::Protocol));
    scene.neighbour_is_served();
    drop(strangers);
    scene.all_gone();
}

/// libzmq lets only the first of them speak, and once it is gone takes the other's next frame for a routing id.
#[test]
fn two_strangers_with_one_routing_id_harm_only_each_other() {
    let mut scene = Scene::new();
    let dial = |scene: &Scene| Stranger::dial(&scene.context, &scene.endpoint, Some(b"twin"));
    let mut first = dial(&scene);
    first.send(&hello("first").hello());
    scene.until("an admit", |_| first.got(raw::ADMIT).is_some());
    first.send(&raw::probe(1));
    scene.until("an ACK", |_| first.got(raw::ACK).is_some());
    let mut second = dial(&scene);
    for _ in 0..3 {
        second.send(&hello("second").hello());
        second.send(&raw::send(CHANNEL, "unheard"));
    }
    scene.settle();
    first.send(&raw::send(CHANNEL, "heard"));
    scene.until("its message", |scene| {
        let from =
            |event: &Owned| matches!(event, Owned::Message { peer, .. } if peer.rid() == &rid("first"));
        scene.server.inbox.events.iter().any(from)
    });
    assert_eq!((scene.lost("first"), scene.lost("second")), (None, None));
    drop(first);
    scene.until("the first is lost", |scene| scene.lost("first") == Some(LostReason::Transport));
    for _ in 0..20 {
        second.send(&hello("second").hello());
        scene.settle();
    }
    second.read();
    scene.neighbour_is_served();
    drop(second);
    scene.all_gone();
}

/// One frame over the limit ends the transport below us; frames that exceed it together are a protocol error.
#[test]
fn a_record_above_the_limit_costs_its_sender_the_connection_and_nobody_else() {
    const LIMIT: usize = 5_000;
    let mut scene =
        Scene::with(Config { seed: 7, ..Config::default() }, |server| server.message_bytes_max(LIMIT as u32));
    let record = |parts: &[usize]| -> raw::Frames {
        [vec![raw::send_head(CHANNEL)], parts.iter().map(|bytes| vec![0; *bytes]).collect()].concat()
    };
    let head = raw::send_head(CHANNEL).len();
    let mut just = scene.ready("just");
    just.send(&record(&[2_000, LIMIT - 2_000 - head]));
    scene.until("the largest message", |scene| {
        scene.server.inbox.events.iter().any(|event| matches!(event, Owned::Message { .. }))
    });
    just.send(&record(&[2_000, LIMIT - 2_000 - head + 1]));
    scene.until("one byte more", |scene| scene.lost("just") == Some(LostReason::Protocol));
    scene.until("it is told", |_| just.rejected() == Some(14));
    let frame = scene.ready("frame");
    frame.send(&record(&[LIMIT + 1]));
    scene.until("the frame's end", |scene| scene.lost("frame") == Some(LostReason::Transport));
    scene.neighbour_is_served();
    let mut greeting = scene.stranger();
    let long =
        hello("long").but(|hello| hello.extensions = [vec![1, 0, 0, 0x13, 0x88], vec![0; 5_000]].concat());
    greeting.send(&long.hello());
    scene.settle();
    assert_eq!(greeting.rejected(), None);
    drop((just, frame, greeting));
    scene.all_gone();
    scene.neighbour_is_served();
}

/// The whole of an ordinary life, and the end that silence brings, in virtual time.
#[test]
fn a_stranger_that_falls_silent_is_judged_and_may_come_back_on_a_new_connection() {
    let mut scene = Scene::new();
    scene.server.inbox.echo = true;
    let mut stranger = scene.ready("mortal");
    stranger.send(&[raw::request_head(9, CHANNEL), b"how".to_vec()]);
    let mut reply = None;
    scene.until("a reply", |_| {
        reply = stranger.got(raw::REPLY);
        reply.is_some()
    });
    assert_eq!(reply.unwrap(), [raw::reply_head(9, 0), b"how".to_vec()]);
    scene.pass(14);
    assert_eq!(scene.lost("mortal"), None);
    scene.pass(2);
    assert!(matches!(scene.lost("mortal"), Some(LostReason::Silence(_))));
    scene.until("it is told", |_| stranger.rejected() == Some(14));
    scene.server.events();
    let again = scene.admitted(&hello("mortal"));
    drop((stranger, again));
    scene.all_gone();
    scene.neighbour_is_served();
}

/// Nothing a stranger or a fenced peer sends takes the room that a pause leaves for those who may send.
#[test]
fn strangers_cannot_fill_the_room_of_a_paused_host() {
    let mut scene = Scene::new();
    let mut fenced = scene.ready("fenced");
    fenced.send(&[b"no record"]);
    scene.until("it is fenced", |_| fenced.rejected() == Some(14));
    scene.server.engine.outbox().set_pressure(Pressure::Paused);
    let mut sent = 0;
    let before = scene.snapshot().counters.unadmitted;
    scene.until("everything it sends is dropped", |scene| {
        while sent < 20_000 && fenced.send(&raw::send(CHANNEL, "let me in")) {
            sent += 1;
        }
        scene.snapshot().counters.unadmitted - before == 20_000
    });
    scene.pass(20);
    assert_eq!(scene.lost("neighbour"), None, "its ACKs are still read");
    scene.neighbour.send("held");
    scene.settle();
    scene.server.engine.outbox().set_pressure(Pressure::Running);
    scene.until("what was held", |scene| {
        scene.server.inbox.events.iter().any(|event| matches!(event, Owned::Message { .. }))
    });
    scene.neighbour_is_served();
    assert!(scene.neighbour.engine.outbox().send(&channel(), &[b"x"]).is_ok());
}

#[test]
fn who_is_admitted_and_never_asks_is_given_up_in_time() {
    let mut scene = Scene::new();
    let mut stranger = scene.admitted(&hello("shy"));
    scene.pass(19);
    assert_eq!(scene.lost("shy"), None);
    scene.pass(2);
    assert_eq!(scene.lost("shy"), Some(LostReason::NeverReady));
    scene.until("it is told", |_| stranger.rejected() == Some(14));
    drop(stranger);
    scene.all_gone();
    scene.neighbour_is_served();
}

#[test]
fn a_socket_of_another_kind_may_knock_and_harms_nobody() {
    let mut scene = Scene::new();
    let kinds =
        [zmq::PAIR, zmq::PUB, zmq::SUB, zmq::REQ, zmq::REP, zmq::PULL, zmq::PUSH, zmq::ROUTER, zmq::STREAM];
    let sockets: Vec<zmq::Socket> = kinds
        .into_iter()
        .map(|kind| {
            let socket = scene.context.socket(kind).unwrap();
            socket.set_linger(0).unwrap();
            socket.connect(scene.endpoint.as_str()).unwrap();
            // Most kinds cannot send, or only to somebody they know.
            let _ = socket.send(hello("knocks").hello().remove(0), zmq::DONTWAIT);
            socket
        })
        .collect();
    // A REQ puts an empty frame before what it says.
    scene.until("the REQ is fenced", |scene| scene.snapshot().fenced_open == 1);
    scene.neighbour_is_served();
    drop(sockets);
    scene.all_gone();
    assert_eq!(scene.snapshot().counters.protocol_errors, 1);
}
