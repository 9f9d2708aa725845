//! A node of the engine, a healthy neighbour who talks to it all the while, and raw strangers with wrong words.
#![allow(clippy::disallowed_methods, reason = "a test on real sockets bounds its waits in real time")]

use std::time::Instant;

use wakeful::{Config, Endpoint, LostReason, MeshBound, Owned};

use crate::support::mesh::{application, mesh, plain};
use crate::support::raw::{ADMIT, Admission, HELLO, ack, channel_request, channel_send, head, probe};
use crate::support::raw_mesh::{
    APPLICATION, COMPLETION, RawLane, RawNode, host, node_request, node_send, pair_of, says,
};
use crate::support::{Node, ms, rid, s};

pub const TOPOLOGY: u32 = 2;
pub const IDENTITY: u32 = 3;
pub const SECURITY: u32 = 4;
pub const GENERATION: u32 = 6;
pub const REVISION: u32 = 7;
pub const DUPLICATE: u32 = 10;
pub const INVALID: u32 = 11;
pub const NOT_ADMITTED: u32 = 14;

pub type Change = fn(&mut Admission);

/// A record: its head, and its payload parts if any.
pub type Word = (Vec<u8>, usize);

/// How far a stranger has come before it says the word.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stage {
    /// Both lanes are dialled, nothing was said.
    Stranger,
    /// The application lane is admitted.
    Joining,
    /// Both lanes are, and the first probe is missing.
    Admitted,
    Ready,
}

use Stage::{Admitted, Ready, Stranger};

pub struct Case {
    pub what: String,
    pub stage: Stage,
    pub leg: usize,
    pub word: Word,
    /// The reject that comes back by the same lane; none is silence.
    pub told: Option<u32>,
}

/// An engine's node that listens, a healthy neighbour that talks to it all the while, and strangers.
pub struct Scene {
    pub node: Node,
    pub neighbour: Node,
    pub bound: MeshBound,
    said: u32,
}

impl Scene {
    pub fn new() -> Self {
        Self::with(Config { seed: 7, ..Config::default() })
    }

    pub fn with(config: Config) -> Self {
        let (node, bound) = Node::join_with(config, host("node"));
        let bound = bound.unwrap();
        let (neighbour, _) = Node::join(plain("neighbour").peer(application(&bound)));
        let mut scene = Self { node, neighbour, bound, said: 0 };
        scene.until("the neighbour is ready", |scene| {
            scene.node.ready_peers() == 1 && scene.neighbour.ready_peers() == 1
        });
        scene.node.events();
        scene
    }

    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
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

    pub fn settle(&mut self) {
        let begin = Instant::now();
        self.until("time", |_| begin.elapsed() > ms(30));
    }

    /// A few turns, with what real sockets need of real time.
    pub fn settle_briefly(&mut self) {
        let begin = Instant::now();
        self.until("time", |_| begin.elapsed() > ms(3));
    }

    pub fn at(&self) -> Endpoint {
        application(&self.bound)
    }

    /// The neighbour calls the node and is answered, so nobody has harmed either.
    pub fn neighbour_is_served(&mut self) {
        self.said += 1;
        let text = format!("message {}", self.said);
        self.neighbour.outbox().send((&mesh(), &rid("node")), &[text.as_bytes()]).unwrap();
        let is = |event: &Owned| matches!(event, Owned::Message { parts, .. } if parts[0] == text.as_bytes());
        self.until("the neighbour's message", |scene| scene.node.inbox.events.iter().any(is));
        assert_eq!(self.lost("neighbour"), None);
        assert!(!self.neighbour.inbox.events.iter().any(|event| matches!(event, Owned::Lost { .. })));
    }

    /// How the node lost a peer. Panics if it says so twice.
    pub fn lost(&self, name: &str) -> Option<LostReason> {
        let mut reasons = self.node.inbox.events.iter().filter_map(|event| match event {
            Owned::Lost { peer, reason } if peer.rid() == &rid(name) => Some(*reason),
            _ => None,
        });
        let reason = reasons.next();
        assert!(reasons.next().is_none(), "{name} was lost twice");
        reason
    }

    /// A raw dialler that has come this far.
    pub fn stranger(&mut self, name: &str, stage: Stage) -> RawNode {
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
    pub fn all_gone(&mut self) {
        self.until("everything of the strangers is gone", |scene| {
            let now = scene.node.engine.snapshot();
            let left = (now.connections.len(), now.unadmitted, now.fenced_open, now.requests, now.replies);
            left == (1, 0, 0, 0, 0)
        });
        assert_eq!(self.node.peers(), ["neighbour"]);
        assert_eq!(self.node.engine.snapshot().meshes[0].nodes.len(), 1, "nobody else is remembered");
    }
}

pub fn name(at: usize) -> String {
    format!("stranger-{at}")
}

/// Lets strangers with all of these words loose on one node, and looks what becomes of each, of the neighbour and of the
/// tables.
pub fn let_loose(cases: &[Case]) {
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
pub const TEMPLATE: &str = "stranger-#";

/// What the template says of itself.
pub fn template() -> Admission {
    Admission { revision: 5, ..says(TEMPLATE) }
}

/// A record with the template's RID and pair replaced by those of a stranger.
pub fn as_stranger(head: &[u8], name: &str) -> Vec<u8> {
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
pub fn but(command: u8, leg: usize, change: Change) -> Word {
    let mut admission = Admission { lane: leg as u8 + 1, ..template() };
    change(&mut admission);
    (head(command, &admission.bytes()), 0)
}

pub fn right(command: u8, leg: usize) -> Word {
    but(command, leg, |_| ())
}

pub fn case(what: impl Into<String>, stage: Stage, leg: usize, word: Word, told: u32) -> Case {
    Case { what: what.into(), stage, leg, word, told: Some(told) }
}

/// What breaks the layout or a bound of every admission, in whichever record it stands.
pub const BROKEN: &[(&str, Change)] = &[
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
pub fn broken(command: u8, leg: usize) -> Vec<(String, Word)> {
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
pub fn cut(command: u8, leg: usize) -> Vec<(String, Word)> {
    let (head, _) = right(command, leg);
    (4..head.len()).map(|length| (format!("cut at {length}"), (head[..length].to_vec(), 0))).collect()
}

/// Records that are whole, each on some lane allowed and on the other not.
pub fn application_words() -> Vec<(&'static str, Word)> {
    vec![
        ("a probe", (probe(9), 0)),
        ("an ACK", (ack(9), 0)),
        ("a node send", (node_send(), 1)),
        ("a node request", (node_request(9), 1)),
        ("a channel send", (channel_send("work"), 1)),
        ("a channel request", (channel_request(9, "work"), 1)),
    ]
}
