//! # wakeful
//!
//! A single-threaded ZeroMQ engine that lives inside a latency-critical host and tells the truth about who is alive.
//!
//! > **Ask by the clock, judge by the watch.** What we owe others (probes, beacons, retries, time-outs) follows the
//! > monotonic clock. What we hold against others (a peer's deadline, a publisher's silence) follows only the time this
//! > engine was awake and watching.
//!
//! ## The loop
//!
//! ```
//! use std::time::Duration;
//! use wakeful::{ChannelName, Config, Engine, Event, Outbox, Rid, Server};
//!
//! let mut engine = Engine::new(Config::default())?;
//! let server = Server::new(ChannelName::new("orders")?, Rid::new("gateway-1")?, "tcp://127.0.0.1:0".parse()?);
//! println!("listening at {}", engine.serve(server)?);
//! let mut host = |event: Event<'_>, outbox: &mut Outbox<'_>| {
//!     if let Event::Request { token, parts, .. } = event {
//!         let answer: Vec<&[u8]> = parts.iter().collect();
//!         let _ = outbox.reply(token, &answer);
//!     }
//! };
//! # let mut frames = 0;
//! loop {
//!     engine.wait(Some(Duration::from_millis(16)));
//!     engine.turn(&mut host);
//! #   frames += 1;
//! #   if frames == 3 { break; }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A turn, in this order: one look at the sockets and one reading of the clock; what the monitors witnessed; control
//! records that were owed a slot; one rotation of receiving, in which every connection has at most its share; asks that
//! are due; verdicts; time-outs and retries; and the sweep of what has ended. It never sleeps.
//!
//! A host calls [`Engine::turn`] when the engine's descriptor is readable, when [`Engine::next_due`] has come, and at
//! once when the last [`Report`] said that work is left; [`Engine::wait`] is the simplest way to all three. A host that
//! is late harms nobody: what it did not watch, it does not hold against its peers. Within
//! [`Host::on_event`] everything an [`Outbox`] offers may be done; the engine itself cannot be reached from there. A panic
//! in it unwinds through the turn: drop the engine then.
//!
//! Diagnostics go to the `log` crate. In these pages `000 §n` names the section of the transport liveness contract that a
//! rule comes from, and WIRE.md is the byte format, in the repository's `docs`.
#![forbid(unsafe_code)]
#![deny(missing_docs, unreachable_pub)]

mod clock;
mod config;
mod engine;
mod error;
mod host;
#[allow(dead_code, reason = "what only tests read")]
mod io;
mod link;
mod liveness;
mod name;
mod rotation;
mod slots;
mod status;
mod topology;
mod turn;
#[allow(dead_code, reason = "what only tests read")]
mod wire;

pub use clock::WATCH_STEP;
pub use config::{Config, ConfigError};
pub use engine::Engine;
pub use error::{
    FILTER_BYTES_MAX, MESSAGE_BYTES_MIN, NoRoute, RegisterError, SERVES_MAX, SendError, StartError,
};
pub use host::{Completion, Event, Host, Inbox, Outbox, Owned, Target};
pub use io::{IoError, Parts, PartsIter};
pub use link::connection::{ConnectionId, Failure, LostReason, Peer};
pub use link::publisher::Source;
pub use link::{ReplyToken, RequestId};
pub use liveness::{CHECK_INTERVAL, PEER_DEADLINE, SECOND_LOOK, Silence};
pub use name::{
    BindEndpoint, ChannelName, Endpoint, EndpointError, Generation, IPC_PATH_BYTES_MAX, MeshName,
    NAME_BYTES_MAX, NameError, Rid, SecurityId, TopologyName, WEIGHT_MAX, Weight,
};
pub use status::{
    ConnectionStatus, IntentStatus, LastFailure, ListenerStatus, MeshStatus, NodeStatus, RouteState,
    Snapshot, SourceStatus,
};
pub use topology::fanout::{Publisher, PublisherDescriptor, Subscriber};
pub use topology::node::{Dialler, MeshBound, MeshNode, NodeEndpoint};
pub use topology::register::{Client, Server};
pub use topology::roster::NodeDescriptor;
pub use topology::{Counters, Pressure, Unanswered};
pub use turn::{DueReason, NextDue, Report, Stopped};
pub use wire::{ErrorKind, HostState, RejectReason, Role, UnknownReason};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
