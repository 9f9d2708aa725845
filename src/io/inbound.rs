//! One received record, frame by frame, as ZeroMQ handed it over. It knows frames; it never knows what they say.

use std::fmt;
use std::slice;

use super::retry;

/// The most frames of a record that are kept: the head and 255 payload parts (WIRE.md).
const FRAMES_MAX: usize = 256;
/// How much may be left of earlier records when nothing more comes.
const LEFT_BYTES_MAX: usize = 2 << 20;
/// How many frames of a longer record one reading passes over, besides those it keeps: some 0.1 ms.
const PASSED_OVER_MAX: usize = 1024;

/// One record and the routing id of whoever sent it. Received into again and again without allocating; `mem::take`
/// makes it one that can be kept.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    /// Behind a ROUTER the routing id, then the head, then the parts; then what is left of earlier records, because
    /// receiving into a used message costs less than letting go of it first.
    messages: Vec<zmq::Message>,
    /// How many of them are this record's.
    len: usize,
    routed: bool,
    truncated: bool,
}

/// What reading from a socket came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// A record.
    Record,
    /// Only more of a record that has too many frames, and of which nothing more is kept.
    PassedOver,
    /// There is nothing to be read.
    Nothing,
}

/// A record as its receiver sees it. A look at a frame is two calls into ZeroMQ, so head and first part are looked at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Received<'a> {
    /// Frame 0 of the record; empty where there is none.
    pub(crate) head: &'a [u8],
    /// The frames after the head.
    pub(crate) parts: Parts<'a>,
    /// Head and parts together, in bytes.
    pub(crate) bytes: usize,
    /// It had more frames than any record may have: a protocol error. What was beyond them is gone.
    pub(crate) is_truncated: bool,
}

impl Received<'_> {
    /// Whether it is larger than `bytes_max` (0: no limit), or has more frames than any record.
    pub(crate) fn exceeds(&self, bytes_max: usize) -> bool {
        self.is_truncated || (bytes_max != 0 && self.bytes > bytes_max)
    }
}

impl Inbound {
    /// The routing id of the connection it came from; empty unless a ROUTER received it.
    #[inline]
    pub(crate) fn peer(&self) -> &[u8] {
        if self.routed && self.len > 0 { &self.messages[0] } else { &[] }
    }

    /// Looks at its frames.
    #[inline]
    pub(crate) fn look(&self) -> Received<'_> {
        let mut frames = self.messages[..self.len].iter();
        if self.routed {
            frames.next();
        }
        let head = frames.next().map_or(&[][..], |head| head);
        let messages = frames.as_slice();
        let first = messages.first().map_or(&[][..], |part| part);
        let others = messages.iter().skip(1).map(|part| part.len()).sum::<usize>();
        let bytes = head.len() + first.len() + others;
        Received { head, parts: Parts { first, messages }, bytes, is_truncated: self.truncated }
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
        self.messages.push(zmq::Message::from(head));
        self.messages.extend(parts.iter().map(|part| zmq::Message::from(*part)));
        self.len = self.messages.len();
    }

    /// Forgets the record and lets go of its memory; keeps the room for its frames.
    pub(crate) fn clear(&mut self) {
        self.messages.clear();
        self.begin(self.routed);
    }

    /// Lets go of what is left of earlier records, if that is more than `bytes_max`. For a record that is kept: nobody counts
    /// those bytes as its own.
    pub(crate) fn forget_rest(&mut self, bytes_max: usize) {
        if self.rest() > bytes_max {
            self.messages.truncate(self.len);
        }
    }

    /// How many bytes are left of earlier records.
    pub(super) fn rest(&self) -> usize {
        self.messages[self.len..].iter().map(|message| message.len()).sum()
    }

    /// Reads the next record of `socket`. `is_within` says that the last reading ended within a record that has too many
    /// frames, and whether this one does.
    #[inline]
    pub(super) fn fill(&mut self, socket: &zmq::Socket, routed: bool, is_within: &mut bool) -> Reading {
        self.begin(routed);
        if *is_within {
            *is_within = self.pass_over(socket);
            return Reading::PassedOver;
        }
        // A head follows a routing id, and ZeroMQ hands records over whole: nothing is wanting after the first frame.
        if routed {
            if self.read(socket).is_none() {
                return self.nothing();
            }
            self.len = 1;
        }
        let len_max = self.len + FRAMES_MAX;
        while let Some(frame) = self.read(socket) {
            let more = frame.get_more();
            self.len += 1;
            if !more {
                return Reading::Record;
            }
            if self.len == len_max {
                self.truncated = true;
                *is_within = self.pass_over(socket);
                return Reading::Record;
            }
        }
        self.nothing()
    }

    /// Nothing came. What the record before held stays until the next one, because it is the memory that ZeroMQ took last:
    /// given back now, glibc may hand all that lies before it to the system, which takes longer than some turns do.
    fn nothing(&mut self) -> Reading {
        self.forget_rest(LEFT_BYTES_MAX);
        Reading::Nothing
    }

    /// Reads away some frames of a record that has too many; says whether there are more of it.
    #[cold]
    fn pass_over(&mut self, socket: &zmq::Socket) -> bool {
        (0..PASSED_OVER_MAX).all(|_| self.read(socket).is_some_and(zmq::Message::get_more))
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
        (self.len, self.routed, self.truncated) = (0, routed, false);
    }
}

/// The payload parts of a received record, borrowed from where they arrived: nothing was copied.
#[derive(Clone, Copy)]
pub struct Parts<'a> {
    /// What the first one holds, or nothing.
    first: &'a [u8],
    messages: &'a [zmq::Message],
}

impl<'a> Parts<'a> {
    /// How many parts there are: 0 to 255.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether there is no part at all.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// The part at `index`, counted from 0.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        let part = self.messages.get(index)?;
        Some(if index == 0 { self.first } else { part })
    }

    /// The parts in order.
    pub fn iter(&self) -> PartsIter<'a> {
        PartsIter(self.messages.iter())
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
