//! What libzmq itself does, wherever the engine leans on it: DESIGN §4, and the ° facts of §2.
//!
//! These are tests of libzmq through the public face of the `zmq` crate, not of `wakeful`. Each pins one fact, under the
//! fact as its name, and says who leans on it. One that fails means that the linked libzmq behaves otherwise: then the
//! named part of the engine has to be thought through again before the test may change.

// The bounds of these tests are wall clock: here nothing is virtual.
#![allow(clippy::disallowed_methods)]

mod descriptors;
mod dialling;
mod endings;
mod fanout;
mod kit;
mod monitors;
mod options;
mod pressure;
mod reading;
mod routing;
mod strangers;
mod wakeups;
