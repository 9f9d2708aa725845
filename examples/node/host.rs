//! The host: what it sends, and what it does about each event.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use wakeful::{ChannelName, Completion, ErrorKind, Event, Host, Outbox, ReplyToken, SendError};

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
    pub sends: Option<Sends>,
    /// Answers that found no room; they are tried again before each turn.
    unsent: Vec<(ReplyToken, Vec<Vec<u8>>)>,
}

/// What is sent again and again.
pub struct Sends {
    channel: ChannelName,
    what: Sent,
    /// None in a flood.
    pace: Option<Pace>,
    /// Why the last one could not be sent.
    refused: Option<SendError>,
}

pub enum Sent {
    Request { text: String, timeout: Duration },
    Record(Publication),
}

impl Sends {
    pub fn new(channel: ChannelName, what: Sent, pace: Option<Pace>) -> Self {
        Self { channel, what, pace, refused: None }
    }

    pub fn next(&self) -> Option<Instant> {
        self.pace.as_ref().map(|pace| pace.next)
    }

    fn send(&self, outbox: &mut Outbox<'_>) -> Result<(), SendError> {
        match &self.what {
            Sent::Request { text, timeout } => {
                outbox.request(&self.channel, &[text.as_bytes()], *timeout).map(drop)
            }
            Sent::Record(Publication { topic, text }) => {
                outbox.publish(&self.channel, topic.as_bytes(), &[text.as_bytes()])
            }
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
            sends: None,
            unsent: Vec::new(),
        }
    }

    /// How long the loop may sleep for all that waits here.
    pub fn sleep_max(&self) -> Duration {
        let flood = self.sends.as_ref().filter(|sends| sends.pace.is_none());
        match flood.map(|sends| sends.refused) {
            Some(None) => Duration::ZERO,
            // No descriptor tells when there is room again.
            Some(Some(SendError::WouldBlock)) => ROOM_PAUSE,
            _ if !self.unsent.is_empty() => ROOM_PAUSE,
            _ => RESPONSE_MAX,
        }
    }

    /// Sends what is due.
    pub fn send(&mut self, outbox: &mut Outbox<'_>, now: Instant) {
        let Some(sends) = &mut self.sends else { return };
        let due = sends.pace.as_mut().map_or(FLOOD_PER_TURN, |pace| usize::from(pace.is_due(now)));
        for _ in 0..due {
            let refused = sends.send(outbox).err();
            if let Some(error) = refused.filter(|error| sends.is_news(*error)) {
                match sends.what {
                    Sent::Request { .. } => eprintln!("the request was not sent: {error}"),
                    Sent::Record(_) => eprintln!("the record was not published: {error}"),
                }
            }
            sends.refused = refused;
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

    pub fn answer_left(&mut self, outbox: &mut Outbox<'_>) {
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
            Event::Failed { topology, endpoint, failure } => {
                let line = json!({
                    "topology": lines.topology, "name": topology.as_str(), "rid": null,
                    "endpoint": endpoint.as_str(), "reason": failed(failure),
                });
                lines.print("refused", line);
            }
            Event::Message { peer, parts, .. } => {
                thread::sleep(self.slow);
                lines.peer("message", peer, json!({ "parts": texts(parts) }));
            }
            Event::Request { peer, parts, token, .. } => {
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
