//! What the pins share: bounded waiting, sockets as the engine makes them, a socket with its monitor, a look at a
//! descriptor. It pins nothing itself.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use zmq::{Context, DONTWAIT, Message, SNDMORE, Socket, SocketEvent, SocketType};

/// How long a test waits for what must happen. Only a loaded machine ever comes near it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// How long a test watches for what must not happen.
pub(crate) const SILENCE: Duration = Duration::from_millis(150);

/// Looks until `look` finds something.
///
/// # Panics
/// When [`PATIENCE`] ends first.
#[track_caller]
pub(crate) fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    within(PATIENCE, look).unwrap_or_else(|| panic!("waited in vain until {what}"))
}

/// Looks for [`SILENCE`] and says whether `look` found nothing.
pub(crate) fn never<T>(look: impl FnMut() -> Option<T>) -> bool {
    within(SILENCE, look).is_none()
}

fn within<T>(bound: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        let found = look();
        if found.is_some() || start.elapsed() > bound {
            return found;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// A socket as the engine makes them: no linger, no reconnect of its own, a ROUTER mandatory.
pub(crate) fn socket(context: &Context, kind: SocketType) -> Socket {
    let socket = context.socket(kind).unwrap();
    socket.set_linger(0).unwrap();
    socket.set_reconnect_ivl(i32::MAX).unwrap();
    if kind == SocketType::ROUTER {
        socket.set_router_mandatory(true).unwrap();
    }
    socket
}

/// Binds to a free loopback port and says which.
pub(crate) fn bind(socket: &Socket) -> String {
    socket.bind("tcp://127.0.0.1:*").unwrap();
    socket.get_last_endpoint().unwrap().unwrap()
}

/// The address of a tcp endpoint, for a raw connection to it.
pub(crate) fn address(endpoint: &str) -> SocketAddr {
    endpoint.strip_prefix("tcp://").unwrap().parse().unwrap()
}

/// An endpoint where nobody listens, and the open connection whose near end keeps the port from everybody else.
pub(crate) fn closed_port() -> ((TcpListener, TcpStream), String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let endpoint = format!("tcp://{}", stream.local_addr().unwrap());
    ((listener, stream), endpoint)
}

/// Sends one record or says why not; never blocks.
pub(crate) fn send(socket: &Socket, frames: &[&[u8]]) -> zmq::Result<()> {
    let (last, first) = frames.split_last().unwrap();
    for frame in first {
        socket.send(*frame, DONTWAIT | SNDMORE)?;
    }
    socket.send(*last, DONTWAIT)
}

/// Sends copies of one record until the socket refuses, and says how many it took; the refusal must be EAGAIN.
pub(crate) fn fill(socket: &Socket, frames: &[&[u8]], most: usize) -> usize {
    for taken in 0..most {
        match send(socket, frames) {
            Ok(()) => {}
            Err(refusal) => {
                assert_eq!(refusal, zmq::Error::EAGAIN);
                return taken;
            }
        }
    }
    panic!("no refusal within {most} records");
}

/// Sends until the whole way to the peer is full and stays so for three times [`SILENCE`]; says how many records that took.
pub(crate) fn fill_the_way(socket: &Socket, frames: &[&[u8]], most: usize) -> usize {
    let mut taken = 0;
    while !(0..3).all(|_| never(|| send(socket, frames).ok())) {
        taken += 1 + fill(socket, frames, most - taken);
    }
    taken
}

/// The next record if one can be read now.
pub(crate) fn recv(socket: &Socket) -> Option<Vec<Vec<u8>>> {
    let mut frames = Vec::new();
    let mut message = Message::new();
    loop {
        match socket.recv(&mut message, DONTWAIT) {
            Ok(()) => frames.push(message.to_vec()),
            Err(refusal) => {
                assert_eq!((refusal, frames.len()), (zmq::Error::EAGAIN, 0), "a record arrives whole");
                return None;
            }
        }
        if !message.get_more() {
            return Some(frames);
        }
    }
}

/// The next record, awaited.
#[track_caller]
pub(crate) fn await_record(socket: &Socket) -> Vec<Vec<u8>> {
    until("a record came", || recv(socket))
}

/// Lets `dialler` send one record and returns the id under which `router` knows it.
#[track_caller]
pub(crate) fn acquaint(dialler: &Socket, router: &Socket) -> Vec<u8> {
    send(dialler, &[b"hello"]).unwrap();
    let mut frames = await_record(router);
    assert_eq!(frames[1..], [b"hello"]);
    frames.swap_remove(0)
}

/// One monitor event.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Seen {
    pub(crate) event: SocketEvent,
    /// A descriptor, an interval or an errno, as the event has it.
    pub(crate) value: u32,
    /// The endpoint the event names.
    pub(crate) endpoint: String,
}

/// A socket and the reader of its monitor. Dropped, it closes the socket and reads the monitor to its end.
pub(crate) struct Watched {
    socket: Option<Socket>,
    monitor: Socket,
}

impl Watched {
    pub(crate) fn new(context: &Context, kind: SocketType) -> Self {
        Self::over(context, socket(context, kind))
    }

    /// Watches a socket that has its options already.
    pub(crate) fn over(context: &Context, socket: Socket) -> Self {
        let monitor = context.socket(SocketType::PAIR).unwrap();
        monitor.set_rcvhwm(0).unwrap();
        monitor.set_linger(0).unwrap();
        monitor.connect(&watch(&socket)).unwrap();
        Self { socket: Some(socket), monitor }
    }

    pub(crate) fn dial(context: &Context, kind: SocketType, endpoint: &str) -> Self {
        let watched = Self::new(context, kind);
        watched.connect(endpoint).unwrap();
        watched
    }

    pub(crate) fn listen(context: &Context, kind: SocketType) -> (Self, String) {
        let watched = Self::new(context, kind);
        let endpoint = bind(&watched);
        (watched, endpoint)
    }

    /// The next event if there is one now.
    pub(crate) fn seen(&self) -> Option<Seen> {
        read_event(&self.monitor)
    }

    /// Every event up to and with the first `event`, awaited.
    #[track_caller]
    pub(crate) fn await_event(&self, event: SocketEvent) -> Vec<Seen> {
        await_event(&self.monitor, event)
    }

    /// The same, but only the kinds.
    #[track_caller]
    pub(crate) fn story(&self, event: SocketEvent) -> Vec<SocketEvent> {
        self.await_event(event).iter().map(|seen| seen.event).collect()
    }

    /// Closes the socket and returns the kinds of all events until the monitor stops.
    #[track_caller]
    pub(crate) fn close(mut self) -> Vec<SocketEvent> {
        drop(self.socket.take());
        self.story(SocketEvent::MONITOR_STOPPED)
    }
}

impl Deref for Watched {
    type Target = Socket;

    fn deref(&self) -> &Socket {
        self.socket.as_ref().unwrap()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if self.socket.take().is_some() {
            within(PATIENCE, || self.seen().filter(|seen| seen.event == SocketEvent::MONITOR_STOPPED));
        }
    }
}

/// Starts a monitor of all events and says where it can be read.
pub(crate) fn watch(socket: &Socket) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let place = format!("inproc://monitor-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    socket.monitor(&place, i32::from(SocketEvent::ALL.to_raw())).unwrap();
    place
}

/// The next event of a monitor reader if there is one now.
pub(crate) fn read_event(monitor: &Socket) -> Option<Seen> {
    let frames = recv(monitor)?;
    let [head, endpoint] = &frames[..] else { panic!("an event has two frames: {frames:?}") };
    let (event, value) = head.split_at(2);
    Some(Seen {
        event: SocketEvent::from_raw(u16::from_ne_bytes(event.try_into().unwrap())),
        value: u32::from_ne_bytes(value.try_into().unwrap()),
        endpoint: String::from_utf8(endpoint.clone()).unwrap(),
    })
}

/// Every event up to and with the first `event`, awaited.
#[track_caller]
pub(crate) fn await_event(monitor: &Socket, event: SocketEvent) -> Vec<Seen> {
    let mut story: Vec<Seen> = Vec::new();
    while story.last().is_none_or(|last| last.event != event) {
        story.push(until(&format!("{event:?} after {story:?}"), || read_event(monitor)));
    }
    story
}

/// An edge-triggered look at one socket's descriptor.
pub(crate) struct Look {
    poll: Poll,
    events: Events,
}

impl Look {
    pub(crate) fn at(socket: &Socket) -> Self {
        let poll = Poll::new().unwrap();
        let descriptor = socket.get_fd().unwrap();
        poll.registry().register(&mut SourceFd(&descriptor), Token(0), Interest::READABLE).unwrap();
        Self { poll, events: Events::with_capacity(8) }
    }

    /// Whether the descriptor reports something within `bound`.
    pub(crate) fn fires(&mut self, bound: Duration) -> bool {
        self.poll.poll(&mut self.events, Some(bound)).unwrap();
        !self.events.is_empty()
    }

    /// Polls until a poll as long as [`SILENCE`] reports nothing; a level would go on reporting.
    pub(crate) fn falls_silent(&mut self) {
        let mut fired = 0;
        while self.fires(SILENCE) {
            fired += 1;
            assert!(fired < 1000, "the descriptor is not edge-triggered");
        }
    }
}

/// A directory for `ipc://` endpoints, gone when dropped.
pub(crate) struct Nook(PathBuf);

impl Nook {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("pin-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("ipc://{}/s", self.0.display())
    }
}

impl Drop for Nook {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
