//! A game's loop with the engine in it: 60 fixed steps a second, one turn in each, and what the turns cost.
//!
//! `cargo run --release --example game_loop`
//!
//! The game serves eight players, who are clients on another thread. Each asks for the world thirty times a second and
//! sends a move in between. The loop keeps its beat whatever they do, because a turn never waits.
#![allow(clippy::disallowed_methods, reason = "a host has its own clock")]

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use wakeful::{
    ChannelName, Client, Config, Endpoint, Engine, Event, Host, Inbox, Outbox, Owned, Rid, SendError, Server,
};

const STEP: Duration = Duration::from_nanos(1_000_000_000 / 60);
const STEPS: u32 = 5 * 60;
const PLAYERS: usize = 8;

fn main() -> Result<(), Box<dyn Error>> {
    let mut engine = Engine::new(Config::default())?;
    let bound = engine.serve(Server::new(
        ChannelName::new("world")?,
        Rid::new("game")?,
        "tcp://127.0.0.1:0".parse()?,
    ))?;
    let endpoint = Endpoint::try_from(&bound)?;

    let over = AtomicBool::new(false);
    let mut game = Game::default();
    let costs = thread::scope(|scope| {
        let players = scope.spawn(|| play(&endpoint, &over).map_err(|error| error.to_string()));
        let costs = game.run(&mut engine);
        over.store(true, Ordering::Relaxed);
        players.join().map_err(|_| "the players' thread died".to_owned())?.map(|()| costs)
    })?;
    game.report(costs);
    Ok(())
}

/// The host: what happens on the wire changes the world.
#[derive(Default)]
struct Game {
    tick: u64,
    moves: u64,
    answers: u64,
    late_steps: u32,
}

impl Host for Game {
    fn on_event(&mut self, event: Event<'_>, outbox: &mut Outbox<'_>) {
        match event {
            Event::Message { .. } => self.moves += 1,
            Event::Request { token, .. } => {
                let world = [self.tick.to_be_bytes(), self.moves.to_be_bytes()].concat();
                self.answers += u64::from(outbox.reply(token, &[&world]).is_ok());
            }
            _ => {}
        }
    }
}

impl Game {
    /// The fixed-step loop. Returns what the turn of each step cost.
    fn run(&mut self, engine: &mut Engine) -> Vec<Duration> {
        let mut costs = Vec::with_capacity(STEPS as usize);
        let mut next_step = Instant::now();
        for _ in 0..STEPS {
            let before = Instant::now();
            engine.turn(self);
            costs.push(before.elapsed());

            self.tick += 1; // Here the world would move and be drawn.

            next_step += STEP;
            match next_step.checked_duration_since(Instant::now()) {
                Some(rest) => thread::sleep(rest),
                None => self.late_steps += 1,
            }
        }
        costs
    }

    fn report(&self, mut costs: Vec<Duration>) {
        costs.sort_unstable();
        let at = |percent: usize| costs[(costs.len() - 1) * percent / 100].as_micros();
        println!("{STEPS} steps at 60 a second, {} of them late", self.late_steps);
        println!("{} moves taken and {} requests answered for {PLAYERS} players", self.moves, self.answers);
        println!(
            "a turn took min {}, median {}, p99 {}, max {} microseconds; a step has {}",
            at(0),
            at(50),
            at(99),
            at(100),
            STEP.as_micros()
        );
    }
}

/// The players, each with an engine of its own, until the game is over.
fn play(endpoint: &Endpoint, over: &AtomicBool) -> Result<(), Box<dyn Error>> {
    let world = ChannelName::new("world")?;
    let mut players = Vec::new();
    for number in 1..=PLAYERS {
        let mut engine = Engine::new(Config::default())?;
        let rid = Rid::new(format!("player-{number}"))?;
        engine.connect(Client::new(world.clone(), rid).server(endpoint.clone()))?;
        players.push((engine, Inbox::default()));
    }
    while !over.load(Ordering::Relaxed) {
        for (engine, inbox) in &mut players {
            engine.turn(inbox);
            if inbox.any(|event| matches!(event, Owned::Lost { .. })) {
                return Err("a player lost the game".into());
            }
            let mut outbox = engine.outbox();
            match outbox.send(&world, &[b"north"]) {
                // Not connected yet.
                Err(SendError::RouteNotConnected(_)) => continue,
                sent => sent?,
            }
            outbox.request(&world, &[b"look"], Duration::from_secs(1))?;
        }
        thread::sleep(Duration::from_millis(33));
    }
    Ok(())
}
