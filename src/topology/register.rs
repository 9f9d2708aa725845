//! Registration: what a host says it serves or wants, checked whole before anything is changed.

use super::intents;
use super::selection::Members;
use super::table::{Behind, Carries, Expects, LaneEntry, Listener};
use super::{Channel, ChannelEnd, Core};
use crate::config::random;
use crate::error::{MESSAGE_BYTES_MIN, RegisterError};
use crate::io::Listen;
use crate::name::{BindEndpoint, ChannelName, Endpoint, Generation, Rid, SecurityId, Weight};
use crate::wire::{AdmissionBody, HostState, Identity, Lane, Service};

/// The weight of a server that says nothing of it.
const WEIGHT_DEFAULT: Weight = match Weight::new(100) {
    Ok(weight) => weight,
    Err(_) => unreachable!(),
};

/// A server of one ClientServer channel, to be registered with [`Engine::serve`](crate::Engine::serve).
///
/// ```
/// use wakeful::{ChannelName, Rid, Server};
/// let server = Server::new(ChannelName::new("orders")?, Rid::new("gateway-1")?, "tcp://127.0.0.1:0".parse()?)
///     .message_bytes_max(1 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "it does nothing until it is registered"]
pub struct Server {
    channel: ChannelName,
    node: Node,
    bind: BindEndpoint,
    advertised: Option<Endpoint>,
    weight: Weight,
}

/// A client of one ClientServer channel, to be registered with [`Engine::connect`](crate::Engine::connect).
///
/// ```
/// use wakeful::{ChannelName, Client, Rid};
/// let client = Client::new(ChannelName::new("orders")?, Rid::new("trader-7")?)
///     .server("tcp://127.0.0.1:5555".parse()?)
///     .server("tcp://127.0.0.1:5556".parse()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "it does nothing until it is registered"]
pub struct Client {
    channel: ChannelName,
    node: Node,
    servers: Vec<(Endpoint, Expects)>,
}

/// What both ends say of themselves.
#[derive(Debug, Clone)]
struct Node {
    rid: Rid,
    generation: Generation,
    security: SecurityId,
    bytes_max: u32,
}

impl Node {
    fn new(rid: Rid) -> Self {
        // One draw in 2^64 is zero; its neighbour is as random.
        let generation = Generation::new(random()).unwrap_or(Generation::FIRST);
        Self { rid, generation, security: SecurityId::default(), bytes_max: 0 }
    }
}

/// What either end can say of itself beside its RID.
macro_rules! says_of_itself {
    ($end:ident) => {
        impl $end {
            /// Sets the lifecycle generation: another one for each run of the process.
            pub fn generation(mut self, generation: Generation) -> Self {
                self.node.generation = generation;
                self
            }

            /// Sets the security identity that it shows to its peers.
            pub fn security(mut self, security: SecurityId) -> Self {
                self.node.security = security;
                self
            }

            /// Sets the largest record it takes, head and parts together, in bytes: 0 for no limit (the default),
            /// otherwise [`MESSAGE_BYTES_MIN`] and more. Its peers learn it and refuse larger ones themselves; who sends
            /// one all the same loses its connection. A check signal waits behind a large record: at 10 MB/s, 150 MB last
            /// as long as the 15 s deadline, and the peer of a larger one is judged although bytes flow. So choose a limit
            /// well below what the slowest link carries in 15 s, and send what is larger in pieces, each after the answer
            /// to the one before: a queue of pieces delays a check signal as much as one large record.
            pub fn message_bytes_max(mut self, bytes: u32) -> Self {
                self.node.bytes_max = bytes;
                self
            }
        }
    };
}

says_of_itself!(Server);
says_of_itself!(Client);

impl Server {
    /// A server that listens at `bind`, with weight 100, a random generation, and no limit on records.
    pub fn new(channel: ChannelName, rid: Rid, bind: BindEndpoint) -> Self {
        Self { channel, node: Node::new(rid), bind, advertised: None, weight: WEIGHT_DEFAULT }
    }

    /// Sets the endpoint at which clients reach it, where that is not the one it binds. Without it a server bound to a
    /// wildcard host advertises none.
    pub fn advertised(mut self, endpoint: Endpoint) -> Self {
        self.advertised = Some(endpoint);
        self
    }

    /// Sets the weight with which clients pick it, 0 to 10,000.
    pub fn weight(mut self, weight: Weight) -> Self {
        self.weight = weight;
        self
    }
}

impl Client {
    /// A client with no server yet, a random generation, and no limit on records.
    pub fn new(channel: ChannelName, rid: Rid) -> Self {
        Self { channel, node: Node::new(rid), servers: Vec::new() }
    }

    /// Adds a server, whoever it turns out to be.
    pub fn server(mut self, endpoint: Endpoint) -> Self {
        self.servers.push((endpoint, Expects::default()));
        self
    }

    /// Adds a server that must show this RID, and this generation and security identity where they are given.
    pub fn expected_server(
        mut self,
        endpoint: Endpoint,
        rid: Rid,
        generation: Option<Generation>,
        security: Option<SecurityId>,
    ) -> Self {
        self.servers.push((endpoint, Expects { rid: Some(rid), generation, security }));
        self
    }
}

/// Registers a server and lets it listen.
pub(crate) fn serve(core: &mut Core, server: Server) -> Result<BindEndpoint, RegisterError> {
    let Server { channel, node, bind, advertised, weight } = server;
    check(core, &node)?;
    if core.channels.is_server(&channel) {
        return Err(RegisterError::SecondServer { channel });
    }
    let topology = core.channels.client_server(&channel)?;
    let lane = core.table.lanes.vacant_key() as u32;
    let kind = Listen::Router { identity: Lane::Application.bound_identity() };
    let (id, bound) = core
        .io
        .listen(kind, &bind, lane, node.bytes_max)
        .map_err(|error| RegisterError::Io { endpoint: bind, error })?;
    let endpoint = advertised.or_else(|| Endpoint::try_from(&bound).ok());
    let service = Service::Server { channel: channel.clone(), max_message: node.bytes_max };
    let body = body(core.host_state, service, &node, endpoint, vec![(channel.clone(), weight)]);
    let key = core.rotation.add_shared(lane);
    let end = ChannelEnd::Server { lane, bound: bound.clone() };
    let index =
        core.channels.add(Channel { name: topology, body: Some(body), bytes_max: node.bytes_max, end });
    let behind = Behind::Listener(Listener::new(index));
    core.add_lane(LaneEntry { id, key, behind, carries: Carries::Application });
    Ok(bound)
}

/// Registers a client; its first attempts are due at once.
pub(crate) fn connect(core: &mut Core, client: Client) -> Result<(), RegisterError> {
    let Client { channel, node, servers } = client;
    check(core, &node)?;
    if core.channels.client(&channel).is_some() {
        return Err(RegisterError::SecondClient { channel });
    }
    let topology = core.channels.client_server(&channel)?;
    if servers.is_empty() {
        return Err(RegisterError::NoEndpoint { channel });
    }
    intents::check_once(&topology, &servers)?;
    let service = Service::Client { channel: channel.clone(), max_message: node.bytes_max };
    let body = body(core.host_state, service, &node, None, Vec::new());
    let end = ChannelEnd::Client { members: Members::default() };
    let index =
        core.channels.add(Channel { name: topology, body: Some(body), bytes_max: node.bytes_max, end });
    for (endpoint, expects) in servers {
        let intent = core.add_intent(index, endpoint, expects);
        if let Some(members) = core.channels.members_mut(index) {
            // What the server says of itself at the handshake comes in its place.
            members.set(intent, WEIGHT_DEFAULT);
        }
    }
    Ok(())
}

/// What no node may ask for.
fn check(core: &Core, node: &Node) -> Result<(), RegisterError> {
    if core.host_state == HostState::Stopped {
        return Err(RegisterError::ShuttingDown);
    }
    check_limit(node.bytes_max)
}

/// What no limit on records may be.
pub(super) fn check_limit(bytes: u32) -> Result<(), RegisterError> {
    if (1..MESSAGE_BYTES_MIN).contains(&bytes) {
        return Err(RegisterError::MessageLimit { bytes });
    }
    Ok(())
}

fn body(
    state: HostState,
    service: Service,
    node: &Node,
    endpoint: Option<Endpoint>,
    channels: Vec<(ChannelName, Weight)>,
) -> AdmissionBody {
    let identity = Identity {
        service,
        rid: node.rid.clone(),
        generation: node.generation,
        security: node.security.clone(),
        endpoint,
    };
    AdmissionBody::new(identity, state, channels, Vec::new())
        .expect("one membership always fits an admission")
}
