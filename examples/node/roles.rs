//! What a node is: how the flags of each role become a registration.

use std::error::Error;
use std::time::Duration;

use serde_json::json;
use wakeful::{Client, Engine, MeshNode, NameError, Publisher, Rid, Server, Subscriber};

use crate::flags::{
    Addressed, ClientFlags, CommonFlags, MeshFlags, ObjectRole, PublisherFlags, Role, ServerFlags,
    SubscriberFlags,
};
use crate::host::{Node, Sends, Sent};
use crate::lines::rid_text;
use crate::pace::Pace;

pub const CLIENT_SERVER: &str = "ClientServer";
pub const FANOUT: &str = "Fanout";
const ROUTE_MESH: &str = "RouteMesh";

/// How long a mesh node waits for a reply.
const REPLY_PATIENCE: Duration = Duration::from_secs(5);

/// Registers the role, and returns its host and the flags that all roles have.
pub fn begin(engine: &mut Engine, role: Role) -> Result<(Node, CommonFlags), Box<dyn Error>> {
    match role {
        Role::Server(flags) => serve(engine, flags),
        Role::Client(flags) => connect(engine, flags),
        Role::Mesh(flags) => join(engine, flags),
        Role::Publisher(flags) => broadcast(engine, flags),
        Role::Subscriber(flags) => subscribe(engine, flags),
    }
}

fn serve(engine: &mut Engine, flags: ServerFlags) -> Result<(Node, CommonFlags), Box<dyn Error>> {
    let mut node = Node::new(CLIENT_SERVER, &flags.common);
    node.echo = flags.echo;
    let rid = flags.rid.map_or_else(|| own_rid("server"), Ok)?;
    let mut server = Server::new(flags.channel.clone(), rid.clone(), flags.bind);
    if let Some(generation) = flags.generation {
        server = server.generation(generation);
    }
    let endpoint = engine.serve(server)?;
    listening(&mut node, flags.channel.as_str(), Some(&rid), endpoint.as_str(), None);
    Ok((node, flags.common))
}

fn connect(engine: &mut Engine, flags: ClientFlags) -> Result<(Node, CommonFlags), Box<dyn Error>> {
    let mut node = Node::new(CLIENT_SERVER, &flags.common);
    let rid = flags.rid.map_or_else(|| own_rid("client"), Ok)?;
    let client = Client::new(flags.channel.clone(), rid);
    engine.connect(flags.connect.into_iter().fold(client, Client::server))?;
    let pace = (!flags.common.flood).then(|| Pace::new(node.lines.began, flags.every));
    let timeout = Duration::from_millis(flags.timeout);
    let send = |text| Sends::new(flags.channel, Sent::Request { text, timeout }, pace);
    node.sends.extend(flags.request.map(send));
    Ok((node, flags.common))
}

fn join(engine: &mut Engine, flags: MeshFlags) -> Result<(Node, CommonFlags), Box<dyn Error>> {
    let mut node = Node::new(ROUTE_MESH, &flags.common);
    node.echo = flags.echo;
    let mut wish = MeshNode::new(flags.mesh.clone(), flags.rid.clone()).role(match flags.role {
        ObjectRole::None => wakeful::Role::None,
        ObjectRole::Client => wakeful::Role::Client,
        ObjectRole::Server => wakeful::Role::Server,
    });
    if let Some(generation) = flags.generation {
        wish = wish.generation(generation);
    }
    if let (Some(application), Some(completion)) = (flags.bind, flags.bind_completion) {
        wish = wish.listen(application, completion);
    }
    wish = flags.serve.into_iter().fold(wish, |wish, each| wish.serve(each.channel, each.weight));
    let bound = engine.join(flags.connect.into_iter().fold(wish, MeshNode::peer))?;
    if let Some(bound) = bound {
        let (endpoint, completion) = (bound.application.as_str(), bound.completion.as_str());
        listening(&mut node, flags.mesh.as_str(), Some(&flags.rid), endpoint, Some(completion));
    }
    let message = flags.send.map(|Addressed { channel, text }| (channel, Sent::Message(text)));
    let request = flags
        .request
        .map(|Addressed { channel, text }| (channel, Sent::Request { text, timeout: REPLY_PATIENCE }));
    for (channel, what) in message.into_iter().chain(request) {
        let pace = (!flags.common.flood).then(|| Pace::new(node.lines.began, flags.every));
        node.sends.push(Sends::new(channel, what, pace).across(flags.mesh.clone()));
    }
    Ok((node, flags.common))
}

fn broadcast(engine: &mut Engine, flags: PublisherFlags) -> Result<(Node, CommonFlags), Box<dyn Error>> {
    let mut node = Node::new(FANOUT, &flags.common);
    let endpoint = engine.broadcast(Publisher::new(flags.channel.clone(), flags.bind))?;
    listening(&mut node, flags.channel.as_str(), None, endpoint.as_str(), None);
    let pace = (!flags.common.flood).then(|| Pace::new(node.lines.began, flags.every));
    node.sends.extend(flags.publish.map(|record| Sends::new(flags.channel, Sent::Record(record), pace)));
    Ok((node, flags.common))
}

fn subscribe(engine: &mut Engine, flags: SubscriberFlags) -> Result<(Node, CommonFlags), Box<dyn Error>> {
    let node = Node::new(FANOUT, &flags.common);
    let subscriber = flags.connect.into_iter().fold(Subscriber::new(flags.channel), Subscriber::publisher);
    let wanted = flags.subscribe.iter();
    engine.subscribe(wanted.fold(subscriber, |all, prefix| all.filter(prefix.as_bytes())))?;
    Ok((node, flags.common))
}

/// Says where a node listens; only one of a mesh does so for completion lanes too.
fn listening(node: &mut Node, name: &str, rid: Option<&Rid>, endpoint: &str, completion: Option<&str>) {
    let line = json!({
        "topology": node.lines.topology, "name": name, "rid": rid.map(rid_text),
        "endpoint": endpoint, "completion": completion,
    });
    node.lines.print("listening", line);
}

fn own_rid(role: &str) -> Result<Rid, NameError> {
    Rid::new(format!("{role}-{}", std::process::id()))
}
