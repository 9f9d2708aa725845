//! Identity, replacement, half-open connections, reconnect: who speaks for a peer, and since when.

use std::time::Instant;

use wakeful::{
    Client, Config, DueReason, Endpoint, Event, Host, LostReason, Outbox, Owned, Rid, Server, Silence,
};

use crate::raw::{ACK, PROBE, REJECT, RawClient, check, command};
use crate::steps::*;
use crate::support::raw::channel_send;
use crate::support::*;

#[test]
fn case_34_a_client_back_after_a_crash_is_admitted_as_soon_as_its_old_backlog_is_read_out() {
    const BACKLOG: usize = 5_000;
    // The time caps are at their widest, so that the count alone parts the turns.
    let mut server = Node::with(Config {
        queue_records_max: 10_000,
        receive_time_max: ms(10),
        turn_time_max: ms(100),
        seed: 7,
        ..Config::default()
    });
    let bound =
        server.engine.serve(Server::new(channel(), rid("server"), "tcp://127.0.0.1:0".parse().unwrap()));
    let endpoint = Endpoint::try_from(&bound.unwrap()).unwrap();
    let own = zmq::Context::new();
    let crashing = RawClient::enter(&own, &endpoint, &mut server, "client");
    arrive(&mut server, || {
        crashing.answer();
    });
    server.events();
    for _ in 0..BACKLOG {
        crashing.message("old");
    }
    crashing.leave();
    // The end of a context waits until all has left and its connections are physically closed.
    drop(own);
    let context = zmq::Context::new();
    let client = RawClient::dial(&context, &endpoint);
    client.hello("client", 2);

    let (mut rotations, mut held) = (0, 0);
    let begin = Instant::now();
    while !server.inbox.events.iter().any(|event| matches!(event, Owned::Admitted { .. })) {
        let report = server.turn();
        rotations += usize::from(report.records > 0);
        held = held.max(report.held);
        if !report.work_left {
            server.engine.wait(Some(ms(1)));
        }
        assert!(begin.elapsed() < s(10), "never admitted");
    }
    assert!(rotations <= 2 * BACKLOG / 64, "admitted after {rotations} rotations");
    assert!(held <= 2 * 64, "what is set aside is bounded by a share, not by the backlog: {held}");
    client.complete(&mut server);
    for _ in 0..10 {
        client.message("new");
    }
    until(&mut [&mut server], "the new messages", |nodes| {
        texts(&nodes[0].inbox.events).len() == BACKLOG + 10
    });

    let events = server.events();
    let texts = texts(&events);
    assert!(texts[..BACKLOG].iter().all(|text| text == "old"), "none of the old is lost");
    assert!(texts[BACKLOG..].iter().all(|text| text == "new"), "and none comes after the first new one");
    assert_eq!(lost(&events), [("client".to_owned(), LostReason::Transport)]);
    assert_eq!(server.ready_peers(), 1);
}

#[test]
fn case_35_a_replaced_connection_that_still_speaks_changes_nothing() {
    let context = zmq::Context::new();
    let (mut server, endpoint) = Node::server("server");
    let old = RawClient::enter(&context, &endpoint, &mut server, "peer");
    let mut old_ids = Vec::new();
    until(&mut [&mut server], "an ask", |_| {
        old_ids.extend(old.probes());
        !old_ids.is_empty()
    });
    server.events();
    // The flap: the old connection answers nothing more, and the new one waits for its end.
    let new = RawClient::dial(&context, &endpoint);
    new.hello("peer", 1);
    for _ in 0..17 {
        server.pass(s(1));
        arrive(&mut server, || ());
    }
    let events = server.events();
    assert_eq!(lost(&events), [("peer".to_owned(), LostReason::Silence(Silence::NoAnswer))]);
    new.complete(&mut server);
    let mut new_ids = Vec::new();
    until(&mut [&mut server], "an ask on the new connection", |_| {
        new_ids.extend(new.probes());
        !new_ids.is_empty()
    });
    server.events();
    old.probes();

    let before = server.engine.snapshot();
    let id = old_ids[0];
    assert_ne!(new_ids[0], id);
    for record in [check(PROBE, 2), check(ACK, id), check(ACK, new_ids[0])] {
        old.send(&[&record]);
    }
    old.send(&[&channel_send(CHANNEL), b"late"]);
    old.hello("peer", 1);
    until(&mut [&mut server], "all was read", |nodes| {
        nodes[0].engine.snapshot().counters.unadmitted >= before.counters.unadmitted + 5
    });
    let after = server.engine.snapshot();
    assert_eq!(server.events(), [], "the host hears nothing of it");
    assert_eq!((after.connections.len(), after.fenced_open, after.unadmitted), (1, 1, 0));
    assert_eq!(after.connections[0].peer, before.connections[0].peer);
    let answers: Vec<(u8, u64)> = std::iter::from_fn(|| old.receive())
        .map(|record| (command(&record), u64::from(record[0][8])))
        .collect();
    assert!(answers.len() <= 1 && answers.iter().all(|answer| *answer == (REJECT, 14)), "{answers:?}");

    // The id that the new connection was asked with came by the old one, so it is still awaited: silence is a verdict.
    for _ in 0..17 {
        server.pass(s(1));
    }
    assert_eq!(lost(&server.events()), [("peer".to_owned(), LostReason::Silence(Silence::NoAnswer))]);
}

/// Five hundred clients of one process each are scaled to a hundred engines here. That 500 spread below a fifth in every
/// second, once their windows are wide enough for that, is shown by the simulation in `link::backoff`.
#[test]
fn case_43_a_hundred_clients_of_a_restarted_server_spread_their_attempts_and_are_all_back_in_30_seconds() {
    const CLIENTS: usize = 100;
    let (mut server, endpoint) = Node::server("server");
    let mut clients: Vec<Crowded> = (0..CLIENTS).map(|number| Crowded::new(number, &endpoint)).collect();
    let begin = Instant::now();
    while server.ready_peers() < CLIENTS || clients.iter().any(|client| !client.seen.ready) {
        server.turn();
        clients.iter_mut().for_each(Crowded::turn);
        assert!(begin.elapsed() < s(20), "not all ready");
    }

    // The whole crowd loses the server at one moment of one clock.
    let start = clients.iter().map(|client| client.now).max().unwrap();
    for client in &mut clients {
        (client.now, client.seen.came_back) = (start, false);
    }
    drop(server.engine);
    while clients.iter().any(|client| client.seen.ready) {
        clients.iter_mut().for_each(Crowded::turn);
        assert!(begin.elapsed() < s(30), "not all have heard of it");
    }
    let mut attempts = Vec::new();
    let mut restarted: Option<Node> = None;
    let mut back = Vec::new();
    for tenth in 0..500_u32 {
        let now = start + ms(100) * tenth;
        if now == start + s(20) {
            let mut node = Node::new();
            let at = endpoint.to_string().parse().unwrap();
            node.engine.serve(Server::new(channel(), rid("server"), at)).unwrap();
            restarted = Some(node);
        }
        for client in &mut clients {
            client.now = now;
            client.turn();
        }
        if let Some(server) = &mut restarted {
            server.now = now;
            server.turn();
        }
        // Every attempt that this tenth of a second began comes to its end before the next one begins.
        let begin = Instant::now();
        while clients.iter_mut().any(Crowded::is_under_way) {
            clients.iter_mut().filter(|client| client.seen.under_way).for_each(Crowded::turn);
            if let Some(server) = &mut restarted {
                server.turn();
            }
            assert!(begin.elapsed() < s(10), "an attempt never ends");
        }
        for client in &mut clients {
            attempts.extend((0..client.seen.failed).map(|_| tenth));
            if std::mem::take(&mut client.seen.came_back) {
                attempts.push(tenth);
                back.push(tenth);
            }
            client.seen.failed = 0;
        }
    }
    assert_eq!(back.len(), CLIENTS);
    assert!(back.iter().all(|tenth| *tenth < 500), "all are ready within 30 s of the restart");
    // The first doublings begin in windows of less than a second. From the moment the windows allow it the crowd is thin;
    // a hundred leave chance more room than five hundred do.
    let busiest = (160..500)
        .map(|from| attempts.iter().filter(|tenth| (from..from + 10).contains(*tenth)).count())
        .max()
        .unwrap();
    assert!(busiest <= CLIENTS / 4, "{busiest} of {CLIENTS} tried in one second");
    let earlier =
        |tenths: std::ops::Range<u32>| attempts.iter().filter(|tenth| tenths.contains(tenth)).count();
    // The first attempts: nobody before the floor, nearly all within the window of 150 ms behind it, and not as one. Whose
    // last lane is not physically closed by then, because virtual time outran the machine, comes a little later.
    assert_eq!(earlier(0..2), 0);
    assert!(earlier(2..4) >= CLIENTS * 9 / 10, "{} of {CLIENTS}", earlier(2..4));
    assert!((CLIENTS / 4..CLIENTS).contains(&earlier(2..3)), "{} of {CLIENTS} at once", earlier(2..3));
    // An orderly end waits for the server to take the last word, so the clients go first.
    drop(clients);
}

/// A client of its own engine, and only what this test asks of it.
struct Crowded {
    engine: wakeful::Engine,
    now: Instant,
    seen: Seen,
}

#[derive(Default)]
struct Seen {
    ready: bool,
    came_back: bool,
    under_way: bool,
    failed: usize,
}

impl Host for Seen {
    fn on_event(&mut self, event: Event<'_>, _: &mut Outbox<'_>) {
        match event {
            Event::Ready { .. } => (self.ready, self.came_back) = (true, true),
            Event::Lost { .. } => self.ready = false,
            Event::Failed { .. } => self.failed += 1,
            _ => {}
        }
    }
}

impl Crowded {
    fn new(number: usize, server: &Endpoint) -> Self {
        let mut engine = wakeful::Engine::new(Config { seed: number as u64, ..Config::default() }).unwrap();
        let name = Rid::new(format!("client-{number}").as_str()).unwrap();
        engine.connect(Client::new(channel(), name).server(server.clone())).unwrap();
        Self { engine, now: Instant::now(), seen: Seen::default() }
    }

    fn turn(&mut self) {
        self.engine.turn_at(self.now, &mut self.seen);
    }

    /// Whether an attempt is on its way: neither ready nor waiting for a retry.
    fn is_under_way(&mut self) -> bool {
        let waits = self.engine.next_due().is_some_and(|due| due.reason == DueReason::Retry);
        self.seen.under_way = !waits && !self.seen.ready;
        self.seen.under_way
    }
}

#[test]
fn case_44_twenty_restarts_of_a_node_leave_the_others_one_connection_and_one_ready_event_each() {
    // A client that crashes, seen by its server.
    let (mut server, endpoint) = Node::server("server");
    for generation in 1..=20 {
        let context = zmq::Context::new();
        let peer = RawClient::dial(&context, &endpoint);
        peer.hello("peer", generation);
        peer.complete(&mut server);
        arrive(&mut server, || {
            peer.answer();
        });
        assert_eq!(generations(&server.events()), [generation]);
        assert_eq!(server.engine.snapshot().connections.len(), 1);
        drop(peer);
    }
    until(&mut [&mut server], "the last one is gone", |nodes| {
        let snapshot = nodes[0].engine.snapshot();
        snapshot.connections.is_empty() && snapshot.fenced_open == 0 && snapshot.unadmitted == 0
    });

    // A server that stops and comes back, seen by its client.
    let mut client = Node::client("client", &endpoint);
    drop(server);
    for number in 1..=20 {
        let mut server = Node::new();
        let at = endpoint.to_string().parse().unwrap();
        let registered = Server::new(channel(), rid("server"), at).generation(generation(number));
        server.engine.serve(registered).unwrap();
        until(&mut [&mut server, &mut client], "ready", |nodes| {
            nodes[1].pass(ms(20));
            nodes.iter().all(|node| node.ready_peers() == 1)
        });
        settle(&mut [&mut server, &mut client]);
        assert_eq!(generations(&client.events()), [number]);
        assert_eq!(client.engine.snapshot().connections.len(), 1);
        drop(server);
        until(&mut [&mut client], "the end", |nodes| !lost(&nodes[0].inbox.events).is_empty());
        assert_eq!(lost(&client.events()), [("server".to_owned(), LostReason::Orderly)]);
    }
}

/// The generations that became ready, in order.
fn generations(events: &[Owned]) -> Vec<u64> {
    let ready = |event: &Owned| match event {
        Owned::Ready { peer } => Some(peer.generation().get()),
        _ => None,
    };
    events.iter().filter_map(ready).collect()
}
