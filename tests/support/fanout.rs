//! What the tests of the fanout share: a raw publisher and a raw subscriber, whose bytes are written by hand from WIRE.md,
//! and one subscribing engine between raw publishers, with a diary of what its host heard at which virtual time.

#![allow(dead_code, reason = "no test file uses all of it")]
#![allow(clippy::disallowed_methods, reason = "a test on real sockets bounds its waits in real time")]

use std::time::{Duration, Instant};

use wakeful::{
    ChannelName, Endpoint, LostReason, Owned, Publisher, RouteState, Snapshot, Source, SourceStatus,
    Subscriber,
};

use crate::support::{Node, ms, s};

/// The topic of the beacon, and its one payload frame.
pub const TOPIC: &[u8] = &[0x01, 0x5A, 0x4C, 0x46, 0x31];
pub const PAYLOAD: &[u8] = &[0x5A, 0x46, 0x01, 0x01];

pub type Record = Vec<Vec<u8>>;

pub fn ticks() -> ChannelName {
    ChannelName::new("ticks").unwrap()
}

/// A publishing engine; returns where it publishes.
pub fn publisher_node() -> (Node, Endpoint) {
    let mut node = Node::new();
    // The grid of its beacons begins in the last turn before.
    node.turn();
    let bound = node.engine.broadcast(Publisher::new(ticks(), "tcp://127.0.0.1:0".parse().unwrap())).unwrap();
    (node, Endpoint::try_from(&bound).unwrap())
}

/// A plain publisher. It is an XPUB, which can tell who subscribes to what.
pub struct RawPublisher {
    socket: zmq::Socket,
    pub endpoint: Endpoint,
    /// Each subscription (1, then the prefix) and each end of one (0, then the prefix).
    pub asked: Record,
}

impl RawPublisher {
    pub fn new() -> Self {
        Self::at("tcp://127.0.0.1:*")
    }

    pub fn at(endpoint: &str) -> Self {
        Self::of(&zmq::Context::new(), endpoint)
    }

    /// One of many that share a context.
    pub fn among(context: &zmq::Context) -> Self {
        Self::of(context, "tcp://127.0.0.1:*")
    }

    fn of(context: &zmq::Context, endpoint: &str) -> Self {
        let socket = context.socket(zmq::XPUB).unwrap();
        socket.set_linger(0).unwrap();
        socket.set_xpub_verbose(true).unwrap();
        let begin = Instant::now();
        while let Err(error) = socket.bind(endpoint) {
            assert!(begin.elapsed() < s(10), "{endpoint}: {error}");
            std::thread::yield_now();
        }
        let endpoint = socket.get_last_endpoint().unwrap().unwrap().parse().unwrap();
        Self { socket, endpoint, asked: Vec::new() }
    }

    /// A reader of its connections, as they come and go.
    pub fn monitor(&self, context: &zmq::Context) -> zmq::Socket {
        let (reader, name) = (context.socket(zmq::PAIR).unwrap(), format!("inproc://{}", self.endpoint));
        self.socket.monitor(&name, zmq::SocketEvent::ALL as i32).unwrap();
        reader.connect(&name).unwrap();
        reader
    }

    pub fn send(&self, frames: &[&[u8]]) {
        // Credit that came back is seen before the record is sent.
        self.socket.get_events().unwrap();
        self.socket.send_multipart(frames, zmq::DONTWAIT).unwrap();
    }

    pub fn beacon(&self) {
        self.send(&[TOPIC, PAYLOAD]);
    }

    /// Takes in what subscribers have said, and forgets nothing.
    pub fn hear(&mut self) -> &[Vec<u8>] {
        while let Ok(said) = self.socket.recv_bytes(zmq::DONTWAIT) {
            self.asked.push(said);
        }
        &self.asked
    }

    /// How often it was asked for a prefix so far, or with 0 how often that ended.
    pub fn count(&mut self, kind: u8, prefix: &[u8]) -> usize {
        let said = [&[kind], prefix].concat();
        self.hear().iter().filter(|each| **each == said).count()
    }

    /// Turns `node`, so much later each time, until the beacon's topic, which comes behind all filters, was asked for so many
    /// times in all.
    pub fn subscribed(&mut self, node: &mut Node, times: usize, step: Duration) {
        let begin = Instant::now();
        while self.count(1, TOPIC) < times {
            assert!(begin.elapsed() < s(10), "nobody subscribes");
            node.pass(step);
            node.engine.wait(Some(ms(1)));
        }
    }
}

/// A plain subscriber with one socket.
pub struct RawSubscriber(zmq::Socket);

impl RawSubscriber {
    pub fn new(endpoint: &Endpoint, filters: &[&[u8]], queue: i32) -> Self {
        let socket = zmq::Context::new().socket(zmq::SUB).unwrap();
        socket.set_linger(0).unwrap();
        socket.set_rcvhwm(queue).unwrap();
        socket.set_rcvbuf(16_384).unwrap();
        for filter in filters {
            socket.set_subscribe(filter).unwrap();
        }
        socket.connect(endpoint.as_str()).unwrap();
        Self(socket)
    }

    /// A record that is there.
    pub fn take(&self) -> Option<Record> {
        self.0.recv_multipart(zmq::DONTWAIT).ok()
    }

    /// Publishes `topic` until something comes, and reads all there is: from here on, whatever is published arrives.
    pub fn join(&self, node: &mut Node, topic: &[u8]) {
        let begin = Instant::now();
        let mut number = 0_u32;
        let mut publish = |node: &mut Node| {
            number += 1;
            let record = [topic.to_vec(), number.to_be_bytes().to_vec()];
            node.engine.outbox().publish(&ticks(), topic, &[&record[1]]).unwrap();
            record
        };
        while self.0.poll(zmq::POLLIN, 1) != Ok(1) {
            assert!(begin.elapsed() < s(10), "the subscription never came into force");
            publish(node);
        }
        let last = publish(node);
        self.up_to(&last);
    }

    /// Every record that comes before `last`, which must come within 10 s.
    pub fn up_to(&self, last: &[Vec<u8>]) -> Vec<Record> {
        let mut records = Vec::new();
        loop {
            let polled = self.0.poll(zmq::POLLIN, 10_000).unwrap();
            assert_eq!(polled, 1, "not in 10 s: {last:?}, after {} others", records.len());
            let record = self.take().unwrap();
            if record == last {
                return records;
            }
            records.push(record);
        }
    }
}

/// A subscribing engine and the raw publishers it hears.
pub struct Stage {
    pub node: Node,
    pub raws: Vec<RawPublisher>,
    /// Which publishers send a beacon every 5 s of the diary.
    pub beats: Vec<bool>,
    /// Each event of the host, and when after the beginning it came.
    pub diary: Vec<(Duration, Owned)>,
    began: Instant,
}

impl Stage {
    /// Connected to each of its publishers by its endpoint, and ready with none.
    pub fn connected(publishers: usize, filters: &[&[u8]]) -> Self {
        let raws: Vec<_> = (0..publishers).map(|_| RawPublisher::new()).collect();
        let wish =
            raws.iter().fold(Subscriber::new(ticks()), |wish, raw| wish.publisher(raw.endpoint.clone()));
        let wish = filters.iter().fold(wish, |wish, filter| wish.filter(filter));
        Self::of(raws, wish)
    }

    /// The same with a wish of the test's own.
    pub fn of(raws: Vec<RawPublisher>, wish: Subscriber) -> Self {
        let mut node = Node::new();
        node.engine.subscribe(wish).unwrap();
        Self::with(node, raws)
    }

    /// The same with a node of the test's own, which subscribes to all of these.
    pub fn with(mut node: Node, mut raws: Vec<RawPublisher>) -> Self {
        for raw in &mut raws {
            raw.subscribed(&mut node, 1, ms(0));
        }
        let (beats, began) = (vec![false; raws.len()], node.now);
        Self { node, raws, beats, diary: Vec::new(), began }
    }

    /// Ready with each of its publishers, whose first beacons came at the beginning.
    pub fn ready(publishers: usize, filters: &[&[u8]]) -> Self {
        let mut stage = Self::connected(publishers, filters);
        for publisher in 0..publishers {
            stage.beacon(publisher);
        }
        stage.diary.clear();
        stage.began = stage.node.now;
        stage
    }

    pub fn elapsed(&self) -> Duration {
        self.node.now - self.began
    }

    /// One turn, and what the host heard goes into the diary.
    pub fn turn(&mut self) {
        self.node.turn();
        let at = self.elapsed();
        self.diary.extend(self.node.events().into_iter().map(|event| (at, event)));
    }

    /// Turns the engine, without time passing, until `done`.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let begin = Instant::now();
        loop {
            self.turn();
            if done(self) {
                return;
            }
            let last = self.diary.last();
            assert!(begin.elapsed() < s(10), "not in 10 s: {what}; last heard: {last:?}");
            self.node.engine.wait(Some(ms(1)));
        }
    }

    /// The same while time passes, by so much before each turn.
    pub fn until_later(&mut self, step: Duration, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        self.until(what, |stage| {
            let is_done = done(stage);
            if !is_done {
                stage.node.now += step;
            }
            is_done
        });
    }

    /// A publisher sends a record, and the engine takes it in now.
    pub fn publish(&mut self, publisher: usize, frames: &[&[u8]]) {
        if self.heard_now(publisher) {
            // Only a later moment can tell this record from the last one.
            self.node.now += Duration::from_nanos(1);
        }
        self.raws[publisher].send(frames);
        self.until("the record taken in", |stage| stage.heard_now(publisher));
    }

    fn heard_now(&self, publisher: usize) -> bool {
        self.source(publisher).is_some_and(|source| source.last_received == Some(Duration::ZERO))
    }

    pub fn beacon(&mut self, publisher: usize) {
        self.publish(publisher, &[TOPIC, PAYLOAD]);
    }

    /// Lets time pass up to `until` after the beginning, with a turn whenever the engine wants one; those that beat do.
    pub fn follow(&mut self, until: Duration) {
        let end = self.began + until;
        let begin = Instant::now();
        loop {
            let beat = self.began + s(5 * (self.elapsed().as_secs() / 5 + 1));
            let due = self.node.engine.next_due().map_or(end, |due| due.at.max(self.node.now));
            self.node.now = due.min(beat).min(end);
            if self.node.now == beat {
                for publisher in 0..self.raws.len() {
                    if self.beats[publisher] {
                        self.beacon(publisher);
                    }
                }
            }
            self.turn();
            if self.node.now == end && self.node.engine.next_due().is_none_or(|due| due.at > end) {
                return;
            }
            assert!(begin.elapsed() < s(20), "the engine wants a turn without end");
        }
    }

    pub fn snapshot(&self) -> Snapshot {
        self.node.engine.snapshot()
    }

    /// What the engine says of a publisher it hears.
    pub fn source(&self, publisher: usize) -> Option<SourceStatus> {
        let endpoint = &self.raws[publisher].endpoint;
        self.snapshot().sources.into_iter().find(|each| each.source.endpoint() == endpoint)
    }

    pub fn is_ready(&self, publisher: usize) -> bool {
        self.source(publisher).is_some_and(|source| source.state == RouteState::Ready)
    }

    /// One that is none of its own stands behind them all.
    fn number(&self, source: &Source) -> usize {
        self.raws.iter().position(|raw| raw.endpoint == *source.endpoint()).unwrap_or(self.raws.len())
    }

    /// Which publishers became ready, and when.
    pub fn became_ready(&self) -> Vec<(Duration, usize)> {
        let ready = |(at, event): &(Duration, Owned)| match event {
            Owned::PublisherReady { publisher } => Some((*at, self.number(publisher))),
            _ => None,
        };
        self.diary.iter().filter_map(ready).collect()
    }

    /// Which publishers were lost, when, and why.
    pub fn lost(&self) -> Vec<(Duration, usize, LostReason)> {
        let lost = |(at, event): &(Duration, Owned)| match event {
            Owned::PublisherLost { publisher, reason } => Some((*at, self.number(publisher), *reason)),
            _ => None,
        };
        self.diary.iter().filter_map(lost).collect()
    }

    /// The records that the host was given: from whom, and all their frames.
    pub fn published(&self) -> Vec<(usize, Record)> {
        published(&self.diary.iter().map(|(_, event)| event.clone()).collect::<Vec<_>>())
            .into_iter()
            .map(|(source, record)| (self.number(&source), record))
            .collect()
    }
}

/// The records among some events: from whom, and all their frames.
pub fn published(events: &[Owned]) -> Vec<(Source, Record)> {
    let published = |event: &Owned| match event {
        Owned::Published { publisher, topic, parts } => {
            Some((publisher.clone(), [std::slice::from_ref(topic), parts].concat()))
        }
        _ => None,
    };
    events.iter().filter_map(published).collect()
}
