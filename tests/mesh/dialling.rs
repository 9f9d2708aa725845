//! Two nodes that dial each other keep one connection, the same on both sides, whatever comes first (DESIGN §5, CASES 37).

use wakeful::{Endpoint, Failure, LostReason, NodeEndpoint, Owned, RejectReason, RouteState};

use crate::scene::{Cable, Talker, bury, come_to_rest, come_to_terms, described_as};
use crate::support::mesh::{listening, mesh, plain};
use crate::support::raw::{ADMIT, HELLO, PROBE, ack, head};
use crate::support::raw_mesh::{APPLICATION, COMPLETION, RawNode};
use crate::support::{Node, generation, ms, rid, s, settle, until};

const NAMES: [&str; 2] = ["a", "b"];

/// What a node knows of the other when it dials.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Knows {
    /// Where the other says that it listens.
    Endpoint,
    /// Also who it is.
    Rid,
    /// A way to it that the other never hears of.
    Alias,
}

/// What befalls two nodes on their way.
#[derive(Debug, Clone, Copy)]
enum Blow {
    /// One is frozen for longer than the other's handshakes last.
    Expiry { of: usize },
    /// A cable to one is torn: to its application lane, its completion lane, or where nobody knows that it listens.
    Torn { to: usize, cable: usize },
    /// One stops, and comes back with another generation.
    Restart { of: usize },
    /// One is gone without a word, and comes back with another generation.
    Crash { of: usize },
}

/// Two nodes that dial each other, by cables. The second has the larger RID.
struct Couple {
    nodes: [Talker; 2],
    /// To each: its application lane, its completion lane, and its application lane again.
    cables: [[Cable; 3]; 2],
    knows: [Knows; 2],
    runs: u64,
}

impl Couple {
    fn new(knows: [Knows; 2]) -> Self {
        let cables = [(); 2].map(|()| [(); 3].map(|()| Cable::new()));
        let nodes = [0, 1].map(|at| run(at, 1, knows[at], &cables));
        Self { nodes, cables, knows, runs: 1 }
    }

    fn befall(&mut self, blow: Blow) {
        match blow {
            Blow::Expiry { of } => self.nodes[1 - of].pass(s(21)),
            Blow::Torn { to, cable } => self.cables[to][cable].tear(),
            Blow::Restart { of } => self.restart(of),
            Blow::Crash { of } => {
                self.cables.iter().flatten().for_each(Cable::tear);
                self.restart(of);
            }
        }
    }

    fn restart(&mut self, of: usize) {
        self.runs += 1;
        let next = run(of, self.runs, self.knows[of], &self.cables);
        bury(std::mem::replace(&mut self.nodes[of], next));
    }

    /// Both come to rest with one connection.
    fn rest(&mut self, case: &str) {
        let [small, large] = &mut self.nodes;
        let rest = if self.knows.contains(&Knows::Alias) { come_to_terms } else { come_to_rest };
        rest(&mut [("a", small), ("b", large)], 1, case);
        let dialled = self.nodes.each_ref().map(|node| node.engine.snapshot().connections[0].is_dialled());
        assert_ne!(dialled[0], dialled[1], "{case}: it is one connection, which one side dialled");
    }

    /// Each was told once that the other is ready, and nothing was lost.
    fn were_never_parted(&self, case: &str) {
        for (node, peer) in [(&self.nodes[0], "b"), (&self.nodes[1], "a")] {
            assert_eq!(node.times_ready(peer), 1, "{case}\n{}", node.story());
            assert!(node.lost().is_empty(), "{case}\n{}", node.story());
        }
    }
}

/// One run of a node behind its cables, which dials the other.
fn run(at: usize, run: u64, knows: Knows, cables: &[[Cable; 3]; 2]) -> Talker {
    let [application, completion, _] = cables[at].each_ref().map(|cable| cable.endpoint.clone());
    let node = listening(NAMES[at]).generation(generation(run)).advertised(application, completion);
    let (mut node, bound) = Talker::join(node);
    let bound = bound.unwrap();
    let [application, completion] =
        [&bound.application, &bound.completion].map(|at| Endpoint::try_from(at).unwrap());
    cables[at][0].leads_to(&application);
    cables[at][1].leads_to(&completion);
    cables[at][2].leads_to(&application);
    let other = 1 - at;
    let endpoint = &cables[other][if knows == Knows::Alias { 2 } else { 0 }].endpoint;
    node.dials(&[(endpoint, (knows == Knows::Rid).then_some(NAMES[other]))]);
    node
}

/// Two nodes take turns in this order, so many for each letter, then in alternation. Virtual time stands still meanwhile.
fn play(knows: [Knows; 2], word: &[usize], turns: usize) {
    let mut couple = Couple::new(knows);
    for &who in word {
        for _ in 0..turns {
            couple.nodes[who].step(ms(0));
        }
    }
    let case = format!("{knows:?} {word:?} by {turns}");
    couple.rest(&case);
    couple.were_never_parted(&case);
    bury(couple);
}

/// Every word of so many letters.
fn words(letters: usize) -> impl Iterator<Item = Vec<usize>> {
    (0..1_usize << letters).map(move |word| (0..letters).map(|letter| word >> letter & 1).collect())
}

#[test]
fn every_order_of_turns_leaves_one_connection() {
    for word in words(5) {
        play([Knows::Endpoint; 2], &word, 1);
        play([Knows::Rid; 2], &word, 2);
    }
    for word in words(4) {
        play([Knows::Rid, Knows::Endpoint], &word, 3);
        play([Knows::Endpoint, Knows::Rid], &word, 4);
    }
}

#[test]
fn a_way_that_the_other_never_hears_of_leaves_one_connection() {
    for word in words(4) {
        play([Knows::Alias, Knows::Endpoint], &word, 2);
        play([Knows::Endpoint, Knows::Alias], &word, 2);
        play([Knows::Alias; 2], &word, 2);
    }
}

/// A blow falls after so many turns of the two in alternation.
fn strike(knows: [Knows; 2], first: usize, turns: usize, blow: Blow) {
    let mut couple = Couple::new(knows);
    for turn in 0..turns {
        couple.nodes[(first + turn) % 2].step(ms(0));
    }
    couple.befall(blow);
    couple.rest(&format!("{knows:?}: {blow:?} after {turns} turns from {first}"));
    bury(couple);
}

/// Each blow after each number of turns; which of the two is first to turn changes from one to the next.
fn strike_everywhere(knows: [Knows; 2], blows: &[Blow]) {
    for turns in 0..16 {
        for (at, &blow) in blows.iter().enumerate() {
            strike(knows, (turns + at) % 2, turns, blow);
        }
    }
}

#[test]
fn a_handshake_that_expires_anywhere_is_begun_anew() {
    let blows = [Blow::Expiry { of: 0 }, Blow::Expiry { of: 1 }];
    strike_everywhere([Knows::Endpoint; 2], &blows);
    strike_everywhere([Knows::Rid; 2], &blows);
}

#[test]
fn a_lane_that_is_lost_anywhere_is_found_anew() {
    let torn = |to, cable| Blow::Torn { to, cable };
    strike_everywhere([Knows::Endpoint; 2], &[torn(0, 0), torn(0, 1), torn(1, 0), torn(1, 1)]);
    strike_everywhere([Knows::Alias; 2], &[torn(0, 2), torn(1, 2)]);
}

#[test]
fn a_node_that_restarts_anywhere_is_found_anew() {
    let blows = [0, 1].map(|of| [Blow::Restart { of }, Blow::Crash { of }]);
    strike_everywhere([Knows::Endpoint; 2], &blows.concat());
}

#[test]
fn two_ways_to_one_node_leave_one_connection() {
    let cables = [Cable::new(), Cable::new()];
    let (mut b, at) = Talker::listens(listening("b"));
    for cable in &cables {
        cable.leads_to(&at);
    }
    let ways = [&at, &cables[0].endpoint, &cables[1].endpoint];
    for names in [[Some("b"); 3], [None, Some("b"), Some("b")], [None, None, None]] {
        let (mut a, _) = Talker::join(plain("a"));
        a.dials(&[(ways[0], names[0]), (ways[1], names[1]), (ways[2], names[2])]);
        let rest = if names == [Some("b"); 3] { come_to_rest } else { come_to_terms };
        rest(&mut [("a", &mut a), ("b", &mut b)], 1, &format!("{names:?}"));
        assert_eq!((a.times_ready("b"), a.lost()), (1, vec![]), "{}", a.story());
        assert_eq!((b.times_ready("a"), b.lost()), (1, vec![]), "{}", b.story());
        // One way is cut: another one is found.
        let dialled = a.engine.snapshot().connections[0].peer.endpoint().cloned();
        a.dials(
            &ways
                .map(|way| (way, Some("b")))
                .into_iter()
                .filter(|way| Some(way.0) != dialled.as_ref())
                .collect::<Vec<_>>(),
        );
        come_to_rest(&mut [("a", &mut a), ("b", &mut b)], 1, &format!("{names:?}, one way less"));
        assert_eq!(a.lost(), [LostReason::Retired], "{}", a.story());
        bury(a);
        come_to_rest(&mut [("b", &mut b)], 0, "the end");
        b.host.events.clear();
    }
    bury((b, cables));
}

#[test]
fn a_node_that_dials_itself_is_refused_and_stays_whole() {
    let (mut a, at) = Talker::listens(listening("a"));
    let cable = Cable::new();
    cable.leads_to(&at);
    a.dials(&[(&at, None), (&cable.endpoint, Some("b"))]);
    for _ in 0..100 {
        a.step(ms(20));
    }
    let refused = Failure::Refused(RejectReason::IdentityMismatch);
    assert!(a.count(|event| matches!(event, Owned::Failed { failure, .. } if *failure == refused)) >= 2);
    assert_eq!(
        a.host.events.len(),
        a.count(|event| matches!(event, Owned::Failed { failure, .. } if *failure == refused))
    );
    a.dials(&[]);
    come_to_rest(&mut [("a", &mut a)], 0, "nobody is dialled any more");
    bury((a, cable));
}

#[test]
fn a_ring_of_three_that_all_dial_both_ways_is_three_pairs() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut at = Vec::new();
        let mut nodes = ["a", "b", "c"].map(|name| {
            let (node, endpoint) = Talker::listens(listening(name));
            at.push(endpoint);
            node
        });
        for (number, node) in nodes.iter_mut().enumerate() {
            node.dials(&[(&at[(number + 1) % 3], None), (&at[(number + 2) % 3], None)]);
        }
        for who in order {
            for _ in 0..3 {
                nodes[who].step(ms(0));
            }
        }
        let [a, b, c] = &mut nodes;
        come_to_rest(&mut [("a", a), ("b", b), ("c", c)], 2, &format!("{order:?}"));
        assert!(nodes.iter().all(|node| node.lost().is_empty()));
        bury(nodes);
    }
}

#[test]
fn an_endpoint_of_the_hosts_own_and_a_descriptor_of_the_same_node_leave_one_connection() {
    for described in [[true, false], [false, true], [true, true]] {
        for word in words(3) {
            let [(mut small, at_small), (mut large, at_large)] =
                NAMES.map(|name| Talker::listens(listening(name).generation(generation(1))));
            small.dials(&[(&at_large, None)]);
            large.dials(&[(&at_small, None)]);
            if described[0] {
                small.is_told_of(&[described_as("b", 1, &at_large)]);
            }
            if described[1] {
                large.is_told_of(&[described_as("a", 1, &at_small)]);
            }
            let mut nodes = [small, large];
            for &who in &word {
                for _ in 0..3 {
                    nodes[who].step(ms(0));
                }
            }
            let [small, large] = &mut nodes;
            let case = format!("{described:?} {word:?}");
            come_to_rest(&mut [("a", small), ("b", large)], 1, &case);
            assert!(nodes.iter().all(|node| node.lost().is_empty()), "{case}");
            bury(nodes);
        }
    }
}

/// A node of our own that dials a raw peer, which has its hello, and that raw peer's own dial to our node.
fn crossing(ours: &str, theirs: &str, expects: bool) -> (Node, RawNode, RawNode) {
    let (mut node, at) = Node::listens(listening(ours));
    let mut dialled = RawNode::listening(theirs);
    let to = NodeEndpoint { endpoint: dialled.at(), rid: expects.then(|| rid(theirs)) };
    node.outbox().set_endpoints(&mesh(), 0, &[to]).unwrap();
    dialled.hello(&mut node, APPLICATION);
    let mut dials = RawNode::dialling(theirs, &at);
    dials.admission.endpoint.clone_from(&dialled.admission.endpoint);
    dials.admission.completion.clone_from(&dialled.admission.completion);
    (node, dialled, dials)
}

fn admit(peer: &RawNode, leg: usize) {
    peer.send(leg, &head(ADMIT, &peer.body(leg)), &[]);
}

/// What is ready is one connection, which we dialled or which the peer did.
fn is_one(node: &Node, is_dialled: bool) {
    let snapshot = node.engine.snapshot();
    assert_eq!(node.peers().len(), 1, "{:?}", snapshot.connections);
    assert_eq!(snapshot.connections[0].is_dialled(), is_dialled);
}

#[test]
fn the_smaller_keeps_its_dial_until_the_larger_ones_first_probe() {
    let (mut node, mut dialled, mut dials) = crossing("a", "raw", true);
    dials.open_application(&mut node);
    dials.open_completion();
    dials.wait(&mut node, COMPLETION, ADMIT);
    settle(&mut [&mut node]);
    assert_eq!(dialled.disconnected(), 0, "the larger has not decided");
    dials.sync(&mut node);
    until(&mut [&mut node], "its own dial is given up", |_| dialled.disconnected() == 1);
    is_one(&node, false);
}

#[test]
fn the_smaller_follows_the_larger_one_that_admits_its_dial() {
    for steps in 0..2 {
        let (mut node, mut dialled, mut dials) = crossing("a", "raw", steps == 0);
        dials.open_application(&mut node);
        if steps == 1 {
            dials.open_completion();
            dials.wait(&mut node, COMPLETION, ADMIT);
        }
        node.events();
        admit(&dialled, APPLICATION);
        dialled.hello(&mut node, COMPLETION);
        admit(&dialled, COMPLETION);
        dialled.sync(&mut node);
        is_one(&node, true);
        let is_replaced = |event: &&Owned| matches!(event, Owned::Lost { reason: LostReason::Replaced, .. });
        let lost = node.events().iter().filter(is_replaced).count();
        assert_eq!(lost, steps, "what was admitted whole is lost, what was not is nothing to hear of");
        dials.kill();
        until(&mut [&mut node], "the other is gone", |nodes| nodes[0].engine.snapshot().fenced_open == 0);
        is_one(&node, true);
    }
}

#[test]
fn the_larger_gives_up_its_dial_for_the_smaller_ones_hello_as_soon_as_it_knows_whom_it_dials() {
    for expects in [true, false] {
        let (mut node, mut dialled, mut dials) = crossing("zebra", "raw", expects);
        dials.open_application(&mut node);
        if !expects {
            settle(&mut [&mut node]);
            assert_eq!(dialled.disconnected(), 0, "it might lead to somebody else");
            admit(&dialled, APPLICATION);
        }
        until(&mut [&mut node], "its own dial is given up", |_| dialled.disconnected() == 1);
        dials.open_completion();
        dials.wait(&mut node, COMPLETION, ADMIT);
        dials.sync(&mut node);
        is_one(&node, false);
        assert!(dialled.lane(COMPLETION).taken(HELLO).is_empty());
        // It knows now where that way leads, and needs it no more.
        for _ in 0..20 {
            node.pass(ms(500));
        }
        settle(&mut [&mut node]);
        assert_eq!(node.engine.snapshot().intents[0].state, RouteState::Ready);
        dialled.poll();
        assert_eq!(dialled.lane(APPLICATION).accepted, 1, "expected: {expects}");
    }
}

#[test]
fn the_larger_whose_pair_is_complete_keeps_it() {
    for is_complete in [false, true] {
        let (mut node, mut dialled, mut dials) = crossing("zebra", "raw", false);
        admit(&dialled, APPLICATION);
        dialled.hello(&mut node, COMPLETION);
        if is_complete {
            admit(&dialled, COMPLETION);
            dialled.sync(&mut node);
            let asked = dialled.probes().pop().unwrap();
            dialled.send(APPLICATION, &ack(asked), &[]);
            dialled.sync(&mut node);
        }
        dials.send(APPLICATION, &head(HELLO, &dials.body(APPLICATION)), &[]);
        if is_complete {
            let asked = dialled.wait(&mut node, APPLICATION, PROBE).number();
            dialled.send(APPLICATION, &ack(asked), &[]);
            until(&mut [&mut node], "the newcomer is refused", |_| {
                dials.lane(APPLICATION).rejected() == Some(10)
            });
            is_one(&node, true);
        } else {
            dials.wait(&mut node, APPLICATION, ADMIT);
            until(&mut [&mut node], "its own dial is given up", |_| dialled.disconnected() == 2);
            assert!(node.peers().is_empty());
        }
    }
}
