//! What a node is: how the flags of each role become a registration.

use std::error::Error;
use std::time::Duration;

use serde_json::json;
use wakeful::{BindEndpoint, ChannelName, Client, Engine, NameError, Publisher, Rid, Server, Subscriber};

use crate::flags::{ClientFlags, CommonFlags, PublisherFlags, Role, ServerFlags, SubscriberFlags};
use crate::host::{Node, Sends, Sent};
use crate::lines::rid_text;
use crate::pace::Pace;

pub const CLIENT_SERVER: &str = "ClientServer";
pub const FANOUT: &str = "Fanout";

/// Registers the role, and returns its host and the flags that all roles have.
pub fn begin(engine: &mut Engine, role: Role) -> Result<(Node, CommonFlags), Box<dyn Error>> {
    match role {
        Role::Server(flags) => serve(engine, flags),
        Role::Client(flags) => connect(engine, flags),
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
    listening(&mut node, &flags.channel, Some(&rid), &endpoint);
    Ok((node, flags.common))
}

fn connect(engine: &mut Engine, flags: ClientFlags) -> Result<(Node, CommonFlags), Box<dyn Error>> {
    let mut node = Node::new(CLIENT_SERVER, &flags.common);
    let rid = flags.rid.map_or_else(|| own_rid("client"), Ok)?;
    let client = Client::new(flags.channel.clone(), rid);
    engine.connect(flags.connect.into_iter().fold(client, Client::server))?;
    let pace = (!flags.common.flood).then(|| Pace::new(node.lines.began, flags.every));
    let timeout = Duration::from_millis(flags.timeout);
    node.sends = flags.request.map(|text| Sends::new(flags.channel, Sent::Request { text, timeout }, pace));
    Ok((node, flags.common))
}

fn broadcast(engine: &mut Engine, flags: PublisherFlags) -> Result<(Node, CommonFlags), Box<dyn Error>> {
    let mut node = Node::new(FANOUT, &flags.common);
    let endpoint = engine.broadcast(Publisher::new(flags.channel.clone(), flags.bind))?;
    listening(&mut node, &flags.channel, None, &endpoint);
    let pace = (!flags.common.flood).then(|| Pace::new(node.lines.began, flags.every));
    node.sends = flags.publish.map(|record| Sends::new(flags.channel, Sent::Record(record), pace));
    Ok((node, flags.common))
}

fn subscribe(engine: &mut Engine, flags: SubscriberFlags) -> Result<(Node, CommonFlags), Box<dyn Error>> {
    let node = Node::new(FANOUT, &flags.common);
    let subscriber = flags.connect.into_iter().fold(Subscriber::new(flags.channel), Subscriber::publisher);
    let wanted = flags.subscribe.iter();
    engine.subscribe(wanted.fold(subscriber, |all, prefix| all.filter(prefix.as_bytes())))?;
    Ok((node, flags.common))
}

fn listening(node: &mut Node, channel: &ChannelName, rid: Option<&Rid>, endpoint: &BindEndpoint) {
    let line = json!({
        "topology": node.lines.topology, "name": channel.as_str(), "rid": rid.map(rid_text),
        "endpoint": endpoint.as_str(), "completion": null,
    });
    node.lines.print("listening", line);
}

fn own_rid(role: &str) -> Result<Rid, NameError> {
    Rid::new(format!("{role}-{}", std::process::id()))
}
