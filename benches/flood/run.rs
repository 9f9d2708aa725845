//! One run: a flooded end between its flooders and its quiet peers, in threads, for a bounded time.

use std::thread;
use std::time::{Duration, Instant};

use wakeful::{Config, Snapshot};

use super::ends::{self, Greedy, Work};
use super::peers::{FLOOD, Flooder, MEASURE, STOP, Stage};
use super::quiet::{QUIET, QuietPeers};
use super::support::histogram::Histogram;
use super::support::{on_processor, spare_a_processor};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Through {
    /// One server, and all peers are its clients.
    OneRouter,
    /// A subscriber of flooding and of quiet publishers that is a client of quiet servers too: a lane for each.
    OwnLanes,
    /// A subscriber of flooding and of quiet publishers.
    Fanout,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Engine,
    Greedy,
}

#[derive(Debug, Clone)]
pub struct Scenario {
    pub through: Through,
    /// The payload of each flooder in bytes.
    pub flooders: Vec<usize>,
    pub quiet: u8,
    /// What the host takes for a message.
    pub each: Duration,
    pub config: Config,
}

impl Scenario {
    /// How often a quiet peer sends a message: all of theirs together never keep the host busy.
    fn message_every(&self) -> Duration {
        if self.each < Duration::from_millis(1) {
            Duration::from_millis(20)
        } else {
            Duration::from_millis(500)
        }
    }

    /// Records that each pipe holds: few large ones, so that they do not fill the memory.
    fn hwm(&self) -> u16 {
        let is_large = |bytes: &usize| *bytes > 1 << 16;
        match (self.flooders.iter().any(is_large), self.flooders.iter().all(is_large)) {
            (false, _) => 1_000,
            (true, false) => 100,
            (true, true) => 16,
        }
    }
}

/// What was seen, over all rounds of one end.
#[derive(Default, Clone)]
pub struct Outcome {
    pub round_trips: Histogram,
    pub unanswered: u64,
    pub delays: Histogram,
    pub turns: Histogram,
    pub lost_quiet: Vec<String>,
    pub lost_flooders: Vec<String>,
    /// Records of each flooder, and of each quiet peer.
    pub flooders: Vec<u64>,
    pub quiet: Vec<u64>,
    pub seconds: f64,
    /// For how long the host's thread ran, and waited for a processor.
    pub ran: Duration,
    pub waited: Duration,
    /// How often the flooders' shares were ended by records, bytes and time.
    pub capped: [u64; 3],
}

impl Outcome {
    pub fn merge(&mut self, other: &Self) {
        self.round_trips.merge(&other.round_trips);
        self.unanswered += other.unanswered;
        self.delays.merge(&other.delays);
        self.turns.merge(&other.turns);
        self.lost_quiet.extend(other.lost_quiet.iter().cloned());
        self.lost_flooders.extend(other.lost_flooders.iter().cloned());
        add(&mut self.flooders, &other.flooders);
        add(&mut self.quiet, &other.quiet);
        self.seconds += other.seconds;
        self.ran += other.ran;
        self.waited += other.waited;
        for (mine, theirs) in self.capped.iter_mut().zip(other.capped) {
            *mine += theirs;
        }
    }

    pub fn records_per_second(&self) -> f64 {
        self.flooders.iter().sum::<u64>() as f64 / self.seconds
    }
}

fn add(mine: &mut Vec<u64>, theirs: &[u64]) {
    mine.resize(theirs.len(), 0);
    for (mine, theirs) in mine.iter_mut().zip(theirs) {
        *mine += theirs;
    }
}

enum Flooded {
    Engine(Box<wakeful::Engine>),
    Greedy(Box<Greedy>),
}

/// Everything of a run, connected and not yet begun.
struct Scene {
    flooded: Flooded,
    flooders: Vec<Flooder>,
    quiet: QuietPeers,
    /// How many are to say that they are ready.
    awaited: usize,
}

pub fn run(scenario: &Scenario, end: End, span: Duration) -> Outcome {
    spare_a_processor();
    let hwm = scenario.hwm();
    let config = Config { queue_records_max: hwm, ..scenario.config.clone() };
    let hwm = i32::from(hwm);
    let scene = match scenario.through {
        Through::OneRouter => through_one_router(scenario, end, config, hwm),
        Through::OwnLanes | Through::Fanout => through_own_lanes(scenario, end, config, hwm),
    };
    watch(scenario, scene, span)
}

fn through_one_router(scenario: &Scenario, end: End, config: Config, hwm: i32) -> Scene {
    let (flooded, endpoint) = if end == End::Engine {
        let (engine, endpoint) = ends::engine_server(config);
        (Flooded::Engine(Box::new(engine)), endpoint)
    } else {
        let (greedy, endpoint) = Greedy::server(hwm);
        (Flooded::Greedy(Box::new(greedy)), endpoint)
    };
    let sizes = (0..).zip(&scenario.flooders);
    let flooders: Vec<_> =
        sizes.map(|(number, &bytes)| aside(|| Flooder::client(&endpoint, number, bytes, hwm))).collect();
    let quiet = aside(|| QuietPeers::clients(&endpoint, scenario.quiet, hwm));
    let awaited = flooders.len() + usize::from(scenario.quiet);
    Scene { flooded, flooders, quiet, awaited }
}

fn through_own_lanes(scenario: &Scenario, end: End, config: Config, hwm: i32) -> Scene {
    let sizes = (0..).zip(&scenario.flooders);
    let (flooders, mut publishers): (Vec<_>, Vec<_>) =
        sizes.map(|(number, &bytes)| aside(|| Flooder::publisher(number, bytes, hwm))).unzip();
    let has_servers = scenario.through == Through::OwnLanes;
    let (quiet, mut servers, quiet_publishers) = aside(|| QuietPeers::servers(scenario.quiet, hwm));
    publishers.extend(quiet_publishers);
    if !has_servers {
        servers.clear();
    }
    let awaited = publishers.len() + servers.len();
    let flooded = if end == End::Engine {
        Flooded::Engine(Box::new(ends::engine_dialler(config, &publishers, &servers)))
    } else {
        Flooded::Greedy(Box::new(Greedy::dialler(hwm, &publishers, &servers)))
    };
    Scene { flooded, flooders, quiet, awaited }
}

/// In a thread of its own, so that what a peer does to its thread stays with it.
fn aside<T: Send>(make: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(make).join().unwrap())
}

fn watch(scenario: &Scenario, scene: Scene, span: Duration) -> Outcome {
    let Scene { mut flooded, flooders, quiet, awaited } = scene;
    let stage = Stage::new();
    let begin = Instant::now();
    thread::scope(|scope| {
        let host = scope.spawn(|| {
            let mut work = Work::new(&stage, scenario.each);
            let before = on_processor();
            match &mut flooded {
                Flooded::Engine(engine) => ends::turn(engine, &mut work),
                Flooded::Greedy(greedy) => greedy.turn(&mut work),
            }
            let after = on_processor();
            (work, flooded, after.0 - before.0, after.1 - before.1)
        });
        let flooders: Vec<_> =
            flooders.into_iter().map(|flooder| scope.spawn(|| flooder.run(&stage))).collect();
        let quiet = scope.spawn(|| quiet.run(&stage, scenario.message_every()));
        stage.await_ready(awaited);
        stage.next(FLOOD);
        thread::sleep(span / 10);
        stage.next(MEASURE);
        thread::sleep(span);
        stage.next(STOP);

        let (work, flooded, ran, waited) = host.join().unwrap();
        let seen = quiet.join().unwrap();
        // The host's sockets go last: where both ends of a connection close at once in the middle of a record, libzmq 4.3.4
        // can abort (session_base.cpp:260).
        for flooder in flooders {
            flooder.join().unwrap();
        }
        let Work { served, delays, turns, lost: [lost_quiet, lost_flooders], .. } = work;
        Outcome {
            round_trips: seen.round_trips,
            unanswered: seen.unanswered,
            delays,
            turns,
            lost_quiet,
            lost_flooders,
            flooders: served[..scenario.flooders.len()].to_vec(),
            quiet: served[usize::from(QUIET)..][..usize::from(scenario.quiet)].to_vec(),
            seconds: begin.elapsed().as_secs_f64(),
            ran,
            waited,
            capped: match &flooded {
                Flooded::Engine(engine) => capped(&engine.snapshot()),
                Flooded::Greedy(_) => [0; 3],
            },
        }
    })
}

/// How often shares were ended by each cap. Nobody but a flooder comes near one.
fn capped(snapshot: &Snapshot) -> [u64; 3] {
    let connections = snapshot.connections.iter().map(|connection| connection.capped);
    let sources = snapshot.sources.iter().map(|source| source.capped);
    connections.chain(sources).fold([0; 3], |mut all, capped| {
        all.iter_mut().zip(capped).for_each(|(all, capped)| *all += u64::from(capped));
        all
    })
}
