//! Every wrong word that an admission can hold, on either lane, at every point of the opening and after it: refused with
//! the reason that WIRE.md gives, the pair ended on both lanes, nothing left in any table, and a healthy pair beside it
//! undisturbed. The strangers are raw sockets, dozens at once.

use wakeful::{Config, Endpoint, LostReason, NodeDescriptor, Role, SecurityId};

use crate::strangers::Stage::{Admitted, Joining, Ready, Stranger};
use crate::strangers::*;
use crate::support::mesh::{application, listening, mesh};
use crate::support::raw::{
    self, ADMIT, Admission, HELLO, NODE_SEND, PROBE, UPDATE, ack, channel_request, channel_send, head, probe,
    reject, reply,
};
use crate::support::raw_mesh::{APPLICATION, COMPLETION, RawNode, node_request, node_send, says};
use crate::support::{Node, generation, rid, s};

// ---- The first word on either lane ----

#[test]
fn a_first_word_that_is_no_fitting_hello_is_refused_by_its_reason_on_either_lane() {
    let mut cases = Vec::new();
    for (leg, other, allowed) in [(APPLICATION, 2, None), (COMPLETION, 1, Some(NOT_ADMITTED))] {
        let first = |what: &str, word: Word, told: u32| case(what, Stranger, leg, word, told);
        let (mut major, _) = right(HELLO, leg);
        major[2] = 2;
        cases.push(first("another major version", (major, 0), 1));
        cases.push(first("another mesh", but(HELLO, leg, |it| it.name = "hall".into()), TOPOLOGY));
        let client_server: Change = |it| (it.topology, it.lane, it.role) = (2, 1, 1);
        cases.push(first("ClientServer", but(HELLO, leg, client_server), TOPOLOGY));
        let (mut lane, _) = right(HELLO, leg);
        lane[6] = other;
        cases.push(first("the other lane", (lane, 0), TOPOLOGY));
        cases.push(first("the listener's own RID", but(HELLO, leg, |it| it.rid = "node".into()), IDENTITY));
        // Nobody has an application lane yet.
        cases.extend(allowed.map(|told| first("a completion hello first", right(HELLO, leg), told)));
        for (what, word) in broken(HELLO, leg) {
            cases.push(first(&what, word, INVALID));
        }
        for command in [ADMIT, UPDATE] {
            cases.push(first(&format!("command {command}"), right(command, leg), NOT_ADMITTED));
        }
        for (what, word) in application_words() {
            cases.push(first(what, word, NOT_ADMITTED));
        }
        cases.push(first("a reply", (reply(9, 0), 0), NOT_ADMITTED));
        cases.push(Case { told: None, ..first("a reject", (reject(14), 0), 0) });
        for command in [0, 7, 15, 21, 51, 52, 255] {
            cases.push(first(&format!("command {command}"), (head(command, &[0; 8]), 0), NOT_ADMITTED));
        }
        cases.push(first("an empty record", (Vec::new(), 0), NOT_ADMITTED));
        cases.push(first("other magic", (b"ZN\x01\x01\0".to_vec(), 0), NOT_ADMITTED));
    }
    let_loose(&cases);
}

#[test]
fn a_hello_cut_at_any_byte_is_an_invalid_descriptor_on_either_lane() {
    for leg in [APPLICATION, COMPLETION] {
        let cut = cut(HELLO, leg).into_iter();
        let_loose(&cut.map(|(what, word)| case(what, Stranger, leg, word, INVALID)).collect::<Vec<_>>());
    }
}

// ---- The completion hello ----

#[test]
fn a_completion_hello_that_does_not_fit_its_application_lane_is_refused_by_its_reason() {
    let second = |what: &str, change: Change, told: u32| {
        case(what, Joining, COMPLETION, but(HELLO, COMPLETION, change), told)
    };
    let mut cases = vec![
        second("another pair", |it| it.pair = 77, NOT_ADMITTED),
        second("another RID", |it| it.rid = "stranger-x".into(), NOT_ADMITTED),
        second("the neighbour's RID", |it| it.rid = "neighbour".into(), NOT_ADMITTED),
        second("the listener's own RID", |it| it.rid = "node".into(), IDENTITY),
        second("another mesh", |it| it.name = "hall".into(), TOPOLOGY),
        second("the application lane", |it| it.lane = 1, TOPOLOGY),
        second("ClientServer", |it| (it.topology, it.lane, it.role) = (2, 1, 1), TOPOLOGY),
        second("another security identity", |it| it.security = "mallory".into(), SECURITY),
        second("another generation", |it| it.generation = 2, GENERATION),
        second("a lower revision", |it| it.revision = 4, REVISION),
        second("another role", |it| it.role = 2, INVALID),
        second("another endpoint", |it| it.endpoint = "tcp://127.0.0.1:9".into(), INVALID),
        second("another completion endpoint", |it| it.completion = "tcp://127.0.0.1:9".into(), INVALID),
        second("another state with the same revision", |it| it.state = 3, INVALID),
        second("an extension with the same revision", |it| it.extensions = vec![9, 0, 0, 0, 0], INVALID),
        second("a new membership", |it| (it.revision, it.channels) = (6, vec![("a".into(), 1)]), INVALID),
    ];
    for (what, word) in broken(HELLO, COMPLETION) {
        cases.push(case(what, Joining, COMPLETION, word, INVALID));
    }
    let_loose(&cases);
}

/// Between the two hellos the descriptor may have moved on, as updates may.
#[test]
fn a_completion_hello_of_a_higher_revision_is_admitted_and_counts() {
    let mut scene = Scene::new();
    let mut raw = scene.stranger("stranger", Joining);
    (raw.admission.revision, raw.admission.state) = (6, raw::DRAINING);
    raw.open_completion();
    raw.wait(&mut scene.node, COMPLETION, ADMIT);
    raw.sync(&mut scene.node);
    assert_eq!(scene.node.peers(), ["neighbour", "stranger"]);
    // What the second hello said is the last word: an update of its revision is nothing new, one below it is refused.
    raw.send(COMPLETION, &head(UPDATE, &raw.body(COMPLETION)), &[]);
    raw.sync_completion(&mut scene.node);
    assert_eq!(scene.lost("stranger"), None);
    raw.admission.revision = 5;
    raw.send(COMPLETION, &head(UPDATE, &raw.body(COMPLETION)), &[]);
    scene.until("the end", |scene| scene.lost("stranger") == Some(LostReason::Protocol));
    drop(raw);
    scene.all_gone();
}

/// Whoever comes with a pair that is complete already is one too many, and the pair does not care.
#[test]
fn a_second_completion_lane_is_refused_and_the_pair_stays() {
    for stage in [Admitted, Ready] {
        let mut scene = Scene::new();
        let mut raw = scene.stranger("stranger", stage);
        let mut second = scene.stranger("stranger", Stranger);
        second.open_completion();
        let mut told = None;
        scene.until("the refusal", |_| {
            told = second.lane(COMPLETION).rejected();
            told.is_some()
        });
        assert_eq!(told, Some(DUPLICATE));
        drop(second);
        raw.sync(&mut scene.node);
        raw.sync_completion(&mut scene.node);
        assert_eq!(scene.node.peers(), ["neighbour", "stranger"]);
        scene.neighbour_is_served();
        drop(raw);
        scene.all_gone();
        assert_eq!(scene.lost("stranger"), Some(LostReason::Transport));
    }
}

/// An application lane whose completion lane never comes, or comes wrong, is given up after the patience of 20 s.
#[test]
fn half_a_pair_is_seen_and_given_up_after_20_s() {
    let mut scene = Scene::new();
    let mut alone = scene.stranger("alone", Joining);
    let mut wrong = scene.stranger("wrong", Joining);
    wrong.admission.pair = 77;
    wrong.open_completion();
    let mut told = None;
    scene.until("the refusal", |_| {
        told = wrong.lane(COMPLETION).rejected();
        told.is_some()
    });
    for second in 1..=20 {
        let left = scene.node.engine.snapshot().unadmitted;
        assert_eq!(left, 2, "half a pair is not admitted, after {second} s");
        scene.node.now += s(1);
        scene.neighbour.now += s(1);
        scene.settle();
    }
    for raw in [&mut alone, &mut wrong] {
        assert_eq!(raw.wait(&mut scene.node, APPLICATION, raw::REJECT).reason(), NOT_ADMITTED);
    }
    assert_eq!(scene.node.engine.snapshot().unadmitted, 0);
    scene.neighbour_is_served();
    drop((alone, wrong));
    scene.all_gone();
}

// ---- Between the admits and the first probe ----

#[test]
fn what_comes_before_the_first_probe_and_is_no_hello_ends_the_opening() {
    let mut cases = Vec::new();
    for stage in [Joining, Admitted] {
        for (what, word) in application_words() {
            // The probe is what an admitted pair waits for.
            if stage == Joining || word.0[3] != PROBE {
                cases.push(case(what, stage, APPLICATION, word, NOT_ADMITTED));
            }
        }
        for command in [HELLO, ADMIT, UPDATE] {
            let word = right(command, APPLICATION);
            cases.push(case(format!("command {command}"), stage, APPLICATION, word, NOT_ADMITTED));
        }
        cases.push(case("a reply", stage, APPLICATION, (reply(9, 0), 0), NOT_ADMITTED));
        cases.push(case("command 7", stage, APPLICATION, (head(7, &[]), 0), NOT_ADMITTED));
    }
    // The completion lane of half a pair takes a hello and nothing else, that of a whole one replies and updates.
    for stage in [Joining, Admitted] {
        for (what, word) in application_words() {
            cases.push(case(what, stage, COMPLETION, word, NOT_ADMITTED));
        }
        cases.push(case("an admit", stage, COMPLETION, right(ADMIT, COMPLETION), NOT_ADMITTED));
    }
    cases.push(case("a reply", Joining, COMPLETION, (reply(9, 0), 0), NOT_ADMITTED));
    cases.push(case("an update", Joining, COMPLETION, right(UPDATE, COMPLETION), NOT_ADMITTED));
    cases.push(case("a second hello", Admitted, COMPLETION, right(HELLO, COMPLETION), NOT_ADMITTED));
    let_loose(&cases);
}

// ---- On a pair in use ----

#[test]
fn a_record_on_the_other_lane_or_from_the_other_end_ends_a_pair_in_use() {
    let mut cases = Vec::new();
    for (what, word) in application_words() {
        cases.push(case(what, Ready, COMPLETION, word, NOT_ADMITTED));
    }
    let stopped: Change = |it| (it.revision, it.state) = (6, raw::STOPPED);
    let newer: Change = |it| (it.revision, it.state) = (6, raw::DRAINING);
    for (what, word) in [
        ("a reply", (reply(9, 0), 1)),
        ("a failed reply", (reply(9, 1), 0)),
        ("the same admission as an update", right(UPDATE, APPLICATION)),
        ("an update", but(UPDATE, APPLICATION, newer)),
        ("a stop", but(UPDATE, APPLICATION, stopped)),
    ] {
        cases.push(case(what, Ready, APPLICATION, word, NOT_ADMITTED));
    }
    for leg in [APPLICATION, COMPLETION] {
        cases.push(case("a second hello", Ready, leg, right(HELLO, leg), NOT_ADMITTED));
        cases.push(case("an admit from a dialler", Ready, leg, right(ADMIT, leg), NOT_ADMITTED));
    }
    let_loose(&cases);
}

#[test]
fn an_unknown_a_cut_or_an_endless_record_ends_a_pair_in_use() {
    let mut cases = Vec::new();
    for leg in [APPLICATION, COMPLETION] {
        let mut later = |what: String, word: Word| cases.push(case(what, Ready, leg, word, NOT_ADMITTED));
        for command in [0, 7, 15, 21, 51, 52, 128, 255] {
            later(format!("command {command}"), (head(command, &1_u64.to_be_bytes()), 0));
        }
        later("an empty record".into(), (Vec::new(), 0));
        later("other magic".into(), (b"ZN\x01\x05\0\0\0\0\0\0\0\0\x01".to_vec(), 0));
        later("flags".into(), (b"ZM\x01\x05\x01\0\0\0\0\0\0\0\x01".to_vec(), 0));
        later("a megabyte".into(), (vec![0x5A; 1 << 20], 0));
    }
    let mut words = vec![
        ("a channel send without a part", APPLICATION, (channel_send("work"), 0)),
        ("256 parts", APPLICATION, (node_send(), 256)),
        ("a node send with a body", APPLICATION, (head(NODE_SEND, &[0]), 1)),
        ("correlation 0", APPLICATION, (node_request(0), 1)),
        ("a channel request with correlation 0", APPLICATION, (channel_request(0, "work"), 1)),
        ("a channel without a name", APPLICATION, (channel_send(""), 1)),
        ("probe 0", APPLICATION, (probe(0), 0)),
        ("probe 2^63", APPLICATION, (probe(1 << 63), 0)),
        ("ACK 0", APPLICATION, (ack(0), 0)),
        ("a probe with a part", APPLICATION, (probe(1), 1)),
        ("a reply with correlation 0", COMPLETION, (reply(0, 0), 0)),
        ("a failed reply with a part", COMPLETION, (reply(1, 3), 1)),
        ("outcome 14", COMPLETION, (reply(1, 14), 0)),
        ("a reply with 256 parts", COMPLETION, (reply(1, 0), 256)),
    ];
    let heads = [probe(9), ack(9), node_request(9), channel_send("work"), channel_request(9, "work")];
    let cut = |leg: usize, head: Vec<u8>, parts: usize| {
        (5..head.len()).map(move |length| ("cut", leg, (head[..length].to_vec(), parts)))
    };
    for whole in heads {
        let parts = usize::from(whole[3] >= NODE_SEND);
        words.extend(cut(APPLICATION, whole, parts));
    }
    words.extend(cut(COMPLETION, reply(9, 0), 0));
    for (what, leg, word) in words {
        cases.push(case(format!("{what}: {:02x?}", word.0), Ready, leg, word, NOT_ADMITTED));
    }
    let_loose(&cases);
}

#[test]
fn an_update_may_not_go_back_contradict_itself_or_become_somebody_else() {
    let changes: [(&str, Change); 16] = [
        ("a lower revision", |it| it.revision = 4),
        ("the same revision with another state", |it| it.state = 3),
        ("the same revision with an extension", |it| it.extensions = vec![9, 0, 0, 0, 0]),
        ("another RID", |it| (it.revision, it.rid) = (6, "stranger-x".into())),
        ("the neighbour's RID", |it| (it.revision, it.rid) = (6, "neighbour".into())),
        ("another generation", |it| (it.revision, it.generation) = (6, 2)),
        ("another pair", |it| (it.revision, it.pair) = (6, 77)),
        ("another mesh", |it| (it.revision, it.name) = (6, "hall".into())),
        ("the application lane", |it| (it.revision, it.lane) = (6, 1)),
        ("ClientServer", |it| (it.revision, it.topology, it.lane, it.role) = (6, 2, 1, 1)),
        ("another role", |it| (it.revision, it.role) = (6, 2)),
        ("another security identity", |it| (it.revision, it.security) = (6, "mallory".into())),
        ("an endpoint", |it| (it.revision, it.endpoint) = (6, "tcp://127.0.0.1:9".into())),
        ("a completion endpoint", |it| (it.revision, it.completion) = (6, "tcp://127.0.0.1:9".into())),
        ("a new membership", |it| (it.revision, it.channels) = (6, vec![("a".into(), 1)])),
        ("a new membership of weight 0", |it| (it.revision, it.channels) = (6, vec![("a".into(), 0)])),
    ];
    let mut cases: Vec<Case> = changes
        .iter()
        .map(|(what, change)| case(*what, Ready, COMPLETION, but(UPDATE, COMPLETION, *change), NOT_ADMITTED))
        .collect();
    for (what, word) in broken(UPDATE, COMPLETION).into_iter().chain(cut(UPDATE, COMPLETION)) {
        cases.push(case(what, Ready, COMPLETION, word, NOT_ADMITTED));
    }
    let_loose(&cases);
}

// ---- Whoever comes by a name that is taken, or described ----

/// One application hello, and the reject that comes back.
#[track_caller]
fn refused(scene: &mut Scene, what: &str, admission: Admission) -> u32 {
    let mut raw = RawNode::dialling("", &scene.at());
    raw.admission = admission;
    raw.send(APPLICATION, &head(HELLO, &raw.body(APPLICATION)), &[]);
    let mut told = None;
    scene.until(what, |_| {
        told = raw.lane(APPLICATION).rejected();
        told.is_some()
    });
    told.unwrap()
}

#[test]
fn a_hello_by_a_name_that_is_taken_is_judged_by_what_that_one_said() {
    let mut scene = Scene::new();
    let mut elder = scene.stranger("elder", Ready);
    let same = elder.admission.clone();
    let changes: [(&str, Change, u32); 5] = [
        ("another security identity", |it| it.security = "mallory".into(), SECURITY),
        (
            "another security identity and generation",
            |it| (it.security, it.generation) = ("m".into(), 9),
            SECURITY,
        ),
        ("a lower revision", |it| it.revision = 4, REVISION),
        ("another state with the same revision", |it| it.state = 3, INVALID),
        ("another role with the same revision", |it| it.role = 1, INVALID),
    ];
    for (what, change, reason) in changes {
        let mut admission = same.clone();
        change(&mut admission);
        assert_eq!(refused(&mut scene, what, admission), reason, "{what}");
        elder.sync(&mut scene.node);
    }
    // Who says the same, or comes with another generation, waits for what the elder answers.
    for generation in [1, 9] {
        let mut raw = RawNode::dialling("elder", &scene.at());
        raw.admission = Admission { generation, ..same.clone() };
        elder.poll();
        elder.probes();
        raw.send(APPLICATION, &head(HELLO, &raw.body(APPLICATION)), &[]);
        let asked = elder.wait(&mut scene.node, APPLICATION, PROBE).number();
        assert_eq!(scene.node.engine.snapshot().unadmitted, 1);
        elder.send(APPLICATION, &ack(asked), &[]);
        assert_eq!(raw.wait(&mut scene.node, APPLICATION, raw::REJECT).reason(), DUPLICATE);
        elder.sync(&mut scene.node);
    }
    assert_eq!(scene.node.peers(), ["elder", "neighbour"]);
    assert_eq!(scene.lost("elder"), None);
    drop(elder);
    scene.all_gone();
}

fn described(name: &str, endpoint: Option<Endpoint>) -> NodeDescriptor {
    let (generation, security) = (generation(5), SecurityId::new("alice").unwrap());
    NodeDescriptor { rid: rid(name), generation, security, role: Role::None, serves: Vec::new(), endpoint }
}

#[test]
fn a_hello_that_is_not_the_described_one_is_refused_by_its_reason() {
    let mut scene = Scene::new();
    scene.node.outbox().set_descriptors(&mesh(), &[described("alice", None)]).unwrap();
    let right = Admission { generation: 5, security: "alice".into(), ..says("alice") };
    let changes: [(&str, Change, u32); 5] = [
        ("another security identity", |it| it.security = "mallory".into(), SECURITY),
        ("none", |it| it.security.clear(), SECURITY),
        ("an earlier generation", |it| it.generation = 4, GENERATION),
        ("a later generation", |it| it.generation = 6, GENERATION),
        ("neither", |it| (it.security, it.generation) = ("mallory".into(), 6), SECURITY),
    ];
    for (what, change, reason) in changes {
        let mut admission = right.clone();
        change(&mut admission);
        assert_eq!(refused(&mut scene, what, admission), reason, "{what}");
    }
    let mut raw = RawNode::dialling("alice", &scene.at());
    raw.admission = Admission { pair: 8, ..right };
    raw.open(&mut scene.node);
    assert_eq!(scene.node.peers(), ["alice", "neighbour"]);
    scene.node.outbox().set_descriptors(&mesh(), &[]).unwrap();
    drop(raw);
    scene.all_gone();
}

#[test]
fn a_hello_to_a_node_that_does_not_serve_or_needs_nobody_is_refused_by_its_reason() {
    const NOT_SERVING: u32 = 9;
    const NOT_REQUIRED: u32 = 13;
    let mut scene = Scene::new();
    scene.node.engine.drain(true);
    assert_eq!(refused(&mut scene, "draining", template()), NOT_SERVING);
    scene.node.engine.drain(false);

    let (mut client, bound) = Node::join(listening("client").role(Role::Client));
    let at = application(&bound.unwrap());
    let mut raw = RawNode::dialling("raw", &at);
    raw.admission.role = 1;
    raw.send(APPLICATION, &head(HELLO, &raw.body(APPLICATION)), &[]);
    assert_eq!(raw.wait(&mut client, APPLICATION, raw::REJECT).reason(), NOT_REQUIRED);
    // Another role, or a membership though its weight be 0, makes the difference.
    let changes: [Change; 3] =
        [|it| it.role = 0, |it| it.role = 2, |it| (it.role, it.channels) = (1, vec![("a".into(), 0)])];
    for (at_all, change) in changes.into_iter().enumerate() {
        let mut raw = RawNode::dialling(&name(at_all), &at);
        change(&mut raw.admission);
        raw.open(&mut client);
    }
}

/// A full table says so on whichever lane finds it full, and whoever is in it stays.
#[test]
fn a_hello_for_which_there_is_no_place_is_refused_on_either_lane() {
    const NO_PLACE: u32 = 12;
    // The node itself, the neighbour's two lanes, and one more.
    let mut scene = Scene::with(Config { connections_max: 4, seed: 7, ..Config::default() });
    let mut first = scene.stranger("first", Joining);
    first.open_completion();
    assert_eq!(first.wait(&mut scene.node, COMPLETION, raw::REJECT).reason(), NO_PLACE);
    assert_eq!(refused(&mut scene, "no place", template()), NO_PLACE);
    scene.neighbour_is_served();
    drop(first);
    scene.all_gone();
}
