//! `node mesh`, by its flags, its lines and signals.

use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::process::{Node, text};
use crate::support::s;

const ANY: &str = "tcp://127.0.0.1:0";

/// A node of mesh `lobby` that listens; returns where it takes application lanes too.
fn listens(rid: &str, more: &str) -> (Node, String) {
    listens_at(ANY, rid, more)
}

fn listens_at(bind: &str, rid: &str, more: &str) -> (Node, String) {
    let flags = format!("--rid {rid} --bind {bind} --bind-completion {ANY} {more}");
    let mut node = Node::start(&format!("mesh --mesh lobby {flags}"));
    let endpoint = text(&node.next("listening")["endpoint"]);
    (node, endpoint)
}

/// A node of that mesh that only dials.
fn dials(rid: &str, endpoints: &[&str], more: &str) -> Node {
    let connects = endpoints.join(" --connect ");
    Node::start(&format!("mesh --mesh lobby --rid {rid} --connect {connects} {more}"))
}

/// The next answer that carries this text; at most 5 s from now.
fn next_answer(node: &mut Node, text: &str) {
    node.next_within(5.0, "completed", |line| line["outcome"] == "Reply" && line["parts"] == json!([text]));
}

/// About whom it has been told this so far.
fn told(node: &Node, event: &str) -> Vec<String> {
    node.all(event).iter().map(|line| text(&line["rid"])).collect()
}

#[test]
fn two_nodes_tell_their_whole_life_in_lines() {
    let (mut a, endpoint) = listens("a", "--serve matches --serve scores=5 --echo --generation 7");
    let mut b = dials("b", &[&endpoint], "--request matches=who=plays --send scores=3:1 --every 100");
    next_answer(&mut b, "who=plays");
    let message = a.next("message");
    assert_eq!((&message["channel"], &message["parts"]), (&json!("scores"), &json!(["3:1"])));
    b.command("stop");
    assert!(b.end().success());
    let lost = a.next("lost");
    assert_eq!((&lost["reason"], &lost["rid"]), (&json!("Orderly"), &json!("b")));
    a.command("stop");
    assert!(a.end().success());

    let listening = &a.seen[0];
    let completion = text(&listening["completion"]);
    assert!(completion.starts_with("tcp://127.0.0.1:") && completion != endpoint, "{listening}");
    let request = a.all("request")[0];
    assert_eq!((&request["channel"], &request["parts"]), (&json!("matches"), &json!(["who=plays"])));
    let life = |node: &Node| {
        let told = node.seen.iter().map(|line| text(&line["event"]));
        told.filter(|event| !["message", "request", "completed"].contains(&event.as_str()))
            .collect::<Vec<_>>()
    };
    assert_eq!(life(&a), ["listening", "admitted", "ready", "lost", "stopped"]);
    assert_eq!(life(&b), ["admitted", "ready", "lost", "stopped"]);
    for (node, own, peer) in [(&a, "a", "b"), (&b, "b", "a")] {
        for line in node.seen.iter().filter(|line| line["event"] != "stopped" && line["event"] != "completed")
        {
            let rid = if line["event"] == "listening" { own } else { peer };
            let who = [&line["topology"], &line["name"], &line["rid"]];
            assert_eq!(who, [&json!("RouteMesh"), &json!("lobby"), &json!(rid)], "{line}");
        }
    }
}

#[test]
fn three_nodes_share_a_channel_by_weight_and_a_snapshot_shows_them() {
    let (mut a, at_a) = listens("a", "--serve matches --echo");
    let (mut b, at_b) = listens("b", &format!("--serve matches --echo --connect {at_a}"));
    let mut c = dials("c", &[&at_a, &at_b], "--request matches=hi --every 20");
    for node in [&mut a, &mut b] {
        node.next_about("request", "c");
    }
    c.command("snapshot");
    let seen = c.next("snapshot");
    let mesh = &seen["meshes"][0];
    assert_eq!((&mesh["name"], &mesh["endpoint"]), (&json!("lobby"), &json!(null)), "{mesh}");
    let node = |rid: &str| json!({ "rid": rid, "ready": true, "dialler": null });
    let mut nodes: Vec<Value> = mesh["nodes"].as_array().unwrap().clone();
    nodes.sort_by_key(|node| text(&node["rid"]));
    assert_eq!(nodes, [node("a"), node("b")]);
    assert!(seen["intents"].as_array().unwrap().iter().all(|intent| intent["state"] == "Ready"), "{seen:#}");
    assert!(seen["connections"].as_array().unwrap().iter().all(|each| each["topology"] == "RouteMesh"));

    // Of weight 0 there is no share; the connection stays.
    a.command("weight matches 0");
    a.watch(0.5);
    let before = told(&a, "request").len();
    for _ in 0..10 {
        next_answer(&mut c, "hi");
    }
    a.catch_up();
    assert_eq!(told(&a, "request").len(), before);
    assert!(a.all("lost").is_empty() && c.all("lost").is_empty());
    b.command("drain");
    assert!(c.complaint().contains("nobody serves the channel"));
    a.command("weight matches 1");
    a.next_about("request", "c");
}

#[test]
fn two_object_clients_that_serve_nothing_are_not_required_and_one_that_serves_is() {
    let (mut a, at_a) = listens("a", "--role client");
    let mut b = dials("b", &[&at_a], "--role client");
    let refused = b.next("refused");
    assert_eq!((&refused["reason"], &refused["endpoint"]), (&json!("notRequired"), &json!(at_a)));
    b.watch(1.0);
    assert_eq!(b.all("refused").len(), 1, "it is not tried again");
    b.command("snapshot");
    assert_eq!(b.next("snapshot")["intents"][0]["state"], "NotRequired");
    let mut c = dials("c", &[&at_a], "--role client --serve matches");
    c.next_about("ready", "a");
    a.next_about("ready", "c");
    assert_eq!(told(&a, "ready"), ["c"]);
}

/// The flood goes to one node; another one's requests to it are answered all the same.
#[test]
fn beside_a_flood_and_behind_a_slow_handler_another_node_is_served() {
    let (mut a, at_a) = listens("a", "--serve matches --echo --slow 1");
    let mut quiet = dials("quiet", &[&at_a], "--request matches=hi --every 100");
    next_answer(&mut quiet, "hi");
    let _flood = dials("flood", &[&at_a], "--send matches=noise --flood");
    for _ in 0..200 {
        a.next_about("message", "flood");
    }
    quiet.catch_up();
    for _ in 0..10 {
        quiet.next_within(2.0, "completed", |line| line["outcome"] == "Reply");
    }
    a.catch_up();
    assert!(a.all("lost").is_empty() && quiet.all("lost").is_empty());
}

// ---- Freezing and killing ----

#[test]
fn a_node_frozen_for_less_than_the_deadline_costs_nothing() {
    let (mut a, at_a) = listens("a", "--serve matches --echo");
    let (mut b, at_b) = listens("b", &format!("--serve matches --echo --connect {at_a}"));
    let mut c = dials("c", &[&at_a, &at_b], "--request matches=hi --every 100");
    for node in [&mut a, &mut b] {
        node.next_about("request", "c");
    }
    b.signal(Signal::STOP);
    b.catch_up();
    let before = b.all("request").len();
    c.watch(3.0);
    b.signal(Signal::CONT);
    assert!(b.next("stall")["unwatched_ms"].as_u64().is_some_and(|span| (1_000..10_000).contains(&span)));
    b.watch(1.0);
    // What was sent to it meanwhile waited for it, and nothing was sent to another in its place.
    assert!(b.all("request").len() > before + 10);
    c.watch(0.5);
    for node in [&mut a, &mut b, &mut c] {
        node.catch_up();
        assert!(node.all("lost").is_empty() && node.all("refused").is_empty(), "{:#?}", node.seen);
    }
    assert!(c.all("completed").iter().all(|line| line["outcome"] == "Reply"));
}

#[test]
fn a_killed_node_is_lost_at_once_and_comes_back_as_another_generation() {
    let (mut a, at_a) = listens("a", "--serve matches --echo");
    let (b, at_b) = listens("b", &format!("--serve matches=300 --echo --connect {at_a} --generation 1"));
    let mut c = dials("c", &[&at_a, &at_b], "--request matches=hi --every 50");
    c.next_about("ready", "b");
    a.next_about("ready", "b");
    next_answer(&mut c, "hi");
    let killed = Instant::now();
    b.signal(Signal::KILL);
    for node in [&mut a, &mut c] {
        assert_eq!(node.next_about("lost", "b")["reason"], "Transport");
    }
    assert!(killed.elapsed() < s(1), "lost after {:?}", killed.elapsed());
    next_answer(&mut c, "hi");
    drop(b);
    let (mut b, _) =
        listens_at(&at_b, "b", &format!("--serve matches=300 --echo --connect {at_a} --generation 2"));
    for node in [&mut a, &mut c] {
        node.next_about("ready", "b");
        assert_eq!(told(node, "lost"), ["b"], "nobody else was lost");
    }
    b.next_about("request", "c");
    next_answer(&mut c, "hi");
}
