//! One received record, frame by frame, as ZeroMQ handed it over. It knows frames; it never knows what they say.

use std::fmt;
use std::slice;

use super::retry;

/// The most frames of a record that are kept: the head and 255 payload parts (WIRE.md).
const FRAMES_MAX: usize = 256;

/// One record and the routing id of whoever sent it. Received into again and again without allocating; `mem::take`
/// makes it one that can be kept.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    /// Behind a ROUTER the routing id, then the head, then the parts; then what is left of longer records, because
    /// receiving into a used message costs less than letting go of it first.
    messages: Vec<zmq::Message>,
    /// How many of them are this record's.
    len: usize,
    routed: bool,
    truncated: bool,
    bytes: usize,
}

impl Inbound {
    /// The routing id of the connection it came from; empty unless a ROUTER received it.
    pub(crate) fn peer(&self) -> &[u8] {
        if self.routed { self.frames().first().map_or(&[], |id| id) } else { &[] }
    }

    /// Frame 0 of the record; empty where there is none.
    pub(crate) fn head(&self) -> &[u8] {
        self.frames().get(usize::from(self.routed)).map_or(&[], |head| head)
    }

    /// The frames after the head.
    #[inline]
    pub(crate) fn parts(&self) -> Parts<'_> {
        Parts(self.frames().get(usize::from(self.routed) + 1..).unwrap_or(&[]))
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
        self.messages[..self.len].get_mut(usize::from(self.routed))?.gets("__fd")?.parse().ok()
    }

    /// Becomes a record that came by no socket.
    pub(crate) fn copy(&mut self, head: &[u8], parts: &[&[u8]]) {
        self.clear();
        self.begin(false);
        for frame in std::iter::once(head).chain(parts.iter().copied()) {
            self.messages.push(zmq::Message::from(frame));
            self.bytes += frame.len();
        }
        self.len = self.messages.len();
    }

    /// Forgets the record and lets go of its memory; keeps the room for its frames.
    pub(crate) fn clear(&mut self) {
        self.messages.clear();
        self.begin(self.routed);
    }

    /// Lets go of what is left of longer records, if that is more than `bytes_max`. For a record that is kept: nobody
    /// counts those bytes as its own.
    pub(crate) fn forget_rest(&mut self, bytes_max: usize) {
        if self.rest() > bytes_max {
            self.messages.truncate(self.len);
        }
    }

    /// How many bytes are left of longer records.
    pub(super) fn rest(&self) -> usize {
        self.messages[self.len..].iter().map(|message| message.len()).sum()
    }

    /// Reads the next record of `socket`; false if there is none now, and then this one is empty.
    #[inline]
    pub(super) fn fill(&mut self, socket: &zmq::Socket, routed: bool) -> bool {
        self.begin(routed);
        // That a record follows a routing id need not be asked.
        if routed && self.read(socket).is_none() {
            self.clear();
            return false;
        }
        self.len = usize::from(routed);
        let len_max = FRAMES_MAX + self.len;
        while let Some(frame) = self.read(socket) {
            let (bytes, more) = (frame.len(), frame.get_more());
            self.bytes += bytes;
            if self.len < len_max {
                self.len += 1;
            } else {
                self.truncated = true;
            }
            if !more {
                return true;
            }
        }
        // ZeroMQ hands records over whole, so this is before the first frame or never.
        if self.len == 0 {
            self.clear();
        }
        self.len > 0
    }

    /// Reads the next frame, if there is one.
    #[inline]
    fn read(&mut self, socket: &zmq::Socket) -> Option<&zmq::Message> {
        if self.len == self.messages.len() {
            self.messages.push(zmq::Message::new());
        }
        let frame = &mut self.messages[self.len];
        retry(|| socket.recv(frame, zmq::DONTWAIT)).ok()?;
        Some(frame)
    }

    fn begin(&mut self, routed: bool) {
        (self.len, self.routed, self.truncated, self.bytes) = (0, routed, false, 0);
    }

    #[inline]
    fn frames(&self) -> &[zmq::Message] {
        &self.messages[..self.len]
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
