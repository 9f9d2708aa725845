//! RouteMesh on real sockets, in virtual time.

#[path = "../support/mod.rs"]
mod support;

mod calls;
mod dialling;
mod pairs;
mod scene;
