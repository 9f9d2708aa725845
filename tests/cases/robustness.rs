//! The event loop, monitors, shutdown, strangers: what a host waits for comes, what has ended says nothing more.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Instant;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use wakeful::{
    Completion, ConnectionId, Event, Host, LostReason, Outbox, Owned, PEER_DEADLINE, ReplyToken, SECOND_LOOK,
    Silence,
};

use crate::proxy::Proxy;
use crate::raw::RawClient;
use crate::steps::*;
use crate::support::*;

/// A small seeded generator, so that a failing run can be repeated.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

/// What the two hosts of case 53 have seen, and what they still owe.
#[derive(Default)]
struct Tally {
    requests: usize,
    replies: usize,
    messages: usize,
    owed: Vec<ReplyToken>,
}

impl Host for Tally {
    fn on_event(&mut self, event: Event<'_>, _: &mut Outbox<'_>) {
        match event {
            Event::Message { .. } => self.messages += 1,
            Event::Request { token, .. } => {
                self.requests += 1;
                self.owed.push(token);
            }
            Event::Completed { outcome: Completion::Reply(_), .. } => self.replies += 1,
            _ => {}
        }
    }
}

/// A host's loop as a foreign program writes it: the engines' descriptors stand in its own poller, edge-triggered.
struct Foreign {
    poll: Poll,
    events: Events,
    /// Which of the two the last report told to turn at once.
    left: [bool; 2],
}

impl Foreign {
    fn around(nodes: [&Node; 2]) -> Self {
        let poll = Poll::new().unwrap();
        for (token, node) in nodes.iter().enumerate() {
            let descriptor = node.engine.as_raw_fd();
            poll.registry().register(&mut SourceFd(&descriptor), Token(token), Interest::READABLE).unwrap();
        }
        Self { poll, events: Events::with_capacity(8), left: [false; 2] }
    }

    /// Turns who is to be turned, and nobody else. False if for 5 s nobody was.
    fn run_once(&mut self, nodes: [&mut Node; 2], tallies: &mut [Tally; 2]) -> bool {
        let patience = if self.left.contains(&true) { ms(0) } else { s(5) };
        self.poll.poll(&mut self.events, Some(patience)).unwrap();
        let mut wanted = self.left;
        for event in &self.events {
            wanted[event.token().0] = true;
        }
        for (at, node) in nodes.into_iter().enumerate() {
            if wanted[at] {
                self.left[at] = node.engine.turn_at(node.now, &mut tallies[at]).work_left;
            }
        }
        wanted.contains(&true)
    }
}

/// Virtual time stands still throughout: no ask and no other timer comes to the rescue of a stranded record.
#[test]
fn case_53_no_interleaving_of_sends_and_turns_strands_what_can_be_delivered() {
    for seed in 0..40 {
        let mut draw = Draw(seed);
        let (mut server, mut client) = pair();
        let mut tallies = [Tally::default(), Tally::default()];
        let mut foreign = Foreign::around([&server, &client]);
        let (mut sent, mut requested) = (0, 0);
        for _ in 0..10 {
            for _ in 0..draw.below(200) {
                match draw.below(7) {
                    0..=2 => {
                        client.send("one way");
                        sent += 1;
                    }
                    3 => {
                        client.engine.outbox().request(&channel(), &[b"?"], s(600)).unwrap();
                        requested += 1;
                    }
                    4 => {
                        if let Some(token) = tallies[0].owed.pop() {
                            server.engine.outbox().reply(token, &[b"!"]).unwrap();
                        }
                    }
                    5 => foreign.left[0] = server.engine.turn_at(server.now, &mut tallies[0]).work_left,
                    _ => foreign.left[1] = client.engine.turn_at(client.now, &mut tallies[1]).work_left,
                }
            }
            // From here on only the descriptors speak.
            while tallies[0].messages < sent || tallies[0].requests < requested {
                assert!(foreign.run_once([&mut server, &mut client], &mut tallies), "stranded, seed {seed}");
            }
            for token in std::mem::take(&mut tallies[0].owed) {
                server.engine.outbox().reply(token, &[b"!"]).unwrap();
            }
            while tallies[1].replies < requested {
                assert!(foreign.run_once([&mut server, &mut client], &mut tallies), "stranded, seed {seed}");
            }
        }
        assert_eq!(
            (tallies[0].messages, tallies[0].requests, tallies[1].replies),
            (sent, requested, requested)
        );
    }
}

#[test]
fn case_53_a_call_between_turns_leaves_the_descriptor_readable_and_one_turn_delivers_what_waits() {
    let (mut server, mut client) = pair();
    for round in 0..50 {
        quieten(&mut server);
        client.send("waits");
        // The message has come when the descriptor says so; the call that follows eats that edge.
        wait_for("the descriptor", || is_readable(&server));
        let peer = peer_of(&server);
        assert!(server.engine.outbox().is_ready(peer));
        server.engine.outbox().set_weight(&channel(), wakeful::Weight::new(round + 1).unwrap());
        assert!(is_readable(&server), "a call between turns swallowed the wake-up");
        server.turn();
        assert_eq!(texts(&server.events()), ["waits"], "and one turn brings it");
        client.turn();
    }
}

/// Turns a node until there is nothing left to do and its descriptor says nothing more.
fn quieten(node: &mut Node) {
    let begin = Instant::now();
    while node.turn().work_left || is_readable(node) {
        assert!(begin.elapsed() < s(10), "it wants to be turned though there is nothing to do");
    }
}

fn peer_of(node: &Node) -> ConnectionId {
    node.engine.snapshot().connections[0].peer.connection()
}

fn is_readable(node: &Node) -> bool {
    let mut poll = Poll::new().unwrap();
    let mut events = Events::with_capacity(1);
    poll.registry().register(&mut SourceFd(&node.engine.as_raw_fd()), Token(0), Interest::READABLE).unwrap();
    poll.poll(&mut events, Some(ms(0))).unwrap();
    !events.is_empty()
}

/// The monitor of the server never hears of the old connection's end, because nobody does: its cable is cut.
#[test]
fn case_55_a_replacement_ends_by_the_deadline_where_no_monitor_ever_tells_of_the_old_connection() {
    let (mut server, endpoint) = Node::server("server");
    let cable = Proxy::to(&endpoint);
    let context = zmq::Context::new();
    let old = RawClient::enter(&context, &cable.endpoint, &mut server, "peer");
    until(&mut [&mut server], "its answer", |nodes| {
        old.answer();
        all_served(nodes[0], 1, 3)
    });
    server.events();
    cable.cut();
    drop(old);
    let new = RawClient::dial(&context, &endpoint);
    new.hello("peer", 1);
    let began = server.now;
    follow(
        &mut server,
        s(20),
        |server| arrive(server, || ()),
        |server| server.inbox.events.iter().any(|event| matches!(event, Owned::Admitted { .. })),
    );
    let took = server.now - began;
    assert!(took <= PEER_DEADLINE + SECOND_LOOK, "admitted after {took:?}");
    assert_eq!(lost(&server.events()), [("peer".to_owned(), LostReason::Silence(Silence::NoAnswer))]);
    new.complete(&mut server);
    assert_eq!(server.ready_peers(), 1);
}

#[test]
fn case_55_a_close_whose_last_monitor_event_is_still_to_come_holds_up_neither_the_redial_nor_the_stop() {
    let (mut server, mut client) = pair();
    let connection = peer_of(&client);
    assert!(client.engine.outbox().close(connection));
    client.turn();
    assert_eq!(lost(&client.events()), [("server".to_owned(), LostReason::Closed)]);
    // Six seconds of virtual time in no real time: the patience of the redial is over, whatever the monitor has said.
    for _ in 0..6 {
        client.pass(s(1));
    }
    until(&mut [&mut server, &mut client], "ready anew", |nodes| {
        nodes.iter().all(|node| became_ready(&node.inbox.events) == 1)
    });

    // And now it stops with everything under way: each end is told once, and nothing is left to be due.
    let connection = peer_of(&client);
    client.events();
    client.engine.outbox().close(connection);
    let begin = Instant::now();
    client.engine.stop(&mut client.inbox);
    assert_eq!(lost(&client.events()).len(), 1);
    assert_eq!(client.engine.next_due(), None);
    client.turn();
    assert_eq!(client.events(), []);
    drop(client);
    assert!(begin.elapsed() < s(5), "nothing waits for an event");
}

/// A host that closes the connection of the first message it gets, or of a peer it was told to close.
struct Closer {
    told: Vec<Owned>,
    victim: Option<ConnectionId>,
}

impl Host for Closer {
    fn on_event(&mut self, event: Event<'_>, outbox: &mut Outbox<'_>) {
        if let Event::Message { peer, .. } = event {
            let victim = *self.victim.get_or_insert(peer.connection());
            outbox.close(victim);
        }
        self.told.push(Owned::from(event));
    }
}

#[test]
fn case_56_a_peer_that_a_handler_closes_is_not_heard_again_though_its_data_was_ready() {
    for other_speaks_first in [false, true] {
        let context = zmq::Context::new();
        let (mut server, endpoint) = Node::server("server");
        let [closed, other] =
            ["closed", "other"].map(|name| RawClient::enter(&context, &endpoint, &mut server, name));
        settle(&mut [&mut server]);
        let snapshot = server.engine.snapshot();
        let victim = snapshot.connections.iter().find(|each| *each.peer.rid() == rid("closed")).unwrap();
        let mut host = Closer { told: Vec::new(), victim: Some(victim.peer.connection()) };
        if other_speaks_first {
            other.message("other");
        }
        for _ in 0..100 {
            closed.message("mine");
        }
        let begin = Instant::now();
        while !host.told.iter().any(|event| matches!(event, Owned::Lost { .. })) {
            server.engine.turn_at(server.now, &mut host);
            assert!(begin.elapsed() < s(10), "nothing came");
        }
        // Whatever else it sent is read and dropped.
        while server.engine.snapshot().counters.unadmitted < 99 {
            server.engine.turn_at(server.now, &mut host);
            assert!(begin.elapsed() < s(10), "its other records never came");
        }
        assert_eq!(lost(&host.told), [("closed".to_owned(), LostReason::Closed)]);
        let end = position(&host.told, |event| matches!(event, Owned::Lost { .. }));
        let is_mine =
            |event: &Owned| matches!(event, Owned::Message { peer, .. } if *peer.rid() == rid("closed"));
        assert!(!host.told[end..].iter().any(is_mine), "nothing after its end");
        let heard = host.told.iter().filter(|event| is_mine(event)).count();
        assert!(heard <= 1, "nor in the turn that closed it");
    }
}

/// Timer and data in one pass: in the turn in which the deadline falls the peer's message is read and its handler closes
/// the peer. There is one end, and nothing after it.
#[test]
fn case_56_a_peer_closed_in_the_turn_of_its_verdict_ends_once() {
    let context = zmq::Context::new();
    let (mut server, endpoint) = Node::server("server");
    let peer = RawClient::enter(&context, &endpoint, &mut server, "peer");
    settle(&mut [&mut server]);
    follow(&mut server, PEER_DEADLINE - SECOND_LOOK, |_| (), |_| false);
    assert_eq!(lost(&server.events()), []);
    peer.message("late");
    wait_for("the message", || is_readable(&server));
    let mut host = Closer { told: Vec::new(), victim: None };
    server.now += SECOND_LOOK;
    server.engine.turn_at(server.now, &mut host);
    server.engine.turn_at(server.now + s(1), &mut host);
    assert!(
        matches!(host.told[..], [Owned::Message { .. }, Owned::Lost { reason: LostReason::Closed, .. }]),
        "{:?}",
        host.told
    );
}

/// A port scan in small; ten thousand strangers of more kinds come in `tests/hostile`. Here each that speaks ZeroMQ waits
/// for its refusal, and a neighbour's request is answered in between.
#[test]
fn case_59_strangers_on_the_port_end_only_their_own_connections_and_others_are_served_meanwhile() {
    const STRANGERS: usize = 1_200;
    let (mut server, endpoint) = Node::server("server");
    server.inbox.echo = true;
    let mut client = Node::client("client", &endpoint);
    until(&mut [&mut server, &mut client], "ready", |nodes| nodes.iter().all(|node| node.ready_peers() == 1));
    let mut draw = Draw(59);
    let (mut silent, mut speaking) = (VecDeque::new(), Vec::new());
    for number in 0..STRANGERS {
        let mut stranger = TcpStream::connect(endpoint.as_str().trim_start_matches("tcp://")).unwrap();
        let random: Vec<u8> = (0..draw.below(300)).map(|_| draw.below(256) as u8).collect();
        let said = match number % 6 {
            0 => random,
            1 => b"GET / HTTP/1.1\r\nHost: nobody\r\n\r\n".to_vec(),
            2 => greeting()[..draw.below(64) as usize].to_vec(),
            3 => [greeting(), random].concat(),
            4 => Vec::new(),
            _ => {
                speak(&mut stranger);
                speaking.push(stranger);
                continue;
            }
        };
        // The server may have hung up already.
        let _ = stranger.write_all(&said);
        silent.push_back(stranger);
        if silent.len() > 200 {
            silent.pop_front();
        }
        server.turn();
        if number % 60 == 0 {
            let request = client.engine.outbox().request(&channel(), &[b"still there?"], s(5)).unwrap();
            let answer = Owned::Replied { request, parts: vec![b"still there?".to_vec()] };
            until(&mut [&mut server, &mut client], "an answer", |nodes| {
                nodes[1].inbox.events.contains(&answer)
            });
            until(&mut [&mut server, &mut client], "refusals", |_| speaking.iter().all(is_answered));
            speaking.clear();
        }
    }
    assert!(
        server.engine.snapshot().counters.protocol_errors >= STRANGERS as u64 / 6 - 10,
        "they are counted"
    );
    drop((silent, speaking));
    until(&mut [&mut server, &mut client], "nothing of them is left", |nodes| {
        // What has no descriptor to be known by is found by its route, once a second.
        nodes[0].pass(ms(10));
        let snapshot = nodes[0].engine.snapshot();
        snapshot.fenced_open + snapshot.unadmitted == 0
    });
    assert_eq!((lost(&server.events()), lost(&client.events())), (vec![], vec![]));
    assert_eq!((server.ready_peers(), client.ready_peers()), (1, 1));
}

/// Shakes hands as a DEALER does and sends a record that is none.
fn speak(stranger: &mut TcpStream) {
    stranger.write_all(&[greeting(), ready()].concat()).unwrap();
    // A record before the other side's own READY would end the handshake instead.
    let mut opening = [0; 64 + 2];
    stranger.set_read_timeout(Some(s(5))).unwrap();
    stranger.read_exact(&mut opening).unwrap();
    stranger.read_exact(&mut vec![0; opening[65].into()]).unwrap();
    stranger.write_all(b"\x00\x05zmtp!").unwrap();
    stranger.set_nonblocking(true).unwrap();
}

fn is_answered(stranger: &TcpStream) -> bool {
    stranger.peek(&mut [0]).is_ok_and(|bytes| bytes > 0)
}

/// ZMTP 3.0's greeting, mechanism NULL.
fn greeting() -> Vec<u8> {
    let mut bytes = vec![0xFF, 0, 0, 0, 0, 0, 0, 0, 1, 0x7F, 3, 0];
    bytes.extend(b"NULL");
    bytes.resize(64, 0);
    bytes
}

/// The READY command of a DEALER with no identity.
fn ready() -> Vec<u8> {
    let body = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x00";
    [&[4, body.len() as u8], &body[..]].concat()
}
