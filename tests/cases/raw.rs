//! Peers that share no code with the engine: WIRE.md by hand over plain ZeroMQ sockets.

use wakeful::{Endpoint, Owned};

use crate::support::raw::CHANNEL_REQUEST;
pub use crate::support::raw::{ACK, ADMIT, HELLO, PROBE, REJECT};
use crate::support::raw::{Admission, channel_send, head, receive};
use crate::support::*;

/// One record: its head and its parts.
pub type Frames = Vec<Vec<u8>>;

/// What a record is, by its head.
pub fn command(record: &Frames) -> u8 {
    assert_eq!(record[0][..3], [0x5A, 0x4D, 1], "a head opens with its magic and major");
    record[0][3]
}

/// The u64 that follows the head of a probe, an ACK, a request and a reply.
pub fn number(record: &Frames) -> u64 {
    u64::from_be_bytes(record[0][5..13].try_into().unwrap())
}

/// The head of a probe or an ACK.
pub fn check(command: u8, id: u64) -> Vec<u8> {
    head(command, &id.to_be_bytes())
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
        let hello = Admission { generation, pair: 77, ..Admission::client(rid) };
        self.send(&[&head(HELLO, &hello.bytes())]);
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
        self.send(&[&channel_send(CHANNEL), text.as_bytes()]);
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
        let pair = Admission::read(&hello.unwrap()[0][5..]).pair;
        let admit = Admission { generation: 9, ..Admission::server("server", self.endpoint.as_str(), pair) };
        self.send(&[&head(ADMIT, &admit.bytes())]);
        until(&mut [client], "ready", |nodes| nodes[0].ready_peers() == 1);
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
                    CHANNEL_REQUEST => {
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
