//! The second part of the tour, a mesh of equals: one comes late, one freezes, one is killed and starts anew.

use std::error::Error;
use std::time::Duration;

use rustix::process::Signal;

use super::{Guide, Said};
use crate::NODES;

/// A node listens where the system has a port free, and started anew where it did before.
const ANYWHERE: &str = "tcp://127.0.0.1:0";

impl Guide {
    pub(super) fn gather(&mut self) -> Result<(), Box<dyn Error>> {
        self.dismiss();
        println!(
            "\nThese eight leave. Now four equals without a server: each serves the same channel of a mesh,"
        );
        println!("asks that channel ten times a second, and all of them, itself too, answer in turn.");
        self.begin("A mesh, and one who comes late");
        let [early @ .., late] = NODES;
        for name in early {
            self.start_node(name, 1)?;
        }
        self.await_ready(&early);
        self.watch(Duration::from_secs(2));
        let all_share = self.do_share(&early);
        self.check(all_share, "north, east and south answer each other and themselves");
        self.start_node(late, 1)?;
        self.await_ready(&NODES);
        // The first answers come at once, and the first full second is behind them.
        self.watch(Duration::from_secs(2));
        let all_share = self.do_share(&NODES);
        self.check(all_share, "west came late, and takes its share of the answers");
        let accused = self.said.iter().any(Said::is_accusation);
        self.check(!accused, "nobody was lost when it came");
        Ok(())
    }

    pub(super) fn freeze_one_and_kill_one(&mut self) -> Result<(), Box<dyn Error>> {
        self.begin("One of them freezes, and one is killed");
        println!("south is stopped (SIGSTOP), then east is killed (SIGKILL) and started anew.");
        self.signal("south", Signal::STOP);
        let killed = self.act.elapsed();
        self.kill("east")?;
        let is_lost = |who: &'static str| move |said: &Said| said.is(who, &["lost", "east", "transport"]);
        let lost = ["north", "west"].map(|who| self.wait_until(5, is_lost(who)));
        let at_once = |at: &Option<Duration>| at.is_some_and(|at| at - killed < Duration::from_secs(1));
        self.check(lost.iter().all(at_once), "north and west know of east at once");
        self.start_node("east", 2)?;
        let is_back = |who: &'static str| move |said: &Said| said.is(who, &["ready", "east", "2"]);
        let back = ["north", "west"].map(|who| self.wait_until(5, is_back(who)));
        self.check(
            back.iter().all(Option::is_some),
            "and are ready with its second run as soon as that listens",
        );

        let is_judged = |who: &'static str| move |said: &Said| said.is(who, &["lost", "south", "silence"]);
        let judged = ["north", "west"].map(|who| self.wait_until(20, is_judged(who)));
        // Its last answers came at most one interval before it froze.
        let in_time = |at: &Option<Duration>| at.is_some_and(|at| (9.5..16.0).contains(&at.as_secs_f64()));
        self.check(judged.iter().all(in_time), "both give south up 15 s after its last answer");
        let unanswered = self.said.iter().filter(|said| said.verb() == "unanswered").count();
        self.check(unanswered > 0, "requests that fell to it until then ended after 2 s, unanswered");
        let others = ["north", "west"];
        let unharmed = self.do_share(&others) && !others.iter().any(|name| self.accuses(name));
        self.check(unharmed, "between north and west every answer came within a second");

        println!("  south goes on (SIGCONT).");
        let woke = self.act.elapsed();
        self.signal("south", Signal::CONT);
        for who in ["north", "east", "west"] {
            self.wait_until(10, |said| said.at > woke && said.is(who, &["ready", "south", "1"]));
            self.wait_until(5, |said| said.at > woke && said.who == who && is_share(said, "south"));
        }
        let all_back = NODES.iter().filter(|who| **who != "south").all(|who| {
            self.said.iter().any(|said| said.at > woke && said.who == *who && is_share(said, "south"))
        });
        self.check(all_back, "south is back with all three, and takes its share again");
        let silence = |said: &Said| said.who == "south" && said.words.iter().any(|word| word == "silence");
        let blames = self.said.iter().any(silence);
        self.check(!blames, "south blames nobody for the time that it slept through");
        Ok(())
    }

    /// Starts a node that dials all that listen already.
    fn start_node(&mut self, name: &str, run: u32) -> Result<(), Box<dyn Error>> {
        let bind = self.endpoints.get(name).map_or(ANYWHERE, String::as_str).to_owned();
        let others: Vec<String> = NODES
            .iter()
            .filter(|other| **other != name)
            .filter_map(|other| self.endpoints.get(*other).cloned())
            .collect();
        let run = run.to_string();
        let mut arguments = vec!["as-node", name, &run, &bind];
        arguments.extend(others.iter().map(String::as_str));
        self.start_listener(name, &arguments)
    }

    /// Waits until each of these has met each other one.
    fn await_ready(&mut self, names: &[&str]) {
        for who in names {
            for whom in names.iter().filter(|whom| *whom != who) {
                self.wait_until(10, |said| said.is(who, &["ready", whom, "1"]));
            }
        }
    }

    /// Whether each of these was answered by each of these in every second of this act, and within a second.
    fn do_share(&self, names: &[&str]) -> bool {
        let pairs = names.iter().flat_map(|who| names.iter().map(move |whom| (who, whom)));
        let mut told = pairs.map(|(who, whom)| {
            let mut lines =
                self.said.iter().filter(|said| said.who == **who && is_about(said, whom)).peekable();
            lines.peek().is_some() && lines.all(|said| is_share(said, whom))
        });
        told.all(|holds| holds)
    }

    /// Whether it accuses another one than those that were frozen and killed.
    fn accuses(&self, name: &str) -> bool {
        let is_innocent = |said: &Said| !said.concerns("south") && !said.concerns("east");
        self.said.iter().any(|said| said.who == name && said.is_accusation() && is_innocent(said))
    }

    /// The answers in this act, of all nodes to all.
    pub(super) fn shared(&self) -> u64 {
        self.said.iter().filter(|said| said.verb() == "got").map(|said| said.number(2)).sum()
    }
}

/// Whether this tells how many answers came from somebody in the last second.
fn is_about(said: &Said, whom: &str) -> bool {
    said.verb() == "got" && said.words.get(1).is_some_and(|word| word == whom)
}

/// Whether there were some, all within a second.
fn is_share(said: &Said, whom: &str) -> bool {
    is_about(said, whom) && said.number(2) > 0 && said.number(3) < 1000
}
