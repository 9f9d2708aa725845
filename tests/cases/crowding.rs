//! A host that floods keep busy, each peer on a lane of its own, over real sockets and in real time: the scenes of CASES
//! 14 and 20. The tests beside it hold the engine to them; `src/engine/uncapped.rs` plays the same scenes without the
//! caps and shows that then nobody is heard but the flooder.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use super::api::{ChannelName, Client, Config, Engine, Event, Outbox, Rid, Subscriber};

#[allow(dead_code, reason = "the benches use more of it")]
#[path = "../../benches/support/wire.rs"]
mod wire;

/// The quiet server's.
const CHANNEL: &str = "quiet";
/// What the host takes for an event: more than the flooder does for a record.
const WORK: Duration = Duration::from_micros(50);
/// How much the host works through before a flood ends, so that the scene ends without the caps too.
const THREE_FLOODS: Duration = Duration::from_millis(500);
const ONE_FLOOD: Duration = Duration::from_millis(1_200);
const PROBE_EVERY: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(20);
/// What CASES 20 allows a probe's round trip.
const P99_MAX: Duration = Duration::from_millis(100);
const ROUND_TRIP_MAX: Duration = Duration::from_secs(1);

/// A turn has room for the shares of two of three flooders, so the next one begins in another place.
pub fn config() -> Config {
    Config {
        receive_time_max: Duration::from_micros(500),
        turn_time_max: Duration::from_millis(1),
        seed: 7,
        ..Config::default()
    }
}

/// Ends all threads of a scene, whatever happens to it.
struct End<'a>(&'a Worker);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.is_done.store(true, Relaxed);
    }
}

/// CASES 14: three publishers flood one subscriber, in the order in which it registered them. Who was served in each
/// turn, record by record.
pub fn three_floods(mut engine: Engine) -> Vec<Vec<u8>> {
    let (host, go, sent) = (Worker::default(), AtomicBool::new(false), [const { AtomicU64::new(0) }; 3]);
    let publishers = [0, 1, 2].map(Flooder::bind);
    subscribe(&mut engine, &publishers);
    thread::scope(|scope| {
        let _end = End(&host);
        for (publisher, sent) in publishers.into_iter().zip(&sent) {
            scope.spawn(|| publisher.flood(&host, &go, sent));
        }
        await_ready(&mut engine, 3);
        go.store(true, Relaxed);
        // Each fills all that lies between it and the host.
        let begin = Instant::now();
        let full = sent.each_ref().map(|sent| sent.load(Relaxed) + 5_000);
        while sent.iter().zip(full).any(|(sent, full)| sent.load(Relaxed) < full) {
            assert!(begin.elapsed() < PATIENCE, "{sent:?}");
            thread::sleep(Duration::from_millis(1));
        }
        let mut turns = Vec::new();
        while turns.len() < 60 && !host.is_done() {
            let mut served = Vec::new();
            engine.turn(&mut |event: Event<'_>, _: &mut Outbox<'_>| {
                served.extend(flooder(&event));
                host.work(THREE_FLOODS);
            });
            turns.push(served);
        }
        turns
    })
}

/// What is wrong with these turns, if CASES 14 asks: everyone served in every rotation, from a start that moves, nobody
/// beyond 64 records at a time.
pub fn unfairness(turns: &[Vec<u8>]) -> Option<String> {
    let mut runs: Vec<u8> = Vec::new();
    for (number, turn) in turns.iter().enumerate() {
        for run in turn.chunk_by(|one, next| one == next) {
            if run.len() > 64 {
                return Some(format!("turn {number}: {} records of {} in a row", run.len(), run[0]));
            }
            runs.push(run[0]);
        }
    }
    if turns.len() < 20 || runs.len() < 30 {
        return Some(format!("{} turns, {} services", turns.len(), runs.len()));
    }
    let is_round = |three: &[u8]| three[0] != three[1] && three[1] != three[2] && three[0] != three[2];
    if let Some(at) = runs.windows(3).position(|three| !is_round(three)) {
        return Some(format!("somebody was passed over: {:?}", &runs[at..at + 3]));
    }
    let starts: Vec<u8> = turns.iter().filter_map(|turn| turn.first().copied()).collect();
    let is_start = |number: &u8| starts.contains(number);
    (![0, 1, 2].iter().all(is_start)).then(|| format!("the start never moved: {starts:?}"))
}

/// What the quiet peer of [`one_flood`] saw.
pub struct Seen {
    /// Of its probes, in time that the host worked meanwhile; what was not answered in the end counts with its age.
    pub round_trips: Vec<Duration>,
    /// Peers that the host lost.
    pub lost: usize,
}

/// CASES 20: one publisher floods the host, and a server that the host dialled probes it.
pub fn one_flood(mut engine: Engine) -> Seen {
    let (host, go, sent) = (Worker::default(), AtomicBool::new(false), AtomicU64::new(0));
    let flooder = Flooder::bind(0);
    let quiet = Quiet::bind();
    subscribe(&mut engine, std::slice::from_ref(&flooder));
    let client = Client::new(channel(CHANNEL), Rid::new("host").unwrap());
    engine.connect(client.server(quiet.endpoint.parse().unwrap())).unwrap();
    thread::scope(|scope| {
        let _end = End(&host);
        let quiet = scope.spawn(|| quiet.probe(&host, &go));
        scope.spawn(|| flooder.flood(&host, &go, &sent));
        await_ready(&mut engine, 2);
        go.store(true, Relaxed);
        let mut lost = 0;
        while !host.is_done() {
            engine.turn(&mut |event: Event<'_>, _: &mut Outbox<'_>| {
                lost += usize::from(matches!(event, Event::PublisherLost { .. } | Event::Lost { .. }));
                host.work(ONE_FLOOD);
            });
        }
        Seen { round_trips: quiet.join().unwrap(), lost }
    })
}

/// What is wrong with this, if CASES 20 asks.
pub fn starvation(seen: &mut Seen) -> Option<String> {
    let Seen { round_trips, lost } = seen;
    round_trips.sort_unstable();
    let (Some(&most), Some(&p99)) = (round_trips.last(), round_trips.get(round_trips.len() * 99 / 100))
    else {
        return Some("it could not even probe".into());
    };
    let is_fine = p99 < P99_MAX && most < ROUND_TRIP_MAX && *lost == 0;
    (!is_fine).then(|| format!("p99 {p99:?}, max {most:?} of {}, {lost} lost", round_trips.len()))
}

fn channel(name: &str) -> ChannelName {
    ChannelName::new(name).unwrap()
}

fn subscribe(engine: &mut Engine, publishers: &[Flooder]) {
    let all = publishers.iter().map(|publisher| publisher.endpoint.parse().unwrap());
    engine.subscribe(all.fold(Subscriber::new(channel("flood")).filter(b""), Subscriber::publisher)).unwrap();
}

/// Turns until so many peers are ready.
fn await_ready(engine: &mut Engine, count: usize) {
    let begin = Instant::now();
    let mut ready = 0;
    while ready < count {
        assert!(begin.elapsed() < PATIENCE, "{ready} are ready");
        engine.turn(&mut |event: Event<'_>, _: &mut Outbox<'_>| {
            ready += usize::from(matches!(event, Event::PublisherReady { .. } | Event::Ready { .. }));
        });
        engine.wait(Some(Duration::from_millis(1)));
    }
}

/// Which flooder sent it.
fn flooder(event: &Event<'_>) -> Option<u8> {
    let Event::Published { parts, .. } = event else { return None };
    parts.get(0)?.first().copied()
}

/// A host that works, and the time it takes by its own account: what it is kept waiting by a busy machine does not count.
#[derive(Default)]
struct Worker {
    nanos: AtomicU64,
    is_done: AtomicBool,
}

impl Worker {
    /// Works for one event. The flood ends when all of it took so long.
    fn work(&self, flood: Duration) {
        let begin = Instant::now();
        while begin.elapsed() < WORK && !self.is_done() {
            std::hint::spin_loop();
        }
        self.nanos.fetch_add(WORK.as_nanos() as u64, Relaxed);
        if self.worked() > flood {
            self.is_done.store(true, Relaxed);
        }
    }

    fn worked(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Relaxed))
    }

    fn is_done(&self) -> bool {
        self.is_done.load(Relaxed)
    }
}

/// A bare publisher that never stops to think.
struct Flooder {
    _context: zmq::Context,
    socket: zmq::Socket,
    endpoint: String,
    number: u8,
}

impl Flooder {
    fn bind(number: u8) -> Self {
        let (context, socket, endpoint) = bound(zmq::PUB);
        Self { _context: context, socket, endpoint, number }
    }

    /// Publishes: a little until told to go, and then far more than the host takes.
    fn flood(self, host: &Worker, go: &AtomicBool, sent: &AtomicU64) {
        while !host.is_done() {
            let burst = if go.load(Relaxed) { 500 } else { 1 };
            for _ in 0..burst {
                self.socket.send(&b"flood"[..], zmq::SNDMORE).unwrap();
                self.socket.send(&[self.number; 64][..], 0).unwrap();
            }
            sent.fetch_add(burst, Relaxed);
            thread::sleep(Duration::from_micros(100));
        }
    }
}

/// A bare server that probes its one client.
struct Quiet {
    _context: zmq::Context,
    socket: zmq::Socket,
    endpoint: String,
}

impl Quiet {
    fn bind() -> Self {
        let (context, socket, endpoint) = bound(zmq::ROUTER);
        Self { _context: context, socket, endpoint }
    }

    /// Answers all there is and, once told to go, probes; how long the host worked until each was answered.
    fn probe(self, host: &Worker, go: &AtomicBool) -> Vec<Duration> {
        let (mut route, mut head) = (Vec::new(), zmq::Message::new());
        let mut asked: Vec<Duration> = Vec::new();
        let mut round_trips: Vec<Option<Duration>> = Vec::new();
        let mut next = Instant::now();
        while !host.is_done() {
            while self.socket.recv(&mut head, zmq::DONTWAIT).is_ok() {
                route = head.to_vec();
                self.socket.recv(&mut head, 0).unwrap();
                let answer = match wire::command(&head) {
                    wire::HELLO => wire::admit(CHANNEL, "quiet", &self.endpoint, &head),
                    wire::PROBE => wire::ack(&head),
                    _ => {
                        let number = wire::id(&head) as usize - 1;
                        round_trips[number] = Some(host.worked() - asked[number]);
                        continue;
                    }
                };
                self.socket.send_multipart([&route[..], &answer[..]], 0).unwrap();
            }
            if go.load(Relaxed) && Instant::now() >= next {
                next = Instant::now() + PROBE_EVERY;
                asked.push(host.worked());
                round_trips.push(None);
                let probe = wire::probe(asked.len() as u64);
                self.socket.send_multipart([&route[..], &probe[..]], zmq::DONTWAIT).unwrap();
            }
            self.socket.poll(zmq::POLLIN, 1).unwrap();
        }
        let worked = host.worked();
        asked.iter().zip(round_trips).map(|(&asked, took)| took.unwrap_or(worked - asked)).collect()
    }
}

fn bound(kind: zmq::SocketType) -> (zmq::Context, zmq::Socket, String) {
    let context = zmq::Context::new();
    let socket = context.socket(kind).unwrap();
    socket.set_linger(0).unwrap();
    if kind == zmq::ROUTER {
        socket.set_identity(b"A").unwrap();
    }
    socket.bind("tcp://127.0.0.1:*").unwrap();
    let endpoint = socket.get_last_endpoint().unwrap().unwrap();
    (context, socket, endpoint)
}
