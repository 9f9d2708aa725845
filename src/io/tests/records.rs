//! What is sent arrives, whole, or the sender is told.

use std::iter;

use super::*;

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
    assert_eq!((record.peer(), record.look().head, record.look().bytes), (&peer[..], &b"head"[..], 12));
    assert_eq!(record.look().parts.iter().collect::<Vec<_>>(), [&b"one"[..], b"", b"three"]);
    assert_eq!(
        (record.look().parts.len(), record.look().parts.get(2), record.look().parts.get(3)),
        (3, Some(&b"three"[..]), None)
    );
    assert!(!record.look().is_truncated && !record.look().parts.is_empty());

    let kept = mem::take(&mut record);
    assert_eq!(
        (record.look().head, record.look().parts.len(), kept.look().head),
        (&b""[..], 0, &b"head"[..])
    );
    assert_eq!(io.receive(router, &mut record), Reading::Nothing);

    let parts: Vec<&[u8]> = kept.look().parts.into_iter().collect();
    io.send(router, Some(kept.peer()), kept.look().head, &parts).unwrap();
    let echo = record_of(io, dealer);
    assert_eq!((echo.peer(), echo.look().head, echo.look().parts.len()), (&b""[..], &b"head"[..], 3));
    assert_eq!(io.send(router, Some(b"nobody"), b"head", &[]), Err(SendError::NoRoute));
}

#[test]
fn a_short_record_that_is_kept_can_let_go_of_what_a_long_one_left() {
    let io = &mut io();
    let (router, dealer, _) = pair(io);
    io.send(dealer, None, b"long", &[b"small", &[0; 4096]]).unwrap();
    let mut record = record_of(io, router);
    assert_eq!(record.rest(), 0);
    io.send(dealer, None, b"short", &[]).unwrap();
    // To find nothing would make an empty record of it.
    assert_eq!(io.lane(router).unwrap().socket.as_ref().unwrap().poll(zmq::POLLIN, 10_000), Ok(1));
    assert_eq!(io.receive(router, &mut record), Reading::Record);
    assert_eq!((record.look().head, record.look().bytes, record.rest()), (&b"short"[..], 5, 5 + 4096));
    record.forget_rest(8192);
    assert_eq!(record.rest(), 5 + 4096, "little is not worth letting go of");
    record.forget_rest(1024);
    assert_eq!((record.look().head, record.look().parts.len(), record.rest()), (&b"short"[..], 0, 0));
}

#[test]
fn what_was_received_last_keeps_its_memory_until_the_next_unless_it_is_large() {
    let io = &mut io();
    let (router, dealer, _) = pair(io);
    for (bytes, left) in [(64 << 10, 4 + (64 << 10)), (3 << 20, 0)] {
        io.send(dealer, None, b"head", &[&vec![7; bytes]]).unwrap();
        let mut record = record_of(io, router);
        assert_eq!(io.receive(router, &mut record), Reading::Nothing);
        assert_eq!((record.look().head, record.look().parts.len(), record.look().bytes), (&b""[..], 0, 0));
        assert_eq!(record.rest(), left);
    }
}

#[test]
fn a_router_addresses_a_bound_router_by_its_identity() {
    let io = &mut io();
    let (bound, endpoint) = listen(io, b'C');
    let dialled = io.dial(Dial::Router, &endpoint, 0, 0).unwrap();
    assert_eq!(io.send(dialled, Some(b"A"), b"another", &[]), Err(SendError::NoRoute));
    assert_eq!(event_of(io, dialled), LaneEvent::Connected);
    io.send(dialled, Some(b"C"), b"hello", &[]).unwrap();
    let hello = record_of(io, bound);
    io.send(bound, Some(hello.peer()), b"admit", &[]).unwrap();
    let admit = record_of(io, dialled);
    assert_eq!((admit.peer(), admit.look().head), (&b"C"[..], &b"admit"[..]));
}

#[test]
fn a_subscriber_gets_what_it_subscribed_to() {
    let io = &mut io();
    let (publisher, bound) = io.listen(Listen::Pub, &text("tcp://127.0.0.1:*"), 0, 0).unwrap();
    let subscriber = io.dial(Dial::Sub, &Endpoint::try_from(&bound).unwrap(), 0, 0).unwrap();
    assert!(io.filter(subscriber, b"a", true));
    let mut record = Inbound::default();
    wait(io, "a publication", |io| {
        for topic in [&b"b"[..], b"ab"] {
            io.send(publisher, None, topic, &[b"body"]).unwrap();
        }
        while io.next_readable().is_some() {}
        (io.receive(subscriber, &mut record) == Reading::Record).then_some(())
    });
    assert_eq!((record.look().head, record.look().parts.get(0)), (&b"ab"[..], Some(&b"body"[..])));
    assert_eq!(io.receive(publisher, &mut record), Reading::Nothing, "a publisher never reads");
}

#[test]
fn a_record_of_too_many_frames_is_cut_off_and_says_so() {
    let io = &mut io();
    let (router, dealer, _) = pair(io);
    for (parts, truncated) in [(255, false), (256, true), (1_000, true), (1, false)] {
        io.send(dealer, None, b"head", &vec![&b"p"[..]; parts]).unwrap();
        let record = record_of(io, router);
        let (seen, kept) = (record.look(), parts.min(255));
        assert_eq!((seen.is_truncated, seen.bytes), (truncated, 4 + kept));
        assert_eq!((seen.head, seen.parts.len()), (&b"head"[..], kept));
    }
}

#[test]
fn what_is_too_much_of_a_record_is_read_away_in_several_readings_and_the_next_record_follows() {
    let io = &mut io();
    for dialled in [false, true] {
        let (router, dealer, peer) = pair(io);
        let (from, to, lane) =
            if dialled { (router, Some(&peer[..]), dealer) } else { (dealer, None, router) };
        io.send(from, to, b"long", &vec![&b""[..]; 5_000]).unwrap();
        io.send(from, to, b"next", &[b"part"]).unwrap();
        let mut record = record_of(io, lane);
        assert!(record.look().is_truncated);
        let readings: Vec<Reading> = iter::repeat_with(|| io.receive(lane, &mut record)).take(4).collect();
        assert_eq!(readings, [Reading::PassedOver; 4], "(5,000 - 255) / 1,024");
        let next = record_of(io, lane);
        assert_eq!((next.look().head, next.look().parts.get(0)), (&b"next"[..], Some(&b"part"[..])));
        assert_eq!(next.peer(), if dialled { &[][..] } else { &peer });
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
    assert_eq!(record_of(io, router).look().bytes, 1000);
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
        assert_eq!(record_of(io, router).look().bytes, 200_004);
    }
    io.poll(Some(Duration::from_millis(50))).unwrap();
    assert_eq!(io.receive(router, &mut Inbound::default()), Reading::Nothing);
}
