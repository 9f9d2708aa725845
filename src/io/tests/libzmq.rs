//! What this room relies on in libzmq, asked of libzmq itself: another one that behaves otherwise is noticed here.

use super::*;

/// A connected DEALER and ROUTER, the DEALER's routing id, and a poller that watches the ROUTER's descriptor.
fn watched() -> (zmq::Socket, zmq::Socket, zmq::Message, mio::Poll) {
    let context = zmq::Context::new();
    let router = context.socket(zmq::ROUTER).unwrap();
    router.bind("tcp://127.0.0.1:0").unwrap();
    let dealer = context.socket(zmq::DEALER).unwrap();
    dealer.connect(&router.get_last_endpoint().unwrap().unwrap()).unwrap();
    dealer.send("hello", 0).unwrap();
    let id = router.recv_msg(0).unwrap();
    assert_eq!(&router.recv_msg(0).unwrap()[..], b"hello");
    assert!(router.recv_msg(zmq::DONTWAIT).is_err());
    let poller = mio::Poll::new().unwrap();
    poller
        .registry()
        .register(&mut SourceFd(&router.get_fd().unwrap()), Token(0), Interest::READABLE)
        .unwrap();
    (dealer, router, id, poller)
}

fn wakes(poller: &mut mio::Poll, timeout: Duration) -> bool {
    let mut wakeups = mio::Events::with_capacity(4);
    poller.poll(&mut wakeups, Some(timeout)).unwrap();
    !wakeups.is_empty()
}

#[test]
fn the_descriptor_tells_only_once_of_a_backlog() {
    let (dealer, router, _, mut poller) = watched();
    for _ in 0..100 {
        dealer.send("record", 0).unwrap();
    }
    assert!(wakes(&mut poller, PATIENCE));
    router.recv_msg(0).unwrap();
    router.recv_msg(0).unwrap();
    while wakes(&mut poller, Duration::from_millis(50)) {}
    assert_eq!(router.get_events(), Ok(zmq::POLLIN | zmq::POLLOUT), "silent, with records waiting");
}

#[test]
fn asking_for_events_eats_the_wake_up() {
    let (dealer, router, id, mut poller) = watched();
    dealer.send("record", 0).unwrap();
    while !router.get_events().unwrap().contains(zmq::POLLIN) {}
    assert!(!wakes(&mut poller, Duration::from_millis(50)), "silent, with a record waiting");
    assert_eq!(router.recv_msg(0).unwrap(), id);
}

#[test]
fn a_fresh_pipe_wakes_its_reader_only_after_it_was_found_empty() {
    let context = zmq::Context::new();
    let (writer, reader) = (context.socket(zmq::PAIR).unwrap(), context.socket(zmq::PAIR).unwrap());
    writer.bind("inproc://fresh").unwrap();
    reader.connect("inproc://fresh").unwrap();
    let mut poller = mio::Poll::new().unwrap();
    poller
        .registry()
        .register(&mut SourceFd(&reader.get_fd().unwrap()), Token(0), Interest::READABLE)
        .unwrap();
    writer.send("unheard", 0).unwrap();
    assert!(!wakes(&mut poller, Duration::from_millis(50)));
    assert_eq!(&reader.recv_msg(zmq::DONTWAIT).unwrap()[..], b"unheard");
    assert!(reader.recv_msg(zmq::DONTWAIT).is_err());
    writer.send("heard", 0).unwrap();
    assert!(wakes(&mut poller, PATIENCE));
}

#[test]
fn a_context_carries_1_023_sockets() {
    let context = zmq::Context::new();
    let sockets: Vec<_> = (0..1023).map(|_| context.socket(zmq::PAIR).unwrap()).collect();
    assert!(matches!(context.socket(zmq::PAIR), Err(zmq::Error::EMFILE)));
    drop(sockets);
}
