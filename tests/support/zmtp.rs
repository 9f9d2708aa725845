//! Peers below ZeroMQ: ZMTP 3.0 written by hand on a bare TCP stream, so that a test can say what no socket of libzmq would.

#![allow(dead_code, reason = "no test file uses all of it")]

use std::io::{Read, Result, Write};
use std::net::{TcpListener, TcpStream};

use wakeful::Endpoint;

use crate::support::{Node, ms, s, until};

/// What either side begins with: ZMTP 3.0, without security.
pub fn greeting() -> Vec<u8> {
    let mut greeting = vec![0; 64];
    (greeting[0], greeting[9], greeting[10]) = (0xFF, 0x7F, 3);
    greeting[12..16].copy_from_slice(b"NULL");
    greeting
}

/// The command that ends the handshake of a socket of this kind.
pub fn ready(kind: &str, routing_id: &[u8]) -> Vec<u8> {
    let property = |name: &str, value: &[u8]| {
        let length = (value.len() as u32).to_be_bytes();
        [&[name.len() as u8], name.as_bytes(), &length, value].concat()
    };
    let body =
        [b"\x05READY", &property("Socket-Type", kind.as_bytes())[..], &property("Identity", routing_id)];
    let body = body.concat();
    [&[4, body.len() as u8], &body[..]].concat()
}

/// A message of these frames.
pub fn record(frames: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (at, frame) in frames.iter().enumerate() {
        let more = u8::from(at + 1 < frames.len());
        bytes.extend(large(more, frame.len() as u64));
        bytes.extend(*frame);
    }
    bytes
}

/// The head of a frame that says it is this long.
pub fn large(flags: u8, length: u64) -> Vec<u8> {
    [&[flags | 2][..], &length.to_be_bytes()].concat()
}

/// Shakes hands as a socket of this kind, and waits for the other side to have done so too.
pub fn shake_hands(stream: &mut TcpStream, kind: &str, routing_id: &[u8]) -> Result<()> {
    stream.set_read_timeout(Some(s(5)))?;
    stream.write_all(&[greeting(), ready(kind, routing_id)].concat())?;
    let mut answer = [0; 66];
    stream.read_exact(&mut answer)?;
    stream.read_exact(&mut vec![0; usize::from(answer[65])])
}

/// Whether the other side ends the connection, within 5 s; whatever it says before is read.
pub fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(s(5))).unwrap();
    let end = stream.read_to_end(&mut Vec::new());
    !end.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

/// Connects to an engine's endpoint.
pub fn connect(endpoint: &Endpoint) -> TcpStream {
    TcpStream::connect(endpoint.as_str().strip_prefix("tcp://").unwrap()).unwrap()
}

/// A port that somebody listens at who need not know ZeroMQ.
pub struct Trap {
    listener: TcpListener,
    pub endpoint: Endpoint,
}

impl Trap {
    pub fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let endpoint = format!("tcp://{}", listener.local_addr().unwrap()).parse().unwrap();
        Self { listener, endpoint }
    }

    /// The next connection; time passes for the engine until it dials.
    pub fn caught(&self, node: &mut Node) -> TcpStream {
        let mut stream = None;
        until(&mut [node], "dialled", |nodes| {
            stream = self.listener.accept().ok();
            nodes[0].now += ms(if stream.is_some() { 0 } else { 5 });
            stream.is_some()
        });
        let stream = stream.unwrap().0;
        stream.set_nonblocking(false).unwrap();
        stream
    }

    /// The next connection, which takes this end for a publisher.
    pub fn met(&self, node: &mut Node) -> TcpStream {
        let mut stream = self.caught(node);
        shake_hands(&mut stream, "PUB", b"").unwrap();
        stream
    }
}
