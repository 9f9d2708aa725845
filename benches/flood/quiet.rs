//! Quiet peers: bare ZeroMQ sockets that probe, send messages and answer, and time what they see of the host.

use std::collections::VecDeque;
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use super::peers::{SETUP, STOP, Stage, bound, has_subscriber, socket};
use super::support::histogram::Histogram;
use super::support::{CHANNEL, Part, be, wire};

/// The first byte of a payload says whose it is: flooders from 0, quiet peers from here.
pub const QUIET: u8 = 128;
/// How often a quiet peer probes.
const PROBE_EVERY: Duration = Duration::from_millis(20);

/// Quiet peers, all in one thread: each probes the host every 20 ms, and sends messages.
pub struct QuietPeers {
    _context: zmq::Context,
    peers: Vec<Quiet>,
}

struct Quiet {
    number: u8,
    socket: zmq::Socket,
    /// A server's messages are published, because a server sends nothing of its own.
    publisher: Option<zmq::Socket>,
    /// By which a server addresses the host.
    route: Vec<u8>,
    endpoint: String,
    is_ready: bool,
    is_heard: bool,
    /// Nanoseconds.
    message_every: u64,
    next_probe: u64,
    next_message: u64,
    /// When the probes went out that are not answered yet.
    asked: VecDeque<u64>,
}

/// What the quiet peers saw of the host.
#[derive(Default)]
pub struct Seen {
    /// From each probe to its ACK; for what was not answered at the end, until the end.
    pub round_trips: Histogram,
    pub unanswered: u64,
}

impl QuietPeers {
    pub fn clients(server: &str, count: u8, hwm: i32) -> Self {
        be(Part::QuietPeer);
        let context = zmq::Context::new();
        let peers = (0..count).map(|number| {
            let socket = socket(&context, zmq::DEALER, hwm);
            socket.connect(server).unwrap();
            socket.send(wire::hello(CHANNEL, &format!("quiet-{number}")), 0).unwrap();
            Quiet::new(number, socket, None, String::new())
        });
        Self { peers: peers.collect(), _context: context }
    }

    /// Servers, and a publisher beside each: where the servers listen, and where the publishers do.
    pub fn servers(count: u8, hwm: i32) -> (Self, Vec<String>, Vec<String>) {
        be(Part::QuietPeer);
        let context = zmq::Context::new();
        let (mut peers, mut servers, mut publishers) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..count {
            let (socket, endpoint) = bound(&context, zmq::ROUTER, hwm);
            let (publisher, heard_at) = bound(&context, zmq::XPUB, hwm);
            peers.push(Quiet::new(number, socket, Some(publisher), endpoint.clone()));
            servers.push(endpoint);
            publishers.push(heard_at);
        }
        (Self { peers, _context: context }, servers, publishers)
    }

    /// Speaks and listens until the end. Each sends a message so often.
    pub fn run(mut self, stage: &Stage, message_every: Duration) -> Seen {
        let message_every = message_every.as_nanos() as u64;
        be(Part::QuietPeer);
        let mut seen = Seen::default();
        let mut alarm = Alarm::new(&self.peers);
        let mut started = false;
        while !stage.is(STOP) {
            let now = stage.now();
            if !started && !stage.is(SETUP) {
                started = true;
                let count = self.peers.len() as u64;
                for (number, peer) in self.peers.iter_mut().enumerate() {
                    // They do not all speak at once. A publisher alone has nobody to probe.
                    if peer.is_ready {
                        peer.next_probe = now + PROBE_EVERY.as_nanos() as u64 * number as u64 / count;
                    }
                    peer.message_every = message_every;
                    peer.next_message = now + message_every * number as u64 / count;
                }
            }
            for peer in &mut self.peers {
                peer.speak(stage);
                peer.listen(stage, &mut seen);
            }
            let next = self.peers.iter().map(|peer| peer.next_probe.min(peer.next_message)).min();
            let nanos = next.unwrap_or(u64::MAX).saturating_sub(stage.now()).min(10_000_000);
            if nanos > 0 && !self.peers.iter().any(Quiet::has_input) {
                alarm.sleep(nanos);
            }
        }
        for peer in &self.peers {
            for &sent in peer.asked.iter().filter(|&&sent| stage.counts(sent)) {
                seen.unanswered += 1;
                seen.round_trips.add(Duration::from_nanos(stage.now() - sent));
            }
        }
        seen
    }
}

impl Quiet {
    fn new(number: u8, socket: zmq::Socket, publisher: Option<zmq::Socket>, endpoint: String) -> Self {
        let (next_probe, next_message) = (u64::MAX, u64::MAX);
        Self {
            number,
            socket,
            publisher,
            route: Vec::new(),
            endpoint,
            is_ready: false,
            is_heard: false,
            message_every: 0,
            next_probe,
            next_message,
            asked: VecDeque::new(),
        }
    }

    fn has_input(&self) -> bool {
        self.socket.get_events().unwrap().contains(zmq::POLLIN)
    }

    fn send(&self, frames: &[&[u8]]) -> bool {
        let route = if self.route.is_empty() { None } else { Some(&self.route[..]) };
        self.socket.send_multipart(route.into_iter().chain(frames.iter().copied()), zmq::DONTWAIT).is_ok()
    }

    /// Sends what is due. A probe's number is when it went out; a message says when it was to be sent.
    fn speak(&mut self, stage: &Stage) {
        let now = stage.now();
        if now >= self.next_probe {
            self.next_probe += PROBE_EVERY.as_nanos() as u64;
            if self.send(&[&wire::probe(now)]) {
                self.asked.push_back(now);
            }
        }
        if now >= self.next_message {
            let mut payload = [0; 64];
            payload[0] = QUIET + self.number;
            payload[1..9].copy_from_slice(&self.next_message.to_be_bytes());
            self.next_message += self.message_every;
            match &self.publisher {
                Some(publisher) => {
                    publisher.send(&b"quiet"[..], zmq::SNDMORE).unwrap();
                    publisher.send(&payload[..], 0).unwrap();
                }
                None => drop(self.send(&[&wire::message(CHANNEL), &payload])),
            }
        }
    }

    fn listen(&mut self, stage: &Stage, seen: &mut Seen) {
        if !self.is_heard && self.publisher.as_ref().is_some_and(has_subscriber) {
            self.is_heard = true;
            stage.is_ready();
        }
        let mut frame = zmq::Message::new();
        while self.socket.recv(&mut frame, zmq::DONTWAIT).is_ok() {
            if frame.get_more() {
                self.route = frame.to_vec();
                continue;
            }
            match wire::command(&frame) {
                wire::HELLO => {
                    let rid = format!("quiet-{}", self.number);
                    self.send(&[&wire::admit(CHANNEL, &rid, &self.endpoint, &frame)]);
                }
                wire::ADMIT => drop(self.send(&[&wire::probe(1)])),
                wire::PROBE => {
                    self.send(&[&wire::ack(&frame)]);
                    // A server is ready when it is asked, a client when it is answered.
                    self.greet(stage, !self.endpoint.is_empty());
                }
                wire::ACK => {
                    self.greet(stage, true);
                    let sent = wire::id(&frame);
                    self.asked.retain(|&asked| asked != sent);
                    if stage.counts(sent) {
                        seen.round_trips.add(Duration::from_nanos(stage.now() - sent));
                    }
                }
                _ => {}
            }
        }
    }

    fn greet(&mut self, stage: &Stage, is_ready: bool) {
        if is_ready && !self.is_ready {
            self.is_ready = true;
            stage.is_ready();
        }
    }
}

/// Sleeps to the microsecond, which ZeroMQ's own poll cannot.
struct Alarm {
    poll: Poll,
    timer: OwnedFd,
    events: Events,
}

impl Alarm {
    fn new(peers: &[Quiet]) -> Self {
        let poll = Poll::new().unwrap();
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).unwrap();
        let sockets = peers.iter().map(|peer| peer.socket.get_fd().unwrap());
        for (number, descriptor) in sockets.chain([timer.as_raw_fd()]).enumerate() {
            let mut source = SourceFd(&descriptor);
            poll.registry().register(&mut source, Token(number), Interest::READABLE).unwrap();
        }
        Self { poll, timer, events: Events::with_capacity(64) }
    }

    /// So many nanoseconds, less if a socket has something to say.
    fn sleep(&mut self, nanos: u64) {
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value = Timespec::try_from(Duration::from_nanos(nanos)).unwrap();
        let time = Itimerspec { it_interval, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &time).unwrap();
        let _ = self.poll.poll(&mut self.events, Some(Duration::from_millis(20)));
    }
}
