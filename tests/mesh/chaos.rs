//! Raw nodes that say anything at any time, on either lane and from either end, and come and go: nobody but they are harmed,
//! each peer's story makes sense to the host, and nothing is left of them.
#![allow(clippy::disallowed_methods, reason = "a test on real sockets bounds its waits in real time")]

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use wakeful::{ConnectionId, Endpoint, NodeEndpoint, Owned};

use crate::strangers::Scene;
use crate::support::mesh::{mesh, named, weight};
use crate::support::raw::{
    self, ADMIT, Admission, HELLO, Seen, UPDATE, ack, channel_request, channel_send, head, probe, reject,
    reply,
};
use crate::support::raw_mesh::{APPLICATION, COMPLETION, RawLane, RawNode, node_request, node_send};
use crate::support::{Node, ms, rid, s};

/// A small generator, so that a run can be made again from its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % sides
    }
}

/// One raw node in the turmoil.
struct Actor {
    raw: RawNode,
    name: String,
    is_dialler: bool,
    /// The id it was asked with last.
    asked: u64,
}

impl Actor {
    fn say(&self, leg: usize, head: &[u8], parts: &[&[u8]]) {
        if let Some(lane) = &self.raw.lanes[leg] {
            lane.try_send(head, parts);
        }
    }

    /// Takes in what came and does what it asks for, mostly.
    fn hear(&mut self, dice: &mut Dice, completion: &Endpoint) {
        for leg in [APPLICATION, COMPLETION] {
            let Some(lane) = &mut self.raw.lanes[leg] else { continue };
            lane.poll();
            for seen in std::mem::take(&mut lane.seen) {
                if seen.command() == HELLO {
                    self.raw.lane(leg).route.clone_from(&seen.route);
                    self.raw.admission.pair = seen.admission().pair;
                }
                if dice.roll(12) > 0 {
                    self.answer(leg, &seen, completion);
                }
            }
        }
    }

    fn answer(&mut self, leg: usize, seen: &Seen, completion: &Endpoint) {
        match seen.command() {
            HELLO => self.say(leg, &head(ADMIT, &self.raw.body(leg)), &[]),
            ADMIT if leg == APPLICATION => {
                self.raw.lanes[COMPLETION] = Some(RawLane::dial(COMPLETION, completion));
                self.raw.open_completion();
            }
            ADMIT => self.say(APPLICATION, &probe(1), &[]),
            raw::REJECT if self.is_dialler => self.raw.lanes = [None, None],
            raw::PROBE => {
                self.asked = seen.number();
                self.say(APPLICATION, &ack(seen.number()), &[]);
            }
            raw::NODE_REQUEST | raw::CHANNEL_REQUEST => {
                self.say(COMPLETION, &reply(seen.number(), (seen.number() % 3) as u8), &[]);
            }
            _ => {}
        }
    }

    /// Something that a decent node would say now.
    fn behave(&mut self, dice: &mut Dice, application: &Endpoint) {
        if self.is_dialler && self.raw.lanes[APPLICATION].is_none() {
            let lane = RawLane::dial(APPLICATION, application);
            lane.send(&head(HELLO, &self.raw.body(APPLICATION)), &[]);
            self.raw.lanes[APPLICATION] = Some(lane);
            return;
        }
        let number = 1 + dice.roll(9) as u64;
        match dice.roll(4) {
            0 => self.say(APPLICATION, &probe(number), &[]),
            1 => self.say(APPLICATION, &channel_send("work"), &[b"x"]),
            2 => self.say(APPLICATION, &node_request(number), &[b"x"]),
            _ => self.say(APPLICATION, &ack(self.asked.max(1)), &[]),
        }
    }

    /// Any word at all, mostly whole.
    fn misbehave(&mut self, dice: &mut Dice) {
        let leg = if dice.roll(4) == 0 { dice.roll(2) } else { COMPLETION };
        let mut admission = Admission { lane: leg as u8 + 1, ..self.raw.admission.clone() };
        match dice.roll(6) {
            0 => admission.revision = 1 + dice.roll(9) as u64,
            1 => admission.state = dice.roll(6) as u8,
            2 => admission.generation += 1,
            3 => admission.pair += 1,
            _ => {}
        }
        if dice.roll(2) == 0 {
            self.raw.admission = Admission { lane: 1, ..admission.clone() };
        }
        let number = 1 + dice.roll(9) as u64;
        let (mut head, parts) = match dice.roll(12) {
            0 => (head(HELLO, &admission.bytes()), 0),
            1 => (head(ADMIT, &admission.bytes()), 0),
            2..5 => (head(UPDATE, &admission.bytes()), 0),
            5 => (node_send(), 1),
            6 => (channel_send("work"), 1),
            7 => (node_request(number), 1),
            8 => (channel_request(number, "work"), 1),
            9 => (reply(number, 0), 0),
            10 => (reject(dice.roll(16) as u32), 0),
            _ => (probe(number), 0),
        };
        if dice.roll(10) == 0 {
            let at = dice.roll(head.len());
            head[at] ^= 1 << dice.roll(8);
        }
        let leg = if parts == 1 { APPLICATION } else { leg };
        self.say(leg, &head, &vec![&b"x"[..]; parts]);
    }
}

/// The host hears of each pair in order: admitted, ready, lost, each at most once. Records come in between; of a pair whose
/// transport ended just before its first probe was read they are delivered too, and it is lost without having been ready.
#[derive(Default)]
struct Stories {
    phases: HashMap<ConnectionId, u8>,
    ready: usize,
    told: usize,
}

impl Stories {
    fn hear(&mut self, events: Vec<Owned>, seed: u64) {
        for event in events {
            let (peer, allowed, next) = match &event {
                Owned::Admitted { peer } => (peer, [0, 0], 1),
                Owned::Ready { peer } => (peer, [1, 1], 2),
                Owned::Missed { peer, .. } => (peer, [2, 2], 2),
                Owned::Message { peer, .. } | Owned::Request { peer, .. } => {
                    let phase = self.phases.get(&peer.connection()).copied().unwrap_or_default();
                    (peer, [1, 2], phase)
                }
                Owned::Lost { peer, .. } => (peer, [1, 2], 3),
                _ => continue,
            };
            let phase = self.phases.entry(peer.connection()).or_default();
            assert!((allowed[0]..=allowed[1]).contains(phase), "seed {seed}: {event:?} in phase {phase}");
            *phase = next;
            self.ready += usize::from(matches!(event, Owned::Ready { .. }));
            self.told += usize::from(matches!(event, Owned::Message { .. } | Owned::Request { .. }));
        }
    }
}

#[test]
fn raw_nodes_that_say_anything_at_any_time_harm_nobody_and_leave_nothing() {
    let sum = |sum: [usize; 3], seed| {
        let one = turmoil(seed);
        std::array::from_fn(|at| sum[at] + one[at])
    };
    let [ready, told, ended] = (0..6).fold([0; 3], sum);
    assert!(
        ready > 10 && told > 40 && ended > 5,
        "no turmoil: {ready} were ready, {told} records, {ended} requests"
    );
}

fn turmoil(seed: u64) -> [usize; 3] {
    let mut dice = Dice(seed);
    let mut scene = Scene::new();
    let completion: Endpoint = (&scene.bound.completion).try_into().unwrap();
    let mut actors: Vec<Actor> = (0..6)
        .map(|at| {
            let name = format!("actor-{}", at % 4);
            let raw = if at < 4 { RawNode::dialling(&name, &scene.at()) } else { RawNode::listening(&name) };
            Actor { raw, name, is_dialler: at < 4, asked: 0 }
        })
        .collect();
    let (mut stories, mut begun, mut ended) = (Stories::default(), HashSet::new(), HashSet::new());
    let mut hear = |node: &mut Node| {
        let events = node.events();
        for event in &events {
            if let Owned::Replied { request, .. }
            | Owned::Declined { request, .. }
            | Owned::Unanswered { request, .. } = event
            {
                assert!(ended.insert(*request), "seed {seed}: {request:?} ended twice");
            }
        }
        stories.hear(events, seed);
        ended.len()
    };
    for step in 0..600 {
        let at = dice.roll(actors.len());
        let actor = &mut actors[at];
        match dice.roll(24) {
            0..8 => actor.hear(&mut dice, &completion),
            8 => actor.misbehave(&mut dice),
            9 => {
                let wishes: Vec<NodeEndpoint> = actors[4..]
                    .iter()
                    .filter(|_| dice.roll(4) > 0)
                    .map(|actor| NodeEndpoint { endpoint: actor.raw.at(), rid: None })
                    .collect();
                scene.node.outbox().set_endpoints(&mesh(), step, &wishes).unwrap();
            }
            10 => {
                let to = rid(&actor.name);
                let timeout = ms(dice.roll(3_000) as u64);
                begun.extend(scene.node.outbox().request((&mesh(), &to), &[b"?"], timeout));
            }
            11 if actor.is_dialler && dice.roll(4) == 0 => actor.raw.lanes[dice.roll(2)] = None,
            12 => {
                scene.node.outbox().set_weight(&named("work"), weight(1 + dice.roll(9) as u32));
            }
            13 if dice.roll(12) == 0 => scene.node.engine.drain(dice.roll(2) == 0),
            14 => {
                let step = ms(dice.roll(900) as u64);
                (scene.node.now, scene.neighbour.now) = (scene.node.now + step, scene.neighbour.now + step);
            }
            _ => actor.behave(&mut dice, &scene.at()),
        }
        scene.node.turn();
        scene.neighbour.turn();
        if dice.roll(4) == 0 {
            scene.node.engine.wait(Some(ms(1)));
        }
        hear(&mut scene.node);
    }
    drop(actors);
    scene.node.engine.drain(false);
    scene.node.outbox().set_endpoints(&mesh(), 1_000, &[]).unwrap();
    // What ran out of its time or lost its pair is told; the rest ends by its time.
    let since = Instant::now();
    loop {
        for node in [&mut scene.node, &mut scene.neighbour] {
            node.pass(ms(100));
        }
        scene.settle_briefly();
        let ends = hear(&mut scene.node);
        let now = scene.node.engine.snapshot();
        let left = (now.connections.len(), now.unadmitted, now.fenced_open, now.requests, now.replies);
        if left == (1, 0, 0, 0, 0) && ends == begun.len() {
            break;
        }
        assert!(since.elapsed() < s(10), "seed {seed}: left: {left:?}, {ends} of {} ended", begun.len());
    }
    assert_eq!(scene.node.peers(), ["neighbour"], "seed {seed}");
    assert_eq!(scene.node.engine.snapshot().meshes[0].nodes.len(), 1, "seed {seed}");
    scene.neighbour_is_served();
    [stories.ready, stories.told, ended.len()]
}
