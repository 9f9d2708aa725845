//! What the tests of how pairs come together share: nodes that talk to every peer as soon as they may, so that whatever is
//! lost after ready is seen; a cable that can be torn; and what must be true when everything has come to rest.
#![allow(clippy::disallowed_methods, reason = "a test on real sockets bounds its waits in real time")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use wakeful::{
    Config, Endpoint, Engine, Event, Host, LostReason, MeshBound, MeshNode, NodeDescriptor, NodeEndpoint,
    Outbox, Owned, Report, Role, RouteState, SecurityId, SendError,
};

use crate::support::mesh::{application, mesh};
use crate::support::{generation, ms, rid, s};

/// One engine with one node, whose host speaks to each peer from the moment it is ready.
pub struct Talker {
    pub engine: Engine,
    pub host: Mouth,
    pub now: Instant,
}

/// Each time that a peer came to be ready has a number of its own.
static TIMES: AtomicU32 = AtomicU32::new(0);

/// A host that numbers what it says to each peer, anew for each time that peer came to be ready.
#[derive(Default)]
pub struct Mouth {
    /// All it was told, but messages.
    pub events: Vec<Owned>,
    /// Which time was the last that each peer came to be ready, and how many messages it was sent since.
    said: BTreeMap<String, (u32, u32)>,
    /// What came from each peer, in the order in which it came.
    heard: BTreeMap<String, Vec<(u32, u32)>>,
}

impl Mouth {
    fn say(&mut self, to: &str, outbox: &mut Outbox<'_>) -> Result<(), SendError> {
        let (times, next) = self.said.entry(to.to_owned()).or_default();
        let text = format!("{times} {next}");
        let sent = outbox.send((&mesh(), &rid(to)), &[text.as_bytes()]);
        *next += u32::from(sent.is_ok());
        sent
    }
}

impl Host for Mouth {
    fn on_event(&mut self, event: Event<'_>, outbox: &mut Outbox<'_>) {
        if let Event::Message { peer, parts, .. } = &event {
            let text = String::from_utf8(parts.iter().next().unwrap().to_vec()).unwrap();
            let (times, number) = text.split_once(' ').unwrap();
            let heard = self.heard.entry(peer.rid().to_string()).or_default();
            return heard.push((times.parse().unwrap(), number.parse().unwrap()));
        }
        if let Event::Ready { peer } = &event {
            let name = peer.rid().to_string();
            self.said.insert(name.clone(), (TIMES.fetch_add(1, SeqCst), 0));
            for _ in 0..3 {
                let said = self.say(&name, outbox);
                // It may have gone before the host was told that it came.
                let may_be_refused =
                    said == Err(SendError::ShuttingDown) || !outbox.is_ready(peer.connection());
                assert!(said.is_ok() || may_be_refused, "a ready peer was refused: {said:?}");
            }
        }
        self.events.push(Owned::from(event));
    }
}

impl Talker {
    pub fn join(node: MeshNode) -> (Self, Option<MeshBound>) {
        let mut engine = Engine::new(Config { seed: 7, ..Config::default() }).unwrap();
        let bound = engine.join(node).unwrap();
        (Self { engine, host: Mouth::default(), now: Instant::now() }, bound)
    }

    /// A node that listens, and where it takes application lanes.
    pub fn listens(node: MeshNode) -> (Self, Endpoint) {
        let (talker, bound) = Self::join(node);
        (talker, application(&bound.unwrap()))
    }

    /// Replaces whom it dials.
    pub fn dials(&mut self, peers: &[(&Endpoint, Option<&str>)]) {
        let peers: Vec<NodeEndpoint> = peers
            .iter()
            .map(|&(endpoint, name)| NodeEndpoint { endpoint: endpoint.clone(), rid: name.map(rid) })
            .collect();
        self.engine.outbox().set_endpoints(&mesh(), 0, &peers).unwrap();
    }

    /// Replaces the descriptors it goes by.
    pub fn is_told_of(&mut self, nodes: &[NodeDescriptor]) {
        self.engine.outbox().set_descriptors(&mesh(), nodes).unwrap();
    }

    /// Says a word to each peer that was ever ready. Returns whether each was taken.
    pub fn say_to_all(&mut self) -> bool {
        let peers: Vec<String> = self.host.said.keys().cloned().collect();
        let mut outbox = self.engine.outbox();
        !peers.is_empty() && peers.iter().all(|peer| self.host.say(peer, &mut outbox).is_ok())
    }

    /// How much it has said to its peers since each was last ready.
    pub fn said_to_all(&self) -> u32 {
        self.host.said.values().map(|said| said.1).sum()
    }

    /// One turn after a moment of real time, so much later; then a word to each peer that is ready.
    pub fn step(&mut self, span: Duration) -> Report {
        self.engine.wait(Some(ms(1)));
        self.now += span;
        let report = self.engine.turn_at(self.now, &mut self.host);
        for peer in self.ready() {
            let mut outbox = self.engine.outbox();
            let _ = self.host.say(&peer, &mut outbox);
        }
        report
    }

    /// Lets time pass for this one alone, one step of the watch at a time.
    pub fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            let step = s(1).min(end - self.now);
            self.now += step;
            self.engine.turn_at(self.now, &mut self.host);
        }
    }

    /// The RIDs of the peers that are ready, each as often as there is a connection to it.
    pub fn ready(&self) -> Vec<String> {
        let snapshot = self.engine.snapshot();
        let ready = snapshot.connections.iter().filter(|each| each.state == RouteState::Ready);
        let mut rids: Vec<String> = ready.map(|each| each.peer.rid().to_string()).collect();
        rids.sort();
        rids
    }

    /// How often its host was told that a peer is ready.
    pub fn times_ready(&self, peer: &str) -> usize {
        self.count(|event| matches!(event, Owned::Ready { peer: ready } if ready.rid().to_string() == peer))
    }

    pub fn count(&self, wanted: impl Fn(&Owned) -> bool) -> usize {
        self.host.events.iter().filter(|event| wanted(event)).count()
    }

    /// Whether the host was told of any peer's coming or going since it had been told this much.
    fn is_told_of_peers(&self, since: usize) -> bool {
        let told = &self.host.events[since..];
        told.iter()
            .any(|event| matches!(event, Owned::Admitted { .. } | Owned::Ready { .. } | Owned::Lost { .. }))
    }

    /// Whether the host was told of each connection in order and of each thing once: admitted, ready, lost.
    fn is_told_in_order(&self) -> bool {
        let mut told = BTreeMap::new();
        self.host.events.iter().all(|event| {
            let (peer, now) = match event {
                Owned::Admitted { peer } => (peer, 1),
                Owned::Ready { peer } => (peer, 2),
                Owned::Lost { peer, .. } => (peer, 3),
                _ => return true,
            };
            let before = told.insert(peer.connection(), now).unwrap_or(0);
            matches!((before, now), (0, 1) | (1, 2 | 3) | (2, 3))
        })
    }

    /// Why connections that were ready were lost, in order.
    pub fn lost(&self) -> Vec<LostReason> {
        let mut ready = Vec::new();
        let mut lost = Vec::new();
        for event in &self.host.events {
            match event {
                Owned::Ready { peer } => ready.push(peer.connection()),
                Owned::Lost { peer, reason } if ready.contains(&peer.connection()) => lost.push(*reason),
                _ => {}
            }
        }
        lost
    }

    /// How many lanes the engine has in its table; one is the node's own.
    pub fn lanes(&self) -> usize {
        let text = format!("{:?}", self.engine);
        let digits: String = text.chars().filter(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    }

    /// Whether this many peers are ready and nothing else is left of any connection.
    pub fn is_at_rest(&self, peers: usize) -> bool {
        let snapshot = self.engine.snapshot();
        self.ready().len() == peers
            && snapshot.connections.len() == peers
            && (snapshot.fenced_open, snapshot.unadmitted) == (0, 0)
            && self.lanes() == 1 + 2 * peers
    }

    /// What was said since a peer was last ready, beside what it has heard of that.
    fn unheard(&self, own: &str, peer: (&str, &Self)) -> Option<String> {
        let &(times, said) = self.host.said.get(peer.0)?;
        let empty = Vec::new();
        let heard = peer.1.host.heard.get(own).unwrap_or(&empty);
        let last: Vec<u32> = heard.iter().filter(|each| each.0 == times).map(|each| each.1).collect();
        (last != (0..said).collect::<Vec<_>>())
            .then(|| format!("{own} said {said} to {} at time {times}, which heard {last:?}", peer.0))
    }

    pub fn story(&self) -> String {
        let snapshot = self.engine.snapshot();
        format!(
            "{:#?}\n{:?}\nfenced {} unadmitted {} lanes {} intents {:?}\n{:?}",
            self.host.events,
            snapshot.connections,
            snapshot.fenced_open,
            snapshot.unadmitted,
            self.lanes(),
            snapshot.intents,
            snapshot.counters
        )
    }
}

/// Turns all nodes, 20 ms of virtual time a round, until each has this many peers and nothing else; then five seconds more,
/// in which nothing may change. What was said since the last ready has been heard, whole and in order.
pub fn come_to_rest(nodes: &mut [(&str, &mut Talker)], peers: usize, case: &str) {
    come_together(nodes, case, |node| node.is_at_rest(peers));
}

/// The same for nodes that may go on dialling ways of which nobody can tell them that they lead to a peer they have.
pub fn come_to_terms(nodes: &mut [(&str, &mut Talker)], peers: usize, case: &str) {
    come_together(nodes, case, |node| {
        node.ready().len() == peers && node.engine.snapshot().connections.len() == peers
    });
}

fn come_together(nodes: &mut [(&str, &mut Talker)], case: &str, rests: impl Fn(&Talker) -> bool) {
    // What befell them just now may not have been noticed: only the last rest must last.
    for last in [false, false, false, true] {
        find_rest(nodes, case, &rests);
        let told: Vec<usize> = nodes.iter().map(|(_, node)| node.host.events.len()).collect();
        for _ in 0..10 {
            for (_, node) in nodes.iter_mut() {
                node.step(ms(500));
            }
        }
        listen(nodes, case, &rests);
        let lasts =
            |((_, node), told): (&(&str, &mut Talker), &usize)| rests(node) && !node.is_told_of_peers(*told);
        if nodes.iter().zip(&told).all(lasts) {
            break;
        }
        assert!(!last, "{case}: no rest that lasts\n{}", stories(nodes));
    }
    let in_order = nodes.iter().all(|(_, node)| node.is_told_in_order());
    assert!(in_order, "{case}: told out of order\n{}", stories(nodes));
}

fn find_rest(nodes: &mut [(&str, &mut Talker)], case: &str, rests: impl Fn(&Talker) -> bool) {
    let begin = Instant::now();
    for _ in 0..3_000 {
        if nodes.iter().all(|(_, node)| rests(node)) {
            return;
        }
        for (_, node) in nodes.iter_mut() {
            node.step(ms(20));
        }
        assert!(begin.elapsed() < s(10), "{case}: no rest in 10 s\n{}", stories(nodes));
    }
    panic!("{case}: no rest in a minute of virtual time\n{}", stories(nodes));
}

fn stories(nodes: &[(&str, &mut Talker)]) -> String {
    let stories: Vec<String> = nodes.iter().map(|(name, node)| format!("{name}: {}", node.story())).collect();
    stories.join("\n")
}

/// Turns all nodes without a word until all that was said has been heard, or they part.
fn listen(nodes: &mut [(&str, &mut Talker)], case: &str, rests: impl Fn(&Talker) -> bool) {
    let begin = Instant::now();
    loop {
        let unheard: Vec<String> = nodes
            .iter()
            .flat_map(|(name, node)| {
                nodes.iter().filter_map(move |(peer, other)| node.unheard(name, (peer, other)))
            })
            .collect();
        if unheard.is_empty() || !nodes.iter().all(|(_, node)| rests(node)) {
            return;
        }
        assert!(begin.elapsed() < s(5), "{case}: {unheard:?}\n{}", stories(nodes));
        for (_, node) in nodes.iter_mut() {
            node.engine.wait(Some(ms(1)));
            node.engine.turn_at(node.now, &mut node.host);
        }
    }
}

/// What a service registry says of a node without a role that serves nothing.
pub fn described_as(name: &str, run: u64, endpoint: &Endpoint) -> NodeDescriptor {
    NodeDescriptor {
        rid: rid(name),
        generation: generation(run),
        security: SecurityId::default(),
        role: Role::None,
        serves: Vec::new(),
        endpoint: Some(endpoint.clone()),
    }
}

/// Drops nodes where nobody waits for it: each may take the 200 ms that its last words have to leave.
pub fn bury(nodes: impl Send + 'static) {
    thread::spawn(move || drop(nodes));
}

/// A cable that can be torn. It leads where it is told to, from then on.
pub struct Cable {
    pub endpoint: Endpoint,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    target: Mutex<String>,
    streams: Mutex<Vec<TcpStream>>,
    over: AtomicBool,
}

impl Cable {
    pub fn new() -> Self {
        Self::over("127.0.0.1:0")
    }

    /// One whose diallers come by IPv6.
    pub fn over_ipv6() -> Self {
        Self::over("[::1]:0")
    }

    fn over(address: &str) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let endpoint = format!("tcp://{}", listener.local_addr().unwrap()).parse().unwrap();
        let shared = Arc::new(Shared::default());
        let accepting = shared.clone();
        thread::spawn(move || {
            while let Ok((dialler, _)) = listener.accept() {
                if accepting.over.load(SeqCst) {
                    return;
                }
                let target = accepting.target.lock().unwrap().clone();
                let Ok(listening) = TcpStream::connect(target) else { continue };
                let ends = [&dialler, &listening].map(|end| {
                    end.set_nodelay(true).unwrap();
                    end.try_clone().unwrap()
                });
                accepting.streams.lock().unwrap().extend(ends);
                let back = (listening.try_clone().unwrap(), dialler.try_clone().unwrap());
                thread::spawn(move || pump(dialler, listening));
                thread::spawn(move || pump(back.0, back.1));
            }
        });
        Self { endpoint, shared }
    }

    pub fn leads_to(&self, target: &Endpoint) {
        target.as_str().trim_start_matches("tcp://").clone_into(&mut self.shared.target.lock().unwrap());
    }

    /// Ends every connection it carries, at both ends; later ones pass.
    pub fn tear(&self) {
        for stream in self.shared.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.shared.over.store(true, SeqCst);
        self.tear();
        let _ = TcpStream::connect(self.endpoint.as_str().trim_start_matches("tcp://"));
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(bytes) = from.read(&mut buffer) {
        if bytes == 0 || to.write_all(&buffer[..bytes]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
