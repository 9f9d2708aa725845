//! A client that is a bare ZeroMQ socket and speaks WIRE.md by hand, byte for byte, independent of our encoder.

/// A DEALER with the engine's own options, connected and admitted as `name`, its first probe sent and answered.
pub fn admitted(context: &zmq::Context, endpoint: &str, channel: &str, name: &str, mut turn: impl FnMut()) -> zmq::Socket {
    let socket = context.socket(zmq::DEALER).unwrap();
    for set in [zmq::Socket::set_sndhwm, zmq::Socket::set_rcvhwm] {
        set(&socket, 1_000).unwrap();
    }
    socket.set_linger(0).unwrap();
    socket.connect(endpoint).unwrap();
    socket.send(hello(channel, name), 0).unwrap();
    let mut answer = |command: u8| {
        while socket.poll(zmq::POLLIN, 1).unwrap() == 0 {
            turn();
        }
        let head = socket.recv_bytes_bounded();
        assert_eq!(head[3], command, "{head:?}");
    };
    answer(ADMIT);
    socket.send(probe(1), 0).unwrap();
    // The server asks as soon as it is ready; what it asks first is answered last.
    answer(PROBE);
    answer(ACK);
    socket
}
