//! What reading a shared socket gives, and in which order.

use zmq::{Context, DONTWAIT, Message, SocketEvent, SocketType};

use crate::kit::{Watched, acquaint, await_record, bind, recv, send, socket};

/// The reading ends only when all of a dialler's records are in the receiver's pipe: the listener's DISCONNECTED, which
/// follows the last of them, is the proof.
fn leave(dealer: zmq::Socket, listener: &Watched) {
    dealer.set_linger(-1).unwrap();
    drop(dealer);
    listener.await_event(SocketEvent::DISCONNECTED);
}

// Leans on it: the rotation reads ZMQ_EVENTS before each lane, so that a quiet peer is not late.
#[test]
fn events_asked_right_before_reading_let_a_newly_filled_pipe_join_the_fair_queue() {
    let context = Context::new();
    let (router, endpoint) = Watched::listen(&context, SocketType::ROUTER);
    let loud = socket(&context, SocketType::DEALER);
    loud.connect(&endpoint).unwrap();
    acquaint(&loud, &router);
    let quiet = socket(&context, SocketType::DEALER);
    quiet.connect(&endpoint).unwrap();
    acquaint(&quiet, &router);
    for _ in 0..500 {
        send(&loud, &[b"loud"]).unwrap();
    }
    for _ in 0..20 {
        await_record(&router);
    }
    send(&quiet, &[b"quiet"]).unwrap();
    leave(quiet, &router);
    router.get_events().unwrap();
    let first = await_record(&router);
    let second = await_record(&router);
    assert!([&first, &second].iter().any(|record| record[1] == b"quiet"), "it came {first:?}, {second:?}");
    assert_eq!(await_record(&router)[1], b"loud", "the loud one had not been read out");
}

// Leans on it: the share of each peer behind a shared ROUTER (rotation, holds).
#[test]
fn a_router_reads_its_peers_in_turn() {
    let context = Context::new();
    let (router, endpoint) = Watched::listen(&context, SocketType::ROUTER);
    let dealers = [(); 3].map(|()| socket(&context, SocketType::DEALER));
    for dealer in &dealers {
        dealer.connect(&endpoint).unwrap();
        acquaint(dealer, &router);
    }
    for dealer in dealers {
        for _ in 0..100 {
            send(&dealer, &[b"record"]).unwrap();
        }
        leave(dealer, &router);
    }
    router.get_events().unwrap();
    let order: Vec<_> = (0..300).map(|_| recv(&router).unwrap().swap_remove(0)).collect();
    for round in order.chunks(3) {
        assert_eq!(round, &order[..3], "each round serves the three in the same order");
    }
    assert!(order[0] != order[1] && order[1] != order[2] && order[0] != order[2]);
}

// Leans on it: the receive path, which reads every frame of every record into the same messages.
#[test]
fn a_reused_message_holds_only_what_came_last() {
    let context = Context::new();
    let pull = socket(&context, SocketType::PULL);
    let push = socket(&context, SocketType::PUSH);
    push.connect(&bind(&pull)).unwrap();
    let sizes = [0, 1, 29, 33, 34, 8193, 100_000, 3, 0, 64, 8192, 5];
    for (n, size) in sizes.into_iter().enumerate() {
        send(&push, &[&vec![n as u8; size], &[n as u8]]).unwrap();
    }
    let mut message = Message::new();
    let mut next = || {
        crate::kit::until("a frame came", || pull.recv(&mut message, DONTWAIT).ok());
        (message.to_vec(), message.get_more())
    };
    for (n, size) in sizes.into_iter().enumerate() {
        assert_eq!(next(), (vec![n as u8; size], true));
        assert_eq!(next(), (vec![n as u8], false));
    }
}

// Leans on it: the receive path, which takes nothing from a message after a refused read.
#[test]
fn a_refused_read_says_eagain_and_empties_the_message() {
    let context = Context::new();
    let router = socket(&context, SocketType::ROUTER);
    bind(&router);
    let mut message = Message::from(&b"former"[..]);
    assert_eq!(router.recv(&mut message, DONTWAIT), Err(zmq::Error::EAGAIN));
    assert!(message.is_empty());
}

// Leans on it: a record once begun can be read to its end without waiting.
#[test]
fn a_record_of_many_frames_arrives_whole() {
    let context = Context::new();
    let router = socket(&context, SocketType::ROUTER);
    let dealer = socket(&context, SocketType::DEALER);
    dealer.connect(&bind(&router)).unwrap();
    let part = vec![7; 10_000];
    let parts: Vec<&[u8]> = (0..256).map(|_| &part[..]).collect();
    send(&dealer, &parts).unwrap();
    // `recv` of the kit panics where a later frame would have to be waited for.
    assert_eq!(await_record(&router).len(), 257);
}
