//! How records flow: nothing that can be delivered waits for luck, and a peer that drains is never cut off from its
//! check signal. Real loopback sockets; the time that deadlines count is virtual.
#![allow(clippy::disallowed_methods, reason = "a test on real sockets bounds its waits in real time")]

mod support;

#[path = "flow/follower.rs"]
mod follower;
#[path = "flow/interleavings.rs"]
mod interleavings;
#[path = "flow/owed.rs"]
mod owed;
#[path = "flow/wakeups.rs"]
mod wakeups;
