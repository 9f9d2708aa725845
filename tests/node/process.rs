//! A node as a process: started by its flags, driven by its standard input and by signals, known by its lines.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The node example, built as this test was. `cargo test` builds it anyway; `cargo test --test node` does not.
pub fn binary() -> &'static PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        // target/PROFILE/deps/node-…
        let own = std::env::current_exe().unwrap();
        let profile = own.ancestors().nth(2).unwrap();
        let name = match profile.file_name().unwrap().to_str().unwrap() {
            "debug" => "dev",
            other => other,
        };
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--locked", "--example", "node", "--profile", name, "--target-dir"])
            .arg(profile.parent().unwrap())
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .unwrap();
        assert!(status.success(), "the node example does not build");
        profile.join("examples/node")
    })
}

pub struct Node {
    child: Child,
    input: ChildStdin,
    lines: Receiver<Value>,
    errors: Receiver<String>,
    /// Every line so far.
    pub seen: Vec<Value>,
}

impl Node {
    /// Starts a node; flags are parted by spaces.
    pub fn start(flags: &str) -> Self {
        let mut child = Command::new(binary())
            .args(flags.split_whitespace())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let parse = |line: String| {
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("no JSON: {line}: {error}"))
        };
        let lines = read(child.stdout.take().unwrap(), parse);
        let errors = read(child.stderr.take().unwrap(), |line| line);
        Self { input: child.stdin.take().unwrap(), child, lines, errors, seen: Vec::new() }
    }

    /// Starts a server of channel `orders` named `gateway`; returns where it listens too.
    pub fn server(more: &str) -> (Self, String) {
        let mut server =
            Self::start(&format!("server --channel orders --bind tcp://127.0.0.1:0 --rid gateway {more}"));
        let listening = server.next("listening");
        let endpoint = text(&listening["endpoint"]);
        (server, endpoint)
    }

    /// Starts a client of that channel.
    pub fn client(rid: &str, endpoint: &str, more: &str) -> Self {
        Self::start(&format!("client --channel orders --connect {endpoint} --rid {rid} {more}"))
    }

    /// Starts a publisher of channel `ticks`; returns where it publishes too.
    pub fn publisher(more: &str) -> (Self, String) {
        let mut publisher =
            Self::start(&format!("publisher --channel ticks --bind tcp://127.0.0.1:0 {more}"));
        let listening = publisher.next("listening");
        let endpoint = text(&listening["endpoint"]);
        (publisher, endpoint)
    }

    /// Starts a subscriber of that channel.
    pub fn subscriber(endpoints: &[&str], more: &str) -> Self {
        let connects = endpoints.join(" --connect ");
        Self::start(&format!("subscriber --channel ticks --connect {connects} {more}"))
    }

    /// The next line of this event; at most 10 s from now.
    pub fn next(&mut self, event: &str) -> Value {
        self.next_within(10.0, event, |_| true)
    }

    /// The next line of this event about this peer; at most 10 s from now.
    pub fn next_about(&mut self, event: &str, rid: &str) -> Value {
        self.next_within(10.0, event, |line| line["rid"] == rid)
    }

    /// The next line of this event that is wanted; at most so many seconds from now.
    pub fn next_within(&mut self, seconds: f64, event: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        while let Ok(line) = self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            self.seen.push(line.clone());
            if line["event"] == event && wanted(&line) {
                return line;
            }
        }
        panic!("not in {seconds} s: {event}; seen: {:#?}; said: {:?}", self.seen, self.complaints());
    }

    /// Reads on for so long.
    pub fn watch(&mut self, seconds: f64) {
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        while let Ok(line) = self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            self.seen.push(line);
        }
    }

    /// Reads what there is.
    pub fn catch_up(&mut self) {
        self.seen.extend(self.lines.try_iter());
    }

    /// All lines of this event so far.
    pub fn all(&self, event: &str) -> Vec<&Value> {
        self.seen.iter().filter(|line| line["event"] == event).collect()
    }

    /// The next line on standard error; at most 10 s from now.
    pub fn complaint(&mut self) -> String {
        self.errors.recv_timeout(Duration::from_secs(10)).expect("it has not complained")
    }

    fn complaints(&self) -> Vec<String> {
        self.errors.try_iter().collect()
    }

    /// Gives it a command.
    pub fn command(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for its end, at most 10 s, and reads its last lines.
    pub fn end(&mut self) -> ExitStatus {
        let end = Instant::now() + Duration::from_secs(10);
        // Its lines end when it does.
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => self.seen.push(line),
                Err(mpsc::RecvTimeoutError::Disconnected) => return self.child.wait().unwrap(),
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("it does not end: {:#?}", self.seen),
            }
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads lines on a thread of its own.
fn read<T: Send + 'static>(from: impl Read + Send + 'static, take: fn(String) -> T) -> Receiver<T> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if sender.send(take(line)).is_err() {
                return;
            }
        }
    });
    receiver
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}
