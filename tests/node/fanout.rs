//! `node publisher` and `node subscriber`, by their flags, their lines and signals.

use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::long_stalls;
use crate::process::{Node, text};
use crate::support::s;

/// The next line of this event about this publisher; at most so many seconds from now.
fn next_of(node: &mut Node, seconds: f64, event: &str, endpoint: &str) -> Value {
    node.next_within(seconds, event, |line| line["endpoint"] == endpoint)
}

/// The endpoints of the publishers that it lost.
fn lost(node: &Node) -> Vec<&Value> {
    node.all("publisher_lost").iter().map(|line| &line["endpoint"]).collect()
}

#[test]
fn a_publisher_and_its_subscribers_tell_their_whole_life_in_lines() {
    let (mut publisher, endpoint) = Node::publisher("--publish EUR/USD=1.1=x --every 50");
    let mut wants_it = Node::subscriber(&[&endpoint], "--subscribe USD --subscribe EUR");
    let mut wants_all = Node::subscriber(&[&endpoint], "--subscribe=");
    let mut wants_another = Node::subscriber(&[&endpoint], "--subscribe EUR/USDT");
    let mut wants_none = Node::subscriber(&[&endpoint], "");
    for subscriber in [&mut wants_it, &mut wants_all] {
        let heard = subscriber.next("published");
        assert_eq!((&heard["topic"], &heard["parts"]), (&json!("EUR/USD"), &json!(["1.1=x"])));
        subscriber.next("published");
    }
    // Their first valid record is the beacon.
    wants_another.next("publisher_ready");
    wants_none.next("publisher_ready");
    publisher.command("stop");
    assert!(publisher.end().success());
    let told = |node: &Node| node.seen.iter().map(|line| text(&line["event"])).collect::<Vec<_>>();
    assert_eq!(told(&publisher), ["listening", "stopped"]);
    for mut subscriber in [wants_it, wants_all, wants_another, wants_none] {
        assert_eq!(subscriber.next("publisher_lost")["reason"], "Transport");
        assert_eq!(subscriber.next("refused")["reason"], "Unreachable");
        subscriber.command("stop");
        assert!(subscriber.end().success());
        let mut life = told(&subscriber);
        life.dedup();
        life.retain(|event| event != "published");
        assert_eq!(life, ["publisher_ready", "publisher_lost", "refused", "stopped"]);
        for line in subscriber.seen.iter().filter(|line| line["event"] != "stopped") {
            let who = [&line["topology"], &line["name"], &line["rid"], &line["endpoint"]];
            assert_eq!(who, [&json!("Fanout"), &json!("ticks"), &json!(null), &json!(endpoint)], "{line}");
        }
    }
}

#[test]
fn a_topic_that_only_begins_like_the_reserved_one_is_published_and_heard() {
    let (_publisher, endpoint) = Node::publisher("--publish \x01ZLF1/EUR=1.1 --every 50");
    let mut subscriber = Node::subscriber(&[&endpoint], "--subscribe \x01ZLF1/");
    assert_eq!(subscriber.next("published")["topic"], "\x01ZLF1/EUR");
}

#[test]
fn snapshots_show_publishers_and_sources_and_other_commands_are_refused() {
    let (mut publisher, endpoint) = Node::publisher("--publish EUR=1.1 --every 50");
    let mut subscriber = Node::subscriber(&[&endpoint], "--subscribe EUR");
    subscriber.next("published");
    publisher.command("snapshot");
    assert_eq!(publisher.next("snapshot")["publishers"], json!([{ "name": "ticks", "endpoint": endpoint }]));
    subscriber.command("snapshot");
    let seen = subscriber.next("snapshot");
    let source = &seen["sources"][0];
    assert_eq!((&source["endpoint"], &source["state"]), (&json!(endpoint), &json!("Ready")));
    assert_eq!((&source["topology"], &source["rid"]), (&json!("Fanout"), &json!(null)));
    assert!(source["last_received_ms"].as_u64().is_some_and(|age| age < 5_500), "{source}");
    assert_eq!(seen["intents"][0]["state"], "Ready");
    for node in [&mut publisher, &mut subscriber] {
        for command in ["drain", "pause", "run", "weight ticks 1"] {
            node.command(command);
            let said = node.complaint();
            assert!(said.starts_with(command) && said.contains("snapshot and stop"), "{said}");
        }
    }
}

#[test]
fn beside_a_flood_and_behind_a_slow_handler_another_publisher_is_heard() {
    let (_flood, loud) = Node::publisher("--publish noise=x --flood");
    let (_other, quiet) = Node::publisher("--publish quiet=hush --every 200");
    let mut subscriber = Node::subscriber(&[&loud, &quiet], "--subscribe noise --subscribe quiet --slow 1");
    for _ in 0..10 {
        let heard = next_of(&mut subscriber, 5.0, "published", &quiet);
        assert_eq!(heard["topic"], "quiet");
    }
    let noise = subscriber.all("published").iter().filter(|line| line["endpoint"] == loud).count();
    assert!(noise > 200, "the flood is one: {noise} records of it");
    assert!(lost(&subscriber).is_empty());
}

// ---- Freezing and killing ----

/// One publisher and one of two subscribers sleep at the same time, longer than the deadline.
#[test]
fn a_frozen_publisher_is_lost_alone_and_a_subscriber_that_slept_too_accuses_nobody() {
    let (frozen, silent) = Node::publisher("");
    let (_other, alive) = Node::publisher("--publish EUR=1.1 --every 250");
    let mut awake = Node::subscriber(&[&silent, &alive], "--subscribe EUR");
    let mut asleep = Node::subscriber(&[&silent, &alive], "--subscribe EUR");
    for subscriber in [&mut awake, &mut asleep] {
        next_of(subscriber, 10.0, "publisher_ready", &silent);
        subscriber.next("published");
    }
    let since = Instant::now();
    frozen.signal(Signal::STOP);
    asleep.signal(Signal::STOP);
    let line = awake.next_within(20.0, "publisher_lost", |_| true);
    assert_eq!((&line["reason"], &line["endpoint"]), (&json!("NoRecord"), &json!(silent)));
    // Its last beacon came up to 5 s before it froze.
    assert!((9.5..16.5).contains(&since.elapsed().as_secs_f64()), "judged after {:?}", since.elapsed());
    awake.watch((s(17).saturating_sub(since.elapsed())).as_secs_f64());
    asleep.catch_up();
    let before = asleep.all("published").len();
    frozen.signal(Signal::CONT);
    asleep.signal(Signal::CONT);
    next_of(&mut awake, 12.0, "publisher_ready", &silent);
    assert_eq!(lost(&awake), [&json!(silent)]);
    let times: Vec<u64> = awake.all("published").iter().map(|line| line["at_ms"].as_u64().unwrap()).collect();
    assert!(times.len() > 30 && times.windows(2).all(|pair| pair[1] - pair[0] < 2_000), "{times:?}");

    // Longer than an interval, so that it has heard everybody again.
    asleep.watch(6.0);
    assert!(lost(&asleep).is_empty(), "{:?}", lost(&asleep));
    assert_eq!(long_stalls(&asleep), 1);
    assert!(asleep.all("published").len() > before + 30);
}

#[test]
fn a_killed_publisher_is_lost_at_once_and_heard_again_when_it_is_back() {
    let (publisher, endpoint) = Node::publisher("--publish EUR=1.1 --every 100");
    let mut subscriber = Node::subscriber(&[&endpoint], "--subscribe EUR");
    subscriber.next("published");
    let killed = Instant::now();
    publisher.signal(Signal::KILL);
    assert_eq!(subscriber.next("publisher_lost")["reason"], "Transport");
    assert!(killed.elapsed() < s(1), "lost after {:?}", killed.elapsed());
    drop(publisher);
    let mut again =
        Node::start(&format!("publisher --channel ticks --bind {endpoint} --publish EUR=1.2 --every 100"));
    again.next("listening");
    subscriber.next("publisher_ready");
    assert_eq!(subscriber.next("published")["parts"], json!(["1.2"]));
}

#[test]
fn subscribers_that_are_killed_harm_neither_the_publisher_nor_each_other() {
    let (mut publisher, endpoint) = Node::publisher("--publish EUR=1.1 --every 50");
    let mut steady = Node::subscriber(&[&endpoint], "--subscribe EUR");
    steady.next("published");
    for _ in 0..5 {
        let mut victim = Node::subscriber(&[&endpoint], "--subscribe EUR");
        victim.next("published");
        victim.signal(Signal::KILL);
    }
    publisher.command("snapshot");
    publisher.next("snapshot");
    steady.watch(0.5);
    let times: Vec<u64> =
        steady.all("published").iter().map(|line| line["at_ms"].as_u64().unwrap()).collect();
    assert!(times.len() > 5 && times.windows(2).all(|pair| pair[1] - pair[0] < 1_000), "{times:?}");
    assert!(lost(&steady).is_empty());
}

/// What a flood left in the queues of a frozen subscriber is read when it wakes, and nobody else waits for it.
#[test]
fn a_subscriber_that_freezes_before_a_flood_delays_no_other_and_wakes_without_a_loss() {
    let (_publisher, endpoint) = Node::publisher("--publish EUR=1.1 --flood");
    let [mut awake, mut asleep] =
        [(); 2].map(|()| Node::subscriber(&[&endpoint], "--subscribe EUR --slow 5"));
    asleep.next("published");
    asleep.signal(Signal::STOP);
    awake.next("published");
    awake.catch_up();
    let before = awake.all("published").len();
    awake.watch(2.0);
    let heard = awake.all("published").len() - before;
    assert!(heard > 100, "{heard} records in 2 s, each handled for 5 ms");
    asleep.catch_up();
    asleep.signal(Signal::CONT);
    asleep.next("published");
    asleep.watch(0.5);
    assert!(lost(&awake).is_empty() && lost(&asleep).is_empty());
}
