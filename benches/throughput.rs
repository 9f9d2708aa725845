//! What a record costs: one way from a DEALER to the engine's ROUTER and into `on_event`, and round trips of requests
//! between two engines, each against a raw loop over the same kinds of sockets, frames and options, alternating in one
//! run. `cargo bench --bench throughput` measures; under `cargo test` it runs tiny, as a check.
//!
//! One way, the sender is the same bare DEALER thread in both, so that only the receiving end differs. `backlog` receives
//! what was queued before, in processor time of the receiving thread; `live` receives while the sender sends, in time
//! on the wall.
#![expect(
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a bench measures time and divides it"
)]

#[path = "../tests/support/dealer.rs"]
mod raw;

use std::env;
use std::hint::black_box;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use wakeful::{ChannelName, Client, Completion, Config, Endpoint, Engine, Event, Host, Outbox, Rid, Server};

const CHANNEL: &str = "bench";
const HWM: i32 = 1_000;
/// How often each is measured: live rounds vary more.
const ROUNDS: usize = 9;
const LIVE_ROUNDS: usize = 101;
/// How many batches are profiled.
const BATCHES: usize = 500;

fn name() -> ChannelName {
    ChannelName::new(CHANNEL).unwrap()
}

fn rid(name: &str) -> Rid {
    Rid::new(name).unwrap()
}

/// How long this thread has run on a processor: on a busy machine more telling than the time on the wall.
fn cpu() -> Duration {
    if env::args().any(|argument| argument == "--profile") {
        // Nobody looks at it, and under valgrind this clock is not to be found.
        return Duration::ZERO;
    }
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

/// What taking some records took.
#[derive(Clone, Copy, Default)]
struct Spent {
    wall: Duration,
    cpu: Duration,
}

impl Spent {
    fn since(begin: (Instant, Duration)) -> Self {
        Self { wall: begin.0.elapsed(), cpu: cpu() - begin.1 }
    }
}

/// A receiving end: told how many records to take, it takes them and says how long that took, from the first of them.
trait Take {
    fn take(&mut self, records: usize) -> Spent;
}

struct RawServer {
    socket: zmq::Socket,
    frames: [zmq::Message; 3],
}

impl RawServer {
    /// In a context of its own, as the engine's sockets are: with an I/O thread of its own.
    fn new() -> (Self, String) {
        let socket = zmq::Context::new().socket(zmq::ROUTER).unwrap();
        socket.set_sndhwm(HWM).unwrap();
        socket.set_rcvhwm(HWM).unwrap();
        socket.set_router_mandatory(true).unwrap();
        socket.set_linger(0).unwrap();
        socket.bind("tcp://127.0.0.1:*").unwrap();
        let endpoint = socket.get_last_endpoint().unwrap().unwrap();
        (Self { socket, frames: std::array::from_fn(|_| zmq::Message::new()) }, endpoint)
    }

    /// One record, if there is one.
    fn receive(&mut self) -> bool {
        for (number, frame) in self.frames.iter_mut().enumerate() {
            match self.socket.recv(frame, zmq::DONTWAIT) {
                Ok(()) => assert_eq!(frame.get_more(), number < 2),
                Err(error) => {
                    assert_eq!((error, number), (zmq::Error::EAGAIN, 0));
                    return false;
                }
            }
        }
        black_box(&*self.frames[2]);
        true
    }
}

impl Take for RawServer {
    fn take(&mut self, records: usize) -> Spent {
        let (mut begin, mut taken) = (None, 0);
        while taken < records {
            if self.receive() {
                begin.get_or_insert_with(|| (Instant::now(), cpu()));
                taken += 1;
            } else {
                self.socket.poll(zmq::POLLIN, 10).unwrap();
            }
        }
        Spent::since(begin.unwrap())
    }
}

struct EngineServer {
    engine: Engine,
}

impl EngineServer {
    fn new(config: Config) -> (Self, String) {
        let mut engine = Engine::new(config).unwrap();
        let server = Server::new(name(), rid("server"), "tcp://127.0.0.1:0".parse().unwrap());
        let bound = engine.serve(server).unwrap();
        (Self { engine }, bound.to_string())
    }
}

/// Counts what comes, and begins its measurement with the first.
#[derive(Default)]
struct Taker {
    begin: Option<(Instant, Duration)>,
    taken: usize,
}

impl Host for Taker {
    fn on_event(&mut self, event: Event<'_>, _: &mut Outbox<'_>) {
        if let Event::Message { parts, .. } = event {
            self.begin.get_or_insert_with(|| (Instant::now(), cpu()));
            self.taken += 1;
            black_box(parts.get(0));
        }
        assert!(!matches!(event, Event::Lost { .. }), "{event:?}");
    }
}

impl Take for EngineServer {
    fn take(&mut self, records: usize) -> Spent {
        let mut host = Taker::default();
        loop {
            let report = self.engine.turn(&mut host);
            if host.taken >= records {
                return Spent::since(host.begin.unwrap());
            }
            if !report.work_left {
                self.engine.wait(Some(Duration::from_millis(10)));
            }
        }
    }
}

/// The sending thread's part: sends as many records as it is told, as fast as they are taken.
struct Load {
    go: Sender<usize>,
    sent: Receiver<()>,
}

impl Load {
    fn start(socket: zmq::Socket, bytes: usize) -> Self {
        let (go, orders) = channel();
        let (done, sent) = channel();
        thread::spawn(move || {
            let (head, payload) = (raw::message_head(CHANNEL), vec![7_u8; bytes]);
            loop {
                let records = match orders.recv_timeout(Duration::from_millis(100)) {
                    Ok(records) => records,
                    Err(RecvTimeoutError::Timeout) => 0,
                    Err(RecvTimeoutError::Disconnected) => return,
                };
                for number in 0..records {
                    if number % 256 == 0 {
                        raw::answer_asks(&socket);
                    }
                    socket.send(&head[..], zmq::SNDMORE).unwrap();
                    socket.send(&payload[..], 0).unwrap();
                }
                raw::answer_asks(&socket);
                if records > 0 {
                    done.send(()).unwrap();
                }
            }
        });
        Self { go, sent }
    }
}

/// How many records of that size are queued before they are received.
fn batch_of(bytes: usize) -> usize {
    if bytes > 1 << 10 { 50 } else { 900 }
}

struct Way<T> {
    server: T,
    load: Load,
}

impl<T: Take> Way<T> {
    /// Records a second while the sender sends.
    fn live(&mut self, records: usize) -> f64 {
        self.load.go.send(records).unwrap();
        let spent = self.server.take(records);
        self.load.sent.recv().unwrap();
        records as f64 / spent.wall.as_secs_f64()
    }

    /// Records a second from what the queues hold.
    fn backlog(&mut self, batch: usize, batches: usize) -> f64 {
        let mut spent = Duration::ZERO;
        for _ in 0..batches {
            self.load.go.send(batch).unwrap();
            self.load.sent.recv().unwrap();
            // What is under way arrives; how long that takes is not measured.
            thread::sleep(Duration::from_millis(if batch < 100 { 15 } else { 5 }));
            spent += self.server.take(batch).cpu;
        }
        (batch * batches) as f64 / spent.as_secs_f64()
    }
}

fn raw_way(context: &zmq::Context, bytes: usize) -> Way<RawServer> {
    let (server, endpoint) = RawServer::new();
    Way { server, load: Load::start(raw::dealer(context, &endpoint), bytes) }
}

fn engine_way(context: &zmq::Context, bytes: usize, config: Config) -> Way<EngineServer> {
    let (mut server, endpoint) = EngineServer::new(config);
    let socket = raw::dealer(context, &endpoint);
    raw::shake_hands(&socket, CHANNEL, "client", || {
        server.engine.turn(&mut |_: Event<'_>, _: &mut Outbox<'_>| ());
    });
    Way { server, load: Load::start(socket, bytes) }
}

/// Round trips of `trips` requests of 64 bytes, sorted.
fn raw_echo(context: &zmq::Context, trips: usize) -> Vec<Duration> {
    let (mut server, endpoint) = RawServer::new();
    let socket = raw::dealer(context, &endpoint);
    let serving = thread::spawn(move || {
        for _ in 0..trips {
            while !server.receive() {
                server.socket.poll(zmq::POLLIN, -1).unwrap();
            }
            let [to, head, part] = &server.frames;
            server.socket.send(&**to, zmq::SNDMORE).unwrap();
            server.socket.send(&**head, zmq::SNDMORE).unwrap();
            server.socket.send(&**part, 0).unwrap();
        }
        // Linger is 0: the last reply leaves before the socket goes.
        server
    });
    // As long as the engine's: correlation and channel.
    let (head, payload) = ([9_u8; 5 + 8 + 1 + CHANNEL.len()], [7_u8; 64]);
    let mut frames: [zmq::Message; 2] = std::array::from_fn(|_| zmq::Message::new());
    let mut times = Vec::with_capacity(trips);
    for _ in 0..trips {
        let begin = Instant::now();
        socket.send(&head[..], zmq::SNDMORE).unwrap();
        socket.send(&payload[..], 0).unwrap();
        while socket.recv(&mut frames[0], zmq::DONTWAIT).is_err() {
            socket.poll(zmq::POLLIN, -1).unwrap();
        }
        socket.recv(&mut frames[1], 0).unwrap();
        times.push(begin.elapsed());
    }
    serving.join().unwrap();
    times.sort();
    times
}

/// An engine that begins to connect to a server.
fn connecting(endpoint: &str) -> Engine {
    let endpoint: Endpoint = endpoint.parse().unwrap();
    let mut engine = Engine::new(Config::default()).unwrap();
    engine.connect(Client::new(name(), rid("client")).server(endpoint)).unwrap();
    engine
}

fn engine_echo(trips: usize) -> Vec<Duration> {
    let (mut server, endpoint) = EngineServer::new(Config::default());
    let serving = thread::spawn(move || {
        let mut answered = 0;
        let mut lost = false;
        while !lost {
            let report = server.engine.turn(&mut |event: Event<'_>, outbox: &mut Outbox<'_>| match event {
                Event::Request { parts, token, .. } => {
                    outbox.reply(token, &[parts.get(0).unwrap_or_default()]).unwrap();
                    answered += 1;
                }
                Event::Lost { .. } => lost = true,
                _ => {}
            });
            if !report.work_left {
                server.engine.wait(None);
            }
        }
        assert_eq!(answered, trips);
    });
    let mut engine = connecting(&endpoint);
    let mut ready = false;
    while !ready {
        engine
            .turn(&mut |event: Event<'_>, _: &mut Outbox<'_>| ready |= matches!(event, Event::Ready { .. }));
        engine.wait(Some(Duration::from_millis(1)));
    }
    let (channel, payload) = (name(), [7_u8; 64]);
    let mut times = Vec::with_capacity(trips);
    for _ in 0..trips {
        let begin = Instant::now();
        engine.outbox().request(&channel, &[&payload], Duration::from_secs(10)).unwrap();
        let mut host = Trip::default();
        while !host.replied {
            engine.wait(None);
            engine.turn(&mut host);
        }
        times.push(begin.elapsed());
    }
    drop(engine);
    serving.join().unwrap();
    times.sort();
    times
}

/// Waits for one reply.
#[derive(Default)]
struct Trip {
    replied: bool,
}

impl Host for Trip {
    fn on_event(&mut self, event: Event<'_>, _: &mut Outbox<'_>) {
        if let Event::Completed { outcome, .. } = event {
            assert!(matches!(outcome, Completion::Reply(_)));
            self.replied = true;
        }
    }
}

/// Prints one row: the scale of both, and the ratio of engine to raw.
fn row(what: &str, unit: &str, pairs: &[(f64, f64)]) {
    let sorted = |value: fn(&(f64, f64)) -> f64| {
        let mut values: Vec<f64> = pairs.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let (raw, engine) = (sorted(|pair| pair.0), sorted(|pair| pair.1));
    let ratio = sorted(|pair| pair.1 / pair.0);
    let middle = pairs.len() / 2;
    println!(
        "{what:>18} {:>12.1} {:>12.1} {unit:<9} {:>6.3} / {:.3} / {:.3}",
        raw[middle],
        engine[middle],
        ratio[0],
        ratio[middle],
        ratio[pairs.len() - 1]
    );
}

/// The sending end only: batches of messages, each taken by a server on a thread of its own before the next.
fn profile_sending(batch: usize, mut send: impl FnMut(usize), mut server: impl Take + Send + 'static) {
    let (go, orders) = channel::<()>();
    let (done, taken) = channel();
    thread::spawn(move || {
        for () in orders {
            server.take(batch);
            done.send(()).unwrap();
        }
    });
    for _ in 0..BATCHES {
        go.send(()).unwrap();
        send(batch);
        taken.recv().unwrap();
    }
}

/// One of the two alone, for a profiler: receiving what was queued before, sending, or round trips. The engine's time caps
/// are at their widest, because a program under a profiler is so slow that they would end each share early.
fn profile(which: &str, bytes: usize) {
    let context = zmq::Context::new();
    let config = Config {
        receive_time_max: Duration::from_millis(10),
        turn_time_max: Duration::from_millis(100),
        ..Config::default()
    };
    let batch = batch_of(bytes);
    match which {
        "raw" => drop(raw_way(&context, bytes).backlog(batch, BATCHES)),
        "engine" => drop(engine_way(&context, bytes, config).backlog(batch, BATCHES)),
        "raw-send" => {
            let (server, endpoint) = RawServer::new();
            let socket = raw::dealer(&context, &endpoint);
            let (head, payload) = (raw::message_head(CHANNEL), vec![7_u8; bytes]);
            let send = |records| {
                for _ in 0..records {
                    socket.send(&head[..], zmq::SNDMORE).unwrap();
                    socket.send(&payload[..], 0).unwrap();
                }
            };
            profile_sending(batch, send, server);
        }
        "engine-send" => {
            let (server, endpoint) = EngineServer::new(config);
            let mut engine = connecting(&endpoint);
            let (channel, payload) = (name(), vec![7_u8; bytes]);
            let send = |records| {
                // A turn a batch answers what the server asks.
                engine.turn(&mut |_: Event<'_>, _: &mut Outbox<'_>| ());
                let mut sent = 0;
                while sent < records {
                    let mut outbox = engine.outbox();
                    while sent < records && outbox.send(&channel, &[&payload]).is_ok() {
                        sent += 1;
                    }
                    drop(outbox);
                    // Not connected yet.
                    if sent < records {
                        engine.turn(&mut |_: Event<'_>, _: &mut Outbox<'_>| ());
                    }
                }
            };
            profile_sending(batch, send, server);
        }
        "raw-echo" => drop(raw_echo(&context, 20_000)),
        "engine-echo" => drop(engine_echo(20_000)),
        other => panic!("nothing to profile by the name of {other}"),
    }
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let full = arguments.iter().any(|argument| argument == "--bench");
    if let Some(at) = arguments.iter().position(|argument| argument == "--profile") {
        let bytes = arguments.get(at + 2).map_or(64, |bytes| bytes.parse().unwrap());
        return profile(&arguments[at + 1], bytes);
    }
    let context = zmq::Context::new();
    let rounds = |count| if full { count } else { 1 };
    println!(
        "{:>18} {:>12} {:>12} {:<9} ratio engine / raw: min / median / max of {LIVE_ROUNDS} (live) or {ROUNDS}",
        "", "raw", "engine", ""
    );
    for (bytes, records) in [(64, 200_000), (1 << 10, 100_000), (64 << 10, 4_000)] {
        let records = if full { records } else { 100 };
        let (mut raw, mut engine) =
            (raw_way(&context, bytes), engine_way(&context, bytes, Config::default()));
        raw.live(records / 4);
        engine.live(records / 4);
        let live = alternate(rounds(LIVE_ROUNDS), || raw.live(records) / 1e3, || engine.live(records) / 1e3);
        row(&format!("{bytes} B live"), "krec/s", &live);
        let batches = if full { 20 } else { 1 };
        let batch = batch_of(bytes);
        let backlog = alternate(
            rounds(ROUNDS),
            || raw.backlog(batch, batches) / 1e3,
            || engine.backlog(batch, batches) / 1e3,
        );
        row(&format!("{bytes} B backlog"), "krec/s", &backlog);
    }
    let trips = if full { 10_000 } else { 50 };
    let p50 = |times: Vec<Duration>| times[times.len() / 2].as_secs_f64() * 1e6;
    let echo = alternate(rounds(ROUNDS), || p50(raw_echo(&context, trips)), || p50(engine_echo(trips)));
    row("echo 64 B p50", "us", &echo);
}

/// Measures raw and engine so many times, now one first, now the other.
fn alternate(
    rounds: usize,
    mut raw: impl FnMut() -> f64,
    mut engine: impl FnMut() -> f64,
) -> Vec<(f64, f64)> {
    let round = |number| {
        if number % 2 == 0 {
            let raw = raw();
            (raw, engine())
        } else {
            let engine = engine();
            (raw(), engine)
        }
    };
    (0..rounds).map(round).collect()
}
