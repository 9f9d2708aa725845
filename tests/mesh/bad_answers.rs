//! Every wrong word that a listener can answer, on either lane, at every point of the opening and after it: the attempt or
//! the pair ends with the reason that fits, both its lanes are closed, and a healthy pair beside it is undisturbed.
#![allow(clippy::disallowed_methods, reason = "a test on real sockets bounds its waits in real time")]

use std::time::Instant;

use wakeful::{Failure, LostReason, NodeEndpoint, Owned, RejectReason};

use crate::strangers::*;
use crate::support::mesh::{mesh, named, plain};
use crate::support::raw::{self, ADMIT, Admission, HELLO, UPDATE, head, reject, reply};
use crate::support::raw_mesh::{APPLICATION, COMPLETION, RawNode, host};
use crate::support::{Node, ms, rid, s, settle, until};

/// How a raw listener answers, and what the dialling host is told.
struct Answer {
    what: String,
    /// The lane that answers badly; the one before it answers well.
    leg: usize,
    word: Say,
    failure: Failure,
}

enum Say {
    /// Its own admit but for one change.
    Admit(Change),
    Word(Word),
}

/// Lets one node dial raw listeners with all of these answers, beside a healthy one.
fn let_dial(answers: &[Answer]) {
    let mut raws: Vec<RawNode> = (0..answers.len()).map(|at| RawNode::listening(&name(at))).collect();
    for raw in &mut raws {
        raw.admission.revision = 5;
    }
    let (mut neighbour, at) = Node::listens(host("neighbour"));
    let wish = plain("node").peer(at);
    let wish =
        raws.iter().enumerate().fold(wish, |wish, (at, raw)| wish.expected_peer(raw.at(), rid(&name(at))));
    let (mut node, _) = Node::join(wish);
    until(&mut [&mut node, &mut neighbour], "the neighbour", |nodes| nodes[0].ready_peers() == 1);
    for (at, answer) in answers.iter().enumerate() {
        let raw = &mut raws[at];
        for leg in 0..=answer.leg {
            raw.hello(&mut node, leg);
            let mut admission = Admission { lane: leg as u8 + 1, ..raw.admission.clone() };
            let (word, parts) = match &answer.word {
                Say::Word(word) if leg == answer.leg => word.clone(),
                Say::Admit(change) if leg == answer.leg => {
                    change(&mut admission);
                    (head(ADMIT, &admission.bytes()), 0)
                }
                _ => (head(ADMIT, &admission.bytes()), 0),
            };
            raw.send(leg, &word, &vec![&b"x"[..]; parts]);
        }
    }
    let failed = |node: &Node, at: usize| {
        let fits = |event: &Owned| match event {
            Owned::Failed { endpoint, failure, .. } if *endpoint == raws[at].at() => Some(*failure),
            _ => None,
        };
        node.inbox.events.iter().filter_map(fits).collect::<Vec<_>>()
    };
    let begin = Instant::now();
    while (0..answers.len()).any(|at| failed(&node, at).is_empty()) && begin.elapsed() < s(10) {
        node.turn();
        node.engine.wait(Some(ms(1)));
    }
    settle(&mut [&mut node, &mut neighbour]);
    for (at, answer) in answers.iter().enumerate() {
        assert_eq!(failed(&node, at), [answer.failure], "lane {}: {}", answer.leg, answer.what);
    }
    assert!(!node.inbox.events.iter().any(|event| matches!(event, Owned::Lost { .. })));
    // Every lane that was opened is closed, and nobody is remembered.
    until(&mut [&mut node, &mut neighbour], "the lanes' ends", |_| {
        raws.iter_mut().all(|raw| {
            let accepted = raw.lanes.iter().flatten().map(|lane| lane.accepted).sum::<usize>();
            raw.disconnected() == accepted && accepted > 0
        })
    });
    let now = node.engine.snapshot();
    assert_eq!((now.connections.len(), now.unadmitted, now.fenced_open), (1, 0, 0));
    assert_eq!((node.peers(), now.meshes[0].nodes.len()), (vec!["neighbour".to_owned()], 1));
    node.outbox().send((&mesh(), &named("work")), &[b"still here"]).unwrap();
    until(&mut [&mut neighbour, &mut node], "the message", |nodes| {
        nodes[0].inbox.events.iter().any(|event| matches!(event, Owned::Message { .. }))
    });
}

#[test]
fn an_admit_that_is_not_the_wanted_one_is_refused_by_its_reason_on_either_lane() {
    use RejectReason::{
        DescriptorRevisionStale, IdentityMismatch, InvalidDescriptor, LifecycleGenerationStale,
        SecurityIdentityMismatch, TopologyMismatch,
    };
    let says = |leg: usize, what: &str, change: Change, reason: RejectReason| Answer {
        what: what.into(),
        leg,
        word: Say::Admit(change),
        failure: Failure::Unexpected(reason),
    };
    let client_server: Change = |it| {
        (it.topology, it.lane, it.role) = (2, 1, 2);
        it.completion.clear();
    };
    let mut answers = Vec::new();
    for leg in [APPLICATION, COMPLETION] {
        answers.extend([
            says(leg, "another mesh", |it| it.name = "hall".into(), TopologyMismatch),
            says(leg, "ClientServer", client_server, TopologyMismatch),
            says(leg, "the other lane", |it| it.lane = 3 - it.lane, TopologyMismatch),
            says(leg, "the dialler's own RID", |it| it.rid = "node".into(), IdentityMismatch),
            says(leg, "another RID", |it| it.rid = "somebody".into(), IdentityMismatch),
            says(leg, "the neighbour's RID", |it| it.rid = "neighbour".into(), IdentityMismatch),
            says(leg, "another pair", |it| it.pair += 1, InvalidDescriptor),
            says(leg, "no completion endpoint", |it| it.completion.clear(), InvalidDescriptor),
        ]);
    }
    answers.extend([
        says(COMPLETION, "another security", |it| it.security = "mallory".into(), SecurityIdentityMismatch),
        says(COMPLETION, "another generation", |it| it.generation = 2, LifecycleGenerationStale),
        says(COMPLETION, "a lower revision", |it| it.revision = 4, DescriptorRevisionStale),
        says(COMPLETION, "another role", |it| it.role = 2, InvalidDescriptor),
        says(COMPLETION, "another state with the same revision", |it| it.state = 3, InvalidDescriptor),
        says(COMPLETION, "a new membership", |it| it.channels = vec![("a".into(), 1)], InvalidDescriptor),
        says(
            COMPLETION,
            "another endpoint",
            |it| it.endpoint = "tcp://127.0.0.1:9".into(),
            InvalidDescriptor,
        ),
    ]);
    let_dial(&answers);
}

#[test]
fn an_answer_to_a_hello_that_is_no_admit_ends_the_attempt_on_either_lane() {
    let mut answers = Vec::new();
    for leg in [APPLICATION, COMPLETION] {
        let mut answer = |what: String, word: Word, failure: Failure| {
            answers.push(Answer { what, leg, word: Say::Word(word), failure });
        };
        for (what, word) in broken(ADMIT, leg) {
            answer(what, word, Failure::Protocol);
        }
        for (what, word) in application_words() {
            answer(what.into(), word, Failure::Protocol);
        }
        answer("a hello".into(), right(HELLO, leg), Failure::Protocol);
        answer("an update".into(), right(UPDATE, leg), Failure::Protocol);
        answer("a reply".into(), (reply(9, 0), 0), Failure::Protocol);
        answer("command 7".into(), (head(7, &[]), 0), Failure::Protocol);
        answer("an empty record".into(), (Vec::new(), 0), Failure::Protocol);
        for (number, reason) in [
            (2, RejectReason::TopologyMismatch),
            (10, RejectReason::DuplicateConnection),
            (13, RejectReason::NotRequired),
            (14, RejectReason::NotAdmitted),
        ] {
            answer(format!("reject {number}"), (reject(number), 0), Failure::Refused(reason));
        }
    }
    let_dial(&answers);
}

/// The application lane is admitted, and the completion lane's hello has come: what else the listener can say there.
#[test]
fn what_an_application_lane_brings_before_the_pair_is_complete_ends_the_attempt() {
    let mut words: Vec<(&str, Word, Failure)> =
        application_words().into_iter().map(|(what, word)| (what, word, Failure::Protocol)).collect();
    words.push(("a hello", right(HELLO, APPLICATION), Failure::Protocol));
    words.push(("a second admit", right(ADMIT, APPLICATION), Failure::Protocol));
    words.push(("an update", right(UPDATE, APPLICATION), Failure::Protocol));
    words.push(("a reply", (reply(9, 0), 0), Failure::Protocol));
    words.push(("a reject", (reject(14), 0), Failure::Refused(RejectReason::NotAdmitted)));
    for (what, (head, parts), failure) in words {
        let mut raw = RawNode::listening("raw");
        let (mut node, _) = Node::join(plain("node").peer(raw.at()));
        raw.hello(&mut node, APPLICATION);
        raw.send(APPLICATION, &self::head(ADMIT, &raw.body(APPLICATION)), &[]);
        raw.hello(&mut node, COMPLETION);
        raw.send(APPLICATION, &head, &vec![&b"x"[..]; parts]);
        until(&mut [&mut node], what, |nodes| !nodes[0].inbox.events.is_empty());
        let events = node.events();
        let is = |event: &Owned| matches!(event, Owned::Failed { failure: told, .. } if *told == failure);
        assert!(events.len() == 1 && is(&events[0]), "{what}: {events:?}");
        until(&mut [&mut node], "both lanes' ends", |_| raw.disconnected() == 2);
        assert_eq!(node.engine.snapshot().connections.len(), 0);
    }
}

#[test]
fn a_word_that_a_listener_may_not_say_ends_a_pair_in_use_on_both_lanes() {
    let stopped: Change = |it| (it.revision, it.state) = (6, raw::STOPPED);
    let mut words: Vec<(&str, usize, Word)> = vec![
        ("a reply", APPLICATION, (reply(9, 0), 0)),
        ("an update", APPLICATION, right(UPDATE, APPLICATION)),
        ("a stop", APPLICATION, but(UPDATE, APPLICATION, stopped)),
    ];
    words.extend(application_words().into_iter().map(|(what, word)| (what, COMPLETION, word)));
    for leg in [APPLICATION, COMPLETION] {
        words.push(("a hello from a listener", leg, right(HELLO, leg)));
        words.push(("a second admit", leg, right(ADMIT, leg)));
        words.push(("command 21", leg, (head(21, &[0; 8]), 0)));
    }
    for (what, leg, (head, parts)) in words {
        let (mut raw, mut node) = RawNode::ready_listener("raw");
        node.events();
        raw.send(leg, &head, &vec![&b"x"[..]; parts]);
        until(&mut [&mut node], what, |nodes| !nodes[0].inbox.events.is_empty());
        let events = node.events();
        let is = |event: &Owned| matches!(event, Owned::Lost { reason: LostReason::Protocol, .. });
        assert!(events.len() == 1 && is(&events[0]), "{what} on lane {leg}: {events:?}");
        until(&mut [&mut node], "both lanes' ends", |_| raw.disconnected() == 2);
        // A dialler says nothing more: it closes.
        assert_eq!([0, 1].map(|leg| raw.lane(leg).rejected()), [None, None]);
        assert_eq!(node.engine.snapshot().connections.len(), 0);
    }
}

/// A listener that takes the transport and never answers, on either lane, has 20 s of watched time.
#[test]
fn an_answer_that_never_comes_ends_the_attempt_after_20_s_on_either_lane() {
    for silent in [APPLICATION, COMPLETION] {
        let mut raw = RawNode::listening("raw");
        let (mut node, _) = Node::join(plain("node").peer(raw.at()));
        for leg in 0..=silent {
            raw.hello(&mut node, leg);
            if leg < silent {
                raw.send(leg, &head(ADMIT, &raw.body(leg)), &[]);
            }
        }
        for second in 1..=20 {
            assert_eq!(node.events(), [], "after {second} s");
            node.pass(s(1));
        }
        let events = node.events();
        assert!(matches!(&events[..], [Owned::Failed { failure: Failure::TimedOut, .. }]), "{events:?}");
        until(&mut [&mut node], "the ends", |_| raw.disconnected() == silent + 1);
        // The next attempt begins anew, on the application lane.
        node.pass(s(1));
        raw.admit(&mut node);
        assert_eq!(node.peers(), ["raw"]);
    }
}

/// An admit can name any completion endpoint. Where that is not the listener's own the attempt comes to nothing, and
/// whoever is there is not disturbed.
#[test]
fn a_completion_endpoint_that_leads_astray_ends_the_attempt_and_harms_nobody_there() {
    let (mut other, bound) = Node::join(host("other"));
    let bound = bound.unwrap();
    let (mut node, own) = Node::join(host("node"));
    let own = own.unwrap();
    let nobody = RawNode::listening("gone").at().to_string();
    let cases = [
        ("nobody", nobody, Failure::Unreachable),
        // Nobody there knows of such a pair, and an application lane goes by another name than a completion lane.
        (
            "a stranger's completion lane",
            bound.completion.to_string(),
            Failure::Refused(RejectReason::NotAdmitted),
        ),
        ("a stranger's application lane", bound.application.to_string(), Failure::Unreachable),
        ("the dialler's own", own.completion.to_string(), Failure::Refused(RejectReason::IdentityMismatch)),
    ];
    for (what, completion, failure) in cases {
        let mut raw = RawNode::listening("raw");
        let wish = NodeEndpoint { endpoint: raw.at(), rid: None };
        node.outbox().set_endpoints(&mesh(), 0, &[wish]).unwrap();
        raw.hello(&mut node, APPLICATION);
        raw.admission.completion = completion;
        raw.send(APPLICATION, &head(ADMIT, &raw.body(APPLICATION)), &[]);
        until(&mut [&mut node, &mut other], what, |nodes| !nodes[0].inbox.events.is_empty());
        let events = node.events();
        let is = |event: &Owned| matches!(event, Owned::Failed { failure: told, .. } if *told == failure);
        assert!(events.len() == 1 && is(&events[0]), "{what}: {events:?}");
        node.outbox().set_endpoints(&mesh(), 0, &[]).unwrap();
        until(&mut [&mut node, &mut other], "nothing left", |nodes| {
            nodes.iter().all(|node| {
                let now = node.engine.snapshot();
                (now.connections.len(), now.unadmitted, now.fenced_open) == (0, 0, 0)
            })
        });
        assert_eq!(other.events(), []);
    }
}
