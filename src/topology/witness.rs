//! What the lanes' monitors witnessed, brought to the connections behind them. A monitor is the only witness of a
//! physical close (000 §5); its descriptors are for correlation, never an identity.

use super::table::Behind;
use super::{Core, intents, life};
use crate::io::LaneEvent;
use crate::link::connection::{Failure, LostReason};

/// Takes in everything the monitors have said.
pub(crate) fn hear(core: &mut Core) {
    while let Some((id, event)) = core.io.next_event() {
        match event {
            // The lane's slot is free from now on; nothing else is known by this id.
            LaneEvent::Stopped => {
                if let Some((lane, _)) = core.table.lanes.iter().find(|(_, entry)| entry.id == id) {
                    intents::stopped(core, lane as u32);
                }
            }
            event => {
                let Some(lane) = core.io.owner(id) else { continue };
                match core.table.lane(lane).map(|entry| &entry.behind) {
                    Some(&Behind::Dialled { connection }) => dialled(core, connection, event),
                    Some(Behind::Listener(_) | Behind::Publisher) => listening(core, lane, event),
                    Some(Behind::Closed { .. }) | None => {}
                }
            }
        }
    }
}

fn dialled(core: &mut Core, connection: u32, event: LaneEvent) {
    match event {
        LaneEvent::Connected => life::connected(core, connection),
        LaneEvent::HandshakeFailed => {
            life::end_as(core, connection, LostReason::Transport, Failure::NotZeroMq);
        }
        LaneEvent::Unreachable | LaneEvent::Disconnected { .. } => life::sever(core, connection),
        LaneEvent::Accepted { .. } | LaneEvent::AcceptFailed { .. } | LaneEvent::Stopped => {}
    }
}

fn listening(core: &mut Core, lane: u32, event: LaneEvent) {
    match event {
        // A number that is given out anew was free.
        LaneEvent::Disconnected { descriptor } | LaneEvent::Accepted { descriptor } => {
            let gone = core.table.listener(lane).and_then(|listener| listener.at_descriptor(descriptor));
            if let Some(gone) = gone {
                core.table.bind_descriptor(gone, None);
                life::sever(core, gone);
            }
        }
        LaneEvent::AcceptFailed { errno } => log::warn!("a connection could not be accepted: errno {errno}"),
        LaneEvent::HandshakeFailed => core.counters.strangers += 1,
        LaneEvent::Connected | LaneEvent::Unreachable | LaneEvent::Stopped => {}
    }
}
