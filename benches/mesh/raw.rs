//! The same round trips over bare sockets of the same kinds, with the same options and frames as long.

use std::thread;
use std::time::{Duration, Instant};

use zmq::{Context, DONTWAIT, Message, POLLIN, ROUTER, SNDMORE, Socket};

const HWM: i32 = 1_000;
/// As long as the head of a request to a node, and of a reply less the byte that says how it ended.
const HEAD: [u8; 5 + 8] = [9; 13];
const PAYLOAD: [u8; 64] = [7; 64];
const APPLICATION: &[u8] = b"A";
const COMPLETION: &[u8] = b"C";

/// Round trips of so many requests, sorted.
pub fn trips(count: usize) -> Vec<Duration> {
    // Each end in a context of its own, as the engines' sockets are: with an I/O thread of its own.
    let (server, client) = (Context::new(), Context::new());
    let (application, at) = bound(&server, APPLICATION);
    let (completion, back_at) = bound(&server, COMPLETION);
    let (requests, replies) = (dialled(&client, &at), dialled(&client, &back_at));
    greet(&replies, COMPLETION);
    greet(&requests, APPLICATION);
    let serving = thread::spawn(move || {
        serve(&application, &completion, count);
        (application, completion)
    });
    let mut frames: [Message; 3] = std::array::from_fn(|_| Message::new());
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let begin = Instant::now();
        send(&requests, [APPLICATION, &HEAD, &PAYLOAD]);
        receive(&replies, &mut frames);
        times.push(begin.elapsed());
    }
    serving.join().unwrap();
    times.sort_unstable();
    times
}

fn socket(context: &Context) -> Socket {
    let socket = context.socket(ROUTER).unwrap();
    socket.set_sndhwm(HWM).unwrap();
    socket.set_rcvhwm(HWM).unwrap();
    socket.set_router_mandatory(true).unwrap();
    socket
}

fn bound(context: &Context, identity: &[u8]) -> (Socket, String) {
    let socket = socket(context);
    socket.set_identity(identity).unwrap();
    socket.bind("tcp://127.0.0.1:*").unwrap();
    let endpoint = socket.get_last_endpoint().unwrap().unwrap();
    (socket, endpoint)
}

fn dialled(context: &Context, endpoint: &str) -> Socket {
    let socket = socket(context);
    socket.connect(endpoint).unwrap();
    socket
}

/// Sends one record ahead, as soon as the other end is known, so that it knows this one.
fn greet(socket: &Socket, to: &[u8]) {
    let begin = Instant::now();
    while socket.send(to, SNDMORE).is_err() {
        assert!(begin.elapsed() < Duration::from_secs(10), "no handshake");
        thread::sleep(Duration::from_millis(1));
    }
    socket.send(&HEAD[..], SNDMORE).unwrap();
    socket.send(&PAYLOAD[..], 0).unwrap();
}

fn serve(application: &Socket, completion: &Socket, count: usize) {
    let mut back: [Message; 3] = std::array::from_fn(|_| Message::new());
    let mut frames: [Message; 3] = std::array::from_fn(|_| Message::new());
    receive(completion, &mut back);
    receive(application, &mut frames);
    for _ in 0..count {
        receive(application, &mut frames);
        let [_, head, part] = &frames;
        send(completion, [&*back[0], &**head, &**part]);
    }
}

fn send(socket: &Socket, frames: [&[u8]; 3]) {
    let [to, head, part] = frames;
    socket.send(to, SNDMORE).unwrap();
    socket.send(head, SNDMORE).unwrap();
    socket.send(part, 0).unwrap();
}

fn receive(socket: &Socket, frames: &mut [Message; 3]) {
    let [from, head, part] = frames;
    while socket.recv(from, DONTWAIT).is_err() {
        socket.poll(POLLIN, -1).unwrap();
    }
    socket.recv(head, 0).unwrap();
    socket.recv(part, 0).unwrap();
}
