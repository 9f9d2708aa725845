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
            io.poll(Some(PATIENCE)).unwrap();
            let mut seen = 0;
            while let Some(lane) = io.next_readable() {
                let left = if lane == router { &mut to_router } else { &mut to_dealer };
                while io.receive(lane, &mut record) {
                    *left -= 1;
                    seen += 1;
                }
            }
            assert!(seen > 0, "{to_router} and {to_dealer} records stranded");
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
        assert_eq!(event_of(io, lane), LaneEvent::Failed(Failure::Unreachable));
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
    if last == LaneEvent::Failed(Failure::Handshake) {
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
    assert_eq!(event_of(io, dealer), LaneEvent::Stopped);
    assert!(matches!(event_of(io, router), LaneEvent::Accepted { .. }));
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
    assert_eq!(event_of(io, router), LaneEvent::Accepted { descriptor: 0 }.max_by_kind(io, router));
    assert!(matches!(event_of(io, dealer), LaneEvent::Disconnected { .. }));
    let left = iter::repeat_with(|| io.receive(dealer, &mut record)).take_while(|&read| read).count();
    assert_eq!(left, 99);
}
