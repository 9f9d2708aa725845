//! Flood and fairness: what was left unread is never forgotten.

use std::cell::RefCell;

use wakeful::{Config, Endpoint, Event, Outbox, Server, Stopped};

use crate::raw::RawClient;
use crate::support::*;

#[test]
fn case_17_ten_thousand_messages_and_then_silence_are_all_delivered_while_a_second_peer_is_served_between() {
    const FLOOD: usize = 10_000;
    let mut server = Node::with(Config { queue_records_max: 10_000, seed: 7, ..Config::default() });
    let bound =
        server.engine.serve(Server::new(channel(), rid("server"), "tcp://127.0.0.1:0".parse().unwrap()));
    let endpoint = Endpoint::try_from(&bound.unwrap()).unwrap();
    let context = zmq::Context::new();
    let flooder = RawClient::enter(&context, &endpoint, &mut server, "flooder");
    let second = RawClient::enter(&context, &endpoint, &mut server, "second");
    settle(&mut [&mut server]);

    for _ in 0..FLOOD / 2 {
        flooder.message("flood");
    }
    for _ in 0..20 {
        second.message("second");
    }
    for _ in 0..FLOOD / 2 {
        flooder.message("flood");
    }

    let came = RefCell::new(Vec::new());
    let mut host = |event: Event<'_>, _: &mut Outbox<'_>| {
        if let Event::Message { parts, .. } = event {
            came.borrow_mut().push(parts.get(0) == Some(b"flood"));
        }
    };
    // The contract of a host and nothing beside it: turn again at once while work is left, else wait for the descriptor.
    // Virtual time stands still, so that no timer ever comes to the rescue.
    let (mut at_once, mut left) = (0, false);
    while came.borrow().len() < FLOOD + 20 {
        if left {
            at_once += 1;
        } else {
            assert!(wait_readable(&server), "stranded after {}", came.borrow().len());
        }
        let before = came.borrow().len();
        let report = server.engine.turn_at(server.now, &mut host);
        left = report.work_left;
        let shares = came.borrow()[before..].iter().filter(|from_flood| **from_flood).count();
        assert!(shares <= 64, "{shares} of one peer in one turn");
        assert!(left || report.stopped == Stopped::Empty, "what is left is said to be left");
    }
    let came = came.into_inner();
    assert_eq!(came.iter().filter(|from_flood| **from_flood).count(), FLOOD);
    let last = came.iter().rposition(|from_flood| !from_flood).unwrap();
    assert!(last < FLOOD, "the second peer had its turn before the flood was over, not at {last}");
    assert!(at_once > 0, "the engine asked to be turned at once");
}

/// Waits on the descriptor as a foreign loop does; false if it stays silent for 5 s.
fn wait_readable(node: &Node) -> bool {
    use std::os::fd::AsRawFd;
    let mut poll = mio::Poll::new().unwrap();
    let mut events = mio::Events::with_capacity(4);
    let descriptor = node.engine.as_raw_fd();
    let mut source = mio::unix::SourceFd(&descriptor);
    poll.registry().register(&mut source, mio::Token(0), mio::Interest::READABLE).unwrap();
    poll.poll(&mut events, Some(s(5))).unwrap();
    !events.is_empty()
}
