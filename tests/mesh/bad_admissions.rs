//! Every wrong word that an admission can hold, on either lane, at every point of the opening and after it: refused with
//! the reason that WIRE.md gives, the pair ended on both lanes, nothing left in any table, and a healthy pair beside it
//! undisturbed. The strangers are raw sockets, dozens at once.
#![allow(clippy::disallowed_methods, reason = "a test on real sockets bounds its waits in real time")]

use std::time::Instant;

use wakeful::{Endpoint, LostReason, MeshBound, NodeDescriptor, Owned, RejectReason, Role, SecurityId};

use crate::support::mesh::{application, mesh, plain};
use crate::support::raw::{
    self, ACK, ADMIT, Admission, HELLO, NODE_REQUEST, NODE_SEND, PROBE, REPLY, UPDATE, ack, channel_request,
    channel_send, head, probe, reject, reply,
};
use crate::support::raw_mesh::{
    APPLICATION, COMPLETION, RawLane, RawNode, host, node_request, node_send, pair_of, says,
};
use crate::support::{Node, generation, ms, rid, s};

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
        strangers[at].send(case.leg, &named(head, &name(at)), &vec![&b"x"[..]; *parts]);
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
fn named(head: &[u8], name: &str) -> Vec<u8> {
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
