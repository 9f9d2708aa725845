//! How long a mesh takes to stand. Each node has a thread of its own, and all start at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use wakeful::{Endpoint, NodeEndpoint};

use crate::node::{Node, listening, mesh};
use crate::spread;

const PATIENCE: Duration = Duration::from_secs(30);

pub fn measure(counts: &[usize], rounds: usize) {
    println!("\nall pairs ready, milliseconds: min / median / max of {rounds} rounds\n");
    println!("| {:>5} | {:>5} | {:>24} | {:>24} |", "nodes", "pairs", "the later one dials", "both dial");
    println!("|---:|---:|---:|---:|");
    for &count in counts {
        let times: Vec<[f64; 2]> =
            (0..rounds).map(|_| [false, true].map(|both| stand(count, both).as_secs_f64() * 1e3)).collect();
        let [one, both] = [0, 1].map(|way| spread(times.iter().map(|pair| pair[way]), 1));
        println!("| {count:>5} | {:>5} | {one:>24} | {both:>24} |", count * (count - 1) / 2);
    }
}

/// From the first turn of any node until the last one has all others ready.
fn stand(count: usize, both_dial: bool) -> Duration {
    let (mut nodes, endpoints): (Vec<Node>, Vec<Endpoint>) = (0..count)
        .map(|number| {
            let (node, at) = Node::join(listening(&format!("node-{number}")));
            (node, at.unwrap())
        })
        .unzip();
    for (number, node) in nodes.iter_mut().enumerate() {
        let is_dialled = |other: usize| other < number || (both_dial && other != number);
        let dialled = endpoints.iter().enumerate().filter(|(other, _)| is_dialled(*other));
        let wishes: Vec<NodeEndpoint> =
            dialled.map(|(_, endpoint)| NodeEndpoint { endpoint: endpoint.clone(), rid: None }).collect();
        node.engine.outbox().set_endpoints(&mesh(), 0, &wishes).unwrap();
    }
    let stop = Arc::new(AtomicBool::new(false));
    let (done, all) = mpsc::channel();
    let begin = Instant::now();
    let threads: Vec<_> = nodes
        .into_iter()
        .map(|mut node| {
            let (stop, done) = (stop.clone(), done.clone());
            thread::spawn(move || {
                node.await_ready(count - 1);
                done.send(Instant::now()).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    node.step(Duration::from_millis(5));
                }
            })
        })
        .collect();
    let last = (0..count).map(|_| all.recv_timeout(PATIENCE).unwrap()).max();
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
    last.map_or(Duration::ZERO, |last| last - begin)
}
