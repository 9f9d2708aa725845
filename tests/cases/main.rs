//! What has broken others (CASES.md), shown end to end: each test is named after its case and runs the engine over real
//! loopback sockets, in virtual time. What can only be forced inside the machine has its unit test there, and the test
//! here says so.
#![allow(clippy::disallowed_methods, reason = "a test on real sockets bounds its waits in real time")]

#[path = "../support/mod.rs"]
mod support;

/// What the scenes need of the engine, from wherever they are played.
mod api {
    pub use wakeful::{ChannelName, Client, Config, Engine, Event, Outbox, Rid, Subscriber};
}

mod budget;
mod crowding;
mod flood;
mod heartbeat;
mod identity;
mod proxy;
mod raw;
mod requests;
mod robustness;
mod stall;
mod steps;

/// The cases that this file owes a test each.
const OWED: [u32; 29] = [
    1, 4, 5, 7, 8, 10, 11, 14, 17, 20, 22, 25, 26, 28, 29, 31, 32, 34, 35, 43, 44, 46, 47, 49, 50, 53, 55,
    56, 59,
];

#[test]
fn every_case_owed_has_a_test_named_after_it() {
    let sources = [
        include_str!("flood.rs"),
        include_str!("heartbeat.rs"),
        include_str!("identity.rs"),
        include_str!("requests.rs"),
        include_str!("robustness.rs"),
        include_str!("stall.rs"),
    ];
    let tests: Vec<&str> = sources
        .iter()
        .flat_map(|source| source.split("#[test]").skip(1))
        .filter_map(|test| test.split_once("fn ")?.1.split_once('('))
        .map(|(name, _)| name)
        .collect();
    for case in OWED {
        let prefix = format!("case_{case:02}_");
        assert!(tests.iter().any(|name| name.starts_with(&prefix)), "case {case} has no test");
    }
    for name in &tests {
        let case = name.strip_prefix("case_").and_then(|rest| rest.get(..2)?.parse().ok());
        assert!(case.is_some_and(|case| OWED.contains(&case)), "{name} is named after no case");
    }
}
