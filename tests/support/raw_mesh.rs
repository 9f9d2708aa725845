//! A mesh node that is not ours: two bare ROUTER lanes that speak WIRE.md by hand-written bytes, at either end. Like the
//! raw peer of one lane it says no word that a test has not asked for.
#![allow(dead_code, reason = "no test file uses all of it")]
#![allow(clippy::disallowed_methods, reason = "a test on real sockets bounds its waits in real time")]

use std::cell::Cell;
use std::time::Instant;

use wakeful::{Endpoint, MeshNode};

use super::mesh::{MESH, listening, plain};
use super::raw::{self, ACK, ADMIT, Admission, HELLO, PROBE, REPLY, Seen, UPDATE, head, probe, reply};
use super::{Node, ms, s};

pub const APPLICATION: usize = 0;
pub const COMPLETION: usize = 1;
const STOPPED: u16 = zmq::SocketEvent::MONITOR_STOPPED as u16;
/// The identities of the two bound lanes.
const BOUND: [&[u8]; 2] = [b"A", b"C"];

pub fn node_send() -> Vec<u8> {
    head(raw::NODE_SEND, &[])
}

pub fn node_request(correlation: u64) -> Vec<u8> {
    head(raw::NODE_REQUEST, &correlation.to_be_bytes())
}

/// What a node of the usual mesh says of itself.
pub fn says(rid: &str) -> Admission {
    Admission { topology: 1, role: 0, name: MESH.to_owned(), ..Admission::client(rid) }
}

/// One lane: a socket, what it speaks to, and what came by it.
pub struct RawLane {
    /// None once it was closed.
    socket: Option<zmq::Socket>,
    /// Reads the socket's monitor, so it is dropped after it.
    monitor: zmq::Socket,
    /// The monitor has said its last.
    stopped: bool,
    /// Physical connections that it accepted, and that it has seen end, as far as it looked.
    pub accepted: usize,
    pub disconnected: usize,
    /// Where it listens, or what it dialled.
    pub endpoint: Endpoint,
    /// The peer's identity: that of the bound lane it dialled, or of the connection it speaks to.
    pub route: Vec<u8>,
    /// What came and was not taken yet, oldest first.
    pub seen: Vec<Seen>,
}

impl RawLane {
    fn listen(leg: usize) -> Self {
        let (socket, monitor) = open();
        socket.set_identity(BOUND[leg]).unwrap();
        socket.bind("tcp://127.0.0.1:*").unwrap();
        let endpoint: Endpoint = socket.get_last_endpoint().unwrap().unwrap().parse().unwrap();
        Self::new(socket, monitor, endpoint, Vec::new())
    }

    pub fn dial(leg: usize, endpoint: &Endpoint) -> Self {
        let (socket, monitor) = open();
        socket.connect(endpoint.as_str()).unwrap();
        Self::new(socket, monitor, endpoint.clone(), BOUND[leg].to_vec())
    }

    fn new(socket: zmq::Socket, monitor: zmq::Socket, endpoint: Endpoint, route: Vec<u8>) -> Self {
        let (stopped, accepted, disconnected) = (false, 0, 0);
        let socket = Some(socket);
        Self { socket, monitor, stopped, accepted, disconnected, endpoint, route, seen: Vec::new() }
    }

    /// Sends one record, if the transport takes it.
    pub fn try_send(&self, head: &[u8], parts: &[&[u8]]) -> bool {
        let Some(socket) = &self.socket else { return false };
        let frames = [&self.route, head].into_iter().chain(parts.iter().copied());
        socket.send_multipart(frames, zmq::DONTWAIT).is_ok()
    }

    /// Sends one record. A lane that has just been dialled has its route in a moment.
    pub fn send(&self, head: &[u8], parts: &[&[u8]]) {
        let begin = Instant::now();
        while !self.try_send(head, parts) {
            assert!(begin.elapsed() < s(10), "a raw lane's queue is full, or its route is gone");
            std::thread::yield_now();
        }
    }

    /// Takes in what has come.
    pub fn poll(&mut self) {
        while let Some(event) = raw::receive(&self.monitor) {
            match u16::from_ne_bytes([event[0][0], event[0][1]]) {
                raw::ACCEPTED => self.accepted += 1,
                raw::DISCONNECTED => self.disconnected += 1,
                STOPPED => self.stopped = true,
                _ => {}
            }
        }
        let Some(socket) = &self.socket else { return };
        while let Some(mut frames) = raw::receive(socket) {
            let route = frames.remove(0);
            self.seen.push(Seen { route, frames });
        }
    }

    /// Takes the first record that fits, if one has come.
    pub fn take(&mut self, fits: impl Fn(&Seen) -> bool) -> Option<Seen> {
        self.poll();
        let at = self.seen.iter().position(fits)?;
        Some(self.seen.remove(at))
    }

    /// Takes all records of this kind that have been seen.
    pub fn taken(&mut self, command: u8) -> Vec<Seen> {
        let (taken, left) =
            std::mem::take(&mut self.seen).into_iter().partition(|seen| seen.command() == command);
        self.seen = left;
        taken
    }

    /// The reason of the first reject that has come.
    pub fn rejected(&mut self) -> Option<u32> {
        self.take(|seen| seen.command() == raw::REJECT).map(|seen| seen.reason())
    }

    /// Ends its transport without a word.
    pub fn close(&mut self) {
        self.socket = None;
    }
}

impl Drop for RawLane {
    /// A monitor whose reader goes before its socket has gone blocks the context that all lanes of a test share.
    fn drop(&mut self) {
        self.socket = None;
        let begin = Instant::now();
        while !self.stopped && begin.elapsed() < s(1) {
            self.poll();
            std::thread::yield_now();
        }
    }
}

/// A node with its two lanes, the application lane first.
pub struct RawNode {
    pub lanes: [Option<RawLane>; 2],
    /// What it says of itself, but for the lane.
    pub admission: Admission,
    next_probe: u64,
}

impl RawNode {
    /// A node that has dialled an application lane and said nothing yet.
    pub fn dialling(rid: &str, application: &Endpoint) -> Self {
        let lane = RawLane::dial(APPLICATION, application);
        let admission = Admission { pair: pair_of(rid), ..says(rid) };
        Self { lanes: [Some(lane), None], admission, next_probe: 1 << 40 }
    }

    /// A node that listens on two free ports.
    pub fn listening(rid: &str) -> Self {
        let lanes = [APPLICATION, COMPLETION].map(RawLane::listen);
        let [endpoint, completion] = [0, 1].map(|leg: usize| lanes[leg].endpoint.to_string());
        let admission = Admission { endpoint, completion, ..says(rid) };
        Self { lanes: lanes.map(Some), admission, next_probe: 1 << 40 }
    }

    /// A raw node that has dialled an engine's node "node", which serves "work", and is ready there.
    pub fn ready_dialler(rid: &str) -> (Self, Node) {
        let (mut node, at) = Node::listens(host("node"));
        let raw = Self::enter(rid, &at, &mut node);
        (raw, node)
    }

    /// A raw node that has been dialled by an engine's node "node", and is ready there.
    pub fn ready_listener(rid: &str) -> (Self, Node) {
        let mut raw = Self::listening(rid);
        let (mut node, _) = Node::join(plain("node").peer(raw.at()));
        raw.admit(&mut node);
        (raw, node)
    }

    /// A raw node that has come to be ready at an engine's node.
    pub fn enter(rid: &str, application: &Endpoint, node: &mut Node) -> Self {
        let mut raw = Self::dialling(rid, application);
        raw.open(node);
        raw
    }

    /// Where it listens for application lanes.
    pub fn at(&self) -> Endpoint {
        self.admission.endpoint.parse().unwrap()
    }

    /// What it says of itself on this lane.
    pub fn body(&self, leg: usize) -> Vec<u8> {
        Admission { lane: leg as u8 + 1, ..self.admission.clone() }.bytes()
    }

    /// Both handshakes as a dialler, up to its first probe and the answer to it.
    pub fn open(&mut self, node: &mut Node) {
        self.open_application(node);
        self.open_completion();
        self.wait(node, COMPLETION, ADMIT);
        self.sync(node);
    }

    /// Says hello on the application lane, and dials the completion lane that the admit names.
    pub fn open_application(&mut self, node: &mut Node) -> Admission {
        self.send(APPLICATION, &head(HELLO, &self.body(APPLICATION)), &[]);
        let admit = self.wait(node, APPLICATION, ADMIT).admission();
        self.lanes[COMPLETION] = Some(RawLane::dial(COMPLETION, &admit.completion.parse().unwrap()));
        admit
    }

    pub fn open_completion(&self) {
        self.send(COMPLETION, &head(HELLO, &self.body(COMPLETION)), &[]);
    }

    /// Awaits a hello on each lane and admits it, up to the answer to its own first probe.
    pub fn admit(&mut self, node: &mut Node) {
        for leg in [APPLICATION, COMPLETION] {
            self.hello(node, leg);
            self.send(leg, &head(ADMIT, &self.body(leg)), &[]);
        }
        self.sync(node);
    }

    /// Awaits a hello on a lane; from then on the lane speaks to that connection.
    pub fn hello(&mut self, node: &mut Node, leg: usize) -> Admission {
        let hello = self.wait(node, leg, HELLO);
        self.lane(leg).route.clone_from(&hello.route);
        self.admission.pair = hello.admission().pair;
        hello.admission()
    }

    pub fn lane(&mut self, leg: usize) -> &mut RawLane {
        self.lanes[leg].as_mut().expect("the lane was opened")
    }

    /// Sends one record on a lane. It may not be refused.
    pub fn send(&self, leg: usize, head: &[u8], parts: &[&[u8]]) {
        self.lanes[leg].as_ref().expect("the lane was opened").send(head, parts);
    }

    /// Says that it is in another state, by its next update.
    pub fn update(&mut self, state: u8) {
        self.admission.state = state;
        self.admission.revision += 1;
        self.send(COMPLETION, &head(UPDATE, &self.body(COMPLETION)), &[]);
    }

    pub fn poll(&mut self) {
        self.lanes.iter_mut().flatten().for_each(RawLane::poll);
    }

    /// Turns the engine, without virtual time passing, until a record of this kind came by the lane, and takes it.
    pub fn wait(&mut self, node: &mut Node, leg: usize, command: u8) -> Seen {
        self.wait_for(node, leg, &format!("command {command}"), |seen| seen.command() == command)
    }

    /// The same for any record that fits.
    pub fn wait_for(
        &mut self,
        node: &mut Node,
        leg: usize,
        what: &str,
        fits: impl Fn(&Seen) -> bool,
    ) -> Seen {
        let begin = Instant::now();
        loop {
            if let Some(seen) = self.lane(leg).take(&fits) {
                return seen;
            }
            assert!(begin.elapsed() < s(10), "not in 10 s: {what} on lane {leg}");
            node.turn();
            node.engine.wait(Some(ms(1)));
        }
    }

    /// Sends a probe and waits for its ACK: what either end has sent before on the application lane has then arrived.
    pub fn sync(&mut self, node: &mut Node) {
        self.next_probe += 1;
        let id = self.next_probe;
        self.send(APPLICATION, &probe(id), &[]);
        self.wait_for(node, APPLICATION, "the ACK of a raw probe", |seen| {
            seen.command() == ACK && seen.number() == id
        });
    }

    /// The same for the completion lane: an answer that nobody waits for is counted, and a request for a channel that
    /// nobody serves is answered.
    pub fn sync_completion(&mut self, node: &mut Node) {
        self.next_probe += 1;
        let id = self.next_probe;
        let late = node.engine.snapshot().counters.late_replies;
        self.send(COMPLETION, &reply(id, 0), &[]);
        self.send(APPLICATION, &raw::channel_request(id, "nowhere"), &[b"?"]);
        self.wait_for(node, COMPLETION, "NotFound", |seen| seen.command() == REPLY && seen.number() == id);
        let begin = Instant::now();
        while node.engine.snapshot().counters.late_replies == late {
            assert!(begin.elapsed() < s(10), "not in 10 s: the reply that nobody waits for");
            node.turn();
            node.engine.wait(Some(ms(1)));
        }
    }

    /// Takes the ids of the probes that have been seen.
    pub fn probes(&mut self) -> Vec<u64> {
        self.lane(APPLICATION).taken(PROBE).iter().map(Seen::number).collect()
    }

    /// Ends the transport of both lanes without a word.
    pub fn kill(&mut self) {
        self.lanes.iter_mut().flatten().for_each(RawLane::close);
    }

    /// How many physical connections both lanes together have seen end.
    pub fn disconnected(&mut self) -> usize {
        self.poll();
        self.lanes.iter().flatten().map(|lane| lane.disconnected).sum()
    }
}

thread_local! {
    /// The raw nodes of one test share a context, because a table of bad input makes hundreds of sockets.
    static CONTEXT: zmq::Context = zmq::Context::new();
    static MONITORS: Cell<u32> = const { Cell::new(0) };
}

/// A ROUTER, and the reader of its monitor.
fn open() -> (zmq::Socket, zmq::Socket) {
    let [socket, monitor] = [zmq::ROUTER, zmq::PAIR].map(|kind| {
        let socket = CONTEXT.with(|context| context.socket(kind)).unwrap();
        socket.set_linger(0).unwrap();
        socket.set_sndhwm(0).unwrap();
        socket.set_rcvhwm(0).unwrap();
        socket
    });
    // It never comes back by itself: a connection that ended stays ended.
    socket.set_reconnect_ivl(i32::MAX).unwrap();
    socket.set_router_mandatory(true).unwrap();
    let number = MONITORS.get();
    MONITORS.set(number + 1);
    let at = format!("inproc://monitor-{number}");
    socket.monitor(&at, i32::from(raw::ACCEPTED | raw::DISCONNECTED | STOPPED)).unwrap();
    monitor.connect(&at).unwrap();
    (socket, monitor)
}

/// A node of the engine's own that listens and serves "work".
pub fn host(name: &str) -> MeshNode {
    listening(name).serve(super::mesh::named("work"), super::mesh::weight(100))
}

/// The pair that a raw dialler of this name has drawn.
pub fn pair_of(rid: &str) -> u64 {
    rid.bytes().fold(1, |pair, byte| pair * 31 % (1 << 40) + u64::from(byte))
}
