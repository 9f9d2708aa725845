//! What the monitors tell, and how a lane ends.

use std::iter;
use std::net::{TcpListener, TcpStream};

use super::*;

#[test]
fn a_dial_to_a_closed_port_fails() {
    let io = &mut io();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for endpoint in [format!("tcp://{free}"), Path::new("nobody").endpoint()] {
        let lane = io.dial(Dial::Dealer, &text(&endpoint), 0, 0).unwrap();
        assert_eq!(event_of(io, lane), LaneEvent::Unreachable);
        io.close(lane, Linger::None);
        assert_eq!(event_of(io, lane), LaneEvent::Stopped);
    }
}

#[test]
fn whoever_does_not_speak_zeromq_fails_the_handshake_and_harms_nobody() {
    use std::io::Write;
    let io = &mut io();
    let (router, endpoint) = listen(io, b'A');
    let address = endpoint.as_str().strip_prefix("tcp://").unwrap();
    let mut stranger = TcpStream::connect(address).unwrap();
    stranger
        .write_all(b"GET / HTTP/1.1\r\n\r\nand so on, at some length, until the greeting would be over\r\n")
        .unwrap();
    let LaneEvent::Accepted { descriptor } = event_of(io, router) else { panic!() };
    drop(stranger);
    let mut last = event_of(io, router);
    if last == LaneEvent::HandshakeFailed {
        last = event_of(io, router);
    }
    assert_eq!(last, LaneEvent::Disconnected { descriptor });
    let dealer = io.dial(Dial::Dealer, &endpoint, 0, 0).unwrap();
    assert_eq!(event_of(io, dealer), LaneEvent::Connected);
}

#[test]
fn a_lost_peer_is_told_on_both_sides_and_what_it_sent_stays_readable() {
    let io = &mut io();
    let (router, dealer, peer) = pair(io);
    for _ in 0..100 {
        io.send(dealer, None, b"last words", &[]).unwrap();
        io.send(router, Some(&peer), b"last words", &[]).unwrap();
    }
    // Both have arrived when the last of them can be read; one is taken, the rest is left.
    record_of(io, router);
    record_of(io, dealer);
    io.close(dealer, Linger::Orderly);
    assert!(matches!(event_of(io, router), LaneEvent::Disconnected { .. }));
    let mut record = Inbound::default();
    let left = iter::repeat_with(|| io.receive(router, &mut record))
        .take_while(|&read| read == Reading::Record)
        .count();
    assert_eq!(left, 99);
    wait(io, "the route to vanish", |io| {
        (io.send(router, Some(&peer), b"too late", &[]) == Err(SendError::NoRoute)).then_some(())
    });

    let (router, dealer, peer) = pair(io);
    for _ in 0..100 {
        io.send(router, Some(&peer), b"last words", &[]).unwrap();
    }
    record_of(io, dealer);
    io.close(router, Linger::Orderly);
    assert!(matches!(event_of(io, dealer), LaneEvent::Disconnected { .. }));
    let left = iter::repeat_with(|| io.receive(dealer, &mut record))
        .take_while(|&read| read == Reading::Record)
        .count();
    assert_eq!(left, 99);
}

#[test]
fn a_closed_lane_stops_once_and_its_endpoint_can_be_dialled_again() {
    let io = &mut io();
    let (router, dealer, _) = pair(io);
    let endpoint = Endpoint::try_from(&endpoint_of(io, router)).unwrap();
    let mut told = Vec::new();
    for _ in 0..3 {
        let lane = io.dial(Dial::Dealer, &endpoint, 7, 0).unwrap();
        assert_eq!(event_of(io, lane), LaneEvent::Connected);
        io.close(lane, Linger::None);
        io.close(lane, Linger::Orderly);
        assert_eq!(io.send(lane, None, b"late", &[]), Err(SendError::NoLane));
        assert_eq!(io.owner(lane), Some(7), "it is known until it has stopped");
        assert_eq!(event_of(io, lane), LaneEvent::Stopped);
        assert_eq!(io.owner(lane), None);
        assert!(!told.contains(&lane), "an id never comes back");
        told.push(lane);
    }
    io.poll(Some(Duration::ZERO)).unwrap();
    while let Some((lane, _)) = io.next_event() {
        assert!(!told.contains(&lane), "Stopped is the last");
    }
    io.send(dealer, None, b"still here", &[]).unwrap();
    assert_eq!(record_of(io, router).look().head, b"still here");
    assert_eq!(io.lanes(), 2);
}

#[test]
fn a_stale_id_is_a_value_everywhere() {
    let io = &mut io();
    let (router, endpoint) = listen(io, b'A');
    let stale = io.dial(Dial::Dealer, &endpoint, 0, 0).unwrap();
    assert_eq!(event_of(io, stale), LaneEvent::Connected);
    io.close(stale, Linger::None);
    assert_eq!(event_of(io, stale), LaneEvent::Stopped);
    let fresh = io.dial(Dial::Dealer, &endpoint, 0, 0).unwrap();
    assert_eq!((fresh.index, fresh == stale), (stale.index, false));

    let mut record = Inbound::default();
    assert_eq!(io.send(stale, None, b"", &[]), Err(SendError::NoLane));
    assert_eq!(io.receive(stale, &mut record), Reading::Nothing);
    assert!(!io.filter(stale, b"", true));
    assert_eq!(io.owner(stale), None);
    io.refresh(stale);
    io.drain_monitor(stale);
    io.close(stale, Linger::Orderly);
    io.woken(Token(usize::MAX >> 1));
    assert_eq!(event_of(io, fresh), LaneEvent::Connected);
    io.send(fresh, None, b"untouched", &[]).unwrap();
    assert_eq!(record_of(io, router).look().head, b"untouched");
}

#[test]
fn a_hello_names_the_descriptor_that_the_monitor_named() {
    let io = &mut io();
    let path = Path::new("described");
    for open in ["tcp://127.0.0.1:0", &path.endpoint()] {
        let (router, bound) = io.listen(Listen::Router { identity: b'A' }, &text(open), 0, 0).unwrap();
        let dealer = io.dial(Dial::Dealer, &Endpoint::try_from(&bound).unwrap(), 0, 0).unwrap();
        io.send(dealer, None, b"hello", &[b"part"]).unwrap();
        let mut hello = record_of(io, router);
        let descriptor = hello.descriptor().unwrap();
        assert_eq!(event_of(io, router), LaneEvent::Accepted { descriptor });
        io.close(dealer, Linger::None);
        assert_eq!(event_of(io, router), LaneEvent::Disconnected { descriptor });
    }
}

#[test]
fn a_monitor_can_be_heard_at_once() {
    let io = &mut io();
    let (router, endpoint) = listen(io, b'A');
    let dealer = io.dial(Dial::Dealer, &endpoint, 0, 0).unwrap();
    io.send(dealer, None, b"hello", &[]).unwrap();
    let socket = io.lane(router).unwrap().socket.as_ref().unwrap();
    assert_eq!(socket.poll(zmq::POLLIN, 10_000), Ok(1));
    assert_eq!(io.next_event(), None, "nobody has polled");
    io.drain_monitor(router);
    assert!(matches!(io.next_event(), Some((lane, LaneEvent::Accepted { .. })) if lane == router));
}

#[test]
fn a_monitor_that_nobody_reads_blocks_nobody() {
    let io = &mut io();
    let (router, dealer, _) = pair(io);
    let address = endpoint_of(io, router).as_str().strip_prefix("tcp://").unwrap().to_owned();
    for _ in 0..3_000 {
        drop(TcpStream::connect(&address).unwrap());
    }
    io.send(dealer, None, b"through", &[]).unwrap();
    let socket = io.lane(router).unwrap().socket.as_ref().unwrap();
    assert_eq!(socket.poll(zmq::POLLIN, 10_000), Ok(1));
    assert_eq!(record_of(io, router).look().head, b"through");
    let mut gone = 0;
    wait(io, "3,000 ends", |io| {
        while let Some((_, event)) = io.next_event() {
            gone += u32::from(matches!(event, LaneEvent::Disconnected { .. }));
        }
        (gone == 3_000).then_some(())
    });
}

#[test]
fn dropping_it_amid_traffic_does_not_hang() {
    let mut one = io();
    let mut other = io();
    let (router, endpoint) = listen(&mut one, b'A');
    let dealers: Vec<LaneId> = (0..50).map(|_| other.dial(Dial::Dealer, &endpoint, 0, 0).unwrap()).collect();
    let big = vec![0; 100_000];
    for &dealer in &dealers {
        other.send(dealer, None, b"hello", &[&big]).unwrap();
    }
    record_of(&mut one, router);
    let clock = Clock::start();
    let start = clock.now();
    drop(other);
    drop(one);
    assert!(clock.now().since(start) < Duration::from_secs(5));
}

#[test]
fn what_was_sent_before_an_orderly_close_arrives_though_everything_is_dropped_at_once() {
    let one = &mut io();
    let (router, endpoint) = listen(one, b'A');
    for _ in 0..20 {
        let mut other = io();
        let dealer = other.dial(Dial::Dealer, &endpoint, 0, 0).unwrap();
        assert_eq!(event_of(&mut other, dealer), LaneEvent::Connected);
        other.send(dealer, None, b"stopped", &[]).unwrap();
        other.close(dealer, Linger::Orderly);
        drop(other);
        assert_eq!(record_of(one, router).look().head, b"stopped");
    }
}
