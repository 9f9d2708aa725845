//! Sixteen nodes in one process: all of them find each other, stalls of some accuse nobody, and a third may come back.
#![allow(clippy::disallowed_methods, reason = "a test on real sockets bounds its waits in real time")]

use std::time::Instant;

use wakeful::{LostReason, NodeDescriptor, NodeEndpoint, Owned};

use crate::scene::{bury, described_as};
use crate::support::mesh::{listening, mesh};
use crate::support::{Node, generation, ms, s};

const NODES: usize = 16;
const SEED: u64 = 2025;

struct Crowd {
    nodes: Vec<Node>,
    described: Vec<NodeDescriptor>,
    draws: u64,
}

impl Crowd {
    /// All of them, strangers to each other.
    fn new() -> Self {
        let (nodes, described) = (0..NODES).map(|number| run(number, 1)).unzip();
        Self { nodes, described, draws: SEED }
    }

    /// Lets every node dial every other, who dials back, by what its host knows of where they are.
    fn dial_all(&mut self) {
        let all: Vec<NodeEndpoint> = self
            .described
            .iter()
            .filter_map(|each| each.endpoint.clone())
            .map(|endpoint| NodeEndpoint { endpoint, rid: None })
            .collect();
        for (number, node) in self.nodes.iter_mut().enumerate() {
            let mut others = all.clone();
            others.remove(number);
            node.outbox().set_endpoints(&mesh(), 0, &others).unwrap();
        }
    }

    fn describe(&mut self) {
        for node in &mut self.nodes {
            node.outbox().set_descriptors(&mesh(), &self.described).unwrap();
        }
    }

    /// A number below `bound`, from a seeded sequence.
    fn draw(&mut self, bound: u64) -> u64 {
        self.draws =
            self.draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.draws >> 33) % bound
    }

    /// Turns all that are awake, without virtual time, until two rounds in a row brought nothing; and until each has heard of
    /// each within the last 6 s, because a busy machine that is late to carry a probe is not what is tried here.
    fn exchange(&mut self, is_awake: impl Fn(usize) -> bool) {
        let begin = Instant::now();
        let mut quiet = 0;
        while quiet < 2
            || self.nodes.iter().enumerate().any(|(at, node)| is_awake(at) && is_late(node, &is_awake))
        {
            assert!(begin.elapsed() < s(10), "probes are on their way for 10 s");
            let mut records = 0;
            for (_, node) in self.nodes.iter_mut().enumerate().filter(|(number, _)| is_awake(*number)) {
                records += node.turn().records;
            }
            quiet = if records == 0 { quiet + 1 } else { 0 };
            self.nodes[0].engine.wait(Some(ms(1)));
        }
    }

    /// Turns all, 50 ms of virtual time a round, until every node has all others and nothing else.
    fn form(&mut self, what: &str) {
        let begin = Instant::now();
        let is_whole = |node: &Node| {
            let snapshot = node.engine.snapshot();
            node.ready_peers() == NODES - 1
                && (snapshot.connections.len(), snapshot.unadmitted) == (NODES - 1, 0)
        };
        while !self.nodes.iter().all(is_whole) {
            assert!(begin.elapsed() < s(15), "{what}: {:?}", self.ready());
            for node in &mut self.nodes {
                node.pass(ms(50));
            }
            self.nodes[0].engine.wait(Some(ms(1)));
        }
    }

    fn ready(&self) -> Vec<usize> {
        self.nodes.iter().map(Node::ready_peers).collect()
    }

    /// Takes what all were told, and says how often they were told that a peer is ready, and why peers that had been were
    /// lost.
    fn told(&mut self) -> (usize, Vec<LostReason>) {
        let (mut ready, mut lost) = (0, Vec::new());
        for node in &mut self.nodes {
            let mut never_ready = Vec::new();
            for event in node.events() {
                match event {
                    Owned::Admitted { peer } => never_ready.push(peer.connection()),
                    Owned::Ready { peer } => {
                        never_ready.retain(|each| *each != peer.connection());
                        ready += 1;
                    }
                    Owned::Lost { peer, .. } if never_ready.contains(&peer.connection()) => {}
                    Owned::Lost { reason, .. } => lost.push(reason),
                    _ => {}
                }
            }
        }
        (ready, lost)
    }
}

/// Whether a node waits to hear of a peer that is awake.
fn is_late(node: &Node, is_awake: impl Fn(usize) -> bool) -> bool {
    let snapshot = node.engine.snapshot();
    snapshot.connections.iter().any(|each| {
        let name = each.peer.rid().to_string();
        let number = name.trim_start_matches("node-").parse().unwrap();
        is_awake(number) && each.last_received.is_some_and(|since| since > s(6))
    })
}

/// One run of the node of this number, and what the registry says of it.
fn run(number: usize, run: u64) -> (Node, NodeDescriptor) {
    let name = format!("node-{number:02}");
    let (node, at) = Node::listens(listening(&name).generation(generation(run)));
    (node, described_as(&name, run, &at))
}

#[test]
fn sixteen_nodes_find_each_other_bear_each_others_stalls_and_find_those_that_come_back() {
    let mut crowd = Crowd::new();
    crowd.describe();
    crowd.form("all find each other");
    assert_eq!(crowd.told(), (NODES * (NODES - 1), vec![]), "120 pairs, each told once at both ends");

    // Two minutes. A stalled node is away for 1 to 6 s, and now and then the whole machine sleeps for a minute.
    let mut awake_at = [0; NODES];
    let (mut stalls, mut sleeps) = (0, 0);
    for second in 0..120 {
        let stalled = crowd.draw(NODES as u64) as usize;
        if awake_at[stalled] + 10 <= second && crowd.draw(2) == 0 {
            awake_at[stalled] = second + 1 + crowd.draw(6) as usize;
            stalls += 1;
        }
        let slept = if crowd.draw(40) == 0 { s(60) } else { s(0) };
        sleeps += usize::from(!slept.is_zero());
        let is_awake = |number: usize| awake_at[number] <= second;
        for (number, node) in crowd.nodes.iter_mut().enumerate() {
            node.now += s(1) + slept;
            if is_awake(number) {
                node.turn();
            }
        }
        crowd.exchange(is_awake);
    }
    assert!(stalls > 20 && sleeps > 0, "{stalls} stalls, {sleeps} sleeps");
    assert_eq!(crowd.told(), (0, vec![]), "0 wrong verdicts in {stalls} stalls and {sleeps} sleeps");
    let seen: u64 = crowd.nodes.iter().map(|node| node.engine.snapshot().stalls).sum();
    assert!(seen > stalls, "{seen}");

    // A third comes back as other runs: some stop in order, the others are just gone, their transport standing.
    for number in (0..NODES).step_by(3) {
        let (node, descriptor) = run(number, 2);
        let old = std::mem::replace(&mut crowd.nodes[number], node);
        crowd.described[number] = descriptor;
        crowd.nodes[number].now = crowd.nodes[(number + 1) % NODES].now;
        if number % 2 == 0 { bury(old.engine) } else { std::mem::forget(old.engine) }
    }
    crowd.describe();
    crowd.form("a third came back");
    let (ready, lost) = crowd.told();
    let back = NODES.div_ceil(3);
    let pairs = back * (NODES - back) + back * (back - 1) / 2;
    assert_eq!((ready, lost.len()), (2 * pairs, back * (NODES - back)));
    assert!(
        lost.iter().all(|reason| matches!(
            reason,
            LostReason::Unverified | LostReason::Orderly | LostReason::Transport | LostReason::Retired
        )),
        "{lost:?}"
    );
    bury(crowd.nodes.into_iter().map(|node| node.engine).collect::<Vec<_>>());
}

#[test]
fn sixteen_nodes_that_all_dial_each_other_are_as_many_pairs() {
    let mut crowd = Crowd::new();
    crowd.dial_all();
    crowd.form("all dial each other");
    for _ in 0..20 {
        for node in &mut crowd.nodes {
            node.pass(ms(500));
        }
        crowd.exchange(|_| true);
    }
    crowd.form("nothing changes");
    assert_eq!(crowd.told(), (NODES * (NODES - 1), vec![]), "120 pairs, each told once at both ends");
    bury(crowd.nodes.into_iter().map(|node| node.engine).collect::<Vec<_>>());
}
