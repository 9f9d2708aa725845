//! What a socket's monitor says, translated. It knows ZeroMQ's event numbers; it never knows a connection.

use zmq::SocketEvent;

use super::retry;

/// What happened to a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LaneEvent {
    /// The connection of a dialled lane stands, ZeroMQ's own handshake included: a ROUTER may be addressed now.
    Connected,
    /// A listening lane accepted a connection. ZeroMQ's own handshake is still to come.
    Accepted {
        /// Its file descriptor; the system gives the number to another as soon as this one is closed.
        descriptor: i32,
    },
    /// Nobody answers at the endpoint that was dialled. The lane is of no more use.
    Unreachable,
    /// What answers, or knocked, does not complete ZeroMQ's handshake. A dialled lane is of no more use; a listening one
    /// goes on. `Disconnected` follows.
    HandshakeFailed,
    /// The system refused to accept a connection. The listening lane goes on.
    AcceptFailed {
        /// The system's number for why.
        errno: i32,
    },
    /// A connection that once stood is gone. Records that arrived before may still be, or just become, readable.
    Disconnected {
        /// The file descriptor it had.
        descriptor: i32,
    },
    /// The closed lane's connections are physically gone and its id is free: the endpoint may be dialled again.
    Stopped,
}

const CLOSED: u16 = SocketEvent::CLOSED as u16;
const ACCEPTED: u16 = SocketEvent::ACCEPTED as u16;
const ACCEPT_FAILED: u16 = SocketEvent::ACCEPT_FAILED as u16;
const DISCONNECTED: u16 = SocketEvent::DISCONNECTED as u16;
const STOPPED: u16 = SocketEvent::MONITOR_STOPPED as u16;
const SUCCEEDED: u16 = SocketEvent::HANDSHAKE_SUCCEEDED as u16;
const NO_DETAIL: u16 = SocketEvent::HANDSHAKE_FAILED_NO_DETAIL as u16;
const PROTOCOL: u16 = SocketEvent::HANDSHAKE_FAILED_PROTOCOL as u16;
const AUTH: u16 = SocketEvent::HANDSHAKE_FAILED_AUTH as u16;

/// The events worth hearing. The others, such as the announcement of a retry that never comes, are never sent.
pub(super) const HEARD: i32 =
    (CLOSED | ACCEPTED | ACCEPT_FAILED | DISCONNECTED | STOPPED | SUCCEEDED | NO_DETAIL | PROTOCOL | AUTH)
        as i32;

/// Reads the next event that means something to a lane, or nothing if the monitor has been read empty.
pub(super) fn read(reader: &zmq::Socket, dialled: bool) -> Option<LaneEvent> {
    loop {
        let mut signal = [0; 6];
        retry(|| reader.recv_into(&mut signal, zmq::DONTWAIT)).ok()?;
        // The second frame names the endpoint, which the lane's owner knows.
        while reader.get_rcvmore().unwrap_or(false) {
            retry(|| reader.recv_into(&mut [], zmq::DONTWAIT)).ok()?;
        }
        let [kind @ .., a, b, c, d] = signal;
        // Both numbers come from this process in its own byte order; the value is a descriptor or an errno.
        if let Some(event) = translate(u16::from_ne_bytes(kind), i32::from_ne_bytes([a, b, c, d]), dialled) {
            return Some(event);
        }
    }
}

fn translate(kind: u16, value: i32, dialled: bool) -> Option<LaneEvent> {
    match kind {
        SUCCEEDED if dialled => Some(LaneEvent::Connected),
        // A listener says this only of itself, when it goes.
        CLOSED if dialled => Some(LaneEvent::Unreachable),
        ACCEPTED => Some(LaneEvent::Accepted { descriptor: value }),
        ACCEPT_FAILED => Some(LaneEvent::AcceptFailed { errno: value }),
        NO_DETAIL | PROTOCOL | AUTH => Some(LaneEvent::HandshakeFailed),
        DISCONNECTED => Some(LaneEvent::Disconnected { descriptor: value }),
        STOPPED => Some(LaneEvent::Stopped),
        _ => None,
    }
}
