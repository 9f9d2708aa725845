//! Real sockets on loopback. Every wait goes through `poll` and is bounded.

use std::collections::HashSet;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

use super::*;
use crate::clock::Clock;

const LIMITS: Limits = Limits { send_hwm: 1000, receive_hwm: 1000 };
const PATIENCE: Duration = Duration::from_secs(20);

fn io() -> Io {
    Io::new(LIMITS).unwrap()
}

/// Polls until `found` gives something.
fn wait<T>(io: &mut Io, what: &str, mut found: impl FnMut(&mut Io) -> Option<T>) -> T {
    let clock = Clock::start();
    let start = clock.now();
    while clock.now().since(start) < PATIENCE {
        if let Some(found) = found(io) {
            return found;
        }
        io.poll(Some(Duration::from_millis(200))).unwrap();
    }
    panic!("waited in vain: {what}");
}

/// Waits for the next event of `lane`; those of others are passed over.
fn event_of(io: &mut Io, lane: LaneId) -> LaneEvent {
    wait(io, "an event", |io| {
        loop {
            match io.next_event() {
                Some((of, event)) if of == lane => return Some(event),
                Some(_) => {}
                None => return None,
            }
        }
    })
}

/// Waits for a record on `lane` and for nothing else.
fn record_of(io: &mut Io, lane: LaneId) -> Inbound {
    let mut record = Inbound::default();
    wait(io, "a record", |io| {
        while io.next_readable().is_some() {}
        io.receive(lane, &mut record).then_some(())
    });
    record
}

fn text<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

fn listen(io: &mut Io, identity: u8) -> (LaneId, Endpoint) {
    let (lane, bound) = io.listen(Listen::Router { identity }, &text("tcp://127.0.0.1:0"), 1, 0).unwrap();
    (lane, Endpoint::try_from(&bound).unwrap())
}

/// A ROUTER, a DEALER connected to it, and the routing id of the DEALER as the ROUTER learned it from a hello.
fn pair(io: &mut Io) -> (LaneId, LaneId, Vec<u8>) {
    let (router, endpoint) = listen(io, b'A');
    let dealer = io.dial(Dial::Dealer, &endpoint, 2, 0).unwrap();
    assert_eq!(event_of(io, dealer), LaneEvent::Connected);
    io.send(dealer, None, b"hello", &[]).unwrap();
    let peer = record_of(io, router).peer().to_vec();
    assert!(!io.receive(router, &mut Inbound::default()));
    (router, dealer, peer)
}

#[test]
fn it_is_send() {
    fn is_send<T: Send>() {}
    is_send::<Io>();
    is_send::<Inbound>();
}

#[test]
fn a_record_goes_there_and_back_with_all_its_frames() {
    let io = &mut io();
    let (router, dealer, peer) = pair(io);
    assert_eq!((io.owner(router), io.owner(dealer), peer.len()), (Some(1), Some(2), 5));

    io.send(dealer, None, b"head", &[b"one", b"", b"three"]).unwrap();
    let mut record = record_of(io, router);
    assert_eq!((record.peer(), record.head(), record.bytes()), (&peer[..], &b"head"[..], 12));
    assert_eq!(record.parts().iter().collect::<Vec<_>>(), [&b"one"[..], b"", b"three"]);
    assert_eq!(
        (record.parts().len(), record.parts().get(2), record.parts().get(3)),
        (3, Some(&b"three"[..]), None)
    );
    assert!(!record.is_truncated() && !record.parts().is_empty());

    let kept = mem::take(&mut record);
    assert_eq!((record.head(), record.parts().len(), kept.head()), (&b""[..], 0, &b"head"[..]));
    assert!(!io.receive(router, &mut record));

    let parts: Vec<&[u8]> = kept.parts().into_iter().collect();
    io.send(router, Some(kept.peer()), kept.head(), &parts).unwrap();
    let echo = record_of(io, dealer);
    assert_eq!((echo.peer(), echo.head(), echo.parts().len()), (&b""[..], &b"head"[..], 3));
    assert_eq!(io.send(router, Some(b"nobody"), b"head", &[]), Err(SendError::NoRoute));
}

#[test]
fn a_router_addresses_a_bound_router_by_its_identity() {
    let io = &mut io();
    let (bound, endpoint) = listen(io, b'C');
    let dialled = io.dial(Dial::Router, &endpoint, 0, 0).unwrap();
    assert_eq!(io.send(dialled, Some(b"C"), b"early", &[]), Err(SendError::NoRoute));
    assert_eq!(event_of(io, dialled), LaneEvent::Connected);
    io.send(dialled, Some(b"C"), b"hello", &[]).unwrap();
    let hello = record_of(io, bound);
    io.send(bound, Some(hello.peer()), b"admit", &[]).unwrap();
    let admit = record_of(io, dialled);
    assert_eq!((admit.peer(), admit.head()), (&b"C"[..], &b"admit"[..]));
}

#[test]
fn a_subscriber_gets_what_it_subscribed_to() {
    let io = &mut io();
    let (publisher, bound) = io.listen(Listen::Pub, &text("tcp://127.0.0.1:*"), 0, 0).unwrap();
    let subscriber = io.dial(Dial::Sub, &Endpoint::try_from(&bound).unwrap(), 0, 0).unwrap();
    assert!(io.subscribe(subscriber, b"a"));
    let mut record = Inbound::default();
    wait(io, "a publication", |io| {
        for topic in [&b"b"[..], b"ab"] {
            io.send(publisher, None, topic, &[b"body"]).unwrap();
        }
        while io.next_readable().is_some() {}
        io.receive(subscriber, &mut record).then_some(())
    });
    assert_eq!((record.head(), record.parts().get(0)), (&b"ab"[..], Some(&b"body"[..])));
    assert!(!io.receive(publisher, &mut record), "a publisher never reads");
}

#[test]
fn a_backlog_read_by_64_loses_nothing_though_the_descriptor_stays_silent() {
    let io = &mut Io::new(Limits { send_hwm: 20_000, receive_hwm: 20_000 }).unwrap();
    let (router, dealer, _) = pair(io);
    for number in 0..10_000u32 {
        io.send(dealer, None, &number.to_be_bytes(), &[b"payload"]).unwrap();
    }
    let mut record = Inbound::default();
    let (mut expected, mut ours, mut turns) = (0u32, false, 0);
    while expected < 10_000 {
        // A lane that is ours is read on whether the descriptor fires or not; otherwise it must fire.
        io.poll(if ours { Some(Duration::ZERO) } else { Some(PATIENCE) }).unwrap();
        while let Some(lane) = io.next_readable() {
            ours |= lane == router;
        }
        for _ in 0..64 {
            ours = ours && io.receive(router, &mut record);
            if !ours {
                break;
            }
            assert_eq!(record.head(), expected.to_be_bytes());
            expected += 1;
        }
        io.settle();
        turns += 1;
        assert!(turns < 100_000, "stranded at {expected}");
    }
}

#[test]
fn no_interleaving_of_sends_and_reads_strands_a_record() {
    let io = &mut io();
    let (router, dealer, peer) = pair(io);
    let mut record = Inbound::default();
    let mut seed = 0x2545_F491_4F6C_DD1Du64;
    let mut draw = |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    for _ in 0..300 {
        let (mut to_router, mut to_dealer) = (0, 0);
        for _ in 0..draw(20) {
            match draw(6) {
                0 | 1 => to_router += u32::from(io.send(dealer, None, b"there", &[]).is_ok()),
                2 | 3 => to_dealer += u32::from(io.send(router, Some(&peer), b"back", &[]).is_ok()),
                4 => io.refresh(if draw(2) == 0 { router } else { dealer }),
                _ => {
                    io.settle();
                }
            }
        }
        // From here on only what the poller and the edge rule say is read.
        while to_router + to_dealer > 0 {
            let lane = wait(io, "a stranded record", Io::next_readable);
            let left = if lane == router { &mut to_router } else { &mut to_dealer };
            while io.receive(lane, &mut record) {
                *left -= 1;
            }
            if draw(2) == 0 && io.send(dealer, None, b"more", &[]).is_ok() {
                to_router += 1;
            }
            io.settle();
        }
    }
}

#[test]
fn a_dial_to_a_closed_port_fails() {
    let io = &mut io();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for endpoint in [format!("tcp://{free}"), "ipc:///tmp/wakeful-io-nobody".into()] {
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
    let left = iter::repeat_with(|| io.receive(router, &mut record)).take_while(|&read| read).count();
    assert_eq!(left, 99);
    assert_eq!(io.send(router, Some(&peer), b"too late", &[]), Err(SendError::NoRoute));

    let (router, dealer, peer) = pair(io);
    for _ in 0..100 {
        io.send(router, Some(&peer), b"last words", &[]).unwrap();
    }
    record_of(io, dealer);
    io.close(router, Linger::Orderly);
    assert!(matches!(event_of(io, dealer), LaneEvent::Disconnected { .. }));
    let left = iter::repeat_with(|| io.receive(dealer, &mut record)).take_while(|&read| read).count();
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
    assert_eq!(record_of(io, router).head(), b"still here");
    assert_eq!(io.lanes(), 2);
}

fn endpoint_of(io: &Io, lane: LaneId) -> BindEndpoint {
    let socket = io.lane(lane).unwrap().socket.as_ref().unwrap();
    text(&socket.get_last_endpoint().unwrap().unwrap())
}

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
        while io.receive(router, &mut record) {
            peers.insert(record.peer().to_vec());
        }
        (peers.len() == 400).then_some(())
    });
    lanes.iter().for_each(|&lane| io.close(lane, Linger::None));
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
    let named = format!("ipc:///tmp/wakeful-io-{}", std::process::id());
    for open in ["tcp://127.0.0.1:0", "ipc://*", &named, "ipc://@wakeful-io"] {
        let (router, bound) = io.listen(Listen::Router { identity: b'A' }, &text(open), 0, 0).unwrap();
        let dealer = io.dial(Dial::Dealer, &Endpoint::try_from(&bound).unwrap(), 0, 0).unwrap();
        assert_eq!(event_of(io, dealer), LaneEvent::Connected, "{open}");
        io.send(dealer, None, b"hello", &[]).unwrap();
        assert_eq!(record_of(io, router).head(), b"hello");
    }
    let (_, bound) = io.listen(Listen::Pub, &text("tcp://*:0"), 0, 0).unwrap();
    assert!(bound.is_wildcard() && bound.as_str() != "tcp://0.0.0.0:0");
}

#[test]
fn an_address_in_use_is_a_typed_error_and_leaves_nothing() {
    let io = &mut io();
    let kind = Listen::Router { identity: b'A' };
    let (tcp, bound) = io.listen(kind, &text("tcp://127.0.0.1:0"), 0, 0).unwrap();
    let path = format!("/tmp/wakeful-io-used-{}", std::process::id());
    let (ipc, _) = io.listen(kind, &text(&format!("ipc://{path}")), 0, 0).unwrap();
    let file = format!("{path}-file");
    std::fs::write(&file, b"precious").unwrap();
    for (endpoint, error) in [
        (bound.as_str(), IoError::AddressInUse),
        (&format!("ipc://{path}"), IoError::AddressInUse),
        (&format!("ipc://{file}"), IoError::AddressInUse),
        (&format!("ipc://{file}/below"), IoError::NoSuchPath),
        ("ipc:///no/such/directory", IoError::NoSuchPath),
        ("tcp://192.0.2.1:0", IoError::AddressUnavailable),
    ] {
        assert_eq!(io.listen(kind, &text(endpoint), 0, 0), Err(error), "{endpoint}");
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    std::fs::remove_file(&file).unwrap();

    wait(io, "what failed to be cleared away", |io| (io.lanes() == 2).then_some(()));
    while let Some((lane, _)) = io.next_event() {
        assert!(lane == tcp || lane == ipc, "a lane that never was has no events");
    }
    let dealer = io.dial(Dial::Dealer, &text(&format!("ipc://{path}")), 0, 0).unwrap();
    assert_eq!(event_of(io, dealer), LaneEvent::Connected, "the listener was not harmed by the question");
}

#[test]
fn a_path_left_behind_by_a_dead_process_is_taken_over() {
    let io = &mut io();
    let path = format!("/tmp/wakeful-io-left-{}", std::process::id());
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    io.listen(Listen::Pub, &text(&format!("ipc://{path}")), 0, 0).unwrap();
}

#[test]
fn an_errno_that_the_binding_cannot_name_is_an_error_and_no_panic() {
    // ENOTDIR is one of them. The path is checked before libzmq sees it, so here libzmq is asked directly.
    let context = zmq::Context::new();
    let socket = context.socket(zmq::PUB).unwrap();
    assert_eq!(lane::named(|| socket.bind("ipc:///dev/null/below")), Err(IoError::Unnamed));
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
    assert!(!io.receive(stale, &mut record) && !io.subscribe(stale, b""));
    assert_eq!(io.owner(stale), None);
    io.refresh(stale);
    io.drain_monitor(stale);
    io.close(stale, Linger::Orderly);
    io.woken(Token(usize::MAX >> 1));
    assert_eq!(event_of(io, fresh), LaneEvent::Connected);
    io.send(fresh, None, b"untouched", &[]).unwrap();
    assert_eq!(record_of(io, router).head(), b"untouched");
}

#[test]
fn a_record_of_too_many_frames_is_cut_off_and_says_so() {
    let io = &mut io();
    let (router, dealer, _) = pair(io);
    for (parts, truncated) in [(255, false), (256, true), (5_000, true), (1, false)] {
        io.send(dealer, None, b"head", &vec![&b"p"[..]; parts]).unwrap();
        let record = record_of(io, router);
        assert_eq!((record.is_truncated(), record.bytes()), (truncated, 4 + parts));
        assert_eq!((record.head(), record.parts().len()), (&b"head"[..], parts.min(255)));
    }
}

#[test]
fn a_frame_above_the_limit_ends_its_connection_alone() {
    let io = &mut io();
    let (router, bound) =
        io.listen(Listen::Router { identity: b'A' }, &text("tcp://127.0.0.1:0"), 0, 1000).unwrap();
    let endpoint = Endpoint::try_from(&bound).unwrap();
    let (good, bad) =
        (io.dial(Dial::Dealer, &endpoint, 0, 0).unwrap(), io.dial(Dial::Dealer, &endpoint, 0, 0).unwrap());
    io.send(bad, None, &[0; 1001], &[]).unwrap();
    io.send(good, None, &[0; 1000], &[]).unwrap();
    assert_eq!(record_of(io, router).bytes(), 1000);
    assert_eq!(event_of(io, bad), LaneEvent::Connected);
    assert!(matches!(event_of(io, bad), LaneEvent::Disconnected { .. }));
}

#[test]
fn a_full_pipe_would_block_and_takes_nothing_of_the_record() {
    let io = &mut Io::new(Limits { send_hwm: 10, receive_hwm: 10 }).unwrap();
    let (router, dealer, _) = pair(io);
    let big = vec![7; 100_000];
    let mut sent = 0;
    while io.send(dealer, None, b"head", &[&big, &big]).is_ok() {
        sent += 1;
        assert!(sent < 10_000);
    }
    assert_eq!(io.send(dealer, None, b"head", &[&big, &big]), Err(SendError::WouldBlock));
    for _ in 0..sent {
        assert_eq!(record_of(io, router).bytes(), 200_004);
    }
    io.poll(Some(Duration::from_millis(50))).unwrap();
    assert!(!io.receive(router, &mut Inbound::default()));
}

#[test]
fn a_hello_names_the_descriptor_that_the_monitor_named() {
    let io = &mut io();
    for open in ["tcp://127.0.0.1:0", "ipc://*"] {
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
    assert_eq!(record_of(io, router).head(), b"through");
    let mut gone = 0;
    wait(io, "3,000 ends", |io| {
        while let Some((_, event)) = io.next_event() {
            gone += u32::from(matches!(event, LaneEvent::Disconnected { .. }));
        }
        (gone == 3_000).then_some(())
    });
}

#[test]
fn a_foreign_poller_wakes_for_input_and_for_the_waker_and_not_for_nothing() {
    let io = &mut io();
    let (router, dealer, _) = pair(io);
    while io.settle() || io.next_event().is_some() {
        io.poll(Some(Duration::ZERO)).unwrap();
    }
    let mut foreign = mio::Poll::new().unwrap();
    let mut wakeups = mio::Events::with_capacity(4);
    foreign.registry().register(&mut SourceFd(&io.as_raw_fd()), Token(0), Interest::READABLE).unwrap();
    let mut woke = |timeout| {
        foreign.poll(&mut wakeups, Some(timeout)).unwrap();
        !wakeups.is_empty()
    };
    for round in 0..100 {
        io.send(dealer, None, b"wake up", &[]).unwrap();
        assert!(io.settle() || woke(PATIENCE), "round {round}");
        wait(io, "the record", |io| {
            while io.next_readable().is_some() {}
            io.receive(router, &mut Inbound::default()).then_some(())
        });
        assert!(!io.receive(router, &mut Inbound::default()));
        if io.settle() {
            io.wake();
        }
    }
    while woke(Duration::from_millis(50)) {
        io.poll(Some(Duration::ZERO)).unwrap();
        assert!(io.next_readable().is_none());
    }
    assert_eq!(io.as_fd().as_raw_fd(), io.as_raw_fd());
    io.wake();
    assert!(woke(PATIENCE));
    io.poll(Some(PATIENCE)).unwrap();
    assert!(io.next_readable().is_none() && !woke(Duration::from_millis(10)));
}

#[test]
fn dropping_it_amid_traffic_does_not_hang() {
    let mut one = io();
    let mut other = io();
    let (router, endpoint) = listen(&mut one, b'A');
    let dealers: Vec<LaneId> = (0..50).map(|_| other.dial(Dial::Dealer, &endpoint, 0, 0).unwrap()).collect();
    for &dealer in &dealers {
        assert!(matches!(other.send(dealer, None, b"hello", &[&[0; 100_000]]), Ok(())));
    }
    record_of(&mut one, router);
    let clock = Clock::start();
    let start = clock.now();
    drop(other);
    drop(one);
    assert!(clock.now().since(start) < Duration::from_secs(5));
}
