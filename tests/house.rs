//! The rules of the house, kept by reading `src` as tokens, so that no comment and no text can hide or feign a breach.
//!
//! Each rule is a function from a file to its breaches. Its test first shows what it catches and what it lets pass, and
//! only then reads the whole house.

#[path = "house/source.rs"]
mod source;

use source::Scope::{Shipped, TestsToo};
use source::{File, code_lines, house, item_end, test_modules};

/// The rooms in the order of DESIGN §6: a room imports only from rooms named before it. Clarifications of that list:
/// `slots` is the generational slab that several rooms keep their state in; `config` and `error` are vocabularies, so they
/// stand just before and just after `io`, whose refusals `error` hands on.
const ROOMS: [&str; 16] = [
    "name", "clock", "slots", "wire", "liveness", "rotation", "config", "io", "error", "link", "topology",
    "host", "turn", "status", "engine", "sim",
];
/// `src/lib.rs`, the only public face: it imports from every room, and no room imports from it.
const FACE: &str = "lib";
/// All that the library may depend on (issue 2).
const DEPENDENCIES: [&str; 6] = ["log", "mio", "slab", "smallvec", "thiserror", "zmq"];
const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;

/// The breaches of one rule in one file, each with its place and what to do.
type Rule = fn(&File) -> Vec<String>;

// ---- What may not be written, and where ----

#[test]
fn a_room_imports_only_from_rooms_that_stand_before_it() {
    catches(imports, "src/wire/record.rs", "use crate::io::Lane;");
    catches(imports, "src/wire/mod.rs", "use crate::{clock::Moment, link::{phase::Phase, owed}};");
    catches(imports, "src/clock.rs", "fn f(watch: &crate::liveness::Grid) {}");
    catches(imports, "src/clock.rs", "use super::wire::Record;");
    catches(imports, "src/wire/record.rs", "mod deep { use super::super::super::io::Lane; }");
    catches(imports, "src/wire/mod.rs", "use crate::Rid;");
    catches(imports, "src/wire/mod.rs", "use crate::*;");
    catches(imports, "src/config.rs", "use crate::error::StartError;");
    catches(imports, "src/lounge.rs", "struct Sofa;");
    passes(imports, "src/io/lane.rs", "use crate::{clock::Moment, config::Config, wire, io::Poller};");
    passes(imports, "src/wire/record.rs", "use super::head::Head; mod deep { pub(crate) use super::Head; }");
    passes(imports, "src/wire/mod.rs", "#[cfg(test)] mod tests { use super::*; use crate::sim::Seed; }");
    passes(imports, "src/lib.rs", "pub use engine::Engine; use crate::sim::Seed;");
    whole_house(imports);
}

#[test]
fn nothing_reads_the_wall_clock() {
    const RULE: Rule =
        |file| file.bans(&["SystemTime", "UNIX_EPOCH"], TestsToo, "000 §2 allows the monotonic clock alone");
    catches(RULE, "src/status.rs", "use std::time::{Duration, SystemTime};");
    catches(RULE, "src/clock.rs", "#[cfg(test)] mod tests { fn f() { std::time::UNIX_EPOCH; } }");
    passes(RULE, "src/status.rs", "//! Never a SystemTime.\nconst WHY: &str = \"SystemTime\";");
    whole_house(RULE);
}

#[test]
fn only_the_clock_room_reads_the_clock() {
    const RULE: Rule = |file| match file.room() {
        "clock" => Vec::new(),
        _ => file.bans(&["Instant :: now", ". elapsed ("], TestsToo, "take the time as an argument"),
    };
    catches(RULE, "src/turn/due.rs", "fn f() { let now = std::time::Instant::now(); }");
    catches(RULE, "src/turn/due.rs", "fn f(began: Instant) { began.elapsed(); }");
    passes(RULE, "src/clock.rs", "fn f() { std::time::Instant::now().elapsed(); }");
    passes(RULE, "src/turn/due.rs", "fn f(moment: Moment) { moment.now; self.elapsed; }");
    whole_house(RULE);
}

#[test]
fn only_io_touches_zmq_and_mio() {
    const NAMES: [&str; 6] = ["zmq ::", "mio ::", "use zmq", "use mio", "crate zmq", "crate mio"];
    const RULE: Rule = |file| match file.room() {
        "io" => Vec::new(),
        _ => file.bans(&NAMES, TestsToo, "reach the transport through crate::io"),
    };
    catches(RULE, "src/error.rs", "struct Failed(zmq::Error);");
    catches(RULE, "src/engine.rs", "use mio as transport;");
    passes(RULE, "src/io/lane.rs", "use zmq::Socket; use mio::Poll;");
    passes(RULE, "src/engine.rs", "/// Like zmq::Socket.\nfn zmq() {}");
    whole_house(RULE);
}

#[test]
fn no_receive_allocates_a_record() {
    const RULE: Rule = |file| {
        let calls = ["recv_multipart", "recv_bytes", "recv_string"];
        file.bans(&calls, TestsToo, "receive into a reused message")
    };
    catches(RULE, "src/io/lane.rs", "fn f(socket: &Socket) { socket.recv_multipart(0); }");
    passes(RULE, "src/io/lane.rs", "fn f(socket: &Socket) { socket.recv(&mut self.message, DONTWAIT); }");
    whole_house(RULE);
}

#[test]
fn nothing_is_unsafe() {
    const RULE: Rule = |file| file.bans(&["unsafe"], TestsToo, "find the safe way; the crate forbids it");
    catches(RULE, "src/io/lane.rs", "fn f() { unsafe { g() } }");
    passes(RULE, "src/lib.rs", "#![forbid(unsafe_code)]");
    whole_house(RULE);
}

#[test]
fn nothing_sleeps_and_only_a_test_starts_a_thread() {
    const SLEEP: Rule =
        |file| file.bans(&["sleep ("], TestsToo, "virtual time serves; only wait() may block");
    const SPAWN: Rule = |file| file.bans(&["spawn ("], Shipped, "the engine has no thread of its own");
    catches(SLEEP, "src/io/dial.rs", "fn f() { std::thread::sleep(PAUSE); }");
    catches(SLEEP, "src/io/dial.rs", "#[cfg(test)] mod tests { fn f() { sleep(PAUSE); } }");
    catches(SPAWN, "src/io/dial.rs", "fn f() { thread::Builder::new().spawn(work); }");
    passes(SPAWN, "src/io/dial.rs", "#[cfg(test)] mod tests { fn f() { thread::spawn(work); } }");
    passes(SLEEP, "src/io/dial.rs", "fn sleeper() {}");
    whole_house(SLEEP);
    whole_house(SPAWN);
}

#[test]
fn nothing_is_left_undone_or_printed() {
    const UNDONE: Rule =
        |file| file.bans(&["todo !", "unimplemented !", "dbg !"], TestsToo, "finish it or leave it out");
    const PRINTED: Rule = |file| {
        let prints = ["print !", "println !", "eprint !", "eprintln !"];
        file.bans(&prints, Shipped, "a library speaks through events and log")
    };
    catches(UNDONE, "src/turn/due.rs", "#[cfg(test)] fn f() { todo!() }");
    catches(PRINTED, "src/turn/due.rs", "fn f() { eprintln!(\"{}\", 1); }");
    passes(PRINTED, "src/turn/due.rs", "#[test] fn f() { println!(\"{}\", 1); }");
    passes(UNDONE, "src/turn/due.rs", "// todo!()\nfn todo() {}");
    whole_house(UNDONE);
    whole_house(PRINTED);
}

#[test]
fn no_shipped_code_unwraps() {
    const RULE: Rule = |file| {
        let instead = "return the error, or expect() with the reason why it cannot fail";
        file.bans(&[". unwrap ("], Shipped, instead)
    };
    catches(RULE, "src/wire/mod.rs", "fn f() { g().unwrap(); }");
    catches(RULE, "src/wire/mod.rs", "#[cfg(not(test))] fn f() { g().unwrap(); }");
    catches(RULE, "src/wire/mod.rs", "#[cfg(test)] use a::B; fn f() { g().unwrap(); }");
    passes(RULE, "src/wire/mod.rs", "fn f() { g().unwrap_or(0); }");
    passes(RULE, "src/wire/mod.rs", "#[cfg(test)] mod tests { fn f() { g().unwrap(); } }");
    whole_house(RULE);
}

// ---- How large, and what it says of itself ----

#[test]
fn no_file_outgrows_one_job() {
    let lines = |count: usize| "struct S;\n\n/// Docs\n/* and comments */ // do not count.\n".repeat(count);
    catches(file_size, "src/wire/mod.rs", &lines(FILE_LINES_MAX + 1));
    let tests = "#[cfg(test)]\nmod tests {\n fn f() {}\n}\n";
    passes(file_size, "src/wire/mod.rs", &(lines(FILE_LINES_MAX) + tests));
    passes(file_size, "src/wire/tests.rs", &lines(FILE_LINES_MAX + 1));
    whole_house(file_size);
}

#[test]
fn no_function_outgrows_one_job() {
    let function = |lines: usize| {
        format!("impl S {{\nfn f(a: [u8; 2]) {{\n{}}}\n}}", "// Why.\n\ng();\n".repeat(lines - 2))
    };
    catches(function_sizes, "src/wire/mod.rs", &function(FUNCTION_LINES_MAX + 1));
    passes(function_sizes, "src/wire/mod.rs", &function(FUNCTION_LINES_MAX));
    let bodiless = "trait T { fn f(); }\n".to_owned();
    passes(function_sizes, "src/wire/mod.rs", &(bodiless + &function(FUNCTION_LINES_MAX)));
    whole_house(function_sizes);
}

#[test]
fn every_module_opens_with_what_it_owns() {
    catches(opening, "src/wire/mod.rs", "use std::fmt;\n//! Too late.");
    catches(opening, "src/wire/mod.rs", "//!\nuse std::fmt;");
    passes(opening, "src/wire/mod.rs", "//! The wire.\nuse std::fmt;");
    whole_house(opening);
}

#[test]
fn the_library_depends_on_six_crates_and_has_no_features() {
    let tokio = "[dependencies]\nmio = \"1\"\n# Why.\ntokio = \"1\"\n\n[dev-dependencies]\nproptest = \"1\"";
    assert_eq!(strangers(tokio).len(), 1);
    assert_eq!(strangers("[target.'cfg(unix)'.dependencies]\nlibc = \"1\"").len(), 1);
    assert_eq!(strangers("[features]\nfast = []").len(), 1);
    assert_eq!(strangers(include_str!("../Cargo.toml")), [""; 0]);
}

#[test]
fn a_file_declared_for_tests_only_is_known_as_one() {
    let modules = |path, text| test_modules(&File::new(path, text));
    assert_eq!(modules("src/lib.rs", "#[cfg(test)]\nmod sim;\nmod wire;"), ["src/sim.rs", "src/sim/"]);
    assert_eq!(
        modules("src/wire/mod.rs", "mod head; #[cfg(test)] pub(crate) mod tests;"),
        ["src/wire/tests.rs", "src/wire/tests/"]
    );
}

// ---- The rules that take more than a list of words ----

fn imports(file: &File) -> Vec<String> {
    let rank = |room: &str| ROOMS.iter().position(|known| *known == room);
    let room = file.room();
    if room == FACE {
        return Vec::new();
    }
    let Some(own) = rank(room) else {
        let what = "this room has no place in the order of DESIGN §6; give it one there and here";
        return vec![file.breach(1, what)];
    };
    let mut breaches = Vec::new();
    for import in file.imports().iter().filter(|import| !file.is_test(import)) {
        let name = &import.text;
        let what = match rank(name) {
            Some(other) if other <= own => continue,
            Some(_) => format!("{room} may not import {name}, which comes after it; move what both need up"),
            None => format!("{name} is no room; import from the room that owns what you need"),
        };
        breaches.push(file.breach(import.first_line, &what));
    }
    breaches
}

fn file_size(file: &File) -> Vec<String> {
    let lines = code_lines(&file.tokens);
    let over = lines > FILE_LINES_MAX && !file.path.contains("/tests");
    let what = format!("{lines} lines of code, at most {FILE_LINES_MAX}; part its jobs");
    over.then(|| file.breach(1, &what)).into_iter().collect()
}

fn function_sizes(file: &File) -> Vec<String> {
    let mut breaches = Vec::new();
    for (start, pair) in file.tokens.windows(2).enumerate() {
        // A `(` after `fn` makes it the type of a function pointer.
        if pair[0].text != "fn" || pair[1].text == "(" {
            continue;
        }
        let lines = code_lines(&file.tokens[start..=item_end(&file.tokens, start)]);
        if lines > FUNCTION_LINES_MAX {
            let name = &pair[1].text;
            let what =
                format!("{name} has {lines} lines of code, at most {FUNCTION_LINES_MAX}; part its jobs");
            breaches.push(file.breach(pair[0].first_line, &what));
        }
    }
    breaches
}

fn opening(file: &File) -> Vec<String> {
    let opens = file.text.lines().next().and_then(|line| line.strip_prefix("//! "));
    let what = "open the module with a `//!` paragraph: what it owns and what it must never know";
    if opens.is_some() { Vec::new() } else { vec![file.breach(1, what)] }
}

/// What the manifest has beyond the six crates.
fn strangers(manifest: &str) -> Vec<String> {
    let mut section = "";
    let mut strangers = Vec::new();
    for (index, line) in manifest.lines().enumerate() {
        let allowed = if line.starts_with('[') {
            section = line;
            let takes = line.contains("dependencies") || line.starts_with("[features");
            !takes || line == "[dependencies]" || line == "[dev-dependencies]"
        } else {
            let name = line.split(['=', '.', ' ']).next().unwrap_or_default();
            section != "[dependencies]" || name.is_empty() || name == "#" || DEPENDENCIES.contains(&name)
        };
        if !allowed {
            let what = format!("take {DEPENDENCIES:?} alone, and no feature flags");
            strangers.push(format!("Cargo.toml:{}: {line}: {what}", index + 1));
        }
    }
    strangers
}

// ---- Proving a rule ----

#[track_caller]
fn catches(rule: Rule, path: &str, text: &str) {
    let breaches = rule(&File::new(path, text));
    assert_eq!(breaches.len(), 1, "one breach should be caught in {path}: {breaches:?}");
    assert!(breaches[0].starts_with(&format!("{path}:")), "a breach names its place: {breaches:?}");
}

#[track_caller]
fn passes(rule: Rule, path: &str, text: &str) {
    assert_eq!(rule(&File::new(path, text)), [""; 0], "nothing is wrong in {path}");
}

#[track_caller]
fn whole_house(rule: Rule) {
    let files = house();
    assert!(files.iter().any(|file| file.path == "src/lib.rs"), "the house was not found");
    let breaches: Vec<String> = files.iter().flat_map(rule).collect();
    assert!(breaches.is_empty(), "\n{}", breaches.join("\n"));
}
