//! A peer that is not ours: a bare ZeroMQ socket that speaks WIRE.md by bytes written here by hand, so that it shares
//! nothing with the engine's own encoder. It answers nothing by itself: a test says every word, or leaves it unsaid.
//!
//! One type serves both ends: [`Raw::client`] is a DEALER that dials, [`Raw::server`] a ROUTER that listens. The
//! [`Raw::ready_client`] and [`Raw::ready_server`] have gone through the handshake with an engine at the other end.
#![allow(dead_code, reason = "no test file uses all of it")]
#![allow(clippy::disallowed_methods, reason = "a test on real sockets bounds its waits in real time")]

use std::time::Instant;

use wakeful::Endpoint;

use super::{CHANNEL, Node, ms, s};

pub const HELLO: u8 = 1;
pub const ADMIT: u8 = 2;
pub const REJECT: u8 = 3;
pub const UPDATE: u8 = 4;
pub const PROBE: u8 = 5;
pub const ACK: u8 = 6;
pub const NODE_SEND: u8 = 16;
pub const NODE_REQUEST: u8 = 17;
pub const CHANNEL_SEND: u8 = 18;
pub const CHANNEL_REQUEST: u8 = 19;
pub const REPLY: u8 = 20;

pub const SERVING: u8 = 1;
pub const DRAINING: u8 = 3;
pub const STOPPED: u8 = 4;

/// The head of a record: magic, major, command, flags, body.
pub fn head(command: u8, body: &[u8]) -> Vec<u8> {
    [&[0x5A, 0x4D, 0x01, command, 0x00], body].concat()
}

pub fn probe(id: u64) -> Vec<u8> {
    head(PROBE, &id.to_be_bytes())
}

pub fn ack(id: u64) -> Vec<u8> {
    head(ACK, &id.to_be_bytes())
}

pub fn reject(reason: u32) -> Vec<u8> {
    head(REJECT, &reason.to_be_bytes())
}

pub fn channel_send(channel: &str) -> Vec<u8> {
    head(CHANNEL_SEND, &text8(channel))
}

pub fn channel_request(correlation: u64, channel: &str) -> Vec<u8> {
    head(CHANNEL_REQUEST, &[&correlation.to_be_bytes()[..], &text8(channel)].concat())
}

pub fn reply(correlation: u64, outcome: u8) -> Vec<u8> {
    head(REPLY, &[&correlation.to_be_bytes()[..], &[outcome]].concat())
}

fn text8(text: &str) -> Vec<u8> {
    [&[text.len() as u8], text.as_bytes()].concat()
}

fn text16(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes(), text.as_bytes()].concat()
}

/// An admission body, every field free to be wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    pub topology: u8,
    pub lane: u8,
    pub role: u8,
    pub state: u8,
    pub name: String,
    pub rid: String,
    pub generation: u64,
    pub revision: u64,
    pub pair: u64,
    pub security: String,
    pub endpoint: String,
    pub completion: String,
    pub max_message: u32,
    pub channels: Vec<(String, u16)>,
    /// The extensions as they stand on the wire, without their total length.
    pub extensions: Vec<u8>,
}

impl Admission {
    /// What a client of the usual channel says.
    pub fn client(rid: &str) -> Self {
        Self {
            topology: 2,
            lane: 1,
            role: 1,
            state: SERVING,
            name: CHANNEL.to_owned(),
            rid: rid.to_owned(),
            generation: 1,
            revision: 1,
            pair: 1,
            security: String::new(),
            endpoint: String::new(),
            completion: String::new(),
            max_message: 0,
            channels: Vec::new(),
            extensions: Vec::new(),
        }
    }

    /// What a server of the usual channel answers to a hello of this pair.
    pub fn server(rid: &str, endpoint: &str, pair: u64) -> Self {
        let channels = vec![(CHANNEL.to_owned(), 100)];
        Self { role: 2, endpoint: endpoint.to_owned(), pair, channels, ..Self::client(rid) }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.topology, self.lane, self.role, self.state];
        bytes.extend(text8(&self.name));
        bytes.extend(text8(&self.rid));
        for number in [self.generation, self.revision, self.pair] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.extend(text8(&self.security));
        bytes.extend(text16(&self.endpoint));
        bytes.extend(text16(&self.completion));
        bytes.extend(self.max_message.to_be_bytes());
        bytes.extend((self.channels.len() as u16).to_be_bytes());
        for (channel, weight) in &self.channels {
            bytes.extend(text8(channel));
            bytes.extend(weight.to_be_bytes());
        }
        bytes.extend((self.extensions.len() as u32).to_be_bytes());
        bytes.extend(&self.extensions);
        bytes
    }

    /// Reads a body. Panics where it is not one: the engine sent it.
    pub fn read(body: &[u8]) -> Self {
        let mut left = body;
        let topology = take(&mut left, 1)[0];
        let lane = take(&mut left, 1)[0];
        let role = take(&mut left, 1)[0];
        let state = take(&mut left, 1)[0];
        let name = text(&mut left, 1);
        let rid = text(&mut left, 1);
        let [generation, revision, pair] = [(); 3].map(|()| number(&mut left, 8));
        let security = text(&mut left, 1);
        let endpoint = text(&mut left, 2);
        let completion = text(&mut left, 2);
        let max_message = number(&mut left, 4) as u32;
        let channels =
            (0..number(&mut left, 2)).map(|_| (text(&mut left, 1), number(&mut left, 2) as u16)).collect();
        let extensions = number(&mut left, 4) as usize;
        let extensions = take(&mut left, extensions).to_vec();
        assert!(left.is_empty(), "no byte follows an admission");
        Self {
            topology,
            lane,
            role,
            state,
            name,
            rid,
            generation,
            revision,
            pair,
            security,
            endpoint,
            completion,
            max_message,
            channels,
            extensions,
        }
    }
}

fn take<'a>(left: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = left.split_at(count);
    *left = rest;
    taken
}

fn number(left: &mut &[u8], width: usize) -> u64 {
    take(left, width).iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn text(left: &mut &[u8], width: usize) -> String {
    let length = number(left, width) as usize;
    String::from_utf8(take(left, length).to_vec()).unwrap()
}

/// One record that a raw peer received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The physical connection it came by; empty at a client, which has one.
    pub route: Vec<u8>,
    /// The head, then the payload parts.
    pub frames: Vec<Vec<u8>>,
}

impl Seen {
    pub fn command(&self) -> u8 {
        self.frames[0][3]
    }

    /// The u64 that a probe, an ACK, a request or a reply begins with.
    pub fn number(&self) -> u64 {
        number(&mut &self.frames[0][5..], 8)
    }

    /// Why a reject was sent.
    pub fn reason(&self) -> u32 {
        number(&mut &self.frames[0][5..], 4) as u32
    }

    /// The admission in a hello, admit or update.
    pub fn admission(&self) -> Admission {
        Admission::read(&self.frames[0][5..])
    }
}

/// One raw peer, client or server.
pub struct Raw {
    /// None once it was [killed](Raw::kill).
    socket: Option<zmq::Socket>,
    /// Reads the socket's monitor, so it is dropped after it.
    monitor: zmq::Socket,
    /// Physical connections that a server has accepted, and that either end has seen end, as far as it looked.
    pub accepted: usize,
    pub disconnected: usize,
    /// Where a server listens, or what a client dialled.
    pub endpoint: Endpoint,
    /// The connection that a server speaks to: that of the last hello it [awaited](Raw::hello). Empty at a client.
    pub route: Vec<u8>,
    /// What it says of itself.
    pub admission: Admission,
    /// What came and was not taken yet, oldest first.
    pub seen: Vec<Seen>,
    next_probe: u64,
}

impl Raw {
    /// A DEALER that has dialled and said nothing yet.
    pub fn client(rid: &str, server: &Endpoint) -> Self {
        let (socket, monitor) = open(zmq::DEALER);
        socket.connect(server.as_str()).unwrap();
        Self::new(socket, monitor, server.clone(), Admission::client(rid))
    }

    /// A ROUTER that listens at a free port.
    pub fn server(rid: &str) -> Self {
        Self::server_at(rid, "tcp://127.0.0.1:*")
    }

    /// A ROUTER that listens there, as soon as it can: a port may take a moment to be free again.
    pub fn server_at(rid: &str, endpoint: &str) -> Self {
        let (socket, monitor) = open(zmq::ROUTER);
        socket.set_identity(b"A").unwrap();
        socket.set_router_mandatory(true).unwrap();
        let begin = Instant::now();
        while let Err(error) = socket.bind(endpoint) {
            assert!(begin.elapsed() < s(10), "{endpoint}: {error}");
            std::thread::yield_now();
        }
        let endpoint: Endpoint = socket.get_last_endpoint().unwrap().unwrap().parse().unwrap();
        let admission = Admission::server(rid, endpoint.as_str(), 0);
        Self::new(socket, monitor, endpoint, admission)
    }

    /// A publisher that listens at a free port. What subscribers ask of it is seen as records of one frame.
    pub fn publisher() -> Self {
        let (socket, monitor) = open(zmq::XPUB);
        socket.bind("tcp://127.0.0.1:*").unwrap();
        let endpoint: Endpoint = socket.get_last_endpoint().unwrap().unwrap().parse().unwrap();
        Self::new(socket, monitor, endpoint, Admission::client("publisher"))
    }

    /// A subscriber to all that is published there.
    pub fn subscriber(publisher: &Endpoint) -> Self {
        let (socket, monitor) = open(zmq::SUB);
        socket.set_subscribe(b"").unwrap();
        socket.connect(publisher.as_str()).unwrap();
        Self::new(socket, monitor, publisher.clone(), Admission::client("subscriber"))
    }

    /// A raw client that an engine's server has found ready. The engine's first probe is seen and not answered.
    pub fn ready_client(rid: &str) -> (Self, Node) {
        let (mut node, endpoint) = Node::server("server");
        let raw = Self::join(rid, &endpoint, &mut node);
        (raw, node)
    }

    /// A raw client that has come to be ready at a server, as [`Raw::ready_client`].
    pub fn join(rid: &str, server: &Endpoint, node: &mut Node) -> Self {
        let mut raw = Self::client(rid, server);
        raw.greet(node);
        raw
    }

    /// Says hello, is admitted, and makes itself ready by its first probe.
    pub fn greet(&mut self, node: &mut Node) {
        self.send(&head(HELLO, &self.admission.bytes()), &[]);
        self.wait(node, ADMIT);
        self.sync(node);
    }

    /// A raw server that an engine's client has found ready. The engine's first probe is seen and not answered.
    pub fn ready_server(rid: &str) -> (Self, Node) {
        let mut raw = Self::server(rid);
        let mut node = Node::client("client", &raw.endpoint);
        raw.hello(&mut node);
        raw.admit(&mut node);
        (raw, node)
    }

    /// Awaits a client's hello; from then on the server speaks to that connection.
    pub fn hello(&mut self, node: &mut Node) -> Admission {
        let hello = self.wait(node, HELLO);
        self.route.clone_from(&hello.route);
        self.admission.pair = hello.admission().pair;
        hello.admission()
    }

    /// Admits the client whose hello was awaited, and waits until it is ready.
    pub fn admit(&mut self, node: &mut Node) {
        self.send(&head(ADMIT, &self.admission.bytes()), &[]);
        self.sync(node);
    }

    fn new(socket: zmq::Socket, monitor: zmq::Socket, endpoint: Endpoint, admission: Admission) -> Self {
        Self {
            socket: Some(socket),
            monitor,
            accepted: 0,
            disconnected: 0,
            endpoint,
            route: Vec::new(),
            admission,
            seen: Vec::new(),
            next_probe: 1 << 40,
        }
    }

    /// Sends one record. It may not be refused.
    pub fn send(&self, head: &[u8], parts: &[&[u8]]) {
        assert!(self.try_send(head, parts), "a raw peer's queue is full, or its route is gone");
    }

    /// Sends one record, if the transport takes it.
    pub fn try_send(&self, head: &[u8], parts: &[&[u8]]) -> bool {
        let Some(socket) = &self.socket else { return false };
        let frames = if self.route.is_empty() { None } else { Some(&self.route[..]) };
        let frames = frames.into_iter().chain([head]).chain(parts.iter().copied());
        socket.send_multipart(frames, zmq::DONTWAIT).is_ok()
    }

    /// Says that it is in another state, by its next update.
    pub fn update(&mut self, state: u8) {
        self.admission.state = state;
        self.admission.revision += 1;
        self.send(&head(UPDATE, &self.admission.bytes()), &[]);
    }

    /// Takes in what has come.
    pub fn poll(&mut self) {
        while let Some(event) = receive(&self.monitor) {
            match u16::from_ne_bytes([event[0][0], event[0][1]]) {
                ACCEPTED => self.accepted += 1,
                DISCONNECTED => self.disconnected += 1,
                _ => {}
            }
        }
        let Some(socket) = &self.socket else { return };
        let routed = socket.get_socket_type() == Ok(zmq::ROUTER);
        while let Some(mut frames) = receive(socket) {
            let route = if routed { frames.remove(0) } else { Vec::new() };
            self.seen.push(Seen { route, frames });
        }
    }

    /// Turns the engine, without virtual time passing, until a record of this kind came, and takes the first such.
    pub fn wait(&mut self, node: &mut Node, command: u8) -> Seen {
        self.wait_for(node, &format!("command {command}"), |seen| seen.command() == command)
    }

    /// The same for any record that fits.
    pub fn wait_for(&mut self, node: &mut Node, what: &str, fits: impl Fn(&Seen) -> bool) -> Seen {
        let begin = Instant::now();
        loop {
            self.poll();
            if let Some(at) = self.seen.iter().position(&fits) {
                return self.seen.remove(at);
            }
            assert!(begin.elapsed() < s(10), "not in 10 s: {what}");
            node.turn();
            node.engine.wait(Some(ms(1)));
        }
    }

    /// Sends a probe and waits for its ACK. A lane keeps order: what this peer sent before has then reached the engine,
    /// and what the engine sent before has been seen here. No virtual time passes.
    pub fn sync(&mut self, node: &mut Node) {
        self.next_probe += 1;
        let id = self.next_probe;
        self.send(&probe(id), &[]);
        self.wait_for(node, "the ACK of a raw probe", |seen| seen.command() == ACK && seen.number() == id);
    }

    /// Takes all records of this kind that have been seen.
    pub fn taken(&mut self, command: u8) -> Vec<Seen> {
        let (taken, left) =
            std::mem::take(&mut self.seen).into_iter().partition(|seen| seen.command() == command);
        self.seen = left;
        taken
    }

    /// Takes the ids of the probes that have been seen.
    pub fn probes(&mut self) -> Vec<u64> {
        self.taken(PROBE).iter().map(Seen::number).collect()
    }

    /// Ends its transport without a word.
    pub fn kill(&mut self) {
        self.socket = None;
    }
}

pub(super) const ACCEPTED: u16 = zmq::SocketEvent::ACCEPTED as u16;
pub(super) const DISCONNECTED: u16 = zmq::SocketEvent::DISCONNECTED as u16;

/// A socket of its own context, and the reader of its monitor.
fn open(kind: zmq::SocketType) -> (zmq::Socket, zmq::Socket) {
    let context = zmq::Context::new();
    let [socket, monitor] = [kind, zmq::PAIR].map(|kind| {
        let socket = context.socket(kind).unwrap();
        socket.set_linger(0).unwrap();
        socket.set_sndhwm(0).unwrap();
        socket.set_rcvhwm(0).unwrap();
        socket
    });
    // It never comes back by itself: a connection that ended stays ended.
    socket.set_reconnect_ivl(i32::MAX).unwrap();
    socket.monitor("inproc://monitor", i32::from(ACCEPTED | DISCONNECTED)).unwrap();
    monitor.connect("inproc://monitor").unwrap();
    (socket, monitor)
}

pub fn receive(socket: &zmq::Socket) -> Option<Vec<Vec<u8>>> {
    let mut frame = zmq::Message::new();
    let mut frames = Vec::new();
    while socket.recv(&mut frame, zmq::DONTWAIT).is_ok() {
        frames.push(frame.to_vec());
        if !frame.get_more() {
            return Some(frames);
        }
    }
    None
}
