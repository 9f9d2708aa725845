//! One lane: a ZeroMQ socket, its monitor's reader, and every option they are opened with.
//!
//! Each option was measured; `tests/real_libzmq` holds what was found. It knows nothing of the poller and of other lanes.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixDatagram;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::{IoError, Limits, monitor, retry};
use crate::name::{BindEndpoint, Endpoint};

/// How long an orderly close lets the last records leave.
const ORDERLY: Duration = Duration::from_millis(200);
/// How long one attempt to connect may take, and how long an accepted connection may take to speak ZeroMQ. libzmq's
/// timers may follow the wall clock, so these only clear away what nobody waits for any more.
const PATIENCE: Duration = Duration::from_secs(20);
/// How many connections may wait to be accepted: all the peers of a restarted process come back at once.
const BACKLOG: i32 = 1024;
/// Idle time, probe interval and probe count of TCP keep-alive: they reclaim the descriptor of a half-open connection
/// where libzmq was built to honour them, and decide nothing.
const KEEP_ALIVE: (Duration, Duration, i32) = (Duration::from_secs(15), Duration::from_secs(5), 3);

/// What to dial with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dial {
    /// A client's lane to one server.
    Dealer,
    /// A mesh node's lane to one bound ROUTER, addressed by that one's identity once `Connected` was heard.
    Router,
    /// A subscriber's lane to one publisher.
    Sub,
}

/// What to listen with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listen {
    /// A lane that many peers share.
    Router {
        /// The one byte by which a dialling ROUTER addresses it (WIRE.md); not zero.
        identity: u8,
    },
    /// A publisher's lane.
    Pub,
}

/// What becomes of records that were sent and have not left when a lane is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Linger {
    /// They are dropped.
    None,
    /// They have 200 ms to leave, in the background.
    Orderly,
}

impl Linger {
    pub(super) fn millis(self) -> i32 {
        match self {
            Self::None => 0,
            Self::Orderly => ORDERLY.as_millis() as i32,
        }
    }
}

/// What a lane is opened as.
pub(super) struct Plan {
    pub(super) socket: zmq::SocketType,
    pub(super) dialled: bool,
    pub(super) identity: Option<u8>,
    pub(super) ipv6: bool,
    pub(super) frame_bytes_max: u32,
    pub(super) owner: u32,
}

impl Plan {
    pub(super) fn dial(kind: Dial, endpoint: &Endpoint, owner: u32, frame_bytes_max: u32) -> Self {
        let socket = match kind {
            Dial::Dealer => zmq::DEALER,
            Dial::Router => zmq::ROUTER,
            Dial::Sub => zmq::SUB,
        };
        let ipv6 = endpoint.is_ipv6();
        Self { socket, dialled: true, identity: None, ipv6, frame_bytes_max, owner }
    }

    pub(super) fn listen(kind: Listen, endpoint: &BindEndpoint, owner: u32, frame_bytes_max: u32) -> Self {
        let (socket, identity) = match kind {
            Listen::Router { identity } => (zmq::ROUTER, Some(identity)),
            Listen::Pub => (zmq::PUB, None),
        };
        let ipv6 = endpoint.is_ipv6();
        Self { socket, dialled: false, identity, ipv6, frame_bytes_max, owner }
    }

    fn configure(&self, socket: &zmq::Socket, limits: Limits) -> zmq::Result<()> {
        socket.set_linger(0)?;
        // All that a SUB sends is its filters, and those above its mark would be dropped without a word.
        let send_hwm = if self.socket == zmq::SUB { 0 } else { limits.send_hwm.into() };
        socket.set_sndhwm(send_hwm)?;
        socket.set_rcvhwm(limits.receive_hwm.into())?;
        let unlimited = self.frame_bytes_max == 0;
        socket.set_maxmsgsize(if unlimited { -1 } else { self.frame_bytes_max.into() })?;
        // Reconnecting is the engine's: libzmq would hand queued records to whoever answers next. -1, which also turns
        // it off, destroys what was received and not yet read.
        socket.set_reconnect_ivl(i32::MAX)?;
        socket.set_connect_timeout(PATIENCE.as_millis() as i32)?;
        socket.set_handshake_ivl(PATIENCE.as_millis() as i32)?;
        socket.set_backlog(BACKLOG)?;
        let (idle, interval, tries) = KEEP_ALIVE;
        socket.set_tcp_keepalive(1)?;
        socket.set_tcp_keepalive_idle(idle.as_secs() as i32)?;
        socket.set_tcp_keepalive_intvl(interval.as_secs() as i32)?;
        socket.set_tcp_keepalive_cnt(tries)?;
        socket.set_ipv6(self.ipv6)?;
        if self.socket == zmq::ROUTER {
            // Without it a record for a vanished id is swallowed.
            socket.set_router_mandatory(true)?;
        }
        self.identity.map_or(Ok(()), |identity| socket.set_identity(&[identity]))
    }
}

/// What is known of a lane's input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    /// There was none when it was last asked, and whatever comes wakes the descriptor.
    Quiet,
    /// There may be some: it stands in the list of lanes to be asked.
    Listed,
    /// The caller was told of some and has not read it empty.
    Unread,
    /// The same, and the last reading ended within a record that has too many frames.
    UnreadWithin,
}

pub(super) struct Lane {
    pub(super) generation: u32,
    pub(super) owner: u32,
    /// The number of the context it counts in.
    pub(super) context: usize,
    pub(super) dialled: bool,
    /// Whether records come and go with a routing id.
    pub(super) routed: bool,
    /// None once the lane is closed; the reader stays until it has heard that the socket is gone.
    pub(super) socket: Option<zmq::Socket>,
    pub(super) reader: zmq::Socket,
    pub(super) input: Input,
    /// Whether the caller knows it. It never hears of a lane that could not be opened.
    pub(super) known: bool,
}

impl Lane {
    /// Opens both sockets with every option set. Nothing runs yet.
    pub(super) fn open(
        plan: &Plan,
        limits: Limits,
        (context, shared): (usize, &zmq::Context),
        generation: u32,
    ) -> Result<Self, IoError> {
        let socket = named(|| shared.socket(plan.socket))?;
        let reader = named(|| shared.socket(zmq::PAIR))?;
        plan.configure(&socket, limits)?;
        // A reader that is full blocks libzmq's I/O thread for its whole context, so it never is.
        reader.set_rcvhwm(0)?;
        reader.set_linger(0)?;
        Ok(Self {
            generation,
            owner: plan.owner,
            context,
            dialled: plan.dialled,
            routed: plan.socket == zmq::ROUTER,
            socket: Some(socket),
            reader,
            input: Input::Quiet,
            known: false,
        })
    }

    /// Starts the monitor. From here on the reader must outlive the socket.
    pub(super) fn watch(&self) -> Result<(), IoError> {
        let Some(socket) = &self.socket else { return Ok(()) };
        let name = format!("inproc://{}", self.generation);
        named(|| socket.monitor(&name, monitor::HEARD))?;
        Ok(self.reader.connect(&name)?)
    }

    /// Binds the socket and says where it ended up.
    pub(super) fn bind(&self, endpoint: &BindEndpoint) -> Result<BindEndpoint, IoError> {
        let Some(socket) = &self.socket else { return Err(IoError::Unnamed) };
        named(|| socket.bind(endpoint.as_str()))?;
        let bound = socket.get_last_endpoint()?.map_err(|_| IoError::Unnamed)?;
        bound.parse().map_err(|_| IoError::Unnamed)
    }

    /// Begins to connect, in the background.
    pub(super) fn connect(&self, endpoint: &Endpoint) -> Result<(), IoError> {
        let Some(socket) = &self.socket else { return Err(IoError::Unnamed) };
        named(|| socket.connect(endpoint.as_str()))
    }

    /// Whether a record can be read now. Asking takes in all that is pending, new connections too, and eats the wake-up.
    pub(super) fn has_input(&self) -> bool {
        let events = self.socket.as_ref().map(|socket| retry(|| socket.get_events()));
        matches!(events, Some(Ok(events)) if events.contains(zmq::POLLIN))
    }
}

/// Refuses an `ipc://` path that is somebody's, because libzmq deletes whatever stands there before it binds.
pub(super) fn check_path(endpoint: &BindEndpoint) -> Result<(), IoError> {
    let Some(path) = endpoint.as_str().strip_prefix("ipc://") else { return Ok(()) };
    if endpoint.is_wildcard() || path.starts_with('@') {
        return Ok(());
    }
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.into()),
        Ok(file) if !file.file_type().is_socket() => Err(IoError::AddressInUse),
        // A datagram socket never connects to a listening stream, so asking disturbs nobody; the refusal tells whether
        // somebody is there.
        Ok(_) => match UnixDatagram::unbound()?.connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error.into()),
            _ => Err(IoError::AddressInUse),
        },
    }
}

/// Makes a call whose errno is the system's. The binding panics on one it has no name for (a read-only file system, a
/// full file table), which must not bring down the host.
pub(super) fn named<T>(call: impl FnOnce() -> zmq::Result<T>) -> Result<T, IoError> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => Ok(result?),
        Err(_) => Err(IoError::Unnamed),
    }
}
