//! The engine: registration, the turn, shutdown. Every verb here only delegates.

#[cfg(test)]
mod uncapped;

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use crate::clock::{Clock, Watch};
use crate::config::Config;
use crate::error::{RegisterError, StartError};
use crate::host::{Host, Outbox};
use crate::io::{Io, Limits};
use crate::name::BindEndpoint;
use crate::status::Snapshot;
use crate::topology::fanout::{self, Publisher, Subscriber};
use crate::topology::node::{self, MeshBound, MeshNode};
use crate::topology::register::{self, Client, Server};
use crate::topology::{Core, life, sweep};
use crate::turn::{self, Buffers, NextDue, Report};
use crate::wire::HostState;

/// The engine. One thread, no locks, no thread of its own beyond ZeroMQ's. See the [crate](crate) for the loop around it.
pub struct Engine {
    core: Core,
    buffers: Buffers,
}

impl Engine {
    /// Makes an engine with nothing registered.
    pub fn new(config: Config) -> Result<Self, StartError> {
        config.check()?;
        let limits = Limits { send_hwm: config.queue_records_max, receive_hwm: config.queue_records_max };
        let io = Io::new(limits)?;
        let clock = Clock::start();
        let core = Core::new(config, clock, Watch::start(clock.now()), io);
        Ok(Self { core, buffers: Buffers::default() })
    }

    /// Registers a server and lets it listen. Returns where: a port or path that stood open is filled in.
    pub fn serve(&mut self, server: Server) -> Result<BindEndpoint, RegisterError> {
        let registered = register::serve(&mut self.core, server);
        self.core.io.wake();
        registered
    }

    /// Registers a client; it begins to connect in the next turn.
    pub fn connect(&mut self, client: Client) -> Result<(), RegisterError> {
        let registered = register::connect(&mut self.core, client);
        self.core.io.wake();
        registered
    }

    /// Registers a node of a RouteMesh. It begins to connect in the next turn. Returns where it listens, if it does: a
    /// port or path that stood open is filled in.
    pub fn join(&mut self, node: MeshNode) -> Result<Option<MeshBound>, RegisterError> {
        let registered = node::join(&mut self.core, node);
        self.core.io.wake();
        registered
    }

    /// Registers a publisher and lets it listen. Returns where: a port or path that stood open is filled in.
    pub fn broadcast(&mut self, publisher: Publisher) -> Result<BindEndpoint, RegisterError> {
        let registered = fanout::broadcast(&mut self.core, publisher);
        self.core.io.wake();
        registered
    }

    /// Registers a subscriber; it begins to connect in the next turn.
    pub fn subscribe(&mut self, subscriber: Subscriber) -> Result<(), RegisterError> {
        let registered = fanout::subscribe(&mut self.core, subscriber);
        self.core.io.wake();
        registered
    }

    /// One turn: receives, answers, asks, judges, and tells the host. Never sleeps. Call it when the descriptor is
    /// readable, when [`Engine::next_due`] has come, and at once if the last [`Report::work_left`] said so.
    pub fn turn<H: Host>(&mut self, host: &mut H) -> Report {
        self.look(Duration::ZERO);
        let now = self.core.clock.now();
        turn::run(&mut self.core, &mut self.buffers, now, host)
    }

    /// The same for a host that has the time already, and for tests, where fifteen seconds cost microseconds. A time
    /// before that of the last turn counts as that one.
    pub fn turn_at<H: Host>(&mut self, now: Instant, host: &mut H) -> Report {
        self.look(Duration::ZERO);
        let now = self.core.clock.at(now);
        turn::run(&mut self.core, &mut self.buffers, now, host)
    }

    /// Sleeps until a socket is ready, the next turn is due, a signal comes, or `timeout` is over, whichever is first.
    /// Returns at once while work is left.
    pub fn wait(&mut self, timeout: Option<Duration>) {
        let due = turn::next_due(&mut self.core).map(|(at, _)| at.since(self.core.clock.now()));
        match (due, timeout) {
            (Some(due), Some(timeout)) => self.look(due.min(timeout)),
            (Some(span), None) | (None, Some(span)) => self.look(span),
            (None, None) => self.poll(None),
        }
    }

    /// When the next turn is due at the latest, and why; none while only input can want one. Work that
    /// is left is due now.
    pub fn next_due(&mut self) -> Option<NextDue> {
        let (at, reason) = turn::next_due(&mut self.core)?;
        Some(NextDue { at: self.core.clock.instant(at), reason })
    }

    /// Sends and replies between turns. If that leaves something to do, the descriptor becomes readable. That is looked at
    /// when the outbox is dropped, so one that is kept for a burst costs less than one for each call.
    pub fn outbox(&mut self) -> Outbox<'_> {
        Outbox::between_turns(&mut self.core)
    }

    /// Takes the host out of its peers' selection, or back in. Connections stay, and accepted work goes on (000 §7); new
    /// calls of its own are refused with `ShuttingDown` (000 §5).
    pub fn drain(&mut self, draining: bool) {
        life::set_state(&mut self.core, if draining { HostState::Draining } else { HostState::Serving });
        self.core.io.wake();
    }

    /// Stops in order: peers are told (a publisher has no word for it, its subscribers see the connection break), every pending request completes, every connection ends, the host hears of it all.
    /// Nothing is left to be done afterwards, and nothing more can be registered or sent. It does not wait; dropping the
    /// engine does, up to 200 ms, for the last records to leave.
    pub fn stop<H: Host>(&mut self, host: &mut H) {
        sweep::stop(&mut self.core);
        turn::tell_all(&mut self.core, host);
    }

    /// A copy of what the engine knows now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(&self.core)
    }

    fn look(&mut self, span: Duration) {
        self.poll(Some(span));
    }

    fn poll(&mut self, timeout: Option<Duration>) {
        if let Err(error) = self.core.io.poll(timeout) {
            log::error!("the poller failed, sockets are read when they are next touched: {error}");
        }
    }
}

impl Drop for Engine {
    /// As [`Engine::stop`], with nobody to tell. Waits up to 200 ms for the last records to leave.
    fn drop(&mut self) {
        sweep::stop(&mut self.core);
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("connections", &self.core.table.len()).finish_non_exhaustive()
    }
}

impl AsFd for Engine {
    /// Readable when a turn is wanted. It may also be so without need, and stays so until the next turn or wait.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.core.io.as_fd()
    }
}

impl AsRawFd for Engine {
    fn as_raw_fd(&self) -> RawFd {
        self.core.io.as_raw_fd()
    }
}

const _: fn() = || {
    fn is_send<T: Send>() {}
    is_send::<Engine>();
};
