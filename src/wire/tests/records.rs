//! Every command: its bytes, its bounds, its payload parts, and the cells of the table.

use super::*;

/// One head of each command with its smallest and largest count of payload parts.
fn heads() -> Vec<(Command, Vec<u8>, usize, usize)> {
    let mut heads = vec![
        (Command::Hello, emitted(&mesh_body(), Announce::Hello, Lane::Application), 0, 0),
        (Command::Admit, emitted(&mesh_body(), Announce::Admit, Lane::Application), 0, 0),
        (Command::Update, emitted(&mesh_body(), Announce::Update, Lane::Completion), 0, 0),
    ];
    for (command, body, least, most) in [
        (Command::Reject, &b"\0\0\0\x0D"[..], 0, 0),
        (Command::LivenessProbe, &[0, 0, 0, 0, 0, 0, 0, 1], 0, 0),
        (Command::LivenessAck, &[0x7F, 255, 255, 255, 255, 255, 255, 255], 0, 0),
        (Command::NodeSend, &[], 1, 255),
        (Command::NodeRequest, &[255; 8], 1, 255),
        (Command::ChannelSend, b"\x01c", 1, 255),
        (Command::ChannelRequest, b"\0\0\0\0\0\0\0\x05\x01c", 1, 255),
        (Command::Reply, b"\0\0\0\0\0\0\0\x05\0", 0, 255),
        (Command::Reply, b"\0\0\0\0\0\0\0\x05\x0D", 0, 0),
    ] {
        heads.push((command, [&[0x5A, 0x4D, 1, command.number(), 0], body].concat(), least, most));
    }
    heads
}

#[test]
fn the_worked_bytes_of_the_page_are_the_bytes() {
    let probe = [0x5A, 0x4D, 1, 5, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let id = ProbeId::new(0x0102_0304_0506_0708).unwrap();
    assert_eq!(Record::parse(&probe, 0), Ok(Record::LivenessProbe(id)));

    let mut out = Vec::new();
    Record::LivenessProbe(id).emit(&mut out);
    assert_eq!(out, probe);
    Record::LivenessAck(id).emit(&mut out);
    assert_eq!(out[..13], probe, "what the buffer held stays");
    assert_eq!(out[13..], [0x5A, 0x4D, 1, 6, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn every_command_takes_exactly_its_payload_parts() {
    for (command, head, least, most) in heads() {
        for parts in [0, 1, 2, 254, 255, 256, usize::MAX] {
            let parsed = Record::parse(&head, parts);
            if (least..=most).contains(&parts) {
                assert_eq!(parsed.unwrap().command(), command);
            } else {
                assert_eq!(parsed, Err(DecodeError { at: 3, fault: Fault::Parts { parts } }), "{command:?}");
            }
        }
    }
}

#[test]
fn a_head_that_ends_early_or_late_is_no_record() {
    for (command, head, least, _) in heads() {
        for end in 0..head.len() {
            let error = fault(&head[..end], least);
            assert!(matches!(error.fault, Fault::Truncated { .. }), "{command:?} up to {end}: {error}");
            assert!(error.at <= end);
        }
        let longer = [&head[..], &[0]].concat();
        assert_eq!(
            fault(&longer, least),
            DecodeError { at: head.len(), fault: Fault::Trailing { bytes: 1 } }
        );
    }
}

#[test]
fn the_first_five_bytes_say_what_is_wrong_and_where() {
    for (head, at, fault) in [
        (&[][..], 0, Fault::Truncated { what: "head" }),
        (&[0x5A], 0, Fault::Truncated { what: "head" }),
        (&[0x5A, 0x4D, 1, 5], 0, Fault::Truncated { what: "head" }),
        (&[0x5B], 0, Fault::Magic),
        (&[0x5A, 0x4E, 1, 5, 0], 0, Fault::Magic),
        (&[0x5A, 0x4D, 2], 2, Fault::Major { major: 2 }),
        (&[0x5A, 0x4D, 0, 99, 99], 2, Fault::Major { major: 0 }),
        (&[0x5A, 0x4D, 1, 16, 0x80], 4, Fault::Flags { flags: 0x80 }),
    ] {
        assert_eq!(super::fault(head, 1), DecodeError { at, fault }, "{head:?}");
    }
}

#[test]
fn a_command_that_is_reserved_or_not_built_is_a_fault() {
    let built: Vec<u8> = Command::ALL.iter().map(|command| command.number()).collect();
    assert_eq!(built, [1, 2, 3, 4, 5, 6, 16, 17, 18, 19, 20]);
    for command in (0..=255).filter(|command| !built.contains(command)) {
        let error = fault(&[0x5A, 0x4D, 1, command, 0], 1);
        assert_eq!(error, DecodeError { at: 3, fault: Fault::Command { command } });
    }
}

#[test]
fn numbers_outside_their_bounds_are_faults() {
    let cases: [(&[u8], usize, &str, u64); 7] = [
        (&[5, 0, 0, 0, 0, 0, 0, 0, 0, 0], 5, "id", 0),
        (&[5, 0, 0x80, 0, 0, 0, 0, 0, 0, 0], 5, "id", 1 << 63),
        (&[6, 0, 0, 0, 0, 0, 0, 0, 0, 0], 5, "id", 0),
        (&[17, 0, 0, 0, 0, 0, 0, 0, 0, 0], 5, "correlation", 0),
        (&[19, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, b'c'], 5, "correlation", 0),
        (&[20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 5, "correlation", 0),
        (&[20, 0, 0, 0, 0, 0, 0, 0, 0, 5, 14], 13, "outcome", 14),
    ];
    for (rest, at, what, value) in cases {
        let head = [&[0x5A, 0x4D, 1], rest].concat();
        assert_eq!(fault(&head, 0), DecodeError { at, fault: Fault::Value { what, value } });
    }
}

#[test]
fn a_channel_is_1_to_255_bytes_of_text_without_nul() {
    let what = "channel";
    let send = |length: u8, name: &[u8]| [&[0x5A, 0x4D, 1, 18, 0, length], name].concat();
    assert_eq!(fault(&send(0, b""), 1), DecodeError { at: 5, fault: Fault::Empty { what } });
    assert_eq!(fault(&send(3, b"a\0b"), 1), DecodeError { at: 7, fault: Fault::Nul { what } });
    assert_eq!(fault(&send(3, b"ab\xFF"), 1), DecodeError { at: 8, fault: Fault::NotUtf8 { what } });
    assert!(Record::parse(&send(255, &[b'x'; 255]), 1).is_ok());
}

/// WIRE.md's table: command, then who may send it on a RouteMesh application lane, a RouteMesh completion lane and a
/// ClientServer lane. `d` is the dialler, `a` the acceptor.
const TABLE: [(Command, &str, &str, &str); 11] = [
    (Command::Hello, "d", "d", "d"),
    (Command::Admit, "a", "a", "a"),
    (Command::Reject, "da", "da", "da"),
    (Command::Update, "", "da", "da"),
    (Command::LivenessProbe, "da", "", "da"),
    (Command::LivenessAck, "da", "", "da"),
    (Command::NodeSend, "da", "", ""),
    (Command::NodeRequest, "da", "", ""),
    (Command::ChannelSend, "da", "", "d"),
    (Command::ChannelRequest, "da", "", "d"),
    (Command::Reply, "", "da", "a"),
];

#[test]
fn the_table_says_who_sends_what_on_which_lane() {
    for (command, head, parts, _) in heads() {
        let record = Record::parse(&head, parts).unwrap();
        let (_, mesh_application, mesh_completion, client_server) =
            TABLE.into_iter().find(|row| row.0 == command).unwrap();
        for (topology, lane, senders) in [
            (Topology::RouteMesh, Lane::Application, mesh_application),
            (Topology::RouteMesh, Lane::Completion, mesh_completion),
            (Topology::ClientServer, Lane::Application, client_server),
            (Topology::ClientServer, Lane::Completion, ""),
        ] {
            for (sender, letter) in [(Sender::Dialler, 'd'), (Sender::Acceptor, 'a')] {
                let expected = if senders.contains(letter) { Allowed::Yes } else { Allowed::No };
                let found = record.allowed(topology, lane, sender);
                assert_eq!(found, expected, "{command:?} on {topology:?} {lane:?} from {sender:?}");
            }
        }
    }
}

#[test]
fn only_an_orderly_close_may_update_on_the_application_lane_of_a_mesh() {
    for &state in HostState::ALL {
        let mut body = mesh_body();
        body.set_state(state);
        let head = emitted(&body, Announce::Update, Lane::Application);
        let update = Record::parse(&head, 0).unwrap();
        let expected = if state == HostState::Stopped { Allowed::BeforeCompletion } else { Allowed::No };
        for sender in [Sender::Dialler, Sender::Acceptor] {
            assert_eq!(update.allowed(Topology::RouteMesh, Lane::Application, sender), expected);
            assert_eq!(update.allowed(Topology::ClientServer, Lane::Application, sender), Allowed::Yes);
        }
    }
}

#[test]
fn an_outcome_is_the_reply_or_one_more_than_the_error_kind() {
    let names: Vec<String> = ErrorKind::ALL.iter().map(ErrorKind::to_string).collect();
    assert_eq!(
        names.join(" "),
        "NotFound AlreadyExists TypeMismatch NotConfigured Rejected Unavailable CapacityExceeded DeadlineExceeded \
         ShuttingDown ProtocolError InvalidOperation DataLost InternalFailure"
    );
    assert_eq!(Outcome::from_number(0), Some(Outcome::Reply));
    for (&kind, number) in ErrorKind::ALL.iter().zip(1..) {
        assert_eq!(Outcome::from_number(number), Some(Outcome::Failed(kind)));
        assert_eq!(Outcome::Failed(kind).number(), number);
    }
    assert_eq!(Outcome::from_number(14), None);
}

#[test]
fn a_reject_reason_keeps_its_number_and_only_not_required_is_final() {
    for (number, name) in [
        (0, "unknown (0)"),
        (1, "protocolVersionUnsupported"),
        (2, "topologyMismatch"),
        (3, "identityMismatch"),
        (4, "securityIdentityMismatch"),
        (5, "channelMismatch"),
        (6, "lifecycleGenerationStale"),
        (7, "descriptorRevisionStale"),
        (8, "capabilityMismatch"),
        (9, "runtimeNotServing"),
        (10, "duplicateConnection"),
        (11, "invalidDescriptor"),
        (12, "resourceLimit"),
        (13, "notRequired"),
        (14, "notAdmitted"),
        (15, "unknown (15)"),
        (u32::MAX, "unknown (4294967295)"),
    ] {
        let reason = RejectReason::from_number(number);
        assert_eq!(reason.number(), number);
        assert_eq!(reason.to_string(), name);
        assert_eq!(reason.may_be_retried(), number != 13);
    }
}

#[test]
fn a_head_that_does_not_parse_has_one_answer_or_none() {
    for (head, answer) in [
        (&[0x5A, 0x4D, 2, 1, 0][..], Some(RejectReason::ProtocolVersionUnsupported)),
        (&[0x5A, 0x4D, 2, 77], Some(RejectReason::ProtocolVersionUnsupported)),
        (&[0x5A, 0x4D, 1, 1, 0, 3], Some(RejectReason::InvalidDescriptor)),
        (&[0x5A, 0x4D, 1, 4, 0, 3], Some(RejectReason::NotAdmitted)),
        (&[0x5A, 0x4D, 1, 77, 0], Some(RejectReason::NotAdmitted)),
        (b"GET / HTTP/1.1", Some(RejectReason::NotAdmitted)),
        (b"abc\x01", Some(RejectReason::NotAdmitted)),
        (b"abc\x03", Some(RejectReason::NotAdmitted)),
        (&[], Some(RejectReason::NotAdmitted)),
        (&[0x5A, 0x4D, 1, 3, 0], None),
        (&[0x5A, 0x4D, 2, 3, 0], None),
    ] {
        assert_eq!(RejectReason::for_malformed(head, &fault(head, 0)), answer, "{head:?}");
    }
}

#[test]
fn probe_ids_run_round_without_a_zero() {
    let last = ProbeId::new(i64::MAX as u64).unwrap();
    assert_eq!(last.next(), ProbeId::FIRST);
    assert_eq!(ProbeId::FIRST.next().get(), 2);
    assert_eq!(ProbeId::new(last.get() + 1), None);
    assert_eq!(Revision::new(u64::MAX).unwrap().next().get(), u64::MAX);
}

#[test]
fn the_reserved_topic_is_a_beacon_or_a_fault_and_any_other_an_application_record() {
    let beacon = Some(&BEACON_PAYLOAD[..]);
    for (topic, frames, second, expected) in [
        (&RESERVED_TOPIC[..], 2, beacon, FanoutRecord::Beacon),
        (&RESERVED_TOPIC, 1, None, FanoutRecord::Malformed),
        (&RESERVED_TOPIC, 3, beacon, FanoutRecord::Malformed),
        (&RESERVED_TOPIC, 2, Some(b"\x5A\x46\x01\x02"), FanoutRecord::Malformed),
        (&RESERVED_TOPIC, 2, Some(b"\x5A\x46\x01"), FanoutRecord::Malformed),
        (&RESERVED_TOPIC, 2, Some(b""), FanoutRecord::Malformed),
        (b"\x01\x5A\x4C\x46\x31\x00", 2, beacon, FanoutRecord::Application),
        (b"\x01\x5A\x4C\x46", 2, beacon, FanoutRecord::Application),
        (b"", 1, None, FanoutRecord::Application),
        (b"prices", 300, Some(b"x"), FanoutRecord::Application),
    ] {
        assert_eq!(classify(topic, frames, second), expected, "{topic:?} in {frames} frames");
    }
    assert_eq!(RESERVED_TOPIC, *b"\x01ZLF1");
    assert_eq!(BEACON_PAYLOAD, *b"ZF\x01\x01");
}
