//! The receive phase: one rotation over the lanes that have input. A record's way in ends here, at the host.

use crate::host::{Completion, Event, Host, Outbox};
use crate::io::Inbound;
use crate::rotation::{self, Offer, PeerKey, Service};
use crate::topology::client_server::{self, Step};
use crate::topology::table::Behind;
use crate::topology::{Core, Pressure, life};
use crate::wire::{Outcome, Record};

/// Runs the turn's rotation and says what it did.
pub(super) fn run<H: Host>(core: &mut Core, inbound: &mut Inbound, host: &mut H) -> rotation::Report {
    while let Some(lane) = core.io.next_readable() {
        if let Some(entry) = core.io.owner(lane).and_then(|owner| core.table.lane(owner)) {
            core.rotation.mark(entry.key);
        }
    }
    if !core.rotation.work_left() {
        life::finish_reading_out(core);
        return rotation::Report::default();
    }
    // Caps run on the true clock even where a host gives the turn its time: they bound what handling really takes.
    core.rotation.begin(core.clock.now());
    while let Some(service) = core.rotation.next_lane() {
        serve(core, service, inbound, host);
    }
    life::finish_reading_out(core);
    core.rotation.report()
}

/// Serves one lane: what is held for its peers, then what can be read.
fn serve<H: Host>(core: &mut Core, service: Service, inbound: &mut Inbound, host: &mut H) {
    let Some(entry) = core.table.lane(service.owner) else { return };
    let lane = entry.id;
    let dialled = match entry.behind {
        Behind::Dialled { connection } => Some(connection),
        Behind::Listener(_) | Behind::Closed { .. } => None,
    };
    let clock = core.clock;
    while let Some(mut held) = core.rotation.next_held() {
        handle(core, held.owner, &mut held.record, host);
        core.rotation.done(|| clock.now());
    }
    core.io.refresh(lane);
    while core.rotation.may_read() {
        if core.io.receive(lane, inbound) {
            let from = dialled.or_else(|| sender(core, service.owner, inbound));
            offer(core, from, inbound, host);
        } else {
            core.rotation.emptied();
        }
        core.rotation.done(|| clock.now());
    }
}

/// Takes one record that was read: it is handled now, or set aside until its peer's next share.
fn offer<H: Host>(core: &mut Core, from: Option<u32>, inbound: &mut Inbound, host: &mut H) {
    let share =
        from.and_then(|index| core.table.get(index)).map_or(PeerKey::NOBODY, |connection| connection.share);
    match (core.rotation.offer(share, inbound.bytes() as u64), from) {
        // A paused host is spared what is meant for it; what keeps the connection alive goes on.
        (Offer::Deliver, Some(_)) if core.pressure == Pressure::Paused && is_for_the_host(inbound) => {
            drop(core.rotation.hold(std::mem::take(inbound)));
        }
        (Offer::Deliver, Some(index)) => handle(core, index, inbound, host),
        (Offer::Hold, _) => drop(core.rotation.hold(std::mem::take(inbound))),
        // The table is full and the sender a stranger. It has no place to remember an answer by, so it gets none.
        (Offer::Gone | Offer::Deliver, _) => core.counters.unadmitted += 1,
    }
}

/// Whether a record carries something to the host, as its command says.
fn is_for_the_host(inbound: &Inbound) -> bool {
    Record::parse(inbound.head(), inbound.parts().len()).is_ok_and(|record| record.carries_payload())
}

/// The connection that a record on a shared lane came by; a new one if its route is unknown.
fn sender(core: &mut Core, lane: u32, inbound: &Inbound) -> Option<u32> {
    let known = core.table.listener(lane)?.at_route(inbound.peer());
    known.or_else(|| life::meet(core, lane, inbound.peer()))
}

/// Handles one record to the end: what it means to the engine, and then what the host gets of it.
fn handle<H: Host>(core: &mut Core, index: u32, inbound: &mut Inbound, host: &mut H) {
    // What the host hears first may make it close this very peer: after that nothing of it is delivered.
    super::tell(core, host);
    let step = client_server::take(core, index, inbound);
    if step == Step::Done {
        return super::tell(core, host);
    }
    let Some(peer) = core.table.get(index).and_then(|connection| connection.peer.clone()) else { return };
    let parts = inbound.parts();
    let event = match step {
        Step::Done => return,
        Step::Message => Event::Message { peer: &peer, parts },
        Step::Request(token) => Event::Request { peer: &peer, parts, token },
        Step::Answer(request, outcome) => {
            let outcome = match outcome {
                Outcome::Reply => Completion::Reply(parts),
                Outcome::Failed(kind) => Completion::Declined(kind),
            };
            Event::Completed { request, outcome }
        }
    };
    host.on_event(event, &mut Outbox::in_turn(core));
}
