//! What a dialled DEALER does with records before, without and after its peer.

use std::net::TcpListener;

use zmq::Error::EAGAIN;
use zmq::SocketEvent::{ACCEPTED, CLOSED, CONNECTED, DISCONNECTED, HANDSHAKE_SUCCEEDED};
use zmq::{Context, POLLOUT, SocketType};

use crate::kit::{Watched, acquaint, await_record, bind, closed_port, never, send, socket, until};

/// A DEALER with ZMQ_IMMEDIATE, which attaches a pipe only to a connection that stands.
fn immediate(context: &Context) -> Watched {
    let dealer = Watched::new(context, SocketType::DEALER);
    dealer.set_immediate(true).unwrap();
    dealer
}

// Leans on it: nothing but a hello is sent on a dialled lane before it is admitted.
#[test]
fn a_dealer_at_a_closed_port_takes_records_into_nothing() {
    let context = Context::new();
    let (_kept, endpoint) = closed_port();
    let dealer = Watched::dial(&context, SocketType::DEALER, &endpoint);
    assert_eq!(send(&dealer, &[b"before"]), Ok(()));
    dealer.await_event(CLOSED);
    assert_eq!(send(&dealer, &[b"after"]), Ok(()));
    assert!(dealer.get_events().unwrap().contains(POLLOUT), "it even claims to have room");
}

// Leans on it: nothing; the engine leaves ZMQ_IMMEDIATE alone, and this and the next say what it would bring.
#[test]
fn with_immediate_a_dealer_without_a_peer_says_eagain() {
    let context = Context::new();
    let (_kept, endpoint) = closed_port();
    let dealer = immediate(&context);
    dealer.connect(&endpoint).unwrap();
    assert_eq!(send(&dealer, &[b"before"]), Err(EAGAIN));
    dealer.await_event(CLOSED);
    assert_eq!(send(&dealer, &[b"after"]), Err(EAGAIN));
    assert!(!dealer.get_events().unwrap().contains(POLLOUT));
}

// Leans on it: nothing, as above.
#[test]
fn with_immediate_a_dealer_takes_records_only_after_the_handshake() {
    let context = Context::new();
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let dealer = immediate(&context);
    dealer.connect(&format!("tcp://{}", mute.local_addr().unwrap())).unwrap();
    dealer.await_event(CONNECTED);
    assert!(never(|| send(&dealer, &[b"record"]).ok()), "connected is not enough");

    let router = socket(&context, SocketType::ROUTER);
    let dealer = immediate(&context);
    dealer.connect(&bind(&router)).unwrap();
    dealer.await_event(HANDSHAKE_SUCCEEDED);
    dealer.get_events().unwrap();
    assert_eq!(send(&dealer, &[b"record"]), Ok(()));
    assert_eq!(await_record(&router)[1], b"record");
}

// Leans on it: a hello may be sent at the dial already, it waits for the handshake.
#[test]
fn without_immediate_a_record_sent_before_the_handshake_arrives_after_it() {
    let context = Context::new();
    let (router, endpoint) = Watched::listen(&context, SocketType::ROUTER);
    let dealer = socket(&context, SocketType::DEALER);
    dealer.connect(&endpoint).unwrap();
    assert_eq!(send(&dealer, &[b"hello"]), Ok(()));
    assert_eq!(await_record(&router)[1], b"hello");
    router.await_event(ACCEPTED);
}

// Leans on it: after DISCONNECTED nothing is sent on a lane; the engine does not wait for libzmq to refuse.
#[test]
fn without_immediate_a_dealer_whose_peer_is_gone_takes_records_into_nothing() {
    let context = Context::new();
    let (router, endpoint) = Watched::listen(&context, SocketType::ROUTER);
    let dealer = Watched::dial(&context, SocketType::DEALER, &endpoint);
    acquaint(&dealer, &router);
    drop(router);
    dealer.await_event(DISCONNECTED);
    assert!(never(|| send(&dealer, &[b"record"]).err()));
}

// Leans on it: nothing, as above; the price is a pin of `endings`.
#[test]
fn with_immediate_a_dealer_whose_peer_is_gone_says_eagain() {
    let context = Context::new();
    let (router, endpoint) = Watched::listen(&context, SocketType::ROUTER);
    let dealer = immediate(&context);
    dealer.connect(&endpoint).unwrap();
    dealer.await_event(HANDSHAKE_SUCCEEDED);
    drop(router);
    dealer.await_event(DISCONNECTED);
    assert_eq!(until("it refuses", || send(&dealer, &[b"record"]).err()), EAGAIN);
}
