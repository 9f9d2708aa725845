//! A client that is a bare ZeroMQ socket and speaks WIRE.md by hand. It needs nothing else from here: a bench takes it too.

const HELLO: u8 = 1;
const ADMIT: u8 = 2;
const PROBE: u8 = 5;
const ACK: u8 = 6;
const SEND: u8 = 18;

/// A record's head: magic, major version, command, no flags, and its body.
fn head(command: u8, body: &[u8]) -> Vec<u8> {
    [&[0x5A, 0x4D, 1, command, 0], body].concat()
}

fn text8(text: &str) -> Vec<u8> {
    [&[text.len() as u8], text.as_bytes()].concat()
}

fn hello(channel: &str, rid: &str) -> Vec<u8> {
    // ClientServer, application lane, client, serving; then who, in which generation and revision, and which attempt.
    let mut body = vec![2, 1, 1, 1];
    body.extend(text8(channel));
    body.extend(text8(rid));
    for number in [1_u64, 1, 1] {
        body.extend(number.to_be_bytes());
    }
    // No security identity, no endpoints, no limit on records, no memberships, no extensions.
    body.extend([0; 1 + 2 + 2 + 4 + 2 + 4]);
    head(HELLO, &body)
}

/// The head of a message to `channel`.
pub fn message_head(channel: &str) -> Vec<u8> {
    head(SEND, &text8(channel))
}

/// A DEALER with the engine's own options.
pub fn dealer(context: &zmq::Context, endpoint: &str) -> zmq::Socket {
    let socket = context.socket(zmq::DEALER).unwrap();
    socket.set_sndhwm(1_000).unwrap();
    socket.set_rcvhwm(1_000).unwrap();
    socket.set_linger(0).unwrap();
    socket.connect(endpoint).unwrap();
    socket
}

/// Shakes hands, so that the server has a ready client whose first probe and whose first ask are answered. `turn` drives
/// the server.
pub fn shake_hands(socket: &zmq::Socket, channel: &str, rid: &str, mut turn: impl FnMut()) {
    socket.send(hello(channel, rid), 0).unwrap();
    let mut frame = zmq::Message::new();
    let mut acked = false;
    let mut ask_came = false;
    for _ in 0..10_000 {
        turn();
        if socket.poll(zmq::POLLIN, 1).unwrap() == 0 {
            continue;
        }
        socket.recv(&mut frame, 0).unwrap();
        match frame[3] {
            ADMIT => socket.send(head(PROBE, &1_u64.to_be_bytes()), 0).unwrap(),
            ACK => acked = true,
            PROBE => {
                let id = frame[5..].to_vec();
                socket.send(head(ACK, &id), 0).unwrap();
                ask_came = true;
            }
            other => panic!("command {other}: {:?}", &*frame),
        }
        if acked && ask_came {
            // The ACK just sent must be read too.
            for _ in 0..20 {
                turn();
                socket.poll(zmq::POLLIN, 1).unwrap();
            }
            return;
        }
    }
    panic!("not admitted in 10 s");
}

/// Answers what the server asked.
pub fn answer_asks(socket: &zmq::Socket) {
    let mut frame = zmq::Message::new();
    while socket.recv(&mut frame, zmq::DONTWAIT).is_ok() {
        if frame[3] == PROBE {
            let id = frame[5..].to_vec();
            socket.send(head(ACK, &id), 0).unwrap();
        }
    }
}
