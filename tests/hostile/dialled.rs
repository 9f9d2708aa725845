//! A server that means harm, against our client: whatever it answers, only that connection ends, and the client's other
//! server does not notice.

use std::time::{Duration, Instant};

use wakeful::{
    Client, Endpoint, Failure, Generation, IntentStatus, LostReason, Owned, RejectReason, Rid, RouteState,
    SecurityId,
};

use crate::raw::{self, Admission, Frames, Stranger};
use crate::support::{Node, channel, ms, rid, s, until};

const CHANNEL: &str = "trap";

/// What a server answers to each hello, and the records it sends once the client's first probe came.
struct Trap {
    what: String,
    answers: Box<dyn Fn(u64) -> Vec<Frames>>,
    later: Vec<Frames>,
    end: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Failed(Failure),
    Lost(LostReason),
    Stays,
}

/// The number that our client drew for this attempt, read at its place in the hello.
fn pair_of(hello: &[u8]) -> u64 {
    let name = usize::from(hello[9]);
    let rid = usize::from(hello[10 + name]);
    let at = 11 + name + rid + 16;
    u64::from_be_bytes(hello[at..at + 8].try_into().unwrap())
}

fn admission(pair: u64) -> Admission {
    Admission::server(CHANNEL, "trapper", pair)
}

fn admit(pair: u64) -> Frames {
    vec![admission(pair).head(raw::ADMIT)]
}

fn at_once(what: &str, answers: impl Fn(u64) -> Vec<Frames> + 'static, end: End) -> Trap {
    Trap { what: what.into(), answers: Box::new(answers), later: Vec::new(), end }
}

fn admits_wrongly(what: &str, reason: u32, change: fn(&mut Admission)) -> Trap {
    let answer = move |pair| vec![vec![admission(pair).but(change).head(raw::ADMIT)]];
    let mut trap = at_once(what, answer, End::Stays);
    trap.end = if reason == 0 { End::Failed(Failure::Protocol) } else { End::Failed(unexpected(reason)) };
    trap
}

fn unexpected(reason: u32) -> Failure {
    Failure::Unexpected(named(reason))
}

fn named(reason: u32) -> RejectReason {
    match reason {
        2 => RejectReason::TopologyMismatch,
        3 => RejectReason::IdentityMismatch,
        4 => RejectReason::SecurityIdentityMismatch,
        5 => RejectReason::ChannelMismatch,
        6 => RejectReason::LifecycleGenerationStale,
        _ => unreachable!(),
    }
}

fn in_use(what: &str, later: Vec<Frames>, end: End) -> Trap {
    Trap { what: what.into(), answers: Box::new(|pair| vec![admit(pair)]), later, end }
}

/// A client of both channels, its decent server, and one trap behind each endpoint of the other channel.
struct Field {
    client: Node,
    decent: Node,
    servers: Vec<(Stranger, Endpoint)>,
    /// By trap: the route of the client's connection, once its hello came.
    routes: Vec<Option<Vec<u8>>>,
    said: usize,
    _context: zmq::Context,
}

impl Field {
    fn lay(traps: usize, expected: Option<&(Rid, Generation, SecurityId)>) -> Self {
        let context = zmq::Context::new();
        let servers: Vec<_> = (0..traps).map(|_| Stranger::listen(&context)).collect();
        let (mut decent, endpoint) = Node::server("decent");
        let mut client = Node::client("client", &endpoint);
        let mut trapped = Client::new(CHANNEL.parse().unwrap(), rid("client"));
        for (_, endpoint) in &servers {
            trapped = match expected {
                None => trapped.server(endpoint.clone()),
                Some((rid, generation, security)) => trapped.expected_server(
                    endpoint.clone(),
                    rid.clone(),
                    Some(*generation),
                    Some(security.clone()),
                ),
            };
        }
        client.engine.connect(trapped).unwrap();
        until(&mut [&mut client, &mut decent], "the decent server is ready", |nodes| {
            nodes[1].ready_peers() == 1
        });
        let routes = vec![None; traps];
        Self { client, decent, servers, routes, said: 0, _context: context }
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let begin = Instant::now();
        while !done(self) {
            self.client.turn();
            self.decent.turn();
            let intents = self.client.engine.snapshot().intents;
            assert!(begin.elapsed() < s(10), "not in 10 s: {what}: {intents:?}");
            self.client.engine.wait(Some(ms(1)));
        }
    }

    fn settle(&mut self) {
        let begin = Instant::now();
        self.until("time", |_| begin.elapsed() > Duration::from_millis(30));
    }

    /// Answers every hello that has come with what its trap says.
    fn answer(&mut self, traps: &[Trap]) {
        for (at, trap) in traps.iter().enumerate() {
            let (server, _) = &mut self.servers[at];
            server.read();
            let is_hello = |frames: &Frames| frames.len() == 2 && frames[1][3] == raw::HELLO;
            let Some(found) = server.received.iter().position(is_hello) else { continue };
            let hello = server.received.remove(found).unwrap();
            for record in (trap.answers)(pair_of(&hello[1])) {
                server.send(&[vec![hello[0].clone()], record].concat());
            }
            self.routes[at] = Some(hello[0].clone());
        }
    }

    fn intent(&self, at: usize) -> IntentStatus {
        let intents = self.client.engine.snapshot().intents;
        intents.into_iter().find(|intent| intent.endpoint == self.servers[at].1).unwrap()
    }

    /// Every end that the client heard of at this endpoint.
    fn ends(&self, at: usize) -> Vec<End> {
        let endpoint = &self.servers[at].1;
        let end = |event: &Owned| match event {
            Owned::Failed { endpoint: failed, failure, .. } if failed == endpoint => {
                Some(End::Failed(*failure))
            }
            Owned::Lost { peer, reason } if peer.endpoint() == Some(endpoint) => Some(End::Lost(*reason)),
            _ => None,
        };
        self.client.inbox.events.iter().filter_map(end).collect()
    }

    fn decent_is_served(&mut self) {
        self.said += 1;
        let text = format!("message {}", self.said);
        self.client.engine.outbox().send(&channel(), &[text.as_bytes()]).unwrap();
        self.until("the decent server's message", |field| {
            let is =
                |event: &Owned| matches!(event, Owned::Message { parts, .. } if parts[0] == text.as_bytes());
            field.decent.inbox.events.iter().any(is)
        });
    }
}

/// Springs all traps at once.
fn spring(field: &mut Field, traps: &[Trap]) {
    field.until("every hello came", |field| {
        field.answer(traps);
        field.routes.iter().all(Option::is_some)
    });
    field.until("every probe came where something follows", |field| {
        traps.iter().enumerate().all(|(at, trap)| {
            let (server, _) = &mut field.servers[at];
            server.read();
            let is_probe = |frames: &Frames| frames.len() == 2 && frames[1][3] == raw::PROBE;
            trap.later.is_empty() || server.received.iter().any(is_probe)
        })
    });
    field.decent_is_served();
    for (at, trap) in traps.iter().enumerate() {
        for record in &trap.later {
            let route = field.routes[at].clone().unwrap();
            assert!(field.servers[at].0.send(&[vec![route], record.clone()].concat()), "{}", trap.what);
        }
    }
    field.until("every trap has sprung", |field| {
        traps.iter().enumerate().all(|(at, trap)| trap.end == End::Stays || !field.ends(at).is_empty())
    });
    field.settle();
    for (at, trap) in traps.iter().enumerate() {
        let expected = if trap.end == End::Stays { vec![] } else { vec![trap.end] };
        assert_eq!(field.ends(at), expected, "{}", trap.what);
        let state = field.intent(at).state;
        assert_eq!(state == RouteState::Ready, trap.end == End::Stays, "{}: {state:?}", trap.what);
    }
    let ready = traps.iter().filter(|trap| trap.end == End::Stays).count();
    assert_eq!(field.client.engine.snapshot().connections.len(), ready + 1, "nothing else is left");
    field.decent_is_served();
}

#[test]
fn a_server_that_answers_a_hello_with_anything_but_its_admit_fails_the_attempt() {
    let protocol = End::Failed(Failure::Protocol);
    let one = |what: &str, record: Frames| at_once(what, move |_| vec![record.clone()], protocol);
    let mut traps = vec![
        one("garbage", vec![b"garbage".into()]),
        one("an empty record", vec![Vec::new()]),
        one("300 parts", vec![Vec::new(); 300]),
        one("data before the admit", vec![raw::send_head(CHANNEL), b"x".to_vec()]),
        one("a reply before the admit", vec![raw::reply_head(1, 0)]),
        one("a probe before the admit", raw::probe(1)),
        one("an ACK before the admit", raw::ack(1)),
        one("its own hello", admission(1).hello()),
        one("an update", vec![admission(1).head(raw::UPDATE)]),
        one("a reserved command", vec![raw::head(9, &[])]),
        one("another major version", vec![vec![0x5A, 0x4D, 2, 2, 0]]),
        one("a broken reject", vec![raw::head(raw::REJECT, &[0, 0])]),
        at_once("an admit with a part", |pair| vec![[admit(pair), vec![Vec::new()]].concat()], protocol),
        at_once("a megabyte of probes", |_| (0..500).map(|id| raw::probe(1 + id)).collect(), protocol),
    ];
    let whole = admit(99).remove(0).len();
    for length in (5..whole).step_by(3) {
        traps.push(at_once(
            &format!("an admit cut at {length}"),
            move |pair| vec![vec![admit(pair)[0][..length].to_vec()]],
            protocol,
        ));
    }
    let mut field = Field::lay(traps.len(), None);
    spring(&mut field, &traps);
}

#[test]
fn a_server_that_is_not_the_one_expected_is_not_used() {
    let traps = [
        admits_wrongly("another topology", 2, |admit| admit.topology = 1),
        admits_wrongly("a client", 2, |admit| admit.role = 1),
        admits_wrongly("another channel", 5, |admit| admit.name = b"traps".into()),
        admits_wrongly("the client's own RID", 3, |admit| admit.rid = b"client".into()),
        admits_wrongly("another RID", 3, |admit| admit.rid = b"trappers".into()),
        admits_wrongly("another generation", 6, |admit| admit.generation = 78),
        admits_wrongly("another security identity", 4, |admit| admit.security = b"somebody".into()),
        admits_wrongly("no security identity", 4, |admit| admit.security.clear()),
        admits_wrongly("generation 0", 0, |admit| admit.generation = 0),
        admits_wrongly("a wildcard endpoint", 0, |admit| admit.endpoint = b"tcp://0.0.0.0:1".into()),
        admits_wrongly("weight 10,001", 0, |admit| admit.channels[0].1 = 10_001),
        at_once("the right one", |pair| vec![admit(pair)], End::Stays),
        at_once("the right one with another pair", |pair| vec![admit(pair ^ 1)], End::Stays),
    ];
    let expected = (rid("trapper"), Generation::new(77).unwrap(), SecurityId::new("nobody").unwrap());
    spring(&mut Field::lay(traps.len(), Some(&expected)), &traps);
}

#[test]
fn a_server_that_breaks_the_protocol_later_is_lost_once_for_that_reason() {
    let protocol = End::Lost(LostReason::Protocol);
    let update = |change: fn(&mut Admission)| vec![admission(99).but(change).head(raw::UPDATE)];
    // The update is compared with the admit, whose pair it has to repeat.
    let updates = |what: &str, change: fn(&mut Admission), end: End| {
        let mut trap = in_use(what, vec![update(change)], end);
        trap.answers = Box::new(|_| vec![admit(99)]);
        trap
    };
    let one = |what: &str, record: Frames| in_use(what, vec![record], protocol);
    let traps = [
        one("garbage", vec![b"garbage".into()]),
        one("a second admit", admit(99)),
        one("a hello", admission(99).hello()),
        one("a message to a client", raw::send(CHANNEL, "x")),
        one("a request to a client", vec![raw::request_head(1, CHANNEL), b"x".to_vec()]),
        one("a node send", vec![raw::head(raw::NODE_SEND, &[]), b"x".to_vec()]),
        one("a reply with an unknown outcome", vec![raw::reply_head(1, 14)]),
        one("a failed reply with a part", vec![raw::reply_head(1, 1), b"x".to_vec()]),
        one("a reply with 256 parts", [vec![raw::reply_head(1, 0)], vec![Vec::new(); 256]].concat()),
        one("a reply to correlation 0", vec![raw::reply_head(0, 0)]),
        one("probe 2^63", raw::probe(1 << 63)),
        updates("a lower revision", |update| update.revision = 4, protocol),
        updates("the same revision with another state", |update| update.state = 3, protocol),
        updates("the same revision with another weight", |update| update.channels[0].1 = 1, protocol),
        updates("another RID", |update| (update.revision, update.rid) = (6, b"x".into()), protocol),
        updates("another generation", |update| (update.revision, update.generation) = (6, 1), protocol),
        updates("another limit", |update| (update.revision, update.max_message) = (6, 9_000), protocol),
        updates(
            "another membership",
            |update| (update.revision, update.channels) = (6, Vec::new()),
            protocol,
        ),
        updates("a stop", |update| (update.revision, update.state) = (6, 4), End::Lost(LostReason::Orderly)),
        updates("the same again", |_| {}, End::Stays),
        updates("a new weight", |update| (update.revision, update.channels[0].1) = (6, 7), End::Stays),
        in_use("replies nobody asked for", vec![vec![raw::reply_head(1 << 40, 0)]; 100], End::Stays),
        in_use("failures nobody asked for", vec![vec![raw::reply_head(u64::MAX, 13)]; 100], End::Stays),
        in_use("a flood of probes", (1..=900).map(raw::probe).collect(), End::Stays),
        in_use("ACKs nobody asked for", (1..=500).map(|id| raw::ack((1 << 62) + id)).collect(), End::Stays),
    ];
    let mut field = Field::lay(traps.len(), None);
    spring(&mut field, &traps);
    assert_eq!(field.client.engine.snapshot().counters.late_replies, 200);
}

#[test]
fn every_refusal_is_told_by_its_number_and_tried_again_but_one() {
    let numbers: Vec<u32> = (0..=16).chain([1 << 31, u32::MAX]).collect();
    let context = zmq::Context::new();
    let mut servers: Vec<(Stranger, Endpoint)> = numbers.iter().map(|_| Stranger::listen(&context)).collect();
    let mut node = Node::new();
    let mut client = Client::new(CHANNEL.parse().unwrap(), rid("client"));
    for (_, endpoint) in &servers {
        client = client.server(endpoint.clone());
    }
    node.engine.connect(client).unwrap();
    let mut hellos = vec![0; numbers.len()];
    // A refused attempt is made again after at most 250 ms of virtual time, a second one after at most 500 ms.
    for round in 1..=3 {
        until(&mut [&mut node], "every hello came", |_| {
            for ((server, _), (number, hellos)) in servers.iter_mut().zip(numbers.iter().zip(&mut hellos)) {
                server.read();
                while let Some(frames) = server.received.pop_front() {
                    assert_eq!(frames[1][3], raw::HELLO);
                    server.send(&[vec![frames[0].clone()], raw::reject(*number)].concat());
                    *hellos += 1;
                }
            }
            let all = numbers.iter().zip(&hellos).all(|(number, hellos)| *number == 13 || *hellos == round);
            all && hellos[13] == 1
        });
        until(&mut [&mut node], "every refusal came", |nodes| {
            let refused =
                |event: &&Owned| matches!(event, Owned::Failed { failure: Failure::Refused(_), .. });
            nodes[0].inbox.events.iter().filter(refused).count() == hellos.iter().sum::<usize>()
        });
        for _ in 0..5 {
            node.pass(ms(100));
            until(&mut [&mut node], "the sockets are gone", |nodes| nodes[0].turn().records == 0);
        }
        node.pass(s(1));
    }
    for ((_, endpoint), number) in servers.iter().zip(&numbers) {
        let mut reasons = node.inbox.events.iter().filter_map(|event| match event {
            Owned::Failed { endpoint: refused, failure: Failure::Refused(reason), .. }
                if refused == endpoint =>
            {
                Some(reason.number())
            }
            _ => None,
        });
        assert!(reasons.all(|reason| reason == *number));
        let snapshot = node.engine.snapshot();
        let intent = snapshot.intents.iter().find(|intent| intent.endpoint == *endpoint).unwrap();
        assert_eq!(intent.state == RouteState::NotRequired, *number == 13, "{number}");
    }
}
