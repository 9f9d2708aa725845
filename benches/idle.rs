//! What it costs to have connections on which nothing happens: a turn with nothing to do, and processor time a second
//! with all that keeps them alive. Through one ROUTER and through lanes of their own; beside it one look of a
//! `zmq::poll` loop at the same sockets, which knows nothing of their life.
//!
//! `cargo bench --bench idle` measures; `-- --seconds N` for how long processor time is counted for each row (default
//! 20, a whole number of check intervals), `--plot` to draw `benches/plots/idle.svg` too. The peers are a process of their
//! own. Under `cargo test` it runs tiny.
#![expect(
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a bench measures time and divides it"
)]

#[path = "support/mod.rs"]
mod support;

use std::hint::black_box;
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};
use support::crowd::{self, Crowd};
use support::plot::{Axis, Line, Plot};
use support::{CHANNEL, cpu_of_process, flag, median, option, wire};
use wakeful::{ChannelName, Client, Config, Engine, Event, Outbox, Rid, RouteState, Server};

/// Sockets of one context, of the 1,023 it may have.
const SOCKETS_MAX: usize = 1_000;
/// Descriptors that are not the peers'.
const OTHER_DESCRIPTORS: usize = 200;

#[derive(Clone, Copy, PartialEq)]
enum Through {
    OneRouter,
    OwnLanes,
}

struct Plan {
    through: Through,
    name: &'static str,
    counts: &'static [usize],
}

/// What was measured with so many peers.
struct Row {
    /// Nanoseconds of a turn, and of a look, each round.
    turns: Vec<f64>,
    looks: Vec<f64>,
    /// Of one processor.
    share: f64,
}

fn main() {
    crowd::be_one_if_asked();
    let full = flag("--bench");
    let seconds = option("--seconds").unwrap_or(if full { 20.0 } else { 0.1 });
    let plans = [
        Plan {
            through: Through::OneRouter,
            name: "one ROUTER",
            counts: if full { &[1, 10, 100, 1_000, 10_000] } else { &[1, 20] },
        },
        Plan {
            through: Through::OwnLanes,
            name: "own lanes",
            counts: if full { &[1, 10, 100, 1_000] } else { &[1, 20] },
        },
    ];
    let rounds = if full { 9 } else { 1 };
    println!(
        "nanoseconds, min / median / max of {rounds} rounds; processor time of the whole process over {seconds} s"
    );
    println!(
        "| {:>10} | {:>6} | {:>18} | {:>6} | {:>28} | {:>9} |",
        "", "peers", "idle turn", "to one", "look of zmq::poll", "processor"
    );
    println!("|---|---:|---:|---:|---:|---:|");
    let mut lines = Vec::new();
    for Plan { through, name, counts } in plans {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for &count in counts {
            let Row { mut turns, mut looks, share } = measure(through, count, rounds, seconds);
            let turn = median(&mut turns);
            ours.push((count as f64, turn));
            theirs.push((count as f64, median(&mut looks)));
            println!(
                "| {name:>10} | {count:>6} | {:>18} | {:>6.2} | {:>28} | {:>7.3} % |",
                text(&turns),
                turn / ours[0].1,
                text(&looks),
                share * 100.0,
            );
        }
        lines.push(Line { name: format!("engine, {name}"), points: ours });
        lines.push(Line { name: format!("zmq::poll, {name}"), points: theirs });
    }
    if flag("--plot") {
        draw(&lines);
    }
}

fn draw(lines: &[Line]) {
    let plot = Plot {
        title: "Finding that nothing is to be done",
        across: Axis { name: "idle ready connections", text: |value| format!("{value:.0}") },
        up: Axis { name: "nanoseconds a turn", text: |value| format!("{value:.0}") },
        lines,
    };
    plot.write("idle.svg");
}

/// Sorted values as minimum, median and maximum.
fn text(values: &[f64]) -> String {
    let (middle, last) = (values.len() / 2, values.len() - 1);
    format!("{:.0} / {:.0} / {:.0}", values[0], values[middle], values[last])
}

/// Both ends side by side and alternating; where there are not descriptors enough for both, one after the other.
fn measure(through: Through, count: usize, rounds: usize, seconds: f64) -> Row {
    let times = if rounds == 1 { 100 } else { 100_000 };
    let (mut engine, crowd) = engine(through, count);
    let share = share(&mut engine, Duration::from_secs_f64(seconds));
    let limit = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| limit as usize);
    if 2 * count + OTHER_DESCRIPTORS > limit {
        let turns = (0..rounds).map(|_| turn(&mut engine, times)).collect();
        drop((engine, crowd));
        let raw = Raw::open(through, count);
        let looks = (0..rounds).map(|_| raw.look(times)).collect();
        return Row { turns, looks, share };
    }
    let raw = Raw::open(through, count);
    let (turns, looks) = (0..rounds).map(|_| (turn(&mut engine, times), raw.look(times))).unzip();
    Row { turns, looks, share }
}

/// An engine with so many ready peers.
fn engine(through: Through, count: usize) -> (Engine, Crowd) {
    let mut engine = Engine::new(Config::default()).unwrap();
    let (channel, host) = (ChannelName::new(CHANNEL).unwrap(), Rid::new("host").unwrap());
    let crowd = match through {
        Through::OneRouter => {
            let server = Server::new(channel, host, "tcp://127.0.0.1:0".parse().unwrap());
            let mut crowd = Crowd::clients(&engine.serve(server).unwrap().to_string(), count);
            crowd.go();
            crowd
        }
        Through::OwnLanes => {
            let (crowd, endpoints) = Crowd::servers(count);
            let servers = endpoints.iter().map(|endpoint| endpoint.parse().unwrap());
            engine.connect(servers.fold(Client::new(channel, host), Client::server)).unwrap();
            crowd
        }
    };
    let begin = Instant::now();
    let is_ready = |engine: &Engine| {
        let connections = engine.snapshot().connections;
        connections.iter().filter(|each| each.state == RouteState::Ready).count() == count
    };
    while !is_ready(&engine) {
        assert!(begin.elapsed() < Duration::from_secs(120), "not ready");
        for _ in 0..100 {
            engine.turn(&mut nothing_happens);
        }
        engine.wait(Some(Duration::from_millis(5)));
    }
    (engine, crowd)
}

/// The host of idle peers: none is ever late or lost.
fn nothing_happens(event: Event<'_>, _: &mut Outbox<'_>) {
    assert!(matches!(event, Event::Admitted { .. } | Event::Ready { .. }), "{event:?}");
}

/// Does as a host does for so long, and says what share of a processor the whole process took, libzmq's threads
/// included.
fn share(engine: &mut Engine, span: Duration) -> f64 {
    let (begin, ran) = (Instant::now(), cpu_of_process());
    while begin.elapsed() < span {
        if !engine.turn(&mut nothing_happens).work_left {
            engine.wait(Some(span.saturating_sub(begin.elapsed())));
        }
    }
    (cpu_of_process() - ran).as_secs_f64() / begin.elapsed().as_secs_f64()
}

/// Nanoseconds of one turn in which nothing is due and nothing comes. The clock is read in each, as a turn does, but time
/// stands still, so that nothing gets due.
fn turn(engine: &mut Engine, count: u32) -> f64 {
    let now = Instant::now();
    // What came until now is not idle.
    while engine.turn_at(now, &mut nothing_happens).work_left {}
    let begin = Instant::now();
    for _ in 0..count {
        black_box(Instant::now());
        black_box(engine.turn_at(now, &mut nothing_happens));
    }
    begin.elapsed().as_nanos() as f64 / f64::from(count)
}

/// As many sockets as a user would have, with the same crowd.
struct Raw {
    sockets: Vec<zmq::Socket>,
    _contexts: Vec<zmq::Context>,
    _crowd: Crowd,
}

impl Raw {
    fn open(through: Through, count: usize) -> Self {
        let contexts: Vec<_> = (0..count.div_ceil(SOCKETS_MAX)).map(|_| zmq::Context::new()).collect();
        let socket = |number: usize, kind| {
            let socket = contexts[number / SOCKETS_MAX].socket(kind).unwrap();
            socket.set_linger(0).unwrap();
            socket
        };
        let (sockets, crowd) = if through == Through::OneRouter {
            let router = socket(0, zmq::ROUTER);
            router.bind("tcp://127.0.0.1:*").unwrap();
            let mut crowd = Crowd::clients(&router.get_last_endpoint().unwrap().unwrap(), count);
            crowd.go();
            wire::shake_hands(&router, count);
            (vec![router], crowd)
        } else {
            let (crowd, endpoints) = Crowd::servers(count);
            let dial = |(number, endpoint): (usize, &String)| {
                let dealer = socket(number, zmq::DEALER);
                dealer.connect(endpoint).unwrap();
                dealer
            };
            (endpoints.iter().enumerate().map(dial).collect(), crowd)
        };
        Self { sockets, _contexts: contexts, _crowd: crowd }
    }

    /// Nanoseconds of one look at all sockets that finds nothing.
    fn look(&self, times: u32) -> f64 {
        let times = (times / self.sockets.len() as u32).max(10);
        let mut items: Vec<_> = self.sockets.iter().map(|socket| socket.as_poll_item(zmq::POLLIN)).collect();
        let begin = Instant::now();
        for _ in 0..times {
            zmq::poll(&mut items, 0).unwrap();
        }
        begin.elapsed().as_nanos() as f64 / f64::from(times)
    }
}
