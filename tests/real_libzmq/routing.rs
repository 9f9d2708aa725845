//! Who is who behind a ROUTER, and what a mandatory one says of those who are not there.

use zmq::Error::{EAGAIN, EHOSTUNREACH};
use zmq::{Context, SocketEvent, SocketType};

use crate::kit::{Watched, acquaint, await_record, bind, fill_the_way, never, recv, send, socket, until};

// Leans on it: the connection table, whose key behind a listener is this id.
#[test]
fn an_acceptor_router_gives_each_connection_a_fresh_five_byte_id() {
    let context = Context::new();
    let router = socket(&context, SocketType::ROUTER);
    let endpoint = bind(&router);
    let mut ids = Vec::new();
    for kind in [SocketType::DEALER, SocketType::ROUTER].repeat(20) {
        let dialler = Watched::dial(&context, kind, &endpoint);
        if kind == SocketType::DEALER {
            ids.push(acquaint(&dialler, &router));
        }
    }
    // The same dialler connected anew is another connection and gets another id.
    let dealer = socket(&context, SocketType::DEALER);
    for _ in 0..5 {
        dealer.connect(&endpoint).unwrap();
        ids.push(acquaint(&dealer, &router));
        dealer.disconnect(&endpoint).unwrap();
    }
    assert!(ids.iter().all(|id| id.len() == 5 && id[0] == 0), "{ids:?}");
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 25);
}

// Leans on it: the mesh dial, which on HANDSHAKE_SUCCEEDED asks the events and then sends its hello. Without asking, the
// hello after an earlier operation on the socket met EHOSTUNREACH in 183 tries of 200: a send looks at what the I/O
// thread has to say only when some 3 million processor ticks have gone by since the last look.
#[test]
fn a_dialling_router_reaches_the_bound_one_by_its_set_id_once_the_handshake_succeeded_and_the_events_were_asked()
 {
    let context = Context::new();
    let acceptor = socket(&context, SocketType::ROUTER);
    acceptor.set_identity(b"A").unwrap();
    let endpoint = bind(&acceptor);
    for _ in 0..50 {
        let dialler = Watched::new(&context, SocketType::ROUTER);
        assert_eq!(send(&dialler, &[b"A", b"early"]), Err(EHOSTUNREACH));
        dialler.connect(&endpoint).unwrap();
        dialler.await_event(SocketEvent::HANDSHAKE_SUCCEEDED);
        dialler.get_events().unwrap();
        assert_eq!(send(&dialler, &[b"A", b"hello"]), Ok(()), "the first try succeeds");
        let hello = await_record(&acceptor);
        assert_eq!((hello[0].len(), &hello[1][..]), (5, &b"hello"[..]));
        send(&acceptor, &[&hello[0], b"admit"]).unwrap();
        assert_eq!(await_record(&dialler), [&b"A"[..], b"admit"]);
    }
}

// Leans on it: two dialled lanes in one process never meet, though their acceptors share the id.
#[test]
fn the_same_set_id_at_many_acceptors_does_no_harm_to_diallers_of_one_endpoint_each() {
    let context = Context::new();
    let acceptors = [(); 3].map(|()| socket(&context, SocketType::ROUTER));
    let diallers = acceptors.each_ref().map(|acceptor| {
        acceptor.set_identity(b"A").unwrap();
        Watched::dial(&context, SocketType::ROUTER, &bind(acceptor))
    });
    for (n, dialler) in diallers.iter().enumerate() {
        dialler.await_event(SocketEvent::HANDSHAKE_SUCCEEDED);
        dialler.get_events().unwrap();
        send(dialler, &[b"A", &[n as u8]]).unwrap();
    }
    for (n, acceptor) in acceptors.iter().enumerate() {
        assert_eq!(await_record(acceptor)[1], [n as u8]);
    }
}

// Leans on it: a send that finds the route gone is a transport loss at once.
#[test]
fn a_mandatory_router_refuses_an_unknown_id_at_once() {
    let context = Context::new();
    let router = socket(&context, SocketType::ROUTER);
    bind(&router);
    assert_eq!(send(&router, &[b"\0none", b"record"]), Err(EHOSTUNREACH));
    // The refusal leaves no half-sent record behind: the next one is judged by its own first frame.
    assert_eq!(send(&router, &[b"\0nine", b"record"]), Err(EHOSTUNREACH));
}

// Leans on it: ROUTER_MANDATORY is set on every ROUTER the engine makes.
#[test]
fn without_mandatory_a_record_for_an_unknown_id_vanishes_without_a_word() {
    let context = Context::new();
    let router = socket(&context, SocketType::ROUTER);
    router.set_router_mandatory(false).unwrap();
    bind(&router);
    assert_eq!(send(&router, &[b"\0none", b"record"]), Ok(()));
}

// Leans on it: the end of an accepted connection, told by the first send after it.
#[test]
fn a_vanished_peer_is_unreachable() {
    let context = Context::new();
    let (router, endpoint) = Watched::listen(&context, SocketType::ROUTER);
    let dealer = Watched::dial(&context, SocketType::DEALER, &endpoint);
    let id = acquaint(&dealer, &router);
    send(&router, &[&id, b"record"]).unwrap();
    drop(dealer);
    router.await_event(SocketEvent::DISCONNECTED);
    // The pipe ends a moment after the event.
    let refusal = until("the route is gone", || send(&router, &[&id, b"record"]).err());
    assert_eq!(refusal, EHOSTUNREACH);
}

// Leans on it: an EAGAIN never proves that the route stands.
#[test]
fn a_vanished_peer_with_a_full_pipe_and_unread_input_is_eagain_until_the_input_is_read() {
    let context = Context::new();
    let (router, endpoint) = Watched::listen(&context, SocketType::ROUTER);
    let dealer = socket(&context, SocketType::DEALER);
    dealer.set_rcvhwm(10).unwrap();
    dealer.connect(&endpoint).unwrap();
    let id = acquaint(&dealer, &router);
    fill_the_way(&router, &[&id, &[0; 10_000]], 20_000);
    dealer.set_linger(-1).unwrap();
    send(&dealer, &[b"unread"]).unwrap();
    drop(dealer);
    router.await_event(SocketEvent::DISCONNECTED);
    router.get_events().unwrap();
    assert!(never(|| send(&router, &[&id, b"record"]).err().filter(|refusal| *refusal != EAGAIN)));
    assert_eq!(recv(&router).unwrap()[1], b"unread");
    // Only a look behind the last record meets the end.
    assert_eq!(recv(&router), None);
    until("the route is gone", || (send(&router, &[&id, b"record"]) == Err(EHOSTUNREACH)).then_some(()));
}

// Leans on it: WouldBlock and owed records; one full pipe says nothing about its neighbours.
#[test]
fn a_mandatory_router_says_eagain_for_a_full_pipe_and_only_for_that() {
    let context = Context::new();
    let router = socket(&context, SocketType::ROUTER);
    let endpoint = bind(&router);
    let [slow, quick] = [(); 2].map(|()| {
        let dealer = socket(&context, SocketType::DEALER);
        dealer.set_rcvhwm(10).unwrap();
        dealer.connect(&endpoint).unwrap();
        dealer
    });
    let slow_id = acquaint(&slow, &router);
    let quick_id = acquaint(&quick, &router);
    fill_the_way(&router, &[&slow_id, &[0; 10_000]], 20_000);
    assert_eq!(send(&router, &[&slow_id, b"record"]), Err(EAGAIN));
    // The refusal leaves no half-sent record behind.
    send(&router, &[&quick_id, b"record"]).unwrap();
    assert_eq!(await_record(&quick), [b"record"]);
}

// Leans on it: an EAGAIN on a ROUTER turns up at the id frame, so that a refused record has sent nothing.
#[test]
fn a_full_pipe_refuses_at_the_id_frame_and_what_follows_is_taken_whole() {
    let context = Context::new();
    let router = socket(&context, SocketType::ROUTER);
    let dealer = socket(&context, SocketType::DEALER);
    dealer.connect(&bind(&router)).unwrap();
    let id = acquaint(&dealer, &router);
    let parts: [&[u8]; 4] = [&id, b"one", &[2; 10_000], b"three"];
    let taken = fill_the_way(&router, &parts, 20_000);
    assert_eq!(router.send(&id[..], zmq::DONTWAIT | zmq::SNDMORE), Err(EAGAIN));
    for _ in 0..taken {
        assert_eq!(await_record(&dealer), parts[1..]);
    }
    assert!(never(|| recv(&dealer)), "nothing of a refused record");
}

// Leans on it: admission of foreign diallers; the engine sets no routing id on a dial socket.
#[test]
fn a_dialler_with_a_set_id_appears_under_it() {
    let context = Context::new();
    let router = socket(&context, SocketType::ROUTER);
    let dealer = socket(&context, SocketType::DEALER);
    dealer.set_identity(b"foreign").unwrap();
    dealer.connect(&bind(&router)).unwrap();
    assert_eq!(acquaint(&dealer, &router), b"foreign");
    send(&router, &[b"foreign", b"answer"]).unwrap();
    assert_eq!(await_record(&dealer), [b"answer"]);
}

// Leans on it: the same; what one such dialler can do to another, and that the listener stays sound.
#[test]
fn a_second_connection_with_a_taken_id_is_never_heard_nor_refused() {
    let context = Context::new();
    let (router, endpoint) = Watched::listen(&context, SocketType::ROUTER);
    let dial = || {
        let dealer = Watched::new(&context, SocketType::DEALER);
        dealer.set_identity(b"same").unwrap();
        dealer.connect(&endpoint).unwrap();
        dealer.await_event(SocketEvent::HANDSHAKE_SUCCEEDED);
        dealer
    };
    let first = dial();
    assert_eq!(acquaint(&first, &router), b"same");
    let second = dial();
    for body in [&b"one"[..], b"two", b"three"] {
        send(&second, &[body]).unwrap();
    }
    assert!(never(|| recv(&router)), "its records are swallowed");
    send(&router, &[b"same", b"answer"]).unwrap();
    assert_eq!(await_record(&first), [b"answer"]);
    // Not even the end of the first gives the second a voice, and no event ever speaks of it.
    drop(first);
    router.await_event(SocketEvent::DISCONNECTED);
    send(&second, &[b"four"]).unwrap();
    assert!(never(|| recv(&router).map(drop).or(second.seen().map(drop))));
    assert_eq!(send(&router, &[b"same", b"answer"]), Err(EHOSTUNREACH));
}
