//! Peers that flood: with probes, with messages, with hellos. The others are served meanwhile, and memory stays bounded.

use std::thread;
use std::time::Duration;

use wakeful::{LostReason, Owned};

use crate::raw::{self, Admission, Frames, Stranger};
use crate::scene::Scene;
use crate::support::{CHANNEL, ms, s};

/// Keeps the stranger's pipe full with this, and looks how long the neighbour waits for each of many messages.
fn flood(scene: &mut Scene, stranger: &Stranger, mut next: impl FnMut(u64) -> Frames) -> Vec<Duration> {
    let mut sent = 0;
    let mut waits = Vec::new();
    for _ in 0..200 {
        for _ in 0..2_000 {
            if !stranger.send(&next(sent)) {
                break;
            }
            sent += 1;
        }
        waits.push(scene.neighbour_is_served());
        scene.server.events();
    }
    assert!(sent > 5_000, "that was no flood: {sent}");
    waits.sort_unstable();
    let (median, worst) = (waits[100], waits[199]);
    assert!(
        median < ms(50) && worst < s(1),
        "the neighbour waited {median:?} in the median, {worst:?} at worst"
    );
    waits
}

/// The flooder reads nothing, so its ACKs find no slot: one is owed, and no more.
#[test]
fn a_probe_flood_starves_nobody_and_its_sender_who_reads_nothing_is_judged() {
    let mut scene = Scene::new();
    let stranger = scene.ready("flooder");
    flood(&mut scene, &stranger, |at| raw::probe(1 + at));
    assert_eq!(scene.lost("flooder"), None);
    scene.until("the flood is over", |scene| {
        let snapshot = scene.snapshot();
        let flooder = snapshot.connections.iter().find(|each| each.peer.rid().as_bytes() == b"flooder");
        flooder.is_some_and(|each| each.last_received == Some(Duration::ZERO))
    });
    scene.pass(17);
    assert!(matches!(scene.lost("flooder"), Some(LostReason::Silence(_))), "{:?}", scene.lost("flooder"));
    scene.neighbour_is_served();
    drop(stranger);
    scene.all_gone();
}

/// It reads, and answers what it is asked: it may do that, and stays.
#[test]
fn a_flood_of_messages_and_stale_acks_starves_nobody() {
    let mut scene = Scene::new();
    let stranger = scene.ready("flooder");
    flood(&mut scene, &stranger, |at| match at % 4 {
        0 => raw::ack(1 + at),
        1 => vec![Admission::client(CHANNEL, "flooder").head(raw::UPDATE)],
        2 => raw::send("elsewhere", "x"),
        _ => raw::send(CHANNEL, "x"),
    });
    assert_eq!(scene.lost("flooder"), None);
    drop(stranger);
    scene.all_gone();
    assert_eq!(scene.lost("flooder"), Some(LostReason::Transport));
}

#[test]
fn a_flood_from_a_fenced_peer_starves_nobody() {
    let mut scene = Scene::new();
    let mut stranger = scene.ready("flooder");
    stranger.send(&[b"no record"]);
    scene.until("it is fenced", |_| stranger.rejected() == Some(14));
    flood(&mut scene, &stranger, |_| raw::send(CHANNEL, "x"));
    drop(stranger);
    scene.all_gone();
}

/// ZeroMQ hands a record over whole, however many parts it has, and nothing behind it can be read before. So that it holds no
/// turn, what is too much of it is read away in many.
#[test]
fn a_record_of_half_a_million_parts_holds_no_turn_and_costs_its_sender_the_connection() {
    const PARTS: usize = 500_000;
    let mut scene = Scene::new();
    let stranger = scene.ready("flooder");
    let mut record = vec![raw::send_head(CHANNEL)];
    record.resize(1 + PARTS, Vec::new());
    assert!(stranger.send(&record));
    let mut passing = 0;
    scene.until("it is lost", |scene| scene.lost("flooder").is_some());
    assert_eq!(scene.lost("flooder"), Some(LostReason::Protocol));
    scene.neighbour.send("behind it");
    scene.until("the neighbour is heard", |scene| {
        let report = scene.server.turn();
        passing += usize::from(report.work_left && report.records == 0);
        let is_heard = |event: &Owned| matches!(event, Owned::Message { .. });
        scene.server.inbox.events.iter().any(is_heard)
    });
    // Every second turn is counted here, and each passes over a thousand.
    assert!(passing > PARTS / 1_024 / 3, "{passing} turns passed over {PARTS} parts");
    drop(stranger);
    scene.all_gone();
}

/// Whoever leaves meanwhile is not over before its own last records could be read.
#[test]
fn a_record_of_too_many_parts_costs_nobody_behind_it_the_last_word() {
    let mut scene = Scene::new();
    let (flooder, leaver) = (scene.ready("flooder"), scene.ready("leaver"));
    let mut record = vec![raw::send_head(CHANNEL)];
    record.resize(1_000_000, Vec::new());
    assert!(flooder.send(&record));
    // The server rests until all of it waits to be read, and behind it the word of one who has gone.
    thread::sleep(Duration::from_secs(1));
    assert!(leaver.send(&raw::send(CHANNEL, "last word")));
    thread::sleep(Duration::from_millis(200));
    drop(leaver);
    thread::sleep(Duration::from_millis(200));
    scene.until("both are lost", |scene| scene.lost("flooder").is_some() && scene.lost("leaver").is_some());
    assert_eq!(scene.lost("leaver"), Some(LostReason::Transport));
    let is_word = |event: &Owned| matches!(event, Owned::Message { parts, .. } if parts[0] == b"last word");
    assert!(scene.server.inbox.events.iter().any(is_word), "its last word was lost");
    assert_eq!(scene.snapshot().counters.protocol_errors, 1);
    drop(flooder);
    scene.all_gone();
}

/// Requests that the host never answers take their places up to the bound, and are declined above it.
#[test]
fn a_flood_of_requests_is_declined_above_the_bound_and_forgotten_with_its_connection() {
    let config = wakeful::Config { replies_max: 400, seed: 7, ..wakeful::Config::default() };
    let mut scene = Scene::with(config, |server| server);
    let mut stranger = scene.ready("asker");
    for correlation in 1..=150 {
        // One correlation may well be used twice by a peer that wants to confuse itself.
        stranger.send(&[raw::request_head(1 + correlation / 2, CHANNEL), b"x".to_vec()]);
    }
    let mut declined = 0;
    scene.until("fifty are declined", |_| {
        while let Some(reply) = stranger.got(raw::REPLY) {
            assert_eq!(reply[0][13], 7, "1 + CapacityExceeded");
            declined += 1;
        }
        declined == 50
    });
    assert_eq!(scene.snapshot().replies, 100);
    drop(stranger);
    scene.all_gone();
    scene.neighbour_is_served();
}

/// Dials, says its hello and is gone, again and again.
#[test]
fn a_flood_of_hellos_starves_nobody_and_each_admission_has_its_one_end() {
    const PEERS: usize = 1_000;
    let mut scene = Scene::new();
    let mut open = std::collections::VecDeque::new();
    let mut waits = Vec::new();
    let mut most = 0;
    for at in 0..PEERS {
        let stranger = scene.stranger();
        let hello = match at % 4 {
            0 => Admission::client(CHANNEL, "the same").but(|hello| hello.generation = 1 + at as u64),
            1 => Admission::client(CHANNEL, "neighbour").but(|hello| hello.generation = 1 + at as u64),
            2 => Admission::client("elsewhere", "misled"),
            _ => Admission::client(CHANNEL, &format!("passer-{at}")),
        };
        stranger.send(&hello.hello());
        open.push_back((at, stranger));
        if open.len() > 20 {
            let (at, mut oldest) = open.pop_front().unwrap();
            // Some wait for their answer, those who can be sure of one; the others do not even see their dial through.
            if at % 4 != 0 && at % 8 < 4 {
                scene.until("an answer", |_| {
                    oldest.read();
                    !oldest.received.is_empty()
                });
            }
        }
        if at % 10 == 0 {
            waits.push(scene.neighbour_is_served());
        }
        let now = scene.snapshot();
        most = most.max(now.connections.len() + now.fenced_open + now.unadmitted);
    }
    waits.sort_unstable();
    let (median, worst) = (waits[waits.len() / 2], waits[waits.len() - 1]);
    assert!(
        median < ms(50) && worst < s(1),
        "the neighbour waited {median:?} in the median, {worst:?} at worst"
    );
    assert!(most < 150, "{most} connections at once");
    drop(open);
    scene.until("the queue is empty", |scene| scene.server.turn().records == 0);
    scene.pass(1);
    scene.until("all are gone or known to be silent", |scene| scene.snapshot().unadmitted == 0);
    // A hello that was read when its sender had gone already is admitted to nobody: patience ends that.
    scene.pass(22);
    scene.all_gone();
    let count = |is: fn(&Owned) -> bool| scene.server.inbox.events.iter().filter(|event| is(event)).count();
    let admitted = count(|event| matches!(event, Owned::Admitted { .. }));
    let lost = count(|event| matches!(event, Owned::Lost { .. }));
    assert_eq!(admitted, lost);
    assert!(admitted >= PEERS / 20, "most came too late: {admitted}");
    scene.neighbour_is_served();
}
