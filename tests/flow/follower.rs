//! A host that does what the contract asks of it and nothing more: it turns when the descriptor is readable, when
//! `next_due` has come, and when the last report said that work is left. A turn by luck would hide a lost wake-up, so
//! this one has none.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use wakeful::{Client, Config, Endpoint, Engine, Event, Host, Outbox, Report, Server};

use crate::support::*;

/// How the host waits on the descriptor, which is itself a poller: nested, then, in a poller of the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    Edge,
    Level,
}

/// Why a turn came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    WorkLeft,
    Due,
    Descriptor,
}

pub struct Follower<H> {
    pub engine: Engine,
    pub host: H,
    /// The time of every turn. It moves only by [`Follower::now`] being set, so that nothing is ever due by luck.
    pub now: Instant,
    trigger: Trigger,
    poll: Poll,
    events: Events,
    /// An edge was seen and not yet answered with a turn.
    edge: bool,
    last: Option<Report>,
}

impl<H: Host> Follower<H> {
    pub fn new(config: Config, trigger: Trigger, host: H) -> Self {
        let engine = Engine::new(config).unwrap();
        let poll = Poll::new().unwrap();
        let fd = engine.as_raw_fd();
        poll.registry().register(&mut SourceFd(&fd), Token(0), Interest::READABLE).unwrap();
        let (now, events) = (Instant::now(), Events::with_capacity(4));
        // A host turns once to begin with.
        Self { engine, host, now, trigger, poll, events, edge: true, last: None }
    }

    pub fn serve(&mut self, name: &str) -> Endpoint {
        let server = Server::new(channel(), rid(name), "tcp://127.0.0.1:0".parse().unwrap());
        Endpoint::try_from(&self.engine.serve(server).unwrap()).unwrap()
    }

    pub fn connect(&mut self, name: &str, servers: &[Endpoint]) {
        let client = Client::new(channel(), rid(name));
        let client = servers.iter().fold(client, |client, server| client.server(server.clone()));
        self.engine.connect(client).unwrap();
    }

    /// Whether the descriptor is readable, without waiting. An edge is remembered until the next turn.
    pub fn look(&mut self) -> bool {
        self.wait(Duration::ZERO)
    }

    fn wait(&mut self, span: Duration) -> bool {
        match self.trigger {
            Trigger::Edge => {
                let span = if self.edge { Duration::ZERO } else { span };
                self.poll.poll(&mut self.events, Some(span)).unwrap();
                self.edge |= !self.events.is_empty();
                self.edge
            }
            Trigger::Level => {
                let mut item = [zmq::PollItem::from_fd(self.engine.as_raw_fd(), zmq::POLLIN)];
                zmq::poll(&mut item, span.as_millis() as i64).unwrap() > 0 || std::mem::take(&mut self.edge)
            }
        }
    }

    /// One turn, asked for or not.
    pub fn turn(&mut self) -> Report {
        self.edge = false;
        let report = self.engine.turn_at(self.now, &mut self.host);
        self.last = Some(report);
        report
    }

    /// One turn if the contract asks for one, after waiting up to `span` for the descriptor.
    pub fn follow(&mut self, span: Duration) -> Option<Cause> {
        let cause = match self.last {
            Some(report) if report.work_left => Cause::WorkLeft,
            Some(Report { next: Some(next), .. }) if next.at <= self.now => Cause::Due,
            _ => {
                if !self.wait(span) {
                    return None;
                }
                Cause::Descriptor
            }
        };
        self.turn();
        Some(cause)
    }
}

/// Follows every node until `done` says so. Panics if nobody has had a reason to turn for 2 s before that: then something
/// is stranded.
pub fn follow_until<H: Host>(
    nodes: &mut [Follower<H>],
    what: &str,
    mut done: impl FnMut(&mut [Follower<H>]) -> bool,
) {
    let mut last = Instant::now();
    while !done(nodes) {
        if follow_each(nodes) {
            last = Instant::now();
        }
        assert!(last.elapsed() < s(2), "stranded: {what}");
    }
}

/// Follows every node until none has had a reason to turn for a while.
pub fn rest<H: Host>(nodes: &mut [Follower<H>]) {
    let mut last = Instant::now();
    while last.elapsed() < ms(60) {
        if follow_each(nodes) {
            last = Instant::now();
        }
    }
}

fn follow_each<H: Host>(nodes: &mut [Follower<H>]) -> bool {
    let mut turned = false;
    for node in &mut *nodes {
        turned |= node.follow(Duration::ZERO).is_some();
    }
    if !turned {
        // Somebody has something to say before long; who it is does not matter.
        nodes[0].wait(ms(1));
    }
    turned
}

/// A host that only counts its messages, by peer.
#[derive(Default)]
pub struct Counts {
    /// The name of each message's sender, in order.
    pub from: Vec<Vec<u8>>,
    pub ready: usize,
}

impl Host for Counts {
    fn on_event(&mut self, event: Event<'_>, _: &mut Outbox<'_>) {
        match event {
            Event::Ready { .. } => self.ready += 1,
            Event::Message { peer, .. } => self.from.push(peer.rid().as_bytes().to_vec()),
            Event::Lost { peer, reason } => panic!("lost {peer:?}: {reason:?}"),
            _ => {}
        }
    }
}
