//! Classic fanout: publishers that prove their life by beacons, subscribers that judge each publisher alone (000 §4).
//!
//! A subscriber has one SUB lane, one connection and one deadline for each publisher, so that one publisher's silence is
//! never another's. Nothing is ever sent to a publisher.

use std::sync::Arc;

use super::filters::Filters;
use super::intents::{self, Wish};
use super::table::{Behind, Carries, Expects, LaneEntry};
use super::{Channel, ChannelEnd, Core, News, life, register};
use crate::error::{FILTER_BYTES_MAX, NoRoute, RegisterError, SendError};
use crate::io::{Listen, Received};
use crate::link::connection::{End, Failure, LostReason, Phase, Side};
use crate::link::publisher::Source;
use crate::name::{BindEndpoint, ChannelName, Endpoint, Generation, Rid, TopologyName};
use crate::wire::{BEACON_PAYLOAD, FanoutRecord, HostState, PARTS_MAX, RESERVED_TOPIC, classify};

/// The most parts that a published record carries beside its topic.
pub(crate) const PUBLISHED_PARTS_MAX: usize = PARTS_MAX - 1;
/// Publishing looks for the credit that subscribers gave back once in so many records: a send alone looks too seldom, and
/// what finds a queue full is dropped.
const RECORDS_PER_REFRESH: u32 = 32;
/// All that a publisher's socket takes from its subscribers are filters, each in one frame with the name of a command.
const FILTER_FRAME_BYTES_MAX: u32 = FILTER_BYTES_MAX as u32 + 16;

/// A publisher of one fanout channel, to be registered with [`Engine::broadcast`](crate::Engine::broadcast).
///
/// ```
/// use wakeful::{ChannelName, Publisher};
/// let publisher = Publisher::new(ChannelName::new("ticks")?, "tcp://127.0.0.1:0".parse()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "it does nothing until it is registered"]
pub struct Publisher {
    channel: ChannelName,
    bind: BindEndpoint,
}

impl Publisher {
    /// A publisher that binds `bind`.
    pub fn new(channel: ChannelName, bind: BindEndpoint) -> Self {
        Self { channel, bind }
    }
}

/// What a service registry says of one publisher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublisherDescriptor {
    /// Where it publishes.
    pub endpoint: Endpoint,
    /// Its routing id.
    pub rid: Rid,
    /// Its lifecycle generation.
    pub generation: Generation,
}

/// A subscriber of one fanout channel, to be registered with [`Engine::subscribe`](crate::Engine::subscribe). It has
/// either fixed endpoints or the descriptors that the host pushes, never both.
///
/// ```
/// use wakeful::{ChannelName, Subscriber};
/// let subscriber = Subscriber::new(ChannelName::new("ticks")?)
///     .publisher("tcp://127.0.0.1:5556".parse()?)
///     .filter(b"EUR");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "it does nothing until it is registered"]
pub struct Subscriber {
    channel: ChannelName,
    endpoints: Vec<Endpoint>,
    descriptors: Vec<PublisherDescriptor>,
    filters: Vec<Vec<u8>>,
    bytes_max: u32,
}

impl Subscriber {
    /// A subscriber without publishers, without filters and without a limit on records: it learns who is alive and
    /// receives nothing.
    pub fn new(channel: ChannelName) -> Self {
        Self { channel, endpoints: Vec::new(), descriptors: Vec::new(), filters: Vec::new(), bytes_max: 0 }
    }

    /// Adds a publisher by its endpoint.
    pub fn publisher(mut self, endpoint: Endpoint) -> Self {
        self.endpoints.push(endpoint);
        self
    }

    /// Adds a publisher by its descriptor; [`Outbox::set_publishers`](crate::Outbox::set_publishers) replaces them all.
    pub fn described_publisher(mut self, descriptor: PublisherDescriptor) -> Self {
        self.descriptors.push(descriptor);
        self
    }

    /// Adds a filter of at most [`FILTER_BYTES_MAX`](crate::FILTER_BYTES_MAX) bytes: records whose topic begins with
    /// `prefix` are delivered; the empty prefix is all. Each new connection tells its publisher all filters within one
    /// turn, which took 5 ms for 10,000 of them.
    pub fn filter(mut self, prefix: &[u8]) -> Self {
        self.filters.push(prefix.to_vec());
        self
    }

    /// Sets the largest record it takes, topic and parts together, in bytes: 0 for no limit (the default), otherwise
    /// [`MESSAGE_BYTES_MIN`](crate::MESSAGE_BYTES_MIN) and more. A publisher is not told of it: who sends a larger record
    /// is lost at once, alone, as [`LostReason::Protocol`], and the record is not delivered. A single frame of more than
    /// twice the limit costs no memory: ZeroMQ closes the connection at its first bytes without saying why, so that shows
    /// as [`LostReason::Transport`]. Either way the publisher is dialled anew, and lost again with its next such record.
    pub fn message_bytes_max(mut self, bytes: u32) -> Self {
        self.bytes_max = bytes;
        self
    }
}

/// What a subscriber wants from every publisher, and where its publishers come from.
#[derive(Debug)]
pub(crate) struct Subscription {
    filters: Filters,
    is_described: bool,
}

/// Registers a publisher; its first beacon goes out at once.
pub(crate) fn broadcast(core: &mut Core, publisher: Publisher) -> Result<BindEndpoint, RegisterError> {
    let Publisher { channel, bind } = publisher;
    if core.host_state == HostState::Stopped {
        return Err(RegisterError::ShuttingDown);
    }
    if core.channels.publisher(&channel).is_some() {
        return Err(RegisterError::SecondPublisher { channel });
    }
    let topology = core.channels.fanout(&channel)?;
    let lane = core.table.lanes.vacant_key() as u32;
    let (id, bound) = core
        .io
        .listen(Listen::Pub, &bind, lane, FILTER_FRAME_BYTES_MAX)
        .map_err(|error| RegisterError::Io { endpoint: bind, error })?;
    let key = core.rotation.add_shared(lane);
    core.add_lane(LaneEntry { id, key, behind: Behind::Publisher, carries: Carries::Published });
    let number = core.channels.list.len() as u32;
    let check = core.liveness.beacon(number, &core.watch.moment());
    let end = ChannelEnd::Publisher { lane, bound: bound.clone(), check, published: 0 };
    let index = core.channels.add(Channel { name: topology, body: None, bytes_max: 0, end });
    debug_assert_eq!(index, number);
    beacon(core, index);
    Ok(bound)
}

/// Registers a subscriber; its first attempts are due at once.
pub(crate) fn subscribe(core: &mut Core, subscriber: Subscriber) -> Result<(), RegisterError> {
    let Subscriber { channel, endpoints, descriptors, filters, bytes_max } = subscriber;
    if core.host_state == HostState::Stopped {
        return Err(RegisterError::ShuttingDown);
    }
    register::check_limit(bytes_max)?;
    if core.channels.subscriber(&channel).is_some() {
        return Err(RegisterError::SecondSubscriber { channel });
    }
    let topology = core.channels.fanout(&channel)?;
    if !endpoints.is_empty() && !descriptors.is_empty() {
        return Err(RegisterError::MixedSources { channel });
    }
    filters.iter().try_for_each(|filter| check_filter(filter))?;
    let is_described = endpoints.is_empty();
    let manual = endpoints.into_iter().map(|endpoint| (endpoint, Expects::default()));
    let wanted: Vec<_> = manual.chain(descriptors.into_iter().map(wish)).collect();
    intents::check_once(&topology, &wanted)?;
    // ZeroMQ counts how often a filter is set; here it is there or not.
    let end = ChannelEnd::Subscriber(Subscription { filters: Filters::new(filters), is_described });
    let index = core.channels.add(Channel { name: topology, body: None, bytes_max, end });
    intents::replace(core, index, wanted, is_described);
    Ok(())
}

/// Replaces the publishers of a described subscriber by those of a new snapshot. Those that stay are left alone.
pub(crate) fn set_publishers(
    core: &mut Core,
    channel: &ChannelName,
    descriptors: &[PublisherDescriptor],
) -> Result<(), RegisterError> {
    let (index, subscription) = subscription(core, channel)?;
    if !subscription.is_described {
        return Err(RegisterError::MixedSources { channel: channel.clone() });
    }
    let wanted: Vec<_> = descriptors.iter().cloned().map(wish).collect();
    intents::check_once(&TopologyName::Fanout(channel.clone()), &wanted)?;
    intents::replace(core, index, wanted, true);
    Ok(())
}

/// Adds a filter for all present and future publishers of a channel, or takes one away. Returns whether that changed
/// anything.
pub(crate) fn set_filter(
    core: &mut Core,
    channel: &ChannelName,
    prefix: &[u8],
    wanted: bool,
) -> Result<bool, RegisterError> {
    check_filter(prefix)?;
    let (index, Subscription { filters, .. }) = subscription(core, channel)?;
    let is_changed = if wanted { filters.add(prefix) } else { filters.remove(prefix) };
    if !is_changed {
        return Ok(false);
    }
    let lanes: Vec<_> = core
        .table
        .iter()
        .filter(|(_, connection)| connection.channel == index)
        .filter_map(|(_, connection)| core.table.lane(connection.lane))
        .map(|entry| entry.id)
        .collect();
    for lane in lanes {
        core.io.filter(lane, prefix, wanted);
    }
    Ok(true)
}

/// The largest frame that ZeroMQ takes for a subscriber with this limit. ZeroMQ ends a connection without saying why, so
/// what is above the limit, but not far above, is left to [`take`], which says it.
pub(super) fn frame_bytes_max(bytes_max: u32) -> u32 {
    bytes_max.saturating_mul(2)
}

/// Opens a fresh lane for its records: what the application wants, and the beacon's topic. That comes last, so that a
/// beacon proves that the publisher knows every filter: what it publishes after it is ready is not missed.
pub(super) fn open(core: &mut Core, index: u32) {
    let Some(connection) = core.table.get(index) else { return };
    let ChannelEnd::Subscriber(Subscription { filters, .. }) = &core.channels.get(connection.channel).end
    else {
        return;
    };
    let Some(lane) = core.table.lane(connection.lane) else { return };
    for filter in filters.iter() {
        core.io.filter(lane.id, filter, true);
    }
    core.io.filter(lane.id, &RESERVED_TOPIC, true);
}

/// Takes in one record of a publisher. Returns whether it is an application's.
pub(crate) fn take(core: &mut Core, index: u32, received: &Received<'_>) -> bool {
    let moment = core.watch.moment();
    let Some(connection) = core.table.get_mut(index) else { return false };
    connection.last_received = Some(moment.now);
    connection.quiet_since = None;
    if let Phase::Closing(_) = connection.phase {
        core.counters.unadmitted += 1;
        return false;
    }
    let bytes_max = core.channels.get(connection.channel).bytes_max as usize;
    let Received { head, parts, .. } = *received;
    let record = classify(head, parts.len() + 1, parts.get(0));
    if received.exceeds(bytes_max) || record == FanoutRecord::Malformed {
        core.counters.protocol_errors += 1;
        life::end_as(core, index, LostReason::Protocol, Failure::Protocol);
        return false;
    }
    match (connection.phase, connection.check) {
        (Phase::Ready, Some(key)) => core.liveness.heard(key, &moment),
        (Phase::Dialling | Phase::Greeting, _) => make_ready(core, index),
        _ => {}
    }
    record == FanoutRecord::Application
}

/// A publisher's first valid record makes it ready.
fn make_ready(core: &mut Core, index: u32) {
    let moment = core.watch.moment();
    let Some(connection) = core.table.get_mut(index) else { return };
    let Side::Dialled { intent } = connection.side else { return };
    connection.phase = Phase::Ready;
    connection.check = Some(core.liveness.hear(index, &moment));
    let wish = &mut core.table.intents[intent as usize];
    wish.backoff.reset();
    wish.was_ready = true;
    let TopologyName::Fanout(channel) = &core.channels.get(wish.channel).name else { return };
    let source = Arc::new(Source {
        channel: channel.clone(),
        endpoint: wish.endpoint.clone(),
        rid: wish.expects.rid.clone(),
        generation: wish.expects.generation,
    });
    if let Some(connection) = core.table.get_mut(index) {
        connection.source = Some(source.clone());
    }
    core.news.push_back(News::PublisherReady(source));
}

/// Who published a topic, if the host is to have it: a filter of the application asks for it, and the publisher has not
/// been given up. A longer topic that only begins like the beacon's comes too, because filters match prefixes.
pub(crate) fn wanted(core: &mut Core, index: u32, topic: &[u8]) -> Option<Arc<Source>> {
    let connection = core.table.get(index).filter(|connection| connection.may_deliver())?;
    let ChannelEnd::Subscriber(Subscription { filters, .. }) = &core.channels.get(connection.channel).end
    else {
        return None;
    };
    if filters.fit(topic) {
        return connection.source.clone();
    }
    core.counters.unsubscribed += 1;
    None
}

/// Sends the beacon of a publisher.
pub(crate) fn beacon(core: &mut Core, channel: u32) {
    let ChannelEnd::Publisher { lane, .. } = core.channels.get(channel).end else { return };
    let Some(entry) = core.table.lane(lane) else { return };
    core.io.refresh(entry.id);
    if let Err(error) = core.io.send(entry.id, None, &RESERVED_TOPIC, &[&BEACON_PAYLOAD]) {
        log::error!("a beacon could not be sent: {error}");
    }
}

/// Publishes one record. A full or absent subscriber never blocks it: for that one, ZeroMQ drops the record.
pub(crate) fn publish(
    core: &mut Core,
    channel: &ChannelName,
    topic: &[u8],
    parts: &[&[u8]],
) -> Result<(), SendError> {
    if topic == RESERVED_TOPIC {
        return Err(SendError::ReservedTopic);
    }
    if parts.len() > PUBLISHED_PARTS_MAX {
        return Err(SendError::TooManyParts { parts: parts.len() });
    }
    if core.host_state == HostState::Stopped {
        return Err(SendError::ShuttingDown);
    }
    let index = core.channels.publisher(channel).ok_or(SendError::UnknownChannel)?;
    let ChannelEnd::Publisher { lane, published, .. } = &mut core.channels.list[index as usize].end else {
        return Err(SendError::UnknownChannel);
    };
    *published = published.wrapping_add(1);
    let refresh = *published % RECORDS_PER_REFRESH == 0;
    let lane = core.table.lane(*lane).ok_or(SendError::ShuttingDown)?.id;
    if refresh {
        core.io.refresh(lane);
    }
    core.io.send(lane, None, topic, parts).map_err(|_| SendError::RouteNotConnected(NoRoute::Lost))
}

/// What no filter may be.
fn check_filter(prefix: &[u8]) -> Result<(), RegisterError> {
    if prefix == RESERVED_TOPIC {
        return Err(RegisterError::ReservedTopic);
    }
    if prefix.len() > FILTER_BYTES_MAX {
        return Err(RegisterError::FilterTooLong { bytes: prefix.len() });
    }
    Ok(())
}

fn subscription<'a>(
    core: &'a mut Core,
    channel: &ChannelName,
) -> Result<(u32, &'a mut Subscription), RegisterError> {
    if core.host_state == HostState::Stopped {
        return Err(RegisterError::ShuttingDown);
    }
    let unknown = || RegisterError::UnknownChannel { channel: channel.clone() };
    let index = core.channels.subscriber(channel).ok_or_else(unknown)?;
    match &mut core.channels.list[index as usize].end {
        ChannelEnd::Subscriber(subscription) => Ok((index, subscription)),
        _ => Err(unknown()),
    }
}

fn wish(PublisherDescriptor { endpoint, rid, generation }: PublisherDescriptor) -> Wish {
    (endpoint, Expects { rid: Some(rid), generation: Some(generation), security: None })
}

/// How a publisher's connection ended, in the words the host hears.
pub(super) fn lost(core: &mut Core, source: Option<Arc<Source>>, how: End) {
    if let (Some(source), End::Lost(reason)) = (source, how) {
        core.counters.count(reason);
        core.news.push_back(News::PublisherLost { source, reason });
    }
}
