//! What a monitor tells, in which order, and what it costs not to listen.

use std::net::TcpStream;

use zmq::SocketEvent::{
    ACCEPTED, CLOSED, CONNECT_DELAYED, CONNECT_RETRIED, CONNECTED, DISCONNECTED, HANDSHAKE_SUCCEEDED,
    LISTENING, MONITOR_STOPPED,
};
use zmq::{Context, Socket, SocketType};

use crate::kit::{
    Nook, SILENCE, Watched, acquaint, address, await_event, await_record, bind, closed_port, never, recv,
    send, socket, until, watch,
};

// Leans on it: the phases of a dial.
#[test]
fn a_live_dial_tells_delayed_then_connected_then_handshake_succeeded() {
    let context = Context::new();
    let router = socket(&context, SocketType::ROUTER);
    let dealer = Watched::dial(&context, SocketType::DEALER, &bind(&router));
    assert_eq!(dealer.story(HANDSHAKE_SUCCEEDED), [CONNECT_DELAYED, CONNECTED, HANDSHAKE_SUCCEEDED]);
}

// Leans on it: the same; no phase of a dial waits for CONNECT_DELAYED.
#[test]
fn an_ipc_dial_tells_the_same_without_delayed() {
    let context = Context::new();
    let nook = Nook::new("dial");
    let router = socket(&context, SocketType::ROUTER);
    router.bind(&nook.endpoint()).unwrap();
    let dealer = Watched::dial(&context, SocketType::DEALER, &nook.endpoint());
    assert_eq!(dealer.story(HANDSHAKE_SUCCEEDED), [CONNECTED, HANDSHAKE_SUCCEEDED]);
    drop(router);
    assert_eq!(dealer.story(DISCONNECTED), [DISCONNECTED]);

    let nobody = format!("{}-nobody", nook.endpoint());
    let dealer = Watched::dial(&context, SocketType::DEALER, &nobody);
    assert_eq!(dealer.story(CLOSED), [CLOSED]);
    assert!(never(|| dealer.seen().filter(|seen| seen.event != CONNECT_RETRIED)));
}

// Leans on it: the listener's table of accepted descriptors.
#[test]
fn a_listener_tells_listening_accepted_handshake_succeeded_disconnected() {
    let context = Context::new();
    let (router, endpoint) = Watched::listen(&context, SocketType::ROUTER);
    let dealer = Watched::dial(&context, SocketType::DEALER, &endpoint);
    acquaint(&dealer, &router);
    drop(dealer);
    let story = router.await_event(DISCONNECTED);
    let kinds: Vec<_> = story.iter().map(|seen| seen.event).collect();
    assert_eq!(kinds, [LISTENING, ACCEPTED, HANDSHAKE_SUCCEEDED, DISCONNECTED]);
    assert!(
        story.iter().all(|seen| seen.endpoint == endpoint),
        "each names the listener's endpoint: {story:?}"
    );
}

// Leans on it: a refused dial is the end of the attempt.
#[test]
fn a_closed_port_tells_delayed_then_closed() {
    let context = Context::new();
    let (_kept, endpoint) = closed_port();
    let dealer = Watched::dial(&context, SocketType::DEALER, &endpoint);
    assert_eq!(dealer.story(CLOSED), [CONNECT_DELAYED, CLOSED]);
    // What may still come is the announcement of a retry some 24 days away.
    assert!(never(|| dealer.seen().filter(|seen| seen.event != CONNECT_RETRIED)));
}

// Leans on it: a lost peer is noticed at once by the dialler.
#[test]
fn a_lost_peer_tells_disconnected() {
    let context = Context::new();
    let (router, endpoint) = Watched::listen(&context, SocketType::ROUTER);
    let dealer = Watched::dial(&context, SocketType::DEALER, &endpoint);
    dealer.await_event(HANDSHAKE_SUCCEEDED);
    router.close();
    assert_eq!(dealer.story(DISCONNECTED), [DISCONNECTED]);
    assert!(never(|| dealer.seen().filter(|seen| seen.event != CONNECT_RETRIED)));
}

// Leans on it: a close is observed by MONITOR_STOPPED and by nothing else.
#[test]
fn an_own_close_tells_only_monitor_stopped() {
    let context = Context::new();
    let (router, endpoint) = Watched::listen(&context, SocketType::ROUTER);
    let dealer = Watched::dial(&context, SocketType::DEALER, &endpoint);
    acquaint(&dealer, &router);
    dealer.await_event(HANDSHAKE_SUCCEEDED);
    assert_eq!(dealer.close(), [MONITOR_STOPPED]);
    router.await_event(DISCONNECTED);
}

// Leans on it: the close of a listener, whose CLOSED is not the end of a dial.
#[test]
fn an_own_close_of_a_listener_tells_closed_and_monitor_stopped_but_no_disconnected() {
    let context = Context::new();
    let (router, endpoint) = Watched::listen(&context, SocketType::ROUTER);
    let dealer = Watched::dial(&context, SocketType::DEALER, &endpoint);
    acquaint(&dealer, &router);
    router.await_event(HANDSHAKE_SUCCEEDED);
    assert_eq!(router.close(), [CLOSED, MONITOR_STOPPED]);
    dealer.await_event(DISCONNECTED);
}

// Leans on it: the same; a disconnect is never told, and it is not even done while nobody works on the socket.
#[test]
fn an_own_disconnect_tells_nothing_and_waits_for_the_next_operation_on_its_socket() {
    let context = Context::new();
    let (router, endpoint) = Watched::listen(&context, SocketType::ROUTER);
    let dealer = Watched::dial(&context, SocketType::DEALER, &endpoint);
    acquaint(&dealer, &router);
    dealer.await_event(HANDSHAKE_SUCCEEDED);
    router.await_event(HANDSHAKE_SUCCEEDED);
    dealer.disconnect(&endpoint).unwrap();
    assert!(never(|| router.seen()), "the connection still stands");
    until("it closed", || dealer.get_events().map(|_| router.seen()).unwrap());
    assert!(never(|| dealer.seen()));
}

// Leans on it: the read-out after a transport loss.
#[test]
fn records_are_readable_after_disconnected() {
    let context = Context::new();
    let (router, endpoint) = Watched::listen(&context, SocketType::ROUTER);
    for _ in 0..20 {
        let dealer = socket(&context, SocketType::DEALER);
        dealer.set_linger(-1).unwrap();
        dealer.connect(&endpoint).unwrap();
        for _ in 0..100 {
            send(&dealer, &[b"record"]).unwrap();
        }
        drop(dealer);
        router.await_event(DISCONNECTED);
        router.get_events().unwrap();
        for _ in 0..100 {
            assert!(recv(&router).is_some(), "it is there already");
        }
    }
}

// Leans on it: the end of a connection behind a full lane is known only when the lane is read.
#[test]
fn with_a_full_receive_queue_disconnected_waits_until_the_backlog_is_read() {
    let context = Context::new();
    let router = Watched::new(&context, SocketType::ROUTER);
    router.set_rcvhwm(10).unwrap();
    let endpoint = bind(&router);
    let dealer = socket(&context, SocketType::DEALER);
    dealer.connect(&endpoint).unwrap();
    acquaint(&dealer, &router);
    router.await_event(HANDSHAKE_SUCCEEDED);
    dealer.set_linger(-1).unwrap();
    for _ in 0..500 {
        send(&dealer, &[&[0; 1000]]).unwrap();
    }
    drop(dealer);
    assert!(never(|| router.seen()));
    for _ in 0..500 {
        await_record(&router);
    }
    router.await_event(DISCONNECTED);
}

/// Opens and closes raw connections, each good for three monitor events of the I/O thread, and says how many. It gives
/// up at the first that is not accepted into the backlog: the I/O thread is stopped or busy then.
fn stir(endpoint: &str, connections: usize) -> usize {
    (0..connections).take_while(|_| TcpStream::connect_timeout(&address(endpoint), SILENCE).is_ok()).count()
}

/// Stirs `endpoint` until nothing passes between two sockets of the same context any more.
fn stir_until_stopped(endpoint: &str, (dealer, router): &(Socket, Socket)) {
    until("the I/O thread stopped", || {
        stir(endpoint, 400);
        send(dealer, &[b"record"]).unwrap();
        (0..5).all(|_| never(|| recv(router))).then_some(())
    });
}

/// Two sockets of `context` that have met, as the measure of whether its I/O thread is alive.
fn canary(context: &Context) -> (Socket, Socket) {
    let router = socket(context, SocketType::ROUTER);
    let dealer = socket(context, SocketType::DEALER);
    dealer.connect(&bind(&router)).unwrap();
    acquaint(&dealer, &router);
    (dealer, router)
}

// Leans on it: each monitor is drained every turn.
#[test]
fn an_unread_monitor_of_a_bounded_reader_stops_the_io_thread_of_the_whole_context() {
    let context = Context::new();
    let canary = canary(&context);
    let (busy, reader) = (socket(&context, SocketType::ROUTER), context.socket(SocketType::PAIR).unwrap());
    // The monitor's own side holds 1,000 events whatever the reader says.
    reader.set_rcvhwm(1).unwrap();
    reader.connect(&watch(&busy)).unwrap();
    stir_until_stopped(&bind(&busy), &canary);
    drop(busy);
    await_event(&reader, MONITOR_STOPPED);
    await_record(&canary.1);
}

// Leans on it: each monitor reader has RCVHWM 0.
#[test]
fn an_unbounded_reader_holds_any_number_of_unread_events() {
    let context = Context::new();
    let (dealer, router) = canary(&context);
    let (busy, endpoint) = Watched::listen(&context, SocketType::ROUTER);
    let mut stirred = 0;
    until("800 connections came and went", || {
        stirred += stir(&endpoint, 800 - stirred);
        (stirred == 800).then_some(())
    });
    send(&dealer, &[b"record"]).unwrap();
    await_record(&router);
    for _ in 0..800 {
        busy.await_event(DISCONNECTED);
    }
}

// Leans on it: a monitor reader lives until MONITOR_STOPPED, even where nobody wants to read it any more.
#[test]
fn a_reader_dropped_before_its_socket_stops_the_io_thread_for_good() {
    let context = Context::new();
    let canary = canary(&context);
    let busy = socket(&context, SocketType::ROUTER);
    let reader = context.socket(SocketType::PAIR).unwrap();
    reader.connect(&watch(&busy)).unwrap();
    let endpoint = bind(&busy);
    drop(reader);
    stir_until_stopped(&endpoint, &canary);
    drop(busy);
    assert!(never(|| recv(&canary.1)), "closing the socket does not free it");
    // This context can never end: its end would wait for the stopped thread.
    std::mem::forget(canary);
}
