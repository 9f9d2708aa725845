//! The undocumented property by which a received record names the descriptor it came through.

use zmq::SocketEvent::{ACCEPTED, DISCONNECTED};
use zmq::{Context, DONTWAIT, Message, Socket, SocketType};

use crate::kit::{Nook, Watched, send, socket, until};

/// The id and the body of the next record, and the descriptor that both name.
fn read(listener: &Socket) -> (Vec<u8>, Vec<u8>, Option<u32>) {
    let mut message = Message::new();
    let named = |message: &mut Message| message.gets("__fd").map(|text| text.parse().unwrap());
    until("an id came", || listener.recv(&mut message, DONTWAIT).ok());
    let (id, at_id) = (message.to_vec(), named(&mut message));
    listener.recv(&mut message, DONTWAIT).unwrap();
    assert_eq!(at_id, named(&mut message));
    (id, message.to_vec(), at_id)
}

/// Lets three diallers come, send and go, and compares the descriptors their records name with the monitor's.
fn compare(listener: &Watched, endpoint: &str, context: &Context) {
    let mut dealers = [(); 3].map(|()| {
        let dealer = socket(context, SocketType::DEALER);
        dealer.connect(endpoint).unwrap();
        send(&dealer, &[b"hello"]).unwrap();
        let accepted = listener.await_event(ACCEPTED).pop().unwrap().value;
        assert_eq!(read(listener).2, Some(accepted), "the first record names the accepted descriptor");
        (Some(dealer), accepted)
    });
    for (dealer, accepted) in &dealers {
        send(dealer.as_ref().unwrap(), &[b"later"]).unwrap();
        assert_eq!(read(listener).2, Some(*accepted), "and so does every later one");
    }
    for (dealer, accepted) in &mut dealers {
        drop(dealer.take());
        assert_eq!(listener.await_event(DISCONNECTED).pop().unwrap().value, *accepted);
    }
}

// Leans on it: the listener's table binds a connection to its descriptor at the hello.
#[test]
fn a_received_body_names_the_descriptor_that_the_monitor_names_over_tcp() {
    let context = Context::new();
    let (listener, endpoint) = Watched::listen(&context, SocketType::ROUTER);
    compare(&listener, &endpoint, &context);
}

// Leans on it: the same.
#[test]
fn a_received_body_names_the_descriptor_that_the_monitor_names_over_ipc() {
    let context = Context::new();
    let nook = Nook::new("fd");
    let listener = Watched::new(&context, SocketType::ROUTER);
    listener.bind(&nook.endpoint()).unwrap();
    compare(&listener, &nook.endpoint(), &context);
}

// Leans on it: where two connections claim one descriptor, the one whose admit gets EHOSTUNREACH loses.
#[test]
fn a_descriptor_is_used_again_while_a_dead_connections_hello_waits_and_the_dead_one_is_unreachable() {
    let context = Context::new();
    let (listener, endpoint) = Watched::listen(&context, SocketType::ROUTER);
    // Other tests open descriptors too, so that not every try sees one used again.
    until("a descriptor was used again", || {
        let dead = socket(&context, SocketType::DEALER);
        dead.set_linger(-1).unwrap();
        dead.connect(&endpoint).unwrap();
        send(&dead, &[b"dead"]).unwrap();
        drop(dead);
        let gone = listener.await_event(DISCONNECTED).pop().unwrap().value;
        let live = socket(&context, SocketType::DEALER);
        live.connect(&endpoint).unwrap();
        send(&live, &[b"live"]).unwrap();
        let come = listener.await_event(ACCEPTED).pop().unwrap().value;
        // Either of the two hellos may be read first.
        let (dead_hello, live_hello) = match (read(&listener), read(&listener)) {
            (first, second) if first.1 == b"dead" => (first, second),
            (first, second) => (second, first),
        };
        assert_eq!((&dead_hello.1[..], &live_hello.1[..]), (&b"dead"[..], &b"live"[..]));
        assert_eq!((dead_hello.2, live_hello.2), (Some(gone), Some(come)));
        listener.get_events().unwrap();
        assert_eq!(send(&listener, &[&dead_hello.0, b"admit"]), Err(zmq::Error::EHOSTUNREACH));
        assert_eq!(send(&listener, &[&live_hello.0, b"admit"]), Ok(()));
        drop(live);
        listener.await_event(DISCONNECTED);
        (gone == come).then_some(())
    });
}
