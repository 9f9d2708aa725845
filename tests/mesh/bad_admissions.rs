//! Every wrong word that an admission can hold, on either lane, at every point of the opening and after it: refused with
//! the reason that WIRE.md gives, the pair ended on both lanes, nothing left in any table, and a healthy pair beside it
//! undisturbed. The strangers are raw sockets, dozens at once.
#![allow(clippy::disallowed_methods, reason = "a test on real sockets bounds its waits in real time")]

use std::time::Instant;

use wakeful::{
    Endpoint, Failure, LostReason, MeshBound, NodeDescriptor, Owned, RejectReason, Role, SecurityId,
};

use crate::support::mesh::{application, listening, mesh, named, plain};
use crate::support::raw::{
    self, ADMIT, Admission, HELLO, NODE_SEND, PROBE, UPDATE, ack, channel_request, channel_send, head, probe,
    reject, reply,
};
use crate::support::raw_mesh::{
    APPLICATION, COMPLETION, RawLane, RawNode, host, node_request, node_send, pair_of, says,
};
use crate::support::{Node, generation, ms, rid, s, settle, until};

const TOPOLOGY: u32 = 2;
const IDENTITY: u32 = 3;
const SECURITY: u32 = 4;
const GENERATION: u32 = 6;
const REVISION: u32 = 7;
const DUPLICATE: u32 = 10;
const INVALID: u32 = 11;
const NOT_ADMITTED: u32 = 14;

type Change = fn(&mut Admission);

/// A record: its head, and its payload parts if any.
type Word = (Vec<u8>, usize);

/// How far a stranger has come before it says the word.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    /// Both lanes are dialled, nothing was said.
    Stranger,
    /// The application lane is admitted.
    Joining,
    /// Both lanes are, and the first probe is missing.
    Admitted,
    Ready,
}

use Stage::{Admitted, Joining, Ready, Stranger};

struct Case {
    what: String,
    stage: Stage,
    leg: usize,
    word: Word,
    /// The reject that comes back by the same lane; none is silence.
    told: Option<u32>,
}

/// An engine's node that listens, a healthy neighbour that talks to it all the while, and strangers.
struct Scene {
    node: Node,
    neighbour: Node,
    bound: MeshBound,
    said: u32,
}

impl Scene {
    fn new() -> Self {
        let (node, bound) = Node::join(host("node"));
        let bound = bound.unwrap();
        let (neighbour, _) = Node::join(plain("neighbour").peer(application(&bound)));
        let mut scene = Self { node, neighbour, bound, said: 0 };
        scene.until("the neighbour is ready", |scene| {
            scene.node.ready_peers() == 1 && scene.neighbour.ready_peers() == 1
        });
        scene.node.events();
        scene
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let begin = Instant::now();
        loop {
            self.node.turn();
            self.neighbour.turn();
            if done(self) {
                return;
            }
            let snapshot = self.node.engine.snapshot();
            assert!(begin.elapsed() < s(10), "not in 10 s: {what}: {snapshot:#?}");
            self.node.engine.wait(Some(ms(1)));
        }
    }

    fn settle(&mut self) {
        let begin = Instant::now();
        self.until("time", |_| begin.elapsed() > ms(30));
    }

    fn at(&self) -> Endpoint {
        application(&self.bound)
    }

    /// The neighbour calls the node and is answered, so nobody has harmed either.
    fn neighbour_is_served(&mut self) {
        self.said += 1;
        let text = format!("message {}", self.said);
        self.neighbour.outbox().send((&mesh(), &rid("node")), &[text.as_bytes()]).unwrap();
        let is = |event: &Owned| matches!(event, Owned::Message { parts, .. } if parts[0] == text.as_bytes());
        self.until("the neighbour's message", |scene| scene.node.inbox.events.iter().any(is));
        assert_eq!(self.lost("neighbour"), None);
        assert!(!self.neighbour.inbox.events.iter().any(|event| matches!(event, Owned::Lost { .. })));
    }

    /// How the node lost a peer. Panics if it says so twice.
    fn lost(&self, name: &str) -> Option<LostReason> {
        let mut reasons = self.node.inbox.events.iter().filter_map(|event| match event {
            Owned::Lost { peer, reason } if peer.rid() == &rid(name) => Some(*reason),
            _ => None,
        });
        let reason = reasons.next();
        assert!(reasons.next().is_none(), "{name} was lost twice");
        reason
    }

    /// A raw dialler that has come this far.
    fn stranger(&mut self, name: &str, stage: Stage) -> RawNode {
        let mut raw = RawNode::dialling(name, &self.at());
        raw.admission.revision = 5;
        let completion = Endpoint::try_from(&self.bound.completion).unwrap();
        raw.lanes[COMPLETION] = Some(RawLane::dial(COMPLETION, &completion));
        if stage != Stranger {
            raw.send(APPLICATION, &head(HELLO, &raw.body(APPLICATION)), &[]);
            raw.wait(&mut self.node, APPLICATION, ADMIT);
        }
        if matches!(stage, Admitted | Ready) {
            raw.open_completion();
            raw.wait(&mut self.node, COMPLETION, ADMIT);
        }
        if stage == Ready {
            raw.sync(&mut self.node);
        }
        raw
    }

    /// Waits until nothing is left of anybody but the neighbour.
    #[track_caller]
    fn all_gone(&mut self) {
        self.until("everything of the strangers is gone", |scene| {
            let now = scene.node.engine.snapshot();
            let left = (now.connections.len(), now.unadmitted, now.fenced_open, now.requests, now.replies);
            left == (1, 0, 0, 0, 0)
        });
        assert_eq!(self.node.peers(), ["neighbour"]);
        assert_eq!(self.node.engine.snapshot().meshes[0].nodes.len(), 1, "nobody else is remembered");
    }
}

fn name(at: usize) -> String {
    format!("stranger-{at}")
}

/// Lets strangers with all of these words loose on one node, and looks what becomes of each, of the neighbour and of the
/// tables.
fn let_loose(cases: &[Case]) {
    let mut scene = Scene::new();
    let mut strangers: Vec<RawNode> =
        cases.iter().enumerate().map(|(at, case)| scene.stranger(&name(at), case.stage)).collect();
    scene.neighbour_is_served();
    let before = scene.node.engine.snapshot().counters;
    for (at, case) in cases.iter().enumerate() {
        let (head, parts) = &case.word;
        // Each is admitted under its own name, which stands in the record by another name of the same length.
        strangers[at].send(case.leg, &as_stranger(head, &name(at)), &vec![&b"x"[..]; *parts]);
    }
    let mut told = vec![None; cases.len()];
    scene.until("every stranger is told and lost", |scene| {
        let hear = |at: usize, told: &mut Option<u32>, strangers: &mut Vec<RawNode>| {
            *told = told.take().or_else(|| strangers[at].lane(cases[at].leg).rejected());
        };
        (0..cases.len()).for_each(|at| hear(at, &mut told[at], &mut strangers));
        let is_done = |at: usize, case: &Case| {
            let stood = matches!(case.stage, Admitted | Ready);
            (case.told.is_none() || told[at].is_some()) && (!stood || scene.lost(&name(at)).is_some())
        };
        let counters = scene.node.engine.snapshot().counters;
        let ended = counters.protocol_errors + counters.refused - before.protocol_errors - before.refused;
        cases.iter().enumerate().all(|(at, case)| is_done(at, case)) && ended == cases.len() as u64
    });
    scene.settle();
    for (at, case) in cases.iter().enumerate() {
        let stood = matches!(case.stage, Admitted | Ready);
        let lost = stood.then_some(LostReason::Protocol);
        assert_eq!((told[at], scene.lost(&name(at))), (case.told, lost), "{:?}: {}", case.stage, case.what);
        // Nobody is told twice, by whichever lane, in the same second.
        let again = strangers[at].lane(case.leg).rejected();
        assert_eq!(again, None, "{:?}: {}", case.stage, case.what);
    }
    assert_eq!(scene.node.peers(), ["neighbour"]);
    scene.neighbour_is_served();
    drop(strangers);
    scene.all_gone();
    scene.neighbour_is_served();
}

/// The stranger that a table's admissions are written for.
const TEMPLATE: &str = "stranger-#";

/// What the template says of itself.
fn template() -> Admission {
    Admission { revision: 5, ..says(TEMPLATE) }
}

/// A record with the template's RID and pair replaced by those of a stranger.
fn as_stranger(head: &[u8], name: &str) -> Vec<u8> {
    let template = [&[TEMPLATE.len() as u8], TEMPLATE.as_bytes()].concat();
    let Some(at) = head.windows(template.len()).position(|window| window == template) else {
        return head.to_vec();
    };
    let rid = [&[name.len() as u8], name.as_bytes()].concat();
    let mut tail = head[at + template.len()..].to_vec();
    // Generation, revision, pair.
    if tail.get(16..24).is_some_and(|pair| pair == 1_u64.to_be_bytes()) {
        let pair = pair_of(name);
        tail[16..24].copy_from_slice(&pair.to_be_bytes());
    }
    [&head[..at], &rid, &tail].concat()
}

/// An admission for a lane that is the template's but for one change.
fn but(command: u8, leg: usize, change: Change) -> Word {
    let mut admission = Admission { lane: leg as u8 + 1, ..template() };
    change(&mut admission);
    (head(command, &admission.bytes()), 0)
}

fn right(command: u8, leg: usize) -> Word {
    but(command, leg, |_| ())
}

fn case(what: impl Into<String>, stage: Stage, leg: usize, word: Word, told: u32) -> Case {
    Case { what: what.into(), stage, leg, word, told: Some(told) }
}

/// What breaks the layout or a bound of every admission, in whichever record it stands.
const BROKEN: &[(&str, Change)] = &[
    ("topology 0", |it| it.topology = 0),
    ("topology 3", |it| it.topology = 3),
    ("lane 0", |it| it.lane = 0),
    ("lane 3", |it| it.lane = 3),
    ("role 3", |it| it.role = 3),
    ("state 6", |it| it.state = 6),
    ("no mesh name", |it| it.name.clear()),
    ("a mesh name with a NUL", |it| it.name = "lob\0y".into()),
    ("no RID", |it| it.rid.clear()),
    ("generation 0", |it| it.generation = 0),
    ("revision 0", |it| it.revision = 0),
    ("pair 0", |it| it.pair = 0),
    ("a security identity with a NUL", |it| it.security = "\0".into()),
    ("a wildcard port", |it| it.endpoint = "tcp://127.0.0.1:0".into()),
    ("a wildcard host", |it| it.endpoint = "tcp://0.0.0.0:1".into()),
    ("a host name", |it| it.endpoint = "tcp://localhost:1".into()),
    ("a wildcard completion port", |it| it.completion = "tcp://127.0.0.1:0".into()),
    ("a wildcard completion host", |it| it.completion = "tcp://*:1".into()),
    ("a completion endpoint that is none", |it| it.completion = "somewhere".into()),
    ("a record limit", |it| it.max_message = 5_000),
    ("a channel without a name", |it| it.channels = vec![(String::new(), 1)]),
    ("weight 10,001", |it| it.channels = vec![("a".into(), 10_001)]),
    ("one channel twice", |it| it.channels = vec![("a".into(), 1), ("a".into(), 1)]),
    ("channels out of order", |it| it.channels = vec![("b".into(), 1), ("a".into(), 1)]),
    ("an extension cut off", |it| it.extensions = vec![7, 0, 0, 0, 2, 0]),
    ("an extension of 4 GiB", |it| it.extensions = vec![7, 0xFF, 0xFF, 0xFF, 0xFF]),
    ("extensions out of order", |it| it.extensions = vec![2, 0, 0, 0, 0, 1, 0, 0, 0, 0]),
    ("more than 1 MiB", |it| {
        it.extensions = [&[1][..], &(1_u32 << 20).to_be_bytes(), &vec![0; 1 << 20]].concat();
    }),
];

/// The same word by word, and what no change of a field can say.
fn broken(command: u8, leg: usize) -> Vec<(String, Word)> {
    let mut words: Vec<(String, Word)> =
        BROKEN.iter().map(|(what, change)| ((*what).to_owned(), but(command, leg, *change))).collect();
    let patched = |at: usize, byte: u8| {
        let (mut head, parts) = right(command, leg);
        head[at] = byte;
        (head, parts)
    };
    words.push(("a mesh name that is no UTF-8".into(), patched(10, 0xFF)));
    words.push(("a longer mesh name than there is".into(), patched(9, 255)));
    let (mut longer, _) = right(command, leg);
    longer.push(0);
    words.push(("a byte behind it".into(), (longer, 0)));
    words.push(("a payload part".into(), (right(command, leg).0, 1)));
    words.push(("300 payload parts".into(), (right(command, leg).0, 300)));
    words
}

/// Cut at every byte behind the command.
fn cut(command: u8, leg: usize) -> Vec<(String, Word)> {
    let (head, _) = right(command, leg);
    (4..head.len()).map(|length| (format!("cut at {length}"), (head[..length].to_vec(), 0))).collect()
}

/// Records that are whole, each on some lane allowed and on the other not.
fn application_words() -> Vec<(&'static str, Word)> {
    vec![
        ("a probe", (probe(9), 0)),
        ("an ACK", (ack(9), 0)),
        ("a node send", (node_send(), 1)),
        ("a node request", (node_request(9), 1)),
        ("a channel send", (channel_send("work"), 1)),
        ("a channel request", (channel_request(9, "work"), 1)),
    ]
}

// ---- The first word on either lane ----

#[test]
fn a_first_word_that_is_no_fitting_hello_is_refused_by_its_reason_on_either_lane() {
    let mut cases = Vec::new();
    for (leg, other, allowed) in [(APPLICATION, 2, None), (COMPLETION, 1, Some(NOT_ADMITTED))] {
        let first = |what: &str, word: Word, told: u32| case(what, Stranger, leg, word, told);
        let (mut major, _) = right(HELLO, leg);
        major[2] = 2;
        cases.push(first("another major version", (major, 0), 1));
        cases.push(first("another mesh", but(HELLO, leg, |it| it.name = "hall".into()), TOPOLOGY));
        let client_server: Change = |it| (it.topology, it.lane, it.role) = (2, 1, 1);
        cases.push(first("ClientServer", but(HELLO, leg, client_server), TOPOLOGY));
        let (mut lane, _) = right(HELLO, leg);
        lane[6] = other;
        cases.push(first("the other lane", (lane, 0), TOPOLOGY));
        cases.push(first("the listener's own RID", but(HELLO, leg, |it| it.rid = "node".into()), IDENTITY));
        // Nobody has an application lane yet.
        cases.extend(allowed.map(|told| first("a completion hello first", right(HELLO, leg), told)));
        for (what, word) in broken(HELLO, leg) {
            cases.push(first(&what, word, INVALID));
        }
        for command in [ADMIT, UPDATE] {
            cases.push(first(&format!("command {command}"), right(command, leg), NOT_ADMITTED));
        }
        for (what, word) in application_words() {
            cases.push(first(what, word, NOT_ADMITTED));
        }
        cases.push(first("a reply", (reply(9, 0), 0), NOT_ADMITTED));
        cases.push(Case { told: None, ..first("a reject", (reject(14), 0), 0) });
        for command in [0, 7, 15, 21, 51, 52, 255] {
            cases.push(first(&format!("command {command}"), (head(command, &[0; 8]), 0), NOT_ADMITTED));
        }
        cases.push(first("an empty record", (Vec::new(), 0), NOT_ADMITTED));
        cases.push(first("other magic", (b"ZN\x01\x01\0".to_vec(), 0), NOT_ADMITTED));
    }
    let_loose(&cases);
}

#[test]
fn a_hello_cut_at_any_byte_is_an_invalid_descriptor_on_either_lane() {
    for leg in [APPLICATION, COMPLETION] {
        let cut = cut(HELLO, leg).into_iter();
        let_loose(&cut.map(|(what, word)| case(what, Stranger, leg, word, INVALID)).collect::<Vec<_>>());
    }
}

// ---- The completion hello ----

#[test]
fn a_completion_hello_that_does_not_fit_its_application_lane_is_refused_by_its_reason() {
    let second = |what: &str, change: Change, told: u32| {
        case(what, Joining, COMPLETION, but(HELLO, COMPLETION, change), told)
    };
    let mut cases = vec![
        second("another pair", |it| it.pair = 77, NOT_ADMITTED),
        second("another RID", |it| it.rid = "stranger-x".into(), NOT_ADMITTED),
        second("the neighbour's RID", |it| it.rid = "neighbour".into(), NOT_ADMITTED),
        second("the listener's own RID", |it| it.rid = "node".into(), IDENTITY),
        second("another mesh", |it| it.name = "hall".into(), TOPOLOGY),
        second("the application lane", |it| it.lane = 1, TOPOLOGY),
        second("ClientServer", |it| (it.topology, it.lane, it.role) = (2, 1, 1), TOPOLOGY),
        second("another security identity", |it| it.security = "mallory".into(), SECURITY),
        second("another generation", |it| it.generation = 2, GENERATION),
        second("a lower revision", |it| it.revision = 4, REVISION),
        second("another role", |it| it.role = 2, INVALID),
        second("another endpoint", |it| it.endpoint = "tcp://127.0.0.1:9".into(), INVALID),
        second("another completion endpoint", |it| it.completion = "tcp://127.0.0.1:9".into(), INVALID),
        second("another state with the same revision", |it| it.state = 3, INVALID),
        second("an extension with the same revision", |it| it.extensions = vec![9, 0, 0, 0, 0], INVALID),
        second("a new membership", |it| (it.revision, it.channels) = (6, vec![("a".into(), 1)]), INVALID),
    ];
    for (what, word) in broken(HELLO, COMPLETION) {
        cases.push(case(what, Joining, COMPLETION, word, INVALID));
    }
    let_loose(&cases);
}

/// Between the two hellos the descriptor may have moved on, as updates may.
#[test]
fn a_completion_hello_of_a_higher_revision_is_admitted_and_counts() {
    let mut scene = Scene::new();
    let mut raw = scene.stranger("stranger", Joining);
    (raw.admission.revision, raw.admission.state) = (6, raw::DRAINING);
    raw.open_completion();
    raw.wait(&mut scene.node, COMPLETION, ADMIT);
    raw.sync(&mut scene.node);
    assert_eq!(scene.node.peers(), ["neighbour", "stranger"]);
    // What the second hello said is the last word: an update of its revision is nothing new, one below it is refused.
    raw.send(COMPLETION, &head(UPDATE, &raw.body(COMPLETION)), &[]);
    raw.sync_completion(&mut scene.node);
    assert_eq!(scene.lost("stranger"), None);
    raw.admission.revision = 5;
    raw.send(COMPLETION, &head(UPDATE, &raw.body(COMPLETION)), &[]);
    scene.until("the end", |scene| scene.lost("stranger") == Some(LostReason::Protocol));
    drop(raw);
    scene.all_gone();
}

/// Whoever comes with a pair that is complete already is one too many, and the pair does not care.
#[test]
fn a_second_completion_lane_is_refused_and_the_pair_stays() {
    for stage in [Admitted, Ready] {
        let mut scene = Scene::new();
        let mut raw = scene.stranger("stranger", stage);
        let mut second = scene.stranger("stranger", Stranger);
        second.open_completion();
        let mut told = None;
        scene.until("the refusal", |_| {
            told = second.lane(COMPLETION).rejected();
            told.is_some()
        });
        assert_eq!(told, Some(DUPLICATE));
        drop(second);
        raw.sync(&mut scene.node);
        raw.sync_completion(&mut scene.node);
        assert_eq!(scene.node.peers(), ["neighbour", "stranger"]);
        scene.neighbour_is_served();
        drop(raw);
        scene.all_gone();
        assert_eq!(scene.lost("stranger"), Some(LostReason::Transport));
    }
}

/// An application lane whose completion lane never comes, or comes wrong, is given up after the patience of 20 s.
#[test]
fn half_a_pair_is_seen_and_given_up_after_20_s() {
    let mut scene = Scene::new();
    let mut alone = scene.stranger("alone", Joining);
    let mut wrong = scene.stranger("wrong", Joining);
    wrong.admission.pair = 77;
    wrong.open_completion();
    let mut told = None;
    scene.until("the refusal", |_| {
        told = wrong.lane(COMPLETION).rejected();
        told.is_some()
    });
    for second in 1..=20 {
        let left = scene.node.engine.snapshot().unadmitted;
        assert_eq!(left, 2, "half a pair is not admitted, after {second} s");
        scene.node.now += s(1);
        scene.neighbour.now += s(1);
        scene.settle();
    }
    for raw in [&mut alone, &mut wrong] {
        assert_eq!(raw.lane(APPLICATION).rejected(), Some(NOT_ADMITTED));
    }
    assert_eq!(scene.node.engine.snapshot().unadmitted, 0);
    scene.neighbour_is_served();
    drop((alone, wrong));
    scene.all_gone();
}

// ---- Between the admits and the first probe ----

#[test]
fn what_comes_before_the_first_probe_and_is_no_hello_ends_the_opening() {
    let mut cases = Vec::new();
    for stage in [Joining, Admitted] {
        for (what, word) in application_words() {
            // The probe is what an admitted pair waits for.
            if stage == Joining || word.0[3] != PROBE {
                cases.push(case(what, stage, APPLICATION, word, NOT_ADMITTED));
            }
        }
        for command in [HELLO, ADMIT, UPDATE] {
            let word = right(command, APPLICATION);
            cases.push(case(format!("command {command}"), stage, APPLICATION, word, NOT_ADMITTED));
        }
        cases.push(case("a reply", stage, APPLICATION, (reply(9, 0), 0), NOT_ADMITTED));
        cases.push(case("command 7", stage, APPLICATION, (head(7, &[]), 0), NOT_ADMITTED));
    }
    // The completion lane of half a pair takes a hello and nothing else, that of a whole one replies and updates.
    for stage in [Joining, Admitted] {
        for (what, word) in application_words() {
            cases.push(case(what, stage, COMPLETION, word, NOT_ADMITTED));
        }
        cases.push(case("an admit", stage, COMPLETION, right(ADMIT, COMPLETION), NOT_ADMITTED));
    }
    cases.push(case("a reply", Joining, COMPLETION, (reply(9, 0), 0), NOT_ADMITTED));
    cases.push(case("an update", Joining, COMPLETION, right(UPDATE, COMPLETION), NOT_ADMITTED));
    cases.push(case("a second hello", Admitted, COMPLETION, right(HELLO, COMPLETION), NOT_ADMITTED));
    let_loose(&cases);
}

// ---- On a pair in use ----

#[test]
fn a_record_on_the_other_lane_or_from_the_other_end_ends_a_pair_in_use() {
    let mut cases = Vec::new();
    for (what, word) in application_words() {
        cases.push(case(what, Ready, COMPLETION, word, NOT_ADMITTED));
    }
    let stopped: Change = |it| (it.revision, it.state) = (6, raw::STOPPED);
    let newer: Change = |it| (it.revision, it.state) = (6, raw::DRAINING);
    for (what, word) in [
        ("a reply", (reply(9, 0), 1)),
        ("a failed reply", (reply(9, 1), 0)),
        ("the same admission as an update", right(UPDATE, APPLICATION)),
        ("an update", but(UPDATE, APPLICATION, newer)),
        ("a stop", but(UPDATE, APPLICATION, stopped)),
    ] {
        cases.push(case(what, Ready, APPLICATION, word, NOT_ADMITTED));
    }
    for leg in [APPLICATION, COMPLETION] {
        cases.push(case("a second hello", Ready, leg, right(HELLO, leg), NOT_ADMITTED));
        cases.push(case("an admit from a dialler", Ready, leg, right(ADMIT, leg), NOT_ADMITTED));
    }
    let_loose(&cases);
}

#[test]
fn an_unknown_a_cut_or_an_endless_record_ends_a_pair_in_use() {
    let mut cases = Vec::new();
    for leg in [APPLICATION, COMPLETION] {
        let mut later = |what: String, word: Word| cases.push(case(what, Ready, leg, word, NOT_ADMITTED));
        for command in [0, 7, 15, 21, 51, 52, 128, 255] {
            later(format!("command {command}"), (head(command, &1_u64.to_be_bytes()), 0));
        }
        later("an empty record".into(), (Vec::new(), 0));
        later("other magic".into(), (b"ZN\x01\x05\0\0\0\0\0\0\0\0\x01".to_vec(), 0));
        later("flags".into(), (b"ZM\x01\x05\x01\0\0\0\0\0\0\0\x01".to_vec(), 0));
        later("a megabyte".into(), (vec![0x5A; 1 << 20], 0));
    }
    let mut words = vec![
        ("a channel send without a part", APPLICATION, (channel_send("work"), 0)),
        ("256 parts", APPLICATION, (node_send(), 256)),
        ("a node send with a body", APPLICATION, (head(NODE_SEND, &[0]), 1)),
        ("correlation 0", APPLICATION, (node_request(0), 1)),
        ("a channel request with correlation 0", APPLICATION, (channel_request(0, "work"), 1)),
        ("a channel without a name", APPLICATION, (channel_send(""), 1)),
        ("probe 0", APPLICATION, (probe(0), 0)),
        ("probe 2^63", APPLICATION, (probe(1 << 63), 0)),
        ("ACK 0", APPLICATION, (ack(0), 0)),
        ("a probe with a part", APPLICATION, (probe(1), 1)),
        ("a reply with correlation 0", COMPLETION, (reply(0, 0), 0)),
        ("a failed reply with a part", COMPLETION, (reply(1, 3), 1)),
        ("outcome 14", COMPLETION, (reply(1, 14), 0)),
        ("a reply with 256 parts", COMPLETION, (reply(1, 0), 256)),
    ];
    let heads = [probe(9), ack(9), node_request(9), channel_send("work"), channel_request(9, "work")];
    let cut = |leg: usize, head: Vec<u8>, parts: usize| {
        (5..head.len()).map(move |length| ("cut", leg, (head[..length].to_vec(), parts)))
    };
    for whole in heads {
        let parts = usize::from(whole[3] >= NODE_SEND);
        words.extend(cut(APPLICATION, whole, parts));
    }
    words.extend(cut(COMPLETION, reply(9, 0), 0));
    for (what, leg, word) in words {
        cases.push(case(format!("{what}: {:02x?}", word.0), Ready, leg, word, NOT_ADMITTED));
    }
    let_loose(&cases);
}

#[test]
fn an_update_may_not_go_back_contradict_itself_or_become_somebody_else() {
    let changes: [(&str, Change); 16] = [
        ("a lower revision", |it| it.revision = 4),
        ("the same revision with another state", |it| it.state = 3),
        ("the same revision with an extension", |it| it.extensions = vec![9, 0, 0, 0, 0]),
        ("another RID", |it| (it.revision, it.rid) = (6, "stranger-x".into())),
        ("the neighbour's RID", |it| (it.revision, it.rid) = (6, "neighbour".into())),
        ("another generation", |it| (it.revision, it.generation) = (6, 2)),
        ("another pair", |it| (it.revision, it.pair) = (6, 77)),
        ("another mesh", |it| (it.revision, it.name) = (6, "hall".into())),
        ("the application lane", |it| (it.revision, it.lane) = (6, 1)),
        ("ClientServer", |it| (it.revision, it.topology, it.lane, it.role) = (6, 2, 1, 1)),
        ("another role", |it| (it.revision, it.role) = (6, 2)),
        ("another security identity", |it| (it.revision, it.security) = (6, "mallory".into())),
        ("an endpoint", |it| (it.revision, it.endpoint) = (6, "tcp://127.0.0.1:9".into())),
        ("a completion endpoint", |it| (it.revision, it.completion) = (6, "tcp://127.0.0.1:9".into())),
        ("a new membership", |it| (it.revision, it.channels) = (6, vec![("a".into(), 1)])),
        ("a new membership of weight 0", |it| (it.revision, it.channels) = (6, vec![("a".into(), 0)])),
    ];
    let mut cases: Vec<Case> = changes
        .iter()
        .map(|(what, change)| case(*what, Ready, COMPLETION, but(UPDATE, COMPLETION, *change), NOT_ADMITTED))
        .collect();
    for (what, word) in broken(UPDATE, COMPLETION).into_iter().chain(cut(UPDATE, COMPLETION)) {
        cases.push(case(what, Ready, COMPLETION, word, NOT_ADMITTED));
    }
    let_loose(&cases);
}

// ---- Whoever comes by a name that is taken, or described ----

/// One application hello, and the reject that comes back.
#[track_caller]
fn refused(scene: &mut Scene, what: &str, admission: Admission) -> u32 {
    let mut raw = RawNode::dialling("", &scene.at());
    raw.admission = admission;
    raw.send(APPLICATION, &head(HELLO, &raw.body(APPLICATION)), &[]);
    let mut told = None;
    scene.until(what, |_| {
        told = raw.lane(APPLICATION).rejected();
        told.is_some()
    });
    told.unwrap()
}

#[test]
fn a_hello_by_a_name_that_is_taken_is_judged_by_what_that_one_said() {
    let mut scene = Scene::new();
    let mut elder = scene.stranger("elder", Ready);
    let same = elder.admission.clone();
    let changes: [(&str, Change, u32); 5] = [
        ("another security identity", |it| it.security = "mallory".into(), SECURITY),
        (
            "another security identity and generation",
            |it| (it.security, it.generation) = ("m".into(), 9),
            SECURITY,
        ),
        ("a lower revision", |it| it.revision = 4, REVISION),
        ("another state with the same revision", |it| it.state = 3, INVALID),
        ("another role with the same revision", |it| it.role = 1, INVALID),
    ];
    for (what, change, reason) in changes {
        let mut admission = same.clone();
        change(&mut admission);
        assert_eq!(refused(&mut scene, what, admission), reason, "{what}");
        elder.sync(&mut scene.node);
    }
    // Who says the same, or comes with another generation, waits for what the elder answers.
    for generation in [1, 9] {
        let mut raw = RawNode::dialling("elder", &scene.at());
        raw.admission = Admission { generation, ..same.clone() };
        elder.poll();
        elder.probes();
        raw.send(APPLICATION, &head(HELLO, &raw.body(APPLICATION)), &[]);
        let asked = elder.wait(&mut scene.node, APPLICATION, PROBE).number();
        assert_eq!(scene.node.engine.snapshot().unadmitted, 1);
        elder.send(APPLICATION, &ack(asked), &[]);
        assert_eq!(raw.wait(&mut scene.node, APPLICATION, raw::REJECT).reason(), DUPLICATE);
        elder.sync(&mut scene.node);
    }
    assert_eq!(scene.node.peers(), ["elder", "neighbour"]);
    assert_eq!(scene.lost("elder"), None);
    drop(elder);
    scene.all_gone();
}

fn described(name: &str, endpoint: Option<Endpoint>) -> NodeDescriptor {
    let (generation, security) = (generation(5), SecurityId::new("alice").unwrap());
    NodeDescriptor { rid: rid(name), generation, security, role: Role::None, serves: Vec::new(), endpoint }
}

#[test]
fn a_hello_that_is_not_the_described_one_is_refused_by_its_reason() {
    let mut scene = Scene::new();
    scene.node.outbox().set_descriptors(&mesh(), &[described("alice", None)]).unwrap();
    let right = Admission { generation: 5, security: "alice".into(), ..says("alice") };
    let changes: [(&str, Change, u32); 5] = [
        ("another security identity", |it| it.security = "mallory".into(), SECURITY),
        ("none", |it| it.security.clear(), SECURITY),
        ("an earlier generation", |it| it.generation = 4, GENERATION),
        ("a later generation", |it| it.generation = 6, GENERATION),
        ("neither", |it| (it.security, it.generation) = ("mallory".into(), 6), SECURITY),
    ];
    for (what, change, reason) in changes {
        let mut admission = right.clone();
        change(&mut admission);
        assert_eq!(refused(&mut scene, what, admission), reason, "{what}");
    }
    let mut raw = RawNode::dialling("alice", &scene.at());
    raw.admission = Admission { pair: 8, ..right };
    raw.open(&mut scene.node);
    assert_eq!(scene.node.peers(), ["alice", "neighbour"]);
    scene.node.outbox().set_descriptors(&mesh(), &[]).unwrap();
    drop(raw);
    scene.all_gone();
}

#[test]
fn a_hello_to_a_node_that_does_not_serve_or_needs_nobody_is_refused_by_its_reason() {
    const NOT_SERVING: u32 = 9;
    const NOT_REQUIRED: u32 = 13;
    let mut scene = Scene::new();
    scene.node.engine.drain(true);
    assert_eq!(refused(&mut scene, "draining", template()), NOT_SERVING);
    scene.node.engine.drain(false);

    let (mut client, bound) = Node::join(listening("client").role(Role::Client));
    let at = application(&bound.unwrap());
    let mut raw = RawNode::dialling("raw", &at);
    raw.admission.role = 1;
    raw.send(APPLICATION, &head(HELLO, &raw.body(APPLICATION)), &[]);
    assert_eq!(raw.wait(&mut client, APPLICATION, raw::REJECT).reason(), NOT_REQUIRED);
    // Another role, or a membership though its weight be 0, makes the difference.
    let changes: [Change; 3] =
        [|it| it.role = 0, |it| it.role = 2, |it| (it.role, it.channels) = (1, vec![("a".into(), 0)])];
    for (at_all, change) in changes.into_iter().enumerate() {
        let mut raw = RawNode::dialling(&name(at_all), &at);
        change(&mut raw.admission);
        raw.open(&mut client);
    }
}

// ---- The engine as the dialler ----

/// How a raw listener answers, and what the dialling host is told.
struct Answer {
    what: String,
    /// The lane that answers badly; the one before it answers well.
    leg: usize,
    word: Say,
    failure: Failure,
}

enum Say {
    /// Its own admit but for one change.
    Admit(Change),
    Word(Word),
}

/// Lets one node dial raw listeners with all of these answers, beside a healthy one.
fn let_dial(answers: &[Answer]) {
    let mut raws: Vec<RawNode> = (0..answers.len()).map(|at| RawNode::listening(&name(at))).collect();
    for raw in &mut raws {
        raw.admission.revision = 5;
    }
    let (mut neighbour, at) = Node::listens(host("neighbour"));
    let wish = plain("node").peer(at);
    let wish =
        raws.iter().enumerate().fold(wish, |wish, (at, raw)| wish.expected_peer(raw.at(), rid(&name(at))));
    let (mut node, _) = Node::join(wish);
    until(&mut [&mut node, &mut neighbour], "the neighbour", |nodes| nodes[0].ready_peers() == 1);
    for (at, answer) in answers.iter().enumerate() {
        let raw = &mut raws[at];
        for leg in 0..=answer.leg {
            raw.hello(&mut node, leg);
            let mut admission = Admission { lane: leg as u8 + 1, ..raw.admission.clone() };
            let (word, parts) = match &answer.word {
                Say::Word(word) if leg == answer.leg => word.clone(),
                Say::Admit(change) if leg == answer.leg => {
                    change(&mut admission);
                    (head(ADMIT, &admission.bytes()), 0)
                }
                _ => (head(ADMIT, &admission.bytes()), 0),
            };
            raw.send(leg, &word, &vec![&b"x"[..]; parts]);
        }
    }
    let failed = |node: &Node, at: usize| {
        let fits = |event: &Owned| match event {
            Owned::Failed { endpoint, failure, .. } if *endpoint == raws[at].at() => Some(*failure),
            _ => None,
        };
        node.inbox.events.iter().filter_map(fits).collect::<Vec<_>>()
    };
    let begin = Instant::now();
    while (0..answers.len()).any(|at| failed(&node, at).is_empty()) && begin.elapsed() < s(10) {
        node.turn();
        node.engine.wait(Some(ms(1)));
    }
    settle(&mut [&mut node, &mut neighbour]);
    for (at, answer) in answers.iter().enumerate() {
        assert_eq!(failed(&node, at), [answer.failure], "lane {}: {}", answer.leg, answer.what);
    }
    assert!(!node.inbox.events.iter().any(|event| matches!(event, Owned::Lost { .. })));
    // Every lane that was opened is closed, and nobody is remembered.
    until(&mut [&mut node, &mut neighbour], "the lanes' ends", |_| {
        raws.iter_mut().all(|raw| {
            let accepted = raw.lanes.iter().flatten().map(|lane| lane.accepted).sum::<usize>();
            raw.disconnected() == accepted && accepted > 0
        })
    });
    let now = node.engine.snapshot();
    assert_eq!((now.connections.len(), now.unadmitted, now.fenced_open), (1, 0, 0));
    assert_eq!((node.peers(), now.meshes[0].nodes.len()), (vec!["neighbour".to_owned()], 1));
    node.outbox().send((&mesh(), &named("work")), &[b"still here"]).unwrap();
    until(&mut [&mut neighbour, &mut node], "the message", |nodes| {
        nodes[0].inbox.events.iter().any(|event| matches!(event, Owned::Message { .. }))
    });
}

#[test]
fn an_admit_that_is_not_the_wanted_one_is_refused_by_its_reason_on_either_lane() {
    use RejectReason::{
        DescriptorRevisionStale, IdentityMismatch, InvalidDescriptor, LifecycleGenerationStale,
        SecurityIdentityMismatch, TopologyMismatch,
    };
    let says = |leg: usize, what: &str, change: Change, reason: RejectReason| Answer {
        what: what.into(),
        leg,
        word: Say::Admit(change),
        failure: Failure::Unexpected(reason),
    };
    let client_server: Change = |it| {
        (it.topology, it.lane, it.role) = (2, 1, 2);
        it.completion.clear();
    };
    let mut answers = Vec::new();
    for leg in [APPLICATION, COMPLETION] {
        answers.extend([
            says(leg, "another mesh", |it| it.name = "hall".into(), TopologyMismatch),
            says(leg, "ClientServer", client_server, TopologyMismatch),
            says(leg, "the other lane", |it| it.lane = 3 - it.lane, TopologyMismatch),
            says(leg, "the dialler's own RID", |it| it.rid = "node".into(), IdentityMismatch),
            says(leg, "another RID", |it| it.rid = "somebody".into(), IdentityMismatch),
            says(leg, "the neighbour's RID", |it| it.rid = "neighbour".into(), IdentityMismatch),
            says(leg, "another pair", |it| it.pair += 1, InvalidDescriptor),
            says(leg, "no completion endpoint", |it| it.completion.clear(), InvalidDescriptor),
        ]);
    }
    answers.extend([
        says(COMPLETION, "another security", |it| it.security = "mallory".into(), SecurityIdentityMismatch),
        says(COMPLETION, "another generation", |it| it.generation = 2, LifecycleGenerationStale),
        says(COMPLETION, "a lower revision", |it| it.revision = 4, DescriptorRevisionStale),
        says(COMPLETION, "another role", |it| it.role = 2, InvalidDescriptor),
        says(COMPLETION, "another state with the same revision", |it| it.state = 3, InvalidDescriptor),
        says(COMPLETION, "a new membership", |it| it.channels = vec![("a".into(), 1)], InvalidDescriptor),
        says(
            COMPLETION,
            "another endpoint",
            |it| it.endpoint = "tcp://127.0.0.1:9".into(),
            InvalidDescriptor,
        ),
    ]);
    let_dial(&answers);
}

#[test]
fn an_answer_to_a_hello_that_is_no_admit_ends_the_attempt_on_either_lane() {
    let mut answers = Vec::new();
    for leg in [APPLICATION, COMPLETION] {
        let mut answer = |what: String, word: Word, failure: Failure| {
            answers.push(Answer { what, leg, word: Say::Word(word), failure });
        };
        for (what, word) in broken(ADMIT, leg) {
            answer(what, word, Failure::Protocol);
        }
        for (what, word) in application_words() {
            answer(what.into(), word, Failure::Protocol);
        }
        answer("a hello".into(), right(HELLO, leg), Failure::Protocol);
        answer("an update".into(), right(UPDATE, leg), Failure::Protocol);
        answer("a reply".into(), (reply(9, 0), 0), Failure::Protocol);
        answer("command 7".into(), (head(7, &[]), 0), Failure::Protocol);
        answer("an empty record".into(), (Vec::new(), 0), Failure::Protocol);
        for (number, reason) in [
            (2, RejectReason::TopologyMismatch),
            (10, RejectReason::DuplicateConnection),
            (13, RejectReason::NotRequired),
            (14, RejectReason::NotAdmitted),
        ] {
            answer(format!("reject {number}"), (reject(number), 0), Failure::Refused(reason));
        }
    }
    let_dial(&answers);
}

/// The application lane is admitted, and the completion lane's hello has come: what else the listener can say there.
#[test]
fn what_an_application_lane_brings_before_the_pair_is_complete_ends_the_attempt() {
    let mut words: Vec<(&str, Word, Failure)> =
        application_words().into_iter().map(|(what, word)| (what, word, Failure::Protocol)).collect();
    words.push(("a hello", right(HELLO, APPLICATION), Failure::Protocol));
    words.push(("a second admit", right(ADMIT, APPLICATION), Failure::Protocol));
    words.push(("an update", right(UPDATE, APPLICATION), Failure::Protocol));
    words.push(("a reply", (reply(9, 0), 0), Failure::Protocol));
    words.push(("a reject", (reject(14), 0), Failure::Refused(RejectReason::NotAdmitted)));
    for (what, (head, parts), failure) in words {
        let mut raw = RawNode::listening("raw");
        let (mut node, _) = Node::join(plain("node").peer(raw.at()));
        raw.hello(&mut node, APPLICATION);
        raw.send(APPLICATION, &self::head(ADMIT, &raw.body(APPLICATION)), &[]);
        raw.hello(&mut node, COMPLETION);
        raw.send(APPLICATION, &head, &vec![&b"x"[..]; parts]);
        until(&mut [&mut node], what, |nodes| !nodes[0].inbox.events.is_empty());
        let events = node.events();
        let is = |event: &Owned| matches!(event, Owned::Failed { failure: told, .. } if *told == failure);
        assert!(events.len() == 1 && is(&events[0]), "{what}: {events:?}");
        until(&mut [&mut node], "both lanes' ends", |_| raw.disconnected() == 2);
        assert_eq!(node.engine.snapshot().connections.len(), 0);
    }
}

#[test]
fn a_word_that_a_listener_may_not_say_ends_a_pair_in_use_on_both_lanes() {
    let stopped: Change = |it| (it.revision, it.state) = (6, raw::STOPPED);
    let mut words: Vec<(&str, usize, Word)> = vec![
        ("a reply", APPLICATION, (reply(9, 0), 0)),
        ("an update", APPLICATION, right(UPDATE, APPLICATION)),
        ("a stop", APPLICATION, but(UPDATE, APPLICATION, stopped)),
    ];
    words.extend(application_words().into_iter().map(|(what, word)| (what, COMPLETION, word)));
    for leg in [APPLICATION, COMPLETION] {
        words.push(("a hello from a listener", leg, right(HELLO, leg)));
        words.push(("a second admit", leg, right(ADMIT, leg)));
        words.push(("command 21", leg, (head(21, &[0; 8]), 0)));
    }
    for (what, leg, (head, parts)) in words {
        let (mut raw, mut node) = RawNode::ready_listener("raw");
        node.events();
        raw.send(leg, &head, &vec![&b"x"[..]; parts]);
        until(&mut [&mut node], what, |nodes| !nodes[0].inbox.events.is_empty());
        let events = node.events();
        let is = |event: &Owned| matches!(event, Owned::Lost { reason: LostReason::Protocol, .. });
        assert!(events.len() == 1 && is(&events[0]), "{what} on lane {leg}: {events:?}");
        until(&mut [&mut node], "both lanes' ends", |_| raw.disconnected() == 2);
        // A dialler says nothing more: it closes.
        assert_eq!([0, 1].map(|leg| raw.lane(leg).rejected()), [None, None]);
        assert_eq!(node.engine.snapshot().connections.len(), 0);
    }
}
