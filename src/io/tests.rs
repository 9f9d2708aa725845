//! Real sockets on loopback. Every wait goes through `poll` and is bounded.

mod edge;
mod ends;
mod libzmq;
mod opening;
mod records;

use std::time::Duration;

use super::*;
use crate::clock::Clock;

const LIMITS: Limits = Limits { send_hwm: 1000, receive_hwm: 1000 };
const PATIENCE: Duration = Duration::from_secs(20);

fn io() -> Io {
    Io::new(LIMITS).unwrap()
}

/// Polls until `found` gives something.
fn wait<T>(io: &mut Io, what: &str, mut found: impl FnMut(&mut Io) -> Option<T>) -> T {
    let clock = Clock::start();
    let start = clock.now();
    while clock.now().since(start) < PATIENCE {
        if let Some(found) = found(io) {
            return found;
        }
        io.poll(Some(Duration::from_millis(200))).unwrap();
    }
    panic!("waited in vain: {what}");
}

/// Waits for the next event of `lane`; those of others are passed over.
fn event_of(io: &mut Io, lane: LaneId) -> LaneEvent {
    wait(io, "an event", |io| {
        loop {
            match io.next_event() {
                Some((of, event)) if of == lane => return Some(event),
                Some(_) => {}
                None => return None,
            }
        }
    })
}

/// Waits for a record on `lane` and for nothing else.
fn record_of(io: &mut Io, lane: LaneId) -> Inbound {
    let mut record = Inbound::default();
    wait(io, "a record", |io| {
        while io.next_readable().is_some() {}
        (io.receive(lane, &mut record) == Reading::Record).then_some(())
    });
    record
}

fn text<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

fn listen(io: &mut Io, identity: u8) -> (LaneId, Endpoint) {
    let (lane, bound) = io.listen(Listen::Router { identity }, &text("tcp://127.0.0.1:0"), 1, 0).unwrap();
    (lane, Endpoint::try_from(&bound).unwrap())
}

/// A ROUTER, a DEALER connected to it, and the routing id of the DEALER as the ROUTER learned it from a hello.
fn pair(io: &mut Io) -> (LaneId, LaneId, Vec<u8>) {
    let (router, endpoint) = listen(io, b'A');
    let dealer = io.dial(Dial::Dealer, &endpoint, 2, 0).unwrap();
    assert_eq!(event_of(io, dealer), LaneEvent::Connected);
    io.send(dealer, None, b"hello", &[]).unwrap();
    let peer = record_of(io, router).peer().to_vec();
    assert_eq!(io.receive(router, &mut Inbound::default()), Reading::Nothing);
    (router, dealer, peer)
}

fn endpoint_of(io: &Io, lane: LaneId) -> BindEndpoint {
    let socket = io.lane(lane).unwrap().socket.as_ref().unwrap();
    text(&socket.get_last_endpoint().unwrap().unwrap())
}

/// A path for one test, cleared away with it: libzmq leaves the file of a socket that was bound by name.
struct Path(String);

impl Path {
    fn new(name: &str) -> Self {
        Self(format!("{}/wakeful-{}-{name}", std::env::temp_dir().display(), std::process::id()))
    }

    fn endpoint(&self) -> String {
        format!("ipc://{}", self.0)
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
