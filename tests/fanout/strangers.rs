//! What listens where a publisher is wanted, and is none or means harm; and who knocks at a publisher's port. Whatever they
//! do, only their own connection ends, and a publisher or subscriber beside them does not notice.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use wakeful::{Endpoint, Failure, LostReason, Owned, RouteState, Silence, Subscriber};

use crate::support::{ms, s};
use crate::ticks::{PAYLOAD, RawPublisher, RawSubscriber, Stage, TOPIC, publisher_node, ticks};
use crate::zmtp::{Trap, connect, greeting, is_closed, large, ready, record, shake_hands};

/// A subscriber to a trap and to a publisher that beats, which was heard.
fn beside_a_trap() -> (Stage, Trap) {
    let (trap, neighbour) = (Trap::new(), RawPublisher::new());
    let wish = Subscriber::new(ticks()).filter(b"EUR");
    let wish = wish.publisher(neighbour.endpoint.clone()).publisher(trap.endpoint.clone());
    let mut stage = Stage::of(vec![neighbour], wish);
    stage.beats = vec![true];
    stage.beacon(0);
    stage.diary.clear();
    (stage, trap)
}

/// The neighbour is heard, and was never lost.
fn neighbour_is_well(stage: &mut Stage) {
    stage.publish(0, &[b"EUR", b"1.1"]);
    assert_eq!(stage.published().pop(), Some((0, vec![b"EUR".to_vec(), b"1.1".to_vec()])));
    assert!(stage.is_ready(0) && stage.lost().iter().all(|(_, publisher, _)| *publisher != 0));
}

/// Accepting is no sign of life, nor is a greeting, nor ZeroMQ's whole handshake: without a record the attempt is over after
/// 20 s watched, its socket is closed, and another one is dialled.
#[test]
fn who_accepts_and_never_says_a_record_is_dialled_anew_after_20_s() {
    let words: [&[u8]; 5] = [
        b"",
        &greeting()[..12],
        &greeting(),
        &[greeting(), ready("PUB", b"")[..9].to_vec()].concat(),
        &[greeting(), ready("PUB", b"")].concat(),
    ];
    for said in words {
        let (mut stage, trap) = beside_a_trap();
        let mut first = trap.caught(&mut stage.node);
        first.write_all(said).unwrap();
        let dialled = stage.elapsed();
        stage.follow(dialled + ms(19_900));
        assert_eq!(stage.diary, [], "{} bytes", said.len());
        stage.follow(dialled + s(20));
        assert!(
            matches!(stage.diary[..], [(_, Owned::Failed { failure: Failure::TimedOut, .. })]),
            "{} bytes: {:?}",
            said.len(),
            stage.diary
        );
        assert!(is_closed(&mut first));
        let mut second = trap.met(&mut stage.node);
        second.write_all(&record(&[TOPIC, PAYLOAD])).unwrap();
        stage.until("ready at last", |stage| !stage.became_ready().is_empty());
        neighbour_is_well(&mut stage);
    }
}

/// Where nobody listens, each attempt is told, and the next one follows until somebody does.
#[test]
fn where_nobody_listens_is_tried_again_until_a_publisher_does() {
    // An address of its own, so that no other test is given this port.
    let gone = TcpListener::bind("127.0.0.2:0").unwrap().local_addr().unwrap();
    let endpoint: Endpoint = format!("tcp://{gone}").parse().unwrap();
    let neighbour = RawPublisher::new();
    let wish = Subscriber::new(ticks()).filter(b"EUR");
    let wish = wish.publisher(neighbour.endpoint.clone()).publisher(endpoint.clone());
    let mut stage = Stage::of(vec![neighbour], wish);
    stage.beacon(0);
    let told = |stage: &Stage| {
        let is_told = |event: &Owned| matches!(event, Owned::Failed { failure: Failure::Unreachable, .. });
        stage.diary.iter().filter(|(_, event)| is_told(event)).count()
    };
    for attempt in 1..=10 {
        stage.until_later(ms(100), "told", |stage| {
            stage.raws[0].beacon();
            told(stage) >= attempt
        });
    }
    assert_eq!(told(&stage) + 1, stage.diary.len(), "the neighbour was ready once: {:?}", stage.diary);
    stage.raws.push(RawPublisher::at(endpoint.as_str()));
    stage.until_later(ms(100), "dialled", |stage| {
        stage.raws[0].beacon();
        stage.raws[1].count(1, TOPIC) == 1
    });
    stage.beacon(1);
    neighbour_is_well(&mut stage);
}

/// Another service, or another kind of ZeroMQ socket, is told as such at once; it is tried again, and can become a publisher.
#[test]
fn what_does_not_speak_as_a_publisher_is_refused_and_tried_again() {
    // ZeroMQ does not say what it has against a kind of socket, only that it hung up.
    let kinds = ["SUB", "ROUTER", "PAIR", "", "PUBLISHER"];
    let kinds = kinds.map(|kind| ([greeting(), ready(kind, b"")].concat(), Failure::Unreachable));
    // A security that nobody offers, and a handshake that says something else.
    let mut curve = greeting();
    curve[12..17].copy_from_slice(b"CURVE");
    let hello = [greeting(), b"\x04\x06\x05HELLO".to_vec()].concat();
    let beacon = [greeting(), record(&[TOPIC, PAYLOAD])].concat();
    let others = [curve, hello, beacon].map(|said| (said, Failure::NotZeroMq));
    let (mut stage, trap) = beside_a_trap();
    for (said, why) in kinds.into_iter().chain(others) {
        let mut stream = trap.caught(&mut stage.node);
        stream.write_all(&said).unwrap();
        stage.diary.clear();
        stage.until("refused", |stage| !stage.diary.is_empty());
        let [(_, Owned::Failed { failure, .. })] = &stage.diary[..] else { panic!("{:?}", stage.diary) };
        assert_eq!(*failure, why, "{:?}", String::from_utf8_lossy(&said));
        assert!(is_closed(&mut stream));
        neighbour_is_well(&mut stage);
        // Longer than any back-off.
        stage.follow(stage.elapsed() + s(6));
    }
    let mut stream = trap.met(&mut stage.node);
    stream.write_all(&record(&[TOPIC, PAYLOAD])).unwrap();
    stage.until("ready at last", |stage| stage.became_ready().len() == 1);
}

/// A trap that has made itself ready.
fn heard() -> (Stage, Trap, TcpStream) {
    let (mut stage, trap) = beside_a_trap();
    let mut stream = trap.met(&mut stage.node);
    stream.write_all(&record(&[TOPIC, PAYLOAD])).unwrap();
    stage.until("ready", |stage| stage.became_ready().len() == 1);
    (stage, trap, stream)
}

/// What breaks ZMTP ends the transport; what breaks the beacon's topic is a protocol error, however its frames arrive.
/// Nothing of it is delivered, and the next connection begins anew.
#[test]
fn a_publisher_that_breaks_off_within_the_protocol_is_lost_alone() {
    let transport = LostReason::Transport;
    let words: [(Vec<u8>, LostReason); 6] = [
        (vec![0xFF; 100], transport),
        (large(0, u64::MAX), transport),
        (record(&[TOPIC]), LostReason::Protocol),
        (record(&[TOPIC, PAYLOAD, b""]), LostReason::Protocol),
        (record(&[TOPIC, &[0; 4]]), LostReason::Protocol),
        (record(&vec![TOPIC; 10_000]), LostReason::Protocol),
    ];
    for (said, reason) in words {
        let (mut stage, trap, mut stream) = heard();
        // It may be cut off before all of it was said.
        let _ = stream.write_all(&[&said[..], &record(&[b"EUR", b"behind"])].concat());
        stage.until("lost", |stage| !stage.lost().is_empty());
        assert_eq!(stage.lost().iter().map(|(_, _, why)| *why).collect::<Vec<_>>(), [reason], "{said:?}");
        assert!(is_closed(&mut stream));
        assert_eq!(stage.published(), [], "{said:?}");
        let mut second = trap.met(&mut stage.node);
        second.write_all(&record(&[b"EUR", b"again"])).unwrap();
        stage.until("heard again", |stage| stage.published().len() == 1);
        assert_eq!(stage.became_ready().len(), 2);
        neighbour_is_well(&mut stage);
    }
}

/// Who goes in the middle of a record has not sent it; who goes behind one has.
#[test]
fn the_last_words_of_a_publisher_that_breaks_off_are_heard_as_far_as_they_are_whole() {
    let (mut stage, _trap, mut stream) = heard();
    stream.write_all(&record(&[b"EUR", b"1"])).unwrap();
    let cut = record(&[b"EUR", b"2"]);
    stream.write_all(&cut[..cut.len() - 1]).unwrap();
    // An end that leaves something unread would take back what is on its way.
    stream.shutdown(Shutdown::Write).unwrap();
    stage.until("lost", |stage| !stage.lost().is_empty());
    assert!(matches!(stage.lost()[..], [(_, 1, LostReason::Transport)]));
    assert_eq!(stage.published(), [(1, vec![b"EUR".to_vec(), b"1".to_vec()])]);
    neighbour_is_well(&mut stage);
}

/// A publisher of ZMTP 2, which ZeroMQ still speaks, is a publisher: its first record is its first sign of life.
#[test]
fn a_publisher_of_an_older_protocol_is_heard() {
    let (mut stage, trap) = beside_a_trap();
    let mut stream = trap.caught(&mut stage.node);
    // Signature, revision 1, the number of PUB; then an empty identity.
    stream.write_all(b"\xFF\0\0\0\0\0\0\0\x01\x7F\x01\x01\0\0").unwrap();
    stream.write_all(&record(&[b"EUR", b"1.1"])).unwrap();
    stage.until("heard", |stage| stage.published().len() == 1);
    assert_eq!(stage.became_ready().len(), 1);
    let last = stage.elapsed();
    stage.follow(last + s(16));
    assert_eq!(stage.lost(), [(last + s(15), 1, LostReason::Silence(Silence::NoRecord))]);
}

/// A publisher that restarts again and again at its endpoint is ready once and lost once each time, at once, and there is
/// never more than one connection for it.
#[test]
fn a_publisher_that_restarts_20_times_is_ready_once_each_time() {
    let mut stage = Stage::ready(2, &[b"EUR"]);
    stage.beats = vec![false, true];
    for restart in 1..=20_u8 {
        let endpoint = stage.raws[0].endpoint.clone();
        // Its place keeps its endpoint while the old one goes.
        let mut stranger = RawPublisher::new();
        stranger.endpoint = endpoint.clone();
        drop(std::mem::replace(&mut stage.raws[0], stranger));
        stage.until("lost", |stage| stage.lost().len() == usize::from(restart));
        stage.raws[0] = RawPublisher::at(endpoint.as_str());
        stage.until_later(ms(20), "dialled", |stage| {
            stage.raws[1].beacon();
            stage.raws[0].count(1, TOPIC) == 1
        });
        stage.publish(0, &[b"EUR", &[restart]]);
        assert_eq!(stage.became_ready().len(), usize::from(restart));
        let intents = stage.snapshot().intents;
        assert_eq!(intents.iter().map(|each| each.state).collect::<Vec<_>>(), [RouteState::Ready; 2]);
        assert_eq!(stage.snapshot().sources.len(), 2);
    }
    assert!(stage.lost().iter().all(|(_, from, why)| (*from, *why) == (0, LostReason::Transport)));
    assert_eq!(stage.published().len(), 20);
}

/// Whoever knocks at a publisher's port and speaks nothing that it knows is counted, and the subscribers hear on.
#[test]
fn strangers_at_a_publishers_port_are_counted_and_harm_nobody() {
    let (mut node, endpoint) = publisher_node();
    let healthy = RawSubscriber::new(&endpoint, &[b""], 1_000);
    healthy.join(&mut node, b"join");
    let words: [Vec<u8>; 6] = [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        greeting(),
        [greeting(), ready("PUB", b"")].concat(),
        [greeting(), ready("DEALER", b"")].concat(),
        [greeting(), vec![0xFF; 500]].concat(),
        [&[0x16, 3, 1][..], &[7; 2_000]].concat(),
    ];
    let mut open = Vec::new();
    for knock in 0..300 {
        let mut stream = connect(&endpoint);
        // It may have been hung up on already.
        let _ = stream.write_all(&words[knock % words.len()]);
        open.push(stream);
        if open.len() > 50 {
            drop(open.remove(0));
        }
        node.pass(ms(100));
        node.engine.outbox().publish(&ticks(), b"t", &[&knock.to_be_bytes()]).unwrap();
        healthy.up_to(&[b"t".to_vec(), knock.to_be_bytes().to_vec()]);
    }
    drop(open);
    crate::support::until(&mut [&mut node], "those who broke ZeroMQ's handshake are counted", |nodes| {
        // Two of each six stand still, or hang up, before they have said anything wrong.
        nodes[0].engine.snapshot().counters.strangers >= 150
    });
    assert_eq!(node.events(), []);
}

/// What a subscriber sends that is no subscription is nobody's, and half a subscription keeps nobody waiting.
#[test]
fn what_a_subscriber_sends_beside_its_filters_changes_nothing() {
    let (mut node, endpoint) = publisher_node();
    let healthy = RawSubscriber::new(&endpoint, &[b""], 1_000);
    healthy.join(&mut node, b"join");
    let said = [
        record(&[b"\x01E", b"more"]),
        record(&[b"\x00never asked"]),
        record(&[&b""[..]; 300]),
        record(&[b"\x05"]),
    ];
    let mut stream = connect(&endpoint);
    shake_hands(&mut stream, "SUB", b"").unwrap();
    stream.write_all(&said.concat()).unwrap();
    stream.write_all(&record(&[b"\x01EUR"])).unwrap();
    stream.write_all(&record(&[b"\x01USD"])[..4]).unwrap();
    let mut answer = [0; 5];
    stream.set_nonblocking(true).unwrap();
    crate::support::until(&mut [&mut node], "a record for its one filter", |nodes| {
        nodes[0].engine.outbox().publish(&ticks(), b"EUR", &[]).unwrap();
        stream.peek(&mut answer).is_ok_and(|length| length == answer.len())
    });
    stream.set_nonblocking(false).unwrap();
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"\0\x03EUR");
    assert_eq!(node.events(), []);
}
