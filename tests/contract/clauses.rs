//! Every clause of 000 §10 and what becomes of it here: the test that shows it, or why none does yet or ever will. The
//! list and the tests are held against each other both ways.

use std::fs;
use std::path::Path;

use Chapter::{Bidirectional, Fanout, Isolation, Reconnect};
use Shown::{By, Exempt, Waits};

/// A heading of 000 §10.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Chapter {
    Bidirectional,
    Fanout,
    Isolation,
    Reconnect,
}

impl Chapter {
    /// How many lines stand below the heading.
    const fn lines(self) -> u8 {
        match self {
            Bidirectional | Reconnect => 5,
            Fanout => 4,
            Isolation => 3,
        }
    }

    /// The modules that its tests stand in.
    const fn modules(self) -> &'static [&'static str] {
        match self {
            Bidirectional => &["bidirectional", "mesh"],
            Fanout => &["fairness", "fanout", "publishing", "subscribing"],
            Isolation => &["fanout", "isolation", "mesh", "subscribing"],
            Reconnect => &["mesh_reconnect", "mesh_termination", "reconnect", "termination"],
        }
    }
}

/// What becomes of a clause.
#[derive(Debug, Clone, Copy)]
enum Shown {
    /// This test shows it.
    By(&'static str),
    /// It waits for what it is about.
    #[expect(dead_code, reason = "the reason is for the reader")]
    Waits(&'static str),
    /// DESIGN §5, "Not built here".
    #[expect(dead_code, reason = "the reason is for the reader")]
    Exempt(&'static str),
}

/// One clause: its chapter, the line below the heading, what it says, what becomes of it.
type Clause = (Chapter, u8, &'static str, Shown);

const RESOLVER: Shown = Waits("there is no resolver yet");
const STORE: Shown = Exempt("the Store is the host's: the engine polls none");
const RUNTIMES: Shown = Exempt("other language runtimes are not built here");

const CLAUSES: &[Clause] = &[
    (
        Bidirectional,
        1,
        "a probe every 5 s without traffic",
        By("a_probe_goes_out_every_5_s_without_any_traffic"),
    ),
    (Bidirectional, 1, "to the turn", By("a_probe_goes_out_in_the_very_turn_of_its_grid_point")),
    (
        Bidirectional,
        1,
        "one pending id, only it is re-sent",
        By("only_the_pending_id_is_sent_again_before_an_ack"),
    ),
    (Bidirectional, 1, "fixed times that nobody can set (000 §2)", By("no_setting_moves_the_fixed_times")),
    (Bidirectional, 1, "likewise on RouteMesh", By("a_pair_is_asked_every_5_s_without_any_traffic")),
    (
        Bidirectional,
        1,
        "one pending id on RouteMesh",
        By("only_the_pending_id_of_a_pair_is_sent_again_before_an_ack"),
    ),
    (Bidirectional, 2, "the first matching ACK refreshes", By("the_first_matching_ack_moves_the_deadline")),
    (Bidirectional, 2, "a duplicate does not", By("a_duplicate_ack_changes_nothing")),
    (Bidirectional, 2, "a previous id does not", By("an_ack_with_a_previous_id_changes_nothing")),
    (Bidirectional, 2, "another connection's does not", By("an_ack_from_another_connection_changes_nothing")),
    (Bidirectional, 2, "an id never sent does not", By("an_ack_with_an_id_never_sent_changes_nothing")),
    (Bidirectional, 2, "likewise on RouteMesh", By("the_first_matching_ack_moves_a_pairs_deadline")),
    (Bidirectional, 2, "no other on RouteMesh", By("no_other_ack_moves_a_pairs_deadline")),
    (Bidirectional, 2, "nor another pair's", By("an_ack_from_another_pair_changes_nothing")),
    (
        Bidirectional,
        3,
        "half-open is not ready within 15 s",
        By("a_half_open_connection_is_lost_at_exactly_15_s"),
    ),
    (Bidirectional, 3, "and is closed (000 §3)", By("a_half_open_connection_is_closed_when_it_is_lost")),
    (Bidirectional, 3, "an orderly close acts at once", By("an_orderly_close_takes_effect_at_once")),
    (Bidirectional, 3, "a transport loss acts at once", By("a_transport_loss_takes_effect_at_once")),
    (
        Bidirectional,
        3,
        "each is recorded by its own reason (000 §9)",
        By("the_snapshot_tells_the_ends_apart"),
    ),
    (Bidirectional, 3, "calls end without a ready peer", By("a_call_without_a_ready_peer_ends_at_once")),
    (Bidirectional, 3, "half-open on RouteMesh", By("a_half_open_pair_is_lost_at_exactly_15_s")),
    (
        Bidirectional,
        3,
        "and closed on both lanes (000 §3)",
        By("a_half_open_pair_is_closed_on_both_lanes_when_it_is_lost"),
    ),
    (Bidirectional, 3, "an orderly close of a pair", By("an_orderly_close_of_a_pair_takes_effect_at_once")),
    (
        Bidirectional,
        3,
        "in the opening too",
        By("an_orderly_close_before_a_pair_is_ready_takes_effect_at_once"),
    ),
    (
        Bidirectional,
        3,
        "what came before it is delivered (000 §6)",
        By("what_a_node_sent_before_its_stop_is_delivered_first"),
    ),
    (Bidirectional, 3, "the loss of either lane", By("the_loss_of_either_lane_ends_the_pair_at_once")),
    (Bidirectional, 3, "each by its own reason (000 §9)", By("the_snapshot_tells_the_ends_of_a_pair_apart")),
    (
        Bidirectional,
        3,
        "calls to a node end without it",
        By("a_call_to_a_node_that_is_not_ready_ends_at_once"),
    ),
    (Bidirectional, 4, "probes and ACKs reach no handler", By("probes_and_acks_reach_no_handler")),
    (
        Bidirectional,
        4,
        "application records extend nothing",
        By("application_records_do_not_extend_the_deadline"),
    ),
    (
        Bidirectional,
        4,
        "nor do other service records",
        By("other_service_records_do_not_extend_the_deadline"),
    ),
    (Bidirectional, 4, "none of a mesh's either", By("probes_and_acks_of_a_mesh_reach_no_handler")),
    (
        Bidirectional,
        4,
        "nothing else extends a pair's deadline",
        By("nothing_but_an_ack_extends_the_deadline_of_a_pair"),
    ),
    (Bidirectional, 5, "one DEALER-ROUTER lane", By("one_physical_connection_carries_everything")),
    (Bidirectional, 5, "probes are its records", By("probes_and_acks_are_application_records_of_that_lane")),
    (
        Bidirectional,
        5,
        "two ROUTER-ROUTER lanes on RouteMesh",
        By("a_pair_is_two_physical_lanes_of_which_each_carries_its_own"),
    ),
    (
        Bidirectional,
        5,
        "probes are the application lane's records",
        By("probes_and_acks_of_a_mesh_are_records_of_its_application_lane"),
    ),
    (
        Bidirectional,
        5,
        "and not the completion lane's",
        By("a_probe_or_ack_by_the_completion_lane_is_a_protocol_error"),
    ),
    (Fanout, 1, "whose end is no other's", By("each_publisher_has_a_socket_of_its_own")),
    (Fanout, 1, "ready with a first record, not before", By("a_publisher_is_ready_with_its_first_record")),
    (Fanout, 1, "a dedicated SUB socket per publisher", By("each_publisher_has_a_sub_socket_of_its_own")),
    (
        Fanout,
        1,
        "by descriptor or by endpoint, never mixed (000 §4)",
        By("fixed_endpoints_and_descriptors_do_not_mix"),
    ),
    (
        Fanout,
        1,
        "a new snapshot of descriptors spares the others",
        By("replaced_descriptors_leave_the_others_alone"),
    ),
    (
        Fanout,
        1,
        "a replaced one's end is observed first (000 §5)",
        By("a_new_socket_waits_for_the_physical_close_of_the_old_one"),
    ),
    (Fanout, 1, "another generation is another run (000 §6)", By("another_generation_is_another_publisher")),
    (
        Fanout,
        1,
        "filters for all of them, at any time",
        By("filters_come_and_go_for_present_and_future_publishers"),
    ),
    (
        Fanout,
        1,
        "ready only after a first record or beacon",
        By("the_first_record_or_beacon_makes_a_publisher_ready"),
    ),
    (Fanout, 1, "not at the connect (000 §5)", By("a_connect_alone_makes_no_publisher_ready")),
    (
        Fanout,
        1,
        "without one, another socket",
        By("a_publisher_without_a_first_record_is_dialled_anew_after_20_s"),
    ),
    (
        Fanout,
        1,
        "from then on records come whole and in order",
        By("records_arrive_whole_and_in_order_after_ready"),
    ),
    (Fanout, 1, "each valid record counts (000 §4)", By("each_valid_record_moves_the_deadline")),
    (Fanout, 1, "a disconnect acts at once (000 §5)", By("a_publisher_that_goes_is_lost_at_once")),
    (
        Fanout,
        1,
        "a new socket, ready on its own first record (000 §6)",
        By("a_lost_publisher_is_ready_again_only_on_the_first_record_of_a_new_socket"),
    ),
    (
        Fanout,
        2,
        "the beacon's exact topic, payload and two frames",
        By("a_beacon_of_exactly_two_frames_goes_out_every_5_s_beside_traffic"),
    ),
    (Fanout, 2, "of fixed bytes", By("the_beacon_has_two_frames_of_fixed_bytes_every_5_s")),
    (Fanout, 2, "without traffic too (000 §4)", By("a_beacon_goes_out_every_5_s_without_any_traffic")),
    (Fanout, 2, "on one grid (000 §2)", By("beacons_that_were_slept_through_are_not_caught_up")),
    (
        Fanout,
        2,
        "a full subscriber drops, and blocks nobody (000 §4)",
        By("a_full_or_absent_subscriber_never_blocks_a_publish"),
    ),
    (
        Fanout,
        2,
        "no ACK, dispatch, trace or metric of it",
        By("a_beacon_reaches_no_handler_and_no_metric_and_is_not_answered"),
    ),
    (Fanout, 2, "nor counts it", By("a_beacon_is_neither_answered_nor_delivered_nor_counted")),
    (Fanout, 2, "nothing is taken from subscribers", By("a_publisher_takes_nothing_from_its_subscribers")),
    (
        Fanout,
        3,
        "its topic is a call-argument error (000 §4)",
        By("the_reserved_topic_is_a_call_argument_error"),
    ),
    (Fanout, 3, "nobody publishes it (000 §4)", By("the_reserved_topic_is_nobodys_to_publish")),
    (Fanout, 3, "any other topic is an application's (000 §4)", By("every_other_topic_can_be_published")),
    (Fanout, 3, "any number of parts up to the bound", By("a_record_carries_0_to_254_parts")),
    (
        Fanout,
        3,
        "a format error on the reserved topic ends only that publisher",
        By("a_malformed_record_ends_only_its_publisher_at_once"),
    ),
    (Fanout, 3, "and no other", By("a_malformed_beacon_ends_only_that_publisher")),
    (Fanout, 3, "and is no receipt (000 §4)", By("a_malformed_record_makes_no_publisher_ready")),
    (
        Fanout,
        3,
        "a longer topic is no format error (000 §4)",
        By("a_topic_that_only_begins_with_the_reserved_bytes_is_an_applications"),
    ),
    (Fanout, 4, "others progress beside a flooder", By("a_flooder_leaves_every_turn_room_for_the_others")),
    (Fanout, 4, "their liveness too", By("a_flood_costs_nobody_else_its_check_signal")),
    (
        Fanout,
        4,
        "a rotation starts after the lane that stopped",
        By("each_rotation_starts_after_the_one_that_stopped"),
    ),
    (Fanout, 4, "over publishers too", By("each_rotation_over_publishers_starts_after_the_one_that_stopped")),
    (Isolation, 1, "a publisher's silence spares others", By("one_publishers_silence_is_nobody_elses")),
    (Isolation, 1, "a publisher's time-out", By("a_silent_publisher_alone_is_lost_after_15_s")),
    (
        Isolation,
        1,
        "each end of one by its own reason (000 §9)",
        By("the_snapshot_tells_each_publishers_state_and_how_it_last_ended"),
    ),
    (
        Isolation,
        1,
        "a peer's failure spares others",
        By("one_peers_failure_leaves_the_other_connections_alone"),
    ),
    (Isolation, 1, "and the host", By("one_peers_failure_does_not_change_the_hosts_state")),
    (Isolation, 1, "others are served (000 §5)", By("the_others_are_served_while_one_fails")),
    (
        Isolation,
        1,
        "calls end as NotFound or Unavailable (000 §5)",
        By("without_a_ready_peer_a_call_says_which_kind_of_nobody_there_is"),
    ),
    (
        Isolation,
        1,
        "a node's failure spares others",
        By("one_nodes_failure_leaves_the_other_pairs_and_the_host_alone"),
    ),
    (
        Isolation,
        1,
        "calls of a mesh likewise (000 §5)",
        By("a_channel_call_of_a_mesh_says_which_kind_of_nobody_there_is"),
    ),
    (Isolation, 2, "checking goes on while polling the Store fails", STORE),
    (Isolation, 2, "a ready transport renews no lease", RESOLVER),
    (Isolation, 3, "liveness releases no authority", RESOLVER),
    (Reconnect, 1, "the handshake is redone", By("a_reconnect_redoes_the_handshake_on_a_new_connection")),
    (Reconnect, 1, "identity is verified anew", By("a_reconnect_redoes_the_verification_of_identity")),
    (Reconnect, 1, "by a server too", By("a_server_verifies_a_client_that_comes_back")),
    (Reconnect, 1, "ready is not reused", By("the_ready_state_is_not_taken_over")),
    (Reconnect, 1, "nor the pending probe", By("the_pending_probe_is_not_taken_over")),
    (Reconnect, 1, "nor completions", By("a_pending_request_is_not_taken_over")),
    (Reconnect, 1, "nor reply routes", By("a_reply_token_is_not_taken_over")),
    (
        Reconnect,
        1,
        "late frames change nothing",
        By("a_connection_that_has_ended_cannot_speak_for_its_successor"),
    ),
    (
        Reconnect,
        1,
        "a newer connection waits (000 §5)",
        By("a_newer_connection_waits_for_the_end_of_the_older_one"),
    ),
    (Reconnect, 1, "and yields to an older one that lives", By("an_older_connection_that_answers_stays")),
    (
        Reconnect,
        1,
        "both handshakes of a pair are redone",
        By("a_lost_pair_redoes_both_handshakes_on_new_lanes"),
    ),
    (
        Reconnect,
        1,
        "a node's identity is verified anew",
        By("a_reconnect_of_a_pair_redoes_the_verification_of_identity"),
    ),
    (Reconnect, 1, "by the listener too", By("a_node_that_comes_back_is_verified_by_the_listener")),
    (Reconnect, 1, "a pair's ready is not reused", By("the_ready_state_of_a_pair_is_not_taken_over")),
    (Reconnect, 1, "nor its pending probe", By("the_pending_probe_of_a_pair_is_not_taken_over")),
    (Reconnect, 1, "nor its completions", By("a_pending_request_of_a_pair_is_not_taken_over")),
    (Reconnect, 1, "nor its reply routes", By("a_reply_token_of_a_pair_is_not_taken_over")),
    (
        Reconnect,
        1,
        "its late frames change nothing",
        By("a_pair_that_has_ended_cannot_speak_for_its_successor"),
    ),
    (Reconnect, 1, "a newer pair waits (000 §5)", By("a_newer_pair_waits_for_the_end_of_the_older_one")),
    (Reconnect, 1, "and yields to one that lives", By("an_older_pair_that_answers_stays")),
    (Reconnect, 1, "session bindings", Exempt("STREAM sessions are not built here")),
    (
        Reconnect,
        2,
        "discovery leaves out a pair of Object Clients",
        By("descriptors_leave_out_a_pair_of_object_clients"),
    ),
    (
        Reconnect,
        2,
        "a manual pair ends as NotRequired, unasked and not retried",
        By("a_manual_pair_of_object_clients_ends_as_not_required_before_ready"),
    ),
    (
        Reconnect,
        2,
        "but for another wish (000 §3)",
        By("a_pair_that_was_not_required_is_tried_again_for_another_wish"),
    ),
    (Reconnect, 3, "each request ends once", By("each_request_ends_exactly_once_whatever_races")),
    (Reconnect, 3, "nothing is sent again", By("nothing_is_sent_again_on_the_next_connection")),
    (Reconnect, 3, "to nobody else either", By("nothing_is_sent_again_to_another_server")),
    (
        Reconnect,
        3,
        "each request on a mesh too",
        By("each_request_on_a_mesh_ends_exactly_once_whatever_races"),
    ),
    (Reconnect, 3, "nothing is sent again by the next pair", By("nothing_is_sent_again_on_the_next_pair")),
    (Reconnect, 3, "nor to another member", By("nothing_is_sent_again_to_another_member")),
    (Reconnect, 4, "a client leaves no timer", By("a_client_that_stops_leaves_no_timer_behind")),
    (Reconnect, 4, "a server leaves none", By("a_server_that_stops_leaves_no_timer_behind")),
    (Reconnect, 4, "callbacks end first (000 §7)", By("pending_callbacks_end_before_their_connections")),
    (Reconnect, 4, "peers are told", By("a_host_that_stops_tells_its_peers_and_closes")),
    (
        Reconnect,
        4,
        "accepted work goes on (000 §7)",
        By("a_draining_host_keeps_its_connections_for_accepted_work"),
    ),
    (Reconnect, 4, "a node leaves none", By("a_node_that_stops_leaves_no_timer_behind")),
    (Reconnect, 4, "its peers are told", By("a_node_that_stops_tells_its_peers_and_closes_both_lanes")),
    (
        Reconnect,
        4,
        "in the opening too",
        By("a_node_that_stops_before_its_pair_is_complete_says_so_on_the_application_lane"),
    ),
    (
        Reconnect,
        4,
        "its callbacks end first (000 §7)",
        By("pending_callbacks_of_a_node_end_before_its_pairs"),
    ),
    (
        Reconnect,
        4,
        "its accepted work goes on (000 §7)",
        By("a_draining_node_keeps_its_pairs_for_accepted_work"),
    ),
    (Reconnect, 4, "after Relocate", Waits("there is no verb to relocate yet")),
    (Reconnect, 5, "other runtimes show the same", RUNTIMES),
];

/// One test of a chapter, as its source shows it.
struct Test {
    module: String,
    name: String,
    /// Whether a paraphrase of its clause stands above it.
    is_documented: bool,
}

/// Every test below `tests/contract`, but those of this file.
fn tests() -> Vec<Test> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/contract");
    let mut tests = Vec::new();
    for entry in fs::read_dir(folder).expect("the contract can be listed") {
        let path = entry.expect("the contract can be listed").path();
        let module = path.file_stem().expect("a source has a name").to_string_lossy().into_owned();
        if module != "clauses" {
            tests_of(&module, &fs::read_to_string(&path).expect("a source can be read"), &mut tests);
        }
    }
    tests
}

fn tests_of(module: &str, text: &str, tests: &mut Vec<Test>) {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    for (at, _) in lines.iter().enumerate().filter(|(_, line)| **line == "#[test]") {
        let name = lines[at..].iter().find_map(|line| line.strip_prefix("fn ")?.split('(').next());
        let name = name.expect("a test is a function").to_owned();
        let is_documented = at > 0 && lines[at - 1].starts_with("/// ");
        tests.push(Test { module: module.to_owned(), name, is_documented });
    }
}

/// Every line of 000 §10 has its clauses.
#[test]
fn every_line_of_the_contract_is_listed() {
    for chapter in [Bidirectional, Fanout, Isolation, Reconnect] {
        let mut lines: Vec<u8> =
            CLAUSES.iter().filter(|(of, ..)| *of == chapter).map(|(_, line, ..)| *line).collect();
        assert!(lines.is_sorted(), "{chapter:?} stands in the order of its lines");
        lines.dedup();
        assert_eq!(lines, (1..=chapter.lines()).collect::<Vec<u8>>(), "{chapter:?}");
    }
}

/// A clause that names a test names one that exists, in its chapter.
#[test]
fn every_test_that_a_clause_names_exists() {
    let tests = tests();
    for (chapter, line, clause, shown) in CLAUSES {
        let By(name) = shown else { continue };
        let exists = |test: &Test| test.name == *name && chapter.modules().contains(&test.module.as_str());
        assert!(tests.iter().any(exists), "{chapter:?} {line}, {clause}: there is no test {name}");
    }
}

/// A test of the contract carries a clause, in the list and in words above it.
#[test]
fn every_test_of_the_contract_carries_a_clause() {
    for Test { module, name, is_documented } in tests() {
        let listed = CLAUSES.iter().filter(|(.., shown)| matches!(shown, By(by) if *by == name)).count();
        assert_eq!(listed, 1, "{module}::{name} carries {listed} clauses");
        assert!(is_documented, "{module}::{name} does not say its clause");
    }
}
