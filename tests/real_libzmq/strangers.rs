//! What strangers on a port can do: raw connections that say nothing, too little, or garbage.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use zmq::SocketEvent::{
    ACCEPTED, CONNECTED, DISCONNECTED, HANDSHAKE_FAILED_NO_DETAIL, HANDSHAKE_SUCCEEDED, LISTENING,
};
use zmq::{Context, DONTWAIT, Message, SocketType};

use crate::kit::{
    PATIENCE, Watched, acquaint, address, await_record, bind, never, recv, send, socket, until,
};

/// Opens a raw connection, says `bytes`, and lets the other side see no end of it.
fn raw(endpoint: &str, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect_timeout(&address(endpoint), PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The other side may cut a stranger before it has said all.
    let _ = stream.write_all(bytes);
    stream
}

/// Reads until the other side ends the connection, be it by an end or by a reset.
fn await_end(stream: &mut TcpStream) {
    let mut bytes = [0; 256];
    while let Ok(1..) = stream.read(&mut bytes).inspect_err(|error| {
        assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "the connection was not ended in time");
    }) {}
}

// Leans on it: strangers are cut by libzmq; the engine counts them and keeps no entry before a hello.
#[test]
fn a_silent_connection_is_cut_after_the_handshake_interval() {
    let context = Context::new();
    let router = Watched::new(&context, SocketType::ROUTER);
    router.set_handshake_ivl(100).unwrap();
    let endpoint = bind(&router);
    for said in [&b""[..], b"\xff", b"\xff\0\0\0\0\0\0\0\x01\x7f", b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL"] {
        let mut stream = raw(&endpoint, said);
        await_end(&mut stream);
        let story: Vec<_> = router.await_event(DISCONNECTED).into_iter().map(|seen| seen.event).collect();
        assert!(
            story.ends_with(&[ACCEPTED, HANDSHAKE_FAILED_NO_DETAIL, DISCONNECTED]),
            "{said:?}: {story:?}"
        );
    }
}

// Leans on it: the engine leaves the interval as it is.
#[test]
fn the_handshake_interval_is_30_seconds_unless_set() {
    let socket = socket(&Context::new(), SocketType::ROUTER);
    assert_eq!(socket.get_handshake_ivl(), Ok(30_000));
}

// Leans on it: the dialler's own patience, which ends an attempt earlier than libzmq would.
#[test]
fn a_dial_to_a_mute_listener_is_connected_then_fails_its_handshake() {
    let context = Context::new();
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let dealer = Watched::new(&context, SocketType::DEALER);
    dealer.set_handshake_ivl(100).unwrap();
    dealer.connect(&format!("tcp://{}", mute.local_addr().unwrap())).unwrap();
    dealer.await_event(CONNECTED);
    assert_eq!(dealer.story(DISCONNECTED), [HANDSHAKE_FAILED_NO_DETAIL, DISCONNECTED]);
}

// Leans on it: garbage on a port ends its own connection only and never the process. The engine counts an accepted
// connection from ACCEPTED to DISCONNECTED; the events between the two are not reliable.
#[test]
fn garbage_ends_its_own_connection_only() {
    let context = Context::new();
    let (router, endpoint) = Watched::listen(&context, SocketType::ROUTER);
    let dealer = Watched::dial(&context, SocketType::DEALER, &endpoint);
    let id = acquaint(&dealer, &router);
    router.await_event(HANDSHAKE_SUCCEEDED);
    // A good greeting, and one with the beginning of a bad READY behind it.
    let greeting = [&b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL"[..], &[0; 48]].concat();
    let bad_ready = [&greeting[..], b"\x04\x05\x09READY"].concat();
    let http = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    let tls = b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03";
    for said in [&http[..], tls, b"\0", &[0; 64], &[0xff; 10_000], &greeting, &bad_ready] {
        let mut stream = raw(&endpoint, said);
        // The peer may have ended it already.
        let _ = stream.shutdown(Shutdown::Write);
        await_end(&mut stream);
        let story = router.story(DISCONNECTED);
        assert_eq!(story[0], ACCEPTED);
        assert!(!story.contains(&HANDSHAKE_SUCCEEDED), "{story:?}");
    }
    send(&dealer, &[b"record"]).unwrap();
    assert_eq!(await_record(&router), [&id[..], b"record"]);
    assert!(never(|| recv(&router)), "no stranger got a record through");
}

// Leans on it: admission, which must not take HANDSHAKE_SUCCEEDED or a descriptor for granted: a peer that speaks ZMTP 1.0
// is let in without either.
#[test]
fn a_peer_of_the_oldest_protocol_gets_records_through_without_a_handshake_event() {
    let context = Context::new();
    let (router, endpoint) = Watched::listen(&context, SocketType::ROUTER);
    // An anonymous identity, then one record of one frame.
    let stream = raw(&endpoint, b"\x01\0\x06\0hello");
    let mut message = Message::new();
    until("an id came", || router.recv(&mut message, DONTWAIT).ok());
    assert_eq!((message.len(), message[0]), (5, 0));
    router.recv(&mut message, DONTWAIT).unwrap();
    assert_eq!(&message[..], b"hello");
    assert_eq!(message.gets("__fd"), None);
    drop(stream);
    let story = router.story(DISCONNECTED);
    assert!(story.starts_with(&[LISTENING, ACCEPTED]) && !story.contains(&HANDSHAKE_SUCCEEDED), "{story:?}");
}

// Leans on it: the accepted descriptors are bounded by what the events tell.
#[test]
fn a_connection_that_comes_and_goes_tells_accepted_failed_disconnected() {
    let context = Context::new();
    let (router, endpoint) = Watched::listen(&context, SocketType::ROUTER);
    drop(raw(&endpoint, b""));
    assert_eq!(router.story(DISCONNECTED), [LISTENING, ACCEPTED, HANDSHAKE_FAILED_NO_DETAIL, DISCONNECTED]);
    assert!(never(|| recv(&router)));
}
