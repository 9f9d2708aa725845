//! How connections end, what of their records survives, and that nothing comes back by itself.

use std::time::{Duration, Instant};

use zmq::SocketEvent::{ACCEPTED, CONNECT_RETRIED, DISCONNECTED, HANDSHAKE_SUCCEEDED};
use zmq::{Context, SocketType};

use crate::kit::{Watched, acquaint, await_record, bind, fill_the_way, never, recv, send, socket, until};

/// A dialler with this interval whose listener ended, and the listener that stands at the same place since.
fn orphan(context: &Context, interval: i32) -> (Watched, Watched) {
    let (router, endpoint) = Watched::listen(context, SocketType::ROUTER);
    let dealer = Watched::new(context, SocketType::DEALER);
    dealer.set_reconnect_ivl(interval).unwrap();
    dealer.connect(&endpoint).unwrap();
    dealer.await_event(HANDSHAKE_SUCCEEDED);
    router.close();
    dealer.await_event(DISCONNECTED);
    let again = Watched::new(context, SocketType::ROUTER);
    until("the port is free", || again.bind(&endpoint).ok());
    (dealer, again)
}

// Leans on it: reconnect is ours; no record meets a process it was not meant for.
#[test]
fn with_the_longest_interval_nothing_reconnects() {
    let context = Context::new();
    let (_dealer, again) = orphan(&context, i32::MAX);
    assert!(never(|| again.seen().filter(|seen| seen.event == ACCEPTED)));
    // A short interval shows that the test would have seen it.
    let (_dealer, again) = orphan(&context, 1);
    again.await_event(ACCEPTED);
}

// Leans on it: the monitor ignores CONNECT_RETRIED.
#[test]
fn the_longest_interval_is_announced_as_a_retry_days_away() {
    let context = Context::new();
    let (router, endpoint) = Watched::listen(&context, SocketType::ROUTER);
    let dealer = Watched::dial(&context, SocketType::DEALER, &endpoint);
    dealer.await_event(HANDSHAKE_SUCCEEDED);
    router.close();
    let story = dealer.await_event(CONNECT_RETRIED);
    assert!(Duration::from_millis(u64::from(story.last().unwrap().value)) > Duration::from_secs(86_400));
}

/// Sends 100 records to a dialler that reads none, ends the connection, and says how many can still be read.
fn survivors(interval: i32, immediate: bool) -> usize {
    let context = Context::new();
    let (router, endpoint) = Watched::listen(&context, SocketType::ROUTER);
    let dealer = Watched::new(&context, SocketType::DEALER);
    dealer.set_reconnect_ivl(interval).unwrap();
    dealer.set_immediate(immediate).unwrap();
    dealer.connect(&endpoint).unwrap();
    dealer.await_event(HANDSHAKE_SUCCEEDED);
    dealer.get_events().unwrap();
    let id = acquaint(&dealer, &router);
    router.set_linger(-1).unwrap();
    for _ in 0..100 {
        send(&router, &[&id, b"record"]).unwrap();
    }
    router.close();
    dealer.await_event(DISCONNECTED);
    // What the end may destroy is destroyed by now, and known to the socket once it asked.
    assert!(never(|| dealer.seen().filter(|seen| seen.event != CONNECT_RETRIED)));
    dealer.get_events().unwrap();
    std::iter::from_fn(|| recv(&dealer)).count()
}

// Leans on it: the read-out of a dialled lane after its end.
#[test]
fn with_the_longest_interval_received_unread_records_survive_the_end() {
    assert_eq!(survivors(i32::MAX, false), 100);
}

// Leans on it: the choice of the longest interval over -1, which would be the plainer way.
#[test]
fn with_reconnecting_switched_off_received_unread_records_are_destroyed() {
    assert_eq!(survivors(-1, false), 0);
}

// Leans on it: the engine leaves ZMQ_IMMEDIATE alone, however well it would refuse sends before the handshake.
#[test]
fn with_immediate_received_unread_records_are_destroyed_too() {
    assert_eq!(survivors(i32::MAX, true), 0);
}

// Leans on it: the orderly close, whose last record is `stopped`.
#[test]
fn a_linger_of_200_ms_delivers_the_last_record() {
    let context = Context::new();
    let router = socket(&context, SocketType::ROUTER);
    let endpoint = bind(&router);
    for _ in 0..50 {
        let dealer = socket(&context, SocketType::DEALER);
        dealer.connect(&endpoint).unwrap();
        acquaint(&dealer, &router);
        dealer.set_linger(200).unwrap();
        send(&dealer, &[b"stopped"]).unwrap();
        drop(dealer);
        assert_eq!(await_record(&router)[1], b"stopped");
    }
}

// Leans on it: a close never blocks a turn, whatever lingers.
#[test]
fn a_close_returns_at_once_though_records_linger() {
    let context = Context::new();
    let dealer = socket(&context, SocketType::DEALER);
    let router = socket(&context, SocketType::ROUTER);
    router.set_rcvhwm(1).unwrap();
    dealer.connect(&bind(&router)).unwrap();
    fill_the_way(&dealer, &[&vec![0; 100_000]], 10_000);
    dealer.set_linger(5_000).unwrap();
    let start = Instant::now();
    drop(dealer);
    assert!(start.elapsed() < Duration::from_secs(1));
    drop(router);
}
