//! The processes that embed the engine. Each says what it sees in one short line.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use wakeful::{
    ChannelName, Client, Completion, Config, Engine, Event, Generation, LostReason, MeshName, MeshNode,
    Outbox, Publisher, PublisherDescriptor, Rid, Server, Subscriber, Weight,
};

use crate::SERVER;

const CHANNEL: &str = "prices";
const MESH: &str = "compass";

/// Answers every request, until standard input ends.
pub fn server() -> Result<(), Box<dyn Error>> {
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
pub fn client(name: &str, endpoint: &str) -> Result<(), Box<dyn Error>> {
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

/// Tells its price ten times a second to whoever listens, until standard input ends.
pub fn publisher(name: &str) -> Result<(), Box<dyn Error>> {
    let channel = ChannelName::new(CHANNEL)?;
    let mut engine = Engine::new(Config::default())?;
    let endpoint = engine.broadcast(Publisher::new(channel.clone(), "tcp://127.0.0.1:0".parse()?))?;
    say(&format!("listens {}", endpoint.as_str()));

    let mut tenth = Instant::now();
    let guide_gone = input_ended();
    while !guide_gone.load(Ordering::Relaxed) {
        engine.wait(Some(Duration::from_millis(20)));
        engine.turn(&mut |event: Event<'_>, _: &mut Outbox<'_>| say_who(&event));
        if tenth.elapsed() >= Duration::from_millis(100) {
            tenth = Instant::now();
            engine.outbox().publish(&channel, name.as_bytes(), &[b"101.25"])?;
        }
    }
    Ok(())
}

/// Listens to publishers, each given by its name and then its endpoint, until standard input ends.
pub fn subscriber(publishers: &[&str]) -> Result<(), Box<dyn Error>> {
    let mut wish = Subscriber::new(ChannelName::new(CHANNEL)?).filter(b"");
    for pair in publishers.chunks_exact(2) {
        wish = wish.described_publisher(PublisherDescriptor {
            rid: Rid::new(pair[0])?,
            endpoint: pair[1].parse()?,
            generation: Generation::new(1)?,
        });
    }
    let mut engine = Engine::new(Config::default())?;
    engine.subscribe(wish)?;

    let mut heard: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    let mut second = Instant::now();
    let guide_gone = input_ended();
    while !guide_gone.load(Ordering::Relaxed) {
        engine.wait(Some(Duration::from_millis(20)));
        engine.turn(&mut |event: Event<'_>, _: &mut Outbox<'_>| match event {
            Event::Published { topic, .. } => *heard.entry(topic.to_vec()).or_default() += 1,
            other => say_who(&other),
        });
        if second.elapsed() >= Duration::from_secs(1) {
            second = Instant::now();
            for (topic, count) in &heard {
                say(&format!("heard {} {count}", String::from_utf8_lossy(topic)));
            }
        }
    }
    Ok(())
}

/// Is a node of the mesh, in the run of this number: asks the channel ten times a second and is one of those that answer
/// it, until standard input ends.
pub fn node(name: &str, run: &str, bind: &str, others: &[&str]) -> Result<(), Box<dyn Error>> {
    let (mesh, channel) = (MeshName::new(MESH)?, ChannelName::new(CHANNEL)?);
    let mut wish = MeshNode::new(mesh.clone(), Rid::new(name)?)
        .generation(Generation::new(run.parse()?)?)
        .listen(bind.parse()?, "tcp://127.0.0.1:0".parse()?)
        .serve(channel.clone(), Weight::new(100)?);
    for other in others {
        wish = wish.peer(other.parse()?);
    }
    let mut engine = Engine::new(Config::default())?;
    let bound = engine.join(wish)?.ok_or("it listens nowhere")?;
    say(&format!("listens {}", bound.application.as_str()));

    let mut asked = HashMap::new();
    // From whom how many answers came in this second, and how long the slowest took.
    let mut got: BTreeMap<Vec<u8>, (u32, Duration)> = BTreeMap::new();
    let (mut tenth, mut second) = (Instant::now(), Instant::now());
    let guide_gone = input_ended();
    while !guide_gone.load(Ordering::Relaxed) {
        engine.wait(Some(Duration::from_millis(20)));
        engine.turn(&mut |event: Event<'_>, outbox: &mut Outbox<'_>| match event {
            Event::Request { token, .. } => {
                let _ = outbox.reply(token, &[name.as_bytes()]);
            }
            Event::Completed { request, outcome } => {
                let took = asked.remove(&request).map_or(Duration::ZERO, |at: Instant| at.elapsed());
                if let Completion::Reply(parts) = outcome {
                    let (count, slowest) = got.entry(parts.get(0).unwrap_or_default().to_vec()).or_default();
                    *count += 1;
                    *slowest = took.max(*slowest);
                } else {
                    say("unanswered");
                }
            }
            Event::Ready { peer } => say(&format!("ready {} {}", peer.rid(), peer.generation())),
            other => say_who(&other),
        });
        if tenth.elapsed() >= Duration::from_millis(100) {
            tenth = Instant::now();
            let sent = engine.outbox().request((&mesh, &channel), &[b"price?"], Duration::from_secs(2));
            if let Ok(request) = sent {
                asked.insert(request, Instant::now());
            }
        }
        if second.elapsed() >= Duration::from_secs(1) {
            second = Instant::now();
            for (whom, (count, slowest)) in &mut got {
                say(&format!("got {} {count} {}", String::from_utf8_lossy(whom), slowest.as_millis()));
                (*count, *slowest) = (0, Duration::ZERO);
            }
        }
    }
    Ok(())
}

fn say_who(event: &Event<'_>) {
    match event {
        Event::Ready { peer } => say(&format!("ready {}", peer.rid())),
        Event::Missed { peer, asks } => say(&format!("missed {} {asks}", peer.rid())),
        Event::Lost { peer, reason } => say_lost(Some(peer.rid()), *reason),
        Event::PublisherReady { publisher } => say(&format!("ready {}", name(publisher.rid()))),
        Event::PublisherLost { publisher, reason } => say_lost(publisher.rid(), *reason),
        Event::Stalled { unwatched } => say(&format!("stalled {}", unwatched.as_millis())),
        _ => {}
    }
}

fn say_lost(whom: Option<&Rid>, reason: LostReason) {
    let reason = match reason {
        LostReason::Silence(_) => "silence".to_owned(),
        LostReason::Transport => "transport".to_owned(),
        LostReason::Rejected(_) => "rejected".to_owned(),
        other => format!("{other:?}"),
    };
    say(&format!("lost {} {reason}", name(whom)));
}

/// A publisher has no name but the one that its descriptor gives it.
fn name(rid: Option<&Rid>) -> String {
    rid.map_or_else(|| "somebody".to_owned(), Rid::to_string)
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
