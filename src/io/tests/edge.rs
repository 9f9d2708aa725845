//! The edge rule: nothing that can be read is ever stranded behind a silent descriptor.

use super::*;

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
            ours = ours && io.receive(router, &mut record) == Reading::Record;
            if !ours {
                break;
            }
            assert_eq!(record.look().head, expected.to_be_bytes());
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
            while io.receive(lane, &mut record) == Reading::Record {
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
            (io.receive(router, &mut Inbound::default()) == Reading::Record).then_some(())
        });
        assert_eq!(io.receive(router, &mut Inbound::default()), Reading::Nothing);
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
