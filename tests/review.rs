//! What a sceptical reading of the engine asked for: corners where phases, callbacks and shutdown meet.
mod support;

use support::raw::{self, Raw};
use support::{Node, settle, until};

#[test]
fn a_reject_is_never_answered_not_even_as_a_first_record() {
    let (mut node, endpoint) = Node::server("server");
    let mut stranger = Raw::client("stranger", &endpoint);
    stranger.send(&raw::reject(10), &[]);
    until(&mut [&mut node], "the stranger fenced", |nodes| nodes[0].engine.snapshot().fenced_open == 1);
    settle(&mut [&mut node]);
    stranger.poll();
    assert_eq!(stranger.seen, Vec::new());
}
