//! The only room that touches ZeroMQ and the poller. It knows lanes (one ZeroMQ socket each), their monitors, the
//! contexts they live in and the one descriptor a host can wait on. It never knows a connection, a handshake, liveness
//! or the rotation: what a routing id or a descriptor stands for is its caller's to say.
//!
//! **The edge rule.** A ZeroMQ socket's descriptor tells only that something changed, once, and any call on the socket
//! may eat that wake-up. Here is the one place that makes an honest descriptor of it:
//! * a lane that woke, or on which anything was done, is listed, and is asked whether input waits before anyone sleeps;
//! * a lane that [`Io::next_readable`] named, or whose last [`Io::receive`] gave a record, is the caller's to read:
//!   nothing more is said of it until `receive` finds it empty. Whoever keeps such a lane must not wait on the descriptor;
//! * [`Io::settle`], at the end of a turn and after calls outside of one, asks the lanes touched since; if it finds
//!   input, or if earlier work came up, [`Io::wake`] makes the descriptor readable. [`Io::poll`] settles before it sleeps.

mod contexts;
mod error;
mod inbound;
mod lane;
mod monitor;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Interest, Token};
use slab::Slab;

use self::contexts::Contexts;
use self::lane::{Input, Lane, Plan};
use crate::name::{BindEndpoint, Endpoint};

pub use self::error::IoError;
pub(crate) use self::error::SendError;
pub(crate) use self::inbound::{Inbound, Reading, Received};
pub use self::inbound::{Parts, PartsIter};
pub(crate) use self::lane::{Dial, Linger, Listen};
pub(crate) use self::monitor::LaneEvent;

/// How many wake-ups one look at the poller brings; there is another look as long as one was full.
const EVENTS_PER_LOOK: usize = 256;
const WAKER: Token = Token(usize::MAX);

/// A lane, now or once: a closed lane's id never means another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LaneId {
    index: u32,
    generation: u32,
}

/// How many whole records each connection of a lane may queue. ZeroMQ gives credit back in batches of half of it,
/// and reads zero as no bound at all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Towards the peer, in records.
    pub(crate) send_hwm: u16,
    /// From the peer, in records.
    pub(crate) receive_hwm: u16,
}

/// All the sockets of one engine. Dropping it ends its contexts, and waits for the 200 ms that an orderly close gave.
pub(crate) struct Io {
    poller: mio::Poll,
    wakeups: mio::Events,
    waker: mio::Waker,
    /// The waker was used and has not been heard since.
    awake: bool,
    limits: Limits,
    lanes: Slab<Lane>,
    opened: u32,
    contexts: Contexts,
    /// Lanes that woke or were touched since they were last asked for input. An index may be out of date.
    listed: VecDeque<usize>,
    heard: VecDeque<(LaneId, LaneEvent)>,
}

impl Io {
    /// A poller with no lane.
    pub(crate) fn new(limits: Limits) -> Result<Self, IoError> {
        let poller = mio::Poll::new()?;
        let waker = mio::Waker::new(poller.registry(), WAKER)?;
        Ok(Self {
            poller,
            wakeups: mio::Events::with_capacity(EVENTS_PER_LOOK),
            waker,
            awake: false,
            limits,
            lanes: Slab::new(),
            opened: 0,
            contexts: Contexts::default(),
            listed: VecDeque::new(),
            heard: VecDeque::new(),
        })
    }

    /// Opens a fresh lane and begins to connect it; how that ends is a [`LaneEvent`]. `owner` comes back from
    /// [`Io::owner`]. A frame of more than `frame_bytes_max` bytes (0: no limit) ends the connection it comes on.
    pub(crate) fn dial(
        &mut self,
        kind: Dial,
        endpoint: &Endpoint,
        owner: u32,
        frame_bytes_max: u32,
    ) -> Result<LaneId, IoError> {
        let index = self.open(&Plan::dial(kind, endpoint, owner, frame_bytes_max))?;
        let begun = self.lanes[index].connect(endpoint);
        Ok(self.hand_out(index, begun)?.0)
    }

    /// Opens a lane that listens, and says where: the port or path that stood open in `endpoint` is filled in.
    /// The file of an `ipc://` path stays behind when the lane is closed, and gives way to the next listener there.
    pub(crate) fn listen(
        &mut self,
        kind: Listen,
        endpoint: &BindEndpoint,
        owner: u32,
        frame_bytes_max: u32,
    ) -> Result<(LaneId, BindEndpoint), IoError> {
        lane::check_path(endpoint)?;
        let index = self.open(&Plan::listen(kind, endpoint, owner, frame_bytes_max))?;
        let bound = self.lanes[index].bind(endpoint);
        self.hand_out(index, bound)
    }

    /// Looks for what changed and waits for it up to `timeout` (for ever if there is none), less if input waits already
    /// or a signal comes. Takes in all the monitors have to say.
    pub(crate) fn poll(&mut self, timeout: Option<Duration>) -> Result<(), IoError> {
        let sleeps = timeout != Some(Duration::ZERO) && !self.has_work();
        let mut timeout = if sleeps { timeout } else { Some(Duration::ZERO) };
        // The list is taken while it is walked: a monitor read on the way may free a lane.
        let mut wakeups = mem::replace(&mut self.wakeups, mio::Events::with_capacity(0));
        let looked = loop {
            match self.poller.poll(&mut wakeups, timeout) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => break Ok(()),
                Err(error) => break Err(error.into()),
                Ok(()) => {}
            }
            let mut woke = 0;
            for wakeup in &wakeups {
                self.woken(wakeup.token());
                woke += 1;
            }
            if woke < EVENTS_PER_LOOK {
                break Ok(());
            }
            timeout = Some(Duration::ZERO);
        };
        self.wakeups = wakeups;
        looked
    }

    /// The next lane found to have input. It is the caller's until [`Io::receive`] finds it empty.
    pub(crate) fn next_readable(&mut self) -> Option<LaneId> {
        if !self.settle() {
            return None;
        }
        let index = self.listed.pop_front()?;
        let lane = self.lanes.get_mut(index)?;
        lane.input = Input::Unread;
        Some(LaneId { index: index as u32, generation: lane.generation })
    }

    /// Whether a lane that is not the caller's has input; the first such lane then heads the list. Costs nothing where
    /// nothing woke or was touched.
    pub(crate) fn settle(&mut self) -> bool {
        while let Some(&index) = self.listed.front() {
            if let Some(lane) = self.lanes.get_mut(index).filter(|lane| lane.input == Input::Listed) {
                if lane.has_input() {
                    return true;
                }
                lane.input = Input::Quiet;
            }
            self.listed.pop_front();
        }
        false
    }

    /// Whether anything came in that the caller has not taken: input on a lane, or what a monitor said.
    pub(crate) fn has_work(&mut self) -> bool {
        self.settle() || !self.heard.is_empty()
    }

    /// Makes the descriptor readable, until the next look at the poller. Costs nothing where it was made so before.
    pub(crate) fn wake(&mut self) {
        if !self.awake {
            match self.waker.wake() {
                Ok(()) => self.awake = true,
                Err(error) => log::error!("the waker failed, a host may sleep too long: {error}"),
            }
        }
    }

    /// Reads one record, if there is one; otherwise `into` is empty. With nothing to be read the lane is no longer the
    /// caller's.
    #[inline]
    pub(crate) fn receive(&mut self, lane: LaneId, into: &mut Inbound) -> Reading {
        let Some(Lane { socket: Some(socket), routed, input, .. }) = self.lane_mut(lane) else {
            into.clear();
            return Reading::Nothing;
        };
        let mut is_within = *input == Input::UnreadWithin;
        let reading = into.fill(socket, *routed, &mut is_within);
        *input = match reading {
            Reading::Nothing => Input::Quiet,
            _ if is_within => Input::UnreadWithin,
            _ => Input::Unread,
        };
        reading
    }

    /// Lets connections that have just become readable join the fair queue of a shared lane, right before it is read. For
    /// a lane of one connection, reading does that itself.
    pub(crate) fn refresh(&mut self, lane: LaneId) {
        if self.lane(lane).is_some_and(Lane::has_input) {
            self.list(lane.index as usize);
        }
    }

    /// Sends one record, whole or not at all; `to` is the routing id that a ROUTER needs. `Ok` says that ZeroMQ took it:
    /// a route can look open for a moment after its `Disconnected`, and what is sent then is lost with it.
    pub(crate) fn send(
        &mut self,
        lane: LaneId,
        to: Option<&[u8]>,
        head: &[u8],
        parts: &[&[u8]],
    ) -> Result<(), SendError> {
        let socket = self.lane(lane).and_then(|lane| lane.socket.as_ref()).ok_or(SendError::NoLane)?;
        let sent = send_whole(socket, to, head, parts);
        self.list(lane.index as usize);
        sent
    }

    /// Lets records of a topic that begins with `prefix` come to a SUB lane, or no longer. False if the lane is closed.
    pub(crate) fn filter(&mut self, lane: LaneId, prefix: &[u8], wanted: bool) -> bool {
        let Some(socket) = self.lane(lane).and_then(|lane| lane.socket.as_ref()) else { return false };
        let set =
            retry(|| if wanted { socket.set_subscribe(prefix) } else { socket.set_unsubscribe(prefix) });
        self.list(lane.index as usize);
        set.is_ok()
    }

    /// The next thing that happened to a lane, in the order in which its monitor told it.
    pub(crate) fn next_event(&mut self) -> Option<(LaneId, LaneEvent)> {
        self.heard.pop_front()
    }

    /// Takes in what a lane's monitor has to say now; [`Io::next_event`] then tells it.
    pub(crate) fn drain_monitor(&mut self, lane: LaneId) {
        if self.lane(lane).is_some() {
            self.hear(lane.index as usize);
        }
    }

    /// Closes a lane. Its unread records are gone and nothing can be sent on it, but it still has events, of which
    /// [`LaneEvent::Stopped`] is the last. Closing it twice changes nothing.
    pub(crate) fn close(&mut self, lane: LaneId, linger: Linger) {
        let Some(Lane { socket, input, .. }) = self.lane_mut(lane) else { return };
        let Some(socket) = socket.take() else { return };
        *input = Input::Quiet;
        // The socket goes at the end of this; its monitor bears witness when its connections have gone too.
        self.forget(&socket);
        if let Err(error) = socket.set_linger(linger.millis()) {
            log::warn!("a lane closes without its linger: {error}");
        }
    }

    /// What the lane was opened for; None once it has stopped.
    pub(crate) fn owner(&self, lane: LaneId) -> Option<u32> {
        self.lane(lane).map(|lane| lane.owner)
    }

    /// How many lanes there are, those included whose `Stopped` is still to come.
    pub(crate) fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// How many contexts, each with two threads of ZeroMQ's own, were opened.
    pub(crate) fn contexts(&self) -> usize {
        self.contexts.len()
    }
}

/// What the verbs above are made of.
impl Io {
    fn lane(&self, id: LaneId) -> Option<&Lane> {
        self.lanes.get(id.index as usize).filter(|lane| lane.generation == id.generation)
    }

    #[inline]
    fn lane_mut(&mut self, id: LaneId) -> Option<&mut Lane> {
        self.lanes.get_mut(id.index as usize).filter(|lane| lane.generation == id.generation)
    }

    /// Opens a lane and its monitor, and registers both, before anything can happen to it.
    fn open(&mut self, plan: &Plan) -> Result<usize, IoError> {
        self.opened = self.opened.wrapping_add(1);
        let lane = Lane::open(plan, self.limits, self.contexts.with_room(), self.opened)?;
        let index = self.lanes.vacant_key();
        let watched = self.register(index, &lane).and_then(|()| lane.watch());
        if let Err(error) = watched {
            self.forget_lane(&lane);
            return Err(error);
        }
        self.contexts.take(lane.context);
        let index = self.lanes.insert(lane);
        // A pipe wakes its reader only once that has found it empty.
        self.hear(index);
        Ok(index)
    }

    /// Makes an opened lane the caller's, or closes it unseen if its first step failed.
    fn hand_out<T>(&mut self, index: usize, begun: Result<T, IoError>) -> Result<(LaneId, T), IoError> {
        let id = LaneId { index: index as u32, generation: self.lanes[index].generation };
        match begun {
            Ok(begun) => {
                self.lanes[index].known = true;
                self.list(index);
                Ok((id, begun))
            }
            Err(error) => {
                self.close(id, Linger::None);
                Err(error)
            }
        }
    }

    /// Puts a lane on the list of those to be asked, unless it is the caller's to read anyway.
    fn list(&mut self, index: usize) {
        let Some(lane) = self.lanes.get_mut(index) else { return };
        if lane.input == Input::Quiet {
            lane.input = Input::Listed;
            self.listed.push_back(index);
        }
    }

    /// A wake-up came. One for a lane that is gone means nothing.
    fn woken(&mut self, token: Token) {
        if token == WAKER {
            self.awake = false;
            return;
        }
        let Token(token) = token;
        let (index, is_monitor) = (token >> 1, token & 1 == 1);
        if is_monitor {
            self.hear(index);
        } else {
            self.list(index);
        }
    }

    /// Reads a monitor empty, and frees the lane when it has said its last.
    fn hear(&mut self, index: usize) {
        while let Some(lane) = self.lanes.get(index) {
            let Some(event) = monitor::read(&lane.reader, lane.dialled) else { return };
            let id = LaneId { index: index as u32, generation: lane.generation };
            if lane.known {
                self.heard.push_back((id, event));
            }
            if event == LaneEvent::Connected {
                // A send takes in what is pending only now and then; the peer's routing id must not wait for that.
                self.refresh(id);
            }
            if event == LaneEvent::Stopped {
                let lane = self.lanes.remove(index);
                self.contexts.give_back(lane.context);
                self.forget_lane(&lane);
            }
        }
    }

    fn register(&self, index: usize, lane: &Lane) -> Result<(), IoError> {
        for (socket, is_monitor) in [(lane.socket.as_ref(), 0), (Some(&lane.reader), 1)] {
            let Some(socket) = socket else { continue };
            let token = Token(index << 1 | is_monitor);
            self.poller.registry().register(&mut SourceFd(&socket.get_fd()?), token, Interest::READABLE)?;
        }
        Ok(())
    }

    fn forget_lane(&self, lane: &Lane) {
        lane.socket.iter().chain([&lane.reader]).for_each(|socket| self.forget(socket));
    }

    /// Takes a socket's descriptor from the poller before the socket goes. One that was never there is as good.
    fn forget(&self, socket: &zmq::Socket) {
        if let Ok(fd) = socket.get_fd() {
            let _ = self.poller.registry().deregister(&mut SourceFd(&fd));
        }
    }
}

impl fmt::Debug for Io {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Io").field("lanes", &self.lanes.len()).finish_non_exhaustive()
    }
}

impl AsFd for Io {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.registry().as_fd()
    }
}

impl AsRawFd for Io {
    fn as_raw_fd(&self) -> RawFd {
        self.poller.as_raw_fd()
    }
}

/// Sends the frames of one record: all of them, or none if the first is refused.
fn send_whole(
    socket: &zmq::Socket,
    to: Option<&[u8]>,
    head: &[u8],
    parts: &[&[u8]],
) -> Result<(), SendError> {
    let give = |frame: &[u8], more: bool| {
        let more = if more { zmq::SNDMORE } else { 0 };
        retry(|| socket.send(frame, zmq::DONTWAIT | more))
    };
    let more = !parts.is_empty();
    let mut sent = match to {
        None => Ok(give(head, more)?),
        Some(to) => {
            give(to, true)?;
            give(head, more)
        }
    };
    // Where the pipe dies under a record, libzmq drops it, but only once it has been given the whole of it.
    for (at, part) in (1..).zip(parts) {
        let taken = give(part, at < parts.len());
        sent = sent.and(taken);
    }
    sent.map_err(|_| SendError::NoRoute)
}

/// Makes a call again as long as a signal interrupts it; even calls that do not wait can be.
#[inline]
fn retry<T>(mut call: impl FnMut() -> zmq::Result<T>) -> zmq::Result<T> {
    loop {
        match call() {
            Err(zmq::Error::EINTR) => {}
            result => return result,
        }
    }
}
