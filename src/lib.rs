//! # wakeful
//!
//! A single-threaded ZeroMQ engine that lives inside a latency-critical host and tells the truth about who is alive.
//!
//! > **Ask by the clock, judge by the watch.** What we owe others (probes, beacons, retries, time-outs) follows the
//! > monotonic clock. What we hold against others (a peer's deadline, a publisher's silence) follows only the time this
//! > engine was awake and watching.
#![forbid(unsafe_code)]
// The core stands before the turn that drives it; this goes when the turn comes.
#![allow(dead_code)]

mod clock;
mod io;
mod liveness;
mod name;
mod rotation;
mod wire;

pub use clock::WATCH_STEP;
pub use io::{IoError, Parts, PartsIter};
pub use name::{
    BindEndpoint, ChannelName, Endpoint, EndpointError, Generation, IPC_PATH_BYTES_MAX, MeshName,
    NAME_BYTES_MAX, NameError, Rid, SecurityId, WEIGHT_MAX, Weight,
};
