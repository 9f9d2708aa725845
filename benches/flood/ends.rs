//! The two ends that are flooded: the engine, and what a user would write without it.

use std::time::{Duration, Instant};

use wakeful::{Client, Config, Endpoint, Engine, Event, Host, Outbox, Server, Subscriber};

use super::peers::{MEASURE, SETUP, STOP, Stage};
use super::quiet::QUIET;
use super::support::histogram::Histogram;
use super::support::{CHANNEL, take_the_processor, wire};

/// What a host does with the messages that come: counts them by their sender, and takes its time for each.
pub struct Work<'a> {
    pub stage: &'a Stage,
    pub each: Duration,
    /// By the first byte of the payload.
    pub served: [u64; 256],
    /// Of the quiet peers' messages, from the moment when they were to be sent.
    pub delays: Histogram,
    /// How long each turn took.
    pub turns: Histogram,
    is_flooded: bool,
    /// Ends of connections while it lasted: of quiet peers, and of flooders.
    pub lost: [Vec<String>; 2],
}

impl<'a> Work<'a> {
    pub fn new(stage: &'a Stage, each: Duration) -> Self {
        let (delays, turns, lost) = (Histogram::default(), Histogram::default(), [Vec::new(), Vec::new()]);
        Self { stage, each, served: [0; 256], delays, turns, is_flooded: false, lost }
    }

    fn take(&mut self, payload: &[u8]) {
        if self.stage.is(MEASURE) {
            self.served[usize::from(payload[0])] += 1;
            if payload[0] >= QUIET {
                let meant = u64::from_be_bytes(payload[1..9].try_into().unwrap());
                self.delays.add(Duration::from_nanos(self.stage.now() - meant));
            }
        }
        if !self.each.is_zero() {
            let begin = Instant::now();
            while begin.elapsed() < self.each {
                std::hint::spin_loop();
            }
        }
    }

    fn turned(&mut self, begin: Instant) {
        if self.stage.is(MEASURE) || self.stage.is(STOP) {
            self.turns.add(begin.elapsed());
        }
    }

    /// Whether it goes on; all is connected when the flood begins.
    fn goes_on(&mut self) -> bool {
        if !self.is_flooded && !self.stage.is(SETUP) {
            self.is_flooded = true;
            take_the_processor();
        }
        !self.stage.is(STOP)
    }

    fn lost(&mut self, name: &str, what: String) {
        if !self.stage.is(STOP) {
            self.lost[usize::from(name.contains("flood"))].push(what);
        }
    }
}

impl Host for Work<'_> {
    fn on_event(&mut self, event: Event<'_>, _: &mut Outbox<'_>) {
        match event {
            Event::Message { parts, .. } | Event::Published { parts, .. } => self.take(parts.get(0).unwrap()),
            Event::Lost { peer, reason } => {
                self.lost(&peer.rid().to_string(), format!("{} {reason:?}", peer.rid()));
            }
            // Which publisher it was does not matter: none may be lost.
            Event::PublisherLost { reason, .. } => self.lost("publisher", format!("publisher {reason:?}")),
            _ => {}
        }
    }
}

/// An engine through one ROUTER, and where it listens.
pub fn engine_server(config: Config) -> (Engine, String) {
    let mut engine = Engine::new(config).unwrap();
    let server = Server::new(channel(CHANNEL), rid("host"), "tcp://127.0.0.1:0".parse().unwrap());
    let bound = engine.serve(server).unwrap();
    (engine, bound.to_string())
}

/// An engine with a lane for each peer.
pub fn engine_dialler(config: Config, publishers: &[String], servers: &[String]) -> Engine {
    let endpoint = |text: &String| -> Endpoint { text.parse().unwrap() };
    let mut engine = Engine::new(config).unwrap();
    let mut subscriber = Subscriber::new(channel("flood")).filter(b"");
    for publisher in publishers {
        subscriber = subscriber.publisher(endpoint(publisher));
    }
    engine.subscribe(subscriber).unwrap();
    let mut client = Client::new(channel(CHANNEL), rid("host"));
    for server in servers {
        client = client.server(endpoint(server));
    }
    if !servers.is_empty() {
        engine.connect(client).unwrap();
    }
    engine
}

fn rid(name: &str) -> wakeful::Rid {
    wakeful::Rid::new(name).unwrap()
}

fn channel(name: &str) -> wakeful::ChannelName {
    wakeful::ChannelName::new(name).unwrap()
}

/// The host's loop around the engine.
pub fn turn(engine: &mut Engine, work: &mut Work<'_>) {
    while work.goes_on() {
        let begin = Instant::now();
        let report = engine.turn(work);
        work.turned(begin);
        if !report.work_left {
            engine.wait(Some(Duration::from_millis(10)));
        }
    }
}

/// The same sockets without the engine, in a loop that drains each of them before it looks at the next.
pub struct Greedy {
    _context: zmq::Context,
    sockets: Vec<zmq::Socket>,
    frames: [zmq::Message; 3],
}

impl Greedy {
    pub fn server(hwm: i32) -> (Self, String) {
        let context = zmq::Context::new();
        let socket = socket(&context, zmq::ROUTER, hwm);
        socket.set_router_mandatory(true).unwrap();
        socket.bind("tcp://127.0.0.1:*").unwrap();
        let endpoint = socket.get_last_endpoint().unwrap().unwrap();
        (Self::of(context, vec![socket]), endpoint)
    }

    pub fn dialler(hwm: i32, publishers: &[String], servers: &[String]) -> Self {
        let context = zmq::Context::new();
        let mut sockets = Vec::new();
        for publisher in publishers {
            let socket = socket(&context, zmq::SUB, hwm);
            socket.set_subscribe(b"").unwrap();
            socket.connect(publisher).unwrap();
            sockets.push(socket);
        }
        for server in servers {
            let socket = socket(&context, zmq::DEALER, hwm);
            socket.connect(server).unwrap();
            socket.send(wire::hello(CHANNEL, "host"), 0).unwrap();
            sockets.push(socket);
        }
        Self::of(context, sockets)
    }

    fn of(context: zmq::Context, sockets: Vec<zmq::Socket>) -> Self {
        Self { _context: context, sockets, frames: std::array::from_fn(|_| zmq::Message::new()) }
    }

    pub fn turn(&mut self, work: &mut Work<'_>) {
        while work.goes_on() {
            let mut items: Vec<_> =
                self.sockets.iter().map(|socket| socket.as_poll_item(zmq::POLLIN)).collect();
            zmq::poll(&mut items, 10).unwrap();
            let readable: Vec<bool> = items.iter().map(zmq::PollItem::is_readable).collect();
            let begin = Instant::now();
            for (socket, _) in self.sockets.iter().zip(readable).filter(|(_, readable)| *readable) {
                // The bench must come to an end, which a flood does not.
                while !work.stage.is(STOP) && take(socket, &mut self.frames, work) {}
            }
            work.turned(begin);
        }
    }
}

/// Takes one record, if there is one: answers it, or gives it to the host.
fn take(socket: &zmq::Socket, frames: &mut [zmq::Message; 3], work: &mut Work<'_>) -> bool {
    let mut count = 0;
    while socket.recv(&mut frames[count], zmq::DONTWAIT).is_ok() {
        count += 1;
        if !frames[count - 1].get_more() {
            break;
        }
    }
    let Some(last) = count.checked_sub(1) else { return false };
    let kind = socket.get_socket_type().unwrap();
    let (route, head) = frames[..count].split_at(usize::from(kind == zmq::ROUTER));
    if kind == zmq::SUB || head.len() == 2 {
        work.take(&frames[last]);
        return true;
    }
    let answer = match wire::command(&head[0]) {
        wire::HELLO => wire::head(wire::ADMIT, &[]),
        wire::ADMIT => wire::probe(1),
        wire::PROBE => wire::ack(&head[0]),
        _ => return true,
    };
    let answer = route.iter().map(|frame| &frame[..]).chain([&answer[..]]);
    let _ = socket.send_multipart(answer, zmq::DONTWAIT);
    true
}

fn socket(context: &zmq::Context, kind: zmq::SocketType, hwm: i32) -> zmq::Socket {
    let socket = context.socket(kind).unwrap();
    socket.set_sndhwm(hwm).unwrap();
    socket.set_rcvhwm(hwm).unwrap();
    socket.set_linger(0).unwrap();
    socket
}
