//! By how much a turn exceeds its time for receiving on real sockets: one record, where each is slow. That it is less where
//! they are fast, `src/rotation` shows in virtual time.

use std::time::{Duration, Instant};

use wakeful::{Event, Outbox};

use crate::raw::RawClient;
use crate::support::*;

/// Turns a server that two flooders have filled; how many records each turn took from each. A record takes `work`.
fn turns(work: Duration) -> Vec<[usize; 2]> {
    let (mut server, endpoint) = Node::server("server");
    let context = zmq::Context::new();
    let flooders = ["0", "1"].map(|name| RawClient::enter(&context, &endpoint, &mut server, name));
    for _ in 0..20 {
        flooders.iter().zip(["0", "1"]).for_each(|(flooder, name)| flooder.message(name));
    }
    let (begin, mut turns, mut total) = (Instant::now(), Vec::new(), 0);
    while total < 40 {
        assert!(begin.elapsed() < s(10), "{total} of 40");
        let mut taken = [0; 2];
        server.engine.turn_at(server.now, &mut |event: Event<'_>, _: &mut Outbox<'_>| {
            if let Event::Message { parts, .. } = event {
                taken[usize::from(parts.get(0) == Some(b"1"))] += 1;
                let begin = Instant::now();
                while begin.elapsed() < work {
                    std::hint::spin_loop();
                }
            }
        });
        total += taken[0] + taken[1];
        turns.push(taken);
    }
    turns
}

/// Until a peer's records are known to be slow, up to 16 of them share a reading of the clock: that can be the case in
/// one turn for each of the two. All other turns keep to the bound.
fn keep_to(turns: &[[usize; 2]], bound: impl Fn(&[usize; 2]) -> bool) {
    let beyond: Vec<_> = turns.iter().filter(|served| !bound(served)).collect();
    assert!(beyond.len() <= 2 && beyond.iter().all(|[one, other]| one + other <= 16), "{turns:?}");
}

#[test]
fn a_host_that_takes_a_whole_turn_for_a_record_has_its_loop_back_after_each() {
    keep_to(&turns(ms(2)), |[one, other]| one + other <= 1);
}

#[test]
fn a_host_that_takes_a_little_more_than_half_a_share_for_a_record_handles_two_of_each_peer_in_a_turn() {
    // The cap of 250 us is reached by the second; the turn's 2 ms have room for both peers' shares.
    keep_to(&turns(Duration::from_micros(150)), |[one, other]| *one <= 2 && *other <= 2);
}
