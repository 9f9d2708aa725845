//! How much a publisher may send, and a subscriber may ask for: what is above a limit ends the one who sent it, and
//! nobody else.

use std::io::Write;
use std::net::TcpStream;

use wakeful::{FILTER_BYTES_MAX, Failure, LostReason, MESSAGE_BYTES_MIN, Owned, Silence, Subscriber};

use crate::support::{Node, ms, s};
use crate::ticks::{PAYLOAD, RawPublisher, RawSubscriber, Stage, TOPIC, publisher_node, ticks};
use crate::zmtp::{Trap, connect, is_closed, large, record, shake_hands};

const LIMIT: usize = MESSAGE_BYTES_MIN as usize;

/// Two publishers, heard in all they say, within the limit.
fn limited() -> Stage {
    let raws = vec![RawPublisher::new(), RawPublisher::new()];
    let wish = Subscriber::new(ticks()).filter(b"").message_bytes_max(MESSAGE_BYTES_MIN);
    let wish = raws.iter().fold(wish, |wish, raw| wish.publisher(raw.endpoint.clone()));
    Stage::of(raws, wish)
}

/// Topic and parts count together. One byte above the limit ends its publisher at once and alone, and it can be heard again;
/// the other publisher may still send as much as the limit says.
#[test]
fn a_record_above_the_limit_ends_its_publisher_alone_and_is_not_delivered() {
    let shapes: [&[usize]; 5] = [&[LIMIT], &[1, LIMIT - 1], &[LIMIT, 0, 0], &[0, LIMIT], &[LIMIT / 4; 4]];
    for shape in shapes {
        let mut stage = limited();
        let full: Vec<Vec<u8>> = shape.iter().map(|&length| vec![b't'; length]).collect();
        let full: Vec<&[u8]> = full.iter().map(Vec::as_slice).collect();
        stage.publish(0, &full);
        stage.publish(1, &full);
        assert_eq!(stage.published().len(), 2, "{shape:?}");
        stage.raws[0].send(&[&full[..], &[b"t"]].concat());
        stage.raws[0].send(&[b"behind"]);
        stage.until("lost", |stage| !stage.lost().is_empty());
        assert!(matches!(stage.lost()[..], [(_, 0, LostReason::Protocol)]), "{:?}", stage.lost());
        assert_eq!(stage.snapshot().counters.protocol_errors, 1);
        stage.publish(1, &full);
        stage.until_later(ms(5), "another socket", |stage| stage.raws[0].count(1, TOPIC) == 2);
        stage.publish(0, &full);
        assert_eq!(stage.published().len(), 4, "none of them is larger");
        assert_eq!((stage.lost().len(), stage.became_ready().len()), (1, 3));
    }
}

#[test]
fn a_record_above_the_limit_makes_no_publisher_ready() {
    let mut stage = limited();
    stage.raws[0].send(&[&[0; LIMIT + 1]]);
    stage.until("the attempt ended", |stage| !stage.diary.is_empty());
    assert!(matches!(stage.diary[..], [(_, Owned::Failed { failure: Failure::Protocol, .. })]));
}

/// Without a limit no record is too large, nor is any topic too long.
#[test]
fn without_a_limit_a_record_and_its_topic_may_be_of_any_size() {
    let mut stage = Stage::ready(1, &[b"long"]);
    let topic = [b"long", &vec![b'g'; 4 << 20][..]].concat();
    let part = vec![7; 16 << 20];
    stage.publish(0, &[&topic, &part]);
    assert_eq!(stage.published(), [(0, vec![topic, part])]);
    assert_eq!(stage.lost(), []);
}

/// A subscriber with a limit, and a publisher below ZeroMQ that has made itself ready. Its neighbour beats.
fn heard() -> (Stage, Trap, TcpStream) {
    let (trap, neighbour) = (Trap::new(), RawPublisher::new());
    let wish = Subscriber::new(ticks()).filter(b"").message_bytes_max(MESSAGE_BYTES_MIN);
    let wish = wish.publisher(neighbour.endpoint.clone()).publisher(trap.endpoint.clone());
    let mut stage = Stage::of(vec![neighbour], wish);
    stage.beats = vec![true];
    stage.beacon(0);
    let mut stream = trap.met(&mut stage.node);
    stream.write_all(&record(&[TOPIC, PAYLOAD])).unwrap();
    stage.until("ready", |stage| stage.became_ready().len() == 2);
    (stage, trap, stream)
}

/// What only claims to be large is cut off at the claim: nothing waits for the bytes, and no memory is taken for them.
#[test]
fn a_frame_of_more_than_twice_the_limit_is_cut_off_at_its_head() {
    for claimed in [2 * LIMIT as u64 + 1, 1 << 32, i64::MAX as u64, u64::MAX] {
        let (mut stage, _trap, mut stream) = heard();
        stream.write_all(&record(&[b"before"])).unwrap();
        stream.write_all(&large(0, claimed)).unwrap();
        stage.until("lost", |stage| !stage.lost().is_empty());
        assert!(matches!(stage.lost()[..], [(_, 1, LostReason::Transport)]), "{claimed}: {:?}", stage.lost());
        assert_eq!(stage.published(), [(1, vec![b"before".to_vec()])]);
        assert!(is_closed(&mut stream) && stage.is_ready(0));
    }
}

/// A record that never ends is no record, however long its publisher takes over it.
#[test]
fn a_record_that_is_never_finished_is_no_sign_of_life() {
    let (mut stage, _trap, mut stream) = heard();
    let last = stage.elapsed();
    for second in 1..=14 {
        // A byte a second, of a second part that says it is longer.
        let begin = [record(&[b"topic", b""])[..14].to_vec(), large(0, 100)].concat();
        stream.write_all(if second == 1 { &begin } else { b"x" }).unwrap();
        stage.follow(last + s(second));
    }
    stage.follow(last + s(20));
    assert_eq!(stage.lost(), [(last + s(15), 1, LostReason::Silence(Silence::NoRecord))]);
    assert!(stage.is_ready(0));
    assert_eq!(stage.published(), []);
}

/// A record fills 256 frames at most. What publishes longer ones cannot be delivered from whole, so it is a protocol error of
/// that publisher alone.
#[test]
fn a_record_of_more_than_256_frames_ends_its_publisher() {
    for frames in [257, 300, 100_000] {
        let mut stage = Stage::ready(2, &[b""]);
        stage.publish(0, &[&b"t"[..]; 256]);
        assert_eq!(stage.published()[0].1.len(), 256);
        stage.raws[0].send(&vec![&b"t"[..]; frames]);
        stage.until("lost", |stage| !stage.lost().is_empty());
        assert!(matches!(stage.lost()[..], [(_, 0, LostReason::Protocol)]), "{frames}");
        assert_eq!(stage.published().len(), 1);
        assert!(stage.is_ready(1));
    }
}

/// The longest filter is in force like any other.
#[test]
fn the_longest_filter_is_told_and_fits() {
    let longest = [b'f'; FILTER_BYTES_MAX];
    let mut stage = Stage::ready(1, &[&longest]);
    stage.publish(0, &[&longest, b"part"]);
    stage.publish(0, &[&[b'f'; FILTER_BYTES_MAX + 1]]);
    assert_eq!(stage.published().len(), 2);
    let mut outbox = stage.node.engine.outbox();
    assert_eq!(outbox.remove_filter(&ticks(), &longest), Ok(true));
    drop(outbox);
    stage.until("told", |stage| stage.raws[0].count(0, &longest) == 1);
}

/// A subscription, as ZMTP 3.0 says it.
fn subscription(length: usize) -> Vec<u8> {
    record(&[&[&[1][..], &vec![b'f'; length]].concat()])
}

/// A publisher takes a subscriber's filters of at most 1,024 bytes: a longer one ends the connection of who asked for it, and
/// the others hear on.
#[test]
fn a_subscriber_that_asks_for_a_longer_filter_is_cut_off_alone() {
    let (mut node, endpoint) = publisher_node();
    let healthy = RawSubscriber::new(&endpoint, &[b""], 1_000);
    healthy.join(&mut node, b"join");
    for length in [FILTER_BYTES_MAX + 100, 1 << 20, 16 << 20] {
        let mut stream = connect(&endpoint);
        shake_hands(&mut stream, "SUB", b"").unwrap();
        // It may be cut off before all of it was said.
        let _ = stream.write_all(&subscription(length));
        assert!(is_closed(&mut stream), "{length}");
        beacon_comes(&mut node, &healthy);
    }
    let mut stream = connect(&endpoint);
    shake_hands(&mut stream, "SUB", b"").unwrap();
    stream.write_all(&subscription(FILTER_BYTES_MAX)).unwrap();
    let topic = [b'f'; FILTER_BYTES_MAX];
    stream.set_nonblocking(true).unwrap();
    crate::support::until(&mut [&mut node], "a record for the longest filter", |nodes| {
        nodes[0].engine.outbox().publish(&ticks(), &topic, &[]).unwrap();
        stream.peek(&mut [0]).is_ok()
    });
}

/// The next beacon reaches a healthy subscriber.
fn beacon_comes(node: &mut Node, healthy: &RawSubscriber) {
    node.pass(s(5));
    healthy.up_to(&[TOPIC.to_vec(), PAYLOAD.to_vec()]);
}
