//! What is sent arrives, whole, or the sender is told.

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
fn a_short_record_that_is_kept_can_let_go_of_what_a_long_one_left() {
    let io = &mut io();
    let (router, dealer, _) = pair(io);
    io.send(dealer, None, b"long", &[b"small", &[0; 4096]]).unwrap();
    let mut record = record_of(io, router);
    assert_eq!(record.rest(), 0);
    io.send(dealer, None, b"short", &[]).unwrap();
    // To find nothing would clear the record.
    assert_eq!(io.lane(router).unwrap().socket.as_ref().unwrap().poll(zmq::POLLIN, 10_000), Ok(1));
    assert!(io.receive(router, &mut record));
    assert_eq!((record.head(), record.bytes(), record.rest()), (&b"short"[..], 5, 5 + 4096));
    record.forget_rest(8192);
    assert_eq!(record.rest(), 5 + 4096, "little is not worth letting go of");
    record.forget_rest(1024);
    assert_eq!((record.head(), record.parts().len(), record.rest()), (&b"short"[..], 0, 0));
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
    assert_eq!((admit.peer(), admit.head()), (&b"C"[..], &b"admit"[..]));
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
        io.receive(subscriber, &mut record).then_some(())
    });
    assert_eq!((record.head(), record.parts().get(0)), (&b"ab"[..], Some(&b"body"[..])));
    assert!(!io.receive(publisher, &mut record), "a publisher never reads");
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
