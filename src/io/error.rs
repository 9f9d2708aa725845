//! What the transport can refuse, in words a host can act on. It knows no lane and no endpoint.

use std::io;

use thiserror::Error;

/// What the operating system or ZeroMQ refused when a lane was opened or polled. Nothing was left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IoError {
    /// Something else listens there, or the `ipc://` path holds a file that is no socket.
    #[error("the address is in use")]
    AddressInUse,
    /// No interface of this machine has that address.
    #[error("this machine has no such address")]
    AddressUnavailable,
    /// The port or the path is not this process's to take.
    #[error("permission denied")]
    PermissionDenied,
    /// A directory of the `ipc://` path does not exist.
    #[error("no such directory")]
    NoSuchPath,
    /// The process, the system or ZeroMQ has no socket left.
    #[error("out of sockets or file descriptors")]
    TooManySockets,
    /// The system has no memory left for it.
    #[error("out of memory")]
    OutOfMemory,
    /// The linked ZeroMQ or this machine cannot carry that kind of endpoint.
    #[error("this kind of endpoint is not supported here")]
    Unsupported,
    /// Anything else the system says.
    #[error("refused with errno {errno}")]
    System {
        /// The system's number for it.
        errno: i32,
    },
    /// The system said something that ZeroMQ's binding has no word for.
    #[error("refused for a reason that ZeroMQ's binding cannot name")]
    Unnamed,
}

impl From<zmq::Error> for IoError {
    fn from(error: zmq::Error) -> Self {
        match error {
            zmq::Error::EADDRINUSE => Self::AddressInUse,
            zmq::Error::EADDRNOTAVAIL | zmq::Error::ENODEV => Self::AddressUnavailable,
            zmq::Error::EACCES => Self::PermissionDenied,
            zmq::Error::ENOENT => Self::NoSuchPath,
            zmq::Error::EMFILE => Self::TooManySockets,
            zmq::Error::ENOMEM | zmq::Error::ENOBUFS => Self::OutOfMemory,
            zmq::Error::EPROTONOSUPPORT | zmq::Error::ENOTSUP => Self::Unsupported,
            other => Self::System { errno: other.to_raw() },
        }
    }
}

impl From<io::Error> for IoError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::AddrInUse => Self::AddressInUse,
            io::ErrorKind::AddrNotAvailable => Self::AddressUnavailable,
            io::ErrorKind::PermissionDenied => Self::PermissionDenied,
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::NoSuchPath,
            io::ErrorKind::OutOfMemory => Self::OutOfMemory,
            io::ErrorKind::Unsupported => Self::Unsupported,
            _ => error.raw_os_error().map_or(Self::Unnamed, |errno| Self::System { errno }),
        }
    }
}

/// Why a record was not sent. Nothing of it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub(crate) enum SendError {
    /// The pipe to the peer is full now; it may have room later.
    #[error("no room now")]
    WouldBlock,
    /// No connection leads to that routing id any more.
    #[error("no route")]
    NoRoute,
    /// The lane is closed.
    #[error("the lane is closed")]
    NoLane,
}

impl From<zmq::Error> for SendError {
    fn from(error: zmq::Error) -> Self {
        // Beside a full pipe and a vanished id, ZeroMQ refuses a record only on a socket that can no longer send.
        if error == zmq::Error::EAGAIN { Self::WouldBlock } else { Self::NoRoute }
    }
}
