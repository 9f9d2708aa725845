//! Every call that can be made wrongly: each gives a typed error that says what and why, and changes nothing (issue 3).
#![allow(clippy::disallowed_methods, reason = "a test on real sockets bounds its waits in real time")]

mod support;

use std::fmt::Display;
use std::net::TcpListener;
use std::time::Duration;

use support::{CHANNEL, Node, channel, pair, rid, s, settle, until};
use wakeful::{
    BindEndpoint, ChannelName, Client, Config, ConfigError, Endpoint, EndpointError, Engine, ErrorKind,
    Generation, IoError, MESSAGE_BYTES_MIN, MeshName, NameError, NoRoute, Owned, RegisterError, ReplyToken,
    Rid, RouteState, SecurityId, SendError, Server, StartError, Unanswered, Weight,
};

const ANY: &str = "tcp://127.0.0.1:0";

/// The error, if its text has all of these words in it.
#[track_caller]
fn says<T, E: Display>(result: Result<T, E>, words: &[&str]) -> E {
    let Err(error) = result else { panic!("it was taken: {words:?}") };
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "{text:?} does not say {word:?}");
    }
    error
}

fn name(name: &str) -> ChannelName {
    ChannelName::new(name).unwrap()
}

fn server(channel: &str, bind: &str) -> Server {
    Server::new(name(channel), rid("node"), bind.parse().unwrap())
}

fn client(channel: &str) -> Client {
    Client::new(name(channel), rid("node"))
}

fn endpoint(port: u16) -> Endpoint {
    format!("tcp://127.0.0.1:{port}").parse().unwrap()
}

/// Everything that can be seen of an engine from outside.
fn state(engine: &mut Engine) -> String {
    format!("{:#?} {:?}", engine.snapshot(), engine.next_due().map(|due| due.reason))
}

/// Makes a call that must not be taken, and checks that it changed nothing.
#[track_caller]
fn refused<T>(
    node: &mut Node,
    words: &[&str],
    call: impl FnOnce(&mut Engine) -> Result<T, RegisterError>,
) -> RegisterError {
    node.turn();
    let before = state(&mut node.engine);
    let error = says(call(&mut node.engine), words);
    // The call may have opened a socket and closed it again; its monitor has the last word.
    node.turn();
    assert_eq!(before, state(&mut node.engine), "{error}");
    error
}

#[test]
fn a_name_that_the_wire_cannot_carry_is_refused_with_its_bounds() {
    let long = "x".repeat(256);
    let empty = [
        (says(ChannelName::new(""), &["channel name", "empty", "1 to 255 bytes"]), "channel name"),
        (says(MeshName::new(""), &["mesh name", "empty", "1 to 255 bytes"]), "mesh name"),
        (says(Rid::new(""), &["RID", "empty", "1 to 255 bytes"]), "RID"),
    ];
    for (error, what) in empty {
        assert_eq!(error, NameError::Empty { what });
    }
    let too_long = [
        (says(ChannelName::new(&long), &["channel name", "256", "255"]), "channel name"),
        (says(MeshName::new(&long), &["mesh name", "256", "255"]), "mesh name"),
        (says(Rid::new(&long), &["RID", "256", "255"]), "RID"),
        (says(SecurityId::new(&long), &["security identity", "256", "255"]), "security identity"),
    ];
    for (error, what) in too_long {
        assert_eq!(error, NameError::TooLong { what, bytes: 256 });
    }
    says(ChannelName::new("a\0b"), &["channel name", "NUL", "1"]);
    says(SecurityId::new("\0"), &["security identity", "NUL", "0"]);
    assert_eq!(
        says(Generation::new(0), &["lifecycle generation", "zero"]),
        NameError::Zero { what: "lifecycle generation" }
    );
    assert_eq!(says(Weight::new(10_001), &["10001", "10000"]), NameError::WeightTooHigh { weight: 10_001 });
    says(Weight::new(u32::MAX), &["4294967295", "10000"]);
}

#[test]
fn an_endpoint_that_nobody_could_dial_is_refused_with_what_would_do() {
    for (text, error, word) in [
        ("", EndpointError::Scheme, "begins with tcp:// or ipc://"),
        ("127.0.0.1:5555", EndpointError::Scheme, "begins with tcp:// or ipc://"),
        ("inproc://a", EndpointError::Scheme, "begins with tcp:// or ipc://"),
        ("pgm://127.0.0.1:5555", EndpointError::Scheme, "begins with tcp:// or ipc://"),
        ("tcp://localhost:5555", EndpointError::NotLiteral, "resolve a host name first"),
        ("tcp://eth0:5555", EndpointError::NotLiteral, "literal IP address"),
        ("tcp://127.0.0.1", EndpointError::NotLiteral, "a port"),
        ("tcp://127.0.0.1:65536", EndpointError::NotLiteral, "a port"),
        ("tcp://127.0.0.1:-1", EndpointError::NotLiteral, "a port"),
        ("tcp://127.0.0.1:1;127.0.0.1:2", EndpointError::NotLiteral, "literal IP address"),
        ("tcp://[::1%lo]:1", EndpointError::NotLiteral, "literal IP address"),
        ("tcp://*:5555", EndpointError::Wildcard, "not dialled or advertised"),
        ("tcp://0.0.0.0:5555", EndpointError::Wildcard, "not dialled or advertised"),
        ("tcp://127.0.0.1:0", EndpointError::Wildcard, "not dialled or advertised"),
        ("ipc://*", EndpointError::Wildcard, "not dialled or advertised"),
        ("ipc://", EndpointError::NoPath, "path"),
        ("ipc:///tmp/\0", EndpointError::Nul { at: 11 }, "NUL byte at 11"),
    ] {
        assert_eq!(says(text.parse::<Endpoint>(), &[word]), error, "{text:?}");
    }
    let long = format!("ipc:///{}", "p".repeat(200));
    says(long.parse::<Endpoint>(), &["201 bytes", "103"]);
    for text in ["tcp://localhost:1", "tcp://*:1:1", "udp://*:1", "ipc://", "tcp://*"] {
        says(
            text.parse::<BindEndpoint>(),
            &["tcp://"].map(|word| if text == "ipc://" { "path" } else { word }),
        );
    }
    let bound: BindEndpoint = "tcp://*:5555".parse().unwrap();
    assert_eq!(says(Endpoint::try_from(&bound), &["wildcard"]), EndpointError::Wildcard);
}

#[test]
fn a_setting_out_of_its_bounds_makes_no_engine_and_is_named_with_them() {
    let ms = Duration::from_millis;
    let default = Config::default;
    let cases = [
        ("receive_bytes_max", Config { receive_bytes_max: 4_095, ..default() }, "4096"),
        ("receive_bytes_max", Config { receive_bytes_max: (16 << 20) + 1, ..default() }, "16777216"),
        ("receive_time_max", Config { receive_time_max: Duration::ZERO, ..default() }, "50000"),
        ("receive_time_max", Config { receive_time_max: ms(11), ..default() }, "10000000"),
        ("turn_time_max", Config { turn_time_max: ms(0), ..default() }, "100000"),
        ("turn_time_max", Config { turn_time_max: Duration::MAX, ..default() }, "100000000"),
        ("queue_records_max", Config { queue_records_max: 1, ..default() }, "2 to 10000"),
        ("queue_records_max", Config { queue_records_max: 10_001, ..default() }, "2 to 10000"),
        ("connections_max", Config { connections_max: 0, ..default() }, "1 to 1000000"),
        ("connections_max", Config { connections_max: 1_000_001, ..default() }, "1 to 1000000"),
        ("requests_max", Config { requests_max: 0, ..default() }, "1 to 16777216"),
        ("requests_max", Config { requests_max: u32::MAX, ..default() }, "1 to 16777216"),
        ("replies_max", Config { replies_max: 0, ..default() }, "1 to 16777216"),
        ("replies_max", Config { replies_max: u32::MAX, ..default() }, "1 to 16777216"),
        ("pause_records_max", Config { pause_records_max: 0, ..default() }, "to"),
        ("pause_records_max", Config { pause_records_max: u32::MAX, ..default() }, "to"),
        ("pause_bytes_max", Config { pause_bytes_max: 0, ..default() }, "to"),
        ("pause_bytes_max", Config { pause_bytes_max: u64::MAX, ..default() }, "to"),
    ];
    for (setting, config, bounds) in cases {
        let error = says(Engine::new(config), &[setting, bounds]);
        assert!(matches!(error, StartError::Config(ConfigError { setting: named, .. }) if named == setting));
    }
}

#[test]
fn a_second_server_or_client_of_a_channel_is_refused() {
    let (mut node, _) = Node::server("node");
    // It accepts and says nothing, so that nothing changes by itself.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = endpoint(silent.local_addr().unwrap().port());
    node.engine.connect(client(CHANNEL).server(other)).unwrap();
    until(&mut [&mut node], "it dials", |nodes| {
        nodes[0].engine.snapshot().intents[0].state == RouteState::Connecting
    });
    settle(&mut [&mut node]);
    let second =
        refused(&mut node, &[CHANNEL, "already has a server"], |engine| engine.serve(server(CHANNEL, ANY)));
    assert_eq!(second, RegisterError::SecondServer { channel: channel() });
    let second = refused(&mut node, &[CHANNEL, "already has a client"], |engine| {
        engine.connect(client(CHANNEL).server(endpoint(2)))
    });
    assert_eq!(second, RegisterError::SecondClient { channel: channel() });
}

#[test]
fn a_client_that_names_no_endpoint_or_one_twice_is_refused() {
    let mut node = Node::new();
    let unnamed = refused(&mut node, &["fresh", "no endpoint"], |engine| engine.connect(client("fresh")));
    assert_eq!(unnamed, RegisterError::NoEndpoint { channel: name("fresh") });
    // Twice is twice, however it is spelled.
    for again in ["tcp://[::1]:7", "tcp://[0:0::1]:7"] {
        let twice = refused(&mut node, &["fresh", "tcp://[::1]:7", "twice"], |engine| {
            let one = client("fresh").server("tcp://[::1]:7".parse().unwrap()).server(endpoint(7));
            engine.connect(one.expected_server(again.parse().unwrap(), rid("x"), None, None))
        });
        assert!(matches!(twice, RegisterError::EndpointTwice { .. }));
    }
    node.engine.connect(client("fresh").server(endpoint(7))).unwrap();
}

#[test]
fn a_limit_on_records_below_any_admission_is_refused() {
    let (mut node, _) = Node::server("node");
    for bytes in [1, 100, MESSAGE_BYTES_MIN - 1] {
        let words: &[&str] = &["message_bytes_max", &bytes.to_string(), "4096"];
        let error = RegisterError::MessageLimit { bytes };
        let served = |engine: &mut Engine| engine.serve(server("fresh", ANY).message_bytes_max(bytes));
        assert_eq!(refused(&mut node, words, served), error);
        let connected = |engine: &mut Engine| {
            engine.connect(client("fresh").server(endpoint(7)).message_bytes_max(bytes))
        };
        assert_eq!(refused(&mut node, words, connected), error);
    }
    node.engine.serve(server("fresh", ANY).message_bytes_max(MESSAGE_BYTES_MIN)).unwrap();
}

#[test]
fn a_place_where_one_cannot_listen_is_named_with_the_reason_and_another_may_be_tried() {
    let (mut node, _) = Node::server("node");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let in_use = format!("tcp://{}", taken.local_addr().unwrap());
    let file = std::env::temp_dir().join(format!("wakeful-bad-input-{}", std::process::id()));
    std::fs::write(&file, "somebody's").unwrap();
    let occupied = format!("ipc://{}", file.display());
    let mut cases = vec![
        (in_use, IoError::AddressInUse, "in use"),
        ("tcp://192.0.2.1:0".into(), IoError::AddressUnavailable, "no such address"),
        ("ipc:///no-such-directory/at-all".into(), IoError::NoSuchPath, "no such directory"),
    ];
    if occupied.parse::<BindEndpoint>().is_ok() {
        cases.push((occupied, IoError::AddressInUse, "in use"));
    }
    for (bind, io, why) in &cases {
        let error = refused(&mut node, &[bind, why], |engine| engine.serve(server("fresh", bind)));
        assert_eq!(error, RegisterError::Io { endpoint: bind.parse().unwrap(), error: *io });
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "somebody's");
    std::fs::remove_file(&file).unwrap();
    node.engine.serve(server("fresh", ANY)).unwrap();
}

#[test]
fn a_call_on_a_channel_without_a_client_is_refused_a_server_starts_nothing() {
    let (mut server, mut client) = pair();
    for node in [&mut server, &mut client] {
        let before = state(&mut node.engine);
        let mut outbox = node.engine.outbox();
        let elsewhere = name("elsewhere");
        let words = ["no client", "of that channel"];
        assert_eq!(says(outbox.send(&elsewhere, &[b"x"]), &words), SendError::UnknownChannel);
        assert_eq!(says(outbox.request(&elsewhere, &[b"x"], s(1)), &words), SendError::UnknownChannel);
        assert!(!outbox.set_weight(&elsewhere, Weight::new(1).unwrap()));
        drop(outbox);
        assert_eq!(before, state(&mut node.engine));
    }
    let mut outbox = server.engine.outbox();
    assert_eq!(outbox.send(&channel(), &[b"x"]), Err(SendError::UnknownChannel));
    drop(outbox);
    assert!(
        !client.engine.outbox().set_weight(&channel(), Weight::new(1).unwrap()),
        "a client has no weight"
    );
}

#[test]
fn a_message_takes_1_to_255_parts_and_a_reply_0_to_255() {
    let (mut server, mut client) = pair();
    let before = state(&mut client.engine);
    let parts = |count: usize| vec![&b"x"[..]; count];
    let mut outbox = client.engine.outbox();
    assert_eq!(says(outbox.send(&channel(), &[]), &["at least one part"]), SendError::NoParts);
    assert_eq!(says(outbox.request(&channel(), &[], s(1)), &["at least one part"]), SendError::NoParts);
    let too_many = SendError::TooManyParts { parts: 256 };
    assert_eq!(says(outbox.send(&channel(), &parts(256)), &["256", "255"]), too_many);
    assert_eq!(says(outbox.request(&channel(), &parts(256), s(1)), &["256", "255"]), too_many);
    drop(outbox);
    assert_eq!(before, state(&mut client.engine));
    client.engine.outbox().request(&channel(), &parts(255), s(1)).unwrap();
    let token = token_of(&mut server, &mut client);
    let before = state(&mut server.engine);
    assert_eq!(says(server.engine.outbox().reply(token, &parts(256)), &["256", "255"]), too_many);
    assert_eq!(before, state(&mut server.engine), "the token is as good as before");
    server.engine.outbox().reply(token, &parts(255)).unwrap();
    until(&mut [&mut client, &mut server], "the reply", |nodes| {
        nodes[0]
            .inbox
            .events
            .iter()
            .any(|event| matches!(event, Owned::Replied { parts, .. } if parts.len() == 255))
    });
}

/// The token of a request that is under way.
fn token_of(server: &mut Node, client: &mut Node) -> ReplyToken {
    let mut token = None;
    until(&mut [server, client], "the request", |nodes| {
        token = nodes[0].events().into_iter().find_map(|event| match event {
            Owned::Request { token, .. } => Some(token),
            _ => None,
        });
        token.is_some()
    });
    token.unwrap()
}

#[test]
fn a_token_is_good_for_one_answer_and_none_after_its_connection() {
    let (mut server, mut client) = pair();
    client.engine.outbox().request(&channel(), &[b"x"], s(60)).unwrap();
    let token = token_of(&mut server, &mut client);
    server.engine.outbox().reply(token, &[]).unwrap();
    let before = state(&mut server.engine);
    let words = ["token is spent"];
    assert_eq!(says(server.engine.outbox().reply(token, &[]), &words), SendError::TokenSpent);
    assert_eq!(
        says(server.engine.outbox().decline(token, ErrorKind::Rejected), &words),
        SendError::TokenSpent
    );
    assert_eq!(before, state(&mut server.engine));
    client.engine.outbox().request(&channel(), &[b"x"], s(60)).unwrap();
    let token = token_of(&mut server, &mut client);
    drop(client);
    until(&mut [&mut server], "the client is lost", |nodes| {
        nodes[0].inbox.events.iter().any(|event| matches!(event, Owned::Lost { .. }))
    });
    let before = state(&mut server.engine);
    assert_eq!(says(server.engine.outbox().reply(token, &[]), &["has ended"]), SendError::TokenSpent);
    assert_eq!(before, state(&mut server.engine));
}

#[test]
fn a_send_before_anyone_is_ready_or_after_the_peer_is_lost_is_told_so_and_no_request_exists() {
    let mut client = Node::client("client", &endpoint(9));
    let before = state(&mut client.engine);
    let unavailable = SendError::RouteNotConnected(NoRoute::Unavailable);
    let words = ["route not connected", "ready"];
    assert_eq!(says(client.engine.outbox().send(&channel(), &[b"x"]), &words), unavailable);
    assert_eq!(says(client.engine.outbox().request(&channel(), &[b"x"], s(1)), &words), unavailable);
    assert_eq!(before, state(&mut client.engine));

    let (server, mut client) = pair();
    drop(server);
    until(&mut [&mut client], "the server is lost", |nodes| {
        nodes[0].inbox.events.iter().any(|event| matches!(event, Owned::Lost { .. }))
    });
    let before = state(&mut client.engine);
    assert_eq!(says(client.engine.outbox().send(&channel(), &[b"x"]), &words), unavailable);
    assert_eq!(says(client.engine.outbox().request(&channel(), &[b"x"], s(1)), &words), unavailable);
    assert_eq!(before, state(&mut client.engine));
}

#[test]
fn a_send_to_a_channel_that_nobody_serves_now_is_told_so() {
    let (mut server, mut client) = pair();
    server.engine.outbox().set_weight(&channel(), Weight::new(0).unwrap());
    settle(&mut [&mut server, &mut client]);
    let before = state(&mut client.engine);
    let error =
        says(client.engine.outbox().send(&channel(), &[b"x"]), &["route not connected", "nobody serves"]);
    assert_eq!(error, SendError::RouteNotConnected(NoRoute::NotFound));
    assert_eq!(before, state(&mut client.engine));
    assert_eq!(client.ready_peers(), 1);
}

#[test]
fn a_record_above_the_peers_limit_is_refused_here_and_the_largest_arrives() {
    const LIMIT: u32 = 5_000;
    let mut server = Node::new();
    let bound = server.engine.serve(server_of(LIMIT)).unwrap();
    let mut client = Node::client("client", &Endpoint::try_from(&bound).unwrap());
    until(&mut [&mut server, &mut client], "both ready", |nodes| {
        nodes.iter().all(|node| node.ready_peers() == 1)
    });
    settle(&mut [&mut server, &mut client]);
    let before = state(&mut client.engine);
    // Five bytes of every head, the name and its length; a request has its correlation too.
    let head = 5 + 1 + CHANNEL.len();
    let largest = vec![7; LIMIT as usize - head];
    let one_more = [&largest[..], b"x"];
    let error = SendError::TooLarge { bytes: LIMIT as usize + 1, bytes_max: LIMIT };
    let words = ["5001 bytes", "5000"];
    assert_eq!(says(client.engine.outbox().send(&channel(), &one_more), &words), error);
    let error = SendError::TooLarge { bytes: LIMIT as usize + 8, bytes_max: LIMIT };
    let request = client.engine.outbox().request(&channel(), &[&largest], s(1));
    assert_eq!(says(request, &["5008 bytes", "5000"]), error);
    assert_eq!(before, state(&mut client.engine));
    client.engine.outbox().send(&channel(), &[&largest]).unwrap();
    until(&mut [&mut server, &mut client], "the largest", |nodes| {
        nodes[0].inbox.events.iter().any(|event| matches!(event, Owned::Message { .. }))
    });
    assert_eq!((server.ready_peers(), client.ready_peers()), (1, 1));
}

fn server_of(bytes_max: u32) -> Server {
    server(CHANNEL, ANY).message_bytes_max(bytes_max)
}

/// Above the bound of pending requests, and with times that no clock can reach.
#[test]
fn too_many_requests_are_refused_and_an_endless_time_out_is_taken() {
    let (mut server, endpoint) = Node::server("server");
    let mut client = Node::with(Config { requests_max: 2, seed: 7, ..Config::default() });
    client.engine.connect(Client::new(channel(), rid("client")).server(endpoint)).unwrap();
    until(&mut [&mut server, &mut client], "both ready", |nodes| {
        nodes.iter().all(|node| node.ready_peers() == 1)
    });
    settle(&mut [&mut server, &mut client]);
    let endless = client.engine.outbox().request(&channel(), &[b"x"], Duration::MAX).unwrap();
    let instant = client.engine.outbox().request(&channel(), &[b"x"], Duration::ZERO).unwrap();
    let before = state(&mut client.engine);
    let third = client.engine.outbox().request(&channel(), &[b"x"], s(1));
    assert_eq!(says(third, &["too many requests"]), SendError::TooManyRequests);
    assert_eq!(before, state(&mut client.engine));
    client.pass(Duration::from_nanos(1));
    let timed_out = Owned::Unanswered { request: instant, why: Unanswered::TimedOut };
    until(&mut [&mut client], "the time-out", |nodes| {
        nodes[0].now += Duration::from_millis(1);
        nodes[0].inbox.events.contains(&timed_out)
    });
    let mut outbox = client.engine.outbox();
    assert!(outbox.cancel(endless), "it waits");
    assert!(!outbox.cancel(endless) && !outbox.cancel(instant), "what has ended is not cancelled again");
    drop(outbox);
    client.turn();
    let ends = client.events();
    let cancelled = Owned::Unanswered { request: endless, why: Unanswered::Cancelled };
    assert_eq!(ends.iter().filter(|event| **event == cancelled).count(), 1);
}

#[test]
fn a_handle_to_a_connection_that_is_gone_is_a_value_and_no_more() {
    let (mut server, mut client) = pair();
    let connection = server.engine.snapshot().connections[0].peer.connection();
    assert!(server.engine.outbox().is_ready(connection));
    assert!(server.engine.outbox().close(connection));
    let before = state(&mut server.engine);
    assert!(!server.engine.outbox().close(connection) && !server.engine.outbox().is_ready(connection));
    assert_eq!(before, state(&mut server.engine));
    // The client comes back on another connection, which the old handle does not mean.
    until(&mut [&mut server, &mut client], "the client is back", |nodes| {
        nodes[1].now += Duration::from_millis(10);
        nodes[0].ready_peers() == 1
    });
    assert!(!server.engine.outbox().close(connection) && !server.engine.outbox().is_ready(connection));
    assert_eq!(server.ready_peers(), 1);
}

#[test]
fn nothing_can_be_begun_after_the_stop() {
    let (mut server, mut client) = pair();
    client.engine.outbox().request(&channel(), &[b"x"], s(60)).unwrap();
    let token = token_of(&mut server, &mut client);
    for node in [&mut server, &mut client] {
        node.engine.stop(&mut node.inbox);
        node.turn();
        let words = ["shutting down"];
        let listening = refused(node, &words, |engine| engine.serve(self::server("fresh", ANY)));
        assert_eq!(listening, RegisterError::ShuttingDown);
        let connected =
            refused(node, &words, |engine| engine.connect(self::client("fresh").server(endpoint(7))));
        assert_eq!(connected, RegisterError::ShuttingDown);
        let before = state(&mut node.engine);
        assert_eq!(says(node.engine.outbox().send(&channel(), &[b"x"]), &words), SendError::ShuttingDown);
        let request = node.engine.outbox().request(&channel(), &[b"x"], s(1));
        assert_eq!(says(request, &words), SendError::ShuttingDown);
        says(node.engine.outbox().reply(token, &[]), &["ended"]);
        node.engine.drain(true);
        node.engine.drain(false);
        node.engine.stop(&mut node.inbox);
        node.turn();
        assert_eq!(before, state(&mut node.engine));
        assert!(node.engine.next_due().is_none());
    }
}

/// A host may give any time it likes.
#[test]
fn a_time_of_turn_before_the_last_or_centuries_ahead_harms_nobody() {
    let (mut server, mut client) = pair();
    server.engine.turn_at(server.now.checked_sub(s(1)).unwrap(), &mut server.inbox);
    server.now += s(10_000_000_000);
    server.turn();
    client.send("still here");
    until(&mut [&mut server, &mut client], "the message", |nodes| {
        nodes[0].inbox.events.iter().any(|event| matches!(event, Owned::Message { .. }))
    });
    assert_eq!(server.ready_peers(), 1);
}
