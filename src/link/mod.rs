//! Leaf machines of one connection and of what is under way on it. Each takes what happened and says what follows; time
//! is an argument, and none of them knows a socket, a record, a topology or the host.

pub(crate) mod backoff;
pub(crate) mod connection;
mod pending;
pub(crate) mod publisher;
pub(crate) mod replies;
pub(crate) mod requests;

pub use replies::ReplyToken;
pub use requests::RequestId;

/// No room for one more: `most` are pending. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{most} are pending, and no more are allowed")]
pub(crate) struct Full {
    /// The bound that was met, of one connection or of all.
    pub(crate) most: u32,
}
