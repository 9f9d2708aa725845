//! Connections that come and go: how fast a server admits a crowd, how fast it knows that it is gone, and that nothing
//! of it stays (CASES 22). Beside it a bare ROUTER that answers the same handshakes. The crowds and the bare ROUTER are
//! processes of their own, so that the memory counted here is the engine's, and that of libzmq beneath it.
//!
//! `cargo bench --bench churn` measures, with `-- --peers N` (default 5000), `--cycles N` (default 10) and `--warm-up N`
//! (default 8). Under `cargo test` it runs tiny.
//!
//! The warm-up is the allocator's: libzmq takes two aligned blocks of 16 KiB for a connection, and glibc needs some
//! cycles until it finds room for all of them among those given back. A bare ROUTER grows just so, as the table shows.
#![expect(
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a bench measures time and divides it"
)]

#[path = "support/mod.rs"]
mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use support::crowd::{self, Crowd};
use support::{CHANNEL, arguments, flag, median, option, resident_kib, wire};
use wakeful::{ChannelName, Config, Engine, Event, Outbox, Rid, Server};

const PATIENCE: Duration = Duration::from_secs(60);
/// The role of the process that is a bare ROUTER.
const ROUTER: &str = "--router";

fn main() {
    crowd::be_one_if_asked();
    if arguments().any(|argument| argument == ROUTER) {
        return be_router();
    }
    let full = flag("--bench");
    let peers = option("--peers").unwrap_or(if full { 5_000 } else { 50 });
    let warm_up = option("--warm-up").unwrap_or(if full { 8 } else { 1 });
    let cycles = option("--cycles").unwrap_or(if full { 10 } else { 3 });

    let mut router = BareRouter::start();
    let mut engine = Engine::new(Config::default()).unwrap();
    let channel = ChannelName::new(CHANNEL).unwrap();
    let server = Server::new(channel, Rid::new("host").unwrap(), "tcp://127.0.0.1:0".parse().unwrap());
    let endpoint = engine.serve(server).unwrap().to_string();

    println!("{peers} peers; opens and ends a second; ratio of the engine to a bare ROUTER; memory in MiB");
    println!(
        "| {:>7} | {:>12} | {:>12} | {:>5} | {:>11} | {:>13} | {:>13} |",
        "cycle", "ROUTER opens", "engine opens", "ratio", "engine ends", "ROUTER memory", "engine memory"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|");
    let (mut resident, mut ratios) = (Vec::new(), Vec::new());
    for cycle in 1..=warm_up + cycles {
        let (theirs, their_kib) = router.cycle(peers);
        let (ours, gone) = come_and_go(&mut engine, &endpoint, peers);
        let kib = resident_kib("self") as f64;
        let ratio = theirs.as_secs_f64() / ours.as_secs_f64();
        let a_second = |span: Duration| peers as f64 / span.as_secs_f64();
        let name = if cycle <= warm_up { format!("warm {cycle}") } else { (cycle - warm_up).to_string() };
        println!(
            "| {name:>7} | {:>12.0} | {:>12.0} | {ratio:>5.2} | {:>11.0} | {:>13.1} | {:>13.1} |",
            a_second(theirs),
            a_second(ours),
            a_second(gone),
            their_kib as f64 / 1024.0,
            kib / 1024.0,
        );
        if cycle > warm_up {
            resident.push(kib);
            ratios.push(ratio);
        }
    }
    let growth = resident[resident.len() - 1] / resident[1];
    let middle = median(&mut ratios);
    println!(
        "ratio {:.2} / {middle:.2} / {:.2} (min / median / max); memory of the last cycle to that of the second: {growth:.3}",
        ratios[0],
        ratios[ratios.len() - 1]
    );
    if full {
        assert!(growth <= 1.1, "memory grows");
    }
}

/// A crowd comes, is ready, and goes at once with its process. How long the coming and the going took; then nothing of
/// it is left in any table.
fn come_and_go(engine: &mut Engine, endpoint: &str, peers: usize) -> (Duration, Duration) {
    let mut crowd = Crowd::clients(endpoint, peers);
    crowd.go();
    let came = until(engine, peers, |event| matches!(event, Event::Ready { .. }));
    let begin = Instant::now();
    drop(crowd);
    until(engine, peers, |event| matches!(event, Event::Lost { .. }));
    let gone = begin.elapsed();
    until_empty(engine);
    (came, gone)
}

/// Turns the engine until so many events fit.
fn until(engine: &mut Engine, count: usize, fits: impl Fn(&Event<'_>) -> bool) -> Duration {
    let begin = Instant::now();
    let mut seen = 0;
    while seen < count {
        let mut host = |event: Event<'_>, _: &mut Outbox<'_>| seen += usize::from(fits(&event));
        if !engine.turn(&mut host).work_left {
            engine.wait(Some(Duration::from_millis(10)));
        }
        assert!(begin.elapsed() < PATIENCE, "{seen} of {count}");
    }
    begin.elapsed()
}

/// Turns the engine until nothing is left in its tables.
fn until_empty(engine: &mut Engine) {
    let begin = Instant::now();
    loop {
        engine.turn(&mut |_: Event<'_>, _: &mut Outbox<'_>| ());
        let snapshot = engine.snapshot();
        if snapshot.connections.len() + snapshot.fenced_open + snapshot.unadmitted + snapshot.replies == 0 {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "{snapshot:?}");
        engine.wait(Some(Duration::from_millis(10)));
    }
}

/// A bare ROUTER in a process of its own. It ends with its input.
struct BareRouter {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    endpoint: String,
}

impl BareRouter {
    fn start() -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let command = command.arg(ROUTER).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut router = Self { child, stdin, stdout, endpoint: String::new() };
        router.endpoint = router.line();
        router
    }

    /// How long its crowd took to come, and the memory that is left in use when it is gone.
    fn cycle(&mut self, peers: usize) -> (Duration, u64) {
        let mut crowd = Crowd::clients(&self.endpoint, peers);
        writeln!(self.stdin.as_ref().unwrap(), "{peers}").unwrap();
        crowd.go();
        let nanos = self.line().parse().unwrap();
        drop(crowd);
        writeln!(self.stdin.as_ref().unwrap(), "gone").unwrap();
        self.line();
        (Duration::from_nanos(nanos), resident_kib(&self.child.id().to_string()))
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim().into()
    }
}

impl Drop for BareRouter {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

/// This process is a bare ROUTER: told a number, it shakes hands with so many peers and says how many nanoseconds that
/// took; told that they are gone, it lets libzmq notice.
fn be_router() {
    let context = zmq::Context::new();
    let router = context.socket(zmq::ROUTER).unwrap();
    router.set_linger(0).unwrap();
    router.bind("tcp://127.0.0.1:*").unwrap();
    println!("{}", router.get_last_endpoint().unwrap().unwrap());
    for line in std::io::stdin().lines() {
        if let Ok(peers) = line.unwrap().parse() {
            let begin = Instant::now();
            wire::shake_hands(&router, peers);
            println!("{}", begin.elapsed().as_nanos());
        } else {
            for _ in 0..20 {
                thread::sleep(Duration::from_millis(20));
                router.get_events().unwrap();
            }
            println!("settled");
        }
    }
}
