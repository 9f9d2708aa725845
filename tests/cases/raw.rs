//! Peers that share no code with the engine: WIRE.md by hand over plain ZeroMQ sockets.

use wakeful::{Endpoint, Owned};

use crate::support::*;

/// One record: its head and its parts.
pub type Frames = Vec<Vec<u8>>;

pub const HELLO: u8 = 1;
pub const ADMIT: u8 = 2;
pub const REJECT: u8 = 3;
pub const PROBE: u8 = 5;
pub const ACK: u8 = 6;
pub const SEND: u8 = 18;
pub const REQUEST: u8 = 19;
pub const REPLY: u8 = 20;

/// What a record is, by its head.
pub fn command(record: &Frames) -> u8 {
    assert_eq!(record[0][..3], [0x5A, 0x4D, 1], "a head opens with its magic and major");
    record[0][3]
}

/// The u64 that follows the head of a probe, an ACK, a request and a reply.
pub fn number(record: &Frames) -> u64 {
    u64::from_be_bytes(record[0][5..13].try_into().unwrap())
}

/// A head without its body.
pub fn head(command: u8) -> Vec<u8> {
    vec![0x5A, 0x4D, 1, command, 0]
}

/// The head of a probe or an ACK.
pub fn check(command: u8, id: u64) -> Vec<u8> {
    [head(command), id.to_be_bytes().to_vec()].concat()
}

/// The head of a channelSend.
pub fn channel_send() -> Vec<u8> {
    let mut bytes = head(SEND);
    short(&mut bytes, CHANNEL.as_bytes());
    bytes
}

/// The head of a channelRequest.
pub fn channel_request(correlation: u64) -> Vec<u8> {
    let mut bytes = check(REQUEST, correlation);
    short(&mut bytes, CHANNEL.as_bytes());
    bytes
}

/// The head of a reply with outcome 0.
pub fn reply(correlation: u64) -> Vec<u8> {
    [check(REPLY, correlation), vec![0]].concat()
}

fn short(bytes: &mut Vec<u8>, text: &[u8]) {
    bytes.push(text.len() as u8);
    bytes.extend_from_slice(text);
}

fn admission(command: u8, role: u8, rid: &str, generation: u64, pair: u64, endpoint: &str) -> Vec<u8> {
    let mut bytes = head(command);
    bytes.extend([2, 1, role, 1]);
    short(&mut bytes, CHANNEL.as_bytes());
    short(&mut bytes, rid.as_bytes());
    for number in [generation, 1, pair] {
        bytes.extend(number.to_be_bytes());
    }
    short(&mut bytes, b"");
    bytes.extend((endpoint.len() as u16).to_be_bytes());
    bytes.extend(endpoint.as_bytes());
    bytes.extend(0_u16.to_be_bytes());
    bytes.extend(0_u32.to_be_bytes());
    if role == 2 {
        bytes.extend(1_u16.to_be_bytes());
        short(&mut bytes, CHANNEL.as_bytes());
        bytes.extend(100_u16.to_be_bytes());
    } else {
        bytes.extend(0_u16.to_be_bytes());
    }
    bytes.extend(0_u32.to_be_bytes());
    bytes
}

fn receive(socket: &zmq::Socket) -> Option<Frames> {
    let mut record = Vec::new();
    let mut frame = zmq::Message::new();
    loop {
        match socket.recv(&mut frame, zmq::DONTWAIT) {
            Ok(()) => record.push(frame.to_vec()),
            Err(zmq::Error::EAGAIN) => return None,
            Err(error) => panic!("{error}"),
        }
        if !frame.get_more() {
            return Some(record);
        }
    }
}

/// A foreign client: one DEALER, and nothing said or answered but what a test says.
pub struct RawClient {
    socket: zmq::Socket,
}

impl RawClient {
    pub fn dial(context: &zmq::Context, server: &Endpoint) -> Self {
        let socket = context.socket(zmq::DEALER).unwrap();
        socket.set_linger(0).unwrap();
        socket.set_sndhwm(0).unwrap();
        socket.connect(&server.to_string()).unwrap();
        Self { socket }
    }

    /// Dials, is admitted, and sends its first probe; done when `node` has it ready.
    pub fn enter(context: &zmq::Context, server: &Endpoint, node: &mut Node, rid: &str) -> Self {
        let raw = Self::dial(context, server);
        raw.hello(rid, 1);
        raw.complete(node);
        raw
    }

    pub fn hello(&self, rid: &str, generation: u64) {
        self.send(&[&admission(HELLO, 1, rid, generation, 77, "")]);
    }

    /// Waits for the admit, sends its first probe, and waits until `node` tells of one more peer that is ready.
    pub fn complete(&self, node: &mut Node) {
        let ready = |node: &Node| {
            node.inbox.events.iter().filter(|event| matches!(event, Owned::Ready { .. })).count()
        };
        let before = ready(node);
        until(&mut [node], "an admit", |_| self.receive().is_some_and(|record| command(&record) == ADMIT));
        self.send(&[&check(PROBE, 1)]);
        until(&mut [node], "ready", |nodes| ready(nodes[0]) > before);
    }

    pub fn send(&self, frames: &[&[u8]]) {
        self.socket.send_multipart(frames, zmq::DONTWAIT).unwrap();
    }

    pub fn message(&self, text: &str) {
        self.send(&[&channel_send(), text.as_bytes()]);
    }

    pub fn receive(&self) -> Option<Frames> {
        receive(&self.socket)
    }

    /// Reads all that came; the probes among it.
    pub fn probes(&self) -> Vec<u64> {
        std::iter::from_fn(|| self.receive())
            .filter(|record| command(record) == PROBE)
            .map(|record| number(&record))
            .collect()
    }

    /// Reads all that came and answers every probe, as a healthy peer does; how many there were.
    pub fn answer(&self) -> usize {
        let probes = self.probes();
        for id in &probes {
            self.send(&[&check(ACK, *id)]);
        }
        probes.len()
    }

    /// Lets go of the socket once all it has sent has left.
    pub fn leave(self) {
        self.socket.set_linger(-1).unwrap();
    }
}

/// A foreign server for one client: one bound ROUTER, and nothing said or answered but what a test says.
pub struct RawServer {
    socket: zmq::Socket,
    pub endpoint: Endpoint,
    /// The connection that last spoke.
    route: Vec<u8>,
}

impl RawServer {
    pub fn listen(context: &zmq::Context) -> Self {
        let socket = context.socket(zmq::ROUTER).unwrap();
        socket.set_identity(b"A").unwrap();
        socket.set_linger(0).unwrap();
        socket.set_router_mandatory(true).unwrap();
        socket.bind("tcp://127.0.0.1:*").unwrap();
        let bound = socket.get_last_endpoint().unwrap().unwrap();
        Self { socket, endpoint: bound.parse().unwrap(), route: Vec::new() }
    }

    pub fn receive(&mut self) -> Option<Frames> {
        let mut record = receive(&self.socket)?;
        self.route = record.remove(0);
        Some(record)
    }

    pub fn send(&self, frames: &[&[u8]]) {
        let frames = [&[self.route.as_slice()], frames].concat();
        self.socket.send_multipart(frames, zmq::DONTWAIT).unwrap();
    }

    /// Waits for a client's hello and admits it; done when the client has it ready.
    pub fn admit(&mut self, client: &mut Node) {
        let mut hello = None;
        until(&mut [client], "a hello", |_| {
            // What an earlier connection left unread comes first.
            hello = std::iter::from_fn(|| self.receive()).find(|record| command(record) == HELLO);
            hello.is_some()
        });
        let hello = hello.unwrap();
        let admit = self.admit_bytes(&hello);
        self.send(&[&admit]);
        until(&mut [client], "ready", |nodes| nodes[0].ready_peers() == 1);
    }

    fn admit_bytes(&self, hello: &Frames) -> Vec<u8> {
        let body = &hello[0][9..];
        let rid_at = 1 + usize::from(body[0]);
        let pair_at = rid_at + 1 + usize::from(body[rid_at]) + 16;
        let pair = u64::from_be_bytes(body[pair_at..pair_at + 8].try_into().unwrap());
        admission(ADMIT, 2, "server", 9, pair, &self.endpoint.to_string())
    }

    /// Reads all that came; the probes among it.
    pub fn probes(&mut self) -> Vec<u64> {
        std::iter::from_fn(|| self.receive())
            .filter(|record| command(record) == PROBE)
            .map(|record| number(&record))
            .collect()
    }

    /// Reads until a request comes, answering every probe; its correlation.
    pub fn request(&mut self, client: &mut Node) -> u64 {
        let mut correlation = None;
        until(&mut [client], "a request", |_| {
            while let Some(record) = self.receive() {
                match command(&record) {
                    PROBE => self.send(&[&check(ACK, number(&record))]),
                    REQUEST => {
                        correlation = Some(number(&record));
                        return true;
                    }
                    _ => {}
                }
            }
            false
        });
        correlation.unwrap()
    }
}
