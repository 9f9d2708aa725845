//! Who dials whom when a service registry says who there is, what becomes of a pair when it says otherwise, and whom a call
//! on a channel reaches (000 §1, §5, DESIGN §5).

use wakeful::{Dialler, Endpoint, LostReason, NoRoute, NodeDescriptor, Owned, Role, SendError};

use crate::scene::{Talker, bury, come_to_rest, described_as};
use crate::support::mesh::{count, listening, mesh, named, plain, weight};
use crate::support::{Node, generation, ms, pass_all, rid, until};

/// What a node thinks of its only other node.
fn dialler(node: &Talker) -> Option<Dialler> {
    let meshes = node.engine.snapshot().meshes;
    let [other] = &meshes[0].nodes[..] else { panic!("{:?}", meshes[0].nodes) };
    other.dialler
}

fn silent(name: &str) -> NodeDescriptor {
    NodeDescriptor { endpoint: None, ..described_as(name, 1, &"tcp://127.0.0.1:9".parse().unwrap()) }
}

#[test]
fn of_two_that_listen_the_smaller_dials_and_of_one_that_listens_the_other() {
    for (one, two) in [(true, true), (true, false), (false, true)] {
        let node = |name, listens| {
            let node = if listens { listening(name) } else { plain(name) };
            let (node, bound) = Talker::join(node.generation(generation(1)));
            let endpoint = bound.map(|bound| Endpoint::try_from(&bound.application).unwrap());
            (node, NodeDescriptor { endpoint, ..silent(name) })
        };
        let ((mut a, of_a), (mut b, of_b)) = (node("a", one), node("b", two));
        // A registry says the same to all, and so each finds itself in it.
        for each in [&mut a, &mut b] {
            each.is_told_of(&[of_a.clone(), of_b.clone()]);
        }
        let a_dials = two;
        let expected = if a_dials { Dialler::Here } else { Dialler::There };
        assert_eq!(dialler(&a), Some(expected));
        assert_ne!(dialler(&b), Some(expected));
        come_to_rest(&mut [("a", &mut a), ("b", &mut b)], 1, &format!("{one} {two}"));
        let dialled = [&a, &b].map(|node| node.engine.snapshot().connections[0].is_dialled());
        assert_eq!(dialled, [a_dials, !a_dials]);
        assert_eq!([&a, &b].map(|node| node.engine.snapshot().intents.len()), dialled.map(usize::from));
        bury((a, b));
    }
}

#[test]
fn where_neither_listens_nobody_dials_and_that_is_shown() {
    let (mut a, _) = Talker::join(plain("a"));
    a.is_told_of(&[silent("b")]);
    for _ in 0..40 {
        a.step(ms(500));
    }
    assert_eq!(dialler(&a), Some(Dialler::Nobody));
    assert!(a.engine.snapshot().intents.is_empty() && a.host.events.is_empty());
    let unready = a.engine.outbox().send((&mesh(), &rid("b")), &[b"?"]);
    assert_eq!(unready, Err(SendError::RouteNotConnected(NoRoute::Unavailable)));
    a.is_told_of(&[]);
    assert!(a.engine.snapshot().meshes[0].nodes.is_empty());
    bury(a);
}

#[test]
fn two_bare_object_clients_are_left_apart_until_one_serves() {
    let (b, at) = Talker::listens(listening("b").role(Role::Client).generation(generation(1)));
    let (mut a, _) = Talker::join(listening("a").role(Role::Client));
    let bare = NodeDescriptor { role: Role::Client, ..described_as("b", 1, &at) };
    a.is_told_of(std::slice::from_ref(&bare));
    for _ in 0..40 {
        a.step(ms(500));
    }
    assert_eq!(dialler(&a), Some(Dialler::NotRequired));
    assert!(a.engine.snapshot().intents.is_empty() && a.host.events.is_empty());
    bury(b);
    // The same name, in a run that serves.
    let serving = listening("b").role(Role::Client).generation(generation(2)).serve(named("work"), weight(1));
    let (mut b, at) = Talker::listens(serving);
    let serves = vec![(named("work"), weight(1))];
    a.is_told_of(&[NodeDescriptor { serves, role: Role::Client, ..described_as("b", 2, &at) }]);
    assert_eq!(dialler(&a), Some(Dialler::Here));
    come_to_rest(&mut [("a", &mut a), ("b", &mut b)], 1, "one serves");
    bury((a, b));
}

#[test]
fn swapping_the_snapshot_under_load_disturbs_only_whom_it_no_longer_names() {
    let (mut b, at_b) = Talker::listens(listening("b").generation(generation(1)));
    let (mut c, at_c) = Talker::listens(listening("c").generation(generation(1)));
    let (mut a, _) = Talker::join(listening("a"));
    let (of_b, of_c) = (described_as("b", 1, &at_b), described_as("c", 1, &at_c));
    a.is_told_of(&[of_b.clone(), of_c.clone()]);
    for round in 0..60 {
        // The one stays in every snapshot, in changing company and in changing order.
        match round % 6 {
            0 => a.is_told_of(&[of_c.clone(), of_b.clone()]),
            2 => a.is_told_of(std::slice::from_ref(&of_b)),
            4 => a.is_told_of(&[of_b.clone(), of_c.clone(), silent("d")]),
            _ => {}
        }
        for node in [&mut a, &mut b, &mut c] {
            node.step(ms(20));
            node.say_to_all();
            assert!(node.ready().len() <= 2 && node.lanes() <= 5, "{}", node.story());
        }
    }
    a.is_told_of(&[of_b, of_c]);
    while c.ready().is_empty() || a.ready().len() < 2 {
        for node in [&mut a, &mut b, &mut c] {
            node.step(ms(20));
        }
    }
    come_to_rest(&mut [("b", &mut b)], 1, "b stays");
    assert_eq!((a.times_ready("b"), b.times_ready("a")), (1, 1), "{}", a.story());
    assert!(a.lost().iter().all(|reason| *reason == LostReason::Retired), "{}", a.story());
    assert!(b.lost().is_empty());
    assert_eq!(c.times_ready("a"), c.lost().len() + 1);
    bury((a, b, c));
}

/// Three nodes of which all serve "work", with these weights, each connected to the others.
fn workers(weights: [u32; 3]) -> [Node; 3] {
    let names = ["a", "b", "c"];
    let mut of_all = Vec::new();
    let mut nodes = [0, 1, 2].map(|at| {
        let serves = vec![(named("work"), weight(weights[at]))];
        let node = listening(names[at]).generation(generation(1)).serve(named("work"), weight(weights[at]));
        let (node, endpoint) = Node::listens(node);
        of_all.push(NodeDescriptor { serves, ..described_as(names[at], 1, &endpoint) });
        node
    });
    for node in &mut nodes {
        node.outbox().set_descriptors(&mesh(), &of_all).unwrap();
    }
    let [a, b, c] = &mut nodes;
    until(&mut [a, b, c], "ready", |nodes| nodes.iter().all(|node| node.ready_peers() == 2));
    nodes
}

/// Sends so many messages to the channel and says how many each of the nodes got.
fn share(nodes: &mut [Node; 3], from: usize, messages: usize) -> [usize; 3] {
    let work =
        |event: &Owned| matches!(event, Owned::Message { channel: Some(channel), .. } if channel == "work");
    for node in nodes.iter_mut() {
        node.events();
    }
    for _ in 0..messages {
        nodes[from].outbox().send((&mesh(), &named("work")), &[b"do it"]).unwrap();
    }
    let [a, b, c] = nodes;
    until(&mut [a, b, c], "all arrive", |nodes| {
        nodes.iter().map(|node| count(&node.inbox.events, work)).sum::<usize>() == messages
    });
    nodes.each_ref().map(|node| count(&node.inbox.events, work))
}

fn settled(nodes: &mut [Node; 3]) {
    let [a, b, c] = nodes;
    pass_all(&mut [a, b, c], ms(40), ms(20));
}

#[test]
fn calls_are_shared_by_weight_and_the_own_node_has_its_share() {
    let mut nodes = workers([100, 200, 100]);
    for from in 0..3 {
        assert_eq!(share(&mut nodes, from, 40), [10, 20, 10], "from {from}");
    }
    // Other weights reach all, and the connections stay.
    for node in &mut nodes {
        node.events();
    }
    assert!(nodes[1].outbox().set_weight(&named("work"), weight(0)));
    assert!(nodes[2].outbox().set_weight(&named("work"), weight(300)));
    settled(&mut nodes);
    for from in 0..3 {
        assert_eq!(share(&mut nodes, from, 40), [10, 0, 30], "from {from}");
        let told = |event: &Owned| matches!(event, Owned::Lost { .. } | Owned::Ready { .. });
        assert_eq!(count(&nodes[from].inbox.events, told), 0);
    }
    // What the registry says later of who is connected is older than what that node said itself.
    let again = nodes[0].engine.snapshot();
    assert_eq!(again.connections.len(), 2);
}

#[test]
fn weight_zero_and_draining_leave_selection_and_not_the_connection() {
    let not = |why| Err(SendError::RouteNotConnected(why));
    let mut nodes = workers([0, 100, 100]);
    nodes[1].engine.drain(true);
    settled(&mut nodes);
    assert_eq!(share(&mut nodes, 0, 10), [0, 0, 10]);
    assert!(nodes[0].outbox().send((&mesh(), &rid("b")), &[b"still there"]).is_ok());
    nodes[2].engine.drain(true);
    settled(&mut nodes);
    let call = nodes[0].outbox().send((&mesh(), &named("work")), &[b"?"]);
    assert_eq!(call, not(NoRoute::NotFound), "nobody serves: weight 0 here, draining there");
    assert_eq!(nodes[0].ready_peers(), 2);
    nodes[1].engine.drain(false);
    settled(&mut nodes);
    assert_eq!(share(&mut nodes, 0, 10), [0, 10, 0]);
    // Whom the registry names, and who is not ready, may come back; whom it does not name is unknown.
    nodes[1].engine.stop(&mut nodes[1].inbox);
    until(&mut [&mut nodes[0]], "b is lost", |nodes| nodes[0].ready_peers() == 1);
    settled(&mut nodes);
    let call = nodes[0].outbox().send((&mesh(), &named("work")), &[b"?"]);
    assert_eq!(call, not(NoRoute::Unavailable));
    nodes[0].outbox().set_descriptors(&mesh(), &[]).unwrap();
    nodes[0].turn();
    let call = nodes[0].outbox().send((&mesh(), &named("work")), &[b"?"]);
    assert_eq!(call, not(NoRoute::NotFound));
}
