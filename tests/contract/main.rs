//! The contract: one chapter for each heading of 000 §10, one test for each clause, on real sockets in virtual time.
#[path = "../support/mod.rs"]
mod support;

use support::raw::Raw;

#[test]
fn a_raw_peer_comes_to_be_ready_at_either_end() {
    for (mut raw, node) in [Raw::ready_client("raw"), Raw::ready_server("raw")] {
        assert_eq!((node.ready_peers(), raw.probes().len()), (1, 1));
    }
}
