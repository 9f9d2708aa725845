//! What a sceptical reading of the engine asked for: corners where phases, callbacks and shutdown meet.
mod support;

use support::raw::{self, Raw, Seen};
use support::{CHANNEL, Node, channel, ms, rid, s, settle, until};
use wakeful::{
    ChannelName, Client, Completion, ConnectionStatus, DueReason, Endpoint, Event, LostReason, Outbox, Owned,
    Pressure, RouteState, Unanswered,
};

/// The state of a node that takes no new work.
const DRAINING: u8 = 3;

#[test]
fn a_reject_is_never_answered_not_even_as_a_first_record() {
    let (mut node, endpoint) = Node::server("server");
    let mut stranger = Raw::client("stranger", &endpoint);
    stranger.send(&raw::reject(10), &[]);
    until(&mut [&mut node], "the stranger fenced", |nodes| nodes[0].engine.snapshot().fenced_open == 1);
    settle(&mut [&mut node]);
    stranger.poll();
    assert_eq!(stranger.seen, Vec::new());
}

#[test]
fn a_peer_closed_while_the_host_hears_of_something_else_is_not_heard_any_more() {
    let (raw, mut node) = Raw::ready_client("raw");
    let mut server = Raw::server("elsewhere");
    let elsewhere = ChannelName::new("elsewhere").unwrap();
    server.admission.name = "elsewhere".to_owned();
    server.admission.channels = vec![("elsewhere".to_owned(), 100)];
    let client = Client::new(elsewhere.clone(), rid("client")).server(server.endpoint.clone());
    node.engine.connect(client).unwrap();
    server.hello(&mut node);
    server.admit(&mut node);
    let request = node.engine.outbox().request(&elsewhere, &[b"ask"], s(60)).unwrap();
    let peer =
        node.engine.snapshot().connections.iter().find(|each| !each.is_dialled()).unwrap().peer.clone();

    for _ in 0..2 {
        raw.send(&raw::channel_send(CHANNEL), &[b"word"]);
    }
    let mut heard = 0;
    let mut host = |event: Event<'_>, outbox: &mut Outbox<'_>| match event {
        // The first word makes the host take its request back; hearing of that, it closes the peer.
        Event::Message { .. } => {
            heard += 1;
            outbox.cancel(request);
        }
        Event::Completed { outcome: Completion::Unanswered(Unanswered::Cancelled), .. } => {
            assert!(outbox.close(peer.connection()));
        }
        _ => {}
    };
    for _ in 0..10_000 {
        if node.engine.snapshot().connections.iter().all(ConnectionStatus::is_dialled) {
            break;
        }
        node.engine.turn_at(node.now, &mut host);
        node.engine.wait(Some(ms(1)));
    }
    assert_eq!(heard, 1);
}

#[test]
fn after_stop_nothing_is_due_and_no_attempt_is_called_a_failure() {
    let mut greeted = Raw::server("greeted");
    let (mut lost, mut node) = Raw::ready_server("lost");
    let other = ChannelName::new("other").unwrap();
    node.engine.connect(Client::new(other, rid("client")).server(greeted.endpoint.clone())).unwrap();
    greeted.hello(&mut node);
    lost.kill();
    let is_read_out = |node: &mut Node| node.turn().next.is_some_and(|due| due.reason == DueReason::ReadOut);
    until(&mut [&mut node], "the lost server read out", |nodes| is_read_out(nodes[0]));
    node.events();

    node.engine.stop(&mut node.inbox);
    let events = node.events();
    assert!(matches!(events[..], [Owned::Lost { reason: LostReason::Transport, .. }]), "{events:?}");
    assert_eq!(node.engine.next_due(), None);
}

#[test]
fn a_state_that_changes_while_a_hello_waits_for_its_answer_is_told_once_ready() {
    let mut server = Raw::server("server");
    let mut node = Node::client("client", &server.endpoint);
    assert_eq!(server.hello(&mut node).state, raw::SERVING);
    node.engine.drain(true);
    settle(&mut [&mut node]);
    server.admit(&mut node);
    server.poll();
    let commands: Vec<u8> = server.seen.iter().map(Seen::command).collect();
    assert_eq!(commands, [raw::PROBE, raw::UPDATE], "the first probe comes first");
    let update = server.taken(raw::UPDATE)[0].admission();
    assert_eq!((update.state, update.revision), (DRAINING, 2));
}

#[test]
fn a_paused_host_is_not_woken_for_a_connection_that_its_pause_keeps_from_being_read_out() {
    let (mut raw, mut node) = Raw::ready_client("raw");
    node.engine.outbox().set_pressure(Pressure::Paused);
    raw.send(&raw::channel_send(CHANNEL), &[b"word"]);
    until(&mut [&mut node], "the word held", |nodes| {
        nodes[0].engine.snapshot().connections.iter().any(|each| each.held == 1)
    });
    raw.kill();
    until(&mut [&mut node], "the end noticed", |nodes| nodes[0].ready_peers() == 0);
    settle(&mut [&mut node]);
    node.events();
    let due = node.turn().next;
    assert!(due.is_none_or(|due| due.reason != DueReason::ReadOut), "{due:?}");

    node.engine.outbox().set_pressure(Pressure::Running);
    until(&mut [&mut node], "the word and the end", |nodes| nodes[0].inbox.events.len() == 2);
    let events = node.events();
    assert!(matches!(events[..], [Owned::Message { .. }, Owned::Lost { .. }]), "{events:?}");
}

#[test]
fn many_attempts_that_are_due_at_once_are_begun_over_several_turns() {
    const MANY: usize = 100;
    let mut node = Node::new();
    let nobody = std::env::temp_dir().join("wakeful-nobody-");
    let servers =
        (0..MANY).map(|number| format!("ipc://{}{number}", nobody.display()).parse::<Endpoint>().unwrap());
    let client = servers.fold(Client::new(channel(), rid("client")), Client::server);
    node.engine.connect(client).unwrap();
    let begun = |node: &Node| {
        node.engine.snapshot().intents.iter().filter(|each| each.state != RouteState::Configured).count()
    };
    let report = node.turn();
    let first = begun(&node);
    assert!((1..=32).contains(&first), "{first} sockets opened in one turn");
    assert!(report.work_left);
    for _ in 0..MANY {
        node.turn();
    }
    assert_eq!(begun(&node), MANY);
}

#[test]
fn input_that_a_call_between_turns_found_is_due_now() {
    let (server, mut node) = Raw::ready_server("server");
    settle(&mut [&mut node]);
    assert_ne!(node.engine.next_due().unwrap().reason, DueReason::WorkLeft);
    server.send(&raw::reply(7, 0), &[]);
    // Each send may eat the wake-up of what has arrived by then.
    for _ in 0..500 {
        node.engine.outbox().send(&channel(), &[b"word"]).unwrap();
        if node.engine.next_due().unwrap().reason == DueReason::WorkLeft {
            return;
        }
        std::thread::sleep(ms(1));
    }
    panic!("what arrived is not called due");
}
