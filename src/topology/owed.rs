//! Control records and the slots they wait for. Each connection is owed at most one ask, one ACK, one greeting and one
//! update; all are retried first in every turn, and while one is owed the next free slot belongs to it.

use super::Core;
use super::{life, own};
use crate::io::SendError;
use crate::link::connection::{Connection, Phase, Side};
use crate::liveness::CheckKey;
use crate::wire::{Announce, HostState, Lane, ProbeId, Record};

/// One thing that waits for a slot.
#[derive(Debug, Clone, Copy)]
enum Debt {
    Greeting(Announce),
    Ack(ProbeId),
    Ask(ProbeId, CheckKey),
    Update,
}

impl Core {
    /// Sends one record without payload on a connection.
    pub(super) fn send_record(&mut self, index: u32, record: Record<'_>) -> Result<(), SendError> {
        self.head.clear();
        record.emit(&mut self.head);
        self.send_head(index, &[])
    }

    /// Sends what stands in `self.head`, with these parts behind it.
    pub(crate) fn send_head(&mut self, index: u32, parts: &[&[u8]]) -> Result<(), SendError> {
        let connection = self.table.get(index).ok_or(SendError::NoLane)?;
        if let Side::Own = connection.side {
            return own::send(self, index, parts);
        }
        let lane = self.table.lane(connection.lane).ok_or(SendError::NoLane)?;
        self.io.send(lane.id, connection.address(), &self.head, parts)
    }

    fn send_admission(&mut self, index: u32, announce: Announce) -> Result<(), SendError> {
        let connection = self.table.get(index).ok_or(SendError::NoLane)?;
        self.head.clear();
        let Some(body) = &self.channels.get(connection.channel).body else { return Err(SendError::NoLane) };
        body.emit(announce, connection.leg, connection.pair, &mut self.head);
        self.send_head(index, &[])
    }

    /// Our hello or our admit is owed; tries it at once.
    pub(super) fn owe_greeting(&mut self, index: u32) {
        self.owe(index, |connection| connection.owed.greeting = true);
    }

    /// Our changed state or weights are owed; tries them at once.
    pub(crate) fn owe_update(&mut self, index: u32) {
        self.owe(index, |connection| connection.owed.update = true);
    }

    /// The connection is ready and its first ask went out: what changed since our hello may follow.
    pub(super) fn pay_waiting_update(&mut self, index: u32) {
        if self.table.get(index).is_some_and(|connection| connection.owed.update) {
            self.owe_update(index);
        }
    }

    /// The answer to a probe is owed; tries it at once.
    pub(crate) fn owe_ack(&mut self, index: u32, id: ProbeId) {
        self.owe(index, |connection| connection.owed.ack = Some(id));
    }

    /// Sends an ask that liveness handed out. One that finds no slot is owed, by liveness's own account.
    pub(crate) fn ask(&mut self, index: u32, id: u64) {
        let Some(key) = self.table.get(index).and_then(|connection| connection.check) else { return };
        let Some(probe) = ProbeId::new(id) else { return };
        match self.send_record(index, Record::LivenessProbe(probe)) {
            Ok(()) => self.liveness.taken(key),
            Err(SendError::WouldBlock) => {
                self.liveness.refused(key);
                self.list(index);
            }
            Err(_) => life::sever(self, index),
        }
    }

    /// Asks outside the grid, if there is a slot for it now.
    pub(super) fn prompt(&mut self, index: u32, id: u64) {
        let Some(probe) = ProbeId::new(id) else { return };
        if self.send_record(index, Record::LivenessProbe(probe)) == Err(SendError::NoRoute) {
            life::sever(self, index);
        }
    }

    /// Whether the next free slot towards a connection is spoken for.
    pub(crate) fn owes(&self, connection: &Connection) -> bool {
        connection.owed.listed && self.debt(connection).is_some()
    }

    /// Tries everything that is owed once. A turn's first work.
    pub(crate) fn pay_owed(&mut self) {
        // The list is taken while it is walked; paying ends connections at most, and lists none.
        let mut owing = std::mem::take(&mut self.owing);
        let mut refreshed = None;
        owing.retain(|&index| {
            // A send looks for the credit that has come back only now and then; asking for the events always does, and
            // once does for all neighbours behind one lane.
            let lane = self.table.get(index).and_then(|connection| self.table.lane(connection.lane));
            if let Some(id) = lane.map(|lane| lane.id).filter(|id| refreshed != Some(*id)) {
                self.io.refresh(id);
                refreshed = Some(id);
            }
            self.pay(index);
            let owes = self.table.get(index).is_some_and(|connection| self.debt(connection).is_some());
            if let Some(connection) = self.table.get_mut(index) {
                connection.owed.listed = owes;
            }
            owes
        });
        self.owing = owing;
    }

    fn owe(&mut self, index: u32, what: impl FnOnce(&mut Connection)) {
        let Some(connection) = self.table.get_mut(index) else { return };
        what(connection);
        if connection.owed.listed {
            return;
        }
        self.pay(index);
        if self.table.get(index).is_some_and(|connection| self.debt(connection).is_some()) {
            self.list(index);
        }
    }

    fn list(&mut self, index: u32) {
        let Some(connection) = self.table.get_mut(index) else { return };
        if !connection.owed.listed {
            connection.owed.listed = true;
            self.owing.push(index);
        }
    }

    /// Pays what a connection is owed until nothing is, or the transport has no slot.
    fn pay(&mut self, index: u32) {
        while let Some(debt) = self.table.get(index).and_then(|connection| self.debt(connection)) {
            let sent = match debt {
                Debt::Greeting(announce) => self.send_admission(index, announce),
                Debt::Ack(id) => self.send_record(index, Record::LivenessAck(id)),
                Debt::Ask(id, _) => self.send_record(index, Record::LivenessProbe(id)),
                Debt::Update => self.send_admission(index, Announce::Update),
            };
            match sent {
                Ok(()) => self.paid(index, debt),
                Err(SendError::WouldBlock) => return,
                Err(_) => {
                    life::sever(self, index);
                    return;
                }
            }
        }
    }

    fn paid(&mut self, index: u32, debt: Debt) {
        if let Debt::Ask(_, key) = debt {
            self.liveness.taken(key);
            return;
        }
        let Some(Connection { owed, .. }) = self.table.get_mut(index) else { return };
        match debt {
            Debt::Greeting(_) => {
                owed.greeting = false;
                // It said all that an update would.
                owed.update = false;
                life::greeted(self, index);
            }
            Debt::Ack(_) => owed.ack = None,
            Debt::Update | Debt::Ask(..) => owed.update = false,
        }
    }

    /// Whether an update may go out on this lane: in a RouteMesh on the completion lane, or as the word of an orderly close
    /// on the application lane while the other does not stand yet (WIRE.md).
    fn may_update(&self, connection: &Connection) -> bool {
        match (connection.leg, self.channels.get(connection.channel).is_mesh()) {
            (Lane::Completion, _) => connection.phase == Phase::Joined,
            (Lane::Application, true) => {
                connection.phase == Phase::Joining && self.host_state == HostState::Stopped
            }
            (Lane::Application, false) => connection.stands(),
        }
    }

    /// The first thing a connection is owed. One that has ended is owed nothing.
    fn debt(&self, connection: &Connection) -> Option<Debt> {
        let Connection { owed, side, phase, .. } = connection;
        if matches!(phase, Phase::ReadingOut(_) | Phase::Closing(_) | Phase::Fenced) {
            return None;
        }
        if owed.greeting {
            let is_dialled = matches!(side, Side::Dialled { .. });
            return Some(Debt::Greeting(if is_dialled { Announce::Hello } else { Announce::Admit }));
        }
        if let Some(id) = owed.ack {
            return Some(Debt::Ack(id));
        }
        let ask = connection.check.and_then(|key| Some((ProbeId::new(self.liveness.owed(key)?)?, key)));
        if let Some((id, key)) = ask {
            return Some(Debt::Ask(id, key));
        }
        (owed.update && self.may_update(connection)).then_some(Debt::Update)
    }
}
