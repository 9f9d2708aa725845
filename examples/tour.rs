//! A tour of what this engine is for, in a minute: one server and four clients, each a process of its own, talk over
//! loopback TCP. Then a client freezes, the whole machine "sleeps", and a client is killed.
//!
//! `cargo run --release --example tour`
//!
//! This file is both the guide, which starts the other processes, freezes and kills them, and checks what they say, and
//! (under a hidden argument) those processes: see [`server`] and [`client`], which are all that embeds the engine.
#![allow(clippy::disallowed_methods, reason = "a host has its own clock")]

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitCode, Stdio, exit};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use std::{env, io, thread};

use rustix::process::{Pid, Signal, kill_process};
use wakeful::{
    ChannelName, Client, Completion, Config, Engine, Event, LostReason, Outbox, PEER_DEADLINE, Rid, Server,
};

const CHANNEL: &str = "prices";
const CLIENTS: [&str; 4] = ["anna", "ben", "carla", "dora"];
const SERVER: &str = "server";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments[..] {
        [] => guide(),
        ["as-server"] => server().map(|()| true),
        ["as-client", name, endpoint] => client(name, endpoint).map(|()| true),
        _ => Err("the tour takes no arguments".into()),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

// ---- The processes that embed the engine. Each says what it sees in one short line. ----

/// Answers every request, until standard input ends.
fn server() -> Result<(), Box<dyn Error>> {
    let mut engine = Engine::new(Config::default())?;
    let listening = "tcp://127.0.0.1:0".parse()?;
    let endpoint = engine.serve(Server::new(ChannelName::new(CHANNEL)?, Rid::new(SERVER)?, listening))?;
    say(&format!("listens {}", endpoint.as_str()));

    let mut messages = 0;
    let mut second = Instant::now();
    let guide_gone = input_ended();
    while !guide_gone.load(Ordering::Relaxed) {
        engine.wait(Some(Duration::from_millis(20)));
        engine.turn(&mut |event: Event<'_>, outbox: &mut Outbox<'_>| match event {
            Event::Message { .. } => messages += 1,
            Event::Request { token, .. } => {
                // If it cannot be sent now, its caller's time-out says so.
                let _ = outbox.reply(token, &[b"101.25"]);
            }
            other => say_who(&other),
        });
        if second.elapsed() >= Duration::from_secs(1) {
            second = Instant::now();
            say(&format!("messages {messages}"));
        }
    }
    Ok(())
}

/// Sends a message and a request ten times a second, until standard input ends.
fn client(name: &str, endpoint: &str) -> Result<(), Box<dyn Error>> {
    let channel = ChannelName::new(CHANNEL)?;
    let mut engine = Engine::new(Config::default())?;
    engine.connect(Client::new(channel.clone(), Rid::new(name)?).server(endpoint.parse()?))?;

    let (mut answered, mut slowest, mut asked_at) = (0, Duration::ZERO, None);
    let (mut tenth, mut second) = (Instant::now(), Instant::now());
    let guide_gone = input_ended();
    while !guide_gone.load(Ordering::Relaxed) {
        engine.wait(Some(Duration::from_millis(20)));
        engine.turn(&mut |event: Event<'_>, _: &mut Outbox<'_>| match event {
            Event::Completed { outcome, .. } => {
                let took = asked_at.take().map_or(Duration::ZERO, |at: Instant| at.elapsed());
                if let Completion::Reply(_) = outcome {
                    answered += 1;
                    slowest = slowest.max(took);
                }
            }
            other => say_who(&other),
        });
        if tenth.elapsed() >= Duration::from_millis(100) && asked_at.is_none() {
            tenth = Instant::now();
            let mut outbox = engine.outbox();
            // Where nobody is ready nothing is sent, and the next try comes in a moment.
            let _ = outbox.send(&channel, &[b"bid", b"100.75"]);
            if outbox.request(&channel, &[b"price?"], Duration::from_secs(2)).is_ok() {
                asked_at = Some(Instant::now());
            }
        }
        if second.elapsed() >= Duration::from_secs(1) {
            second = Instant::now();
            say(&format!("answered {answered} {}", slowest.as_millis()));
            slowest = Duration::ZERO;
        }
    }
    Ok(())
}

fn say_who(event: &Event<'_>) {
    match event {
        Event::Ready { peer } => say(&format!("ready {}", peer.rid())),
        Event::Missed { peer, asks } => say(&format!("missed {} {asks}", peer.rid())),
        Event::Lost { peer, reason } => {
            let reason = match reason {
                LostReason::Silence(_) => "silence".to_owned(),
                LostReason::Transport => "transport".to_owned(),
                LostReason::Rejected(_) => "rejected".to_owned(),
                other => format!("{other:?}"),
            };
            say(&format!("lost {} {reason}", peer.rid()));
        }
        Event::Stalled { unwatched } => say(&format!("stalled {}", unwatched.as_millis())),
        _ => {}
    }
}

fn say(line: &str) {
    // If the guide is gone, the end of the input says so next.
    let _ = writeln!(io::stdout(), "{line}");
}

/// Set once standard input has ended: the guide is gone, or wants this process to stop.
fn input_ended() -> Arc<AtomicBool> {
    let ended = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&ended);
    thread::spawn(move || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        flag.store(true, Ordering::Relaxed);
    });
    ended
}

// ---- The guide ----

/// Leads through the tour. Returns whether everything held.
fn guide() -> Result<bool, Box<dyn Error>> {
    let mut guide = Guide::new()?;
    guide.open()?;
    guide.freeze_a_client();
    guide.sleep_and_wake();
    guide.kill_a_client()?;
    println!();
    if guide.broken == 0 {
        println!("Everything held. It took {} s.", guide.began.elapsed().as_secs());
    } else {
        println!("{} of these did not hold.", guide.broken);
    }
    Ok(guide.broken == 0)
}

/// One line that a process said.
struct Said {
    who: String,
    words: Vec<String>,
    /// Since the act began.
    at: Duration,
}

impl Said {
    fn is(&self, who: &str, words: &[&str]) -> bool {
        self.who == who && self.words.iter().map(String::as_str).eq(words.iter().copied())
    }

    fn verb(&self) -> &str {
        &self.words[0]
    }

    /// Whether this tells of trouble between two processes.
    fn is_accusation(&self) -> bool {
        matches!(self.verb(), "missed" | "lost")
    }

    /// Whether this tells of a stall longer than the deadline, but for the second that its process vouches for.
    fn slept_through(&self) -> bool {
        let millis = self.words.get(1).and_then(|millis| millis.parse().ok()).map(Duration::from_millis);
        self.verb() == "stalled" && millis.is_some_and(|span| span >= PEER_DEADLINE)
    }

    fn concerns(&self, name: &str) -> bool {
        self.who == name || self.words.get(1).is_some_and(|whom| whom == name)
    }
}

struct Guide {
    began: Instant,
    act: Instant,
    processes: BTreeMap<String, Child>,
    ear: Sender<(String, String)>,
    lines: Receiver<(String, String)>,
    /// All that was said in this act.
    said: Vec<Said>,
    endpoint: String,
    interrupted: Arc<AtomicBool>,
    broken: u32,
}

impl Guide {
    fn new() -> Result<Self, Box<dyn Error>> {
        let interrupted = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&interrupted))?;
        let (ear, lines) = mpsc::channel();
        let now = Instant::now();
        Ok(Self {
            began: now,
            act: now,
            processes: BTreeMap::new(),
            ear,
            lines,
            said: Vec::new(),
            endpoint: String::new(),
            interrupted,
            broken: 0,
        })
    }

    fn open(&mut self) -> Result<(), Box<dyn Error>> {
        println!("One server and four clients, each a process of its own, on loopback TCP.");
        println!("Each client sends a message and a request ten times a second.");
        self.begin("They meet");
        self.start(SERVER, &["as-server"])?;
        self.wait_until(10, |said| said.verb() == "listens");
        let heard = self.said.iter().find(|said| said.verb() == "listens");
        self.endpoint =
            heard.and_then(|said| said.words.get(1).cloned()).ok_or("the server does not listen")?;
        for name in CLIENTS {
            self.start_client(name)?;
        }
        for name in CLIENTS {
            self.wait_until(10, |said| said.is(SERVER, &["ready", name]));
        }
        self.watch(Duration::from_secs(3));
        let all_ready = CLIENTS.iter().all(|name| self.heard(SERVER, &["ready", name]).is_some());
        self.check(all_ready, "all four are ready");
        self.check(CLIENTS.iter().all(|name| self.was_served(name)), "every client's requests are answered");
        Ok(())
    }

    fn freeze_a_client(&mut self) {
        self.begin("A client freezes");
        println!("ben is stopped in the middle of his work (SIGSTOP). His connection stays open, so nothing");
        println!("tells the server but his silence. It asks every 5 s, and waits 15 s after an answer.");
        self.signal("ben", Signal::STOP);
        let lost = self.wait_until(20, |said| said.is(SERVER, &["lost", "ben", "silence"]));
        let warned = ["1", "2"].iter().all(|asks| self.heard(SERVER, &["missed", "ben", asks]).is_some());
        self.check(warned, "two early warnings came first");
        // His last answer came at most one interval before he froze.
        let in_time = lost.is_some_and(|at| (9.5..16.0).contains(&at.as_secs_f64()));
        self.check(in_time, "then the verdict, 15 s after his last answer");
        let unharmed = self.are_unharmed(&["anna", "carla", "dora"]);
        self.check(unharmed, "the others never wavered: no warning, and an answer each second");

        println!("  ben goes on (SIGCONT).");
        let from = self.act.elapsed();
        self.signal("ben", Signal::CONT);
        let back = self.wait_until(10, |said| said.at > from && said.is(SERVER, &["ready", "ben"]));
        self.check(back.is_some(), "he is told that he was given up, and is back");
        let blamed =
            self.said.iter().any(|said| said.who == "ben" && said.words.contains(&"silence".to_owned()));
        self.check(!blamed, "he blames nobody for the time that he slept through");
    }

    fn sleep_and_wake(&mut self) {
        self.begin("The machine sleeps");
        println!("All five stop at once for 17 s, as when a laptop's lid is closed. By the clock every one");
        println!("of them is then silent for longer than 15 s. But nobody is awake to watch it.");
        let everyone: Vec<String> = self.processes.keys().cloned().collect();
        self.signal_all(&everyone, Signal::STOP);
        self.watch(PEER_DEADLINE + Duration::from_secs(2));
        println!("  They wake.");
        let woke = self.act.elapsed();
        self.signal_all(&everyone, Signal::CONT);
        // Longer than an interval, so that everybody has asked everybody again.
        self.watch(Duration::from_secs(6));
        let accused = self.said.iter().any(Said::is_accusation);
        self.check(!accused, "nobody was accused, nobody was lost, nobody had to connect anew");
        // A short stall of a busy machine would be told in the same words.
        let stalls =
            |name: &str| self.said.iter().filter(|said| said.who == name && said.slept_through()).count();
        let stalled_once = everyone.iter().all(|name| stalls(name) == 1);
        let is_served = |said: &Said| said.at > woke && said.verb() == "answered";
        let all_served =
            CLIENTS.iter().all(|name| self.said.iter().any(|said| said.who == *name && is_served(said)));
        self.check(stalled_once, "each has one record of its own long stall");
        self.check(all_served, "and the work goes on");
    }

    fn kill_a_client(&mut self) -> Result<(), Box<dyn Error>> {
        self.begin("A client is killed");
        println!("dora is killed (SIGKILL). The system closes her connection, so no deadline is needed.");
        self.signal("dora", Signal::KILL);
        let lost = self.wait_until(5, |said| said.is(SERVER, &["lost", "dora", "transport"]));
        self.check(lost.is_some_and(|at| at < Duration::from_secs(1)), "the server knows at once");
        if let Some(mut dora) = self.processes.remove("dora") {
            dora.wait()?;
        }
        let from = self.act.elapsed();
        self.start_client("dora")?;
        let ready = self.wait_until(10, |said| said.at > from && said.is(SERVER, &["ready", "dora"]));
        self.check(ready.is_some(), "her successor, under the same name, takes her place");
        self.watch(Duration::from_secs(2));
        let unharmed = self.are_unharmed(&["anna", "ben", "carla"]);
        self.check(unharmed, "the others never noticed");
        Ok(())
    }

    // ---- How the guide starts, signals and hears the processes ----

    fn begin(&mut self, title: &str) {
        println!("\n== {title}");
        self.act = Instant::now();
        self.said.clear();
    }

    fn start(&mut self, name: &str, arguments: &[&str]) -> Result<(), Box<dyn Error>> {
        let mut process = Command::new(env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = process.stdout.take().ok_or("no standard output")?;
        self.processes.insert(name.to_owned(), process);
        let (name, ear) = (name.to_owned(), self.ear.clone());
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if ear.send((name.clone(), line)).is_err() {
                    return;
                }
            }
        });
        Ok(())
    }

    fn start_client(&mut self, name: &str) -> Result<(), Box<dyn Error>> {
        let endpoint = self.endpoint.clone();
        self.start(name, &["as-client", name, &endpoint])
    }

    fn signal(&self, name: &str, signal: Signal) {
        let sent = self.processes.get(name).is_some_and(|process| {
            i32::try_from(process.id())
                .ok()
                .and_then(Pid::from_raw)
                .is_some_and(|pid| kill_process(pid, signal).is_ok())
        });
        assert!(sent, "{name} takes no signal");
    }

    fn signal_all(&self, names: &[String], signal: Signal) {
        for name in names {
            self.signal(name, signal);
        }
    }

    /// Listens for so long.
    fn watch(&mut self, span: Duration) {
        self.listen(span, |_| false);
    }

    /// Listens until something is said, at most so many seconds. Returns when it was said, in this act.
    fn wait_until(&mut self, seconds: u64, wanted: impl Fn(&Said) -> bool) -> Option<Duration> {
        if let Some(said) = self.said.iter().find(|said| wanted(said)) {
            return Some(said.at);
        }
        self.listen(Duration::from_secs(seconds), wanted)
    }

    fn listen(&mut self, span: Duration, wanted: impl Fn(&Said) -> bool) -> Option<Duration> {
        let end = Instant::now() + span;
        let mut progress = Instant::now() + Duration::from_secs(3);
        loop {
            let now = Instant::now();
            if self.interrupted.load(Ordering::Relaxed) {
                self.end_processes();
                exit(130);
            }
            if now >= end {
                return None;
            }
            if now >= progress {
                progress = now + Duration::from_secs(3);
                self.tell_progress();
            }
            let patience = end.min(progress) - now;
            let (who, line) = match self.lines.recv_timeout(patience.min(Duration::from_millis(200))) {
                Ok(heard) => heard,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => continue,
            };
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            if words.is_empty() {
                continue;
            }
            let said = Said { who, words, at: self.act.elapsed() };
            narrate(&said);
            let at = wanted(&said).then_some(said.at);
            self.said.push(said);
            if at.is_some() {
                return at;
            }
        }
    }

    fn tell_progress(&self) {
        let newest = |who: &str, verb: &str| {
            let mut lines = self.said.iter().rev().filter(|said| said.who == who && said.verb() == verb);
            lines.next().and_then(|said| said.words[1].parse::<u64>().ok()).unwrap_or(0)
        };
        let requests: u64 = CLIENTS.iter().map(|name| newest(name, "answered")).sum();
        let messages = newest(SERVER, "messages");
        let seconds = self.act.elapsed().as_secs();
        if requests == 0 {
            println!("  {seconds:>3} s      ... nobody says anything");
        } else {
            println!(
                "  {seconds:>3} s      ... so far {messages} messages taken and {requests} requests answered"
            );
        }
    }

    /// When this was first said in this act.
    fn heard(&self, who: &str, words: &[&str]) -> Option<Duration> {
        self.said.iter().find(|said| said.is(who, words)).map(|said| said.at)
    }

    /// Whether a client got answers all through this act, each within a second.
    fn was_served(&self, name: &str) -> bool {
        let number = |word: &String| word.parse::<u64>().unwrap_or(0);
        let mine = self.said.iter().filter(|said| said.who == name && said.verb() == "answered");
        let counts: Vec<(u64, u64)> =
            mine.map(|said| (number(&said.words[1]), number(&said.words[2]))).collect();
        let rises = counts.windows(2).all(|pair| pair[0].0 < pair[1].0);
        !counts.is_empty() && rises && counts.iter().all(|(_, slowest)| *slowest < 1000)
    }

    /// Whether these clients were served, and neither accused nor accusing.
    fn are_unharmed(&self, names: &[&str]) -> bool {
        let troubled = |name: &str| self.said.iter().any(|said| said.is_accusation() && said.concerns(name));
        names.iter().all(|name| self.was_served(name) && !troubled(name))
    }

    /// Leaves no process behind, frozen or not.
    fn end_processes(&mut self) {
        for process in self.processes.values_mut() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    fn check(&mut self, holds: bool, what: &str) {
        println!("  [{}] {what}", if holds { "ok" } else { "BROKEN" });
        self.broken += u32::from(!holds);
    }
}

impl Drop for Guide {
    fn drop(&mut self) {
        self.end_processes();
    }
}

/// What a process said, in words for people.
fn narrate(said: &Said) {
    let words: Vec<&str> = said.words.iter().map(String::as_str).collect();
    let line = match words[..] {
        ["listens", endpoint] => format!("listens at {endpoint}"),
        ["ready", whom] => format!("{whom} is ready"),
        ["missed", whom, "1"] => format!("early warning: {whom} left a question unanswered for 5 s"),
        ["missed", whom, asks] => format!("early warning: {whom} has now left {asks} questions unanswered"),
        ["lost", whom, "silence"] => format!("verdict: {whom} is lost, for silence"),
        ["lost", whom, "transport"] => format!("{whom} is lost: the connection broke"),
        ["lost", whom, "rejected"] => format!("{whom} says that it has given me up; I connect anew"),
        ["lost", whom, reason] => format!("{whom} is lost: {reason}"),
        ["stalled", millis] => format!("I was not running for {millis} ms, and hold that against nobody"),
        _ => return,
    };
    println!("  {:>5.1} s  {}: {line}", said.at.as_secs_f64(), said.who);
}
