//! The contract: one chapter for each heading of 000 §10, one test for each clause, on real sockets in virtual time.
//! [`clauses`] lists the clauses and holds the list and the tests against each other.

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/fanout.rs"]
mod ticks;
#[path = "../support/zmtp.rs"]
mod zmtp;

mod bidirectional;
mod clauses;
mod fairness;
mod fanout;
mod isolation;
mod mesh;
mod mesh_reconnect;
mod mesh_termination;
mod publishing;
mod reconnect;
mod scene;
mod subscribing;
mod termination;
