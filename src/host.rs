//! The host's face: what it is told, and what it can do while it is told. Nothing is queued here and nothing copied: an
//! event borrows the record as it was received, and the outbox sends at once.

use std::collections::VecDeque;
use std::time::Duration;

use crate::error::{NoRoute, RegisterError, SendError};
use crate::io::{self, Parts};
use crate::link::connection::{Connection, ConnectionId, Failure, LostReason, Peer, Side};
use crate::link::publisher::Source;
use crate::link::replies::ReplyToken;
use crate::link::requests::RequestId;
use crate::name::{ChannelName, Endpoint, MeshName, Rid, TopologyName, Weight};
use crate::topology::fanout::{self, PublisherDescriptor};
use crate::topology::node::{self, NodeEndpoint};
use crate::topology::roster::{Destination, NodeDescriptor};
use crate::topology::sweep::{self, READ_OUT_PAUSE};
use crate::topology::{Core, News, Pressure, Unanswered, client_server, life, mesh};
use crate::wire::{Correlation, ErrorKind, HostState, Name, Outcome, PARTS_MAX, Record};

/// The program that embeds the engine. It is called only from within [`Engine::turn`](crate::Engine::turn), with one
/// event at a time, and may use the [`Outbox`] at once.
///
/// ```
/// use wakeful::{Event, Host, Outbox};
///
/// struct Echo;
///
/// impl Host for Echo {
///     fn on_event(&mut self, event: Event<'_>, outbox: &mut Outbox<'_>) {
///         if let Event::Request { token, parts, .. } = event {
///             let answer: Vec<&[u8]> = parts.iter().collect();
///             let _ = outbox.reply(token, &answer);
///         }
///     }
/// }
/// ```
pub trait Host {
    /// Something happened. The event's parts are borrowed for the length of this call.
    fn on_event(&mut self, event: Event<'_>, outbox: &mut Outbox<'_>);
}

impl<F: FnMut(Event<'_>, &mut Outbox<'_>)> Host for F {
    fn on_event(&mut self, event: Event<'_>, outbox: &mut Outbox<'_>) {
        self(event, outbox);
    }
}

/// What a host is told. Probes, ACKs and beacons are not among it (000 §3).
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A peer was admitted: who it is has been verified. It is not ready yet.
    Admitted {
        /// Who.
        peer: &'a Peer,
    },
    /// A peer is ready: it can be a target, and its deadline runs.
    Ready {
        /// Who.
        peer: &'a Peer,
    },
    /// An early warning: so many asks, 1 or 2, have each stayed unanswered for a whole watched interval. No verdict.
    Missed {
        /// Who has not answered.
        peer: &'a Peer,
        /// How many asks.
        asks: u8,
    },
    /// A peer that was admitted is gone. The last word on its connection, said once.
    Lost {
        /// Who.
        peer: &'a Peer,
        /// Why.
        reason: LostReason,
    },
    /// An attempt to connect came to nothing. The next one follows after a back-off, unless the reason is [`RejectReason::NotRequired`](crate::RejectReason).
    Failed {
        /// The mesh, or the channel of the client or subscriber.
        topology: &'a TopologyName,
        /// What was dialled.
        endpoint: &'a Endpoint,
        /// Why.
        failure: Failure,
    },
    /// A message came.
    Message {
        /// From whom.
        peer: &'a Peer,
        /// The channel it was sent to; none if it was sent to this node of a mesh itself.
        channel: Option<&'a str>,
        /// Its 1 to 255 parts.
        parts: Parts<'a>,
    },
    /// A request came, to be answered with [`Outbox::reply`] or [`Outbox::decline`], or given up with
    /// [`Outbox::forget`]: a token that is only dropped keeps its place as long as its connection lives.
    Request {
        /// From whom.
        peer: &'a Peer,
        /// The channel it was sent to; none if it was sent to this node of a mesh itself.
        channel: Option<&'a str>,
        /// Its 1 to 255 parts.
        parts: Parts<'a>,
        /// The right to answer it, once.
        token: ReplyToken,
    },
    /// A request of this host has ended: exactly once, by whichever came first (000 §6).
    Completed {
        /// Which request.
        request: RequestId,
        /// How.
        outcome: Completion<'a>,
    },
    /// The engine was not turned for longer than it can vouch for. Nobody is held to account for that time.
    Stalled {
        /// The clock time that passed unwatched.
        unwatched: Duration,
    },
    /// A publisher is ready: its first valid record came.
    PublisherReady {
        /// Which.
        publisher: &'a Source,
    },
    /// A publisher that was ready is gone. Only this one: it says nothing of any other.
    PublisherLost {
        /// Which.
        publisher: &'a Source,
        /// Why.
        reason: LostReason,
    },
    /// A published record came.
    Published {
        /// From which publisher.
        publisher: &'a Source,
        /// Its topic.
        topic: &'a [u8],
        /// Its parts after the topic; none is possible.
        parts: Parts<'a>,
    },
}

/// How a request ended.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Completion<'a> {
    /// The peer answered, with 0 to 255 parts.
    Reply(Parts<'a>),
    /// The peer answered that it will not or cannot.
    Declined(ErrorKind),
    /// No answer came.
    Unanswered(Unanswered),
}

/// Where a message or request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target<'a> {
    /// One server of a channel that this engine is a client of, picked by weight.
    Channel(&'a ChannelName),
    /// One node of a mesh that serves this channel, picked by weight. It can be this node itself, which is then its own
    /// peer: no `Ready` or `Lost` is told of it, and it cannot be closed.
    MeshChannel(&'a MeshName, &'a ChannelName),
    /// The node of this mesh that has this RID; it may be the own one.
    Node(&'a MeshName, &'a Rid),
}

impl<'a> From<&'a ChannelName> for Target<'a> {
    fn from(channel: &'a ChannelName) -> Self {
        Self::Channel(channel)
    }
}

impl<'a> From<(&'a MeshName, &'a ChannelName)> for Target<'a> {
    fn from((mesh, channel): (&'a MeshName, &'a ChannelName)) -> Self {
        Self::MeshChannel(mesh, channel)
    }
}

impl<'a> From<(&'a MeshName, &'a Rid)> for Target<'a> {
    fn from((mesh, rid): (&'a MeshName, &'a Rid)) -> Self {
        Self::Node(mesh, rid)
    }
}

/// Sends and replies, at once, with the result in hand. A host has one in [`Host::on_event`]; outside a turn
/// [`Engine::outbox`](crate::Engine::outbox) lends one.
#[derive(Debug)]
pub struct Outbox<'a> {
    core: &'a mut Core,
    /// Whether it was lent between turns.
    between_turns: bool,
}

impl<'a> Outbox<'a> {
    pub(crate) fn in_turn(core: &'a mut Core) -> Self {
        Self { core, between_turns: false }
    }

    pub(crate) fn between_turns(core: &'a mut Core) -> Self {
        Self { core, between_turns: true }
    }

    /// Sends a message of 1 to 255 parts to one peer. It is sent once, to one peer, and never again to another (000 §6).
    ///
    /// ```
    /// use wakeful::{ChannelName, Config, Engine, MeshName, MeshNode, NoRoute, Rid, SendError};
    /// let (mesh, matches) = (MeshName::new("lobby")?, ChannelName::new("matches")?);
    /// let mut engine = Engine::new(Config::default())?;
    /// engine.join(MeshNode::new(mesh.clone(), Rid::new("game-3")?))?;
    /// let sent = engine.outbox().send((&mesh, &matches), &[b"who plays?"]);
    /// assert_eq!(sent, Err(SendError::RouteNotConnected(NoRoute::NotFound)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn send<'t>(&mut self, to: impl Into<Target<'t>>, parts: &[&[u8]]) -> Result<(), SendError> {
        let to = to.into();
        let index = self.pick(to, parts)?;
        self.core.head.clear();
        match to {
            Target::Channel(channel) | Target::MeshChannel(_, channel) => {
                Record::ChannelSend { channel: Name::from(channel) }
            }
            Target::Node(..) => Record::NodeSend,
        }
        .emit(&mut self.core.head);
        self.transmit(index, parts)
    }

    /// Sends a request of 1 to 255 parts likewise. It ends exactly once, with [`Event::Completed`], after `timeout` of
    /// clock time at the latest.
    pub fn request<'t>(
        &mut self,
        to: impl Into<Target<'t>>,
        parts: &[&[u8]],
        timeout: Duration,
    ) -> Result<RequestId, SendError> {
        let to = to.into();
        let index = self.pick(to, parts)?;
        let deadline = self.core.clock_now().plus(timeout);
        let request = self.core.requests.begin(index, deadline).map_err(|_| SendError::TooManyRequests)?;
        let sent =
            Correlation::new(request.correlation()).map_or(Err(SendError::TooManyRequests), |correlation| {
                self.core.head.clear();
                match to {
                    Target::Channel(channel) | Target::MeshChannel(_, channel) => {
                        Record::ChannelRequest { correlation, channel: Name::from(channel) }
                    }
                    Target::Node(..) => Record::NodeRequest { correlation },
                }
                .emit(&mut self.core.head);
                self.transmit(index, parts)
            });
        match sent {
            Ok(()) => Ok(request),
            Err(error) => {
                self.core.requests.abandon(request);
                Err(error)
            }
        }
    }

    /// Answers a request with 0 to 255 parts. On success the token is spent; after `WouldBlock` it can be used again.
    /// `RouteNotConnected` and `TokenSpent` both mean that nobody waits for this answer any more.
    pub fn reply(&mut self, token: ReplyToken, parts: &[&[u8]]) -> Result<(), SendError> {
        self.answer(token, Outcome::Reply, parts)
    }

    /// Answers a request with the reason why it gets no reply. The token as in [`Outbox::reply`].
    pub fn decline(&mut self, token: ReplyToken, kind: ErrorKind) -> Result<(), SendError> {
        self.answer(token, Outcome::Failed(kind), &[])
    }

    /// Gives up answering a request: its place is free again, and the caller is left to its own time-out. For a host that
    /// does not wait for a caller who takes no answers. Returns whether the token was still good.
    pub fn forget(&mut self, token: ReplyToken) -> bool {
        self.core.replies.take(token).is_some()
    }

    /// Takes a request back: it ends now, as cancelled, and a reply that still comes is dropped. Returns whether it had
    /// not ended already.
    pub fn cancel(&mut self, request: RequestId) -> bool {
        let was_pending = self.core.requests.cancel(request);
        if was_pending {
            self.core.news.push_back(News::Ended { request, why: Unanswered::Cancelled });
        }
        was_pending
    }

    /// Gives a channel that is served here another weight, 0 to 10,000, and tells the peers. Returns whether it is served.
    pub fn set_weight(&mut self, channel: &ChannelName, weight: Weight) -> bool {
        let Some(index) = self.core.channels.serving(channel) else { return false };
        let body = self.core.channels.list[index as usize].body.as_mut();
        if body.and_then(|body| body.set_weight(channel, weight)) == Some(true) {
            mesh::own_weights_changed(self.core, index);
            life::announce(self.core, index);
        }
        true
    }

    /// Ends a connection now: its peer loses it too, nothing more of it is delivered, and the host hears of the end once.
    /// A client dials its server anew after a back-off. Returns whether there was a connection to end.
    pub fn close(&mut self, connection: ConnectionId) -> bool {
        let stands = |found: &Connection| found.stands() && !matches!(found.side, Side::Own);
        let stands = self.core.table.find(connection).is_some_and(stands);
        if stands {
            life::close(self.core, connection.index);
        }
        stands
    }

    /// Publishes a record: a topic and 0 to 254 parts. Any topic will do but exactly the five bytes `01 5A 4C 46 31`. A
    /// full or absent subscriber never blocks it: for that one the record is dropped, and nobody hears of it (000 §4).
    pub fn publish(&mut self, channel: &ChannelName, topic: &[u8], parts: &[&[u8]]) -> Result<(), SendError> {
        fanout::publish(self.core, channel, topic, parts)
    }

    /// Adds a filter for all present and future publishers of a channel. Returns whether it is a new one.
    pub fn add_filter(&mut self, channel: &ChannelName, prefix: &[u8]) -> Result<bool, RegisterError> {
        fanout::set_filter(self.core, channel, prefix, true)
    }

    /// Takes a filter away. Returns whether there was such a one.
    pub fn remove_filter(&mut self, channel: &ChannelName, prefix: &[u8]) -> Result<bool, RegisterError> {
        fanout::set_filter(self.core, channel, prefix, false)
    }

    /// Replaces the publishers of a subscriber by those of a new snapshot of the host's service registry. Those that are in both are
    /// left alone; those that are no longer named are lost as `Retired`. Where a new one has the endpoint or the RID of one
    /// that goes, it is dialled when that one is physically closed (000 §5).
    pub fn set_publishers(
        &mut self,
        channel: &ChannelName,
        descriptors: &[PublisherDescriptor],
    ) -> Result<(), RegisterError> {
        fanout::set_publishers(self.core, channel, descriptors)
    }

    /// Replaces the descriptors of a mesh by a new snapshot of the host's service registry, whole. Of two described nodes
    /// one dials: where both listen the one with the smaller RID, where only one listens the other one. Two Object Clients
    /// that serve nothing are not connected (000 §3). A descriptor is what its node must show, however it was dialled or
    /// dials: another lifecycle generation or security identity is refused, and what is connected under one is lost as
    /// `Unverified`. A node that is no longer described keeps the connection it has dialled; one that this node has
    /// dialled is lost as `Retired`.
    pub fn set_descriptors(
        &mut self,
        mesh: &MeshName,
        descriptors: &[NodeDescriptor],
    ) -> Result<(), RegisterError> {
        node::set_descriptors(self.core, mesh, descriptors)
    }

    /// Replaces a mesh node's own list of endpoints to dial. Those that stay are left alone; one that needs no connection
    /// (000 §3) is tried again only if its endpoint, its expected RID or the `configuration` generation, 0 at first, is
    /// another one than before.
    pub fn set_endpoints(
        &mut self,
        mesh: &MeshName,
        configuration: u64,
        endpoints: &[NodeEndpoint],
    ) -> Result<(), RegisterError> {
        node::set_endpoints(self.core, mesh, configuration, endpoints)
    }

    /// Says whether the host takes application records now (000 §9). The last word counts, on every connection to
    /// a server, a client or a mesh node, also on those to come; published records come all the same, and so do the replies
    /// of mesh nodes, which have a lane of their own. A pause changes no readiness and no deadline: a peer whose answers lie behind its own records that
    /// were set aside is judged all the same after 15 s, as `NoAnswerPaused`, and what was set aside goes with it.
    pub fn set_pressure(&mut self, pressure: Pressure) {
        self.core.set_pressure(pressure);
    }

    /// Whether a peer is ready now.
    pub fn is_ready(&self, connection: ConnectionId) -> bool {
        self.core.table.find(connection).is_some_and(Connection::is_ready)
    }

    /// The connection that the next call goes to.
    fn pick(&mut self, to: Target<'_>, parts: &[&[u8]]) -> Result<u32, SendError> {
        check_parts(parts, 1)?;
        let core = &mut *self.core;
        // A host that leaves selects no new targets (000 §5); what it has accepted goes on.
        if core.host_state != HostState::Serving {
            return Err(SendError::ShuttingDown);
        }
        let route = match to {
            Target::Channel(channel) => {
                client_server::route(core, channel).ok_or(SendError::UnknownChannel)?
            }
            Target::MeshChannel(mesh, channel) => {
                mesh::route_to_channel(core, mesh, channel).ok_or(SendError::UnknownMesh)?
            }
            Target::Node(mesh, rid) => mesh::route_to_node(core, mesh, rid).ok_or(SendError::UnknownMesh)?,
        };
        match route {
            Destination::Connection(connection) => Ok(connection),
            Destination::Unavailable => Err(SendError::RouteNotConnected(NoRoute::Unavailable)),
            Destination::NotFound => Err(SendError::RouteNotConnected(NoRoute::NotFound)),
        }
    }

    fn answer(&mut self, token: ReplyToken, outcome: Outcome, parts: &[&[u8]]) -> Result<(), SendError> {
        check_parts(parts, 0)?;
        let (index, correlation) = self.core.replies.peek(token).ok_or(SendError::TokenSpent)?;
        let correlation = Correlation::new(correlation).ok_or(SendError::TokenSpent)?;
        if !self.core.table.get(index).is_some_and(Connection::is_ready) {
            return Err(SendError::RouteNotConnected(NoRoute::Lost));
        }
        self.core.head.clear();
        Record::Reply { correlation, outcome }.emit(&mut self.core.head);
        self.transmit(self.core.reply_lane(index), parts)?;
        self.core.replies.take(token);
        Ok(())
    }

    /// Sends the head in hand with its parts, unless the slot belongs to a check signal or the peer takes no record of
    /// that size.
    fn transmit(&mut self, index: u32, parts: &[&[u8]]) -> Result<(), SendError> {
        let core = &mut *self.core;
        let Some(connection) = core.table.get(index) else {
            return Err(SendError::RouteNotConnected(NoRoute::Lost));
        };
        let bytes_max = connection.peer_bytes_max;
        if bytes_max != 0 {
            let bytes = core.head.len() + parts.iter().map(|part| part.len()).sum::<usize>();
            if bytes > bytes_max as usize {
                return Err(SendError::TooLarge { bytes, bytes_max });
            }
        }
        if core.owes(connection) {
            return Err(SendError::WouldBlock);
        }
        core.send_head(index, parts).map_err(|error| match error {
            io::SendError::WouldBlock => SendError::WouldBlock,
            io::SendError::NoRoute | io::SendError::NoLane => {
                life::sever(core, index);
                SendError::RouteNotConnected(NoRoute::Lost)
            }
        })
    }
}

/// A host that keeps what it is told, for a program that prefers to pull. Everything is copied and grows until it is
/// taken, so a program with much traffic implements [`Host`] itself.
///
/// ```
/// use wakeful::{Config, Engine, Inbox};
///
/// let mut engine = Engine::new(Config::default())?;
/// let mut inbox = Inbox::default();
/// engine.turn(&mut inbox);
/// assert!(inbox.next().is_none());
/// # Ok::<(), wakeful::StartError>(())
/// ```
#[derive(Debug, Default)]
pub struct Inbox {
    events: VecDeque<Owned>,
}

/// An event with everything it borrowed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each is the event of the same name, with the same fields")]
pub enum Owned {
    Admitted { peer: Peer },
    Ready { peer: Peer },
    Missed { peer: Peer, asks: u8 },
    Lost { peer: Peer, reason: LostReason },
    Failed { topology: TopologyName, endpoint: Endpoint, failure: Failure },
    Message { peer: Peer, channel: Option<String>, parts: Vec<Vec<u8>> },
    Request { peer: Peer, channel: Option<String>, parts: Vec<Vec<u8>>, token: ReplyToken },
    Replied { request: RequestId, parts: Vec<Vec<u8>> },
    Declined { request: RequestId, kind: ErrorKind },
    Unanswered { request: RequestId, why: Unanswered },
    Stalled { unwatched: Duration },
    PublisherReady { publisher: Source },
    PublisherLost { publisher: Source, reason: LostReason },
    Published { publisher: Source, topic: Vec<u8>, parts: Vec<Vec<u8>> },
}

impl Iterator for Inbox {
    type Item = Owned;

    /// The oldest event that has not been taken.
    fn next(&mut self) -> Option<Owned> {
        self.events.pop_front()
    }
}

impl Host for Inbox {
    fn on_event(&mut self, event: Event<'_>, _: &mut Outbox<'_>) {
        self.events.push_back(Owned::from(event));
    }
}

impl From<Event<'_>> for Owned {
    fn from(event: Event<'_>) -> Self {
        let own = |parts: Parts<'_>| parts.iter().map(<[u8]>::to_vec).collect();
        match event {
            Event::Admitted { peer } => Self::Admitted { peer: peer.clone() },
            Event::Ready { peer } => Self::Ready { peer: peer.clone() },
            Event::Missed { peer, asks } => Self::Missed { peer: peer.clone(), asks },
            Event::Lost { peer, reason } => Self::Lost { peer: peer.clone(), reason },
            Event::Failed { topology, endpoint, failure } => {
                Self::Failed { topology: topology.clone(), endpoint: endpoint.clone(), failure }
            }
            Event::Message { peer, channel, parts } => {
                let channel = channel.map(str::to_owned);
                Self::Message { peer: peer.clone(), channel, parts: own(parts) }
            }
            Event::Request { peer, channel, parts, token } => {
                let channel = channel.map(str::to_owned);
                Self::Request { peer: peer.clone(), channel, parts: own(parts), token }
            }
            Event::Completed { request, outcome } => match outcome {
                Completion::Reply(parts) => Self::Replied { request, parts: own(parts) },
                Completion::Declined(kind) => Self::Declined { request, kind },
                Completion::Unanswered(why) => Self::Unanswered { request, why },
            },
            Event::Stalled { unwatched } => Self::Stalled { unwatched },
            Event::PublisherReady { publisher } => Self::PublisherReady { publisher: publisher.clone() },
            Event::PublisherLost { publisher, reason } => {
                Self::PublisherLost { publisher: publisher.clone(), reason }
            }
            Event::Published { publisher, topic, parts } => {
                Self::Published { publisher: publisher.clone(), topic: topic.to_vec(), parts: own(parts) }
            }
        }
    }
}

impl Drop for Outbox<'_> {
    /// A call between turns can swallow the wake-up of input that waits, leave something to be told, and bring forward
    /// when the next turn is due: then the engine's descriptor is made readable, so that it stays honest.
    #[inline]
    fn drop(&mut self) {
        if self.between_turns
            && (self.core.io.has_work() || self.core.is_pressed() || is_due_sooner(self.core))
        {
            self.core.io.wake();
        }
    }
}

/// Whether anything that a call between turns can add is due sooner than the host was told.
fn is_due_sooner(core: &Core) -> bool {
    let read_out = sweep::is_reading_out(core).then(|| core.watch.moment().now.plus(READ_OUT_PAUSE));
    let due = [core.requests.earliest(), core.agenda.retry_at(), read_out].into_iter().flatten().min();
    due.is_some_and(|due| core.told_due.is_none_or(|told| due < told))
}

fn check_parts(parts: &[&[u8]], least: usize) -> Result<(), SendError> {
    match parts.len() {
        count if count < least => Err(SendError::NoParts),
        0..=PARTS_MAX => Ok(()),
        parts => Err(SendError::TooManyParts { parts }),
    }
}
