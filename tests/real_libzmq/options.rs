//! Options, limits and capabilities of the linked libzmq.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

use zmq::Error::{EADDRINUSE, EADDRNOTAVAIL, EMFILE, ENAMETOOLONG, ENODEV, ENOENT};
use zmq::{Context, SocketEvent, SocketType};

use crate::kit::{Nook, acquaint, address, bind, socket, until};

// Leans on it: every other pin was seen with this version.
#[test]
fn the_linked_libzmq_is_4_3_4() {
    assert_eq!(zmq::version(), (4, 3, 4));
}

// Leans on it: no security of libzmq's own is offered.
#[test]
fn the_vendored_build_has_ipc_and_no_curve() {
    assert_eq!(zmq::has("ipc"), Some(true));
    assert_eq!(zmq::has("curve"), Some(false));
}

// Leans on it: what the engine does not set. The handshake interval has a pin in `strangers`.
#[test]
fn unless_set_there_are_no_heartbeats_no_size_limit_and_marks_of_1000() {
    let context = Context::new();
    assert_eq!(context.get_io_threads(), Ok(1));
    let plain = context.socket(SocketType::ROUTER).unwrap();
    assert_eq!(plain.get_heartbeat_ivl(), Ok(0));
    assert_eq!(plain.get_maxmsgsize(), Ok(-1));
    assert_eq!((plain.get_sndhwm(), plain.get_rcvhwm()), (Ok(1000), Ok(1000)));
    assert_eq!(plain.is_router_mandatory(), Err(zmq::Error::EINVAL));
}

/// The name under which the test below runs itself again, alone in a process with descriptors enough.
const ALONE: &str = "REAL_LIBZMQ_ALONE";

// Leans on it: contexts are opened on demand.
#[test]
fn a_context_holds_1023_sockets_and_refuses_the_next_with_emfile() {
    if std::env::var_os(ALONE).is_none() {
        let output = Command::new("sh")
            .args(["-c", "ulimit -S -n 4096; exec \"$0\" \"$@\""])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "options::a_context_holds_1023_sockets_and_refuses_the_next_with_emfile"])
            .env(ALONE, "yes")
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && told.contains("1 passed"), "{told}");
        return;
    }
    let context = Context::new();
    let mut sockets = Vec::new();
    let refusal = loop {
        match context.socket(SocketType::DEALER) {
            Ok(socket) => sockets.push(socket),
            Err(refusal) => break refusal,
        }
    };
    assert_eq!((sockets.len(), refusal), (1023, EMFILE));
    // The room of a closed socket comes back a moment later, when it is closed for good.
    sockets.pop();
    sockets.push(until("room came back", || context.socket(SocketType::DEALER).ok()));

    // A monitor is a socket too, and so is its reader. (Each takes two descriptors: let the former ones go first.)
    drop(sockets);
    drop(context);
    let context = Context::new();
    let watched = |n: usize| {
        let (socket, place) = (context.socket(SocketType::DEALER)?, format!("inproc://{n}"));
        socket.monitor(&place, i32::from(SocketEvent::CONNECTED.to_raw()))?;
        let reader = context.socket(SocketType::PAIR)?;
        reader.connect(&place).map(|()| (socket, reader))
    };
    let mut sockets = Vec::new();
    let refusal = loop {
        match watched(sockets.len()) {
            Ok(pair) => sockets.push(pair),
            Err(refusal) => break refusal,
        }
    };
    assert_eq!((sockets.len(), refusal), (341, EMFILE));
}

/// The kernel timer of an established connection to `port` as /proc tells it: 2 is a keep-alive.
#[cfg(target_os = "linux")]
fn kernel_timer(port: u16) -> Option<u8> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let row = table.lines().find(|row| {
        let mut fields = row.split_whitespace().skip(2);
        fields.next().is_some_and(|remote| remote.ends_with(&format!(":{port:04X}")))
            && fields.next() == Some("01")
    })?;
    let timer = row.split_whitespace().nth(5)?;
    timer.split(':').next()?.parse().ok()
}

// Leans on it: half-open connections are reclaimed by the kernel only where this is honoured; no verdict waits for it.
#[test]
#[cfg(target_os = "linux")]
fn tcp_keep_alive_can_be_set_but_the_vendored_build_does_not_honour_it() {
    let context = Context::new();
    let router = socket(&context, SocketType::ROUTER);
    let dealer = socket(&context, SocketType::DEALER);
    for socket in [&router, &dealer] {
        socket.set_tcp_keepalive(1).unwrap();
        socket.set_tcp_keepalive_idle(15).unwrap();
        socket.set_tcp_keepalive_intvl(5).unwrap();
        socket.set_tcp_keepalive_cnt(3).unwrap();
        assert_eq!(socket.get_tcp_keepalive(), Ok(1));
        assert_eq!(socket.get_tcp_keepalive_idle(), Ok(15));
    }
    let endpoint = bind(&router);
    dealer.connect(&endpoint).unwrap();
    acquaint(&dealer, &router);
    let port = address(&endpoint).port();
    assert_eq!(kernel_timer(port), Some(0), "the kernel runs no timer for it");
}

// Leans on it: the option is set for an IPv6 literal, and only for that.
#[test]
fn ipv6_literals_need_the_option_and_ipv4_literals_look_strange_with_it() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        eprintln!("skipped: this machine has no IPv6 loopback");
        return;
    }
    let context = Context::new();
    let plain = socket(&context, SocketType::ROUTER);
    assert_eq!(plain.bind("tcp://[::1]:*"), Err(ENODEV));
    for (place, begin) in
        [("tcp://[::1]:*", "tcp://[::1]:"), ("tcp://127.0.0.1:*", "tcp://[::ffff:127.0.0.1]:")]
    {
        let [router, dealer] = [SocketType::ROUTER, SocketType::DEALER].map(|kind| {
            let socket = socket(&context, kind);
            socket.set_ipv6(true).unwrap();
            socket
        });
        router.bind(place).unwrap();
        let endpoint = router.get_last_endpoint().unwrap().unwrap();
        assert!(endpoint.starts_with(begin), "{endpoint}");
        dealer.connect(&endpoint).unwrap();
        acquaint(&dealer, &router);
    }
}

// Leans on it: a bind to port 0 is resolved and reported.
#[test]
fn a_wildcard_port_is_resolved_by_last_endpoint() {
    let context = Context::new();
    for place in ["tcp://127.0.0.1:0", "tcp://127.0.0.1:*"] {
        let router = socket(&context, SocketType::ROUTER);
        router.bind(place).unwrap();
        let endpoint = router.get_last_endpoint().unwrap().unwrap();
        assert_ne!(address(&endpoint).port(), 0);
        let dealer = socket(&context, SocketType::DEALER);
        dealer.connect(&endpoint).unwrap();
        acquaint(&dealer, &router);
    }
}

// Leans on it: the typed errors of a bind.
#[test]
fn a_bind_that_fails_says_why_at_once() {
    let context = Context::new();
    let nook = Nook::new("bind");
    let place = nook.path().display();
    let taken = socket(&context, SocketType::ROUTER);
    for (endpoint, refusal) in [
        (bind(&taken), EADDRINUSE),
        // An address of documentation, which no machine has.
        ("tcp://192.0.2.1:*".to_owned(), EADDRNOTAVAIL),
        (format!("ipc://{place}/nowhere/s"), ENOENT),
        (format!("ipc://{place}"), EADDRINUSE),
        (format!("ipc://{place}/{}", "x".repeat(120)), ENAMETOOLONG),
    ] {
        assert_eq!(socket(&context, SocketType::ROUTER).bind(&endpoint), Err(refusal), "{endpoint}");
    }
}

// Leans on it: the engine looks at an ipc path itself before it binds there, since libzmq would not.
#[test]
fn an_ipc_bind_takes_away_a_file_or_a_live_listener_without_a_word() {
    let context = Context::new();
    let nook = Nook::new("steal");
    let path = nook.path().join("s");
    std::fs::write(&path, b"somebody's file").unwrap();
    let first = socket(&context, SocketType::ROUTER);
    assert_eq!(first.bind(&nook.endpoint()), Ok(()));
    assert!(std::fs::read(&path).is_err(), "the file has become a socket");
    let second = socket(&context, SocketType::ROUTER);
    assert_eq!(second.bind(&nook.endpoint()), Ok(()));
    let dealer = socket(&context, SocketType::DEALER);
    dealer.connect(&nook.endpoint()).unwrap();
    acquaint(&dealer, &second);
}

// Leans on it: the same; this crate has no name for ENOTDIR and panics instead of returning it.
#[test]
fn a_bind_behind_a_file_panics() {
    let context = Context::new();
    let nook = Nook::new("panic");
    std::fs::write(nook.path().join("s"), b"").unwrap();
    let router = AssertUnwindSafe(socket(&context, SocketType::ROUTER));
    assert!(catch_unwind(|| router.bind(&format!("{}/behind", nook.endpoint()))).is_err());
}
