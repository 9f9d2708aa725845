//! A frame read from front to back with every step checked, and the few ways to write one. Knows lengths and text, not
//! what they are for.

use std::str;

use thiserror::Error;

use crate::name::EndpointError;

/// The longest head, in bytes.
pub(crate) const HEAD_BYTES_MAX: usize = 1 << 20;

/// Why a head is no record, and at which byte of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("byte {at}: {fault}")]
pub(crate) struct DecodeError {
    /// The byte that is wrong, or the first of the field that is, counted from the front of the head.
    pub(crate) at: usize,
    /// What is wrong with it.
    pub(crate) fault: Fault,
}

/// What is wrong with a byte of a head. `what` names the field as WIRE.md does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum Fault {
    /// The first two bytes are not those of a service record.
    #[error("no service record begins like this")]
    Magic,
    /// Another major version; a hello that carries it is answered with reject 1.
    #[error("major version {major} is not spoken here")]
    Major {
        /// The version that was found.
        major: u8,
    },
    /// A command that is reserved or belongs to a part of the family that is not built here.
    #[error("command {command} is reserved or not built here")]
    Command {
        /// The command that was found.
        command: u8,
    },
    /// Flags that nobody has defined yet.
    #[error("flags {flags:#04x} are not defined")]
    Flags {
        /// The flags that were found.
        flags: u8,
    },
    /// The head is longer than any head may be.
    #[error("a head of {bytes} bytes is too long")]
    HeadTooLong {
        /// How long it is.
        bytes: usize,
    },
    /// The frame ends before the field does.
    #[error("the frame ends inside {what}")]
    Truncated {
        /// Which field.
        what: &'static str,
    },
    /// The frame goes on after its last field.
    #[error("{bytes} bytes follow the last field")]
    Trailing {
        /// How many bytes are left over.
        bytes: usize,
    },
    /// More or fewer payload parts than the command takes.
    #[error("the command does not take {parts} payload parts")]
    Parts {
        /// How many came.
        parts: usize,
    },
    /// A field that must say something is empty.
    #[error("{what} is empty")]
    Empty {
        /// Which field.
        what: &'static str,
    },
    /// A text is not UTF-8.
    #[error("{what} is not UTF-8")]
    NotUtf8 {
        /// Which field.
        what: &'static str,
    },
    /// A text has a NUL byte.
    #[error("{what} has a NUL byte")]
    Nul {
        /// Which field.
        what: &'static str,
    },
    /// A number outside its bounds, or outside those of this topology.
    #[error("{what} cannot be {value}")]
    Value {
        /// Which field.
        what: &'static str,
        /// The number that was found.
        value: u64,
    },
    /// A list is not strictly ascending.
    #[error("{what} does not ascend strictly")]
    Order {
        /// Which field of the list's items.
        what: &'static str,
    },
    /// A field that this topology leaves empty is not empty.
    #[error("{what} is always empty in this topology")]
    NotEmpty {
        /// Which field.
        what: &'static str,
    },
    /// An endpoint that nobody can dial.
    #[error("{what}: {error}")]
    Endpoint {
        /// Which field.
        what: &'static str,
        /// Why not.
        error: EndpointError,
    },
}

impl Fault {
    /// This fault at a byte.
    #[cold]
    pub(super) const fn at(self, at: usize) -> DecodeError {
        DecodeError { at, fault: self }
    }
}

/// A frame and how far it was read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    frame: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Begins at byte `at` of `frame`; a start behind the end leaves nothing to read.
    #[inline]
    pub(super) const fn new(frame: &'a [u8], at: usize) -> Self {
        Self { frame, at }
    }

    /// Checks that the whole frame is not longer than a head may be.
    pub(super) fn check_length(&self) -> Result<(), DecodeError> {
        match self.frame.len() {
            0..=HEAD_BYTES_MAX => Ok(()),
            bytes => Err(Fault::HeadTooLong { bytes }.at(HEAD_BYTES_MAX)),
        }
    }

    /// The byte that comes next, counted from the front of the frame.
    #[inline]
    pub(super) const fn at(&self) -> usize {
        self.at
    }

    /// What is still to be read.
    #[inline]
    fn rest(&self) -> &'a [u8] {
        self.frame.get(self.at..).unwrap_or_default()
    }

    /// The frame's bytes from `start` to here.
    pub(super) fn since(&self, start: usize) -> &'a [u8] {
        self.frame.get(start..self.at).unwrap_or_default()
    }

    /// The next `bytes` bytes.
    #[inline]
    pub(super) fn take(&mut self, what: &'static str, bytes: usize) -> Result<&'a [u8], DecodeError> {
        let taken = self.rest().get(..bytes).ok_or_else(|| Fault::Truncated { what }.at(self.at))?;
        self.at += bytes;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let taken = self.rest().first_chunk().ok_or_else(|| Fault::Truncated { what }.at(self.at))?;
        self.at += N;
        Ok(*taken)
    }

    #[inline]
    pub(super) fn u8(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        self.array(what).map(u8::from_be_bytes)
    }

    #[inline]
    pub(super) fn u16(&mut self, what: &'static str) -> Result<u16, DecodeError> {
        self.array(what).map(u16::from_be_bytes)
    }

    #[inline]
    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        self.array(what).map(u32::from_be_bytes)
    }

    #[inline]
    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        self.array(what).map(u64::from_be_bytes)
    }

    /// A number that `check` turns into a type; the fault stands at its first byte.
    #[inline]
    pub(super) fn checked<N: Copy + Into<u64>, T>(
        &mut self,
        what: &'static str,
        read: impl FnOnce(&mut Self, &'static str) -> Result<N, DecodeError>,
        check: impl FnOnce(N) -> Option<T>,
    ) -> Result<T, DecodeError> {
        let at = self.at;
        let number = read(self, what)?;
        check(number).ok_or_else(|| Fault::Value { what, value: number.into() }.at(at))
    }

    /// `bytes8` of at least one byte.
    #[inline]
    pub(super) fn bytes8(&mut self, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let at = self.at;
        let length = self.u8(what)?;
        if length == 0 {
            return Err(Fault::Empty { what }.at(at));
        }
        self.take(what, length.into())
    }

    /// `text8`, possibly empty.
    #[inline]
    pub(super) fn text8(&mut self, what: &'static str) -> Result<&'a str, DecodeError> {
        let length = self.u8(what)?;
        self.text(what, length.into())
    }

    /// `text16`, possibly empty.
    pub(super) fn text16(&mut self, what: &'static str) -> Result<&'a str, DecodeError> {
        let length = self.u16(what)?;
        self.text(what, length.into())
    }

    /// `bytes` bytes of UTF-8 without NUL.
    #[inline]
    fn text(&mut self, what: &'static str, bytes: usize) -> Result<&'a str, DecodeError> {
        let at = self.at;
        let taken = self.take(what, bytes)?;
        let text =
            str::from_utf8(taken).map_err(|error| Fault::NotUtf8 { what }.at(at + error.valid_up_to()))?;
        if taken.contains(&0) {
            let nul = text.find('\0').unwrap_or_default();
            return Err(Fault::Nul { what }.at(at + nul));
        }
        Ok(text)
    }

    /// A reader of the next `bytes` bytes, which this one passes over.
    pub(super) fn part(&mut self, what: &'static str, bytes: usize) -> Result<Self, DecodeError> {
        let at = self.at;
        self.take(what, bytes)?;
        Ok(Self { frame: &self.frame[..self.at], at })
    }

    /// Whether nothing is left.
    #[inline]
    pub(super) fn is_at_end(&self) -> bool {
        self.at >= self.frame.len()
    }

    /// Checks that nothing is left.
    #[inline]
    pub(super) fn end(&self) -> Result<(), DecodeError> {
        if self.is_at_end() {
            return Ok(());
        }
        Err(Fault::Trailing { bytes: self.rest().len() }.at(self.at))
    }
}

/// Appends `bytes8` or `text8`. The types of [`crate::name`] hold at most 255 bytes.
#[inline]
pub(super) fn put_bytes8(out: &mut Vec<u8>, bytes: &[u8]) {
    debug_assert!(bytes.len() <= u8::MAX.into());
    out.push(bytes.len() as u8);
    out.extend_from_slice(bytes);
}

/// Appends `text16`. An endpoint is far shorter than 65,535 bytes.
pub(super) fn put_text16(out: &mut Vec<u8>, text: &str) {
    debug_assert!(text.len() <= u16::MAX.into());
    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}
