//! A server, a healthy neighbour who talks to it all the while, and strangers.

use std::time::{Duration, Instant};

use wakeful::{Client, Config, Endpoint, LostReason, Owned, Server, Snapshot};

use crate::raw::{self, Admission, Frames, Stranger};
use crate::support::{CHANNEL, Node, channel, rid};

pub struct Scene {
    pub server: Node,
    pub neighbour: Node,
    pub endpoint: Endpoint,
    pub context: zmq::Context,
    said: u32,
}

impl Scene {
    pub fn new() -> Self {
        Self::with(Config { seed: 7, ..Config::default() }, |server| server)
    }

    pub fn with(config: Config, set: impl FnOnce(Server) -> Server) -> Self {
        let mut server = Node::with(config);
        let bind = "tcp://127.0.0.1:0".parse().unwrap();
        let bound = server.engine.serve(set(Server::new(channel(), rid("server"), bind))).unwrap();
        let endpoint = Endpoint::try_from(&bound).unwrap();
        let mut neighbour = Node::new();
        neighbour.engine.connect(Client::new(channel(), rid("neighbour")).server(endpoint.clone())).unwrap();
        let mut scene = Self { server, neighbour, endpoint, context: zmq::Context::new(), said: 0 };
        scene.until("the neighbour is ready", |scene| {
            scene.server.ready_peers() == 1 && scene.neighbour.ready_peers() == 1
        });
        scene.server.events();
        scene
    }

    /// Turns server and neighbour until `done` says so; panics after 10 s of real time.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let begin = Instant::now();
        loop {
            self.server.turn();
            self.neighbour.turn();
            if done(self) {
                return;
            }
            let snapshot = self.server.engine.snapshot();
            assert!(begin.elapsed() < Duration::from_secs(10), "not in 10 s: {what}: {snapshot:?}");
            self.server.engine.wait(Some(Duration::from_millis(1)));
        }
    }

    pub fn settle(&mut self) {
        let begin = Instant::now();
        self.until("time", |_| begin.elapsed() > Duration::from_millis(30));
    }

    /// Lets virtual time pass for server and neighbour alike, a second at a time.
    pub fn pass(&mut self, seconds: u32) {
        for _ in 0..seconds {
            self.server.now += Duration::from_secs(1);
            self.neighbour.now += Duration::from_secs(1);
            self.settle();
        }
    }

    /// The neighbour sends a message and the server gets it: nobody has harmed either. Returns how long that took.
    pub fn neighbour_is_served(&mut self) -> Duration {
        self.said += 1;
        let text = format!("message {}", self.said);
        let begin = Instant::now();
        self.neighbour.send(&text);
        self.until("the neighbour's message", |scene| {
            scene.server.inbox.events.iter().any(|event| {
                matches!(event, Owned::Message { peer, parts, .. }
                    if peer.rid() == &rid("neighbour") && parts[0] == text.as_bytes())
            })
        });
        let took = begin.elapsed();
        let lost = |node: &Node, name| {
            let is = |event: &Owned| matches!(event, Owned::Lost { peer, .. } if peer.rid() == &rid(name));
            node.inbox.events.iter().any(is)
        };
        assert!(
            !lost(&self.server, "neighbour") && !lost(&self.neighbour, "server"),
            "the neighbour was harmed"
        );
        took
    }

    pub fn stranger(&self) -> Stranger {
        Stranger::dial(&self.context, &self.endpoint, None)
    }

    /// Dials, says this hello and gets its admit.
    pub fn admitted(&mut self, hello: &Admission) -> Stranger {
        let mut stranger = self.stranger();
        stranger.send(&hello.hello());
        self.until("an admit", |_| stranger.got(raw::ADMIT).is_some());
        stranger
    }

    /// The same and one probe answered: both ends may use the connection.
    pub fn ready(&mut self, rid: &str) -> Stranger {
        let mut stranger = self.admitted(&Admission::client(CHANNEL, rid));
        stranger.send(&raw::probe(1));
        self.until("an ACK", |_| stranger.got(raw::ACK).is_some());
        stranger
    }

    /// How the server lost a peer. Panics if it says so twice.
    pub fn lost(&self, name: &str) -> Option<LostReason> {
        let mut reasons = self.server.inbox.events.iter().filter_map(|event| match event {
            Owned::Lost { peer, reason } if peer.rid() == &rid(name) => Some(*reason),
            _ => None,
        });
        let reason = reasons.next();
        assert!(reasons.next().is_none(), "{name} was lost twice");
        reason
    }

    pub fn snapshot(&self) -> Snapshot {
        self.server.engine.snapshot()
    }

    /// Whether nobody but the neighbour is left in any table.
    pub fn is_clean(&self) -> bool {
        let now = self.snapshot();
        (now.connections.len(), now.fenced_open, now.unadmitted, now.replies) == (1, 0, 0, 0)
    }

    /// Waits until nothing is left of any stranger, once all their sockets are closed.
    pub fn all_gone(&mut self) {
        self.until("everything of the strangers is gone", |scene| scene.is_clean());
    }
}

/// What a stranger does, and what becomes of it.
pub struct Case {
    pub what: String,
    /// It was admitted and ready before.
    pub ready: bool,
    pub records: Vec<Frames>,
    /// The reject it is told; none is silence.
    pub told: Option<u32>,
    /// How the host hears that it is lost; none if it was never admitted.
    pub lost: Option<LostReason>,
}

/// Lets all of these loose at once on one server, and looks what becomes of each, of the neighbour and of the tables.
pub fn let_loose(scene: &mut Scene, cases: &[Case]) {
    let name = |at: usize| format!("stranger-{at}");
    let mut strangers: Vec<Stranger> = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        strangers.push(if case.ready { scene.ready(&name(at)) } else { scene.stranger() });
    }
    scene.neighbour_is_served();
    let count = |scene: &Scene| {
        let counters = scene.snapshot().counters;
        counters.protocol_errors + counters.refused
    };
    let before = count(scene);
    for (stranger, case) in strangers.iter().zip(cases) {
        for record in &case.records {
            assert!(stranger.send(record), "{}", case.what);
        }
    }
    let mut told = vec![None; cases.len()];
    scene.until("every stranger is told and lost", |scene| {
        for (stranger, told) in strangers.iter_mut().zip(&mut told) {
            *told = told.take().or_else(|| stranger.rejected());
        }
        let is_done = |at: usize, case: &Case| {
            (case.told.is_none() || told[at].is_some())
                && (case.lost.is_none() || scene.lost(&name(at)).is_some())
        };
        let still = cases.iter().enumerate().find(|(at, case)| !is_done(*at, case));
        still.is_none() && scene.snapshot().fenced_open == cases.len()
    });
    scene.settle();
    for (at, case) in cases.iter().enumerate() {
        let told = told[at].or_else(|| strangers[at].rejected());
        assert_eq!((told, scene.lost(&name(at))), (case.told, case.lost), "{}", case.what);
    }
    assert_eq!(count(scene) - before, cases.len() as u64, "each was refused or broke the protocol once");
    scene.neighbour_is_served();
    drop(strangers);
    scene.all_gone();
    scene.neighbour_is_served();
    scene.server.events();
}
