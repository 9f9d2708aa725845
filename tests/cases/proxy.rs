//! A cable on loopback that a test can cut, freeze, throttle or tear: it passes TCP connections on to one endpoint.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use wakeful::Endpoint;

use crate::support::ms;

/// How soon a pump notices what a test does to the cable.
const TICK: Duration = ms(2);
/// The budget of a cable that is not throttled.
const UNLIMITED: usize = usize::MAX;

/// The cable. What is done to it is done to the connections it carries now; later ones pass.
pub struct Proxy {
    pub endpoint: Endpoint,
    shared: Arc<Shared>,
}

struct Shared {
    target: String,
    accepted: AtomicUsize,
    /// Of the connections up to this number every byte is swallowed, and no end tells the other.
    cut: AtomicUsize,
    /// The connections up to this number are not read.
    frozen: AtomicUsize,
    /// How many cut connections the dialler has closed.
    closed: AtomicUsize,
    /// How many bytes may still pass from the diallers.
    budget: AtomicUsize,
    over: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    pub fn to(target: &Endpoint) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let endpoint = format!("tcp://{}", listener.local_addr().unwrap()).parse().unwrap();
        let shared = Arc::new(Shared {
            target: target.to_string().trim_start_matches("tcp://").to_owned(),
            accepted: AtomicUsize::new(0),
            cut: AtomicUsize::new(0),
            frozen: AtomicUsize::new(0),
            closed: AtomicUsize::new(0),
            budget: AtomicUsize::new(UNLIMITED),
            over: AtomicBool::new(false),
            streams: Mutex::default(),
        });
        let accepting = shared.clone();
        thread::spawn(move || accept(&listener, &accepting));
        Self { endpoint, shared }
    }

    /// From now on every byte is lost on the way, and no end hears of the other.
    pub fn cut(&self) {
        self.shared.cut.store(self.accepted(), SeqCst);
    }

    /// From now on nothing is taken from either end.
    pub fn freeze(&self) {
        self.shared.frozen.store(self.accepted(), SeqCst);
    }

    /// Ends every connection, at both ends.
    pub fn tear(&self) {
        for stream in self.shared.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// From now on nothing passes from the diallers but what is allowed.
    pub fn throttle(&self) {
        self.shared.budget.store(0, SeqCst);
    }

    pub fn allow(&self, bytes: usize) {
        self.shared.budget.fetch_add(bytes, SeqCst);
    }

    /// How many connections were dialled.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(SeqCst)
    }

    /// How many cut connections the dialler has closed.
    pub fn closed(&self) -> usize {
        self.shared.closed.load(SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.over.store(true, SeqCst);
        self.tear();
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while !shared.over.load(SeqCst) {
        let Ok((dialler, _)) = listener.accept() else {
            thread::sleep(TICK);
            continue;
        };
        let Ok(listening) = TcpStream::connect(&shared.target) else { continue };
        let number = shared.accepted.fetch_add(1, SeqCst) + 1;
        for stream in [&dialler, &listening] {
            stream.set_nonblocking(false).unwrap();
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(TICK)).unwrap();
            shared.streams.lock().unwrap().push(stream.try_clone().unwrap());
        }
        let ends = (dialler.try_clone().unwrap(), listening.try_clone().unwrap());
        let (up, down) = (shared.clone(), shared.clone());
        thread::spawn(move || pump(&up, number, dialler, listening, true));
        thread::spawn(move || pump(&down, number, ends.1, ends.0, false));
    }
}

fn pump(shared: &Shared, number: usize, mut from: TcpStream, mut to: TcpStream, upward: bool) {
    let mut buffer = vec![0; 16 * 1024];
    while !shared.over.load(SeqCst) {
        let allowed = if upward { shared.budget.load(SeqCst) } else { UNLIMITED };
        if number <= shared.frozen.load(SeqCst) || allowed == 0 {
            thread::sleep(TICK);
            continue;
        }
        let most = buffer.len().min(allowed);
        let read = from.read(&mut buffer[..most]);
        let is_cut = number <= shared.cut.load(SeqCst);
        match read {
            Ok(0) => {
                if is_cut && upward {
                    shared.closed.fetch_add(1, SeqCst);
                }
                if !is_cut {
                    let _ = to.shutdown(Shutdown::Both);
                }
                return;
            }
            Ok(bytes) if !is_cut => {
                if allowed != UNLIMITED {
                    shared.budget.fetch_sub(bytes, SeqCst);
                }
                if to.write_all(&buffer[..bytes]).is_err() {
                    let _ = from.shutdown(Shutdown::Both);
                    return;
                }
            }
            Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if !is_cut {
                    let _ = to.shutdown(Shutdown::Both);
                } else if upward {
                    shared.closed.fetch_add(1, SeqCst);
                }
                return;
            }
            Ok(_) | Err(_) => {}
        }
    }
}
