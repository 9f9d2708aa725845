//! The receive phase: one rotation over the lanes that have input. A record's way in ends here, at the host.

use crate::host::{Completion, Event, Host, Outbox};
use crate::io::{Inbound, Reading, Received};
use crate::name::TopologyName;
use crate::rotation::{self, COUNT_CAP, Offer, Service};
use crate::topology::service::{self, Step};
use crate::topology::table::{Behind, Carries};
use crate::topology::{Core, Pressure, fanout, life, sweep};
use crate::wire::{Lane, Name, Outcome, Record};

/// How many emptied records are kept to be read into again; 4 MiB, if each had 256 frames, and what they still carry.
const SPARES_MAX: usize = 256;
/// A spare record lets go of what it carried only above this: receiving into used messages costs less.
const SPARE_BYTES_MAX: usize = 1024;

/// The record being read, and spare ones: where a peer is capped in every turn, each record that is set aside needs
/// another to be read into.
#[derive(Debug, Default)]
pub(super) struct Records {
    inbound: Inbound,
    spares: Vec<Inbound>,
}

impl Records {
    /// Takes the record just read, to be kept.
    fn take(&mut self) -> Inbound {
        self.inbound.forget_rest(SPARE_BYTES_MAX);
        std::mem::replace(&mut self.inbound, self.spares.pop().unwrap_or_default())
    }

    /// Takes back a record of so many bytes that is done with.
    fn give_back(&mut self, mut record: Inbound, bytes: u64) {
        if self.spares.len() < SPARES_MAX {
            if bytes > SPARE_BYTES_MAX as u64 {
                record.clear();
            }
            self.spares.push(record);
        }
    }
}

/// Runs the turn's rotation and says what it did.
pub(super) fn run<H: Host>(core: &mut Core, records: &mut Records, host: &mut H) -> rotation::Report {
    while let Some(lane) = core.io.next_readable() {
        if let Some(entry) = core.io.owner(lane).and_then(|owner| core.table.lane(owner)) {
            core.rotation.mark(entry.key);
        }
    }
    // Caps run on the true clock even where a host gives the turn its time: they bound what handling really takes.
    let began = core.clock.now();
    let own = serve_own(core, host);
    if !core.rotation.work_left() {
        sweep::finish_reading_out(core);
        return own;
    }
    core.rotation.begin(began);
    while let Some(service) = core.rotation.next_lane() {
        serve(core, service, records, host);
    }
    sweep::finish_reading_out(core);
    let report = core.rotation.report();
    let end = if report.end == rotation::End::Empty { own.end } else { report.end };
    rotation::Report { records: own.records + report.records, bytes: own.bytes + report.bytes, end, ..report }
}

/// Takes what nodes of this engine sent to themselves, within the caps of one connection.
fn serve_own<H: Host>(core: &mut Core, host: &mut H) -> rotation::Report {
    let mut taken = rotation::Report::default();
    if !core.own.has_work(core.pressure) {
        return taken;
    }
    let (clock, caps) = (core.clock, core.config.caps());
    let began = clock.now();
    while taken.records < COUNT_CAP.into() && taken.bytes < caps.bytes && clock.now().since(began) < caps.time
    {
        let Some((index, record)) = core.own.next(core.pressure) else { break };
        let received = record.look();
        taken.records += 1;
        taken.bytes += received.bytes as u64;
        handle(core, index, &received, host);
        core.own.give_back(record);
    }
    if core.own.has_work(core.pressure) {
        taken.end = rotation::End::Round;
    }
    taken
}

/// Serves one lane: what is held for its peers, then what can be read.
fn serve<H: Host>(core: &mut Core, service: Service, records: &mut Records, host: &mut H) {
    let Some(entry) = core.table.lane(service.owner) else { return };
    let (lane, is_fanout) = (entry.id, entry.carries == Carries::Published);
    let dialled = match entry.behind {
        Behind::Dialled { connection } => Some(connection),
        Behind::Listener(_) | Behind::Publisher | Behind::Closed { .. } => None,
    };
    let clock = core.clock;
    while let Some(held) = core.rotation.next_held() {
        handle(core, held.owner, &held.record.look(), host);
        records.give_back(held.record, held.bytes);
        core.rotation.done(|| clock.now());
    }
    if dialled.is_none() {
        core.io.refresh(lane);
    }
    while core.rotation.may_read() {
        match core.io.receive(lane, &mut records.inbound) {
            Reading::Record if is_fanout => publisher_spoke(core, dialled, &records.inbound, host),
            Reading::Record => {
                let from = dialled.or_else(|| sender(core, service.owner, &mut records.inbound));
                offer(core, service.owner, from, records, host);
            }
            Reading::PassedOver => core.rotation.passed_over(),
            Reading::Nothing => core.rotation.emptied(),
        }
        core.rotation.done(|| clock.now());
    }
}

/// Takes one record that a publisher sent. It is never set aside: what a publisher has left stays in its own socket.
fn publisher_spoke<H: Host>(core: &mut Core, from: Option<u32>, inbound: &Inbound, host: &mut H) {
    let Some(index) = from else { return };
    let Some(connection) = core.table.get(index) else { return };
    let received = inbound.look();
    let _ = core.rotation.offer(connection.share, received.bytes as u64, true);
    let is_application = fanout::take(core, index, &received);
    // What the host hears first may make it give up this publisher, or the filter that asks for this.
    super::tell(core, host);
    if !is_application {
        return;
    }
    let topic = received.head;
    if let Some(publisher) = fanout::wanted(core, index, topic) {
        let event = Event::Published { publisher: &publisher, topic, parts: received.parts };
        host.on_event(event, &mut Outbox::in_turn(core));
    }
}

/// The connection that a record on a shared lane came by; a new one if its route is unknown.
#[inline]
fn sender(core: &mut Core, lane: u32, inbound: &mut Inbound) -> Option<u32> {
    let known = core.table.listener_mut(lane)?.find_route(inbound.peer());
    known.or_else(|| {
        let met = life::meet(core, lane, inbound.peer())?;
        service::trace(core, met, inbound.descriptor());
        Some(met)
    })
}

/// Takes one record that was read: it is handled now, or set aside until its peer's next share.
#[inline]
fn offer<H: Host>(core: &mut Core, lane: u32, from: Option<u32>, records: &mut Records, host: &mut H) {
    let received = records.inbound.look();
    let Some((index, connection)) = from.and_then(|index| Some((index, core.table.get(index)?))) else {
        return life::turn_away(core, lane, records.inbound.peer(), &received);
    };
    // What is kept now fills the room that the pause leaves to all behind this lane: a stranger or a fenced peer has no
    // claim on it, and what keeps a connection alive goes on. A completion lane is not paused.
    let is_paused = core.pressure == Pressure::Paused && connection.leg == Lane::Application;
    let may_wait = !is_paused || connection.may_deliver();
    let can_take = !(is_paused && may_wait && is_for_the_host(&received));
    match core.rotation.offer(connection.share, received.bytes as u64, can_take) {
        Offer::Deliver => handle(core, index, &received, host),
        Offer::Hold if may_wait => drop(core.rotation.hold(records.take())),
        Offer::Hold => {
            core.counters.unadmitted += 1;
            core.rotation.drop_offered();
        }
        Offer::Gone => life::turn_away(core, lane, records.inbound.peer(), &received),
    }
}

/// Whether a record carries something to the host, as its command says.
fn is_for_the_host(received: &Received<'_>) -> bool {
    Record::parse(received.head, received.parts.len()).is_ok_and(|record| record.carries_payload())
}

/// Handles one record to the end: what it means to the engine, and then what the host gets of it.
fn handle<H: Host>(core: &mut Core, index: u32, received: &Received<'_>, host: &mut H) {
    // What the host hears first may make it close this very peer: after that nothing of it is delivered.
    super::tell(core, host);
    let parts = received.parts;
    let (channel, token) = match service::take(core, index, received) {
        Step::Done => return super::tell(core, host),
        Step::Answer(request, outcome) => {
            let outcome = match outcome {
                Outcome::Reply => Completion::Reply(parts),
                Outcome::Failed(kind) => Completion::Declined(kind),
            };
            return host.on_event(Event::Completed { request, outcome }, &mut Outbox::in_turn(core));
        }
        Step::Message(channel) => (channel, None),
        Step::Request(channel, token) => (channel, Some(token)),
    };
    let Some(peer) = core.speaker(index) else { return };
    let channel = match peer.topology() {
        // It is the server's own name, which need not be checked again.
        TopologyName::ClientServer(name) => channel.map(|_| name.as_str()),
        _ => channel.map(Name::as_str),
    };
    let event = match token {
        None => Event::Message { peer: &peer, channel, parts },
        Some(token) => Event::Request { peer: &peer, channel, parts, token },
    };
    host.on_event(event, &mut Outbox::in_turn(core));
    core.spoke = Some(peer);
}
