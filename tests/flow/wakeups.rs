//! A lost wake-up would be a record that waits for ever. CASES 17: drain fully and others starve, stop early and no
//! event comes again.

use std::time::{Duration, Instant};

use wakeful::{Config, Event, Outbox, Owned, Report, SendError};

use crate::follower::{Cause, Counts, Follower, Trigger, follow_until, rest};
use crate::support::*;

const FLOOD: usize = 10_000;
const QUIET: usize = 500;

fn roomy() -> Config {
    Config { queue_records_max: 10_000, ..Config::default() }
}

fn case_17(trigger: Trigger) {
    let mut nodes: Vec<_> = (0..3).map(|_| Follower::new(roomy(), trigger, Counts::default())).collect();
    let servers = [nodes[0].serve("server")];
    nodes[1].connect("flooder", &servers);
    nodes[2].connect("quiet", &servers);
    follow_until(&mut nodes, "all ready", |nodes| {
        nodes.iter().map(|node| node.host.ready).sum::<usize>() == 4
    });
    rest(&mut nodes);

    for (node, count) in [(2, QUIET), (1, FLOOD)] {
        for number in 0..count {
            let part: &[u8] = &number.to_be_bytes();
            let begin = Instant::now();
            // On a busy machine ZeroMQ's own thread may not have made room yet.
            while let Err(error) = nodes[node].engine.outbox().send(&channel(), &[part]) {
                assert!(error == SendError::WouldBlock && begin.elapsed() < s(10), "{error}");
                std::thread::yield_now();
            }
        }
    }
    // From here on both are silent for ever: nobody turns them. What they sent needs a moment to travel.
    let server = &mut nodes[0];
    let mut causes = Vec::new();
    let mut last_arrival = Instant::now();
    let mut per_turn_max = 0;
    while last_arrival.elapsed() < s(2) && server.host.from.len() < FLOOD + QUIET {
        let before = server.host.from.len();
        let Some(cause) = server.follow(ms(50)) else { continue };
        let came = &server.host.from[before..];
        if !came.is_empty() {
            last_arrival = Instant::now();
            causes.push(cause);
        }
        per_turn_max = per_turn_max.max(came.iter().filter(|from| **from == b"flooder").count());
    }
    assert_eq!(server.host.from.len(), FLOOD + QUIET, "the descriptor and work_left bring everything");
    assert!(!causes.contains(&Cause::Due), "nothing waited for a timer");
    assert!(causes.len() >= FLOOD / 64, "the cap stopped the reading {} times", causes.len());
    assert_eq!(per_turn_max, 64, "and let a whole share through");
    let last_quiet = server.host.from.iter().rposition(|from| from == b"quiet").unwrap();
    assert!(last_quiet < FLOOD / 2, "the quiet peer was served between batches, not at {last_quiet}");
}

#[test]
fn case_17_ten_thousand_records_and_then_silence_are_all_delivered_to_a_level_triggered_host() {
    case_17(Trigger::Level);
}

#[test]
fn case_17_ten_thousand_records_and_then_silence_are_all_delivered_to_an_edge_triggered_host() {
    case_17(Trigger::Edge);
}

/// Two engines in use, and the server's host has nothing more to do until the time it was last told.
fn idle_pair(trigger: Trigger) -> Vec<Follower<Log>> {
    let mut nodes: Vec<_> =
        (0..2).map(|_| Follower::new(Config::default(), trigger, Log::default())).collect();
    let server = nodes[0].serve("server");
    nodes[1].connect("client", &[server]);
    let is_ready =
        |node: &Follower<Log>| node.host.events.iter().any(|event| matches!(event, Owned::Ready { .. }));
    follow_until(&mut nodes, "both ready", |nodes| nodes.iter().all(is_ready));
    rest(&mut nodes);
    for node in &mut nodes {
        node.host.events.clear();
        assert!(!node.look(), "an idle engine's descriptor is silent");
    }
    nodes
}

#[test]
fn a_request_between_turns_that_times_out_before_anything_else_is_due_wakes_the_descriptor() {
    for trigger in [Trigger::Edge, Trigger::Level] {
        let mut nodes = idle_pair(trigger);
        let client = &mut nodes[1];
        let request = client.engine.outbox().request(&channel(), &[b"?"], ms(30)).unwrap();
        assert_eq!(
            client.follow(ms(100)),
            Some(Cause::Descriptor),
            "the host must hear that it is wanted earlier"
        );
        let report = client.turn();
        let due = report.next.unwrap().at;
        assert!(due < client.now + ms(200), "now it knows");
        client.now = due;
        assert_eq!(client.follow(Duration::ZERO), Some(Cause::Due));
        let ended = Owned::Unanswered { request, why: wakeful::Unanswered::TimedOut };
        assert_eq!(client.host.events, [ended]);
    }
}

#[test]
fn a_cancellation_between_turns_is_told_in_the_turn_it_wakes() {
    for trigger in [Trigger::Edge, Trigger::Level] {
        let mut nodes = idle_pair(trigger);
        let client = &mut nodes[1];
        let request = client.engine.outbox().request(&channel(), &[b"?"], s(30)).unwrap();
        while client.follow(ms(20)).is_some() {}
        assert!(client.engine.outbox().cancel(request));
        assert_eq!(client.follow(ms(100)), Some(Cause::Descriptor));
        let ended = Owned::Unanswered { request, why: wakeful::Unanswered::Cancelled };
        assert_eq!(client.host.events, [ended]);
    }
}

#[test]
fn a_peer_that_vanished_is_lost_to_a_host_that_only_follows() {
    for trigger in [Trigger::Edge, Trigger::Level] {
        let mut nodes = idle_pair(trigger);
        let mut server = nodes.remove(0);
        // Dropped without a word to the peer would be a crash; this one says that it stops, which is as final.
        drop(nodes);
        let begin = Instant::now();
        while server.host.events.is_empty() {
            assert!(begin.elapsed() < s(5), "the loss was never told");
            server.follow(ms(50));
            // Virtual time follows, as it does for a host that sleeps until it is due.
            server.now += ms(1);
        }
        assert!(matches!(server.host.events[..], [Owned::Lost { .. }]), "{:?}", server.host.events);
    }
}

#[test]
fn what_an_event_handler_sends_needs_no_further_reason_to_leave() {
    let mut nodes = idle_pair(Trigger::Edge);
    nodes[0].host.echo = true;
    let request = nodes[1].engine.outbox().request(&channel(), &[b"echo"], s(30)).unwrap();
    follow_until(&mut nodes, "a reply", |nodes| !nodes[1].host.events.is_empty());
    assert_eq!(nodes[1].host.events, [Owned::Replied { request, parts: vec![b"echo".to_vec()] }]);
}

#[test]
fn a_descriptor_that_was_answered_with_a_turn_is_silent_again() {
    for trigger in [Trigger::Edge, Trigger::Level] {
        let mut nodes = idle_pair(trigger);
        let mut nothing = |_: Event<'_>, _: &mut Outbox<'_>| {};
        for _ in 0..200 {
            let node = &mut nodes[0];
            let Report { work_left, .. } = node.engine.turn_at(node.now, &mut nothing);
            assert!(!work_left && !node.look(), "an idle turn leaves nothing behind");
        }
    }
}
