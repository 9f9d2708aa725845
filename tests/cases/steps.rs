//! How these tests let virtual time pass, and what they read from what a host was told.

use std::time::{Duration, Instant};

use wakeful::{LostReason, Owned};

use crate::support::*;

/// Turns a node exactly when it asks to be turned, as a host that follows `next_due` does, until `span` is over or `done`
/// says so; after each turn `meanwhile` lets the others act and real sockets carry what was sent.
pub fn follow(
    node: &mut Node,
    span: Duration,
    mut meanwhile: impl FnMut(&mut Node),
    mut done: impl FnMut(&Node) -> bool,
) {
    let end = node.now + span;
    while node.now < end && !done(node) {
        let due = node.engine.next_due().map_or(end, |next| next.at);
        node.now = due.clamp(node.now, end);
        node.turn();
        meanwhile(node);
    }
}

/// Turns a node, without virtual time passing, for 10 ms of real time: what is under way to it arrives.
pub fn arrive(node: &mut Node, mut others: impl FnMut()) {
    let begin = Instant::now();
    while begin.elapsed() < ms(10) {
        node.turn();
        others();
        node.engine.wait(Some(ms(1)));
    }
}

/// Waits until `done`, turning nobody. Panics after 10 s.
pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < s(10), "not in 10 s: {what}");
        std::thread::yield_now();
    }
}

/// The peers lost, in order, with why.
pub fn lost(events: &[Owned]) -> Vec<(String, LostReason)> {
    let lost = |event: &Owned| match event {
        Owned::Lost { peer, reason } => {
            Some((String::from_utf8_lossy(peer.rid().as_bytes()).into_owned(), *reason))
        }
        _ => None,
    };
    events.iter().filter_map(lost).collect()
}

/// How many peers became ready.
pub fn became_ready(events: &[Owned]) -> usize {
    events.iter().filter(|event| matches!(event, Owned::Ready { .. })).count()
}

/// The first parts of the messages, in order.
pub fn texts(events: &[Owned]) -> Vec<String> {
    let text = |event: &Owned| match event {
        Owned::Message { parts, .. } => Some(String::from_utf8_lossy(&parts[0]).into_owned()),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

/// Where the first event that fits stands.
pub fn position(events: &[Owned], fits: impl Fn(&Owned) -> bool) -> usize {
    events.iter().position(fits).unwrap_or_else(|| panic!("not told: {events:?}"))
}

/// How many records of the peer of that name were handled.
pub fn served(node: &Node, name: &str) -> u64 {
    let snapshot = node.engine.snapshot();
    snapshot.connections.iter().find(|each| *each.peer.rid() == rid(name)).map_or(0, |each| each.served)
}

/// Whether every one of `peers` connections has handed over so many records. Three make a connection that is ready and
/// whose first ask is answered: hello or admit, a probe, an ACK.
pub fn all_served(node: &Node, peers: usize, records: u64) -> bool {
    let connections = node.engine.snapshot().connections;
    connections.len() == peers && connections.iter().all(|each| each.served >= records)
}

/// Waits until both have each other ready and their first asks answered.
pub fn meet(server: &mut Node, client: &mut Node) {
    until(&mut [server, client], "ready and answered", |nodes| {
        nodes.iter().all(|node| node.ready_peers() == 1 && all_served(node, 1, 3))
    });
    server.events();
    client.events();
}
