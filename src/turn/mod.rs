//! One turn, phase after phase, each a function: what the monitors witnessed, what is owed, what is received, what is
//! due, what is let go. What a phase changes the host hears before the next one begins.

mod due;
mod receive;

use std::time::Instant;

use crate::clock::{ClockTime, WATCH_STEP};
use crate::host::{Completion, Event, Host, Outbox};
use crate::link::connection::Connection;
use crate::liveness::{Verdict, Why};
use crate::rotation;
use crate::topology::sweep::{self, READ_OUT_PAUSE};
use crate::topology::{Core, News, witness};
use receive::Records;

/// What a turn did, what stopped it, and when the next one is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Records received and handled, control records included.
    pub records: u32,
    /// Their bytes.
    pub bytes: u64,
    /// Records received and set aside for a later turn, because their peer had had its share.
    pub held: u32,
    /// What ended receiving.
    pub stopped: Stopped,
    /// More can be done at once: turn again as soon as the host can, without waiting for the descriptor.
    pub work_left: bool,
    /// When the next turn is due at the latest; none while only input can want one. Work that is left is due now.
    pub next: Option<NextDue>,
}

/// What ended the receiving of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Stopped {
    /// Nothing was left to receive.
    #[default]
    Empty,
    /// Every connection had its share, and some have more.
    Shares,
    /// The turn's time for receiving was used up.
    TurnTime,
}

/// The latest time of the next turn, and why then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextDue {
    /// When.
    pub at: Instant,
    /// Why.
    pub reason: DueReason,
}

/// Why a turn is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DueReason {
    /// Something was left undone.
    WorkLeft,
    /// A probe or a beacon is due.
    Ask,
    /// A silent peer is to be looked at.
    Look,
    /// A deadline or a handshake runs, and one turn vouches for no more than [`WATCH_STEP`].
    Watch,
    /// A connection that has ended is read out.
    ReadOut,
    /// A request runs out of time.
    TimeOut,
    /// An attempt to connect is due.
    Retry,
}

/// The buffers that every turn reuses.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    records: Records,
    verdicts: Vec<Verdict>,
}

/// Runs one turn at `now`. The poller has been looked at.
pub(crate) fn run<H: Host>(core: &mut Core, buffers: &mut Buffers, now: ClockTime, host: &mut H) -> Report {
    let moment = core.watch.advance(now);
    if moment.gap > WATCH_STEP {
        core.news.push_back(News::Stalled { unwatched: moment.gap - WATCH_STEP });
    }
    witness::hear(core);
    tell(core, host);

    core.pay_owed();
    let received = receive::run(core, &mut buffers.records, host);

    due::asks(core, &moment);
    due::verdicts(core, &moment, &mut buffers.verdicts);
    due::time_outs(core, &moment);
    tell(core, host);

    sweep::sweep(core);
    tell(core, host);
    if cfg!(debug_assertions) {
        core.table.verify();
    }
    report(core, received)
}

/// Tells the host what has happened up to here. What its answers bring about is told in the next phase.
#[inline]
fn tell<H: Host>(core: &mut Core, host: &mut H) {
    if !core.news.is_empty() {
        tell_news(core, host);
    }
}

#[cold]
fn tell_news<H: Host>(core: &mut Core, host: &mut H) {
    for _ in 0..core.news.len() {
        let Some(news) = core.news.pop_front() else { return };
        let outbox = &mut Outbox::in_turn(core);
        match &news {
            News::Admitted(peer) => host.on_event(Event::Admitted { peer }, outbox),
            News::Ready(peer) => host.on_event(Event::Ready { peer }, outbox),
            News::Missed { peer, asks } => host.on_event(Event::Missed { peer, asks: *asks }, outbox),
            News::Lost { peer, reason } => host.on_event(Event::Lost { peer, reason: *reason }, outbox),
            News::Failed { topology, endpoint, failure } => {
                host.on_event(Event::Failed { topology, endpoint, failure: *failure }, outbox);
            }
            News::Ended { request, why } => {
                let outcome = Completion::Unanswered(*why);
                host.on_event(Event::Completed { request: *request, outcome }, outbox);
            }
            News::PublisherReady(publisher) => host.on_event(Event::PublisherReady { publisher }, outbox),
            News::PublisherLost { source: publisher, reason } => {
                host.on_event(Event::PublisherLost { publisher, reason: *reason }, outbox);
            }
            News::Stalled { unwatched } => host.on_event(Event::Stalled { unwatched: *unwatched }, outbox),
        }
    }
}

/// Tells the host all there is to tell, after the last turn.
pub(crate) fn tell_all<H: Host>(core: &mut Core, host: &mut H) {
    while !core.news.is_empty() {
        tell(core, host);
    }
}

fn report(core: &mut Core, received: rotation::Report) -> Report {
    let stopped = match received.end {
        rotation::End::Empty => Stopped::Empty,
        rotation::End::Round => Stopped::Shares,
        rotation::End::TurnTime => Stopped::TurnTime,
    };
    let next = next_due(core);
    let work_left = next.is_some_and(|(at, _)| at <= core.watch.moment().now);
    Report {
        records: received.records,
        bytes: received.bytes,
        held: received.held,
        stopped,
        work_left,
        next: next.map(|(at, reason)| NextDue { at: core.clock.instant(at), reason }),
    }
}

/// When the next turn is wanted at the latest, and why. To find input may eat the wake-up that would have told of it, so
/// what is found is due now.
pub(crate) fn next_due(core: &mut Core) -> Option<(ClockTime, DueReason)> {
    let moment = core.watch.moment();
    let work_left = core.io.has_work() || core.is_pressed();
    let table = &core.table;
    let handshake =
        core.agenda.handshake_at(&moment, |id| table.find(id).is_some_and(Connection::is_opening));
    let liveness = core.liveness.wanted(&moment).map(|(at, why)| match why {
        Why::Ask => (at, DueReason::Ask),
        Why::Look => (at, DueReason::Look),
        Why::Watch => (at, DueReason::Watch),
    });
    let next = [
        work_left.then_some((moment.now, DueReason::WorkLeft)),
        liveness,
        handshake.map(|at| (at, DueReason::Watch)),
        sweep::is_reading_out(core).then(|| (moment.now.plus(READ_OUT_PAUSE), DueReason::ReadOut)),
        core.requests.earliest().map(|at| (at, DueReason::TimeOut)),
        core.agenda.retry_at().map(|at| (at, DueReason::Retry)),
    ]
    .into_iter()
    .flatten()
    .min();
    core.told_due = next.map(|(at, _)| at);
    next
}
