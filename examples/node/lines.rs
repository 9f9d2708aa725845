//! What the node says: how the engine's words become lines. The shape of a line is a contract.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wakeful::{
    Failure, LastFailure, ListenerStatus, LostReason, MeshStatus, NodeStatus, Parts, Peer, Rid, Snapshot,
    Source,
};

/// Standard output, one JSON object a line, flushed.
pub struct Lines {
    /// Of what this node is a part.
    pub topology: &'static str,
    pub began: Instant,
    /// Nobody reads them any more.
    pub closed: bool,
}

impl Lines {
    pub fn print(&mut self, event: &str, mut line: Value) {
        line["at_ms"] = whole_ms(self.began.elapsed());
        line["event"] = event.into();
        let mut out = io::stdout().lock();
        self.closed |= writeln!(out, "{line}").and_then(|()| out.flush()).is_err();
    }

    pub fn peer(&mut self, event: &str, peer: &Peer, mut line: Value) {
        line["topology"] = self.topology.into();
        line["name"] = peer.topology().as_str().into();
        line["rid"] = rid_text(peer.rid());
        self.print(event, line);
    }

    /// A publisher has a rid only where a descriptor told it, and always an endpoint.
    pub fn publisher(&mut self, event: &str, source: &Source, mut line: Value) {
        line["topology"] = self.topology.into();
        line["name"] = source.channel().as_str().into();
        line["rid"] = source.rid().map(rid_text).into();
        line["endpoint"] = source.endpoint().as_str().into();
        self.print(event, line);
    }

    pub fn snapshot(&mut self, seen: &Snapshot) {
        let intents = seen.intents.iter().map(|intent| {
            json!({
                "name": intent.topology.as_str(), "endpoint": intent.endpoint.as_str(),
                "state": format!("{:?}", intent.state), "last_failure": intent.last_failure.map(ended),
            })
        });
        let listeners = |all: &[ListenerStatus]| -> Vec<Value> {
            let line = |each: &ListenerStatus| json!({ "name": each.topology.as_str(), "endpoint": each.bound.as_str() });
            all.iter().map(line).collect()
        };
        let connections = seen.connections.iter().map(|each| {
            json!({
                "topology": self.topology, "name": each.peer.topology().as_str(), "rid": rid_text(each.peer.rid()),
                "state": format!("{:?}", each.state), "last_received_ms": each.last_received.map(whole_ms),
                "served": each.served, "held": each.held, "capped": each.capped,
            })
        });
        let sources = seen.sources.iter().map(|each| {
            json!({
                "topology": self.topology, "name": each.source.channel().as_str(),
                "rid": each.source.rid().map(rid_text), "endpoint": each.source.endpoint().as_str(),
                "state": format!("{:?}", each.state), "last_received_ms": each.last_received.map(whole_ms),
                "capped": each.capped,
            })
        });
        let counted = &seen.counters;
        let line = json!({
            "host": format!("{:?}", seen.host), "pressure": format!("{:?}", seen.pressure), "stalls": seen.stalls, "unwatched_ms": whole_ms(seen.unwatched),
            "longest_gap_ms": whole_ms(seen.longest_gap), "intents": intents.collect::<Vec<_>>(),
            "servers": listeners(&seen.servers), "publishers": listeners(&seen.publishers),
            "meshes": seen.meshes.iter().map(mesh).collect::<Vec<_>>(),
            "connections": connections.collect::<Vec<_>>(), "sources": sources.collect::<Vec<_>>(),
            "fenced_open": seen.fenced_open, "unadmitted": seen.unadmitted, "requests": seen.requests,
            "replies": seen.replies, "contexts": seen.contexts,
            "counters": {
                "late_replies": counted.late_replies, "misdirected": counted.misdirected,
                "unadmitted": counted.unadmitted, "unsubscribed": counted.unsubscribed, "protocol_errors": counted.protocol_errors,
                "refused": counted.refused, "strangers": counted.strangers, "lost_orderly": counted.lost_orderly,
                "lost_transport": counted.lost_transport, "lost_silence": counted.lost_silence,
                "lost_otherwise": counted.lost_otherwise,
            },
        });
        self.print("snapshot", line);
    }
}

/// One mesh, and who is known of it.
fn mesh(seen: &MeshStatus) -> Value {
    let node = |each: &NodeStatus| {
        json!({
            "rid": rid_text(&each.rid), "ready": each.is_ready,
            "dialler": each.dialler.map(|dialler| format!("{dialler:?}")),
        })
    };
    let bound = seen.bound.as_ref();
    json!({
        "name": seen.mesh.as_str(), "endpoint": bound.map(|bound| bound.application.as_str()),
        "completion": bound.map(|bound| bound.completion.as_str()),
        "nodes": seen.nodes.iter().map(node).collect::<Vec<_>>(),
    })
}

/// Why a connection ended, by the name that the API gives it.
pub fn lost(reason: LostReason) -> String {
    match reason {
        LostReason::Silence(silence) => format!("{silence:?}"),
        LostReason::Rejected(reason) => reason.to_string(),
        other => format!("{other:?}"),
    }
}

/// Why an attempt failed: as WIRE.md names it where a node refused, otherwise as the API does.
pub fn failed(failure: Failure) -> String {
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

pub fn rid_text(rid: &Rid) -> Value {
    String::from_utf8_lossy(rid.as_bytes()).into()
}

pub fn texts(parts: Parts<'_>) -> Vec<String> {
    parts.iter().map(|part| String::from_utf8_lossy(part).into_owned()).collect()
}

pub fn whole_ms(span: Duration) -> Value {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX).into()
}
