//! The admission body: golden bytes, every bound of every field, what may change, and what cannot be made.

use super::*;
use crate::name::EndpointError;

/// The hello of [`mesh_body`], written out by hand.
const HELLO: &[u8] = b"ZM\x01\x01\x00\
    \x01\x01\x01\x01\
    \x01m\
    \x02\xFF\x00\
    \0\0\0\0\0\0\0\x07\
    \0\0\0\0\0\0\0\x01\
    \0\0\0\0\0\0\0\xA1\
    \x01s\
    \0\x11tcp://127.0.0.1:1\
    \0\x11tcp://127.0.0.1:2\
    \0\0\0\0\
    \0\x02\x01a\0\0\x01b\x27\x10\
    \0\0\0\x0B\x00\0\0\0\0\x09\0\0\0\x01\xEE";

/// Where the fields of [`HELLO`] begin.
const RID_AT: usize = 11;
const GENERATION_AT: usize = 14;
const ENDPOINT_AT: usize = 40;
const COMPLETION_AT: usize = 59;
const MAX_MESSAGE_AT: usize = 78;
const CHANNELS_AT: usize = 82;
const EXTENSIONS_AT: usize = 92;

fn admission(head: &[u8]) -> Admission<'_> {
    match Record::parse(head, 0).unwrap() {
        Record::Hello(admission) | Record::Admit(admission) | Record::Update(admission) => admission,
        other => panic!("{other:?} carries no admission"),
    }
}

/// `head` with the bytes at `at` replaced by as many others.
fn with(head: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut head = head.to_vec();
    head[at..at + bytes.len()].copy_from_slice(bytes);
    head
}

/// `head` with the bytes from `from` to `to` replaced by any others.
fn spliced(head: &[u8], from: usize, to: usize, bytes: &[u8]) -> Vec<u8> {
    [&head[..from], bytes, &head[to..]].concat()
}

#[test]
fn a_full_hello_is_these_bytes() {
    assert_eq!(emitted(&mesh_body(), Announce::Hello, Lane::Application), HELLO);
    assert_eq!(
        emitted(&mesh_body(), Announce::Admit, Lane::Completion),
        with(&with(HELLO, 3, &[2]), 6, &[2])
    );
}

#[test]
fn a_full_hello_says_all_of_this() {
    let hello = admission(HELLO);
    assert_eq!(hello.body(), &HELLO[5..]);
    assert_eq!(Admission::parse(hello.body()), Ok(hello));
    assert_eq!((hello.topology(), hello.lane()), (Topology::RouteMesh, Lane::Application));
    assert_eq!((hello.role(), hello.state()), (Role::Client, HostState::Serving));
    assert_eq!((hello.name().as_bytes(), hello.rid()), (&b"m"[..], &[0xFF, 0][..]));
    assert_eq!((hello.generation().get(), hello.revision().get(), hello.pair()), (7, 1, PAIR));
    assert_eq!(hello.security(), "s");
    assert_eq!(hello.endpoint(), Some("tcp://127.0.0.1:1"));
    assert_eq!(hello.completion(), Some("tcp://127.0.0.1:2"));
    assert_eq!(hello.max_message(), 0);
    let channels: Vec<_> = hello.channels().map(|(name, weight)| (name.as_bytes(), weight.get())).collect();
    assert_eq!(channels, [(&b"a"[..], 0), (&b"b"[..], 10_000)]);
    let extensions: Vec<_> = hello.extensions().collect();
    assert_eq!(extensions, [(0, &[][..]), (9, &[0xEE])]);
}

#[test]
fn a_client_server_admission_has_one_lane_and_one_endpoint() {
    let head = emitted(&client_server_body(client), Announce::Hello, Lane::Completion);
    let hello = admission(&head);
    assert_eq!((hello.topology(), hello.lane()), (Topology::ClientServer, Lane::Application));
    assert_eq!((hello.role(), hello.max_message()), (Role::Client, 4096));
    assert_eq!((hello.endpoint(), hello.completion()), (None, None));
    assert_eq!(hello.channels().count() + hello.extensions().count(), 0);
}

#[test]
fn a_number_that_no_body_can_hold_is_a_fault_at_its_byte() {
    let client = emitted(&client_server_body(client), Announce::Hello, Lane::Application);
    let mesh = HELLO.to_vec();
    for (head, at, bytes, what, value) in [
        (&mesh, 5, &[0][..], "topology", 0),
        (&mesh, 5, &[3], "topology", 3),
        (&mesh, 6, &[0], "lane", 0),
        (&mesh, 6, &[3], "lane", 3),
        (&client, 6, &[2], "lane", 2),
        (&mesh, 7, &[3], "role", 3),
        (&client, 7, &[0], "role", 0),
        (&mesh, 8, &[6], "state", 6),
        (&mesh, GENERATION_AT, &[0; 8], "generation", 0),
        (&mesh, GENERATION_AT + 8, &[0; 8], "revision", 0),
        (&mesh, GENERATION_AT + 16, &[0; 8], "pair", 0),
        (&mesh, MAX_MESSAGE_AT, &[0, 0, 0, 1], "max_message", 1),
        (&mesh, CHANNELS_AT + 8, &[0x27, 0x11], "weight", 10_001),
    ] {
        let error = fault(&with(head, at, bytes), 0);
        assert_eq!(error, DecodeError { at, fault: Fault::Value { what, value } });
    }
}

#[test]
fn a_text_that_no_body_can_hold_is_a_fault_at_its_byte() {
    for (head, at, fault) in [
        (spliced(HELLO, 9, RID_AT, b"\0"), 9, Fault::Empty { what: "name" }),
        (with(HELLO, 10, b"\0"), 10, Fault::Nul { what: "name" }),
        (with(HELLO, 10, b"\xFF"), 10, Fault::NotUtf8 { what: "name" }),
        (spliced(HELLO, RID_AT, GENERATION_AT, b"\0"), RID_AT, Fault::Empty { what: "rid" }),
        (with(HELLO, 39, b"\0"), 39, Fault::Nul { what: "security" }),
        (with(HELLO, CHANNELS_AT + 3, b"\xC3"), CHANNELS_AT + 3, Fault::NotUtf8 { what: "channel" }),
        (spliced(HELLO, CHANNELS_AT + 2, CHANNELS_AT + 4, b"\0"), 84, Fault::Empty { what: "channel" }),
    ] {
        assert_eq!(super::fault(&head, 0), DecodeError { at, fault });
    }
}

#[test]
fn an_endpoint_is_empty_or_can_be_dialled() {
    for (text, error) in [
        (&b"tcp://0.0.0.0:123"[..], EndpointError::Wildcard),
        (b"tcp://127.0.0.1:0", EndpointError::Wildcard),
        (b"tcp://127.0.0.1:*", EndpointError::Wildcard),
        (b"tcp://localhost:1", EndpointError::NotLiteral),
        (b"inproc://12345678", EndpointError::Scheme),
    ] {
        for (what, at) in [("endpoint", ENDPOINT_AT), ("completion", COMPLETION_AT)] {
            let head = with(HELLO, at + 2, text);
            assert_eq!(fault(&head, 0), DecodeError { at: at + 2, fault: Fault::Endpoint { what, error } });
        }
    }
    let silent = spliced(HELLO, ENDPOINT_AT, MAX_MESSAGE_AT, &[0; 4]);
    let hello = admission(&silent);
    assert_eq!((hello.endpoint(), hello.completion()), (None, None));
}

#[test]
fn a_client_server_admission_has_no_completion_endpoint() {
    let head = emitted(&client_server_body(server), Announce::Admit, Lane::Application);
    // Behind the empty completion endpoint come the record limit, no channels and no extensions.
    let at = head.len() - 12;
    let head = spliced(&head, at, at + 2, b"\0\x0Cipc:///tmp/x");
    assert_eq!(fault(&head[..], 0), DecodeError { at, fault: Fault::NotEmpty { what: "completion" } });
}

#[test]
fn channels_and_extensions_ascend_strictly() {
    let order = |what| Fault::Order { what };
    for (head, at, fault) in [
        (with(HELLO, CHANNELS_AT + 3, b"b"), CHANNELS_AT + 6, order("channel")),
        (with(HELLO, CHANNELS_AT + 3, b"c"), CHANNELS_AT + 6, order("channel")),
        (with(HELLO, EXTENSIONS_AT + 4, &[9]), EXTENSIONS_AT + 9, order("extension id")),
        (with(HELLO, EXTENSIONS_AT + 4, &[10]), EXTENSIONS_AT + 9, order("extension id")),
    ] {
        assert_eq!(super::fault(&head, 0), DecodeError { at, fault });
    }
}

#[test]
fn a_length_that_points_past_its_list_is_a_fault() {
    for (at, bytes, fault_at, what) in [
        // The first four bytes behind the channels read as a name without a byte, so the count is one too many.
        (CHANNELS_AT, &[0, 3][..], EXTENSIONS_AT, Fault::Empty { what: "channel" }),
        (EXTENSIONS_AT, &[0xFF; 4], EXTENSIONS_AT + 4, Fault::Truncated { what: "extensions" }),
        (EXTENSIONS_AT + 3, &[4], EXTENSIONS_AT + 5, Fault::Truncated { what: "extension length" }),
        (EXTENSIONS_AT + 3, &[5], EXTENSIONS_AT + 9, Fault::Trailing { bytes: 6 }),
        (EXTENSIONS_AT + 10, &[0xFF; 4], EXTENSIONS_AT + 14, Fault::Truncated { what: "extension" }),
    ] {
        assert_eq!(fault(&with(HELLO, at, bytes), 0), DecodeError { at: fault_at, fault: what });
    }
}

#[test]
fn no_head_is_longer_than_1_mib() {
    let identity = mesh_body().identity().clone();
    // The hello without its two channels of four bytes and its extensions of eleven.
    let bare = HELLO.len() - 8 - 11;
    let spare = HEAD_BYTES_MAX - bare - 5;
    let with_bytes = |bytes: usize| {
        let extensions = vec![(1, vec![0; bytes].into_boxed_slice())];
        AdmissionBody::new(identity.clone(), HostState::Serving, Vec::new(), extensions)
    };
    let largest = with_bytes(spare).unwrap();
    let head = emitted(&largest, Announce::Hello, Lane::Application);
    assert_eq!(head.len(), HEAD_BYTES_MAX);
    assert_eq!(admission(&head).extensions().count(), 1);

    assert_eq!(with_bytes(spare + 1), Err(AdmissionBodyError::TooLong { bytes: HEAD_BYTES_MAX + 1 }));
    let longer = [&head[..], &[0]].concat();
    let bytes = HEAD_BYTES_MAX + 1;
    assert_eq!(fault(&longer, 0), DecodeError { at: HEAD_BYTES_MAX, fault: Fault::HeadTooLong { bytes } });
}

#[test]
fn an_illegal_admission_cannot_be_made() {
    let identity = mesh_body().identity().clone();
    let new = |channels, extensions| {
        AdmissionBody::new(identity.clone(), HostState::Serving, channels, extensions).unwrap_err()
    };
    assert_eq!(
        new(vec![channel("a", 1), channel("b", 1), channel("a", 2)], Vec::new()),
        AdmissionBodyError::DuplicateChannel { channel: ChannelName::new("a").unwrap() }
    );
    let twice = vec![(3, Box::from([])), (3, Box::from([1]))];
    assert_eq!(new(Vec::new(), twice), AdmissionBodyError::DuplicateExtension { id: 3 });
    let many = (0..65_536).map(|n| channel(&n.to_string(), 1)).collect();
    assert_eq!(new(many, Vec::new()), AdmissionBodyError::TooManyChannels { channels: 65_536 });
}

#[test]
fn the_revision_rises_with_every_change_and_only_then() {
    let mut body = mesh_body();
    assert!(!body.set_state(HostState::Serving));
    assert!(body.set_state(HostState::Draining));
    let (a, z) = (channel("a", 0), channel("z", 0));
    assert_eq!(body.set_weight(&a.0, a.1), Some(false));
    assert_eq!(body.set_weight(&a.0, Weight::new(5).unwrap()), Some(true));
    assert_eq!(body.set_weight(&z.0, z.1), None);
    assert_eq!((body.state(), body.revision().get()), (HostState::Draining, 3));
    assert_eq!(body.channels()[0].1.get(), 5);
}

#[test]
fn an_update_may_change_state_weights_and_extensions_only() {
    let hello = admission(HELLO);
    let mut body = mesh_body();
    body.set_state(HostState::Draining);
    body.set_weight(&channel("a", 0).0, Weight::new(9).unwrap());
    let head = emitted(&body, Announce::Update, Lane::Completion);
    assert_eq!(admission(&head).updates(&hello), Ok(AdmissionChange::Newer));

    // Every one of these has a higher revision, so that only the identity can be at fault.
    let newer = with(HELLO, GENERATION_AT + 15, &[2]);
    let no_extensions = spliced(&newer, EXTENSIONS_AT, newer.len(), &[0; 4]);
    assert_eq!(admission(&no_extensions).updates(&hello), Ok(AdmissionChange::Newer));
    for (head, what) in [
        (with(&newer, 7, &[2]), "role"),
        (with(&newer, 10, b"n"), "name"),
        (with(&newer, 12, b"x"), "rid"),
        (with(&newer, GENERATION_AT, &[1]), "generation"),
        (with(&newer, GENERATION_AT + 16, &[1]), "pair"),
        (with(&newer, 39, b"t"), "security"),
        (with(&newer, ENDPOINT_AT + 18, b"9"), "endpoint"),
        (with(&newer, COMPLETION_AT + 18, b"9"), "completion"),
        (with(&newer, CHANNELS_AT + 7, b"c"), "channels"),
        (spliced(&newer, CHANNELS_AT, EXTENSIONS_AT, b"\0\x01\x01a\0\0"), "channels"),
    ] {
        assert_eq!(admission(&head).updates(&hello), Err(UpdateFault::Identity { what }));
    }
    let mut other = client_server_body(server);
    let server_head = emitted(&other, Announce::Hello, Lane::Application);
    assert_eq!(admission(&server_head).updates(&hello), Err(UpdateFault::Identity { what: "topology" }));
    other.set_state(HostState::Stopped);
    let mut stopped = emitted(&other, Announce::Update, Lane::Application);
    assert_eq!(admission(&stopped).updates(&admission(&server_head)), Ok(AdmissionChange::Newer));
    let limit_at = stopped.len() - 10;
    stopped[limit_at] = 1;
    let fault = UpdateFault::Identity { what: "max_message" };
    assert_eq!(admission(&stopped).updates(&admission(&server_head)), Err(fault));
}

#[test]
fn a_revision_is_the_same_bytes_or_a_higher_number() {
    let old = with(HELLO, GENERATION_AT + 15, &[5]);
    let old = admission(&old);
    let cases = [
        (5, HostState::Serving, RevisionOrder::Same, Ok(AdmissionChange::Repeated)),
        (5, HostState::Draining, RevisionOrder::Conflicting, Err(UpdateFault::Conflicting { revision: 5 })),
        (4, HostState::Serving, RevisionOrder::Older, Err(UpdateFault::Older { revision: 4 })),
        (6, HostState::Serving, RevisionOrder::Newer, Ok(AdmissionChange::Newer)),
        (6, HostState::Draining, RevisionOrder::Newer, Ok(AdmissionChange::Newer)),
    ];
    for (revision, state, order, change) in cases {
        // The other lane of the pair carries the same revision and is no conflict.
        for lane in Lane::ALL {
            let head = with(&with(HELLO, GENERATION_AT + 15, &[revision]), 8, &[state.number()]);
            let head = with(&head, 6, &[lane.number()]);
            assert_eq!(admission(&head).revision_order(&old), order);
            assert_eq!(admission(&head).updates(&old), change);
        }
    }
    let next_attempt = with(&with(HELLO, GENERATION_AT + 15, &[5]), GENERATION_AT + 16, &[1]);
    assert_eq!(admission(&next_attempt).revision_order(&old), RevisionOrder::Same);
    for (at, byte) in [(CHANNELS_AT + 5, 1), (EXTENSIONS_AT + 14, 0), (ENDPOINT_AT + 18, b'9')] {
        let other = with(&with(HELLO, GENERATION_AT + 15, &[5]), at, &[byte]);
        assert_eq!(admission(&other).revision_order(&old), RevisionOrder::Conflicting);
    }
}

#[test]
fn an_admission_fits_the_lane_it_came_on_and_the_end_it_came_from() {
    let mesh = admission(HELLO);
    for sender in [Sender::Dialler, Sender::Acceptor] {
        assert!(mesh.fits(Topology::RouteMesh, Lane::Application, sender));
        assert!(!mesh.fits(Topology::RouteMesh, Lane::Completion, sender));
        assert!(!mesh.fits(Topology::ClientServer, Lane::Application, sender));
    }
    for (body, right, wrong) in [
        (client_server_body(client), Sender::Dialler, Sender::Acceptor),
        (client_server_body(server), Sender::Acceptor, Sender::Dialler),
    ] {
        let head = emitted(&body, Announce::Hello, Lane::Application);
        assert!(admission(&head).fits(Topology::ClientServer, Lane::Application, right));
        assert!(!admission(&head).fits(Topology::ClientServer, Lane::Application, wrong));
    }
}
