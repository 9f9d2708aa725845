//! Full pipes, returning credit, and records that are too large.

use zmq::Error::EAGAIN;
use zmq::{Context, POLLOUT, Socket, SocketEvent, SocketType};

use crate::kit::{
    Look, PATIENCE, Watched, acquaint, await_record, bind, fill_the_way, never, send, socket, until,
};

/// The mark on both sides.
const MARK: i32 = 100;
/// A record large enough that the kernel's buffers, held small, take few.
const RECORD: [u8; RECORD_BYTES as usize] = [0; RECORD_BYTES as usize];
/// How large that is; the kernel's buffers are asked to be no larger.
const RECORD_BYTES: i32 = 16_384;

/// A DEALER and a ROUTER with [`MARK`] on both sides and small kernel buffers.
fn narrow(context: &Context) -> (Socket, Socket) {
    let [router, dealer] = [SocketType::ROUTER, SocketType::DEALER].map(|kind| {
        let socket = socket(context, kind);
        socket.set_sndhwm(MARK).unwrap();
        socket.set_rcvhwm(MARK).unwrap();
        socket.set_sndbuf(RECORD_BYTES).unwrap();
        socket.set_rcvbuf(RECORD_BYTES).unwrap();
        socket
    });
    dealer.connect(&bind(&router)).unwrap();
    acquaint(&dealer, &router);
    (dealer, router)
}

// Leans on it: WouldBlock on a ClientServer lane.
#[test]
fn a_dealer_with_a_full_pipe_says_eagain() {
    let context = Context::new();
    let (dealer, _router) = narrow(&context);
    fill_the_way(&dealer, &[&RECORD], 1000);
    assert_eq!(send(&dealer, &[b"small"]), Err(EAGAIN));
    assert!(!dealer.get_events().unwrap().contains(POLLOUT));
}

// Leans on it: the memory ceiling that SNDHWM and RCVHWM mean.
#[test]
fn a_stalled_peer_costs_both_marks_and_little_more() {
    let context = Context::new();
    let (dealer, _router) = narrow(&context);
    let taken = fill_the_way(&dealer, &[&RECORD], 1000);
    assert!((190..=230).contains(&taken), "it took {taken} records");
}

// Leans on it: the slowest drain rate that keeps a peer askable; SNDHWM and RCVHWM are modest for its sake.
#[test]
fn credit_comes_back_in_batches_of_half_the_mark() {
    let context = Context::new();
    let (dealer, router) = narrow(&context);
    fill_the_way(&dealer, &[&RECORD], 1000);
    for _ in 0..40 {
        await_record(&router);
    }
    assert!(never(|| send(&dealer, &[&RECORD]).ok()), "less than half the mark brings no room");
    for _ in 40..60 {
        await_record(&router);
    }
    until("room came", || send(&dealer, &[&RECORD]).ok());
    let slots = 1 + fill_the_way(&dealer, &[&RECORD], 1000);
    assert!((40..=60).contains(&slots), "{slots} slots came at once");
}

// Leans on it: `wait` of a host that has records owed; room is an edge like any other.
#[test]
fn returning_credit_fires_the_descriptor() {
    let context = Context::new();
    let (dealer, router) = narrow(&context);
    fill_the_way(&dealer, &[&RECORD], 1000);
    assert!(!dealer.get_events().unwrap().contains(POLLOUT));
    let mut look = Look::at(&dealer);
    look.falls_silent();
    for _ in 0..60 {
        await_record(&router);
    }
    assert!(look.fires(PATIENCE));
    until("the events say so", || dealer.get_events().unwrap().contains(POLLOUT).then_some(()));
}

// Leans on it: owed records are retried only after the socket's events were asked.
#[test]
fn credit_that_is_at_the_socket_can_be_used_once_the_events_were_asked() {
    let context = Context::new();
    let (dealer, router) = narrow(&context);
    fill_the_way(&dealer, &[&RECORD], 1000);
    let mut look = Look::at(&dealer);
    look.falls_silent();
    for _ in 0..60 {
        await_record(&router);
    }
    assert!(look.fires(PATIENCE), "the credit is at the socket");
    dealer.get_events().unwrap();
    assert_eq!(send(&dealer, &[&RECORD]), Ok(()));
}

// Leans on it: max_message as MAXMSGSIZE, against a peer that would have us allocate.
#[test]
fn a_frame_above_the_limit_ends_its_own_connection_only() {
    let context = Context::new();
    let router = Watched::new(&context, SocketType::ROUTER);
    router.set_maxmsgsize(1000).unwrap();
    let endpoint = bind(&router);
    let [other, large] = [(); 2].map(|()| Watched::dial(&context, SocketType::DEALER, &endpoint));
    let id = acquaint(&other, &router);
    acquaint(&large, &router);
    router.story(SocketEvent::HANDSHAKE_SUCCEEDED);
    router.story(SocketEvent::HANDSHAKE_SUCCEEDED);
    send(&large, &[&[0; 1000]]).unwrap();
    send(&large, &[&[0; 1001]]).unwrap();
    assert_eq!(router.story(SocketEvent::DISCONNECTED), [SocketEvent::DISCONNECTED]);
    large.await_event(SocketEvent::DISCONNECTED);
    assert_eq!(await_record(&router)[1].len(), 1000, "what came before the large one is kept");
    send(&other, &[b"record"]).unwrap();
    assert_eq!(await_record(&router), [&id[..], b"record"]);
    send(&router, &[&id, b"answer"]).unwrap();
    assert_eq!(await_record(&other), [b"answer"]);
}

// Leans on it: the engine counts the bytes of a whole record itself.
#[test]
fn the_limit_holds_for_each_frame_not_for_the_record() {
    let context = Context::new();
    let router = socket(&context, SocketType::ROUTER);
    router.set_maxmsgsize(1000).unwrap();
    let dealer = socket(&context, SocketType::DEALER);
    dealer.connect(&bind(&router)).unwrap();
    let frames: [&[u8]; 5] = [&[0; 1000]; 5];
    send(&dealer, &frames).unwrap();
    assert_eq!(await_record(&router).len(), 6);
}

// Leans on it: the engine refuses a too large record of its own host before it sends it.
#[test]
fn the_limit_binds_the_receiver_only() {
    let context = Context::new();
    let router = socket(&context, SocketType::ROUTER);
    let dealer = socket(&context, SocketType::DEALER);
    dealer.set_maxmsgsize(1000).unwrap();
    dealer.connect(&bind(&router)).unwrap();
    send(&dealer, &[&[0; 2000]]).unwrap();
    assert_eq!(await_record(&router)[1].len(), 2000);
}

// Leans on it: the lower bound of max_message where it becomes MAXMSGSIZE.
#[test]
fn a_limit_below_the_size_of_a_handshake_frame_lets_nobody_in() {
    let context = Context::new();
    let router = Watched::new(&context, SocketType::ROUTER);
    router.set_maxmsgsize(10).unwrap();
    let _dealer = Watched::dial(&context, SocketType::DEALER, &bind(&router));
    let story = router.story(SocketEvent::DISCONNECTED);
    assert_eq!(story, [SocketEvent::LISTENING, SocketEvent::ACCEPTED, SocketEvent::DISCONNECTED]);
}
