//! The wire, byte for byte: what a record is, how it is read and how it is written.
//!
//! Parsing borrows from the received frame and allocates nothing; every length, bound and enum and the end of the frame
//! are checked before anything is handed on. Emitting appends to a buffer that the caller reuses, and takes only types
//! that cannot hold an illegal value. What parses emits the very same bytes, and the other way round. This room knows
//! bytes and names; it must never know a socket, a clock, or the state of a connection.

mod admission;
mod beacon;
mod body;
mod bytes;
mod outcome;
mod record;
mod refusal;
#[cfg(test)]
mod tests;
mod values;

#[allow(unused_imports, reason = "some are named by tests alone, some by the mesh to come")]
pub(crate) use self::{
    admission::{Admission, AdmissionChange, Channels, Extensions, RevisionOrder, UpdateFault},
    beacon::{BEACON_PAYLOAD, FanoutRecord, RESERVED_TOPIC, classify},
    body::{AdmissionBody, AdmissionBodyError, Announce, Identity, Service},
    bytes::{DecodeError, Fault, HEAD_BYTES_MAX},
    outcome::Outcome,
    record::{Allowed, PARTS_MAX, Record},
    values::{Command, Correlation, Lane, Name, Pair, ProbeId, Revision, Sender, Topology},
};
pub use self::{
    outcome::ErrorKind,
    refusal::{RejectReason, UnknownReason},
    values::{HostState, Role},
};
