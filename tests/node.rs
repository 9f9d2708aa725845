//! The node example as a black box, by its flags, its lines and signals: what an operator and a foreign program see.
//! Processes are really frozen, killed and restarted here, so the longest of these tests take some 20 s.
#![allow(clippy::disallowed_methods, reason = "real processes take real time")]

#[path = "node/fanout.rs"]
mod fanout;
#[path = "node/mesh.rs"]
mod mesh;
#[path = "node/process.rs"]
mod process;
mod support;

use std::process::Command;
use std::time::Instant;

use process::{Node, binary, text};
use rustix::process::Signal;
use serde_json::{Value, json};
use support::{ms, pass_all, s, settle, until};
use wakeful::{LostReason, Owned};

/// No line about this peer, or by any other, speaks of trouble.
fn untroubled(node: &Node, but: &str) -> bool {
    ["missed", "lost", "refused"].iter().all(|event| node.all(event).iter().all(|line| line["rid"] == but))
}

/// None of them was told of any trouble.
fn all_untroubled(peers: &[Node]) -> bool {
    peers.iter().all(|peer| untroubled(peer, ""))
}

/// How often it slept for longer than the deadline. A busy machine may add short stalls.
fn long_stalls(node: &Node) -> usize {
    node.all("stall").iter().filter(|line| line["unwatched_ms"].as_u64() > Some(13_000)).count()
}

fn clients(count: usize, endpoint: &str) -> Vec<Node> {
    (1..=count).map(|n| Node::client(&format!("client-{n}"), endpoint, "--request hi --every 250")).collect()
}

/// Waits until the server and all of these have met.
fn meet(server: &mut Node, peers: &mut [Node]) {
    for peer in peers.iter_mut() {
        peer.next("ready");
    }
    for n in 1..=peers.len() {
        let rid = format!("client-{n}");
        if !server.all("ready").iter().any(|line| line["rid"] == rid) {
            server.next_about("ready", &rid);
        }
    }
}

// ---- Flags, lines, commands ----

#[test]
fn bad_flags_get_one_line_that_says_what_and_why_and_exit_2() {
    let cases = [
        ("", "subcommand"),
        ("ring --ring r", "ring"),
        ("server", "--channel"),
        ("server --channel c --bind tcp://localhost:5555", "literal IP address"),
        ("server --channel c --bind udp://127.0.0.1:5555", "tcp:// or ipc://"),
        ("server --channel c --bind tcp://127.0.0.1:0 --generation 0", "zero"),
        ("server --channel c --bind tcp://127.0.0.1:0 --generation x", "whole number"),
        ("server --channel c --bind tcp://127.0.0.1:0 --for 0", "1.."),
        ("server --channel c --bind tcp://127.0.0.1:0 --report 0", "1.."),
        ("server --channel c --bind tcp://127.0.0.1:0 --flood", "--request"),
        ("server --channel c --bind tcp://127.0.0.1:0 --echoes", "--echoes"),
        ("client --channel c", "--connect"),
        ("client --channel c --connect tcp://127.0.0.1:0", "wildcard"),
        ("client --channel c --connect tcp://127.0.0.1:1 --every 5", "--request"),
        ("client --channel c --connect tcp://127.0.0.1:1 --timeout 0 --request x", "1.."),
        ("client --channel c --connect tcp://127.0.0.1:1 --connect tcp://127.0.0.1:1", "named twice"),
        ("mesh --mesh m", "--rid"),
        ("mesh --mesh= --rid r", "empty"),
        ("mesh --mesh m --rid r --generation 0", "zero"),
        ("mesh --mesh m --rid r --bind tcp://127.0.0.1:0", "--bind-completion"),
        ("mesh --mesh m --rid r --bind-completion tcp://127.0.0.1:0", "--bind <EP>"),
        ("mesh --mesh m --rid r --bind tcp://0.0.0.0:0 --bind-completion tcp://0.0.0.0:0", "dialled"),
        ("mesh --mesh m --rid r --connect tcp://127.0.0.1:1 --connect tcp://127.0.0.1:1", "named twice"),
        ("mesh --mesh m --rid r --serve =1", "empty"),
        ("mesh --mesh m --rid r --serve c=10001", "10000"),
        ("mesh --mesh m --rid r --serve c=many", "whole number"),
        ("mesh --mesh m --rid r --serve c --serve c=1", "twice"),
        ("mesh --mesh m --rid r --role boss", "none, client, server"),
        ("mesh --mesh m --rid r --send c", "a channel, a = and a text"),
        ("mesh --mesh m --rid r --request =text", "empty"),
        ("mesh --mesh m --rid r --every 5", "--request"),
        ("mesh --mesh m --rid r --flood", "--send or --request"),
        ("publisher --channel c", "--bind"),
        ("publisher --channel= --bind tcp://127.0.0.1:0", "empty"),
        ("publisher --channel c --bind tcp://127.0.0.1:0 --publish EUR", "a topic, a = and a text"),
        ("publisher --channel c --bind tcp://127.0.0.1:0 --publish \x01ZLF1=text", "reserved"),
        ("publisher --channel c --bind tcp://127.0.0.1:0 --every 5", "--publish"),
        ("publisher --channel c --bind tcp://127.0.0.1:0 --flood", "--publish"),
        ("subscriber --channel c", "--connect"),
        ("subscriber --channel c --connect tcp://127.0.0.1:1 --subscribe \x01ZLF1", "reserved"),
        ("subscriber --channel c --connect tcp://127.0.0.1:1 --flood", "--publish"),
        ("subscriber --channel c --connect tcp://127.0.0.1:1 --connect tcp://127.0.0.1:1", "named twice"),
    ];
    for (flags, why) in cases {
        let output = Command::new(binary()).args(flags.split_whitespace()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{flags}: {said}");
        assert!(output.stdout.is_empty(), "{flags}");
        assert_eq!(said.lines().count(), 1, "{flags}: {said}");
        assert!(said.starts_with("error: ") && said.contains(why), "{flags}: {said}");
    }
}

#[test]
fn an_endpoint_that_is_taken_is_one_line_and_exit_1() {
    let (_first, endpoint) = Node::server("");
    let mut second = Node::start(&format!("server --channel orders --bind {endpoint}"));
    assert_eq!(second.end().code(), Some(1));
    let said = second.complaint();
    assert!(said.contains(&endpoint), "{said}");
}

#[test]
fn a_server_and_a_client_tell_their_whole_life_in_lines() {
    let (mut server, endpoint) = Node::server("--echo --generation 7");
    let mut client = Node::client("trader", &endpoint, "--request hello --every 100");
    assert_eq!(client.next("completed")["parts"], json!(["hello"]));
    assert_eq!(client.next("completed")["outcome"], "Reply");
    client.command("stop");
    assert!(client.end().success());
    let lost = server.next("lost");
    assert_eq!((&lost["reason"], &lost["rid"]), (&json!("Orderly"), &json!("trader")));
    server.command("stop");
    assert!(server.end().success());

    let shape = |node: &Node| {
        let told = node.seen.iter().filter(|line| line["event"] != "completed" && line["event"] != "request");
        told.map(|line| text(&line["event"])).collect::<Vec<_>>()
    };
    assert_eq!(shape(&server), ["listening", "admitted", "ready", "lost", "stopped"]);
    assert_eq!(shape(&client), ["admitted", "ready", "lost", "stopped"]);
    let requests = server.all("request");
    assert!(requests.len() >= 2);
    for line in server.seen.iter().filter(|line| line["event"] != "stopped") {
        assert_eq!((&line["topology"], &line["name"]), (&json!("ClientServer"), &json!("orders")), "{line}");
        assert!(line["rid"].is_string(), "{line}");
    }
    for node in [&server, &client] {
        let times: Vec<u64> = node.seen.iter().map(|line| line["at_ms"].as_u64().unwrap()).collect();
        assert!(times.is_sorted(), "{times:?}");
    }
}

#[test]
fn commands_act_on_the_node_and_a_wrong_one_gets_a_line_on_standard_error() {
    let (mut server, endpoint) = Node::server("--echo");
    let mut client = Node::client("trader", &endpoint, "--request hello --every 100");
    client.next("completed");

    server.command("snapshot");
    let seen = server.next("snapshot");
    assert_eq!(seen["host"], "Serving");
    assert_eq!(seen["servers"][0]["endpoint"], endpoint);
    assert_eq!(
        (&seen["connections"][0]["rid"], &seen["connections"][0]["state"]),
        (&json!("trader"), &json!("Ready"))
    );
    client.command("snapshot");
    let seen = client.next("snapshot");
    assert_eq!(
        (&seen["intents"][0]["state"], &seen["intents"][0]["endpoint"]),
        (&json!("Ready"), &json!(endpoint))
    );

    server.command("weight orders 0");
    assert!(client.complaint().contains("nobody serves the channel"));
    server.command("weight orders 10");
    client.watch(0.5);
    client.next("completed");
    server.command("drain");
    assert!(client.complaint().contains("nobody serves the channel"));
    server.command("snapshot");
    assert_eq!(server.next("snapshot")["host"], "Draining");
    assert!(server.all("lost").is_empty(), "draining keeps connections");

    for (command, why) in [
        ("weight orders 10001", "10000"),
        ("weight orders many", "many"),
        ("weight nobody 1", "nobody"),
        ("weight orders", "no such command"),
        ("dance", "no such command"),
    ] {
        server.command(command);
        let said = server.complaint();
        assert!(said.contains(why), "{command}: {said}");
    }
}

#[test]
fn a_paused_server_sets_requests_aside_and_answers_them_when_it_runs_again() {
    let (mut server, endpoint) = Node::server("--echo");
    let mut client = Node::client("trader", &endpoint, "--request hello --every 100");
    client.next("completed");
    server.command("pause");
    server.command("snapshot");
    assert_eq!(server.next("snapshot")["pressure"], "Paused");
    client.watch(0.5);
    let answered = client.all("completed").len();
    client.watch(1.0);
    assert_eq!(client.all("completed").len(), answered, "nothing is handled while it is paused");
    server.command("run");
    for _ in 0..10 {
        assert_eq!(client.next_within(1.0, "completed", |_| true)["outcome"], "Reply");
    }
    assert!(all_untroubled(&[server, client]));
}

#[test]
fn sigint_and_sigterm_stop_in_order() {
    for signal in [Signal::INT, Signal::TERM] {
        let (mut server, endpoint) = Node::server("");
        let mut client = Node::client("trader", &endpoint, "");
        client.next("ready");
        server.next("ready");
        server.signal(signal);
        assert!(server.end().success());
        assert_eq!(server.seen.last().unwrap()["event"], "stopped");
        assert_eq!(client.next("lost")["reason"], "Orderly");
        client.signal(signal);
        assert!(client.end().success());
        assert_eq!(client.seen.last().unwrap()["event"], "stopped");
    }
}

#[test]
fn a_node_ends_after_its_time_and_reports_in_between() {
    let mut node = Node::start("server --channel c --bind tcp://127.0.0.1:0 --for 2 --report 200");
    assert!(node.end().success());
    let reports = node.all("snapshot").len();
    assert!((5..=10).contains(&reports), "{reports} reports in 2 s");
    let stopped = node.seen.last().unwrap()["at_ms"].as_u64().unwrap();
    assert!((2000..3000).contains(&stopped), "stopped at {stopped}");
}

#[test]
fn a_request_that_nobody_answers_is_completed_by_its_time_out() {
    let mut server = Node::start("server --channel orders --bind tcp://127.0.0.1:0 --rid gateway");
    let endpoint = text(&server.next("listening")["endpoint"]);
    let mut client = Node::client("trader", &endpoint, "--request hello --every 100 --timeout 300");
    assert_eq!(client.next("completed")["outcome"], "NotConfigured", "a server without --echo declines");
    server.signal(Signal::STOP);
    client.next_within(5.0, "completed", |line| line["outcome"] == "TimedOut");
    server.signal(Signal::CONT);
    client.next_within(5.0, "completed", |line| line["outcome"] == "NotConfigured");
}

#[test]
fn beside_a_flood_and_behind_a_slow_handler_a_quiet_client_is_served() {
    let (mut server, endpoint) = Node::server("--echo --slow 1");
    let mut quiet = Node::client("quiet", &endpoint, "--request hi --every 100");
    quiet.next("completed");
    let mut flood = Node::client("flood", &endpoint, "--request noise --flood");
    flood.next("completed");
    for _ in 0..10 {
        assert_eq!(quiet.next_within(2.0, "completed", |_| true)["outcome"], "Reply");
    }
    flood.command("snapshot");
    let waiting = flood.next("snapshot")["requests"].as_u64().unwrap();
    assert!(waiting > 500, "the flood is one: {waiting} requests wait");
    server.catch_up();
    assert!(untroubled(&server, "") && untroubled(&quiet, "") && untroubled(&flood, ""));
}

// ---- Freezing and killing ----

#[test]
fn a_frozen_client_is_warned_of_and_judged_while_the_others_never_waver() {
    let (mut server, endpoint) = Node::server("--echo");
    let mut peers = clients(4, &endpoint);
    meet(&mut server, &mut peers);
    // Each has answered once.
    server.watch(1.0);
    peers[3].signal(Signal::STOP);
    let frozen = Instant::now();
    let about = |line: &Value| line["rid"] == "client-4";
    let first = server.next_within(11.0, "missed", about);
    let second = server.next_within(6.0, "missed", about);
    let lost = server.next_within(6.0, "lost", about);
    // Its last answer came up to 5 s before it froze.
    assert!((9.5..16.0).contains(&frozen.elapsed().as_secs_f64()), "judged after {:?}", frozen.elapsed());
    assert_eq!((&first["asks"], &second["asks"]), (&json!(1), &json!(2)));
    assert_eq!(lost["reason"], "NoAnswer");
    let at = |line: &Value| line["at_ms"].as_u64().unwrap();
    assert!((4_500..6_500).contains(&(at(&lost) - at(&first))), "{first} {lost}");

    peers[3].signal(Signal::CONT);
    let stall = peers[3].next("stall");
    assert!(stall["unwatched_ms"].as_u64().unwrap() > 8_000, "{stall}");
    assert_eq!(peers[3].next("lost")["reason"], "notAdmitted");
    peers[3].next("ready");
    server.next_about("ready", "client-4");
    assert!(untroubled(&server, "client-4"));
    for peer in &mut peers[..3] {
        peer.catch_up();
        assert!(untroubled(peer, ""));
        assert!(peer.all("completed").len() > 30, "served all the while");
        assert!(peer.all("completed").iter().all(|line| line["outcome"] == "Reply"));
    }
}

/// CASES 2, in real time and just longer than the deadline.
#[test]
fn a_server_frozen_past_the_deadline_accuses_nobody_and_its_eight_peers_come_back() {
    let (mut server, endpoint) = Node::server("--echo");
    let mut peers = clients(8, &endpoint);
    meet(&mut server, &mut peers);
    let before = server.seen.len();
    server.signal(Signal::STOP);
    // Its peers were awake and watched it: they may judge, and do.
    for peer in &mut peers {
        assert_eq!(peer.next_within(17.0, "lost", |_| true)["reason"], "NoAnswer");
    }
    peers[0].watch(2.0);
    server.signal(Signal::CONT);
    for peer in &mut peers {
        peer.next_within(6.0, "ready", |_| true);
    }
    server.watch(6.0);
    let since = &server.seen[before..];
    assert_eq!(long_stalls(&server), 1);
    let reasons = since.iter().filter(|line| line["event"] == "lost").map(|line| text(&line["reason"]));
    assert!(reasons.clone().all(|reason| reason == "Transport"), "{:?}", reasons.collect::<Vec<_>>());
    assert!(!since.iter().any(|line| line["event"] == "missed"), "{since:#?}");
    server.command("snapshot");
    let seen = server.next("snapshot");
    let connections = seen["connections"].as_array().unwrap();
    assert_eq!(connections.len(), 8);
    assert!(connections.iter().all(|each| each["state"] == "Ready"), "{seen:#}");
}

#[test]
fn all_of_them_asleep_past_the_deadline_lose_nobody() {
    let (mut server, endpoint) = Node::server("--echo");
    let mut peers = clients(3, &endpoint);
    meet(&mut server, &mut peers);
    server.signal(Signal::STOP);
    for peer in &peers {
        peer.signal(Signal::STOP);
    }
    server.watch(17.0);
    // Those that wake first see one that still sleeps.
    for peer in &peers {
        peer.signal(Signal::CONT);
    }
    server.signal(Signal::CONT);
    server.watch(6.0);
    assert!(untroubled(&server, ""), "{:#?}", server.seen);
    assert_eq!(long_stalls(&server), 1);
    for peer in &mut peers {
        peer.next("completed");
        assert_eq!(long_stalls(peer), 1);
    }
    assert!(all_untroubled(&peers));
}

#[test]
fn a_client_frozen_for_less_than_the_deadline_costs_nothing() {
    let (mut server, endpoint) = Node::server("--echo");
    let mut peers = clients(2, &endpoint);
    meet(&mut server, &mut peers);
    peers[1].signal(Signal::STOP);
    server.watch(7.0);
    peers[1].signal(Signal::CONT);
    peers[1].next("stall");
    server.watch(6.0);
    assert!(server.all("lost").is_empty(), "{:#?}", server.seen);
    peers[1].next("completed");
    peers[0].catch_up();
    assert!(all_untroubled(&peers));
}

#[test]
fn a_killed_client_is_lost_at_once_and_its_successor_takes_its_place() {
    let (mut server, endpoint) = Node::server("--echo");
    let mut peers = clients(3, &endpoint);
    meet(&mut server, &mut peers);
    let killed = Instant::now();
    peers[2].signal(Signal::KILL);
    let lost = server.next_within(5.0, "lost", |_| true);
    assert!(killed.elapsed() < s(1), "lost after {:?}", killed.elapsed());
    assert_eq!((&lost["reason"], &lost["rid"]), (&json!("Transport"), &json!("client-3")));
    peers[2] = Node::client("client-3", &endpoint, "--request hi --every 250");
    assert_eq!(peers[2].next("completed")["outcome"], "Reply");
    server.next_about("ready", "client-3");
    assert!(untroubled(&server, "client-3"));
    for peer in &mut peers {
        peer.catch_up();
    }
    assert!(all_untroubled(&peers));
}

#[test]
fn a_killed_server_is_lost_at_once_and_found_again_when_it_is_back() {
    let (server, endpoint) = Node::server("--echo");
    let mut client = Node::client("trader", &endpoint, "--request hi --every 100");
    client.next("completed");
    let killed = Instant::now();
    server.signal(Signal::KILL);
    assert_eq!(client.next("lost")["reason"], "Transport");
    assert!(killed.elapsed() < s(1), "lost after {:?}", killed.elapsed());
    assert_eq!(client.next("refused")["reason"], "Unreachable");
    drop(server);
    let mut server = Node::start(&format!("server --channel orders --bind {endpoint} --rid gateway --echo"));
    server.next("listening");
    client.next("ready");
    client.next_within(5.0, "completed", |line| line["outcome"] == "Reply");
}

fn everyone<'a>(
    server: &'a mut support::Node,
    clients: &'a mut [support::Node],
) -> Vec<&'a mut support::Node> {
    std::iter::once(server).chain(clients).collect()
}

/// CASES 2 in virtual time: the server's process stands still for 60 s, its peers go on.
#[test]
fn a_server_that_stood_still_for_a_minute_passes_no_verdict_on_eight_healthy_peers() {
    let (mut server, endpoint) = support::Node::server("server");
    let mut clients: Vec<_> =
        (1..=8).map(|n| support::Node::client(&format!("client-{n}"), &endpoint)).collect();
    until(&mut everyone(&mut server, &mut clients), "all ready", |nodes| nodes[0].ready_peers() == 8);
    settle(&mut everyone(&mut server, &mut clients));
    server.events();

    let mut peers: Vec<&mut support::Node> = clients.iter_mut().collect();
    pass_all(&mut peers, s(60), s(1));
    for client in &mut clients {
        let lost = |event: &Owned| matches!(event, Owned::Lost { reason: LostReason::Silence(_), .. });
        assert!(client.events().iter().any(lost), "its peers were awake, and judged it");
    }
    server.pass(s(60));
    pass_all(&mut everyone(&mut server, &mut clients), s(5), ms(250));
    assert_eq!(server.ready_peers(), 8);
    let events = server.events();
    let stalls: Vec<_> = events.iter().filter(|event| matches!(event, Owned::Stalled { .. })).collect();
    assert_eq!(stalls, [&Owned::Stalled { unwatched: s(59) }]);
    assert_eq!(server.engine.snapshot().stalls, 1);
    for event in &events {
        match event {
            Owned::Lost { reason, .. } => assert_eq!(*reason, LostReason::Transport, "{event:?}"),
            Owned::Missed { .. } => panic!("{event:?}"),
            _ => {}
        }
    }
}

// ---- A foreign peer ----

#[test]
fn a_plain_dealer_that_speaks_wire_md_lives_a_whole_life() {
    if !Command::new("python3").args(["-c", "import zmq"]).output().is_ok_and(|out| out.status.success()) {
        eprintln!("SKIPPED: no python3 with pyzmq here, so no foreign peer was tried");
        return;
    }
    let (mut server, endpoint) = Node::server("--echo");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/foreign/node_life.py");
    let output = Command::new("python3").args([script, &endpoint]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");

    server.next_within(5.0, "lost", |line| line["reason"] == "Orderly");
    let told: Vec<String> = server
        .seen
        .iter()
        .filter(|line| line["parts"] != json!(["still talking"]))
        .map(|line| text(&line["event"]))
        .collect();
    let life = ["admitted", "ready", "message", "request", "missed", "missed", "lost"];
    let comeback = ["admitted", "ready", "request", "lost"];
    assert_eq!(told, [&["listening"][..], &life[..], &comeback[..]].concat(), "{:#?}", server.seen);
    assert_eq!(server.all("lost")[0]["reason"], "NoAnswer");
    assert_eq!(server.all("request")[0]["parts"], json!(["a", "request"]));
    assert!(server.seen[1..].iter().all(|line| line["rid"] == "python"));
}
