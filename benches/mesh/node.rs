//! A node of the mesh with a host that echoes, counts, and waits for replies.

use std::thread;
use std::time::{Duration, Instant};

use wakeful::{
    Completion, Config, Endpoint, Engine, Event, Host, MeshBound, MeshName, MeshNode, Outbox, Rid,
};

const PATIENCE: Duration = Duration::from_secs(10);
const PAYLOAD: [u8; 64] = [7; 64];
/// Round trips that come before those that are measured.
const WARM_UP: usize = 20;

pub struct Node {
    pub engine: Engine,
    pub seen: Seen,
}

/// A node's host.
#[derive(Default)]
pub struct Seen {
    pub ready: usize,
    pub lost: usize,
    pub messages: u64,
    replied: bool,
}

impl Host for Seen {
    fn on_event(&mut self, event: Event<'_>, outbox: &mut Outbox<'_>) {
        match event {
            Event::Ready { .. } => self.ready += 1,
            Event::Lost { .. } => self.lost += 1,
            Event::Message { .. } => self.messages += 1,
            Event::Request { parts, token, .. } => {
                outbox.reply(token, &[parts.get(0).unwrap_or_default()]).unwrap();
            }
            Event::Completed { outcome, .. } => {
                assert!(matches!(outcome, Completion::Reply(_)), "{outcome:?}");
                self.replied = true;
            }
            _ => {}
        }
    }
}

pub fn mesh() -> MeshName {
    MeshName::new("bench").unwrap()
}

pub fn rid(name: &str) -> Rid {
    Rid::new(name).unwrap()
}

pub fn plain(name: &str) -> MeshNode {
    MeshNode::new(mesh(), rid(name))
}

pub fn listening(name: &str) -> MeshNode {
    let any = || "tcp://127.0.0.1:0".parse().unwrap();
    plain(name).listen(any(), any())
}

impl Node {
    /// A node, and where it takes application lanes if it listens.
    pub fn join(wish: MeshNode) -> (Self, Option<Endpoint>) {
        let mut engine = Engine::new(Config::default()).unwrap();
        let at = |bound: MeshBound| Endpoint::try_from(&bound.application).unwrap();
        let bound = engine.join(wish).unwrap().map(at);
        (Self { engine, seen: Seen::default() }, bound)
    }

    /// Turns, and sleeps at most so long where nothing is left to do.
    pub fn step(&mut self, sleep_max: Duration) {
        if !self.engine.turn(&mut self.seen).work_left {
            self.engine.wait(Some(sleep_max));
        }
    }

    /// Turns until so many peers are ready.
    pub fn await_ready(&mut self, peers: usize) {
        let begin = Instant::now();
        while self.seen.ready < peers {
            assert!(begin.elapsed() < PATIENCE, "{} of {peers} peers are ready", self.seen.ready);
            self.step(Duration::from_millis(1));
        }
    }

    /// How long one request to another node takes.
    pub fn trip(&mut self, mesh: &MeshName, to: &Rid) -> Duration {
        let begin = Instant::now();
        self.engine.outbox().request((mesh, to), &[&PAYLOAD], PATIENCE).unwrap();
        self.seen.replied = false;
        while !self.seen.replied {
            self.engine.wait(None);
            self.engine.turn(&mut self.seen);
        }
        begin.elapsed()
    }
}

/// Round trips of so many requests, sorted.
pub fn trips(count: usize) -> Vec<Duration> {
    let (mut server, endpoint) = Node::join(listening("server"));
    let (mut client, _) = Node::join(plain("client").peer(endpoint.unwrap()));
    let serving = thread::spawn(move || {
        while server.seen.lost == 0 {
            server.step(PATIENCE);
        }
    });
    client.await_ready(1);
    let (mesh, server) = (mesh(), rid("server"));
    let mut times: Vec<Duration> = (0..count + WARM_UP).map(|_| client.trip(&mesh, &server)).collect();
    drop(client);
    serving.join().unwrap();
    times.drain(..WARM_UP);
    times.sort_unstable();
    times
}
