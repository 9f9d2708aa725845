//! WIRE.md by hand, independent of the engine's encoder.

pub const HELLO: u8 = 1;
pub const ADMIT: u8 = 2;
pub const PROBE: u8 = 5;
pub const ACK: u8 = 6;
const SEND: u8 = 18;

/// A head: magic, major version, command, no flags, and its body.
pub fn head(command: u8, body: &[u8]) -> Vec<u8> {
    [&[0x5A, 0x4D, 1, command, 0], body].concat()
}

/// What a head says it is; 0 if it says nothing.
pub fn command(head: &[u8]) -> u8 {
    head.get(3).copied().unwrap_or(0)
}

/// The number of a probe or an ACK.
pub fn id(head: &[u8]) -> u64 {
    head.get(5..13).map_or(0, |id| u64::from_be_bytes(id.try_into().unwrap()))
}

pub fn probe(id: u64) -> Vec<u8> {
    head(PROBE, &id.to_be_bytes())
}

/// The ACK of a probe: its bytes with another command.
pub fn ack(probe: &[u8]) -> Vec<u8> {
    head(ACK, &probe[5..])
}

pub fn message(channel: &str) -> Vec<u8> {
    head(SEND, &text8(channel))
}

pub fn hello(channel: &str, rid: &str) -> Vec<u8> {
    // ClientServer, application lane, client, serving; no endpoints, no limit, no memberships, no extensions.
    let mut bytes = admission(HELLO, 1, channel, rid, 1);
    bytes.extend([0; 2 + 2 + 4 + 2 + 4]);
    bytes
}

/// The answer of a server that listens at `endpoint` to a client's hello.
pub fn admit(channel: &str, rid: &str, endpoint: &str, hello: &[u8]) -> Vec<u8> {
    // The attempt's number stands behind two texts, the generation and the revision.
    let after_name = 5 + 4 + 1 + usize::from(hello[9]);
    let at = after_name + 1 + usize::from(hello[after_name]) + 8 + 8;
    let pair = u64::from_be_bytes(hello[at..at + 8].try_into().unwrap());
    let mut bytes = admission(ADMIT, 2, channel, rid, pair);
    bytes.extend((endpoint.len() as u16).to_be_bytes());
    bytes.extend(endpoint.as_bytes());
    bytes.extend([0; 2 + 4]);
    bytes.extend(1_u16.to_be_bytes());
    bytes.extend(text8(channel));
    bytes.extend(100_u16.to_be_bytes());
    bytes.extend([0; 4]);
    bytes
}

/// An admission up to its security identity, which is empty: generation 1, revision 1.
fn admission(command: u8, role: u8, channel: &str, rid: &str, pair: u64) -> Vec<u8> {
    let mut bytes = head(command, &[2, 1, role, 1]);
    bytes.extend(text8(channel));
    bytes.extend(text8(rid));
    for number in [1, 1, pair] {
        bytes.extend(number.to_be_bytes());
    }
    bytes.push(0);
    bytes
}

fn text8(text: &str) -> Vec<u8> {
    [&[text.len() as u8], text.as_bytes()].concat()
}

/// Answers so many clients' hellos and first probes at a bare ROUTER, with as little as they are content with.
pub fn shake_hands(router: &zmq::Socket, peers: usize) {
    let (mut route, mut record) = (zmq::Message::new(), zmq::Message::new());
    let mut ready = 0;
    while ready < peers {
        router.recv(&mut route, 0).unwrap();
        router.recv(&mut record, 0).unwrap();
        let is_probe = command(&record) == PROBE;
        let answer = if is_probe { ack(&record) } else { head(ADMIT, &[]) };
        router.send_multipart([&route[..], &answer[..]], 0).unwrap();
        ready += usize::from(is_probe);
    }
}
