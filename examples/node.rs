//! A node that anyone can run, and any program can drive: flags in, one JSON object a line out, commands on standard
//! input. Flags, lines and commands are a contract.
//!
//! ```text
//! cargo run --example node -- server --channel orders --bind tcp://127.0.0.1:5555 --echo
//! cargo run --example node -- client --channel orders --connect tcp://127.0.0.1:5555 --request hello --every 500
//! ```
// ci: server --channel orders --bind tcp://127.0.0.1:0 --for 2 --report 500
#![allow(clippy::disallowed_methods, reason = "a host has its own clock")]

use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use clap::error::ErrorKind as FlagError;
use clap::{Args, CommandFactory, Parser, Subcommand};
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use wakeful::{
    BindEndpoint, ChannelName, Client, Completion, Config, Endpoint, Engine, ErrorKind, Event, Failure,
    Generation, Host, LastFailure, LostReason, Outbox, Parts, Peer, Pressure, ReplyToken, Rid, SendError,
    Server, Snapshot, Weight,
};

/// The longest sleep of the loop, and so the longest that a command or a signal waits.
const RESPONSE_MAX: Duration = Duration::from_millis(50);
/// The sleep before a send that found no room is tried again.
const ROOM_PAUSE: Duration = Duration::from_millis(1);
/// Requests that a flood sends between two turns.
const FLOOD_PER_TURN: usize = 64;

// ---- Flags ----

/// A node of a `wakeful` channel: one JSON object a line on standard output, commands on standard input
/// (drain, pause, run, weight CHANNEL N, snapshot, stop).
#[derive(Parser)]
#[command(name = "node", arg_required_else_help = false)]
struct Flags {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Serves a ClientServer channel.
    Server(ServerFlags),
    /// Is a client of a ClientServer channel.
    Client(ClientFlags),
}

#[derive(Args)]
struct ServerFlags {
    /// The channel's name.
    #[arg(long)]
    channel: ChannelName,
    /// Where to listen: tcp:// with a literal IP address and a port (0 or * for any), or ipc:// with a path.
    #[arg(long, value_name = "EP")]
    bind: BindEndpoint,
    /// The node's routing id [default: server- and the process id].
    #[arg(long)]
    rid: Option<Rid>,
    /// The lifecycle generation, any number but 0: another one for each run [default: drawn at random].
    #[arg(long, value_name = "N", value_parser = generation)]
    generation: Option<Generation>,
    /// Answer each request with its own parts; without it a request is declined.
    #[arg(long)]
    echo: bool,
    #[command(flatten)]
    common: CommonFlags,
}

#[derive(Args)]
struct ClientFlags {
    /// The channel's name.
    #[arg(long)]
    channel: ChannelName,
    /// A server of the channel; may be given several times.
    #[arg(long, value_name = "EP", required = true)]
    connect: Vec<Endpoint>,
    /// The node's routing id [default: client- and the process id].
    #[arg(long)]
    rid: Option<Rid>,
    /// Send this request again and again.
    #[arg(long, value_name = "TEXT")]
    request: Option<String>,
    /// Milliseconds from one request to the next.
    #[arg(long, value_name = "MS", default_value = "1000", requires = "request", value_parser = millis())]
    every: u64,
    /// Milliseconds that a request waits for its reply.
    #[arg(long, value_name = "MS", default_value = "5000", value_parser = millis())]
    timeout: u64,
    #[command(flatten)]
    common: CommonFlags,
}

#[derive(Args)]
struct CommonFlags {
    /// Stop after so many seconds.
    #[arg(long = "for", value_name = "SECONDS", value_parser = millis())]
    seconds: Option<u64>,
    /// Print a snapshot every so many milliseconds.
    #[arg(long, value_name = "MS", value_parser = millis())]
    report: Option<u64>,
    /// Send without a pause.
    #[arg(long)]
    flood: bool,
    /// Sleep so many milliseconds over each record received.
    #[arg(long, value_name = "MS", default_value = "0")]
    slow: u64,
}

/// A span that is not zero, and short enough that no sum of times overflows.
fn millis() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=u64::from(u32::MAX))
}

fn generation(text: &str) -> Result<Generation, String> {
    let number = text.parse().map_err(|_| "it takes a whole number".to_owned())?;
    Generation::new(number).map_err(|error| error.to_string())
}

/// The flags, or what is wrong with them.
fn flags() -> Result<Flags, clap::Error> {
    let flags = Flags::try_parse()?;
    let flood_of_nothing = match &flags.role {
        Role::Server(server) => server.common.flood,
        Role::Client(client) => client.common.flood && client.request.is_none(),
    };
    if flood_of_nothing {
        let what = "--flood needs something to send: a client's --request";
        return Err(Flags::command().error(FlagError::MissingRequiredArgument, what));
    }
    Ok(flags)
}

/// What clap says over several lines, in one.
fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let what = text.split("\n\nUsage:").next().unwrap_or_default();
    let what = what.split("\n\nFor more information").next().unwrap_or_default();
    what.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn main() -> ExitCode {
    let flags = match flags() {
        Ok(flags) => flags,
        Err(error) if !error.use_stderr() => {
            print!("{error}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{}", one_line(&error));
            return ExitCode::from(2);
        }
    };
    match run(flags.role) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

// ---- The loop ----

fn run(role: Role) -> Result<(), Box<dyn std::error::Error>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let commands = read_commands();
    let mut engine = Engine::new(Config::default())?;
    let (mut node, common) = match role {
        Role::Server(flags) => serve(&mut engine, flags)?,
        Role::Client(flags) => connect(&mut engine, flags)?,
    };
    let began = node.lines.began;
    let end = common.seconds.map(|seconds| began + Duration::from_secs(seconds));
    let mut report = common.report.map(|every| Pace::new(began, every));

    while !stop.load(Ordering::Relaxed) && !node.lines.closed {
        for command in commands.try_iter() {
            if obey(&command, &mut engine, &mut node.lines) {
                stop.store(true, Ordering::Relaxed);
            }
        }
        let now = Instant::now();
        if end.is_some_and(|end| now >= end) {
            break;
        }
        if report.as_mut().is_some_and(|pace| pace.is_due(now)) {
            node.lines.snapshot(&engine.snapshot());
        }
        node.answer_left(&mut engine.outbox());
        node.ask(&mut engine.outbox(), now);

        let timers = [end, report.as_ref().map(|pace| pace.next), node.asks.as_ref().and_then(Asks::next)];
        let next = timers.into_iter().flatten().min().map_or(RESPONSE_MAX, |at| at.duration_since(now));
        engine.wait(Some(next.min(node.sleep_max())));
        engine.turn(&mut node);
    }
    engine.stop(&mut node);
    node.lines.print("stopped", json!({}));
    Ok(())
}

fn serve(engine: &mut Engine, flags: ServerFlags) -> Result<(Node, CommonFlags), Box<dyn std::error::Error>> {
    let mut node = Node::new(&flags.common);
    node.echo = flags.echo;
    let rid = flags.rid.map_or_else(|| own_rid("server"), Ok)?;
    let mut server = Server::new(flags.channel.clone(), rid.clone(), flags.bind);
    if let Some(generation) = flags.generation {
        server = server.generation(generation);
    }
    let endpoint = engine.serve(server)?;
    let line = json!({
        "topology": "ClientServer", "name": flags.channel.as_str(), "rid": rid_text(&rid),
        "endpoint": endpoint.as_str(), "completion": null,
    });
    node.lines.print("listening", line);
    Ok((node, flags.common))
}

fn connect(
    engine: &mut Engine,
    flags: ClientFlags,
) -> Result<(Node, CommonFlags), Box<dyn std::error::Error>> {
    let mut node = Node::new(&flags.common);
    let rid = flags.rid.map_or_else(|| own_rid("client"), Ok)?;
    let client = Client::new(flags.channel.clone(), rid);
    engine.connect(flags.connect.into_iter().fold(client, Client::server))?;
    node.asks = flags.request.map(|text| Asks {
        channel: flags.channel,
        text,
        timeout: Duration::from_millis(flags.timeout),
        pace: (!flags.common.flood).then(|| Pace::new(node.lines.began, flags.every)),
        refused: None,
    });
    Ok((node, flags.common))
}

fn own_rid(role: &str) -> Result<Rid, wakeful::NameError> {
    Rid::new(format!("{role}-{}", std::process::id()))
}

/// A point in time that comes again and again. Points that were missed are skipped.
struct Pace {
    next: Instant,
    every: Duration,
}

impl Pace {
    fn new(began: Instant, every: u64) -> Self {
        let every = Duration::from_millis(every);
        Self { next: began + every, every }
    }

    fn is_due(&mut self, now: Instant) -> bool {
        if now < self.next {
            return false;
        }
        self.next += self.every;
        if self.next <= now {
            self.next = now + self.every;
        }
        true
    }
}

// ---- Commands ----

/// Reads standard input on a thread of its own, because reading it may block. Its end is no command to stop.
fn read_commands() -> Receiver<String> {
    let (sender, commands) = mpsc::channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    commands
}

/// Does what a command says. Returns whether it says to stop.
fn obey(command: &str, engine: &mut Engine, lines: &mut Lines) -> bool {
    let words: Vec<&str> = command.split_whitespace().collect();
    match words[..] {
        [] => {}
        ["stop"] => return true,
        ["drain"] => engine.drain(true),
        ["snapshot"] => lines.snapshot(&engine.snapshot()),
        ["weight", channel, weight] => {
            if let Err(what) = set_weight(engine, channel, weight) {
                eprintln!("weight: {what}");
            }
        }
        ["pause"] => engine.outbox().set_pressure(Pressure::Paused),
        ["run"] => engine.outbox().set_pressure(Pressure::Running),
        _ => eprintln!(
            "{command}: no such command; there are drain, pause, run, weight CHANNEL N, snapshot and stop"
        ),
    }
    false
}

fn set_weight(engine: &mut Engine, channel: &str, weight: &str) -> Result<(), String> {
    let name = ChannelName::new(channel).map_err(|error| error.to_string())?;
    let number = weight.parse().map_err(|_| format!("{weight} is no number from 0 to 10000"))?;
    let weight = Weight::new(number).map_err(|error| error.to_string())?;
    if engine.outbox().set_weight(&name, weight) {
        return Ok(());
    }
    Err(format!("no server of channel {channel} is here"))
}

// ---- The host ----

/// What the engine's events act on.
struct Node {
    lines: Lines,
    echo: bool,
    slow: Duration,
    asks: Option<Asks>,
    /// Answers that found no room; they are tried again before each turn.
    unsent: Vec<(ReplyToken, Vec<Vec<u8>>)>,
}

/// A client's requests.
struct Asks {
    channel: ChannelName,
    text: String,
    timeout: Duration,
    /// None in a flood.
    pace: Option<Pace>,
    /// Why the last one could not be sent.
    refused: Option<SendError>,
}

impl Asks {
    /// Whether a failure is worth a word: not one that the last request met too, nor the limits that a flood runs into.
    fn is_news(&self, error: SendError) -> bool {
        let is_limit = matches!(error, SendError::WouldBlock | SendError::TooManyRequests);
        self.refused != Some(error) && !(is_limit && self.pace.is_none())
    }

    fn next(&self) -> Option<Instant> {
        self.pace.as_ref().map(|pace| pace.next)
    }
}

impl Node {
    fn new(common: &CommonFlags) -> Self {
        Self {
            lines: Lines { began: Instant::now(), closed: false },
            echo: false,
            slow: Duration::from_millis(common.slow),
            asks: None,
            unsent: Vec::new(),
        }
    }

    /// How long the loop may sleep for all that waits here.
    fn sleep_max(&self) -> Duration {
        let flood = self.asks.as_ref().filter(|asks| asks.pace.is_none());
        match flood.map(|asks| asks.refused) {
            Some(None) => Duration::ZERO,
            // No descriptor tells when there is room again.
            Some(Some(SendError::WouldBlock)) => ROOM_PAUSE,
            _ if !self.unsent.is_empty() => ROOM_PAUSE,
            _ => RESPONSE_MAX,
        }
    }

    /// Sends the requests that are due.
    fn ask(&mut self, outbox: &mut Outbox<'_>, now: Instant) {
        let Some(asks) = &mut self.asks else { return };
        let due = asks.pace.as_mut().map_or(FLOOD_PER_TURN, |pace| usize::from(pace.is_due(now)));
        for _ in 0..due {
            let refused = outbox.request(&asks.channel, &[asks.text.as_bytes()], asks.timeout).err();
            if let Some(error) = refused.filter(|error| asks.is_news(*error)) {
                eprintln!("the request was not sent: {error}");
            }
            asks.refused = refused;
            if refused.is_some() {
                break;
            }
        }
    }

    fn answer(&mut self, token: ReplyToken, parts: Vec<Vec<u8>>, outbox: &mut Outbox<'_>) {
        let sent = if self.echo {
            let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            outbox.reply(token, &parts)
        } else {
            outbox.decline(token, ErrorKind::NotConfigured)
        };
        match sent {
            Err(SendError::WouldBlock) => self.unsent.push((token, parts)),
            Err(SendError::TooLarge { .. }) => {
                eprintln!("a reply was not sent: its caller takes none so large");
            }
            // The caller is gone, and nobody waits for the answer.
            Ok(()) | Err(_) => {}
        }
    }

    fn answer_left(&mut self, outbox: &mut Outbox<'_>) {
        for (token, parts) in std::mem::take(&mut self.unsent) {
            self.answer(token, parts, outbox);
        }
    }
}

impl Host for Node {
    fn on_event(&mut self, event: Event<'_>, outbox: &mut Outbox<'_>) {
        let lines = &mut self.lines;
        match event {
            Event::Admitted { peer } => lines.peer("admitted", peer, json!({})),
            Event::Ready { peer } => lines.peer("ready", peer, json!({})),
            Event::Missed { peer, asks } => lines.peer("missed", peer, json!({ "asks": asks })),
            Event::Lost { peer, reason } => lines.peer("lost", peer, json!({ "reason": lost(reason) })),
            Event::Failed { channel, endpoint, failure } => {
                let line = json!({
                    "topology": "ClientServer", "name": channel.as_str(), "rid": null,
                    "endpoint": endpoint.as_str(), "reason": failed(failure),
                });
                lines.print("refused", line);
            }
            Event::Message { peer, parts } => {
                thread::sleep(self.slow);
                lines.peer("message", peer, json!({ "parts": texts(parts) }));
            }
            Event::Request { peer, parts, token } => {
                thread::sleep(self.slow);
                lines.peer("request", peer, json!({ "parts": texts(parts) }));
                self.answer(token, parts.iter().map(<[u8]>::to_vec).collect(), outbox);
            }
            Event::Completed { outcome, .. } => {
                let (outcome, parts) = match outcome {
                    Completion::Reply(parts) => {
                        thread::sleep(self.slow);
                        ("Reply".to_owned(), texts(parts))
                    }
                    Completion::Declined(kind) => (format!("{kind:?}"), Vec::new()),
                    Completion::Unanswered(why) => (format!("{why:?}"), Vec::new()),
                    _ => ("Unknown".to_owned(), Vec::new()),
                };
                lines.print("completed", json!({ "outcome": outcome, "parts": parts }));
            }
            Event::Stalled { unwatched } => {
                lines.print("stall", json!({ "unwatched_ms": whole_ms(unwatched) }));
            }
            _ => {}
        }
    }
}

// ---- Lines ----

/// Standard output, one JSON object a line, flushed.
struct Lines {
    began: Instant,
    /// Nobody reads them any more.
    closed: bool,
}

impl Lines {
    fn print(&mut self, event: &str, mut line: Value) {
        line["at_ms"] = whole_ms(self.began.elapsed());
        line["event"] = event.into();
        let mut out = io::stdout().lock();
        self.closed |= writeln!(out, "{line}").and_then(|()| out.flush()).is_err();
    }

    fn peer(&mut self, event: &str, peer: &Peer, mut line: Value) {
        line["topology"] = "ClientServer".into();
        line["name"] = peer.channel().as_str().into();
        line["rid"] = rid_text(peer.rid());
        self.print(event, line);
    }

    fn snapshot(&mut self, seen: &Snapshot) {
        let intents = seen.intents.iter().map(|intent| {
            json!({
                "name": intent.channel.as_str(), "endpoint": intent.endpoint.as_str(),
                "state": format!("{:?}", intent.state), "last_failure": intent.last_failure.map(ended),
            })
        });
        let servers = seen
            .servers
            .iter()
            .map(|server| json!({ "name": server.channel.as_str(), "endpoint": server.bound.as_str() }));
        let connections = seen.connections.iter().map(|each| {
            json!({
                "topology": "ClientServer", "name": each.peer.channel().as_str(), "rid": rid_text(each.peer.rid()),
                "state": format!("{:?}", each.state), "last_received_ms": each.last_received.map(whole_ms),
                "served": each.served, "held": each.held, "capped": each.capped,
            })
        });
        let counted = &seen.counters;
        let line = json!({
            "host": format!("{:?}", seen.host), "pressure": format!("{:?}", seen.pressure), "stalls": seen.stalls, "unwatched_ms": whole_ms(seen.unwatched),
            "longest_gap_ms": whole_ms(seen.longest_gap), "intents": intents.collect::<Vec<_>>(),
            "servers": servers.collect::<Vec<_>>(), "connections": connections.collect::<Vec<_>>(),
            "fenced_open": seen.fenced_open, "unadmitted": seen.unadmitted, "requests": seen.requests,
            "replies": seen.replies, "contexts": seen.contexts,
            "counters": {
                "late_replies": counted.late_replies, "misdirected": counted.misdirected,
                "unadmitted": counted.unadmitted, "protocol_errors": counted.protocol_errors,
                "refused": counted.refused,
            },
        });
        self.print("snapshot", line);
    }
}

/// Why a connection ended, by the name that the API gives it.
fn lost(reason: LostReason) -> String {
    match reason {
        LostReason::Silence(silence) => format!("{silence:?}"),
        LostReason::Rejected(reason) => reason.to_string(),
        other => format!("{other:?}"),
    }
}

/// Why an attempt failed: as WIRE.md names it where a node refused, otherwise as the API does.
fn failed(failure: Failure) -> String {
    match failure {
        Failure::Refused(reason) | Failure::Unexpected(reason) => reason.to_string(),
        other => format!("{other:?}"),
    }
}

/// How the last attempt or connection ended; the engine may come to tell more kinds apart.
fn ended(end: LastFailure) -> String {
    match end {
        LastFailure::Failed(failure) => failed(failure),
        LastFailure::Lost(reason) => lost(reason),
        other => format!("{other:?}"),
    }
}

fn rid_text(rid: &Rid) -> Value {
    String::from_utf8_lossy(rid.as_bytes()).into()
}

fn texts(parts: Parts<'_>) -> Vec<String> {
    parts.iter().map(|part| String::from_utf8_lossy(part).into_owned()).collect()
}

fn whole_ms(span: Duration) -> Value {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX).into()
}
