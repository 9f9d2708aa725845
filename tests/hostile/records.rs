//! Records that WIRE.md does not allow, each on a connection of its own, dozens of such connections at once.

use wakeful::{LostReason, Owned};

use crate::raw::{self, Admission, Frames};
use crate::scene::{Case, Scene, let_loose};
use crate::support::CHANNEL;

const INVALID: u32 = 11;
const NOT_ADMITTED: u32 = 14;

type Change = fn(&mut Admission);

fn hello() -> Admission {
    Admission::client(CHANNEL, "somebody")
}

/// A stranger that says this first of all.
fn first(what: &str, record: Frames, told: u32) -> Case {
    Case { what: what.into(), ready: false, records: vec![record], told: Some(told), lost: None }
}

/// A peer in use that says this.
fn later(what: &str, record: Frames) -> Case {
    Case {
        what: what.into(),
        ready: true,
        records: vec![record],
        told: Some(NOT_ADMITTED),
        lost: Some(LostReason::Protocol),
    }
}

#[test]
fn a_head_cut_at_any_byte_ends_only_its_own_connection() {
    let whole = [
        ("hello", hello().head(raw::HELLO), 0),
        ("update", hello().but(|update| update.revision += 1).head(raw::UPDATE), 0),
        ("probe", raw::probe(9).remove(0), 0),
        ("ack", raw::ack(9).remove(0), 0),
        ("send", raw::send_head(CHANNEL), 1),
        ("request", raw::request_head(3, CHANNEL), 1),
    ];
    let mut scene = Scene::new();
    for (what, head, parts) in whole {
        let cut = |length: usize| {
            let mut record = vec![head[..length].to_vec()];
            record.resize(1 + parts, b"x".to_vec());
            let what = format!("{what} cut at {length}");
            // A broken hello is an invalid descriptor, once it can be known for a hello.
            if head[3] == raw::HELLO {
                first(&what, record, if length < 4 { NOT_ADMITTED } else { INVALID })
            } else if length % 2 == 0 {
                first(&what, record, NOT_ADMITTED)
            } else {
                later(&what, record)
            }
        };
        let mut cases: Vec<Case> = (0..head.len()).map(cut).collect();
        let mut longer = cut(head.len());
        longer.records[0][0].push(0);
        longer.what = format!("{what} with a byte behind it");
        cases.push(longer);
        let_loose(&mut scene, &cases);
    }
}

/// A reject is never answered, however broken it is.
#[test]
fn a_broken_reject_ends_its_connection_without_an_answer() {
    let head = raw::reject(9).remove(0);
    let silent = |ready, length: usize, cut: &[u8]| Case {
        what: format!("reject cut at {length}"),
        ready,
        records: vec![vec![cut.to_vec()]],
        told: None,
        lost: ready.then_some(LostReason::Protocol),
    };
    let mut cases = Vec::new();
    for length in 4..head.len() {
        cases.push(silent(false, length, &head[..length]));
        cases.push(silent(true, length, &head[..length]));
    }
    cases.push(silent(true, 10, &[&head[..], &[0]].concat()));
    let_loose(&mut Scene::new(), &cases);
}

#[test]
fn a_reserved_or_unbuilt_command_ends_its_connection() {
    let command = |command| raw::head(command, &1_u64.to_be_bytes());
    let reserved: Vec<u8> =
        [0].into_iter().chain(7..=15).chain(21..=60).chain([127, 128, 254, 255]).collect();
    let mut cases = Vec::new();
    for number in reserved {
        let what = format!("command {number}");
        cases.push(later(&what, vec![command(number)]));
        cases.push(later(&format!("{what} with a part"), vec![command(number), b"x".to_vec()]));
        cases.push(first(&what, vec![command(number)], NOT_ADMITTED));
    }
    let_loose(&mut Scene::new(), &cases);
}

#[test]
fn a_record_in_the_wrong_direction_or_topology_ends_its_connection() {
    let cases = [
        later("a reply to a server", vec![raw::reply_head(1, 0), b"x".to_vec()]),
        later("a failed reply to a server", vec![raw::reply_head(1, 1)]),
        later("an admit from a dialler", vec![Admission::server(CHANNEL, "x", 99).head(raw::ADMIT)]),
        later("a node send", vec![raw::head(raw::NODE_SEND, &[]), b"x".to_vec()]),
        later("a node request", vec![raw::head(raw::NODE_REQUEST, &1_u64.to_be_bytes()), b"x".to_vec()]),
        later("a second hello", hello().hello()),
        first("a reply first", vec![raw::reply_head(1, 0)], NOT_ADMITTED),
        first("an admit first", vec![Admission::server(CHANNEL, "x", 99).head(raw::ADMIT)], NOT_ADMITTED),
        first("data first", raw::send(CHANNEL, "x"), NOT_ADMITTED),
        first("a request first", vec![raw::request_head(1, CHANNEL), b"x".to_vec()], NOT_ADMITTED),
        first("a probe first", raw::probe(1), NOT_ADMITTED),
        first("an ACK first", raw::ack(1), NOT_ADMITTED),
        first("an update first", vec![hello().head(raw::UPDATE)], NOT_ADMITTED),
        first("a node send first", vec![raw::head(raw::NODE_SEND, &[]), b"x".to_vec()], NOT_ADMITTED),
    ];
    let_loose(&mut Scene::new(), &cases);
}

#[test]
fn a_record_with_impossible_contents_ends_its_connection() {
    let parts =
        |count: usize| -> Frames { [vec![raw::send_head(CHANNEL)], vec![b"x".to_vec(); count]].concat() };
    let mut other_flags = raw::send(CHANNEL, "x");
    other_flags[0][4] = 1;
    let mut other_major = raw::send(CHANNEL, "x");
    other_major[0][2] = 2;
    let mut other_magic = raw::send(CHANNEL, "x");
    other_magic[0][1] = 0x4E;
    let cases = [
        later("probe 0", raw::probe(0)),
        later("probe 2^63", raw::probe(1 << 63)),
        later("ack 0", raw::ack(0)),
        later("a probe with a part", vec![raw::probe(1).remove(0), Vec::new()]),
        later("an empty message", vec![Vec::new()]),
        later("empty frames", vec![Vec::new(); 3]),
        later("no parts", parts(0)),
        later("256 parts", parts(256)),
        later("1000 parts", parts(1_000)),
        later("a request with correlation 0", vec![raw::request_head(0, CHANNEL), Vec::new()]),
        later("a channel without a name", vec![raw::send_head(""), b"x".to_vec()]),
        later("a channel with a NUL", vec![raw::send_head("a\0b"), b"x".to_vec()]),
        later("a channel that is no UTF-8", vec![raw::head(raw::SEND, &[1, 0xFF]), b"x".to_vec()]),
        later("flags", other_flags),
        later("magic", other_magic),
        Case { told: Some(1), ..later("major 2", other_major) },
        later("a megabyte for a head", vec![vec![0x5A; 1 << 20]]),
        later("a megabyte behind a good head", vec![[raw::send_head(CHANNEL), vec![0; 1 << 20]].concat()]),
        first("an empty message first", vec![Vec::new()], NOT_ADMITTED),
        first("256 parts first", parts(256), NOT_ADMITTED),
        first("a hello with a part", vec![hello().head(raw::HELLO), Vec::new()], INVALID),
        first("a hello with 300 parts", [hello().hello(), vec![Vec::new(); 300]].concat(), INVALID),
    ];
    let_loose(&mut Scene::new(), &cases);
}

/// A head that was understood is not read again, so all that is not the very same must be.
#[test]
fn a_good_message_vouches_for_no_broken_one_behind_it() {
    let good = raw::send(CHANNEL, "x");
    let head = raw::send_head(CHANNEL);
    let mut other = good.clone();
    other[0][6] ^= 0x80;
    let broken: [(&str, Frames); 7] = [
        ("an empty message", vec![Vec::new()]),
        ("empty frames", vec![Vec::new(); 3]),
        ("the head alone", vec![head.clone()]),
        ("256 parts", [vec![head.clone()], vec![Vec::new(); 256]].concat()),
        ("a byte less", vec![head[..head.len() - 1].to_vec(), b"x".to_vec()]),
        ("a byte more", vec![[&head[..], b"x"].concat(), b"x".to_vec()]),
        ("a byte that is another", other),
    ];
    let cases: Vec<Case> = broken
        .into_iter()
        .map(|(what, record)| Case {
            records: vec![good.clone(), good.clone(), record],
            ..later(what, Vec::new())
        })
        .collect();
    let_loose(&mut Scene::new(), &cases);
}

#[test]
fn a_hello_that_cannot_be_taken_is_told_why() {
    let other_major = || {
        let mut head = hello().head(raw::HELLO);
        head[2] = 9;
        head
    };
    let but = |what: &str, told, change: Change| first(what, hello().but(change).hello(), told);
    let cases = [
        first("another major version", vec![other_major()], 1),
        first("another major version and nothing else", vec![vec![0x5A, 0x4D, 3]], 1),
        but("RouteMesh", 2, |hello| hello.topology = 1),
        but("a completion lane of RouteMesh", 2, |hello| (hello.topology, hello.lane) = (1, 2)),
        but("a server that dials", 2, |hello| hello.role = 2),
        but("the server's own RID", 3, |hello| hello.rid = b"server".into()),
        but("another channel", 5, |hello| hello.name = b"order".into()),
        // The layout gives ClientServer one lane and two roles, so these break it.
        but("a completion lane", INVALID, |hello| hello.lane = 2),
        but("no role", INVALID, |hello| hello.role = 0),
        but("topology 0", INVALID, |hello| hello.topology = 0),
        but("topology 3", INVALID, |hello| hello.topology = 3),
        but("lane 3", INVALID, |hello| hello.lane = 3),
        but("role 3", INVALID, |hello| hello.role = 3),
        but("state 6", INVALID, |hello| hello.state = 6),
        but("no channel name", INVALID, |hello| hello.name.clear()),
        but("a channel name with a NUL", INVALID, |hello| hello.name[0] = 0),
        but("a channel name that is no UTF-8", INVALID, |hello| hello.name[0] = 0xFF),
        but("no RID", INVALID, |hello| hello.rid.clear()),
        but("generation 0", INVALID, |hello| hello.generation = 0),
        but("revision 0", INVALID, |hello| hello.revision = 0),
        but("pair 0", INVALID, |hello| hello.pair = 0),
        but("a wildcard port", INVALID, |hello| hello.endpoint = b"tcp://127.0.0.1:0".into()),
        but("a wildcard host", INVALID, |hello| hello.endpoint = b"tcp://0.0.0.0:1".into()),
        but("a host name", INVALID, |hello| hello.endpoint = b"tcp://localhost:1".into()),
        but("a completion endpoint", INVALID, |hello| hello.completion = b"tcp://127.0.0.1:1".into()),
        but("weight 10,001", INVALID, |hello| hello.channels = vec![(b"a".into(), 10_001)]),
        but("one channel twice", INVALID, |hello| hello.channels = vec![(b"a".into(), 1), (b"a".into(), 1)]),
        but("channels out of order", INVALID, |hello| {
            hello.channels = vec![(b"b".into(), 1), (b"a".into(), 1)];
        }),
        but("an extension cut off", INVALID, |hello| hello.extensions = vec![7, 0, 0, 0, 2, 0]),
        but("an extension of 4 GiB", INVALID, |hello| hello.extensions = vec![7, 0xFF, 0xFF, 0xFF, 0xFF]),
        but("extensions out of order", INVALID, |hello| {
            hello.extensions = vec![2, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        }),
        but("more than 1 MiB", INVALID, |hello| {
            let length: u32 = 1 << 20;
            hello.extensions = [&[1][..], &length.to_be_bytes(), &vec![0; length as usize]].concat();
        }),
    ];
    let_loose(&mut Scene::new(), &cases);
}

/// An unknown extension is skipped, and every byte value is a RID.
#[test]
fn a_strange_hello_that_the_wire_allows_is_admitted() {
    let mut scene = Scene::new();
    let everything = hello().but(|hello| {
        hello.rid = (1..=255).collect();
        hello.security = vec![b's'; 255];
        hello.endpoint = b"ipc:///nowhere".into();
        (hello.generation, hello.revision, hello.pair) = (u64::MAX, u64::MAX, u64::MAX);
        (hello.state, hello.max_message) = (5, 1);
        hello.channels = vec![(vec![b'c'; 255], 10_000)];
        hello.extensions = [&[0, 0, 0, 0, 0, 255, 0, 1, 0, 0][..], &vec![7; 0x1_0000]].concat();
    });
    let stranger = scene.admitted(&everything);
    stranger.send(&raw::probe(1));
    scene.until("it is ready", |scene| scene.server.ready_peers() == 2);
    drop(stranger);
    scene.all_gone();
}

#[test]
fn an_update_may_not_go_back_contradict_itself_or_become_somebody_else() {
    let mut scene = Scene::new();
    // `let_loose` gives each stranger the RID of its number.
    let base = |at: usize| Admission::client(CHANNEL, &format!("stranger-{at}"));
    let changes: [(&str, Change); 10] = [
        ("a lower revision", |update| update.revision -= 1),
        ("the same revision with another state", |update| update.state = 3),
        ("another RID", |update| (update.revision, update.rid) = (6, b"neighbour".into())),
        ("another generation", |update| (update.revision, update.generation) = (6, 78)),
        ("another pair", |update| (update.revision, update.pair) = (6, 1)),
        ("another channel", |update| (update.revision, update.name) = (6, b"other".into())),
        ("another topology", |update| (update.revision, update.topology) = (6, 1)),
        ("another role", |update| (update.revision, update.role) = (6, 2)),
        ("another limit", |update| (update.revision, update.max_message) = (6, 5_000)),
        ("a new membership", |update| (update.revision, update.channels) = (6, vec![(b"a".into(), 1)])),
    ];
    let cases: Vec<Case> = changes
        .iter()
        .enumerate()
        .map(|(at, (what, change))| later(what, vec![base(at).but(change).head(raw::UPDATE)]))
        .collect();
    let_loose(&mut scene, &cases);
}

#[test]
fn what_a_peer_may_say_again_harms_nobody() {
    let mut scene = Scene::new();
    let mut stranger = scene.ready("decent");
    let hello = Admission::client(CHANNEL, "decent");
    stranger.send(&[hello.head(raw::UPDATE)]);
    stranger.send(&[hello.but(|update| (update.revision, update.state) = (9, 3)).head(raw::UPDATE)]);
    stranger.send(&raw::ack(1 << 62));
    stranger.send(&raw::send("elsewhere", "misdirected"));
    stranger.send(&[raw::request_head(8, "elsewhere"), b"x".to_vec()]);
    stranger.send(&raw::send(CHANNEL, "still here"));
    scene.until("its message", |scene| {
        let is = |event: &Owned| matches!(event, Owned::Message { parts, .. } if parts[0] == b"still here");
        scene.server.inbox.events.iter().any(is)
    });
    let mut answer = None;
    scene.until("NotFound", |_| {
        answer = stranger.got(raw::REPLY);
        answer.is_some()
    });
    assert_eq!(answer, Some(vec![raw::reply_head(8, 1)]));
    assert_eq!((scene.lost("decent"), scene.snapshot().counters.misdirected), (None, 1));
}
