//! Peers that mean harm or know no better, from outside, over real sockets. Whatever they send, only their own connection
//! ends (issue 3, CASES 59); each test has a healthy neighbour who must not notice.
//!
//! The bytes are written by hand from WIRE.md, so that no mistake of our own encoder can hide here.
#![allow(clippy::disallowed_methods, reason = "a test on real sockets bounds its waits in real time")]

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/zmtp.rs"]
mod zmtp;

mod dialled;
mod floods;
mod manners;
mod python;
mod raw;
mod records;
mod scene;
mod tcp;
