//! RouteMesh on real sockets, in virtual time.

#[path = "../support/mod.rs"]
mod support;

mod bad_admissions;
mod calls;
mod cases;
mod crowd;
mod descriptors;
mod dialling;
mod pairs;
mod partings;
mod replacement;
mod requests;
mod scene;
mod walk;
