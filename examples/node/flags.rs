//! The flags, and what is wrong with them.

use clap::error::ErrorKind as FlagError;
use clap::{ArgGroup, Args, CommandFactory, Parser, Subcommand, ValueEnum};
use wakeful::{
    BindEndpoint, ChannelName, Endpoint, Generation, MeshName, RegisterError, Rid, WEIGHT_MAX, Weight,
};

/// The topic of the liveness beacon, which is no application's.
const RESERVED_TOPIC: &[u8] = b"\x01ZLF1";

/// A node of a `wakeful` channel or mesh: one JSON object a line on standard output, commands on standard input
/// (snapshot, stop; servers, clients and mesh nodes also take drain, pause, run, weight CHANNEL N).
#[derive(Parser)]
#[command(name = "node", arg_required_else_help = false)]
pub struct Flags {
    #[command(subcommand)]
    pub role: Role,
}

#[derive(Subcommand)]
pub enum Role {
    /// Serves a ClientServer channel.
    Server(ServerFlags),
    /// Is a client of a ClientServer channel.
    Client(ClientFlags),
    /// Is a node of a RouteMesh.
    Mesh(MeshFlags),
    /// Publishes on a fanout channel.
    Publisher(PublisherFlags),
    /// Hears the publishers of a fanout channel.
    Subscriber(SubscriberFlags),
}

#[derive(Args)]
pub struct ServerFlags {
    /// The channel's name.
    #[arg(long)]
    pub channel: ChannelName,
    /// Where to listen: tcp:// with a literal IP address and a port (0 or * for any), or ipc:// with a path.
    #[arg(long, value_name = "EP")]
    pub bind: BindEndpoint,
    /// The node's routing id [default: server- and the process id].
    #[arg(long)]
    pub rid: Option<Rid>,
    /// The lifecycle generation, any number but 0: another one for each run [default: drawn at random].
    #[arg(long, value_name = "N", value_parser = generation)]
    pub generation: Option<Generation>,
    /// Answer each request with its own parts; without it a request is declined.
    #[arg(long)]
    pub echo: bool,
    #[command(flatten)]
    pub common: CommonFlags,
}

#[derive(Args)]
pub struct ClientFlags {
    /// The channel's name.
    #[arg(long)]
    pub channel: ChannelName,
    /// A server of the channel; may be given several times.
    #[arg(long, value_name = "EP", required = true)]
    pub connect: Vec<Endpoint>,
    /// The node's routing id [default: client- and the process id].
    #[arg(long)]
    pub rid: Option<Rid>,
    /// Send this request again and again.
    #[arg(long, value_name = "TEXT")]
    pub request: Option<String>,
    /// Milliseconds from one request to the next.
    #[arg(long, value_name = "MS", default_value = "1000", requires = "request", value_parser = millis())]
    pub every: u64,
    /// Milliseconds that a request waits for its reply.
    #[arg(long, value_name = "MS", default_value = "5000", value_parser = millis())]
    pub timeout: u64,
    #[command(flatten)]
    pub common: CommonFlags,
}

#[derive(Args)]
#[command(group = ArgGroup::new("sent").args(["send", "request"]).multiple(true))]
pub struct MeshFlags {
    /// The mesh's name.
    #[arg(long)]
    pub mesh: MeshName,
    /// The node's routing id.
    #[arg(long)]
    pub rid: Rid,
    /// The lifecycle generation, any number but 0: another one for each run [default: drawn at random].
    #[arg(long, value_name = "N", value_parser = generation)]
    pub generation: Option<Generation>,
    /// Where to take application lanes: tcp:// with a literal IP address and a port (0 or * for any), or ipc:// with a
    /// path. Without it the node only dials.
    #[arg(long, value_name = "EP", requires = "bind_completion")]
    pub bind: Option<BindEndpoint>,
    /// Where to take completion lanes.
    #[arg(long, value_name = "EP", requires = "bind")]
    pub bind_completion: Option<BindEndpoint>,
    /// Where another node takes application lanes; may be given several times.
    #[arg(long, value_name = "EP")]
    pub connect: Vec<Endpoint>,
    /// Serve this channel, with a weight from 0 to 10000 (default 100) after the first =; may be given several times.
    #[arg(long, value_name = "CHANNEL[=WEIGHT]", value_parser = membership)]
    pub serve: Vec<Membership>,
    /// The object role: two clients that serve nothing do not connect.
    #[arg(long, value_enum, default_value = "none")]
    pub role: ObjectRole,
    /// Send this message again and again to one of those that serve the channel; its name is all before the first =.
    #[arg(long, value_name = "CHANNEL=TEXT", value_parser = addressed)]
    pub send: Option<Addressed>,
    /// The same with a request, which waits 5 s for its reply.
    #[arg(long, value_name = "CHANNEL=TEXT", value_parser = addressed)]
    pub request: Option<Addressed>,
    /// Milliseconds from one message or request to the next.
    #[arg(long, value_name = "MS", default_value = "1000", requires = "sent", value_parser = millis())]
    pub every: u64,
    /// Answer each request with its own parts; without it a request is declined.
    #[arg(long)]
    pub echo: bool,
    #[command(flatten)]
    pub common: CommonFlags,
}

/// The object role of a mesh node.
#[derive(Clone, Copy, ValueEnum)]
pub enum ObjectRole {
    None,
    Client,
    Server,
}

/// A channel that a mesh node serves.
#[derive(Clone)]
pub struct Membership {
    pub channel: ChannelName,
    pub weight: Weight,
}

/// A text for a channel of a mesh.
#[derive(Clone)]
pub struct Addressed {
    pub channel: ChannelName,
    pub text: String,
}

#[derive(Args)]
pub struct PublisherFlags {
    /// The channel's name.
    #[arg(long)]
    pub channel: ChannelName,
    /// Where to publish: tcp:// with a literal IP address and a port (0 or * for any), or ipc:// with a path.
    #[arg(long, value_name = "EP")]
    pub bind: BindEndpoint,
    /// Publish this record again and again; its topic is all before the first =.
    #[arg(long, value_name = "TOPIC=TEXT", value_parser = publication)]
    pub publish: Option<Publication>,
    /// Milliseconds from one record to the next.
    #[arg(long, value_name = "MS", default_value = "1000", requires = "publish", value_parser = millis())]
    pub every: u64,
    #[command(flatten)]
    pub common: CommonFlags,
}

#[derive(Args)]
pub struct SubscriberFlags {
    /// The channel's name.
    #[arg(long)]
    pub channel: ChannelName,
    /// A publisher of the channel; may be given several times.
    #[arg(long, value_name = "EP", required = true)]
    pub connect: Vec<Endpoint>,
    /// Hear the records whose topic begins so; may be given several times. Without it the node only learns which
    /// publishers are alive.
    #[arg(long, value_name = "PREFIX", value_parser = topic)]
    pub subscribe: Vec<String>,
    #[command(flatten)]
    pub common: CommonFlags,
}

/// A record to be published.
#[derive(Clone)]
pub struct Publication {
    pub topic: String,
    pub text: String,
}

#[derive(Args)]
pub struct CommonFlags {
    /// Stop after so many seconds.
    #[arg(long = "for", value_name = "SECONDS", value_parser = millis())]
    pub seconds: Option<u64>,
    /// Print a snapshot every so many milliseconds.
    #[arg(long, value_name = "MS", value_parser = millis())]
    pub report: Option<u64>,
    /// Send without a pause.
    #[arg(long)]
    pub flood: bool,
    /// Sleep so many milliseconds over each record received.
    #[arg(long, value_name = "MS", default_value = "0")]
    pub slow: u64,
}

/// A span that is not zero, and short enough that no sum of times overflows.
fn millis() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=u64::from(u32::MAX))
}

fn generation(text: &str) -> Result<Generation, String> {
    let number = text.parse().map_err(|_| "it takes a whole number".to_owned())?;
    Generation::new(number).map_err(|error| error.to_string())
}

fn channel(name: &str) -> Result<ChannelName, String> {
    ChannelName::new(name).map_err(|error| error.to_string())
}

fn membership(text: &str) -> Result<Membership, String> {
    let (name, weight) = text.split_once('=').unwrap_or((text, "100"));
    let number =
        weight.parse().map_err(|_| format!("the weight is a whole number from 0 to {WEIGHT_MAX}"))?;
    let weight = Weight::new(number).map_err(|error| error.to_string())?;
    Ok(Membership { channel: channel(name)?, weight })
}

fn addressed(text: &str) -> Result<Addressed, String> {
    let (name, text) = text.split_once('=').ok_or("it takes a channel, a = and a text")?;
    Ok(Addressed { channel: channel(name)?, text: text.to_owned() })
}

fn publication(text: &str) -> Result<Publication, String> {
    let (name, text) = text.split_once('=').ok_or("it takes a topic, a = and a text")?;
    Ok(Publication { topic: topic(name)?, text: text.to_owned() })
}

fn topic(text: &str) -> Result<String, String> {
    if text.as_bytes() == RESERVED_TOPIC {
        return Err(RegisterError::ReservedTopic.to_string());
    }
    Ok(text.to_owned())
}

/// The flags, or what is wrong with them.
pub fn parse() -> Result<Flags, clap::Error> {
    let flags = Flags::try_parse()?;
    let flood_of_nothing = match &flags.role {
        Role::Server(server) => server.common.flood,
        Role::Client(client) => client.common.flood && client.request.is_none(),
        Role::Mesh(mesh) => mesh.common.flood && mesh.send.is_none() && mesh.request.is_none(),
        Role::Publisher(publisher) => publisher.common.flood && publisher.publish.is_none(),
        Role::Subscriber(subscriber) => subscriber.common.flood,
    };
    if flood_of_nothing {
        let what = "--flood needs something to send: a client's --request, a mesh node's --send or --request, or a \
                    publisher's --publish";
        return Err(Flags::command().error(FlagError::MissingRequiredArgument, what));
    }
    Ok(flags)
}

/// What clap says over several lines, in one.
pub fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let what = text.split("\n\nUsage:").next().unwrap_or_default();
    let what = what.split("\n\nFor more information").next().unwrap_or_default();
    what.split_whitespace().collect::<Vec<_>>().join(" ")
}
