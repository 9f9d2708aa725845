//! A subscriber that slept: nobody is accused on waking who is not truly gone (DESIGN §2).

use std::time::Duration;

use wakeful::{LostReason, Owned, Silence};

use crate::support::{ms, s};
use crate::ticks::{RawPublisher, Stage};

const SLEEP: Duration = Duration::from_secs(600);
const FLOODS: usize = 0;
const BEATS: usize = 1;
const SILENT: usize = 2;
const DIED: usize = 3;
const FLOODED_AND_DIED: usize = 4;

/// Five publishers, and ten minutes without a turn in which two die and two fill their queues.
fn after_ten_minutes() -> Stage {
    let mut stage = Stage::ready(5, &[b""]);
    for number in 0..20_000_u32 {
        for publisher in [FLOODS, FLOODED_AND_DIED] {
            stage.raws[publisher].send(&[&number.to_be_bytes()]);
        }
        if number % 200 == 0 {
            stage.raws[BEATS].beacon();
        }
    }
    for publisher in [DIED, FLOODED_AND_DIED] {
        // Its place keeps its endpoint.
        let endpoint = stage.raws[publisher].endpoint.clone();
        let mut stranger = RawPublisher::new();
        stranger.endpoint = endpoint;
        drop(std::mem::replace(&mut stage.raws[publisher], stranger));
    }
    stage.node.now += SLEEP;
    stage
}

fn records(stage: &Stage, publisher: usize) -> usize {
    stage.published().iter().filter(|(from, _)| *from == publisher).count()
}

/// Those that are gone are told at once, for that and nothing else; what their queues held comes first. Those that live
/// stay, and the silent one has the whole of its 15 s watched.
#[test]
fn after_ten_minutes_without_a_turn_only_the_dead_are_lost() {
    let mut stage = after_ten_minutes();
    stage.until("both ends told", |stage| stage.lost().len() == 2);
    let mut lost = stage.lost();
    lost.sort_by_key(|(_, publisher, _)| *publisher);
    assert_eq!(
        lost,
        [(SLEEP, DIED, LostReason::Transport), (SLEEP, FLOODED_AND_DIED, LostReason::Transport)]
    );
    assert!(records(&stage, FLOODED_AND_DIED) >= 1_000, "its queue was read out");
    stage.until("the flooder's queue read", |stage| records(stage, FLOODS) >= 1_000);
    let last_word = stage.diary.iter().rposition(|(_, event)| matches!(event, Owned::PublisherLost { publisher, .. } if *publisher.endpoint() == stage.raws[FLOODED_AND_DIED].endpoint));
    let last_record = stage.diary.iter().rposition(|(_, event)| matches!(event, Owned::Published { publisher, .. } if *publisher.endpoint() == stage.raws[FLOODED_AND_DIED].endpoint));
    assert!(last_record < last_word, "nothing is delivered behind the end");

    stage.beats = vec![true, true, false, false, false];
    stage.follow(SLEEP + s(60));
    // One second of the ten minutes was watched: a turn vouches for no more.
    let silence = LostReason::Silence(Silence::NoRecord);
    assert_eq!(stage.lost()[2..], [(SLEEP + s(14), SILENT, silence)]);
    assert!(stage.is_ready(FLOODS) && stage.is_ready(BEATS));
    assert_eq!(stage.snapshot().stalls, 1);
}

/// A host that wakes again and again for a moment only watches no more than those moments.
#[test]
fn a_host_that_is_asleep_most_of_the_time_accuses_nobody_before_15_s_watched() {
    let mut stage = Stage::ready(1, &[]);
    // A turn every 30 s: each vouches for 1 s.
    for _ in 0..14 {
        stage.node.now += s(30);
        stage.turn();
        stage.node.now += ms(50);
        stage.turn();
    }
    assert_eq!(stage.lost(), []);
    stage.follow(stage.elapsed() + s(1));
    assert_eq!(stage.lost().len(), 1);
}
