//! RouteMesh on real sockets, in virtual time.

#[path = "../support/mod.rs"]
mod support;

mod bad_admissions;
mod bad_answers;
mod bad_input;
mod calls;
mod cases;
mod chaos;
mod crowd;
mod descriptors;
mod dialling;
mod found;
mod pairs;
mod partings;
#[path = "../cases/proxy.rs"]
#[allow(dead_code, reason = "another test file uses all of it")]
mod proxy;
mod replacement;
mod requests;
mod scene;
mod strangers;
mod walk;
