//! A life told by somebody who shares no line of code with us: `tests/foreign/life.py`, with pyzmq.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};

use wakeful::{LostReason, Owned};

use crate::scene::Scene;
use crate::support::{CHANNEL, rid};

struct Snake {
    child: Child,
    stdin: ChildStdin,
    /// The steps it says it has come to.
    steps: Receiver<String>,
}

impl Drop for Snake {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Snake {
    fn hatch(scene: &Scene) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/foreign/life.py");
        let mut child = Command::new("python3")
            .args([script, scene.endpoint.as_str(), CHANNEL])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (tell, steps) = mpsc::channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| tell.send(line)));
        Self { stdin: child.stdin.take().unwrap(), child, steps }
    }

    fn comes_to(&self, scene: &mut Scene, step: &str) {
        scene.until(step, |_| match self.steps.try_recv() {
            Ok(said) => said == step,
            Err(mpsc::TryRecvError::Empty) => false,
            Err(mpsc::TryRecvError::Disconnected) => panic!("it did not come to: {step}"),
        });
    }

    fn may_go_on(&mut self) {
        self.stdin.write_all(b"\n").unwrap();
    }
}

fn is_absent() -> bool {
    let import = Command::new("python3").args(["-c", "import zmq"]).stderr(Stdio::null()).status();
    !import.is_ok_and(|status| status.success())
}

#[test]
fn a_peer_written_in_python_lives_is_judged_and_returns() {
    if is_absent() {
        eprintln!("SKIPPED: python3 with pyzmq is absent here");
        return;
    }
    let mut scene = Scene::new();
    scene.server.inbox.echo = true;
    let mut snake = Snake::hatch(&scene);
    snake.comes_to(&mut scene, "ready");
    snake.comes_to(&mut scene, "replied");
    let is_snake =
        |event: &&Owned| matches!(event, Owned::Message { peer, .. } if peer.rid() == &rid("snake"));
    let heard = |scene: &Scene| -> Vec<Vec<Vec<u8>>> {
        let parts = |event: &Owned| match event {
            Owned::Message { parts, .. } => parts.clone(),
            _ => unreachable!(),
        };
        scene.server.inbox.events.iter().filter(is_snake).map(parts).collect()
    };
    assert_eq!(heard(&scene), [vec![b"one".to_vec(), Vec::new(), b"three".to_vec()]]);
    scene.pass(17);
    assert!(matches!(scene.lost("snake"), Some(LostReason::Silence(_))), "{:?}", scene.lost("snake"));
    scene.neighbour_is_served();
    snake.may_go_on();
    snake.comes_to(&mut scene, "judged");
    snake.comes_to(&mut scene, "spoke on");
    scene.until("its late words are counted", |scene| scene.snapshot().counters.unadmitted == 5);
    assert_eq!(heard(&scene).len(), 1);
    scene.server.events();
    snake.may_go_on();
    snake.comes_to(&mut scene, "returned");
    scene.until("its message", |scene| !heard(scene).is_empty());
    assert_eq!(heard(&scene), [vec![b"back again".to_vec()]]);
    snake.may_go_on();
    scene.all_gone();
    assert_eq!(scene.lost("snake"), Some(LostReason::Transport));
    scene.neighbour_is_served();
    assert!(snake.child.wait().unwrap().success());
}
