//! `ZMQ_FD` is a wake-up and nothing more.

use std::time::Duration;

use zmq::{Context, POLLIN, Socket, SocketType};

use crate::kit::{Look, PATIENCE, SILENCE, acquaint, await_record, bind, recv, send, socket, until};

/// A ROUTER and a DEALER that have met; the ROUTER has been read until it said EAGAIN.
fn pair(context: &Context) -> (Socket, Socket, Vec<u8>) {
    let router = socket(context, SocketType::ROUTER);
    let dealer = socket(context, SocketType::DEALER);
    dealer.connect(&bind(&router)).unwrap();
    let id = acquaint(&dealer, &router);
    assert_eq!(recv(&router), None);
    (router, dealer, id)
}

// Leans on it: the poller's rule that a registration and a capped lane are ready without being told.
#[test]
fn the_descriptor_falls_silent_while_a_partly_read_backlog_waits() {
    let context = Context::new();
    let (router, dealer, _) = pair(&context);
    let mut look = Look::at(&router);
    for _ in 0..900 {
        send(&dealer, &[b"record"]).unwrap();
    }
    assert!(look.fires(PATIENCE), "arrival wakes");
    for _ in 0..64 {
        await_record(&router);
    }
    look.falls_silent();
    for _ in 64..900 {
        await_record(&router);
    }
    assert_eq!(recv(&router), None);
}

// Leans on it: the poller's rule that after any operation on a socket its ZMQ_EVENTS are asked before the engine sleeps.
#[test]
fn asking_the_events_swallows_the_edge_and_tells_the_truth() {
    let context = Context::new();
    let (router, dealer, _) = pair(&context);
    let mut other = Look::at(&router);
    let mut look = Look::at(&router);
    look.falls_silent();
    other.falls_silent();
    assert!(!router.get_events().unwrap().contains(POLLIN));
    send(&dealer, &[b"record"]).unwrap();
    assert!(other.fires(PATIENCE), "the edge is there");
    assert!(router.get_events().unwrap().contains(POLLIN), "the events know of the record");
    assert!(!look.fires(SILENCE), "the edge is gone, though the record waits");
    assert!(router.get_events().unwrap().contains(POLLIN), "the events still know of it");
    assert_eq!(await_record(&router)[1], b"record");
    assert!(!router.get_events().unwrap().contains(POLLIN), "nothing is left");
}

// Leans on it: the same rule; a lane is forgotten only after an EAGAIN or after its events were asked, never by counting.
#[test]
fn a_reader_that_stopped_at_the_last_record_is_not_woken_by_the_next() {
    let context = Context::new();
    let (router, dealer, _) = pair(&context);
    let mut look = Look::at(&router);
    send(&dealer, &[b"last"]).unwrap();
    await_record(&router);
    look.falls_silent();
    send(&dealer, &[b"next"]).unwrap();
    assert!(!look.fires(SILENCE));
    assert_eq!(await_record(&router)[1], b"next");
}

// Leans on it: the poller's rule that a send outside a turn fires the engine's waker.
#[test]
fn a_send_swallows_the_edge_while_input_waits() {
    let context = Context::new();
    let (router, dealer, id) = pair(&context);
    let mut other = Look::at(&router);
    let mut look = Look::at(&router);
    look.falls_silent();
    other.falls_silent();
    send(&dealer, &[b"record"]).unwrap();
    assert!(other.fires(PATIENCE), "the edge is there");
    // A send looks at the commands only when some 3 million processor ticks have gone by since the last look.
    std::thread::sleep(Duration::from_millis(20));
    send(&router, &[&id, b"answer"]).unwrap();
    assert!(!look.fires(SILENCE), "the edge is gone, though the record waits");
    assert!(router.get_events().unwrap().contains(POLLIN));
    assert_eq!(await_record(&router)[1], b"record");
}

// Leans on it: a lane that was read until EAGAIN may be forgotten until its descriptor fires.
#[test]
fn after_a_read_to_the_end_every_later_record_fires_the_descriptor() {
    let context = Context::new();
    let (router, dealer, _) = pair(&context);
    let mut look = Look::at(&router);
    for _ in 0..200 {
        while recv(&router).is_some() {}
        send(&dealer, &[b"record"]).unwrap();
        // The edge may be of an earlier command; what counts is that the record never waits unannounced.
        until("the record came with an edge", || look.fires(PATIENCE).then(|| recv(&router)).unwrap());
    }
}
