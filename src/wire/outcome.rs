//! How a request ended, as a reply says it.

use std::fmt;

use super::values::numbered;

numbered! {
    /// Why a request or a call failed: the failures that a reply can carry (WIRE.md, `reply.outcome`).
    ///
    /// The set is closed: a kind that is not here cannot cross the wire in this major version, so a match on it can be
    /// complete.
    pub ErrorKind {
        /// Nobody serves what was asked for.
        NotFound = 0,
        /// What was to be made exists.
        AlreadyExists = 1,
        /// It is of another type than was asked for.
        TypeMismatch = 2,
        /// It was never configured.
        NotConfigured = 3,
        /// The handler refused.
        Rejected = 4,
        /// Somebody serves it, and nobody who does is ready.
        Unavailable = 5,
        /// A bound was reached.
        CapacityExceeded = 6,
        /// It took longer than the caller allowed.
        DeadlineExceeded = 7,
        /// The node is on its way out.
        ShuttingDown = 8,
        /// The peer broke the protocol.
        ProtocolError = 9,
        /// It makes no sense in the present state.
        InvalidOperation = 10,
        /// Something that was accepted is gone.
        DataLost = 11,
        /// The node that was asked failed within.
        InternalFailure = 12,
    }
}

impl fmt::Display for ErrorKind {
    /// The kind's name, as WIRE.md spells it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What a reply says: the answer itself, or why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    /// The payload parts are the reply.
    Reply,
    /// There is no reply, and no payload part.
    Failed(ErrorKind),
}

impl Outcome {
    /// The outcome of this number, if there is one: 0 is the reply, otherwise 1 + the error kind.
    #[inline]
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        match number.checked_sub(1) {
            None => Some(Self::Reply),
            Some(kind) => ErrorKind::from_number(kind).map(Self::Failed),
        }
    }

    /// The number on the wire.
    #[inline]
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Reply => 0,
            Self::Failed(kind) => 1 + kind.number(),
        }
    }
}
