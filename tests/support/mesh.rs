//! What the tests of RouteMesh share: nodes of one mesh on loopback, driven in virtual time.

use wakeful::{ChannelName, Config, Endpoint, MeshBound, MeshName, MeshNode, Outbox, Owned, Weight};

use super::{Node, rid, until};

pub const MESH: &str = "lobby";

pub fn mesh() -> MeshName {
    MeshName::new(MESH).unwrap()
}

pub fn weight(weight: u32) -> Weight {
    Weight::new(weight).unwrap()
}

pub fn named(channel: &str) -> ChannelName {
    ChannelName::new(channel).unwrap()
}

/// A node of the usual mesh that says nothing of itself yet.
pub fn plain(name: &str) -> MeshNode {
    MeshNode::new(mesh(), rid(name))
}

/// The same, listening on loopback.
pub fn listening(name: &str) -> MeshNode {
    let any = || "tcp://127.0.0.1:0".parse().unwrap();
    plain(name).listen(any(), any())
}

/// Where other nodes reach a node's application lanes.
pub fn application(bound: &MeshBound) -> Endpoint {
    Endpoint::try_from(&bound.application).unwrap()
}

impl Node {
    /// An engine with this node, and where it listens.
    pub fn join(node: MeshNode) -> (Self, Option<MeshBound>) {
        Self::join_with(Config { seed: 7, ..Config::default() }, node)
    }

    pub fn join_with(config: Config, node: MeshNode) -> (Self, Option<MeshBound>) {
        let mut engine = Self::with(config);
        let bound = engine.engine.join(node).unwrap();
        (engine, bound)
    }

    /// A node that listens, and where.
    pub fn listens(node: MeshNode) -> (Self, Endpoint) {
        let (node, bound) = Self::join(node);
        (node, application(&bound.unwrap()))
    }

    pub fn outbox(&mut self) -> Outbox<'_> {
        self.engine.outbox()
    }

    /// The RIDs of the ready peers, in order.
    pub fn peers(&self) -> Vec<String> {
        let snapshot = self.engine.snapshot();
        let ready = snapshot.connections.iter().filter(|each| each.state == wakeful::RouteState::Ready);
        let mut rids: Vec<String> = ready.map(|each| each.peer.rid().to_string()).collect();
        rids.sort();
        rids
    }
}

/// Two ready nodes: "a" dials "b", which listens and serves "work". Nothing is left to be told.
pub fn mesh_pair() -> (Node, Node) {
    let (mut b, at) = Node::listens(listening("b").serve(named("work"), weight(100)));
    let (mut a, _) = Node::join(plain("a").peer(at));
    until(&mut [&mut a, &mut b], "both ready", |nodes| nodes.iter().all(|node| node.ready_peers() == 1));
    super::settle(&mut [&mut a, &mut b]);
    a.events();
    b.events();
    (a, b)
}

/// The events of a kind, as often as they came.
pub fn count(events: &[Owned], wanted: impl Fn(&Owned) -> bool) -> usize {
    events.iter().filter(|event| wanted(event)).count()
}
