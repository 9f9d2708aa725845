//! Local stall, suspend, clocks: time that nobody watched accuses nobody.

use std::cell::Cell;
use std::time::{Duration, Instant};

use wakeful::{
    CHECK_INTERVAL, Config, DueReason, Endpoint, Engine, Event, LostReason, Outbox, Owned, PEER_DEADLINE,
    SECOND_LOOK, Server, Silence,
};

use crate::proxy::Proxy;
use crate::raw::{ACK, RawClient, check};
use crate::steps::*;
use crate::support::*;

#[test]
fn case_01_a_peer_that_reconnects_while_its_server_stands_still_is_admitted_within_two_turns() {
    let context = zmq::Context::new();
    let (mut server, endpoint) = Node::server("server");
    let bystander = RawClient::enter(&context, &endpoint, &mut server, "bystander");
    let own = zmq::Context::new();
    let dealer = RawClient::enter(&own, &endpoint, &mut server, "dealer");
    dealer.answer();
    bystander.answer();
    settle(&mut [&mut server]);
    server.events();

    dealer.message("old");
    dealer.leave();
    // The end of a context waits until its connections are physically closed.
    drop(own);
    let dealer = RawClient::dial(&context, &endpoint);
    dealer.hello("dealer", 1);

    server.now += s(20);
    // A turn counts from the one that could read the hello; how long TCP took to bring it is not the engine's.
    let is_admitted =
        |node: &Node| node.inbox.events.iter().any(|event| matches!(event, Owned::Admitted { .. }));
    until(&mut [&mut server], "the hello", |nodes| {
        bystander.answer();
        nodes[0].engine.snapshot().unadmitted > 0 || is_admitted(nodes[0])
    });
    if !is_admitted(&server) {
        // The old connection is read out until it was quiet for a moment of real time; the engine asks for a turn then.
        assert_eq!(server.engine.next_due().unwrap().reason, DueReason::ReadOut);
        let begin = Instant::now();
        wait_for("the moment is over", || begin.elapsed() > ms(5));
        server.turn();
    }
    assert!(is_admitted(&server), "in the turn after the hello was read, if not in that one");
    dealer.complete(&mut server);
    dealer.message("new");
    until(&mut [&mut server], "the new message", |nodes| texts(&nodes[0].inbox.events).len() == 2);

    let events = server.events();
    assert_eq!(lost(&events), [("dealer".to_owned(), LostReason::Transport)], "the bystander is not judged");
    assert_eq!(texts(&events), ["old", "new"]);
    let gone = position(&events, |event| matches!(event, Owned::Lost { .. }));
    assert!(position(&events, |event| matches!(event, Owned::Message { .. })) < gone);
    assert!(gone < position(&events, |event| matches!(event, Owned::Admitted { .. })));
    assert_eq!(server.ready_peers(), 2);
}

#[test]
fn case_04_three_hours_asleep_judge_nobody_and_afterwards_a_deadline_is_15_seconds_to_the_millisecond() {
    let (mut server, endpoint) = Node::server("server");
    let mut healthy = Node::client("healthy", &endpoint);
    let mut gone = Node::client("gone", &endpoint);
    let answered = |nodes: &[&mut Node], records| all_served(nodes[0], 2, records);
    until(&mut [&mut server, &mut healthy, &mut gone], "answers", |nodes| answered(nodes, 3));
    server.events();

    server.pass(s(3 * 3600));
    until(&mut [&mut server, &mut healthy, &mut gone], "answers", |nodes| answered(nodes, 4));
    assert_eq!(server.events(), [Owned::Stalled { unwatched: s(3 * 3600 - 1) }]);
    assert_eq!(server.ready_peers(), 2);

    // The ask that was due on waking has been answered, so both have their whole deadline from here on.
    let proved = server.now;
    follow(
        &mut server,
        s(20),
        |server| {
            // Three hours are a whole number of intervals, so the grid goes on from here.
            let asked = (server.now - proved).as_secs() / CHECK_INTERVAL.as_secs();
            until(&mut [server, &mut healthy], "an answer", |nodes| served(nodes[0], "healthy") >= 4 + asked);
        },
        |server| !lost(&server.inbox.events).is_empty(),
    );
    assert_eq!(lost(&server.events()), [("gone".to_owned(), LostReason::Silence(Silence::NoAnswer))]);
    let took = server.now - proved;
    assert!(PEER_DEADLINE <= took && took <= PEER_DEADLINE + SECOND_LOOK, "judged after {took:?}");
}

#[test]
fn case_05_two_hundred_peers_survive_a_ten_minute_jump_with_at_most_one_probe_each() {
    const PEERS: usize = 200;
    let context = zmq::Context::new();
    let (mut server, endpoint) = Node::server("server");
    let peers: Vec<RawClient> = (0..PEERS).map(|_| RawClient::dial(&context, &endpoint)).collect();
    for (number, peer) in peers.iter().enumerate() {
        peer.hello(&format!("peer-{number}"), 1);
        peer.complete(&mut server);
    }
    let answer = |server: &mut Node, records| {
        until(&mut [server], "all answer", |nodes| {
            for peer in &peers {
                peer.answer();
            }
            all_served(nodes[0], PEERS, records)
        });
    };
    answer(&mut server, 3);
    server.pass(s(1));
    server.events();

    server.pass(s(600));
    // Every ask of that turn went out in it. Whatever comes within the next second of real time came from there.
    let mut probes = vec![0; PEERS];
    wait_for("a probe for each", || {
        peers.iter().zip(&mut probes).for_each(|(peer, count)| *count += peer.answer());
        probes.iter().all(|count| *count >= 1)
    });
    assert_eq!(probes, vec![1; PEERS]);
    until(&mut [&mut server], "all answers", |nodes| {
        peers.iter().zip(&mut probes).for_each(|(peer, count)| *count += peer.answer());
        all_served(nodes[0], PEERS, 4)
    });
    assert_eq!(probes, vec![1; PEERS], "and no more follow");

    for round in 1..=4 {
        for _ in 0..5 {
            server.pass(s(1));
        }
        answer(&mut server, 4 + round);
    }
    assert_eq!(server.events(), [Owned::Stalled { unwatched: s(599) }], "no verdict, no reconnect");
    assert_eq!(server.ready_peers(), PEERS);
}

#[test]
fn case_07_a_host_that_comes_back_only_every_four_seconds_calls_nobody_dead() {
    const EACH_TIME: usize = 10_000;
    const ROUNDS: usize = 20;
    let mut server = Node::with(Config { queue_records_max: 10_000, seed: 7, ..Config::default() });
    let bound =
        server.engine.serve(Server::new(channel(), rid("server"), "tcp://127.0.0.1:0".parse().unwrap()));
    let endpoint = Endpoint::try_from(&bound.unwrap()).unwrap();
    let context = zmq::Context::new();
    let busy = RawClient::enter(&context, &endpoint, &mut server, "busy");
    let quiet = RawClient::enter(&context, &endpoint, &mut server, "quiet");

    let (messages, blamed) = (Cell::new(0), Cell::new(0));
    let mut host = |event: Event<'_>, _: &mut Outbox<'_>| match event {
        Event::Message { .. } => messages.set(messages.get() + 1),
        Event::Lost { .. } | Event::Missed { .. } => blamed.set(blamed.get() + 1),
        _ => {}
    };
    for round in 1..=ROUNDS {
        // The answers of the last round lie in time, in front of what now floods the lane.
        busy.answer();
        quiet.answer();
        for _ in 0..EACH_TIME {
            busy.message("x");
        }
        server.now += s(4);
        let begin = Instant::now();
        // A host that keeps the contract: again at once while work is left. What TCP still carries comes by the wait.
        while messages.get() < round * EACH_TIME {
            let report = server.engine.turn_at(server.now, &mut host);
            if !report.work_left {
                server.engine.wait(Some(ms(10)));
            }
            assert!(begin.elapsed() < s(10), "{} of {} came", messages.get(), round * EACH_TIME);
        }
    }
    assert_eq!(
        (messages.get(), blamed.get()),
        (ROUNDS * EACH_TIME, 0),
        "80 s of clock with healthy peers: nobody was even warned of"
    );
    assert_eq!(server.ready_peers(), 2);
    let snapshot = server.engine.snapshot();
    assert_eq!((snapshot.stalls, snapshot.longest_gap), (ROUNDS as u64, s(4)), "the lag is local, and shown");
    assert_eq!(snapshot.unwatched, s(3) * ROUNDS as u32);
}

/// The order of work inside a turn cannot be forced from outside, but what a turn with its timers first would see can: a
/// turn to which the ACK is not yet visible. (The machine itself is forced in `liveness::tests`.)
#[test]
fn case_08_an_ack_that_waits_when_a_stall_ends_counts_even_if_the_timers_look_first() {
    let context = zmq::Context::new();
    let (mut server, endpoint) = Node::server("server");
    let [in_time, unseen, _silent] =
        ["in-time", "unseen", "silent"].map(|name| RawClient::enter(&context, &endpoint, &mut server, name));
    let ids = [&in_time, &unseen].map(|peer| {
        let mut asked = Vec::new();
        until(&mut [&mut server], "an ask", |_| {
            asked.extend(peer.probes());
            !asked.is_empty()
        });
        asked[0]
    });
    follow(&mut server, s(14) + ms(900), |_| (), |_| false);
    assert_eq!(lost(&server.events()), []);

    // One ACK waits in the socket when the stall ends, one is seen only after the turn that finds the deadline over.
    in_time.send(&[&check(ACK, ids[0])]);
    until(&mut [&mut server], "the first ACK has come", |nodes| served(nodes[0], "in-time") == 3);
    server.pass(s(40));
    assert_eq!(lost(&server.events()), [], "the deadline is over, and the first look is no verdict");
    unseen.send(&[&check(ACK, ids[1])]);
    until(&mut [&mut server], "the second ACK has come", |nodes| served(nodes[0], "unseen") == 3);
    server.pass(SECOND_LOOK);
    assert_eq!(lost(&server.events()), [("silent".to_owned(), LostReason::Silence(Silence::NoAnswer))]);
    server.pass(s(1));
    assert_eq!(server.ready_peers(), 2);
}

/// No process can move its own wall clock here, so this stands on two legs: the sources cannot name that clock (as
/// `tests/house.rs` and the lints hold too), and by the one clock they have asks stay on their grid.
#[test]
fn case_10_the_wall_clock_cannot_be_read_and_asks_keep_to_five_seconds() {
    for file in sources(std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))) {
        let text = std::fs::read_to_string(&file).unwrap();
        for clock in ["SystemTime", "UNIX_EPOCH", "clock_gettime", "gettimeofday", "chrono"] {
            assert!(!text.contains(clock), "{} names {clock}", file.display());
        }
    }

    let context = zmq::Context::new();
    let (mut server, endpoint) = Node::server("server");
    let peer = RawClient::enter(&context, &endpoint, &mut server, "peer");
    let began = server.now;
    until(&mut [&mut server], "the first ask", |_| peer.answer() == 1);
    let mut asked = vec![Duration::ZERO];
    for _ in 0..6 {
        // The grid is on the clock: each next ask goes out when the engine said it would.
        let last = asked.len();
        while asked.len() == last {
            let due = server.engine.next_due().unwrap();
            server.now = due.at;
            server.turn();
            if due.reason == DueReason::Ask {
                asked.push(server.now - began);
                wait_for("the ask", || peer.answer() == 1);
            }
            arrive(&mut server, || ());
        }
    }
    for pair in asked.windows(2) {
        let apart = pair[1] - pair[0];
        assert!(apart >= s(5) - ms(100) && apart <= s(5) + ms(100), "{asked:?}");
    }
}

fn sources(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(sources(&path)) } else { files.push(path) }
    }
    files
}

#[test]
fn case_11_a_connection_that_died_while_the_clock_stood_still_is_judged_in_15_seconds_and_redialled_at_once()
{
    let (mut server, endpoint) = Node::server("server");
    let cable = Proxy::to(&endpoint);
    let mut client = Node::client("client", &cable.endpoint);
    meet(&mut server, &mut client);

    // Ten minutes asleep by a clock that stands still: for the engine no time at all. The peer closes meanwhile, unheard.
    cable.cut();
    drop(server);
    let resumed = client.now;
    follow(
        &mut client,
        s(20),
        |client| arrive(client, || ()),
        |client| !lost(&client.inbox.events).is_empty(),
    );
    assert_eq!(lost(&client.events()), [("server".to_owned(), LostReason::Silence(Silence::NoAnswer))]);
    let took = client.now - resumed;
    assert!(took <= PEER_DEADLINE + SECOND_LOOK, "judged after {took:?}");
    assert_eq!(client.engine.snapshot().stalls, 0, "nothing was there to be seen of it");

    let retry = client.engine.next_due().unwrap();
    assert_eq!(retry.reason, DueReason::Retry);
    let wait = retry.at - client.now;
    assert!(wait >= ms(100) && wait < ms(250), "the floor of the back-off, not {wait:?}");
    drop::<Engine>(client.engine);
}
