//! 000 §4 and §10, "Fanout" and the fanout line of "Failure isolation": what a subscriber makes of each of its
//! publishers, which are plain XPUB sockets that send hand-written bytes.

use std::io::Read;
use std::net::TcpListener;
use std::time::Duration;

use wakeful::{
    Counters, Failure, Generation, HostState, LastFailure, LostReason, Owned, PublisherDescriptor,
    RegisterError, RouteState, Silence, Source, Subscriber,
};

use crate::support::{Node, generation, ms, rid, s, until};
use crate::ticks::{PAYLOAD, RawPublisher, Record, Stage, TOPIC, ticks};

const NO_RECORD: LostReason = LostReason::Silence(Silence::NoRecord);

/// Every publisher has a socket of its own, which asks for the beacon's topic and each filter once, and whose end is no
/// other publisher's.
#[test]
fn each_publisher_has_a_sub_socket_of_its_own() {
    let mut stage = Stage::ready(3, &[b"a", b"b", b"a"]);
    for raw in &mut stage.raws {
        let mut asked = raw.hear().to_vec();
        asked.sort();
        assert_eq!(asked, [&b"\x01\x01ZLF1"[..], b"\x01a", b"\x01b"]);
    }
    stage.raws[0].send(&[TOPIC]);
    stage.until("the first one's socket closed", |stage| stage.raws[0].count(0, TOPIC) == 1);
    assert_eq!((stage.raws[1].hear().len(), stage.raws[2].hear().len()), (3, 3));
    for other in [1, 2] {
        stage.publish(other, &[b"a"]);
    }
    assert_eq!(stage.published().len(), 2);
}

/// A connect that came through makes nobody ready: a publisher may be connected and subscribed for long.
#[test]
fn a_connect_alone_makes_no_publisher_ready() {
    let mut stage = Stage::connected(1, &[b""]);
    stage.follow(s(19));
    assert_eq!(stage.diary, []);
    let intents = stage.snapshot().intents;
    assert_eq!(intents.iter().map(|intent| intent.state).collect::<Vec<_>>(), [RouteState::Connecting]);
}

/// The first record makes it ready, at once: the beacon, a record that was subscribed to, and one that was not.
#[test]
fn the_first_record_or_beacon_makes_a_publisher_ready() {
    for (record, delivered) in
        [(&[TOPIC, PAYLOAD][..], 0), (&[b"EUR", b"1.1"], 1), (&[b"EUR"], 1), (&[b"\x01ZLF1+", PAYLOAD], 0)]
    {
        let mut stage = Stage::connected(1, &[b"EUR"]);
        stage.follow(s(3));
        stage.publish(0, record);
        assert_eq!(stage.became_ready(), [(s(3), 0)]);
        assert!(matches!(stage.diary[0].1, Owned::PublisherReady { .. }), "it is told before its record");
        assert_eq!((stage.published().len(), stage.diary.len()), (delivered, 1 + delivered));
    }
}

/// A beacon is no event, is not counted as an application's, and is not answered.
#[test]
fn a_beacon_reaches_no_handler_and_no_metric_and_is_not_answered() {
    let mut stage = Stage::ready(1, &[b""]);
    stage.beats[0] = true;
    stage.follow(s(60));
    assert_eq!(stage.diary, []);
    assert_eq!(stage.snapshot().counters, Counters::default());
    assert_eq!(
        stage.raws[0].hear(),
        [&b"\x01"[..], b"\x01\x01ZLF1"],
        "only what was subscribed was ever said"
    );
}

/// Any frame count but two and any payload but the beacon's, on exactly the reserved topic.
fn malformed() -> Vec<Vec<&'static [u8]>> {
    vec![
        vec![TOPIC],
        vec![TOPIC, b""],
        vec![TOPIC, &PAYLOAD[..3]],
        vec![TOPIC, b"\x5A\x46\x01\x02"],
        vec![TOPIC, b"\x5A\x46\x01\x01\x00"],
        vec![TOPIC, TOPIC],
        vec![TOPIC, PAYLOAD, b""],
        vec![TOPIC, PAYLOAD, PAYLOAD],
        vec![TOPIC, b"", PAYLOAD],
        [vec![TOPIC], vec![PAYLOAD; 300]].concat(),
    ]
}

/// A malformed record on the reserved topic is a protocol error: that publisher alone is lost at once, its socket is
/// closed, and neither the record nor what came behind it is delivered. What came before it is.
#[test]
fn a_malformed_record_ends_only_its_publisher_at_once() {
    for record in malformed() {
        let mut stage = Stage::ready(2, &[b""]);
        stage.follow(s(2));
        stage.raws[0].send(&[b"before"]);
        stage.raws[0].send(&record);
        stage.raws[0].send(&[b"behind"]);
        stage.raws[0].beacon();
        stage.until("lost", |stage| !stage.lost().is_empty());
        assert_eq!(stage.lost(), [(s(2), 0, LostReason::Protocol)], "{record:?}");
        stage.until("its socket closed", |stage| stage.raws[0].count(0, TOPIC) == 1);
        stage.publish(1, &[b"other"]);
        assert_eq!(stage.published(), [(0, vec![b"before".to_vec()]), (1, vec![b"other".to_vec()])]);
        assert!(!stage.is_ready(0) && stage.is_ready(1));
        let counters = stage.snapshot().counters;
        assert_eq!((counters.protocol_errors, counters.lost_otherwise), (1, 1));
    }
}

/// A malformed record is no normal receipt: it makes nobody ready.
#[test]
fn a_malformed_record_makes_no_publisher_ready() {
    let mut stage = Stage::connected(1, &[b""]);
    stage.raws[0].send(&[TOPIC, b"no beacon"]);
    stage.until("the attempt ended", |stage| !stage.diary.is_empty());
    assert!(matches!(stage.diary[..], [(_, Owned::Failed { failure: Failure::Protocol, .. })]));
}

/// A topic that only begins with the five bytes is an application's: delivered where a filter asks for it, otherwise
/// counted and dropped, and evidence of its publisher in both cases.
#[test]
fn a_topic_that_only_begins_with_the_reserved_bytes_is_an_applications() {
    let longer = &b"\x01ZLF1 and more"[..];
    for (filter, delivered) in [(&b"\x01ZLF1 "[..], 1), (b"\x01Z", 1), (b"", 1), (b"else", 0)] {
        let mut stage = Stage::ready(1, &[filter]);
        stage.follow(s(14));
        stage.publish(0, &[longer, PAYLOAD]);
        assert_eq!(stage.published().len(), delivered);
        assert_eq!(stage.snapshot().counters.unsubscribed, 1 - delivered as u64);
        stage.follow(s(28));
        assert_eq!(stage.lost(), []);
    }
}

/// A publisher that sent nothing for 15 s watched is lost exactly then by a host that follows `next_due`, alone, and the
/// host's own state does not change.
#[test]
fn a_silent_publisher_alone_is_lost_after_15_s() {
    let mut stage = Stage::ready(3, &[]);
    stage.beats = vec![true, false, true];
    stage.follow(s(60));
    assert_eq!(stage.lost(), [(s(15), 1, NO_RECORD)]);
    assert!(stage.is_ready(0) && !stage.is_ready(1) && stage.is_ready(2));
    assert_eq!(stage.snapshot().host, HostState::Serving);
    assert_eq!(stage.snapshot().counters.lost_silence, 1);
}

/// Each valid record, whatever it is, gives its publisher 15 s from there.
#[test]
fn each_valid_record_moves_the_deadline() {
    for record in [&[TOPIC, PAYLOAD][..], &[b"EUR", b"1.1"], &[b"\x01ZLF1+"]] {
        let mut stage = Stage::ready(2, &[b"EUR"]);
        stage.follow(ms(9_700));
        stage.publish(0, record);
        stage.follow(s(30));
        assert_eq!(stage.lost(), [(s(15), 1, NO_RECORD), (ms(24_700), 0, NO_RECORD)]);
    }
}

/// A publisher from which no first record comes within 20 s watched gets a new socket, and is never called lost.
#[test]
fn a_publisher_without_a_first_record_is_dialled_anew_after_20_s() {
    let mut stage = Stage::connected(1, &[]);
    stage.follow(ms(19_999));
    assert_eq!(stage.diary, []);
    stage.follow(s(20));
    assert!(
        matches!(stage.diary[..], [(at, Owned::Failed { failure: Failure::TimedOut, .. })] if at == s(20))
    );
    stage.until_later(ms(5), "another socket", |stage| stage.raws[0].count(1, TOPIC) == 2);
    assert_eq!(stage.became_ready(), []);
    stage.beacon(0);
    assert!(stage.is_ready(0));
}

/// A disconnect takes effect at once: nobody waits for a deadline.
#[test]
fn a_publisher_that_goes_is_lost_at_once() {
    let mut stage = Stage::ready(2, &[b""]);
    stage.follow(s(1));
    stage.raws[0].send(&[b"last words"]);
    let endpoint = stage.raws[0].endpoint.clone();
    let gone = std::mem::replace(&mut stage.raws[0], RawPublisher::new());
    drop(gone);
    stage.raws[0].endpoint = endpoint;
    stage.until("lost", |stage| !stage.lost().is_empty());
    assert_eq!(stage.lost(), [(s(1), 0, LostReason::Transport)]);
    assert!(stage.is_ready(1));
}

/// After a loss a new socket is dialled, and the publisher is ready again only on the first record that comes by it.
#[test]
fn a_lost_publisher_is_ready_again_only_on_the_first_record_of_a_new_socket() {
    let mut stage = Stage::ready(1, &[b"a"]);
    stage.follow(s(15));
    assert_eq!(stage.lost(), [(s(15), 0, NO_RECORD)]);
    stage.until_later(ms(5), "another socket", |stage| stage.raws[0].count(1, TOPIC) == 2);
    stage.until("its filters too", |stage| stage.raws[0].count(1, b"a") == 2);
    stage.follow(stage.elapsed() + s(5));
    assert!(stage.became_ready().is_empty() && !stage.is_ready(0));
    assert_eq!(stage.snapshot().intents[0].state, RouteState::Reconnecting);
    stage.publish(0, &[b"again"]);
    assert_eq!(stage.became_ready().len(), 1);
    assert_eq!(stage.published(), [(0, vec![b"again".to_vec()])]);
}

/// Filters come and go while it runs, for the publishers there are and those to come.
#[test]
fn filters_come_and_go_for_present_and_future_publishers() {
    let mut stage = Stage::ready(2, &[b"old"]);
    let mut outbox = stage.node.engine.outbox();
    assert_eq!(outbox.add_filter(&ticks(), b"new"), Ok(true));
    assert_eq!(outbox.add_filter(&ticks(), b"new"), Ok(false));
    assert_eq!(outbox.remove_filter(&ticks(), b"old"), Ok(true));
    assert_eq!(outbox.remove_filter(&ticks(), b"old"), Ok(false));
    drop(outbox);
    stage.until("the filters told", |stage| {
        stage.raws.iter_mut().all(|raw| raw.count(1, b"new") == 1 && raw.count(0, b"old") == 1)
    });
    // One that is dialled afterwards.
    stage.raws[1].send(&[TOPIC]);
    stage.until_later(ms(5), "another socket", |stage| stage.raws[1].count(1, b"new") == 2);
    assert_eq!(stage.raws[1].count(1, b"old"), 1);
    for publisher in [0, 1] {
        stage.raws[publisher].send(&[b"old tick"]);
        stage.publish(publisher, &[b"new tick"]);
    }
    let new = vec![b"new tick".to_vec()];
    assert_eq!(stage.published(), [(0, new.clone()), (1, new)]);
}

/// Every record that is published after `PublisherReady` arrives, whole and in order.
#[test]
fn records_arrive_whole_and_in_order_after_ready() {
    let mut stage = Stage::ready(1, &[b""]);
    let records: Vec<Record> =
        (0..500_u32).map(|n| vec![n.to_be_bytes().to_vec(), vec![7; n as usize], Vec::new()]).collect();
    for record in &records {
        stage.raws[0].send(&record.iter().map(Vec::as_slice).collect::<Vec<_>>());
    }
    stage.until("all of them", |stage| stage.published().len() == records.len());
    assert!(stage.published().iter().map(|(_, record)| record).eq(&records));
}

fn described(raw: &RawPublisher, name: &str, number: u64) -> PublisherDescriptor {
    PublisherDescriptor { endpoint: raw.endpoint.clone(), rid: rid(name), generation: generation(number) }
}

/// Publishers by descriptor, whose first beacons came.
fn described_stage(publishers: usize) -> (Stage, Vec<PublisherDescriptor>) {
    let raws: Vec<_> = (0..publishers).map(|_| RawPublisher::new()).collect();
    let descriptors: Vec<_> =
        raws.iter().enumerate().map(|(n, raw)| described(raw, &format!("p{n}"), 1)).collect();
    let wish = descriptors.iter().cloned().fold(Subscriber::new(ticks()), Subscriber::described_publisher);
    let mut stage = Stage::of(raws, wish.filter(b""));
    for publisher in 0..publishers {
        stage.beacon(publisher);
    }
    (stage, descriptors)
}

/// The generations and reasons of what was lost, by RID.
fn retired(stage: &Stage) -> Vec<(String, Option<Generation>, LostReason)> {
    let lost = |(_, event): &(Duration, Owned)| match event {
        Owned::PublisherLost { publisher, reason } => {
            Some((publisher.rid().unwrap().to_string(), publisher.generation(), *reason))
        }
        _ => None,
    };
    stage.diary.iter().filter_map(lost).collect()
}

/// A new snapshot of descriptors ends and begins what differs, and leaves the others alone.
#[test]
fn replaced_descriptors_leave_the_others_alone() {
    let (mut stage, mut descriptors) = described_stage(2);
    assert_eq!(stage.became_ready().len(), 2);
    let Owned::PublisherReady { publisher } = &stage.diary[0].1 else { panic!("{:?}", stage.diary) };
    assert_eq!((publisher.rid(), publisher.generation()), (Some(&rid("p0")), Some(generation(1))));

    stage.node.engine.outbox().set_publishers(&ticks(), &descriptors).unwrap();
    stage.follow(stage.elapsed() + s(1));
    assert_eq!(retired(&stage), [], "the same again changes nothing");

    stage.raws.push(RawPublisher::new());
    stage.beats.push(false);
    descriptors[0] = described(&stage.raws[2], "p2", 1);
    stage.node.engine.outbox().set_publishers(&ticks(), &descriptors).unwrap();
    let Stage { node, raws, .. } = &mut stage;
    raws[2].subscribed(node, 1, ms(5));
    stage.beacon(2);
    assert_eq!(retired(&stage), [("p0".to_owned(), Some(generation(1)), LostReason::Retired)]);
    let mut ready: Vec<_> = stage.snapshot().sources.iter().map(|each| each.source.clone()).collect();
    ready.sort_by_key(|source| source.rid().map(ToString::to_string));
    assert_eq!(
        ready.iter().map(Source::endpoint).collect::<Vec<_>>(),
        [&stage.raws[1].endpoint, &stage.raws[2].endpoint]
    );
    stage.until("the first one's socket closed", |stage| stage.raws[0].count(0, TOPIC) == 1);
    assert_eq!(stage.raws[1].hear().len(), 2, "never dialled anew");
    assert_eq!(stage.snapshot().intents.len(), 2);
}

/// A publisher of another generation at the same endpoint is another one, whatever the number: the old one is lost, and the
/// new one is ready on its own first record.
#[test]
fn another_generation_is_another_publisher() {
    let (mut stage, _) = described_stage(1);
    let numbers = [1, 1_000, 999, 2];
    for number in &numbers[1..] {
        let before = stage.raws[0].count(1, TOPIC);
        let descriptor = described(&stage.raws[0], "p0", *number);
        stage.node.engine.outbox().set_publishers(&ticks(), &[descriptor]).unwrap();
        stage.until_later(ms(5), "another socket", |stage| stage.raws[0].count(1, TOPIC) > before);
        assert!(stage.snapshot().sources.is_empty());
        stage.beacon(0);
        assert_eq!(stage.source(0).unwrap().source.generation(), Some(generation(*number)));
    }
    let lost =
        numbers[..3].iter().map(|before| ("p0".to_owned(), Some(generation(*before)), LostReason::Retired));
    assert_eq!(retired(&stage), lost.collect::<Vec<_>>());
}

/// A new socket for the same endpoint, or for the same publisher elsewhere, is dialled only when the old one is physically
/// closed (000 §5), also where a publisher is taken back and named again at once.
#[test]
fn a_new_socket_waits_for_the_physical_close_of_the_old_one() {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    for listener in &listeners {
        listener.set_nonblocking(true).unwrap();
    }
    let descriptor = |listener: usize, number| PublisherDescriptor {
        endpoint: format!("tcp://{}", listeners[listener].local_addr().unwrap()).parse().unwrap(),
        rid: rid("p"),
        generation: generation(number),
    };
    let (old, newer, moved) = (descriptor(0, 1), descriptor(0, 2), descriptor(1, 1));
    let accepted = |node: &mut Node, listener: usize| {
        let mut stream = None;
        until(&mut [node], "dialled", |nodes| {
            nodes[0].now += ms(5);
            stream = listeners[listener].accept().ok();
            stream.is_some()
        });
        stream.unwrap().0
    };
    for (then, wanted, turns) in
        [(&newer, 0, None), (&moved, 1, None), (&old, 0, Some(0)), (&old, 0, Some(1)), (&old, 0, Some(2))]
    {
        let mut node = Node::new();
        node.engine.subscribe(Subscriber::new(ticks()).described_publisher(old.clone())).unwrap();
        let mut first = accepted(&mut node, 0);
        if let Some(turns) = turns {
            node.engine.outbox().set_publishers(&ticks(), &[]).unwrap();
            for _ in 0..turns {
                node.turn();
            }
        }
        node.engine.outbox().set_publishers(&ticks(), std::slice::from_ref(then)).unwrap();
        let _second = accepted(&mut node, wanted);
        // On one machine an end that came first is seen first: everything up to it can be read without waiting.
        first.set_nonblocking(true).unwrap();
        first.read_to_end(&mut Vec::new()).expect("the old one has ended");
        assert!(node.events().is_empty(), "of a publisher that never was ready nothing is told");
    }
}

/// The states of a publisher, and its ends, are told apart: an orderly silence of 15 s from a transport that went, a protocol
/// that was broken, and attempts that came to nothing.
#[test]
fn the_snapshot_tells_each_publishers_state_and_how_it_last_ended() {
    let mut node = Node::new();
    let raws: Vec<_> = (0..3).map(|_| RawPublisher::new()).collect();
    let wish = raws.iter().fold(Subscriber::new(ticks()), |wish, raw| wish.publisher(raw.endpoint.clone()));
    node.engine.subscribe(wish).unwrap();
    let of = |node: &Node, raw: &RawPublisher| {
        let intents = node.engine.snapshot().intents;
        let intent = intents.into_iter().find(|each| each.endpoint == raw.endpoint).unwrap();
        (intent.state, intent.last_failure)
    };
    assert!(raws.iter().all(|raw| of(&node, raw) == (RouteState::Configured, None)));
    let mut stage = Stage::with(node, raws);
    assert!(stage.raws.iter().all(|raw| of(&stage.node, raw) == (RouteState::Connecting, None)));
    for publisher in 0..3 {
        stage.beacon(publisher);
        assert_eq!(of(&stage.node, &stage.raws[publisher]), (RouteState::Ready, None));
        assert_eq!(stage.source(publisher).unwrap().last_received, Some(Duration::ZERO));
    }

    let lost = |reason| (RouteState::Reconnecting, Some(LastFailure::Lost(reason)));
    stage.raws[0].send(&[TOPIC]);
    stage.until("lost", |stage| stage.lost().len() == 1);
    assert_eq!(of(&stage.node, &stage.raws[0]), lost(LostReason::Protocol));
    let endpoint = stage.raws[1].endpoint.clone();
    drop(std::mem::replace(&mut stage.raws[1], RawPublisher::new()));
    stage.raws[1].endpoint = endpoint;
    stage.until("lost", |stage| stage.lost().len() == 2);
    assert_eq!(of(&stage.node, &stage.raws[1]), lost(LostReason::Transport));
    stage.follow(s(15));
    assert_eq!(of(&stage.node, &stage.raws[2]), lost(NO_RECORD));
    assert!(stage.snapshot().sources.is_empty());

    let failed = |failure| (RouteState::Reconnecting, Some(LastFailure::Failed(failure)));
    stage.until_later(ms(100), "no first record in time, and nobody there", |stage| {
        of(&stage.node, &stage.raws[0]) == failed(Failure::TimedOut)
            && of(&stage.node, &stage.raws[1]) == failed(Failure::Unreachable)
    });
    let counters = stage.snapshot().counters;
    let ends = (counters.lost_transport, counters.lost_silence, counters.lost_otherwise);
    assert_eq!((ends, counters.protocol_errors), ((1, 1, 1), 1));
    assert_eq!((stage.snapshot().host, stage.snapshot().connections.len()), (HostState::Serving, 0));
}

/// Fixed endpoints and descriptors do not mix on one channel: that is a registration error, and nothing is changed by it.
#[test]
fn fixed_endpoints_and_descriptors_do_not_mix() {
    let mixed = Err(RegisterError::MixedSources { channel: ticks() });
    let mut stage = Stage::ready(1, &[]);
    let raw = RawPublisher::new();
    let descriptor = described(&raw, "p", 1);
    let pushed = stage.node.engine.outbox().set_publishers(&ticks(), std::slice::from_ref(&descriptor));
    assert_eq!(pushed, mixed);
    assert_eq!(stage.node.engine.outbox().set_publishers(&ticks(), &[]), mixed);
    stage.turn();
    assert!(stage.is_ready(0));

    let mut node = Node::new();
    let wish = Subscriber::new(ticks()).publisher(stage.raws[0].endpoint.clone());
    assert_eq!(node.engine.subscribe(wish.described_publisher(descriptor)), mixed);
    assert!(node.engine.snapshot().intents.is_empty());
    node.engine.subscribe(Subscriber::new(ticks())).unwrap();
}
