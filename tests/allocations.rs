//! In steady state nothing allocates: not a record received or sent, not an ask or an ACK, not an idle turn. Counted in
//! this thread, on the Rust side; what ZeroMQ allocates for its own messages is C's and not counted.
#![allow(clippy::disallowed_methods, reason = "a test on real sockets bounds its waits in real time")]

mod support;

use std::time::{Duration, Instant};

use support::{channel, ms, rid, s};
use wakeful::{ChannelName, Client, Config, Endpoint, Engine, Event, Host, Outbox, Server};

const PARTS: [&[u8]; 6] = [b"one", b"two", b"three", b"four", b"five", b"six"];

/// Counts, and answers requests; keeps nothing.
#[derive(Default)]
struct Counting {
    ready: usize,
    messages: usize,
    requests: usize,
    completed: usize,
    parts: usize,
}

impl Host for Counting {
    fn on_event(&mut self, event: Event<'_>, outbox: &mut Outbox<'_>) {
        match event {
            Event::Ready { .. } => self.ready += 1,
            Event::Message { parts, .. } => {
                self.messages += 1;
                self.parts += parts.len();
            }
            Event::Request { token, .. } => {
                self.requests += 1;
                outbox.reply(token, &PARTS[..2]).unwrap();
            }
            Event::Completed { .. } => self.completed += 1,
            Event::Lost { .. } => panic!("{event:?}"),
            _ => {}
        }
    }
}

/// One server and its clients, in use, all at one virtual time.
struct Nodes {
    channel: ChannelName,
    all: Vec<(Engine, Counting)>,
    now: Instant,
}

impl Nodes {
    fn new(clients: usize) -> Self {
        let mut all: Vec<_> =
            (0..=clients).map(|_| (Engine::new(Config::default()).unwrap(), Counting::default())).collect();
        let server = Server::new(channel(), rid("server"), "tcp://127.0.0.1:0".parse().unwrap());
        let endpoint = Endpoint::try_from(&all[0].0.serve(server).unwrap()).unwrap();
        for (number, (engine, _)) in all.iter_mut().enumerate().skip(1) {
            let client = Client::new(channel(), rid(&format!("client-{number}"))).server(endpoint.clone());
            engine.connect(client).unwrap();
        }
        let mut nodes = Self { channel: channel(), all, now: Instant::now() };
        nodes.until(|nodes| nodes.iter().map(|(_, host)| host.ready).sum::<usize>() == 2 * clients);
        nodes
    }

    fn turn(&mut self) {
        for (engine, host) in &mut self.all {
            engine.turn_at(self.now, host);
        }
    }

    /// Turns everybody until `done` says so.
    fn until(&mut self, done: impl Fn(&[(Engine, Counting)]) -> bool) {
        let begin = Instant::now();
        while !done(&self.all) {
            self.turn();
            assert!(begin.elapsed() < s(10), "not in 10 s");
        }
    }

    /// Every client sends `count` messages of so many parts, and the server gets them all.
    fn messages(&mut self, count: usize, parts: usize) {
        let wanted = self.all[0].1.messages + count * (self.all.len() - 1);
        for (engine, _) in &mut self.all[1..] {
            for _ in 0..count {
                engine.outbox().send(&self.channel, &PARTS[..parts]).unwrap();
            }
        }
        self.until(|nodes| nodes[0].1.messages == wanted);
    }

    /// Every client sends `count` requests, and gets its replies.
    fn requests(&mut self, count: usize) {
        let completed =
            |nodes: &[(Engine, Counting)]| nodes.iter().map(|(_, host)| host.completed).sum::<usize>();
        let wanted = completed(&self.all) + count * (self.all.len() - 1);
        for (engine, _) in &mut self.all[1..] {
            for _ in 0..count {
                engine.outbox().request(&self.channel, &PARTS[..2], s(3600)).unwrap();
            }
        }
        self.until(|nodes| completed(nodes) == wanted);
    }

    fn held(&self) -> u64 {
        self.all[0].0.snapshot().connections.iter().map(|each| each.held).sum()
    }
}

/// What `work` allocates in steady state: the least of several measurements, because now and then a queue becomes longer
/// than it ever was. What allocated for each record, ask or turn would do so in all of them.
fn allocations(nodes: &mut Nodes, work: impl Fn(&mut Nodes)) -> u64 {
    let mut measure = || allocation_counter::measure(|| (0..3).for_each(|_| work(nodes))).count_total;
    (0..8).map(|_| measure()).min().unwrap()
}

#[test]
fn a_message_sent_and_received_allocates_nothing() {
    let mut nodes = Nodes::new(1);
    assert_eq!(allocations(&mut nodes, |nodes| nodes.messages(40, 1)), 0);
    assert_eq!(allocations(&mut nodes, |nodes| nodes.messages(40, 6)), 0, "nor does one of many parts");
}

#[test]
fn a_request_and_its_reply_allocate_nothing() {
    let mut nodes = Nodes::new(2);
    assert_eq!(allocations(&mut nodes, |nodes| nodes.requests(40)), 0);
    assert_eq!(
        allocations(&mut nodes, |nodes| nodes.requests(500)),
        0,
        "nor on a dedicated lane that is capped"
    );
}

#[test]
fn a_record_of_a_peer_that_is_capped_in_every_turn_allocates_nothing() {
    let mut nodes = Nodes::new(3);
    for parts in [1, 6] {
        let before = nodes.held();
        assert_eq!(allocations(&mut nodes, |nodes| nodes.messages(480, parts)), 0, "{parts} parts");
        assert!(nodes.held() > before + 100, "the holds were in use");
    }
}

#[test]
fn an_ask_and_its_ack_allocate_nothing() {
    let mut nodes = Nodes::new(3);
    let interval = |nodes: &mut Nodes| {
        for _ in 0..5 {
            nodes.now += s(1);
            // Both ways need a moment of real time.
            let begin = Instant::now();
            while begin.elapsed() < ms(2) {
                nodes.turn();
            }
        }
    };
    // 15 s without an answered ask would lose a peer and end in a panic, so asks and ACKs did go to and fro.
    assert_eq!(allocations(&mut nodes, interval), 0);
}

#[test]
fn an_idle_turn_allocates_nothing() {
    let mut nodes = Nodes::new(1);
    let idle = |nodes: &mut Nodes| {
        nodes.turn();
        for (engine, _) in &mut nodes.all {
            engine.wait(Some(Duration::from_micros(1)));
            engine.next_due();
        }
    };
    assert_eq!(allocations(&mut nodes, idle), 0);
}
