//! Many quiet peers in a process of their own, so that neither their descriptors nor their work count as the engine's.
//! Each is a bare TCP connection that speaks ZMTP 3.0 and WIRE.md by hand, shakes hands, and answers what it is asked.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use super::{CHANNEL, wire};

/// How many dials are under way at once: fewer than any backlog.
const UNDER_WAY_MAX: usize = 100;
/// Tokens from here on are connections; below are listeners.
const FIRST_CONNECTION: usize = 1 << 20;

/// The crowd as its parent sees it. Dropping it ends all its connections.
pub struct Crowd {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Crowd {
    /// So many clients, which dial when told to [go](Self::go).
    pub fn clients(server: &str, count: usize) -> Self {
        Self::start(&["--crowd-dials", server, &count.to_string()])
    }

    /// So many servers, and where they listen.
    pub fn servers(count: usize) -> (Self, Vec<String>) {
        let mut crowd = Self::start(&["--crowd-serves", "-", &count.to_string()]);
        let endpoints = (0..count).map(|_| crowd.line()).collect();
        (crowd, endpoints)
    }

    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut crowd = Self { child, stdin, stdout };
        assert_eq!(crowd.line(), "here");
        crowd
    }

    pub fn go(&mut self) {
        writeln!(self.stdin.as_ref().unwrap(), "go").unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim().into()
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        // It ends when its input does.
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

/// Is this process a crowd? Then it never returns.
pub fn be_one_if_asked() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, role, server, count] = &arguments[..] else { return };
    let count = count.parse().unwrap_or(0);
    match role.as_str() {
        "--crowd-dials" => People::new().dial(server.trim_start_matches("tcp://").parse().unwrap(), count),
        "--crowd-serves" => People::new().serve(count),
        _ => {}
    }
}

struct People {
    poll: Poll,
    connections: Vec<Option<Connection>>,
    ready: usize,
}

struct Connection {
    stream: TcpStream,
    rid: String,
    /// Where it listens, if it is a server's.
    endpoint: Option<String>,
    input: Vec<u8>,
    output: Vec<u8>,
    greeted: bool,
    /// Its own READY came: before that a hello would be dropped by libzmq.
    open: bool,
    ready: bool,
}

impl People {
    fn new() -> Self {
        println!("here");
        Self { poll: Poll::new().unwrap(), connections: Vec::new(), ready: 0 }
    }

    fn dial(mut self, server: SocketAddr, count: usize) -> ! {
        await_word();
        let mut events = Events::with_capacity(1_024);
        loop {
            while self.connections.len() < count.min(self.ready + UNDER_WAY_MAX) {
                let rid = format!("peer-{}", self.connections.len());
                self.add(TcpStream::connect(server).unwrap(), rid, None);
            }
            self.wait(&mut events);
            for event in &events {
                self.serve_connection(event.token().0 - FIRST_CONNECTION);
            }
        }
    }

    fn serve(mut self, count: usize) -> ! {
        let mut listeners = Vec::new();
        for number in 0..count {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.set_nonblocking(true).unwrap();
            self.watch(&listener, number, Interest::READABLE);
            println!("tcp://{}", listener.local_addr().unwrap());
            listeners.push(listener);
        }
        std::thread::spawn(await_end);
        let mut events = Events::with_capacity(1_024);
        loop {
            self.wait(&mut events);
            for event in &events {
                let Token(number) = event.token();
                if number >= FIRST_CONNECTION {
                    self.serve_connection(number - FIRST_CONNECTION);
                    continue;
                }
                while let Ok((stream, _)) = listeners[number].accept() {
                    let endpoint = format!("tcp://{}", listeners[number].local_addr().unwrap());
                    self.add(stream, format!("peer-{number}"), Some(endpoint));
                }
            }
        }
    }

    fn wait(&mut self, events: &mut Events) {
        if let Err(error) = self.poll.poll(events, Some(Duration::from_millis(100))) {
            assert_eq!(error.kind(), io::ErrorKind::Interrupted);
        }
    }

    fn watch(&self, source: &impl AsRawFd, token: usize, interest: Interest) {
        let descriptor = source.as_raw_fd();
        self.poll.registry().register(&mut SourceFd(&descriptor), Token(token), interest).unwrap();
    }

    fn add(&mut self, stream: TcpStream, rid: String, endpoint: Option<String>) {
        stream.set_nonblocking(true).unwrap();
        stream.set_nodelay(true).unwrap();
        let both = Interest::READABLE | Interest::WRITABLE;
        self.watch(&stream, FIRST_CONNECTION + self.connections.len(), both);
        let mut output = vec![0; 64];
        (output[0], output[9], output[10]) = (0xFF, 0x7F, 3);
        output[12..16].copy_from_slice(b"NULL");
        let kind = if endpoint.is_some() { b"ROUTER" } else { b"DEALER" };
        let ready = [&b"\x05READY\x0BSocket-Type\x00\x00\x00\x06"[..], kind].concat();
        output.extend([4, ready.len() as u8]);
        output.extend(ready);
        let (input, greeted, open, ready) = (Vec::new(), false, false, false);
        self.connections.push(Some(Connection {
            stream,
            rid,
            endpoint,
            input,
            output,
            greeted,
            open,
            ready,
        }));
    }

    /// Takes in and answers all there is; forgets the connection when it has ended.
    fn serve_connection(&mut self, number: usize) {
        let Some(connection) = &mut self.connections[number] else { return };
        let was_ready = connection.ready;
        let stands = connection.converse();
        self.ready += usize::from(connection.ready && !was_ready);
        if !stands {
            self.connections[number] = None;
        }
    }
}

impl Connection {
    fn converse(&mut self) -> bool {
        let mut buffer = [0; 4_096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(count) => self.input.extend(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return false,
            }
        }
        self.listen();
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(count) => drop(self.output.drain(..count)),
                Err(error) => {
                    return matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected);
                }
            }
        }
        true
    }

    fn listen(&mut self) {
        if !self.greeted && self.input.len() >= 64 {
            self.greeted = true;
            self.input.drain(..64);
        }
        while self.greeted && self.input.len() >= 2 {
            let (begin, length) = match self.input[0] & 2 {
                0 => (2, usize::from(self.input[1])),
                _ if self.input.len() < 9 => return,
                _ => (9, u64::from_be_bytes(self.input[1..9].try_into().unwrap()) as usize),
            };
            if self.input.len() < begin + length {
                return;
            }
            let is_command = self.input[0] & 4 != 0;
            let body: Vec<u8> = self.input.drain(..begin + length).skip(begin).collect();
            if !is_command {
                self.answer(&body);
            } else if !self.open && self.endpoint.is_none() {
                self.open = true;
                frame(&mut self.output, &wire::hello(CHANNEL, &self.rid));
            }
        }
    }

    fn answer(&mut self, head: &[u8]) {
        match (wire::command(head), &self.endpoint) {
            (wire::HELLO, Some(endpoint)) => {
                frame(&mut self.output, &wire::admit(CHANNEL, &self.rid, endpoint, head));
            }
            (wire::ADMIT, None) => frame(&mut self.output, &wire::probe(1)),
            (wire::PROBE, _) => frame(&mut self.output, &wire::ack(head)),
            (wire::ACK, None) => self.ready = true,
            _ => {}
        }
    }
}

/// One ZMTP message of one frame.
fn frame(output: &mut Vec<u8>, body: &[u8]) {
    if let Ok(length) = u8::try_from(body.len()) {
        output.extend([0, length]);
    } else {
        output.push(2);
        output.extend((body.len() as u64).to_be_bytes());
    }
    output.extend(body);
}

/// Waits for the word to go, and lets another thread wait for the end of input, which ends the process.
fn await_word() {
    let mut line = String::new();
    if io::stdin().read_line(&mut line).unwrap_or(0) == 0 {
        std::process::exit(0);
    }
    std::thread::spawn(await_end);
}

fn await_end() {
    let _ = io::stdin().read_to_end(&mut Vec::new());
    std::process::exit(0);
}
