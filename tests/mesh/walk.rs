//! A random walk: whatever befalls three nodes and their cables, once it is over each pair of them is one connection.
//! A failure names its seed, and the seed replays the walk, as far as the machine's own timing lets it.

use wakeful::{Endpoint, NodeDescriptor};

use crate::scene::{Cable, Talker, bury, come_to_rest, described_as};
use crate::support::mesh::{listening, mesh, named, weight};
use crate::support::{generation, ms};

const NAMES: [&str; 3] = ["a", "b", "c"];
const STEPS: u32 = 60;

struct Walk {
    nodes: [Talker; 3],
    /// To each: its application lane, its completion lane, and its application lane where nobody knows of it.
    cables: [[Cable; 3]; 3],
    /// Earlier runs that are frozen, while their transport stands.
    frozen: Vec<Talker>,
    runs: [u64; 3],
    draws: u64,
}

impl Walk {
    fn new(seed: u64) -> Self {
        let cables = [(); 3].map(|()| [(); 3].map(|()| Cable::new()));
        let nodes = [0, 1, 2].map(|at| run(at, 1, &cables[at]));
        Self { nodes, cables, frozen: Vec::new(), runs: [1; 3], draws: seed }
    }

    /// A number below `bound`.
    fn draw(&mut self, bound: usize) -> usize {
        self.draws =
            self.draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.draws >> 33) as usize % bound
    }

    /// The descriptor of a node as it is, as it was, or as it never was.
    fn descriptor(&self, of: usize, run: u64) -> NodeDescriptor {
        let serves = vec![(named(NAMES[of]), weight(100))];
        NodeDescriptor { serves, ..described_as(NAMES[of], run, &self.cables[of][0].endpoint) }
    }

    fn step(&mut self) {
        let (who, other) = (self.draw(3), self.draw(3));
        match self.draw(14) {
            0 => {
                let list: Vec<(Endpoint, Option<&str>)> = (0..3)
                    .filter(|&of| self.draws >> of & 1 == 1)
                    .map(|of| {
                        let is_named = self.draws >> (of + 8) & 1 == 1;
                        let way = if self.draws >> (of + 12) & 3 == 3 { 2 } else { 0 };
                        (self.cables[of][way].endpoint.clone(), is_named.then_some(NAMES[of]))
                    })
                    .collect();
                let list: Vec<_> = list.iter().map(|(endpoint, name)| (endpoint, *name)).collect();
                self.nodes[who].dials(&list);
            }
            1 => {
                let list: Vec<NodeDescriptor> = (0..3)
                    .filter(|&of| self.draws >> of & 1 == 1)
                    .map(|of| {
                        self.descriptor(of, self.runs[of] + u64::from((self.draws >> (of + 8)) % 8 == 0))
                    })
                    .collect();
                self.nodes[who].is_told_of(&list);
            }
            2 => self.tell(who),
            3 => self.cables[who][other].tear(),
            4 => self.restart(who, other),
            5 => {
                let span = ms(1 << self.draw(15));
                self.nodes[who].pass(span);
            }
            6 => self.nodes[who].engine.drain(other == 0),
            7 => {
                let to = weight(self.draw(3) as u32 * 50);
                self.nodes[who].engine.outbox().set_weight(&named(NAMES[who]), to);
            }
            8 => {
                let snapshot = self.nodes[who].engine.snapshot();
                if let Some(connection) = snapshot.connections.first() {
                    self.nodes[who].engine.outbox().close(connection.peer.connection());
                }
            }
            _ => {
                let turns = self.draw(6);
                for _ in 0..turns {
                    self.nodes[who].step(ms(10));
                }
            }
        }
    }

    /// Tells a node of all others as they are.
    fn tell(&mut self, who: usize) {
        let list = [0, 1, 2].map(|of| self.descriptor(of, self.runs[of]));
        self.nodes[who].is_told_of(&list);
    }

    /// Another run follows one that crashes, stops in order, or freezes.
    fn restart(&mut self, who: usize, how: usize) {
        self.runs[who] += 1;
        if how == 0 {
            self.cables[who].iter().for_each(Cable::tear);
        }
        let next = run(who, self.runs[who], &self.cables[who]);
        let before = std::mem::replace(&mut self.nodes[who], next);
        if how == 2 {
            self.frozen.push(before);
        } else {
            bury(before);
        }
    }

    /// Everything is told as it is, nobody is frozen, and no host drains.
    fn heal(&mut self, is_described: bool) {
        bury(std::mem::take(&mut self.frozen));
        for (who, name) in NAMES.iter().enumerate() {
            self.nodes[who].engine.drain(false);
            self.nodes[who].engine.outbox().set_weight(&named(name), weight(100));
            if is_described {
                self.nodes[who].dials(&[]);
                self.tell(who);
            } else {
                let all = self.cables.each_ref().map(|cables| cables[0].endpoint.clone());
                let others: Vec<_> = (0..3).filter(|of| *of != who).map(|of| (&all[of], None)).collect();
                self.nodes[who].is_told_of(&[]);
                self.nodes[who].dials(&others);
            }
        }
    }
}

fn run(at: usize, run: u64, cables: &[Cable; 3]) -> Talker {
    let [application, completion, _] = cables.each_ref().map(|cable| cable.endpoint.clone());
    let node = listening(NAMES[at]).generation(generation(run)).serve(named(NAMES[at]), weight(100));
    let (node, bound) = Talker::join(node.advertised(application, completion));
    let bound = bound.unwrap();
    for way in [&cables[0], &cables[2]] {
        way.leads_to(&Endpoint::try_from(&bound.application).unwrap());
    }
    cables[1].leads_to(&Endpoint::try_from(&bound.completion).unwrap());
    node
}

fn walk(seed: u64) {
    let mut walk = Walk::new(seed);
    for _ in 0..STEPS {
        walk.step();
    }
    walk.heal(seed % 2 == 0);
    let [a, b, c] = &mut walk.nodes;
    come_to_rest(&mut [("a", a), ("b", b), ("c", c)], 2, &format!("seed {seed}"));
    for (who, of) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        let sent =
            walk.nodes[who].engine.outbox().send((&mesh(), &named(NAMES[of])), &[b"to whom it concerns"]);
        assert_eq!(sent, Ok(()), "seed {seed}: {} does not know what {} serves", NAMES[who], NAMES[of]);
    }
    bury(walk);
}

#[test]
fn whatever_befalls_them_three_nodes_come_to_be_three_pairs() {
    let seeds = std::env::var("WALKS").ok().and_then(|walks| walks.parse().ok()).unwrap_or(12);
    let first = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    for seed in first..first + seeds {
        walk(seed);
    }
}
