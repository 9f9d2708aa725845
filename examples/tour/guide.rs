//! The guide: it starts the processes, freezes and kills them, and checks what they say.

mod lobby;

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio, exit};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use wakeful::PEER_DEADLINE;

use crate::{CLIENTS, PUBLISHERS, SERVER, SUBSCRIBER};

/// Leads through the tour. Returns whether everything held.
pub fn lead() -> Result<bool, Box<dyn Error>> {
    let mut guide = Guide::new()?;
    guide.open()?;
    guide.freeze_two();
    guide.sleep_and_wake();
    guide.kill_a_client()?;
    guide.gather()?;
    guide.freeze_one_and_kill_one()?;
    println!();
    if guide.broken == 0 {
        println!("Everything held. It took {} s.", guide.began.elapsed().as_secs());
    } else {
        println!("{} of these did not hold.", guide.broken);
    }
    Ok(guide.broken == 0)
}

/// One line that a process said.
struct Said {
    who: String,
    words: Vec<String>,
    /// Since the act began.
    at: Duration,
}

impl Said {
    fn is(&self, who: &str, words: &[&str]) -> bool {
        self.who == who && self.words.iter().map(String::as_str).eq(words.iter().copied())
    }

    fn verb(&self) -> &str {
        &self.words[0]
    }

    /// The number that one of its words is.
    fn number(&self, word: usize) -> u64 {
        self.words.get(word).and_then(|word| word.parse().ok()).unwrap_or(0)
    }

    /// Whether this tells of trouble between two processes.
    fn is_accusation(&self) -> bool {
        matches!(self.verb(), "missed" | "lost")
    }

    /// Whether this tells of a stall longer than the deadline, but for the second that its process vouches for.
    fn slept_through(&self) -> bool {
        self.verb() == "stalled" && Duration::from_millis(self.number(1)) >= PEER_DEADLINE
    }

    fn concerns(&self, name: &str) -> bool {
        self.who == name || self.words.get(1).is_some_and(|whom| whom == name)
    }
}

struct Guide {
    began: Instant,
    act: Instant,
    processes: BTreeMap<String, Child>,
    /// What hears them; each ends when its process does.
    readers: Vec<JoinHandle<()>>,
    ear: Sender<(String, String)>,
    lines: Receiver<(String, String)>,
    /// All that was said in this act.
    said: Vec<Said>,
    /// Where those listen that do.
    endpoints: BTreeMap<String, String>,
    interrupted: Arc<AtomicBool>,
    broken: u32,
}

impl Guide {
    fn new() -> Result<Self, Box<dyn Error>> {
        let interrupted = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&interrupted))?;
        let (ear, lines) = mpsc::channel();
        let now = Instant::now();
        Ok(Self {
            began: now,
            act: now,
            processes: BTreeMap::new(),
            readers: Vec::new(),
            ear,
            lines,
            said: Vec::new(),
            endpoints: BTreeMap::new(),
            interrupted,
            broken: 0,
        })
    }

    fn open(&mut self) -> Result<(), Box<dyn Error>> {
        println!("A server and four clients, two publishers and a subscriber, each a process of its own,");
        println!("on loopback TCP. Each client sends a message and a request ten times a second. gold and");
        println!("silver publish their prices ten times a second to whoever listens; board listens.");
        self.begin("They meet");
        self.start_listener(SERVER, &["as-server"])?;
        for name in PUBLISHERS {
            self.start_listener(name, &["as-publisher", name])?;
        }
        for name in CLIENTS {
            self.start_client(name)?;
        }
        let mut arguments = vec!["as-subscriber".to_owned()];
        arguments
            .extend(PUBLISHERS.iter().flat_map(|name| [(*name).to_owned(), self.endpoints[*name].clone()]));
        self.start(SUBSCRIBER, &arguments)?;
        let meetings: Vec<(&str, &str)> = CLIENTS
            .iter()
            .map(|name| (SERVER, *name))
            .chain(PUBLISHERS.iter().map(|name| (SUBSCRIBER, *name)))
            .collect();
        for (who, whom) in &meetings {
            self.wait_until(10, |said| said.is(who, &["ready", whom]));
        }
        self.watch(Duration::from_secs(3));
        let all_ready = meetings.iter().all(|(who, whom)| self.heard(who, &["ready", whom]).is_some());
        self.check(all_ready, "all four clients and both publishers are ready");
        self.check(CLIENTS.iter().all(|name| self.was_served(name)), "every client's requests are answered");
        let all_heard = PUBLISHERS.iter().all(|name| self.was_followed(name));
        self.check(all_heard, "board hears both prices");
        Ok(())
    }

    fn freeze_two(&mut self) {
        self.begin("A client and a publisher freeze");
        println!("ben and silver are stopped in the middle of their work (SIGSTOP). Their connections stay");
        println!("open, so only silence tells. The server asks ben every 5 s, and waits 15 s after an");
        println!("answer. A publisher is not asked, but says something every 5 s at least; so board waits");
        println!("15 s for its next word.");
        self.signal("ben", Signal::STOP);
        self.signal("silver", Signal::STOP);
        let lost = self.wait_until(20, |said| said.is(SERVER, &["lost", "ben", "silence"]));
        let warned = ["1", "2"].iter().all(|asks| self.heard(SERVER, &["missed", "ben", asks]).is_some());
        self.check(warned, "ben: two early warnings came first");
        // His last answer came at most one interval before he froze.
        let in_time = lost.is_some_and(|at| (9.5..16.0).contains(&at.as_secs_f64()));
        self.check(in_time, "then the verdict, 15 s after his last answer");
        let lost = self.wait_until(10, |said| said.is(SUBSCRIBER, &["lost", "silver", "silence"]));
        let in_time = lost.is_some_and(|at| (14.5..18.0).contains(&at.as_secs_f64()));
        self.check(in_time, "silver: board's verdict came 15 s after its last price");
        let unharmed = self.are_unharmed(&["anna", "carla", "dora"]);
        self.check(unharmed, "the other clients never wavered: no warning, and an answer each second");
        let unharmed = self.was_followed("gold") && !self.is_troubled("gold");
        self.check(unharmed, "nor did gold: its price was heard each second");

        println!("  ben and silver go on (SIGCONT).");
        let from = self.act.elapsed();
        self.signal("ben", Signal::CONT);
        self.signal("silver", Signal::CONT);
        let back = self.wait_until(10, |said| said.at > from && said.is(SERVER, &["ready", "ben"]));
        self.check(back.is_some(), "ben is told that he was given up, and is back");
        let back = self.wait_until(10, |said| said.at > from && said.is(SUBSCRIBER, &["ready", "silver"]));
        self.check(back.is_some(), "silver is back with the first price that it tells");
        let blamed =
            self.said.iter().any(|said| said.who == "ben" && said.words.contains(&"silence".to_owned()));
        self.check(!blamed, "ben blames nobody for the time that he slept through");
    }

    fn sleep_and_wake(&mut self) {
        self.begin("The machine sleeps");
        println!("All eight stop at once for 17 s, as when a laptop's lid is closed. By the clock every one");
        println!("of them is then silent for longer than 15 s. But nobody is awake to watch it.");
        let everyone: Vec<String> = self.processes.keys().cloned().collect();
        self.signal_all(&everyone, Signal::STOP);
        self.watch(PEER_DEADLINE + Duration::from_secs(2));
        println!("  They wake.");
        let woke = self.act.elapsed();
        self.signal_all(&everyone, Signal::CONT);
        // Longer than an interval, so that everybody has asked everybody again.
        self.watch(Duration::from_secs(6));
        let accused = self.said.iter().any(Said::is_accusation);
        self.check(!accused, "nobody was accused, nobody was lost, nobody had to connect anew");
        // A short stall of a busy machine would be told in the same words.
        let stalls =
            |name: &str| self.said.iter().filter(|said| said.who == name && said.slept_through()).count();
        let stalled_once = everyone.iter().all(|name| stalls(name) == 1);
        let since =
            |said: &Said, who: &str, verb: &str| said.at > woke && said.who == who && said.verb() == verb;
        let all_served =
            CLIENTS.iter().all(|name| self.said.iter().any(|said| since(said, name, "answered")));
        let all_heard = PUBLISHERS
            .iter()
            .all(|name| self.said.iter().any(|said| since(said, SUBSCRIBER, "heard") && said.concerns(name)));
        self.check(stalled_once, "each has one record of its own long stall");
        self.check(all_served && all_heard, "and the work goes on");
    }

    fn kill_a_client(&mut self) -> Result<(), Box<dyn Error>> {
        self.begin("A client is killed");
        println!("dora is killed (SIGKILL). The system closes her connection, so no deadline is needed.");
        self.kill("dora")?;
        let lost = self.wait_until(5, |said| said.is(SERVER, &["lost", "dora", "transport"]));
        self.check(lost.is_some_and(|at| at < Duration::from_secs(1)), "the server knows at once");
        let from = self.act.elapsed();
        self.start_client("dora")?;
        let ready = self.wait_until(10, |said| said.at > from && said.is(SERVER, &["ready", "dora"]));
        self.check(ready.is_some(), "her successor, under the same name, takes her place");
        self.watch(Duration::from_secs(2));
        let clients = self.are_unharmed(&["anna", "ben", "carla"]);
        let publishers = PUBLISHERS.iter().all(|name| self.was_followed(name) && !self.is_troubled(name));
        self.check(clients && publishers, "the others never noticed");
        Ok(())
    }

    // ---- How the guide starts, signals and hears the processes ----

    fn begin(&mut self, title: &str) {
        println!("\n== {title}");
        self.act = Instant::now();
        self.said.clear();
    }

    fn start<A: AsRef<OsStr>>(&mut self, name: &str, arguments: &[A]) -> Result<(), Box<dyn Error>> {
        let mut process = Command::new(env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = process.stdout.take().ok_or("no standard output")?;
        self.processes.insert(name.to_owned(), process);
        let (name, ear) = (name.to_owned(), self.ear.clone());
        self.readers.push(thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if ear.send((name.clone(), line)).is_err() {
                    return;
                }
            }
        }));
        Ok(())
    }

    /// Starts a process that others connect to, and learns where.
    fn start_listener(&mut self, name: &str, arguments: &[&str]) -> Result<(), Box<dyn Error>> {
        self.start(name, arguments)?;
        let listens = |said: &Said| said.who == name && said.verb() == "listens";
        self.wait_until(10, listens);
        let endpoint = self.said.iter().find(|said| listens(said)).and_then(|said| said.words.get(1));
        let endpoint = endpoint.ok_or("somebody does not listen")?.clone();
        self.endpoints.insert(name.to_owned(), endpoint);
        Ok(())
    }

    fn start_client(&mut self, name: &str) -> Result<(), Box<dyn Error>> {
        let endpoint = self.endpoints[SERVER].clone();
        self.start(name, &["as-client", name, &endpoint])
    }

    fn signal(&self, name: &str, signal: Signal) {
        let sent = self.processes.get(name).is_some_and(|process| {
            i32::try_from(process.id())
                .ok()
                .and_then(Pid::from_raw)
                .is_some_and(|pid| kill_process(pid, signal).is_ok())
        });
        assert!(sent, "{name} takes no signal");
    }

    fn kill(&mut self, name: &str) -> Result<(), Box<dyn Error>> {
        self.signal(name, Signal::KILL);
        if let Some(mut process) = self.processes.remove(name) {
            process.wait()?;
        }
        Ok(())
    }

    fn signal_all(&self, names: &[String], signal: Signal) {
        for name in names {
            self.signal(name, signal);
        }
    }

    /// Listens for so long.
    fn watch(&mut self, span: Duration) {
        self.listen(span, |_| false);
    }

    /// Listens until something is said, at most so many seconds. Returns when it was said, in this act.
    fn wait_until(&mut self, seconds: u64, wanted: impl Fn(&Said) -> bool) -> Option<Duration> {
        if let Some(said) = self.said.iter().find(|said| wanted(said)) {
            return Some(said.at);
        }
        self.listen(Duration::from_secs(seconds), wanted)
    }

    fn listen(&mut self, span: Duration, wanted: impl Fn(&Said) -> bool) -> Option<Duration> {
        let end = Instant::now() + span;
        let mut progress = Instant::now() + Duration::from_secs(3);
        loop {
            let now = Instant::now();
            if self.interrupted.load(Ordering::Relaxed) {
                self.end_processes();
                exit(130);
            }
            if now >= end {
                return None;
            }
            if now >= progress {
                progress = now + Duration::from_secs(3);
                self.tell_progress();
            }
            let patience = end.min(progress) - now;
            let (who, line) = match self.lines.recv_timeout(patience.min(Duration::from_millis(200))) {
                Ok(heard) => heard,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => continue,
            };
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            if words.is_empty() {
                continue;
            }
            let said = Said { who, words, at: self.act.elapsed() };
            narrate(&said);
            let at = wanted(&said).then_some(said.at);
            self.said.push(said);
            if at.is_some() {
                return at;
            }
        }
    }

    fn tell_progress(&self) {
        let newest = |who: &str, verb: &str, about: &str| {
            let mut lines = self.said.iter().rev();
            let line = lines.find(|said| said.who == who && said.verb() == verb && said.concerns(about));
            line.map_or(0, |said| said.number(if about == who { 1 } else { 2 }))
        };
        let messages = newest(SERVER, "messages", SERVER);
        let requests: u64 = CLIENTS.iter().map(|name| newest(name, "answered", name)).sum();
        let prices: u64 = PUBLISHERS.iter().map(|name| newest(SUBSCRIBER, "heard", name)).sum();
        let seconds = self.act.elapsed().as_secs();
        let shared = self.shared();
        if shared > 0 {
            println!("  {seconds:>3} s      ... so far {shared} requests answered");
        } else if requests == 0 {
            println!("  {seconds:>3} s      ... nobody says anything");
        } else {
            println!(
                "  {seconds:>3} s      ... so far {messages} messages, {requests} requests answered, {prices} prices heard"
            );
        }
    }

    /// When this was first said in this act.
    fn heard(&self, who: &str, words: &[&str]) -> Option<Duration> {
        self.said.iter().find(|said| said.is(who, words)).map(|said| said.at)
    }

    /// Whether a client got answers all through this act, each within a second.
    fn was_served(&self, name: &str) -> bool {
        let mine = || self.said.iter().filter(|said| said.who == name && said.verb() == "answered");
        rises(mine().map(|said| said.number(1))) && mine().all(|said| said.number(2) < 1000)
    }

    /// Whether a publisher's prices were heard all through this act.
    fn was_followed(&self, name: &str) -> bool {
        let about = self.said.iter().filter(|said| said.verb() == "heard" && said.concerns(name));
        rises(about.map(|said| said.number(2)))
    }

    /// Whether somebody accuses or is accused.
    fn is_troubled(&self, name: &str) -> bool {
        self.said.iter().any(|said| said.is_accusation() && said.concerns(name))
    }

    /// Whether these clients were served, and neither accused nor accusing.
    fn are_unharmed(&self, names: &[&str]) -> bool {
        names.iter().all(|name| self.was_served(name) && !self.is_troubled(name))
    }

    /// Leaves no process behind, frozen or not.
    fn end_processes(&mut self) {
        for process in self.processes.values_mut() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Ends all processes, and hears what they still had to say, so that no later act does.
    fn dismiss(&mut self) {
        self.end_processes();
        self.processes.clear();
        self.endpoints.clear();
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        while self.lines.try_recv().is_ok() {}
    }

    fn check(&mut self, holds: bool, what: &str) {
        println!("  [{}] {what}", if holds { "ok" } else { "BROKEN" });
        self.broken += u32::from(!holds);
    }
}

impl Drop for Guide {
    fn drop(&mut self) {
        self.end_processes();
    }
}

/// Whether a count was told, and was higher each time.
fn rises(counts: impl Iterator<Item = u64>) -> bool {
    let counts: Vec<u64> = counts.collect();
    !counts.is_empty() && counts.is_sorted_by(|earlier, later| earlier < later)
}

/// What a process said, in words for people.
fn narrate(said: &Said) {
    let words: Vec<&str> = said.words.iter().map(String::as_str).collect();
    let line = match words[..] {
        ["listens", endpoint] => format!("listens at {endpoint}"),
        ["ready", whom] | ["ready", whom, "1"] => format!("{whom} is ready"),
        ["ready", whom, run] => format!("{whom} is ready, in run {run}"),
        ["missed", whom, "1"] => format!("early warning: {whom} left a question unanswered for 5 s"),
        ["missed", whom, asks] => format!("early warning: {whom} has now left {asks} questions unanswered"),
        ["lost", whom, "silence"] => format!("verdict: {whom} is lost, for silence"),
        ["lost", whom, "transport"] => format!("{whom} is lost: the connection broke"),
        ["lost", whom, "rejected"] => format!("{whom} says that it has given me up; I connect anew"),
        ["lost", whom, reason] => format!("{whom} is lost: {reason}"),
        ["stalled", millis] => format!("I was not running for {millis} ms, and hold that against nobody"),
        _ => return,
    };
    println!("  {:>5.1} s  {}: {line}", said.at.as_secs_f64(), said.who);
}
