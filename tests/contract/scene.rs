//! What the chapters share: one engine with raw peers at the other end, of one lane or of a mesh's two, and a diary of what
//! happened at which virtual time. The host of the scene follows `next_due`, so it is watched in real time.
#![allow(clippy::disallowed_methods, reason = "a test on real sockets bounds its waits in real time")]

use std::time::{Duration, Instant};

use wakeful::{Client, LostReason, Owned, RouteState};

use crate::support::raw::{Raw, ack};
use crate::support::raw_mesh::{APPLICATION, RawNode, host};
use crate::support::{Node, channel, ms, rid, s};

/// A raw peer, as far as a scene speaks to it by itself.
pub trait Peer {
    /// Exchanges a probe: what either end has sent before by the same lane has then arrived.
    fn sync(&mut self, node: &mut Node);
    /// Takes the ids of the probes that have been seen.
    fn probes(&mut self) -> Vec<u64>;
    /// Sends a record on the lane of the probes.
    fn say(&self, head: &[u8]);
}

impl Peer for Raw {
    fn sync(&mut self, node: &mut Node) {
        self.sync(node);
    }

    fn probes(&mut self) -> Vec<u64> {
        self.probes()
    }

    fn say(&self, head: &[u8]) {
        self.send(head, &[]);
    }
}

impl Peer for RawNode {
    fn sync(&mut self, node: &mut Node) {
        self.sync(node);
    }

    fn probes(&mut self) -> Vec<u64> {
        self.probes()
    }

    fn say(&self, head: &[u8]) {
        self.send(APPLICATION, head, &[]);
    }
}

/// One engine and its raw peers, all ready at the beginning. None of them answers a probe unless it is told to.
pub struct Scene<P = Raw> {
    pub node: Node,
    pub raws: Vec<P>,
    /// Each event of the host, and when after the beginning it came.
    pub events: Vec<(Duration, Owned)>,
    /// Each probe that each peer received.
    pub probes: Vec<Vec<(Duration, u64)>>,
    /// Which peers answer every probe at once.
    pub answers: Vec<bool>,
    began: Instant,
}

impl Scene<Raw> {
    /// The engine listens, and this many raw clients have come.
    pub fn at_server(peers: usize) -> Self {
        let (mut node, endpoint) = Node::server("server");
        let raws = (0..peers).map(|peer| Raw::join(&name(peer), &endpoint, &mut node)).collect();
        Self::begin(node, raws)
    }

    /// The engine dials, and has found this many raw servers.
    pub fn at_client(peers: usize) -> Self {
        let mut raws: Vec<Raw> = (0..peers).map(|peer| Raw::server(&name(peer))).collect();
        let client = Client::new(channel(), rid("client"));
        let client = raws.iter().fold(client, |client, raw| client.server(raw.endpoint.clone()));
        let mut node = Node::new();
        node.engine.connect(client).unwrap();
        for raw in &mut raws {
            raw.hello(&mut node);
            raw.admit(&mut node);
        }
        Self::begin(node, raws)
    }

    /// The same scene with the engine at either end.
    pub fn at_either_end(peers: usize) -> [Self; 2] {
        [Self::at_server(peers), Self::at_client(peers)]
    }
}

/// A scene on a mesh: the engine's node is called "node" and serves "work", the raw nodes serve nothing.
pub type MeshScene = Scene<RawNode>;

impl MeshScene {
    /// The engine's node listens, and this many raw nodes have dialled it.
    pub fn listening(peers: usize) -> Self {
        let (mut node, at) = Node::listens(host("node"));
        let raws = (0..peers).map(|peer| RawNode::enter(&name(peer), &at, &mut node)).collect();
        Self::begin(node, raws)
    }

    /// The engine's node has dialled this many raw nodes.
    pub fn dialling(peers: usize) -> Self {
        let mut raws: Vec<RawNode> = (0..peers).map(|peer| RawNode::listening(&name(peer))).collect();
        let wish = raws.iter().fold(host("node"), |wish, raw| wish.peer(raw.at()));
        let (mut node, _) = Node::join(wish);
        for raw in &mut raws {
            raw.admit(&mut node);
        }
        Self::begin(node, raws)
    }

    /// The same scene with the engine at either end.
    pub fn either(peers: usize) -> [Self; 2] {
        [Self::listening(peers), Self::dialling(peers)]
    }
}

impl<P: Peer> Scene<P> {
    /// The scene begins as `node` is ready with all of `raws`.
    pub fn begin(node: Node, raws: Vec<P>) -> Self {
        assert_eq!(node.ready_peers(), raws.len());
        let (probes, answers) = (vec![Vec::new(); raws.len()], vec![false; raws.len()]);
        let began = node.now;
        let mut scene = Self { node, raws, events: Vec::new(), probes, answers, began };
        scene.hear();
        scene
    }

    /// The virtual time since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.node.now - self.began
    }

    /// Lets time pass up to `until` after the beginning, with a turn whenever the engine wants one.
    pub fn follow(&mut self, until: Duration) {
        let end = self.began + until;
        let begin = Instant::now();
        loop {
            let is_over = turn_when_due(&mut self.node, end);
            self.hear();
            if is_over {
                return;
            }
            assert!(begin.elapsed() < s(20), "the engine wants a turn without end");
        }
    }

    /// Lets everything under way arrive, without time passing, and notes it.
    pub fn hear(&mut self) {
        for peer in 0..self.raws.len() {
            if !self.is_ready(peer) {
                continue;
            }
            self.raws[peer].sync(&mut self.node);
            let ids = self.raws[peer].probes();
            let at = self.elapsed();
            self.probes[peer].extend(ids.iter().map(|id| (at, *id)));
            if self.answers[peer] {
                for id in ids {
                    self.ack(peer, id);
                }
            }
        }
        self.note();
    }

    fn note(&mut self) {
        let at = self.elapsed();
        self.events.extend(self.node.events().into_iter().map(|event| (at, event)));
    }

    /// A peer sends this ACK, and the engine takes it in.
    pub fn ack(&mut self, peer: usize, id: u64) {
        self.raws[peer].say(&ack(id));
        self.raws[peer].sync(&mut self.node);
    }

    /// The id that a peer was asked with last.
    pub fn asked(&self, peer: usize) -> u64 {
        self.probes[peer].last().expect("a ready peer was asked").1
    }

    pub fn is_ready(&self, peer: usize) -> bool {
        let snapshot = self.node.engine.snapshot();
        let name = name(peer);
        let ready = snapshot.connections.iter().filter(|each| each.state == RouteState::Ready);
        ready.map(|each| &each.peer).any(|peer| peer.rid() == &rid(&name))
    }

    /// Turns the engine, without time passing, until the host has heard of this many ends.
    pub fn until_lost(&mut self, ends: usize) {
        let lost = |(_, event): &&(Duration, Owned)| matches!(event, Owned::Lost { .. });
        self.until(&format!("{ends} ends"), |events| events.iter().filter(lost).count() >= ends);
    }

    /// Turns the engine, without time passing, until the events are such.
    pub fn until(&mut self, what: &str, done: impl Fn(&[(Duration, Owned)]) -> bool) {
        let begin = Instant::now();
        while !done(&self.events) {
            assert!(begin.elapsed() < s(10), "not in 10 s: {what}");
            self.node.engine.wait(Some(ms(1)));
            self.node.turn();
            self.note();
        }
    }

    /// Every end that the host has heard of: when, whose, why.
    pub fn lost(&self) -> Vec<(Duration, String, LostReason)> {
        let lost = self.events.iter().filter_map(|(at, event)| match event {
            Owned::Lost { peer, reason } => Some((*at, peer.rid().to_string(), *reason)),
            _ => None,
        });
        lost.collect()
    }

    /// Every early warning: when, of whom, of how many asks.
    pub fn missed(&self) -> Vec<(Duration, String, u8)> {
        let missed = self.events.iter().filter_map(|(at, event)| match event {
            Owned::Missed { peer, asks } => Some((*at, peer.rid().to_string(), *asks)),
            _ => None,
        });
        missed.collect()
    }
}

/// Turns the engine when it wants to be turned next, or at `end` if that comes first. Returns whether it did.
pub fn turn_when_due(node: &mut Node, end: Instant) -> bool {
    let due = node.engine.next_due().map(|due| due.at).filter(|at| *at <= end);
    node.now = due.unwrap_or(end).max(node.now);
    node.turn();
    due.is_none()
}

/// Turns the engine, without time passing, until it has taken in this many more records.
pub fn receive(node: &mut Node, records: u32) {
    let begin = Instant::now();
    let mut taken = 0;
    while taken < records {
        assert!(begin.elapsed() < s(10), "not in 10 s: {records} records");
        node.engine.wait(Some(ms(1)));
        taken += node.turn().records;
    }
}

/// The RID of the scene's peer.
pub fn name(peer: usize) -> String {
    format!("raw-{peer}")
}
