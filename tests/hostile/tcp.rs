//! CASES 59: telnet, port scans, half-open and half-witted TCP connections against a server's port.

use std::collections::VecDeque;
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::scene::Scene;
use crate::support::{ms, s};

const CONNECTIONS: usize = 10_000;
const OPEN_AT_ONCE: usize = 200;

/// ZMTP 3.0, as a dealer without security would begin.
fn greeting() -> Vec<u8> {
    let mut greeting = vec![0; 64];
    (greeting[0], greeting[9], greeting[10]) = (0xFF, 0x7F, 3);
    greeting[12..16].copy_from_slice(b"NULL");
    greeting
}

fn ready() -> Vec<u8> {
    let body = b"\x05READY\x0BSocket-Type\x00\x00\x00\x06DEALER";
    [&[4, body.len() as u8], &body[..]].concat()
}

/// What the `at`th connection says before it goes, or falls silent with its connection open.
fn words(at: usize) -> Vec<u8> {
    let random = |length: usize| {
        let mut state = at as u64 + 1;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        (0..length).map(|_| draw()).collect::<Vec<u8>>()
    };
    match at % 12 {
        0 => Vec::new(),
        1 => random(1 + at % 300),
        2 => b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        3 => greeting()[..1 + at % 63].to_vec(),
        4 => greeting(),
        5 => [greeting(), random(40)].concat(),
        6 => [greeting(), ready()[..at % 30].to_vec()].concat(),
        // The whole handshake, and then a frame of 2^63 bytes, half a record, or a record nobody can use.
        7 => [greeting(), ready(), vec![2, 0x80, 0, 0, 0, 0, 0, 0, 0]].concat(),
        8 => [greeting(), ready(), vec![1, 5, 0x5A, 0x4D]].concat(),
        9 => [greeting(), ready(), vec![0, 5], b"hello".to_vec()].concat(),
        10 => [greeting(), ready(), vec![0, 0]].concat(),
        // The first byte of a TLS hello, and many more than a greeting has.
        _ => [vec![0x16, 3, 1], random(2_000)].concat(),
    }
}

/// Sockets of this process that belong to connections to our port: those the server accepted and has not closed.
fn accepted_here(port: u16) -> Option<usize> {
    let table = std::fs::read_to_string("/proc/self/net/tcp").ok()?;
    let local = format!(":{port:04X}");
    let inodes: Vec<String> = table
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields[1].ends_with(&local) && fields[3] != "0A")
        .map(|fields| format!("socket:[{}]", fields[9]))
        .collect();
    let open = std::fs::read_dir("/proc/self/fd").ok()?;
    let links = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    Some(links.filter(|link| inodes.iter().any(|inode| link.as_os_str() == inode.as_str())).count())
}

#[test]
fn case_59_ten_thousand_scans_and_half_open_connections_leave_the_server_as_it_was() {
    let mut scene = Scene::new();
    let address: SocketAddr = scene.endpoint.as_str().strip_prefix("tcp://").unwrap().parse().unwrap();
    scene.neighbour_is_served();
    let before = accepted_here(address.port());
    let mut open = VecDeque::with_capacity(OPEN_AT_ONCE);
    let mut waits: Vec<Duration> = Vec::new();
    let mut most = 0;
    for at in 0..CONNECTIONS {
        let mut stream = TcpStream::connect_timeout(&address, s(5)).unwrap();
        // The server may have hung up already.
        let _ = stream.write_all(&words(at));
        if at % 7 == 0 {
            let _ = stream.shutdown(if at % 2 == 0 { Shutdown::Write } else { Shutdown::Read });
        }
        open.push_back(stream);
        if open.len() > OPEN_AT_ONCE {
            open.pop_front();
        }
        if at % 20 == 0 {
            scene.server.now += ms(20);
            scene.neighbour.now += ms(20);
            waits.push(scene.neighbour_is_served());
            scene.server.events();
        }
        let now = scene.snapshot();
        most = most.max(now.fenced_open + now.unadmitted);
        assert_eq!(now.connections.len(), 1);
    }
    waits.sort_unstable();
    let (median, worst) = (waits[waits.len() / 2], waits[waits.len() - 1]);
    println!("a message took {median:?} in the median and {worst:?} at worst; {most} strangers at once");
    assert!(median < ms(20) && worst < s(1), "{median:?}, {worst:?}");
    assert!((1..=OPEN_AT_ONCE + 100).contains(&most), "{most} strangers in the table at once");
    drop(open);
    // Who speaks a ZMTP older than 3 has no descriptor to be known by: its end is noticed within a second of its own.
    scene.pass(2);
    scene.all_gone();
    scene.until("every descriptor is given back", |_| accepted_here(address.port()) == before);
    let counters = scene.snapshot().counters;
    assert!(
        counters.protocol_errors as usize >= CONNECTIONS / 12,
        "those who could speak are counted: {counters:?}"
    );
    scene.neighbour_is_served();
}
