//! What a mesh node sends to itself: a channel call may fall to the node that makes it (000 §3). Such records never leave
//! the engine. They have the caps and the pause of any other, messages and requests the bound of a queue, and replies that
//! of requests. The own node is never judged.

use std::collections::VecDeque;

use super::{Core, Pressure};
use crate::io::{Inbound, SendError};
use crate::wire::Record;

/// Records on their way from nodes of this engine to themselves, each with the connection that stands for its node. As
/// on the wire, replies never wait behind data.
#[derive(Debug, Default)]
pub(crate) struct Loop {
    application: VecDeque<(u32, Inbound)>,
    completion: VecDeque<(u32, Inbound)>,
    spares: Vec<Inbound>,
}

impl Loop {
    /// Whether something waits that may be handled now.
    pub(crate) fn has_work(&self, pressure: Pressure) -> bool {
        !self.completion.is_empty() || (pressure == Pressure::Running && !self.application.is_empty())
    }

    /// The next record to be handled, and the connection it came by.
    pub(crate) fn next(&mut self, pressure: Pressure) -> Option<(u32, Inbound)> {
        let reply = self.completion.pop_front();
        reply.or_else(|| if pressure == Pressure::Running { self.application.pop_front() } else { None })
    }

    /// Takes back a record that is done with.
    pub(crate) fn give_back(&mut self, mut record: Inbound) {
        record.clear();
        if self.spares.len() < self.application.len() + self.completion.len() + 1 {
            self.spares.push(record);
        }
    }

    /// Forgets everything: nobody takes it any more.
    pub(crate) fn clear(&mut self) {
        self.application.clear();
        self.completion.clear();
    }
}

/// Sends the head in hand and its parts to the node itself.
pub(super) fn send(core: &mut Core, index: u32, parts: &[&[u8]]) -> Result<(), SendError> {
    let is_reply = matches!(Record::parse(&core.head, parts.len()), Ok(Record::Reply { .. }));
    let Loop { application, completion, spares } = &mut core.own;
    let queue = if is_reply { completion } else { application };
    // A reply was let in with its request.
    if !is_reply && queue.len() >= usize::from(core.config.queue_records_max) {
        return Err(SendError::WouldBlock);
    }
    let mut record = spares.pop().unwrap_or_default();
    record.copy(&core.head, parts);
    queue.push_back((index, record));
    Ok(())
}
