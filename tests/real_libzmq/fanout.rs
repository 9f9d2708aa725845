//! PUB and SUB, as the fanout uses them.

use zmq::{Context, Socket, SocketType};

use crate::kit::{await_record, bind, never, recv, send, socket, until};

/// A SUB with the given prefixes at `endpoint`.
fn subscriber(context: &Context, endpoint: &str, prefixes: &[&[u8]]) -> Socket {
    let subscriber = socket(context, SocketType::SUB);
    for prefix in prefixes {
        subscriber.set_subscribe(prefix).unwrap();
    }
    subscriber.connect(endpoint).unwrap();
    subscriber
}

/// Publishes `topic` until the subscriber has it, and reads what of it came twice.
fn await_subscription(publisher: &Socket, subscriber: &Socket, topic: &[u8]) {
    until("the subscription is in force", || {
        send(publisher, &[topic, b"first"]).unwrap();
        recv(subscriber)
    });
    while !never(|| recv(subscriber)) {}
}

// Leans on it: the beacon's topic is a subscription of its own, and a longer topic behind it is an application's.
#[test]
fn a_subscriber_gets_every_topic_that_begins_with_one_of_its_prefixes_and_no_other() {
    let context = Context::new();
    let publisher = socket(&context, SocketType::PUB);
    let subscriber = subscriber(&context, &bind(&publisher), &[b"\x01ZLF1", b"news"]);
    await_subscription(&publisher, &subscriber, b"news");
    for topic in
        [&b"\x01ZLF1"[..], b"\x01ZLF", b"\x01ZLF1longer", b"new", b"", b"newspaper", b"news", b"NEWS"]
    {
        send(&publisher, &[topic, b"body"]).unwrap();
    }
    for topic in [&b"\x01ZLF1"[..], b"\x01ZLF1longer", b"newspaper", b"news"] {
        assert_eq!(await_record(&subscriber), [topic, b"body"]);
    }
    assert!(never(|| recv(&subscriber)));
}

// Leans on it: two subscriptions that both fit do not double a record.
#[test]
fn overlapping_prefixes_deliver_a_record_once() {
    let context = Context::new();
    let publisher = socket(&context, SocketType::PUB);
    let subscriber = subscriber(&context, &bind(&publisher), &[b"", b"a", b"ab"]);
    await_subscription(&publisher, &subscriber, b"x");
    send(&publisher, &[b"abc", b"body"]).unwrap();
    assert_eq!(await_record(&subscriber), [b"abc", &b"body"[..]]);
    assert!(never(|| recv(&subscriber)));
}

// Leans on it: a publisher is ready on its first record only, and may lose what it published before.
#[test]
fn a_record_published_to_nobody_is_gone() {
    let context = Context::new();
    let publisher = socket(&context, SocketType::PUB);
    let endpoint = bind(&publisher);
    assert_eq!(send(&publisher, &[b"news", b"early"]), Ok(()));
    let subscriber = subscriber(&context, &endpoint, &[b"news"]);
    await_subscription(&publisher, &subscriber, b"news");
    send(&publisher, &[b"news", b"late"]).unwrap();
    assert_eq!(await_record(&subscriber)[1], b"late");
}

// Leans on it: beacons and records go out without a WouldBlock, after the events were asked; a slow subscriber loses, a quick one does not.
#[test]
fn a_publisher_never_blocks_and_drops_for_the_slow_one_alone() {
    const RECORDS: u32 = 1_000;
    let context = Context::new();
    let publisher = socket(&context, SocketType::PUB);
    publisher.set_sndhwm(10).unwrap();
    publisher.set_sndbuf(16_384).unwrap();
    let endpoint = bind(&publisher);
    let [slow, quick] = [(); 2].map(|()| {
        let subscriber = socket(&context, SocketType::SUB);
        subscriber.set_rcvhwm(10).unwrap();
        subscriber.set_rcvbuf(16_384).unwrap();
        subscriber.set_subscribe(b"").unwrap();
        subscriber.connect(&endpoint).unwrap();
        subscriber
    });
    await_subscription(&publisher, &quick, b"");
    await_subscription(&publisher, &slow, b"");
    while !never(|| recv(&quick)) {}
    for n in 0..RECORDS {
        // Credit that waits at the socket is not seen by a busy sender that does not ask; the quick one would lose too.
        publisher.get_events().unwrap();
        assert_eq!(send(&publisher, &[&n.to_be_bytes(), &[0; 16_384]]), Ok(()));
        // The quick one reads each before the next is published.
        assert_eq!(await_record(&quick)[0], n.to_be_bytes());
    }
    // The slow one keeps what came first and loses the rest, the last record with it.
    let last = (RECORDS - 1).to_be_bytes();
    let mut kept = vec![await_record(&slow)];
    while !never(|| recv(&slow).map(|record| kept.push(record))) {}
    assert_eq!(kept[0][0], [0; 4]);
    assert!(kept.len() < 100 && kept.iter().all(|record| record[0] != last), "it kept {}", kept.len());
    // Once drained, it hears again.
    send(&publisher, &[b"again", b""]).unwrap();
    assert_eq!(await_record(&slow)[0], b"again");
}
