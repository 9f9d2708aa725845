//! The cases of CASES.md that are about the fanout, each under its number.
#![allow(clippy::disallowed_methods, reason = "these cases measure real time")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use wakeful::{Config, Owned, RouteState, Subscriber};

use crate::support::{Node, ms, s};
use crate::ticks::{PAYLOAD, RawPublisher, RawSubscriber, Record, Stage, TOPIC, publisher_node, ticks};

/// A raw publisher fills the queue of a subscriber that is not turned for 60 s: the process lives, nobody changes state,
/// and both are heard when it is turned again.
#[test]
fn case_13_a_full_queue_and_60_s_without_a_turn_end_no_publisher() {
    let mut stage = Stage::ready(2, &[b""]);
    for number in 0..20_000_u32 {
        stage.raws[0].send(&[&number.to_be_bytes(), &[0; 100]]);
        if number % 2_000 == 0 {
            stage.raws[1].beacon();
            stage.raws[0].beacon();
        }
    }
    stage.node.now += s(60);
    stage.until("the queue read", |stage| !stage.node.turn().work_left && stage.published().len() >= 1_000);
    stage.beats = vec![true, true];
    stage.follow(s(120));
    assert!(stage.is_ready(0) && stage.is_ready(1));
    assert_eq!((stage.lost(), stage.became_ready()), (vec![], vec![]));
    assert_eq!(stage.snapshot().stalls, 1);
}

/// Sends on every socket without a pause, until told to stop.
fn flood(raws: Vec<RawPublisher>) -> (Arc<AtomicBool>, std::thread::JoinHandle<u64>) {
    let stop = Arc::new(AtomicBool::new(false));
    let told = stop.clone();
    let flooding = std::thread::spawn(move || {
        let mut sent = 0;
        while !told.load(Ordering::Relaxed) {
            for raw in &raws {
                raw.send(&[b"flood", &[0; 64]]);
                sent += 1;
            }
        }
        sent
    });
    (stop, flooding)
}

/// What a host that only counts has seen of one turn.
fn most_of_one(events: &[Owned]) -> usize {
    let mut counts = std::collections::HashMap::new();
    for event in events {
        if let Owned::Published { publisher, .. } = event {
            *counts.entry(publisher.endpoint().clone()).or_insert(0) += 1;
        }
    }
    counts.into_values().max().unwrap_or(0)
}

/// Four fifths of the publishers flood. The beacons of the quiet ones are seen in time, nobody is lost, and no flooder gets
/// more than 64 records into one turn. `WAKEFUL_CASE_16="500 300"` runs the whole case: 500 publishers for 5 minutes.
#[test]
fn case_16_the_beacons_of_quiet_publishers_are_seen_beside_many_floods() {
    let whole = std::env::var("WAKEFUL_CASE_16").unwrap_or_else(|_| "100 3".to_owned());
    let (publishers, seconds) = whole.split_once(' ').expect("publishers and seconds");
    let (publishers, span): (usize, _) = (publishers.parse().unwrap(), s(seconds.parse().unwrap()));
    let hot = publishers / 5 * 4;
    let context = zmq::Context::new();
    let mut raws: Vec<_> = (0..publishers).map(|_| RawPublisher::among(&context)).collect();
    let wish = raws.iter().fold(Subscriber::new(ticks()), |wish, raw| wish.publisher(raw.endpoint.clone()));
    let mut node = Node::new();
    node.engine.subscribe(wish.filter(b"flood")).unwrap();
    for raw in &mut raws {
        raw.subscribed(&mut node, 1, ms(0));
    }
    let quiet = raws.split_off(hot);
    let (stop, flooding) = flood(raws);

    let began = Instant::now();
    let (mut longest, mut beacons, mut records) = (Duration::ZERO, 0, 0);
    while began.elapsed() < span {
        let sent = Instant::now();
        quiet.iter().for_each(RawPublisher::beacon);
        let (mut seen, mut turns) = (0, 0);
        while seen < quiet.len() || sent.elapsed() < ms(250) {
            node.now = Instant::now();
            node.turn();
            let events = node.events();
            records += events.len();
            assert!(most_of_one(&events) <= 64);
            assert!(!events.iter().any(|event| matches!(event, Owned::PublisherLost { .. })), "{events:?}");
            assert!(sent.elapsed() < s(10), "{seen} of {} beacons in 10 s", quiet.len());
            turns += 1;
            if turns % 16 != 0 {
                continue;
            }
            let since = |age: Option<Duration>| node.now.checked_sub(age?)?.checked_duration_since(sent);
            let of_quiet: Vec<Duration> = node
                .engine
                .snapshot()
                .sources
                .iter()
                .filter(|each| quiet.iter().any(|raw| raw.endpoint == *each.source.endpoint()))
                .filter_map(|each| since(each.last_received))
                .collect();
            seen = of_quiet.len();
            longest = longest.max(of_quiet.into_iter().max().unwrap_or_default());
        }
        beacons += seen;
    }
    stop.store(true, Ordering::Relaxed);
    let sent = flooding.join().unwrap();
    let snapshot = node.engine.snapshot();
    println!(
        "{publishers} publishers, {hot} flood: {beacons} beacons of the quiet, the slowest after {longest:?}; \
         {records} of {sent} flooded records, {} contexts",
        snapshot.contexts
    );
    assert!(snapshot.intents.iter().all(|intent| intent.state == RouteState::Ready));
    // Far less where the machine has time for it; and never so long that the next one is due.
    assert!(longest < s(5), "a beacon took {longest:?}");
}

/// The queue towards a slow subscriber is full all the time: the fast one gets every beacon all the same, and what the slow
/// one lost can be counted by the numbers it did not get.
#[test]
fn case_19_a_slow_subscriber_costs_the_fast_one_no_beacon() {
    let (mut node, endpoint) = publisher_node();
    let slow = RawSubscriber::new(&endpoint, &[b"flood"], 1);
    let fast = RawSubscriber::new(&endpoint, &[TOPIC, b"end", b"join"], 1_000);
    fast.join(&mut node, b"join");
    slow.join(&mut node, b"flood");
    let (body, mut sent) = (vec![0; 8_192], 0_u32);
    let mut beacons = 0;
    for _ in 0..120 {
        for _ in 0..30 {
            sent += 1;
            node.engine.outbox().publish(&ticks(), b"flood", &[&sent.to_be_bytes(), &body]).unwrap();
        }
        node.pass(ms(500));
        node.engine.outbox().publish(&ticks(), b"end", &[]).unwrap();
        let got = fast.up_to(&[b"end".to_vec()]);
        assert!(got.iter().all(|record| *record == [TOPIC, PAYLOAD]));
        beacons += got.len();
    }
    assert_eq!(beacons, 12);
    let mut got = 0;
    while let Some(record) = slow.take() {
        assert_eq!(record.len(), 3);
        got += 1;
    }
    assert!(0 < got && got < sent, "the slow one has {got} of {sent}");
}

/// The times from a publish to its receipt, in order of size.
fn round(node: &mut Node, healthy: &RawSubscriber) -> Vec<Duration> {
    let body = [0; 1_024];
    let mut times: Vec<Duration> = (0..1_000_u32)
        .map(|number| {
            let began = Instant::now();
            node.engine.outbox().publish(&ticks(), b"t", &[&number.to_be_bytes(), &body]).unwrap();
            let last = [b"t".to_vec(), number.to_be_bytes().to_vec(), body.to_vec()];
            assert_eq!(healthy.up_to(&last), Vec::<Record>::new());
            began.elapsed()
        })
        .collect();
    times.sort();
    times
}

/// One frozen subscriber does not delay a healthy one: the p99 of its latency stays within 20 % of that without the frozen
/// one. A busy machine can spoil a measurement but not make one, so the best of several counts.
#[test]
fn case_23_a_frozen_subscriber_does_not_delay_a_healthy_one() {
    let (mut alone, of_alone) = publisher_node();
    let (mut beside, of_beside) = publisher_node();
    let frozen = RawSubscriber::new(&of_beside, &[b""], 1);
    frozen.join(&mut beside, b"join");
    let healthy = [&of_alone, &of_beside].map(|endpoint| RawSubscriber::new(endpoint, &[b""], 1_000));
    healthy[0].join(&mut alone, b"join");
    healthy[1].join(&mut beside, b"join");
    // The queues of the frozen one are full from here on.
    round(&mut beside, &healthy[1]);
    let mut ratios = Vec::new();
    for _ in 0..20 {
        let [alone, beside] = [round(&mut alone, &healthy[0]), round(&mut beside, &healthy[1])];
        ratios.push(beside[990].as_secs_f64() / alone[990].as_secs_f64());
        if ratios.last().is_some_and(|ratio| *ratio <= 1.2) {
            return;
        }
    }
    panic!("p99 beside a frozen one, as a multiple of that alone: {ratios:?}");
}

/// The numbers of the records in a diary.
fn numbers(stage: &Stage) -> Vec<u32> {
    stage
        .published()
        .iter()
        .map(|(_, record)| u32::from_be_bytes(record[1][..].try_into().unwrap()))
        .collect()
}

/// A subscriber that joins late is ready with its first record, not before, and has every record from there on, in order; a
/// host that sleeps too long finds one gap, which it can count by the publisher's numbers.
#[test]
fn case_52_a_late_subscriber_is_ready_with_a_record_and_misses_none_after_it() {
    let raw = RawPublisher::new();
    let mut number = 0_u32;
    let mut publish = move |raw: &RawPublisher| {
        number += 1;
        raw.send(&[b"t", &number.to_be_bytes(), &[0; 8_192]]);
    };
    for _ in 0..100 {
        publish(&raw);
    }
    let wish = Subscriber::new(ticks()).publisher(raw.endpoint.clone()).filter(b"t");
    let mut node = Node::with(Config { queue_records_max: 500, seed: 1, ..Config::default() });
    node.engine.subscribe(wish).unwrap();
    let mut stage = Stage::with(node, vec![raw]);
    assert!(!stage.is_ready(0));
    stage.until("400 records", |stage| {
        publish(&stage.raws[0]);
        stage.diary.len() > 400
    });
    assert!(matches!(stage.diary[0].1, Owned::PublisherReady { .. }));
    assert_eq!(stage.became_ready().len(), 1);
    let first = numbers(&stage);
    assert!(first[0] > 100, "what was published before it came is gone");

    for _ in 0..5_000 {
        publish(&stage.raws[0]);
    }
    stage.until("the queue read, and further records", |stage| {
        publish(&stage.raws[0]);
        matches!(stage.diary.last(), Some((_, Owned::Published { parts, .. })) if parts[0][..] > (first[0] + 5_000).to_be_bytes()[..])
    });
    let all = numbers(&stage);
    let gaps = all.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
    assert!(all.is_sorted() && gaps >= 1, "{gaps} gaps");
    let until_gap = all.windows(2).position(|pair| pair[1] != pair[0] + 1).unwrap();
    assert!(until_gap >= 400, "the first gap is that of the sleep: {until_gap}");
    assert_eq!((stage.lost(), stage.became_ready().len()), (vec![], 1));
}
