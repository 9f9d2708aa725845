//! One received record, frame by frame, as ZeroMQ handed it over. It knows frames; it never knows what they say.

use std::fmt;
use std::slice;

use smallvec::SmallVec;

use super::retry;

/// The most frames of a record that are kept: the head and 255 payload parts (WIRE.md).
const FRAMES_MAX: usize = 256;

/// One record and the routing id of whoever sent it. Received into again and again without allocating; `mem::take`
/// makes it one that can be kept.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    /// Behind a ROUTER the routing id, then the head, then the parts.
    frames: SmallVec<[zmq::Message; 4]>,
    routed: bool,
    truncated: bool,
    bytes: usize,
}

impl Inbound {
    /// The routing id of the connection it came from; empty unless a ROUTER received it.
    pub(crate) fn peer(&self) -> &[u8] {
        if self.routed { self.frames.first().map_or(&[], |id| id) } else { &[] }
    }

    /// Frame 0 of the record; empty where there is none.
    pub(crate) fn head(&self) -> &[u8] {
        self.frames.get(usize::from(self.routed)).map_or(&[], |head| head)
    }

    /// The frames after the head.
    pub(crate) fn parts(&self) -> Parts<'_> {
        Parts(self.frames.get(usize::from(self.routed) + 1..).unwrap_or(&[]))
    }

    /// Head and parts together, in bytes, those of a cut-off rest too.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it had more frames than any record may have. The rest was read away: it is a protocol error.
    pub(crate) fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// The file descriptor of the connection it came from, as the monitor's `Accepted` and `Disconnected` name it.
    /// Undocumented in libzmq, absent in some builds: for correlation only. Allocates, so ask it of a hello alone.
    pub(crate) fn descriptor(&mut self) -> Option<i32> {
        self.frames.get_mut(usize::from(self.routed))?.gets("__fd")?.parse().ok()
    }

    /// Forgets the record and lets go of its memory; keeps the room for its frames.
    pub(super) fn clear(&mut self) {
        self.frames.clear();
        (self.routed, self.truncated, self.bytes) = (false, false, 0);
    }

    /// Reads the next record of `socket`; false if there is none now, and then this one is empty.
    pub(super) fn fill(&mut self, socket: &zmq::Socket, routed: bool) -> bool {
        self.clear();
        self.routed = routed;
        loop {
            let mut frame = zmq::Message::new();
            if retry(|| socket.recv(&mut frame, zmq::DONTWAIT)).is_err() {
                // ZeroMQ hands records over whole, so this is before the first frame or never.
                return !self.frames.is_empty();
            }
            let more = frame.get_more();
            if !(routed && self.frames.is_empty()) {
                self.bytes += frame.len();
            }
            if self.frames.len() < FRAMES_MAX + usize::from(routed) {
                self.frames.push(frame);
            } else {
                self.truncated = true;
            }
            if !more {
                return true;
            }
        }
    }
}

/// The payload parts of a received record, borrowed from where they arrived: nothing was copied.
#[derive(Clone, Copy)]
pub struct Parts<'a>(&'a [zmq::Message]);

impl<'a> Parts<'a> {
    /// How many parts there are: 0 to 255.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no part at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The part at `index`, counted from 0.
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.0.get(index).map(|part| &**part)
    }

    /// The parts in order.
    pub fn iter(&self) -> PartsIter<'a> {
        PartsIter(self.0.iter())
    }
}

impl fmt::Debug for Parts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

impl<'a> IntoIterator for Parts<'a> {
    type Item = &'a [u8];
    type IntoIter = PartsIter<'a>;

    fn into_iter(self) -> PartsIter<'a> {
        self.iter()
    }
}

impl<'a> IntoIterator for &Parts<'a> {
    type Item = &'a [u8];
    type IntoIter = PartsIter<'a>;

    fn into_iter(self) -> PartsIter<'a> {
        self.iter()
    }
}

/// Walks the [`Parts`] of a record in order.
#[derive(Debug, Clone)]
pub struct PartsIter<'a>(slice::Iter<'a, zmq::Message>);

impl<'a> Iterator for PartsIter<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.0.next().map(|part| &**part)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for PartsIter<'_> {}
