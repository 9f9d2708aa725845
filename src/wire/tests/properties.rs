//! What holds for any record and for any bytes.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;
use crate::name::Endpoint;

/// Any text of `bytes` bytes at most that a name could be, multi-byte characters and all.
fn text(least: usize, bytes_max: usize) -> impl Strategy<Value = String> {
    vec(any::<char>().prop_filter("NUL", |&c| c != '\0'), least..64).prop_map(move |chars| {
        let mut text = String::new();
        for c in chars {
            if text.len() + c.len_utf8() <= bytes_max {
                text.push(c);
            }
        }
        text
    })
}

fn any_channel() -> impl Strategy<Value = ChannelName> {
    text(1, 255).prop_map(|name| ChannelName::new(&name).unwrap())
}

fn any_endpoint() -> impl Strategy<Value = Endpoint> {
    prop_oneof![
        (any::<std::net::IpAddr>(), 1..=u16::MAX)
            .prop_filter("wildcard", |(host, _)| !host.to_canonical().is_unspecified())
            .prop_map(|address| format!("tcp://{}", std::net::SocketAddr::from(address))),
        text(1, 103).prop_filter("wildcard", |path| path != "*").prop_map(|path| format!("ipc://{path}")),
    ]
    .prop_map(|text| text.parse().unwrap())
}

fn any_service() -> impl Strategy<Value = Service> {
    prop_oneof![
        (text(1, 255), select(Role::ALL), option::of(any_endpoint())).prop_map(|(mesh, role, completion)| {
            Service::RouteMesh { mesh: MeshName::new(&mesh).unwrap(), role, completion }
        }),
        (any_channel(), any::<u32>()).prop_map(|(channel, limit)| client(channel, limit)),
        (any_channel(), any::<u32>()).prop_map(|(channel, limit)| server(channel, limit)),
    ]
}

fn any_identity() -> impl Strategy<Value = Identity> {
    (any_service(), vec(any::<u8>(), 1..=255), 1..=u64::MAX, text(0, 255), option::of(any_endpoint()))
        .prop_map(|(service, rid, generation, security, endpoint)| Identity {
            service,
            rid: Rid::new(rid).unwrap(),
            generation: Generation::new(generation).unwrap(),
            security: SecurityId::new(&security).unwrap(),
            endpoint,
        })
}

fn any_body() -> impl Strategy<Value = AdmissionBody> {
    let channels = btree_map(any_channel(), (0..=10_000u32).prop_map(|w| Weight::new(w).unwrap()), 0..8);
    let extensions = btree_map(any::<u8>(), vec(any::<u8>(), 0..32).prop_map(Vec::into_boxed_slice), 0..8);
    (any_identity(), select(HostState::ALL), channels, extensions).prop_map(
        |(identity, state, channels, extensions)| {
            // Last to first, so that only the constructor can have put them in order.
            let channels = channels.into_iter().rev().collect();
            let extensions = extensions.into_iter().rev().collect();
            AdmissionBody::new(identity, state, channels, extensions).unwrap()
        },
    )
}

fn any_announce() -> impl Strategy<Value = Announce> {
    select(&[Announce::Hello, Announce::Admit, Announce::Update][..])
}

fn any_outcome() -> impl Strategy<Value = Outcome> {
    (0..=13u8).prop_map(|number| Outcome::from_number(number).unwrap())
}

/// The head of any record, with a count of payload parts that goes with it.
fn any_head() -> impl Strategy<Value = (Vec<u8>, usize)> {
    let numbers = (1..=i64::MAX as u64, 1..=u64::MAX, any::<u32>(), any_outcome(), any_channel());
    let short = (select(Command::ALL), numbers, any::<Index>()).prop_filter_map(
        "an admission",
        |(command, (id, correlation, reason, outcome, channel), parts)| {
            let id = ProbeId::new(id).unwrap();
            let correlation = Correlation::new(correlation).unwrap();
            let channel = Name::from(&channel);
            let record = match command {
                Command::Hello | Command::Admit | Command::Update => return None,
                Command::Reject => Record::Reject(RejectReason::from_number(reason)),
                Command::LivenessProbe => Record::LivenessProbe(id),
                Command::LivenessAck => Record::LivenessAck(id),
                Command::NodeSend => Record::NodeSend,
                Command::NodeRequest => Record::NodeRequest { correlation },
                Command::ChannelSend => Record::ChannelSend { channel },
                Command::ChannelRequest => Record::ChannelRequest { correlation, channel },
                Command::Reply => Record::Reply { correlation, outcome },
            };
            let mut head = Vec::new();
            record.emit(&mut head);
            let (least, most) = record.parts().into_inner();
            let parts = least + parts.index(most - least + 1);
            assert_eq!(Record::parse(&head, parts), Ok(record), "emit then parse is identity");
            Some((head, parts))
        },
    );
    let long = (any_body(), any_announce(), select(Lane::ALL))
        .prop_map(|(body, announce, lane)| (emitted(&body, announce, lane), 0));
    prop_oneof![short, long]
}

/// Whatever parses is what would have been emitted; whatever does not names a byte of the head or its end. Neither
/// allocates.
fn check_any_bytes(head: &[u8], parts: usize) {
    let mut parsed = None;
    let allocated = allocation_counter::measure(|| parsed = Some(Record::parse(head, parts)));
    assert_eq!(allocated.count_total, 0);
    match parsed.unwrap() {
        Ok(record) => {
            let mut again = Vec::new();
            record.emit(&mut again);
            assert_eq!(again, head);
            assert!(record.parts().contains(&parts));
        }
        Err(error) => assert!(error.at <= head.len(), "{error}"),
    }
}

proptest! {
    #[test]
    fn a_record_that_is_emitted_parses_to_itself((head, parts) in any_head()) {
        prop_assert!(Record::parse(&head, parts).is_ok());
        check_any_bytes(&head, parts);
    }

    #[test]
    fn an_admission_says_what_its_body_was_made_of(
        body in any_body(), announce in any_announce(), lane in select(Lane::ALL),
    ) {
        let head = emitted(&body, announce, lane);
        let (kind, admission) = match Record::parse(&head, 0).unwrap() {
            Record::Hello(admission) => (Announce::Hello, admission),
            Record::Admit(admission) => (Announce::Admit, admission),
            Record::Update(admission) => (Announce::Update, admission),
            other => panic!("{other:?}"),
        };
        let Identity { service, rid, generation, security, endpoint } = body.identity();
        prop_assert_eq!(kind, announce);
        prop_assert_eq!(admission.topology(), service.topology());
        prop_assert_eq!(admission.role(), service.role());
        prop_assert_eq!(admission.name(), service.name());
        prop_assert_eq!(admission.lane() == lane, service.topology() == Topology::RouteMesh || lane == Lane::Application);
        prop_assert_eq!(admission.state(), body.state());
        prop_assert_eq!(admission.rid(), rid.as_bytes());
        prop_assert_eq!(admission.generation(), *generation);
        prop_assert_eq!(admission.revision(), body.revision());
        prop_assert_eq!(admission.pair(), PAIR);
        prop_assert_eq!(admission.security(), security.as_str());
        prop_assert_eq!(admission.endpoint(), endpoint.as_ref().map(Endpoint::as_str));
        prop_assert!(admission.channels().eq(body.channels().iter().map(|(name, weight)| (name.into(), *weight))));
    }

    #[test]
    fn a_valid_head_cut_anywhere_is_an_error((head, parts) in any_head(), cut in any::<Index>()) {
        prop_assert!(Record::parse(&head[..cut.index(head.len())], parts).is_err());
    }

    #[test]
    fn any_bytes_parse_to_what_emits_them_or_to_an_error(head in vec(any::<u8>(), 0..512), parts in 0..300usize) {
        check_any_bytes(&head, parts);
    }

    #[test]
    fn any_bytes_behind_a_good_start_do_too(
        command in any::<u8>(), body in vec(prop_oneof![any::<u8>(), 0..3u8], 0..512), parts in 0..2usize,
    ) {
        check_any_bytes(&[&[0x5A, 0x4D, 1, command, 0], &body[..]].concat(), parts);
    }

    #[test]
    fn a_valid_head_that_was_tampered_with_does_too(
        (head, parts) in any_head(), changes in vec((any::<Index>(), any::<u8>(), 0..3u8), 1..6),
    ) {
        let mut head = head;
        for (at, byte, kind) in changes {
            let at = at.index(head.len() + 1);
            match kind {
                0 => head.insert(at, byte),
                1 if at < head.len() => { head.remove(at); }
                _ if at < head.len() => head[at] ^= byte,
                _ => head.truncate(at),
            }
        }
        check_any_bytes(&head, parts);
    }

    /// Each of these four bytes begins a count or a length somewhere.
    #[test]
    fn a_count_however_huge_asks_for_no_memory((head, parts) in any_head(), at in any::<Index>(), huge in select(&[0xFF, 0x7F, 0x80][..])) {
        let mut head = head;
        let at = at.index(head.len());
        let end = head.len().min(at + 4);
        head[at..end].fill(huge);
        check_any_bytes(&head, parts);
    }

    #[test]
    fn an_endpoint_text_is_checked_as_it_is_parsed(
        text in prop_oneof![
            "(tcp|ipc|udp)://[0-9.:*\\[\\]a-f%+]{0,24}",
            "tcp://\\[::(ffff:)?0?(.0.0.0)?(%[0-9])?\\]:[0-9]",
            any_endpoint().prop_map(|endpoint| endpoint.to_string()),
            text(0, 200),
        ],
    ) {
        prop_assert_eq!(Endpoint::check(&text).is_ok(), text.parse::<Endpoint>().is_ok());
    }
}
