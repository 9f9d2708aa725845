//! The host: what it sends, and what it does about each event.

use std::collections::{BTreeMap, VecDeque};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use wakeful::{
    ChannelName, Completion, ConnectionId, ErrorKind, Event, Host, MeshName, Outbox, ReplyToken, SendError,
    Target,
};

use crate::flags::{CommonFlags, Publication};
use crate::lines::{Lines, failed, lost, texts, whole_ms};
use crate::pace::Pace;

/// The longest sleep of the loop, and so the longest that a command or a signal waits.
pub const RESPONSE_MAX: Duration = Duration::from_millis(50);
/// The sleep before a send that found no room is tried again.
const ROOM_PAUSE: Duration = Duration::from_millis(1);
/// What a flood sends between two turns.
const FLOOD_PER_TURN: usize = 64;

/// What the engine's events act on.
pub struct Node {
    pub lines: Lines,
    pub echo: bool,
    slow: Duration,
    pub sends: Vec<Sends>,
    /// Answers that found no room; they are tried again before each turn.
    unsent: BTreeMap<ConnectionId, VecDeque<Answer>>,
}

/// What a caller is owed.
struct Answer {
    token: ReplyToken,
    parts: Vec<Vec<u8>>,
}

impl Answer {
    /// Whether it is done with: sent, or of no use to anybody any more.
    fn send(&self, echo: bool, outbox: &mut Outbox<'_>) -> bool {
        let sent = if echo {
            let parts: Vec<&[u8]> = self.parts.iter().map(Vec::as_slice).collect();
            outbox.reply(self.token, &parts)
        } else {
            outbox.decline(self.token, ErrorKind::NotConfigured)
        };
        if let Err(SendError::TooLarge { .. }) = sent {
            eprintln!("a reply was not sent: its caller takes none so large");
        }
        // In any other case of an error the caller is gone, and nobody waits for the answer.
        sent != Err(SendError::WouldBlock)
    }
}

/// What is sent again and again.
pub struct Sends {
    /// The mesh whose channel it is.
    mesh: Option<MeshName>,
    channel: ChannelName,
    what: Sent,
    /// None in a flood.
    pace: Option<Pace>,
    /// Why the last one could not be sent.
    refused: Option<SendError>,
}

pub enum Sent {
    Message(String),
    Request { text: String, timeout: Duration },
    Record(Publication),
}

impl Sends {
    pub fn new(channel: ChannelName, what: Sent, pace: Option<Pace>) -> Self {
        Self { mesh: None, channel, what, pace, refused: None }
    }

    /// The same to a channel of a mesh.
    pub fn across(self, mesh: MeshName) -> Self {
        Self { mesh: Some(mesh), ..self }
    }

    pub fn next(&self) -> Option<Instant> {
        self.pace.as_ref().map(|pace| pace.next)
    }

    fn send(&self, outbox: &mut Outbox<'_>) -> Result<(), SendError> {
        let target = match &self.mesh {
            Some(mesh) => Target::MeshChannel(mesh, &self.channel),
            None => Target::Channel(&self.channel),
        };
        match &self.what {
            Sent::Message(text) => outbox.send(target, &[text.as_bytes()]),
            Sent::Request { text, timeout } => outbox.request(target, &[text.as_bytes()], *timeout).map(drop),
            Sent::Record(Publication { topic, text }) => {
                outbox.publish(&self.channel, topic.as_bytes(), &[text.as_bytes()])
            }
        }
    }

    /// Sends what is due.
    fn send_due(&mut self, outbox: &mut Outbox<'_>, now: Instant) {
        let due = self.pace.as_mut().map_or(FLOOD_PER_TURN, |pace| usize::from(pace.is_due(now)));
        for _ in 0..due {
            let refused = self.send(outbox).err();
            if let Some(error) = refused.filter(|error| self.is_news(*error)) {
                match self.what {
                    Sent::Message(_) => eprintln!("the message was not sent: {error}"),
                    Sent::Request { .. } => eprintln!("the request was not sent: {error}"),
                    Sent::Record(_) => eprintln!("the record was not published: {error}"),
                }
            }
            self.refused = refused;
            if refused.is_some() {
                break;
            }
        }
    }

    /// How long the loop may sleep for its sake.
    fn sleep_max(&self) -> Duration {
        match (&self.pace, self.refused) {
            (None, None) => Duration::ZERO,
            // No descriptor tells when there is room again.
            (None, Some(SendError::WouldBlock)) => ROOM_PAUSE,
            _ => RESPONSE_MAX,
        }
    }

    /// Whether a failure is worth a word: not one that the last one met too, nor the limits that a flood runs into.
    fn is_news(&self, error: SendError) -> bool {
        let is_limit = matches!(error, SendError::WouldBlock | SendError::TooManyRequests);
        self.refused != Some(error) && !(is_limit && self.pace.is_none())
    }
}

impl Node {
    pub fn new(topology: &'static str, common: &CommonFlags) -> Self {
        Self {
            lines: Lines { topology, began: Instant::now(), closed: false },
            echo: false,
            slow: Duration::from_millis(common.slow),
            sends: Vec::new(),
            unsent: BTreeMap::new(),
        }
    }

    /// How long the loop may sleep for all that waits here.
    pub fn sleep_max(&self) -> Duration {
        let unsent = if self.unsent.is_empty() { RESPONSE_MAX } else { ROOM_PAUSE };
        self.sends.iter().map(Sends::sleep_max).fold(unsent, Duration::min)
    }

    /// Sends what is due.
    pub fn send(&mut self, outbox: &mut Outbox<'_>, now: Instant) {
        for sends in &mut self.sends {
            sends.send_due(outbox, now);
        }
    }

    /// Answers once what the same caller asked before is answered.
    fn answer(&mut self, caller: ConnectionId, answer: Answer, outbox: &mut Outbox<'_>) {
        if self.unsent.contains_key(&caller) || !answer.send(self.echo, outbox) {
            self.unsent.entry(caller).or_default().push_back(answer);
        }
    }

    /// Tries again what found no room. A caller that takes no answers costs one try a turn, however many wait for it.
    pub fn answer_left(&mut self, outbox: &mut Outbox<'_>) {
        let echo = self.echo;
        self.unsent.retain(|_, waiting| {
            while waiting.front().is_some_and(|answer| answer.send(echo, outbox)) {
                waiting.pop_front();
            }
            !waiting.is_empty()
        });
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
            Event::Failed { topology, endpoint, failure } => {
                let line = json!({
                    "topology": lines.topology, "name": topology.as_str(), "rid": null,
                    "endpoint": endpoint.as_str(), "reason": failed(failure),
                });
                lines.print("refused", line);
            }
            Event::Message { peer, channel, parts } => {
                thread::sleep(self.slow);
                lines.peer("message", peer, json!({ "channel": channel, "parts": texts(parts) }));
            }
            Event::Request { peer, channel, parts, token } => {
                thread::sleep(self.slow);
                lines.peer("request", peer, json!({ "channel": channel, "parts": texts(parts) }));
                let answer = Answer { token, parts: parts.iter().map(<[u8]>::to_vec).collect() };
                self.answer(peer.connection(), answer, outbox);
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
            Event::PublisherReady { publisher } => lines.publisher("publisher_ready", publisher, json!({})),
            Event::PublisherLost { publisher, reason } => {
                lines.publisher("publisher_lost", publisher, json!({ "reason": lost(reason) }));
            }
            Event::Published { publisher, topic, parts } => {
                thread::sleep(self.slow);
                let topic = String::from_utf8_lossy(topic);
                lines.publisher("published", publisher, json!({ "topic": topic, "parts": texts(parts) }));
            }
            Event::Stalled { unwatched } => {
                lines.print("stall", json!({ "unwatched_ms": whole_ms(unwatched) }));
            }
            _ => {}
        }
    }
}
