//! RouteMesh on real sockets, in virtual time.

#[path = "../support/mod.rs"]
mod support;

mod calls;
mod pairs;
