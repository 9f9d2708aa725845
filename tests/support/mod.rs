//! What the tests with real sockets share: engines on loopback, driven in virtual time, with every wait bounded.
#![allow(dead_code, reason = "no test file uses all of it")]
#![allow(clippy::disallowed_methods, reason = "a test on real sockets bounds its waits in real time")]

pub mod mesh;
pub mod raw;
pub mod raw_mesh;

use std::time::{Duration, Instant};

use wakeful::{
    ChannelName, Client, Config, Endpoint, Engine, Event, Generation, Host, Outbox, Owned, Report, Rid,
    Server,
};

pub const CHANNEL: &str = "orders";

pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub fn channel() -> ChannelName {
    ChannelName::new(CHANNEL).unwrap()
}

pub fn rid(name: &str) -> Rid {
    Rid::new(name).unwrap()
}

pub fn generation(number: u64) -> Generation {
    Generation::new(number).unwrap()
}

/// An engine, its host, and the virtual time it is turned at.
pub struct Node {
    pub engine: Engine,
    pub inbox: Log,
    pub now: Instant,
}

/// A host that keeps every event, and answers requests by itself where it is told to.
#[derive(Default)]
pub struct Log {
    pub events: Vec<Owned>,
    pub echo: bool,
}

impl Host for Log {
    fn on_event(&mut self, event: Event<'_>, outbox: &mut Outbox<'_>) {
        if let (true, Event::Request { token, parts, .. }) = (self.echo, &event) {
            let parts: Vec<&[u8]> = parts.iter().collect();
            outbox.reply(*token, &parts).unwrap();
        }
        self.events.push(Owned::from(event));
    }
}

impl Node {
    pub fn new() -> Self {
        Self::with(Config { seed: 7, ..Config::default() })
    }

    pub fn with(config: Config) -> Self {
        let engine = Engine::new(config).unwrap();
        Self { engine, inbox: Log::default(), now: Instant::now() }
    }

    /// A server of the usual channel; returns where it listens.
    pub fn server(name: &str) -> (Self, Endpoint) {
        Self::server_with(Config { seed: 7, ..Config::default() }, name)
    }

    /// The same with other settings.
    pub fn server_with(config: Config, name: &str) -> (Self, Endpoint) {
        let mut node = Self::with(config);
        let bound = node
            .engine
            .serve(Server::new(channel(), rid(name), "tcp://127.0.0.1:0".parse().unwrap()))
            .unwrap();
        (node, Endpoint::try_from(&bound).unwrap())
    }

    /// A client of the usual channel.
    pub fn client(name: &str, server: &Endpoint) -> Self {
        let mut node = Self::new();
        node.engine.connect(Client::new(channel(), rid(name)).server(server.clone())).unwrap();
        node
    }

    /// One turn, at its own time.
    pub fn turn(&mut self) -> Report {
        self.engine.turn_at(self.now, &mut self.inbox)
    }

    /// One turn, so much later.
    pub fn pass(&mut self, span: Duration) -> Report {
        self.now += span;
        self.turn()
    }

    pub fn send(&mut self, text: &str) {
        self.engine.outbox().send(&channel(), &[text.as_bytes()]).unwrap();
    }

    /// Takes the events there are.
    pub fn events(&mut self) -> Vec<Owned> {
        std::mem::take(&mut self.inbox.events)
    }

    pub fn ready_peers(&self) -> usize {
        let snapshot = self.engine.snapshot();
        snapshot.connections.iter().filter(|each| each.state == wakeful::RouteState::Ready).count()
    }
}

/// Turns all nodes, without virtual time passing, until `done` says so. Panics after 10 s of real time.
pub fn until(nodes: &mut [&mut Node], what: &str, mut done: impl FnMut(&mut [&mut Node]) -> bool) {
    let begin = Instant::now();
    loop {
        for node in nodes.iter_mut() {
            node.turn();
        }
        if done(nodes) {
            return;
        }
        assert!(begin.elapsed() < s(10), "not in 10 s: {what}");
        // Real sockets need real time; the wait ends as soon as one has something to say.
        nodes[0].engine.wait(Some(ms(1)));
    }
}

/// Turns all nodes for a while, so that what is under way arrives. Virtual time stands still.
pub fn settle(nodes: &mut [&mut Node]) {
    let begin = Instant::now();
    while begin.elapsed() < ms(30) {
        for node in nodes.iter_mut() {
            node.turn();
        }
        nodes[0].engine.wait(Some(ms(1)));
    }
}

/// Lets virtual time pass for all nodes alike, in steps of `step`, with real time to exchange what each step sends.
pub fn pass_all(nodes: &mut [&mut Node], span: Duration, step: Duration) {
    let mut left = span;
    while !left.is_zero() {
        let step = step.min(left);
        left -= step;
        for node in nodes.iter_mut() {
            node.pass(step);
        }
        settle(nodes);
    }
}

/// A connected pair, both ready and answered once.
pub fn pair() -> (Node, Node) {
    let (mut server, endpoint) = Node::server("server");
    let mut client = Node::client("client", &endpoint);
    until(&mut [&mut server, &mut client], "both ready", |nodes| {
        nodes.iter().all(|node| node.ready_peers() == 1)
    });
    settle(&mut [&mut server, &mut client]);
    server.events();
    client.events();
    (server, client)
}
