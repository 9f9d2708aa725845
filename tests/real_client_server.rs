//! ClientServer over real loopback sockets.
mod support;
use support::*;
use wakeful::*;

#[test]
fn a_message_and_a_request_go_all_the_way() {
    let (mut server, mut client) = pair();
    client.send("hello");
    server.inbox.echo = true;
    let request = client.engine.outbox().request(&channel(), &[b"a", b"b"], s(5)).unwrap();
    let mut replied = Vec::new();
    until(&mut [&mut server, &mut client], "a reply", |nodes| {
        replied.extend(nodes[1].events());
        !replied.is_empty()
    });
    assert_eq!(replied, vec![Owned::Replied { request, parts: vec![b"a".to_vec(), b"b".to_vec()] }]);
    assert_eq!(texts(&mut server), vec!["hello"]);
}

/// The texts of all messages among the events.
fn texts(node: &mut Node) -> Vec<String> {
    let message = |event| match event {
        Owned::Message { parts, .. } => Some(String::from_utf8(parts[0].clone()).unwrap()),
        _ => None,
    };
    node.events().into_iter().filter_map(message).collect()
}

#[test]
fn a_paused_host_gets_no_message_and_loses_none() {
    let (mut server, mut client) = pair();
    server.engine.outbox().set_pressure(Pressure::Paused);
    let sent: Vec<String> = (0..200).map(|number| number.to_string()).collect();
    for text in &sent {
        client.send(text);
    }
    pass_all(&mut [&mut server, &mut client], s(12), s(1));
    assert_eq!(texts(&mut server), Vec::<String>::new());
    assert_eq!((server.ready_peers(), client.ready_peers()), (1, 1), "a pause alone changes no readiness");
    server.engine.outbox().set_pressure(Pressure::Running);
    let mut received = Vec::new();
    until(&mut [&mut server, &mut client], "all 200", |nodes| {
        received.extend(texts(nodes[0]));
        received.len() == sent.len()
    });
    assert_eq!(received, sent);
}

#[test]
fn a_paused_host_answers_probes_and_hears_answers_as_long_as_nothing_is_held_before_them() {
    let (mut server, mut client) = pair();
    server.engine.outbox().set_pressure(Pressure::Paused);
    pass_all(&mut [&mut server, &mut client], s(20), s(1));
    assert_eq!((server.events(), client.events()), (vec![], vec![]));
}

#[test]
fn a_peer_whose_answers_wait_behind_a_pause_is_judged_and_the_reason_says_so() {
    let (mut server, mut client) = pair();
    server.engine.outbox().set_pressure(Pressure::Paused);
    client.send("in the way");
    pass_all(&mut [&mut server, &mut client], s(17), s(1));
    let reasons: Vec<LostReason> = server
        .events()
        .into_iter()
        .filter_map(|event| match event {
            Owned::Lost { reason, .. } => Some(reason),
            _ => None,
        })
        .collect();
    assert_eq!(reasons, vec![LostReason::Silence(Silence::NoAnswerPaused)]);
}

#[test]
fn a_draining_host_makes_no_new_calls_and_keeps_its_connections() {
    let (mut server, mut client) = pair();
    client.engine.drain(true);
    settle(&mut [&mut server, &mut client]);
    let sent = client.engine.outbox().send(&channel(), &[b"new work"]);
    assert_eq!(sent, Err(SendError::ShuttingDown));
    assert_eq!((server.ready_peers(), client.ready_peers()), (1, 1));
    client.engine.drain(false);
    client.send("again");
    let mut received = Vec::new();
    until(&mut [&mut server, &mut client], "delivered", |nodes| {
        received.extend(texts(nodes[0]));
        received == ["again"]
    });
}
