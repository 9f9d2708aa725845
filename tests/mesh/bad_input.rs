//! Every call on a mesh that can be made wrongly: each gives a typed error that says what and why, and changes nothing.
#![allow(clippy::disallowed_methods, reason = "a test on real sockets bounds its waits in real time")]

use std::fmt::Display;
use std::net::TcpListener;
use std::time::Duration;

use wakeful::{
    BindEndpoint, Client, Endpoint, Engine, ErrorKind, IoError, MeshName, MeshNode, NoRoute, NodeDescriptor,
    NodeEndpoint, Owned, Publisher, RegisterError, ReplyToken, Role, SERVES_MAX, SecurityId, SendError,
    Server, Subscriber, TopologyName,
};

use crate::support::mesh::{application, listening, mesh, mesh_pair, named, plain, weight};
use crate::support::raw_mesh::RawNode;
use crate::support::{Node, generation, rid, s, settle, until};

const ANY: &str = "tcp://127.0.0.1:0";

fn hall() -> MeshName {
    MeshName::new("hall").unwrap()
}

/// A node of another mesh than the usual one.
fn elsewhere() -> MeshNode {
    MeshNode::new(hall(), rid("x"))
}

fn endpoint(port: u16) -> Endpoint {
    format!("tcp://127.0.0.1:{port}").parse().unwrap()
}

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

/// Everything that can be seen of an engine from outside.
fn state(engine: &mut Engine) -> String {
    format!("{:#?} {:?}", engine.snapshot(), engine.next_due().map(|due| due.reason))
}

/// Makes a call that must not be taken, and checks that it changed nothing, then or in the turns after it.
#[track_caller]
fn refused<T, E: Display>(
    node: &mut Node,
    words: &[&str],
    call: impl FnOnce(&mut Engine) -> Result<T, E>,
) -> E {
    node.turn();
    let before = state(&mut node.engine);
    let error = says(call(&mut node.engine), words);
    // The call may have opened a socket and closed it again; its monitor has the last word.
    node.turn();
    node.engine.wait(Some(Duration::ZERO));
    node.turn();
    assert_eq!(before, state(&mut node.engine), "{error}");
    error
}

/// A node of the usual mesh, alone, that serves "work".
fn alone() -> Node {
    Node::join(listening("a").serve(named("work"), weight(1))).0
}

// ---- Registration ----

#[test]
fn a_second_node_of_one_mesh_is_refused_and_one_of_another_mesh_is_not() {
    let mut node = alone();
    for second in [plain("a"), plain("b"), listening("b").serve(named("play"), weight(1))] {
        let error = refused(&mut node, &["lobby", "already has a node"], |engine| engine.join(second));
        assert_eq!(error, RegisterError::SecondMesh { mesh: mesh() });
    }
    node.engine.join(elsewhere().serve(named("play"), weight(1))).unwrap();
    assert_eq!(node.engine.snapshot().meshes.len(), 2);
}

#[test]
fn a_channel_belongs_to_one_topology_and_one_mesh() {
    let mut node = alone();
    let there = TopologyName::RouteMesh(mesh());
    let error = RegisterError::ChannelElsewhere { channel: named("work"), topology: there };
    let words = ["work", "another topology", "lobby"];
    let any = || ANY.parse::<BindEndpoint>().unwrap();
    let server = Server::new(named("work"), rid("x"), any());
    assert_eq!(refused(&mut node, &words, |engine| engine.serve(server)), error);
    let client = Client::new(named("work"), rid("x")).server(endpoint(7));
    assert_eq!(refused(&mut node, &words, |engine| engine.connect(client)), error);
    let publisher = Publisher::new(named("work"), any());
    assert_eq!(refused(&mut node, &words, |engine| engine.broadcast(publisher)), error);
    assert_eq!(refused(&mut node, &words, |engine| engine.subscribe(Subscriber::new(named("work")))), error);
    let other = elsewhere().serve(named("other"), weight(1)).serve(named("work"), weight(1));
    assert_eq!(refused(&mut node, &words, |engine| engine.join(other)), error);

    // The other way round: whoever has the channel first keeps it.
    node.engine.serve(Server::new(named("served"), rid("x"), any())).unwrap();
    node.engine.connect(Client::new(named("called"), rid("x")).server(endpoint(7))).unwrap();
    node.engine.broadcast(Publisher::new(named("told"), any())).unwrap();
    node.engine.subscribe(Subscriber::new(named("heard"))).unwrap();
    node.events();
    for channel in ["served", "called", "told", "heard"] {
        let topology = match channel {
            "served" | "called" => TopologyName::ClientServer(named(channel)),
            _ => TopologyName::Fanout(named(channel)),
        };
        let wish = elsewhere().listen(any(), any()).serve(named(channel), weight(1));
        let before = node.engine.snapshot().meshes.len();
        let error = says(node.engine.join(wish), &[channel, "another topology"]);
        assert_eq!(error, RegisterError::ChannelElsewhere { channel: named(channel), topology });
        assert_eq!(node.engine.snapshot().meshes.len(), before);
    }
    node.engine.join(elsewhere().serve(named("free"), weight(1))).unwrap();
}

#[test]
fn a_node_serves_each_channel_once_and_a_thousand_at_most() {
    let mut node = alone();
    let twice =
        elsewhere().serve(named("a"), weight(1)).serve(named("b"), weight(1)).serve(named("a"), weight(2));
    let error = refused(&mut node, &["channel a", "twice"], |engine| engine.join(twice));
    assert_eq!(error, RegisterError::ChannelTwice { channel: named("a") });
    let many = |count: usize| {
        let long = "x".repeat(240);
        (0..count).fold(elsewhere(), |node, at| node.serve(named(&format!("{long}{at}")), weight(1)))
    };
    let error =
        refused(&mut node, &["1001 channels", "at most 1000"], |engine| engine.join(many(SERVES_MAX + 1)));
    assert_eq!(error, RegisterError::TooManyChannels { channels: SERVES_MAX + 1 });
    node.engine.join(many(SERVES_MAX)).unwrap();
}

#[test]
fn a_node_that_others_could_not_dial_is_refused() {
    let mut node = alone();
    let bind = |text: &str| text.parse::<BindEndpoint>().unwrap();
    for (application, completion, open) in [
        ("tcp://*:0", ANY, "tcp://*:0"),
        (ANY, "tcp://0.0.0.0:0", "tcp://0.0.0.0:0"),
        ("tcp://[::]:0", ANY, "tcp://[::]:0"),
    ] {
        let wish = elsewhere().listen(bind(application), bind(completion));
        let error = refused(&mut node, &["cannot be dialled", "advertise"], |engine| engine.join(wish));
        assert_eq!(error, RegisterError::NotDialable { endpoint: bind(open) });
    }
    let wish = elsewhere().listen(bind("tcp://*:0"), bind("tcp://*:0")).advertised(endpoint(7), endpoint(8));
    node.engine.join(wish).unwrap();
}

/// Either lane's place may be taken; then the other one is let go again, and can be had by somebody else.
#[test]
fn a_place_where_a_lane_cannot_listen_is_named_with_the_reason_and_neither_lane_listens() {
    let mut node = alone();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let in_use = taken.local_addr().unwrap().to_string();
    let free = {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("tcp://{}", free.local_addr().unwrap())
    };
    let cases = [
        (format!("tcp://{in_use}"), IoError::AddressInUse, "in use"),
        ("tcp://192.0.2.1:0".into(), IoError::AddressUnavailable, "no such address"),
        ("ipc:///no-such-directory/at-all".into(), IoError::NoSuchPath, "no such directory"),
    ];
    for (bind, io, why) in &cases {
        for lanes in [[bind.as_str(), ANY], [ANY, bind.as_str()]] {
            let [application, completion] = lanes.map(|lane| lane.parse().unwrap());
            let wish = elsewhere().listen(application, completion).peer(endpoint(7));
            let error = refused(&mut node, &[bind, why], |engine| engine.join(wish));
            assert_eq!(error, RegisterError::Io { endpoint: bind.parse().unwrap(), error: *io });
        }
    }
    // One place for both lanes is taken by the first of them.
    let both = elsewhere().listen(free.parse().unwrap(), free.parse().unwrap());
    let error = refused(&mut node, &[&free, "in use"], |engine| engine.join(both));
    assert_eq!(error, RegisterError::Io { endpoint: free.parse().unwrap(), error: IoError::AddressInUse });
    let mut bound = None;
    until(&mut [&mut node], "the place is free again", |nodes| {
        let wish = elsewhere().listen(free.parse().unwrap(), ANY.parse().unwrap());
        bound = nodes[0].engine.join(wish).ok();
        bound.is_some()
    });
    assert_eq!(application(&bound.flatten().unwrap()).as_str(), free);
}

#[test]
fn an_endpoint_or_a_node_named_twice_is_refused_whole() {
    let mut node = alone();
    let twice = elsewhere().peer(endpoint(7)).peer(endpoint(8)).expected_peer(endpoint(7), rid("b"));
    let words = ["tcp://127.0.0.1:7", "twice", "hall"];
    let error = refused(&mut node, &words, |engine| engine.join(twice));
    assert_eq!(
        error,
        RegisterError::EndpointTwice { topology: TopologyName::RouteMesh(hall()), endpoint: endpoint(7) }
    );
    let wish = |port: u16| NodeEndpoint { endpoint: endpoint(port), rid: None };
    let words = ["tcp://127.0.0.1:7", "twice", "lobby"];
    refused(&mut node, &words, |engine| {
        engine.outbox().set_endpoints(&mesh(), 9, &[wish(7), wish(8), wish(7)])
    });

    let described = |name: &str, port: Option<u16>| NodeDescriptor {
        rid: rid(name),
        generation: generation(1),
        security: SecurityId::default(),
        role: Role::None,
        serves: vec![(named("play"), weight(1))],
        endpoint: port.map(endpoint),
    };
    let (b, c) = (described("b", Some(7)), described("c", Some(8)));
    let again = [b.clone(), c.clone(), described("b", None)];
    let error =
        refused(&mut node, &["node b", "twice"], |engine| engine.outbox().set_descriptors(&mesh(), &again));
    assert_eq!(error, RegisterError::NodeTwice { rid: rid("b") });
    let same_place = [b, described("c", Some(7))];
    let words = ["tcp://127.0.0.1:7", "twice"];
    refused(&mut node, &words, |engine| engine.outbox().set_descriptors(&mesh(), &same_place));
    let nobody = node.outbox().send((&mesh(), &named("play")), &[b"x"]);
    assert_eq!(nobody, Err(SendError::RouteNotConnected(NoRoute::NotFound)), "nobody was described");
}

/// What was wished for and taken back is out of the way of what is wished for next, however often.
#[test]
fn a_list_of_endpoints_that_was_emptied_can_be_filled_again() {
    let (mut node, _) = Node::join(plain("node"));
    for _ in 0..4 {
        let mut raw = RawNode::listening("raw");
        let wish = [NodeEndpoint { endpoint: raw.at(), rid: None }];
        node.outbox().set_endpoints(&mesh(), 0, &wish).unwrap();
        raw.admit(&mut node);
        assert_eq!(node.peers(), ["raw"]);
        node.outbox().set_endpoints(&mesh(), 0, &[]).unwrap();
        assert_eq!(node.engine.snapshot().intents.len(), 0);
        until(&mut [&mut node], "both lanes' ends", |_| raw.disconnected() == 2);
        settle(&mut [&mut node]);
    }
}

// ---- Calls ----

type Call<'a> = &'a dyn Fn(&mut Engine) -> Result<(), SendError>;

#[test]
fn a_call_on_a_mesh_without_a_node_here_is_refused() {
    let (mut a, mut b) = mesh_pair();
    for node in [&mut a, &mut b] {
        let words = ["no node of that mesh"];
        let (hall, work, b) = (hall(), named("work"), rid("b"));
        let calls: [Call<'_>; 4] = [
            &|engine| engine.outbox().send((&hall, &work), &[b"x"]),
            &|engine| engine.outbox().send((&hall, &b), &[b"x"]),
            &|engine| engine.outbox().request((&hall, &work), &[b"x"], s(1)).map(drop),
            &|engine| engine.outbox().request((&hall, &b), &[b"x"], s(1)).map(drop),
        ];
        for call in calls {
            assert_eq!(refused(node, &words, call), SendError::UnknownMesh);
        }
        let words = ["mesh hall", "no node here"];
        let unknown = RegisterError::UnknownMesh { mesh: hall.clone() };
        let called = |engine: &mut Engine| engine.outbox().set_descriptors(&hall, &[]);
        assert_eq!(refused(node, &words, called), unknown);
        let called = |engine: &mut Engine| engine.outbox().set_endpoints(&hall, 1, &[]);
        assert_eq!(refused(node, &words, called), unknown);
        // A mesh's channel is no ClientServer one, though the names are alike.
        let call = |engine: &mut Engine| engine.outbox().send(&work, &[b"x"]);
        assert_eq!(refused(node, &["no client"], call), SendError::UnknownChannel);
        let before = state(&mut node.engine);
        assert!(!node.outbox().set_weight(&named("nobody's"), weight(3)));
        assert_eq!(before, state(&mut node.engine));
    }
    assert!(!a.outbox().set_weight(&named("work"), weight(3)), "only who serves it can weigh it");
    assert!(b.outbox().set_weight(&named("work"), weight(3)));
}

#[test]
fn a_call_to_nobody_is_told_so_and_no_request_exists() {
    let (mut a, b) = mesh_pair();
    let (mesh, work) = (mesh(), named("work"));
    for (to, channel) in [(rid("nobody"), named("other")), (rid("ghost"), named("play"))] {
        let not_found = SendError::RouteNotConnected(NoRoute::NotFound);
        let words = ["route not connected", "nobody serves"];
        assert_eq!(refused(&mut a, &words, |engine| engine.outbox().send((&mesh, &to), &[b"x"])), not_found);
        let call = |engine: &mut Engine| engine.outbox().send((&mesh, &channel), &[b"x"]);
        assert_eq!(refused(&mut a, &words, call), not_found);
        let call = |engine: &mut Engine| engine.outbox().request((&mesh, &to), &[b"x"], s(1));
        assert_eq!(refused(&mut a, &words, call), not_found);
    }
    drop(b);
    until(&mut [&mut a], "the loss", |nodes| {
        nodes[0].inbox.events.iter().any(|event| matches!(event, Owned::Lost { .. }))
    });
    let unavailable = SendError::RouteNotConnected(NoRoute::Unavailable);
    let call = |engine: &mut Engine| engine.outbox().send((&mesh, &rid("b")), &[b"x"]);
    assert_eq!(refused(&mut a, &["route not connected"], call), unavailable);
    let call = |engine: &mut Engine| engine.outbox().request((&mesh, &work), &[b"x"], s(1));
    assert_eq!(refused(&mut a, &["route not connected"], call), unavailable);
}

#[test]
fn a_record_of_a_mesh_takes_1_to_255_parts_and_a_reply_0_to_255() {
    let (mut a, mut b) = mesh_pair();
    let parts = |count: usize| vec![&b"x"[..]; count];
    let (mesh, work, to) = (mesh(), named("work"), rid("b"));
    for (count, error, words) in [
        (0, SendError::NoParts, ["at least one part", "part"]),
        (256, SendError::TooManyParts { parts: 256 }, ["256", "255"]),
    ] {
        let parts = parts(count);
        let calls: [Call<'_>; 6] = [
            &|engine| engine.outbox().send((&mesh, &work), &parts),
            &|engine| engine.outbox().send((&mesh, &to), &parts),
            // To oneself, to nobody, and by another's mesh: what is wrong with the parts comes first.
            &|engine| engine.outbox().send((&mesh, &rid("a")), &parts),
            &|engine| engine.outbox().send((&mesh, &rid("nobody")), &parts),
            &|engine| engine.outbox().request((&mesh, &work), &parts, s(1)).map(drop),
            &|engine| engine.outbox().request((&mesh, &to), &parts, s(1)).map(drop),
        ];
        for call in calls {
            assert_eq!(refused(&mut a, &words, call), error);
        }
    }
    for to_itself in [false, true] {
        let (to, from) = if to_itself { (rid("a"), &mut a) } else { (rid("b"), &mut a) };
        from.outbox().request((&mesh, &to), &parts(255), s(60)).unwrap();
        let token = if to_itself { token_of(&mut a, None) } else { token_of(&mut b, Some(&mut a)) };
        let answering = if to_itself { &mut a } else { &mut b };
        let before = state(&mut answering.engine);
        let too_many = SendError::TooManyParts { parts: 256 };
        assert_eq!(says(answering.outbox().reply(token, &parts(256)), &["256", "255"]), too_many);
        assert_eq!(before, state(&mut answering.engine), "the token is as good as before");
        answering.outbox().reply(token, &parts(255)).unwrap();
        let before = state(&mut answering.engine);
        let spent = says(answering.outbox().decline(token, ErrorKind::Rejected), &["token is spent"]);
        assert_eq!((spent, before), (SendError::TokenSpent, state(&mut answering.engine)));
        until(&mut [&mut a, &mut b], "the reply", |nodes| {
            let is = |event: &Owned| matches!(event, Owned::Replied { parts, .. } if parts.len() == 255);
            nodes[0].inbox.events.iter().any(is)
        });
        a.events();
    }
}

/// The token of a request that is under way to `node`.
fn token_of(node: &mut Node, other: Option<&mut Node>) -> ReplyToken {
    let mut token = None;
    let mut nodes: Vec<&mut Node> = [Some(node), other].into_iter().flatten().collect();
    until(&mut nodes, "the request", |nodes| {
        token = nodes[0].events().into_iter().find_map(|event| match event {
            Owned::Request { token, .. } => Some(token),
            _ => None,
        });
        token.is_some()
    });
    token.unwrap()
}

#[test]
fn nothing_can_be_begun_on_a_mesh_after_the_stop() {
    let (mut a, mut b) = mesh_pair();
    a.outbox().request((&mesh(), &rid("b")), &[b"x"], s(60)).unwrap();
    let token = token_of(&mut b, Some(&mut a));
    for node in [&mut a, &mut b] {
        node.engine.stop(&mut node.inbox);
        node.turn();
        let words = ["shutting down"];
        let joined = refused(node, &words, |engine| engine.join(elsewhere()));
        assert_eq!(joined, RegisterError::ShuttingDown);
        let wish = [NodeEndpoint { endpoint: endpoint(7), rid: None }];
        refused(node, &words, |engine| engine.outbox().set_endpoints(&mesh(), 1, &wish));
        refused(node, &words, |engine| engine.outbox().set_descriptors(&mesh(), &[]));
        for to in ["a", "b"] {
            let to = rid(to);
            let call = |engine: &mut Engine| engine.outbox().send((&mesh(), &to), &[b"x"]);
            assert_eq!(refused(node, &words, call), SendError::ShuttingDown);
            let call = |engine: &mut Engine| engine.outbox().request((&mesh(), &to), &[b"x"], s(1));
            assert_eq!(refused(node, &words, call), SendError::ShuttingDown);
        }
        refused(node, &["ended"], |engine| engine.outbox().reply(token, &[]));
        assert!(node.engine.next_due().is_none());
    }
}

#[test]
fn a_handle_to_a_pair_that_is_gone_or_to_oneself_is_a_value_and_no_more() {
    let (mut a, mut b) = mesh_pair();
    a.outbox().send((&mesh(), &rid("a")), &[b"to myself"]).unwrap();
    a.turn();
    let events = a.events();
    let [Owned::Message { peer, .. }] = &events[..] else { panic!("{events:?}") };
    let (own, before) = (peer.connection(), state(&mut a.engine));
    assert!(!a.outbox().close(own), "nobody parts from oneself");
    assert_eq!(before, state(&mut a.engine));

    let pair = a.engine.snapshot().connections[0].peer.connection();
    assert!(a.outbox().is_ready(pair) && a.outbox().close(pair));
    let before = state(&mut a.engine);
    assert!(!a.outbox().close(pair) && !a.outbox().is_ready(pair));
    assert_eq!(before, state(&mut a.engine));
    // It is dialled anew, as another pair, which the old handle does not mean.
    until(&mut [&mut a, &mut b], "another pair", |nodes| {
        nodes[0].now += Duration::from_millis(10);
        nodes[1].now += Duration::from_millis(10);
        nodes[0].ready_peers() == 1
    });
    assert!(!a.outbox().close(pair) && !a.outbox().is_ready(pair));
    assert_eq!(a.ready_peers(), 1);
}
