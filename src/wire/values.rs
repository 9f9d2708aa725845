//! The numbers and words of the wire as types that cannot hold an illegal value.

use std::num::NonZeroU64;

use super::bytes::{DecodeError, Reader};
use crate::name::{ChannelName, MeshName};

/// An enum whose variants are the numbers WIRE.md gives them.
macro_rules! numbered {
    ($(#[$doc:meta])* $vis:vis $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $number:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        $vis enum $name { $($(#[$variant_doc])* $variant = $number,)* }

        impl $name {
            /// Every variant, in the order of their numbers.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The variant of this number, if there is one.
            #[inline]
            pub(crate) const fn from_number(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The number on the wire.
            #[inline]
            pub(crate) const fn number(self) -> u8 {
                self as u8
            }
        }
    };
}

pub(super) use numbered;

numbered! {
    /// What a service record says.
    pub(crate) Command {
        Hello = 1,
        Admit = 2,
        Reject = 3,
        Update = 4,
        LivenessProbe = 5,
        LivenessAck = 6,
        NodeSend = 16,
        NodeRequest = 17,
        ChannelSend = 18,
        ChannelRequest = 19,
        Reply = 20,
    }
}

numbered! {
    /// The two ways of connecting that exchange service records (000 §1).
    pub(crate) Topology {
        RouteMesh = 1,
        ClientServer = 2,
    }
}

numbered! {
    /// Which of a connection's streams. ClientServer has the application lane only.
    pub(crate) Lane {
        Application = 1,
        Completion = 2,
    }
}

impl Lane {
    /// The ZeroMQ identity that a bound ROUTER of this lane sets, so that a dialling ROUTER can address it (WIRE.md).
    pub(crate) const fn bound_identity(self) -> u8 {
        match self {
            Self::Application => b'A',
            Self::Completion => b'C',
        }
    }
}

numbered! {
    /// A mesh node's object role. On the wire a ClientServer peer says by it which end it is, and is never `None`.
    pub Role {
        /// It takes no part in objects.
        None = 0,
        /// It uses objects.
        Client = 1,
        /// It hosts objects.
        Server = 2,
    }
}

numbered! {
    /// How far a node is in its life, as it tells its peers.
    pub HostState {
        /// It does not serve yet.
        Preparing = 0,
        /// It serves.
        Serving = 1,
        /// It moves its stateful work elsewhere and takes no new one.
        Relocating = 2,
        /// It takes no new work.
        Draining = 3,
        /// It has stopped.
        Stopped = 4,
        /// It failed.
        Error = 5,
    }
}

/// Which end of a connection sent a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Sender {
    /// The end that connected: in ClientServer the client.
    Dialler,
    /// The end that listened: in ClientServer the server.
    Acceptor,
}

/// A number that is never zero.
macro_rules! non_zero {
    ($(#[$doc:meta])* $name:ident: $($derive:ident),*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, $($derive),*)]
        pub(crate) struct $name(NonZeroU64);

        impl $name {
            /// Takes any number but zero.
            #[inline]
            pub(crate) const fn new(number: u64) -> Option<Self> {
                match NonZeroU64::new(number) {
                    Some(number) => Some(Self(number)),
                    None => None,
                }
            }

            /// The number.
            #[inline]
            pub(crate) const fn get(self) -> u64 {
                self.0.get()
            }
        }
    };
}

non_zero! {
    /// What ties a reply to its request (000 §6).
    Correlation:
}
non_zero! {
    /// A descriptor's revision; it rises strictly within one lifecycle generation.
    Revision: PartialOrd, Ord
}
non_zero! {
    /// What ties the two lanes of one RouteMesh attempt together; drawn by the dialler.
    Pair:
}

impl Pair {
    /// What stands where no pair was drawn yet.
    pub(crate) const FIRST: Self = Self(NonZeroU64::MIN);
}

impl Revision {
    /// The first one.
    pub(crate) const FIRST: Self = Self(NonZeroU64::MIN);

    /// The one after this; saturates after 2^64 - 1 changes.
    #[must_use]
    pub(crate) const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// What ties an ACK to its probe within one connection: 1 to 2^63 - 1 (000 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ProbeId(NonZeroU64);

impl ProbeId {
    /// The smallest id.
    pub(crate) const FIRST: Self = Self(NonZeroU64::MIN);

    /// Takes 1 to 2^63 - 1.
    #[inline]
    pub(crate) const fn new(id: u64) -> Option<Self> {
        match NonZeroU64::new(id) {
            Some(number) if id <= i64::MAX as u64 => Some(Self(number)),
            _ => None,
        }
    }

    /// The id.
    #[inline]
    pub(crate) const fn get(self) -> u64 {
        self.0.get()
    }

    /// The id after this one; the first again after the last.
    #[must_use]
    pub(crate) const fn next(self) -> Self {
        match Self::new(self.get() + 1) {
            Some(next) => next,
            None => Self::FIRST,
        }
    }
}

/// A channel or mesh name as a record carries it: 1 to 255 bytes of UTF-8 without NUL, borrowed. Kept as bytes, because
/// all that is done with it is to compare it, once a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    #[inline]
    pub(super) fn read(reader: &mut Reader<'a>, what: &'static str) -> Result<Self, DecodeError> {
        let mut text = *reader;
        let bytes = reader.bytes8(what)?;
        // Most names are ASCII, and of those nothing more has to be checked.
        if !bytes.iter().all(|byte| (1..=0x7F).contains(byte)) {
            text.text8(what)?;
        }
        Ok(Self(bytes))
    }

    /// The name that these bytes were read as before.
    #[inline]
    pub(super) fn understood(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The name as text.
    #[inline]
    pub(crate) fn as_str(self) -> &'a str {
        std::str::from_utf8(self.0).unwrap_or_default()
    }

    /// The bytes of the name.
    #[inline]
    pub(crate) fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

impl<'a> From<&'a ChannelName> for Name<'a> {
    fn from(name: &'a ChannelName) -> Self {
        Self(name.as_str().as_bytes())
    }
}

impl<'a> From<&'a MeshName> for Name<'a> {
    fn from(name: &'a MeshName) -> Self {
        Self(name.as_str().as_bytes())
    }
}
