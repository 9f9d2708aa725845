//! A tour of what this engine is for, in little more than a minute: a server and four clients, two publishers and a
//! subscriber, each a process of its own, talk over loopback TCP. Then a client and a publisher freeze, the whole machine
//! "sleeps", and a client is killed. After them a mesh of four equals: one comes late, one freezes, and one is killed and
//! started anew.
//!
//! `cargo run --release --example tour`
//!
//! This program is both the guide, which starts the other processes, freezes and kills them, and checks what they say,
//! and (under a hidden argument) those processes: [`roles`] is all that embeds the engine.
#![allow(clippy::disallowed_methods, reason = "a host has its own clock")]

mod guide;
mod roles;

use std::env;
use std::process::ExitCode;

const SERVER: &str = "server";
const CLIENTS: [&str; 4] = ["anna", "ben", "carla", "dora"];
const PUBLISHERS: [&str; 2] = ["gold", "silver"];
const SUBSCRIBER: &str = "board";
/// The nodes of the mesh; the last comes late.
const NODES: [&str; 4] = ["north", "east", "south", "west"];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments[..] {
        [] => guide::lead(),
        ["as-server"] => roles::server().map(|()| true),
        ["as-client", name, endpoint] => roles::client(name, endpoint).map(|()| true),
        ["as-publisher", name] => roles::publisher(name).map(|()| true),
        ["as-node", name, run, bind, ref others @ ..] => roles::node(name, run, bind, others).map(|()| true),
        ["as-subscriber", ref publishers @ ..] => roles::subscriber(publishers).map(|()| true),
        _ => Err("the tour takes no arguments".into()),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
