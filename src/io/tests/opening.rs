//! Where a lane can be opened, and what happens where it cannot.

use std::collections::HashSet;

use super::*;

#[test]
fn four_hundred_lanes_find_their_contexts() {
    let io = &mut io();
    let (router, endpoint) = listen(io, b'A');
    let mut connecting: HashSet<LaneId> =
        (0..400).map(|_| io.dial(Dial::Dealer, &endpoint, 0, 0).unwrap()).collect();
    let lanes: Vec<LaneId> = connecting.iter().copied().collect();
    assert_eq!(io.contexts(), 2);
    wait(io, "400 connections", |io| {
        while let Some((lane, event)) = io.next_event() {
            if event == LaneEvent::Connected {
                connecting.remove(&lane);
            }
        }
        connecting.is_empty().then_some(())
    });
    for &lane in &lanes {
        io.send(lane, None, b"hello", &[]).unwrap();
    }
    let mut peers = HashSet::new();
    let mut record = Inbound::default();
    wait(io, "400 hellos", |io| {
        while io.next_readable().is_some() {}
        while io.receive(router, &mut record) == Reading::Record {
            peers.insert(record.peer().to_vec());
        }
        (peers.len() == 400).then_some(())
    });
    for &lane in &lanes {
        io.close(lane, Linger::None);
    }
    wait(io, "all of them to stop", |io| {
        while io.next_event().is_some() {}
        (io.lanes() == 1).then_some(())
    });
    let again = io.dial(Dial::Dealer, &endpoint, 0, 0).unwrap();
    assert_eq!(event_of(io, again), LaneEvent::Connected);
    assert_eq!(io.contexts(), 2);
}

#[test]
fn an_open_port_or_path_is_filled_in_and_can_be_dialled() {
    let io = &mut io();
    let path = Path::new("named");
    for open in ["tcp://127.0.0.1:0", "ipc://*", &path.endpoint(), "ipc://@wakeful-io"] {
        let (router, bound) = io.listen(Listen::Router { identity: b'A' }, &text(open), 0, 0).unwrap();
        let dealer = io.dial(Dial::Dealer, &Endpoint::try_from(&bound).unwrap(), 0, 0).unwrap();
        assert_eq!(event_of(io, dealer), LaneEvent::Connected, "{open}");
        io.send(dealer, None, b"hello", &[]).unwrap();
        assert_eq!(record_of(io, router).look().head, b"hello");
        if open == "ipc://*" {
            std::fs::remove_file(bound.as_str().strip_prefix("ipc://").unwrap()).unwrap();
        }
    }
    let (_, bound) = io.listen(Listen::Pub, &text("tcp://*:0"), 0, 0).unwrap();
    assert!(bound.is_wildcard() && bound.as_str() != "tcp://0.0.0.0:0");
}

#[test]
fn an_address_in_use_is_a_typed_error_and_leaves_nothing() {
    let io = &mut io();
    let kind = Listen::Router { identity: b'A' };
    let (tcp, bound) = io.listen(kind, &text("tcp://127.0.0.1:0"), 0, 0).unwrap();
    let (used, file) = (Path::new("used"), Path::new("file"));
    let (ipc, _) = io.listen(kind, &text(&used.endpoint()), 0, 0).unwrap();
    std::fs::write(&file.0, b"precious").unwrap();
    for (endpoint, error) in [
        (bound.as_str(), IoError::AddressInUse),
        (&used.endpoint(), IoError::AddressInUse),
        (&file.endpoint(), IoError::AddressInUse),
        (&format!("{}/below", file.endpoint()), IoError::NoSuchPath),
        ("ipc:///no/such/directory", IoError::NoSuchPath),
        ("tcp://192.0.2.1:0", IoError::AddressUnavailable),
    ] {
        assert_eq!(io.listen(kind, &text(endpoint), 0, 0), Err(error), "{endpoint}");
    }
    assert_eq!(std::fs::read(&file.0).unwrap(), b"precious");

    wait(io, "what failed to be cleared away", |io| (io.lanes() == 2).then_some(()));
    while let Some((lane, _)) = io.next_event() {
        assert!(lane == tcp || lane == ipc, "a lane that never was has no events");
    }
    let dealer = io.dial(Dial::Dealer, &text(&used.endpoint()), 0, 0).unwrap();
    assert_eq!(event_of(io, dealer), LaneEvent::Connected, "the listener was not harmed by the question");
}

#[test]
fn a_path_left_behind_by_a_dead_process_is_taken_over() {
    let io = &mut io();
    let path = Path::new("left");
    drop(std::os::unix::net::UnixListener::bind(&path.0).unwrap());
    io.listen(Listen::Pub, &text(&path.endpoint()), 0, 0).unwrap();
}

#[test]
fn an_errno_that_the_binding_cannot_name_is_an_error_and_no_panic() {
    // ENOTDIR is one of them. The path is checked before libzmq sees it, so here libzmq is asked directly.
    let context = zmq::Context::new();
    let socket = context.socket(zmq::PUB).unwrap();
    assert_eq!(lane::named(|| socket.bind("ipc:///dev/null/below")), Err(IoError::Unnamed));
}
