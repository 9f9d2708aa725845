//! A foreign peer: WIRE.md's bytes, written by hand, over libzmq's own sockets.

use std::collections::VecDeque;

use wakeful::Endpoint;

use crate::support::raw;

pub use crate::support::raw::{
    ACK, ADMIT, CHANNEL_SEND as SEND, HELLO, NODE_REQUEST, NODE_SEND, PROBE, REJECT, REPLY, UPDATE,
    channel_request as request_head, channel_send as send_head, head, reply as reply_head,
};

/// The frames of one record.
pub type Frames = Vec<Vec<u8>>;

/// What stands in hello, admit and update; every field can be set to what no decent peer would say.
#[derive(Debug, Clone)]
pub struct Admission {
    pub topology: u8,
    pub lane: u8,
    pub role: u8,
    pub state: u8,
    pub name: Vec<u8>,
    pub rid: Vec<u8>,
    pub generation: u64,
    pub revision: u64,
    pub pair: u64,
    pub security: Vec<u8>,
    pub endpoint: Vec<u8>,
    pub completion: Vec<u8>,
    pub max_message: u32,
    pub channels: Vec<(Vec<u8>, u16)>,
    pub extensions: Vec<u8>,
}

impl Admission {
    /// What a decent client says.
    pub fn client(channel: &str, rid: &str) -> Self {
        Self {
            topology: 2,
            lane: 1,
            role: 1,
            state: 1,
            name: channel.into(),
            rid: rid.into(),
            generation: 77,
            revision: 5,
            pair: 99,
            security: b"nobody".into(),
            endpoint: Vec::new(),
            completion: Vec::new(),
            max_message: 0,
            channels: Vec::new(),
            extensions: Vec::new(),
        }
    }

    /// What a decent server says to a dialler that drew this pair.
    pub fn server(channel: &str, rid: &str, pair: u64) -> Self {
        let channels = vec![(channel.into(), 100)];
        Self { role: 2, pair, channels, ..Self::client(channel, rid) }
    }

    /// The same with one thing changed.
    pub fn but(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut changed = self.clone();
        change(&mut changed);
        changed
    }

    pub fn head(&self, command: u8) -> Vec<u8> {
        let mut body = vec![self.topology, self.lane, self.role, self.state];
        let bytes8 = |bytes: &[u8]| [&[bytes.len() as u8], bytes].concat();
        let text16 = |text: &[u8]| [&(text.len() as u16).to_be_bytes(), text].concat();
        body.extend(bytes8(&self.name));
        body.extend(bytes8(&self.rid));
        body.extend([self.generation, self.revision, self.pair].map(u64::to_be_bytes).concat());
        body.extend(bytes8(&self.security));
        body.extend(text16(&self.endpoint));
        body.extend(text16(&self.completion));
        body.extend(self.max_message.to_be_bytes());
        body.extend((self.channels.len() as u16).to_be_bytes());
        for (name, weight) in &self.channels {
            body.extend(bytes8(name));
            body.extend(weight.to_be_bytes());
        }
        body.extend((self.extensions.len() as u32).to_be_bytes());
        body.extend(&self.extensions);
        head(command, &body)
    }

    pub fn hello(&self) -> Frames {
        vec![self.head(HELLO)]
    }
}

pub fn probe(id: u64) -> Frames {
    vec![raw::probe(id)]
}

pub fn ack(id: u64) -> Frames {
    vec![raw::ack(id)]
}

pub fn reject(reason: u32) -> Frames {
    vec![raw::reject(reason)]
}

pub fn send(channel: &str, text: &str) -> Frames {
    vec![send_head(channel), text.into()]
}

/// The reason, if this is a reject.
pub fn reason_of(frames: &[Vec<u8>]) -> Option<u32> {
    match frames {
        [head] if head.len() == 9 && head[..5] == [0x5A, 0x4D, 1, REJECT, 0] => {
            Some(u32::from_be_bytes(head[5..].try_into().unwrap()))
        }
        _ => None,
    }
}

/// The command byte.
pub fn command_of(frames: &[Vec<u8>]) -> u8 {
    frames[0][3]
}

/// One libzmq socket of a stranger.
pub struct Stranger {
    socket: zmq::Socket,
    pub received: VecDeque<Frames>,
}

impl Stranger {
    /// A DEALER that dials, with a routing id of its own choice if it wants one.
    pub fn dial(context: &zmq::Context, endpoint: &Endpoint, routing_id: Option<&[u8]>) -> Self {
        let socket = context.socket(zmq::DEALER).unwrap();
        socket.set_linger(0).unwrap();
        if let Some(id) = routing_id {
            socket.set_identity(id).unwrap();
        }
        socket.connect(endpoint.as_str()).unwrap();
        Self { socket, received: VecDeque::new() }
    }

    /// A ROUTER that listens where it says.
    pub fn listen(context: &zmq::Context) -> (Self, Endpoint) {
        let socket = context.socket(zmq::ROUTER).unwrap();
        socket.set_linger(0).unwrap();
        socket.set_identity(b"A").unwrap();
        socket.set_router_mandatory(true).unwrap();
        socket.bind("tcp://127.0.0.1:*").unwrap();
        let endpoint = socket.get_last_endpoint().unwrap().unwrap().parse().unwrap();
        (Self { socket, received: VecDeque::new() }, endpoint)
    }

    /// Sends one record; false if there is no room now, or nobody there.
    pub fn send<F: AsRef<[u8]>>(&self, frames: &[F]) -> bool {
        let last = frames.len() - 1;
        frames.iter().enumerate().all(|(at, frame)| {
            let more = if at < last { zmq::SNDMORE } else { 0 };
            self.socket.send(frame.as_ref(), zmq::DONTWAIT | more).is_ok()
        })
    }

    /// Closes when all that was sent has left.
    pub fn leave(self) {
        self.socket.set_linger(5_000).unwrap();
    }

    /// Takes in everything that has come.
    pub fn read(&mut self) {
        let mut frame = zmq::Message::new();
        while self.socket.recv(&mut frame, zmq::DONTWAIT).is_ok() {
            let mut frames = vec![frame.to_vec()];
            while frame.get_more() {
                self.socket.recv(&mut frame, 0).unwrap();
                frames.push(frame.to_vec());
            }
            self.received.push_back(frames);
        }
    }

    /// The number of the first reject that has come; what came before it is forgotten.
    pub fn rejected(&mut self) -> Option<u32> {
        self.read();
        while let Some(frames) = self.received.pop_front() {
            if let Some(reason) = reason_of(&frames) {
                return Some(reason);
            }
        }
        None
    }

    /// Whether a record with this command has come; what came before it is forgotten.
    pub fn got(&mut self, command: u8) -> Option<Frames> {
        self.read();
        while let Some(frames) = self.received.pop_front() {
            if command_of(&frames) == command {
                return Some(frames);
            }
        }
        None
    }
}
