//! Publishers that never heard of wakeful.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

use wakeful::{LostReason, Silence, Subscriber};

use crate::support::{Node, ms, s};
use crate::ticks::{PAYLOAD, Record, Stage, TOPIC, ticks};

/// Binds, says where, and publishes one record for each line it is given: frames in hex, with spaces between them.
const SCRIPT: &str = "
import sys, zmq
socket = zmq.Context().socket(zmq.PUB)
socket.linger = 0
port = socket.bind_to_random_port('tcp://127.0.0.1')
print('tcp://127.0.0.1:%d' % port, flush=True)
for line in sys.stdin:
    socket.send_multipart([bytes.fromhex(frame) for frame in line.rstrip('\\n').split(' ')])
";

struct Snake {
    child: Child,
    stdin: ChildStdin,
}

impl Drop for Snake {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Snake {
    fn publish(&mut self, record: &Record) {
        for (number, frame) in record.iter().enumerate() {
            let between = if number == 0 { "" } else { " " };
            write!(self.stdin, "{between}").unwrap();
            for byte in frame {
                write!(self.stdin, "{byte:02x}").unwrap();
            }
        }
        writeln!(self.stdin).unwrap();
    }
}

fn is_absent() -> bool {
    let import = Command::new("python3").args(["-c", "import zmq"]).stderr(Stdio::null()).status();
    !import.is_ok_and(|status| status.success())
}

/// A snake, and a subscriber that has heard it once.
fn heard() -> Option<(Snake, Stage)> {
    if is_absent() {
        eprintln!("SKIPPED: python3 with pyzmq is absent here");
        return None;
    }
    let mut child = Command::new("python3")
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut endpoint = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut endpoint).unwrap();
    let mut snake = Snake { stdin: child.stdin.take().unwrap(), child };
    let mut node = Node::new();
    let wish = Subscriber::new(ticks()).publisher(endpoint.trim().parse().unwrap());
    node.engine.subscribe(wish.filter(b"snake").filter(b"hello")).unwrap();
    let mut stage = Stage::with(node, Vec::new());
    let mut waited = 0;
    stage.until("heard", |stage| {
        // What it publishes before the subscription is in force is nobody's; once in some milliseconds will do.
        if waited % 10 == 0 {
            snake.publish(&vec![b"hello".to_vec()]);
        }
        waited += 1;
        !stage.diary.is_empty()
    });
    stage.raws.push(crate::ticks::RawPublisher::new());
    stage.beats.push(false);
    stage.raws[0].endpoint = endpoint.trim().parse().unwrap();
    Some((snake, stage))
}

/// Lets the snake publish one record, and the subscriber take it in.
fn publish(snake: &mut Snake, stage: &mut Stage, record: &Record) {
    snake.publish(record);
    stage.until("the record", |stage| stage.published().last().is_some_and(|(_, last)| last == record));
}

/// Single frames and several are application records, an empty frame too. With such traffic alone it stays, without any it is
/// lost after 15 s watched.
#[test]
fn a_plain_pyzmq_publisher_stays_with_traffic_and_is_lost_without() {
    let Some((mut snake, mut stage)) = heard() else { return };
    assert_eq!(stage.became_ready().len(), 1);
    let mut last = stage.elapsed();
    for number in 0..12_u8 {
        stage.follow(last + ms(14_500));
        last = stage.elapsed();
        let parts = (0..number % 4).map(|part| vec![part; usize::from(part) * 1_000]);
        let record = std::iter::once([b"snake", &[number][..]].concat()).chain(parts).collect();
        publish(&mut snake, &mut stage, &record);
        assert!(stage.is_ready(0));
    }
    assert_eq!(stage.lost(), []);
    stage.follow(last + s(20));
    assert_eq!(stage.lost(), [(last + s(15), 0, LostReason::Silence(Silence::NoRecord))]);
    assert_eq!(stage.became_ready().len(), 1);
}

/// What breaks the beacon's topic ends it at once, as often as it does so; the next socket is ready on a record of its own.
#[test]
fn a_plain_pyzmq_publisher_that_breaks_the_beacons_topic_is_lost_and_heard_on_a_new_socket() {
    let Some((mut snake, mut stage)) = heard() else { return };
    let broken: [&[&[u8]]; 4] =
        [&[TOPIC], &[TOPIC, b"\x5A\x46\x01\x02"], &[TOPIC, b"", PAYLOAD], &[TOPIC, PAYLOAD, b"x"]];
    for (times, frames) in (1..).zip(broken) {
        snake.publish(&frames.iter().map(|frame| frame.to_vec()).collect());
        stage.until("lost", |stage| stage.lost().len() == times);
        assert!(matches!(stage.lost().pop(), Some((_, 0, LostReason::Protocol))));
        let mut waited = 0;
        stage.until_later(ms(5), "ready again", |stage| {
            if waited % 10 == 0 {
                snake.publish(&vec![b"hello".to_vec()]);
            }
            waited += 1;
            stage.became_ready().len() == times + 1
        });
    }
    assert!(stage.published().iter().all(|(_, record)| record[0] == b"hello"));
    snake.publish(&vec![TOPIC.to_vec(), PAYLOAD.to_vec()]);
    publish(&mut snake, &mut stage, &vec![b"snake".to_vec()]);
    assert_eq!(stage.lost().len(), 4);
}
