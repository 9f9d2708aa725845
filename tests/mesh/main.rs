//! RouteMesh on real sockets, in virtual time.

#[path = "../support/mod.rs"]
mod support;

mod bad_admissions;
mod calls;
mod crowd;
mod descriptors;
mod dialling;
mod pairs;
mod replacement;
mod requests;
mod scene;
mod walk;
