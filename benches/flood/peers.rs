//! What all threads of a run share, and the flooders: bare ZeroMQ sockets, each with a context of its own.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::support::{CHANNEL, Part, be, wire};

/// How long a flooding publisher rests after a burst.
const REST: Duration = Duration::from_micros(100);
const PATIENCE: Duration = Duration::from_secs(20);

/// Where a run is, for all its threads.
pub struct Stage {
    epoch: Instant,
    phase: AtomicUsize,
    ready: AtomicUsize,
    measured_from: AtomicU64,
}

pub const SETUP: usize = 0;
pub const FLOOD: usize = 1;
pub const MEASURE: usize = 2;
pub const STOP: usize = 3;

impl Stage {
    pub fn new() -> Self {
        let (phase, ready) = (AtomicUsize::new(SETUP), AtomicUsize::new(0));
        Self { epoch: Instant::now(), phase, ready, measured_from: AtomicU64::new(u64::MAX) }
    }

    /// Nanoseconds since the run began.
    pub fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    pub fn is(&self, phase: usize) -> bool {
        self.phase.load(Relaxed) == phase
    }

    /// What was sent since then counts.
    pub fn counts(&self, sent: u64) -> bool {
        sent >= self.measured_from.load(Relaxed)
    }

    pub fn next(&self, phase: usize) {
        if phase == MEASURE {
            self.measured_from.store(self.now(), Relaxed);
        }
        self.phase.store(phase, Relaxed);
    }

    /// One more peer has all it needs.
    pub fn is_ready(&self) {
        self.ready.fetch_add(1, Relaxed);
    }

    pub fn await_ready(&self, count: usize) {
        let begin = Instant::now();
        while self.ready.load(Relaxed) < count {
            assert!(begin.elapsed() < PATIENCE, "{} of {count} are ready", self.ready.load(Relaxed));
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Whether somebody has just subscribed to everything at an XPUB.
pub fn has_subscriber(publisher: &zmq::Socket) -> bool {
    let mut frame = zmq::Message::new();
    while publisher.recv(&mut frame, zmq::DONTWAIT).is_ok() {
        if frame[..] == [1] {
            return true;
        }
    }
    false
}

pub fn socket(context: &zmq::Context, kind: zmq::SocketType, hwm: i32) -> zmq::Socket {
    let socket = context.socket(kind).unwrap();
    socket.set_sndhwm(hwm).unwrap();
    socket.set_rcvhwm(hwm).unwrap();
    socket.set_linger(0).unwrap();
    socket
}

pub fn bound(context: &zmq::Context, kind: zmq::SocketType, hwm: i32) -> (zmq::Socket, String) {
    let socket = socket(context, kind, hwm);
    if kind == zmq::ROUTER {
        socket.set_identity(b"A").unwrap();
        socket.set_router_mandatory(true).unwrap();
    }
    socket.bind("tcp://127.0.0.1:*").unwrap();
    let endpoint = socket.get_last_endpoint().unwrap().unwrap();
    (socket, endpoint)
}

/// What floods: a client's DEALER, or a publisher. It knows no pause but that of its full pipe.
pub struct Flooder {
    _context: zmq::Context,
    socket: zmq::Socket,
    number: u8,
    bytes: usize,
    is_publisher: bool,
}

impl Flooder {
    pub fn client(server: &str, number: u8, bytes: usize, hwm: i32) -> Self {
        be(Part::Flooder);
        let context = zmq::Context::new();
        let socket = socket(&context, zmq::DEALER, hwm);
        socket.connect(server).unwrap();
        Self { _context: context, socket, number, bytes, is_publisher: false }
    }

    pub fn publisher(number: u8, bytes: usize, hwm: i32) -> (Self, String) {
        be(Part::Flooder);
        let context = zmq::Context::new();
        let (socket, endpoint) = bound(&context, zmq::XPUB, hwm);
        (Self { _context: context, socket, number, bytes, is_publisher: true }, endpoint)
    }

    pub fn run(self, stage: &Stage) {
        be(Part::Flooder);
        let mut payload = vec![0; self.bytes];
        payload[0] = self.number;
        if self.is_publisher {
            return self.publish(stage, &payload);
        }
        self.socket.send(wire::hello(CHANNEL, &format!("flooder-{}", self.number)), 0).unwrap();
        let head = wire::message(CHANNEL);
        let mut owed: VecDeque<Vec<u8>> = VecDeque::new();
        let mut frame = zmq::Message::new();
        let mut is_ready = false;
        let mut sent = 0_u64;
        while !stage.is(STOP) {
            if sent % 64 == 0 || !is_ready {
                while self.socket.recv(&mut frame, zmq::DONTWAIT).is_ok() {
                    match wire::command(&frame) {
                        wire::ADMIT => owed.push_back(wire::probe(1)),
                        wire::PROBE => owed.push_back(wire::ack(&frame)),
                        wire::ACK if !is_ready => {
                            is_ready = true;
                            stage.is_ready();
                        }
                        _ => {}
                    }
                }
            }
            let took = match owed.front() {
                Some(record) => {
                    self.socket.send(record, zmq::DONTWAIT).is_ok_and(|()| owed.pop_front().is_some())
                }
                None if !is_ready || stage.is(SETUP) => {
                    self.socket.poll(zmq::POLLIN, 1).unwrap();
                    continue;
                }
                None => {
                    let first = self.socket.send(&head, zmq::DONTWAIT | zmq::SNDMORE);
                    first.is_ok_and(|()| self.socket.send(&payload, 0).is_ok())
                }
            };
            if took {
                sent += 1;
            } else {
                sent = 0;
                self.socket.poll(zmq::POLLOUT | zmq::POLLIN, 10).unwrap();
            }
        }
    }
}

impl Flooder {
    /// A publisher drops what its subscriber has no room for. So that it does not take a processor for dropping, it rests
    /// for 0.1 ms after each burst.
    fn publish(&self, stage: &Stage, payload: &[u8]) {
        while !stage.is(STOP) && !has_subscriber(&self.socket) {
            self.socket.poll(zmq::POLLIN, 10).unwrap();
        }
        stage.is_ready();
        let burst = if self.bytes > 1 << 16 { 4 } else { 500 };
        while !stage.is(STOP) {
            for _ in 0..if stage.is(SETUP) { 0 } else { burst } {
                self.socket.send(&b"flood"[..], zmq::SNDMORE).unwrap();
                self.socket.send(payload, 0).unwrap();
            }
            std::thread::sleep(REST);
        }
    }
}
