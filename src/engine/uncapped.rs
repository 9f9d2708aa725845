//! What the caps of the rotation are for, shown by taking them away: the floods of CASES 14 and 20, played to the engine
//! as it is and to one that takes all there is from each lane before it looks at the next.

mod api {
    pub(super) use crate::{ChannelName, Client, Config, Engine, Event, Outbox, Rid, Subscriber};
}

#[path = "../../tests/cases/crowding.rs"]
#[allow(clippy::disallowed_methods, reason = "a test on real sockets bounds its waits in real time")]
#[allow(unreachable_pub, reason = "the tests outside share it")]
mod crowding;

use api::Engine;
use crowding::{config, one_flood, starvation, three_floods, unfairness};

fn capped() -> Engine {
    Engine::new(config()).unwrap()
}

fn uncapped() -> Engine {
    let mut engine = capped();
    engine.core.rotation.lift_caps();
    engine
}

#[test]
fn without_the_caps_a_flooder_that_was_registered_first_is_all_that_is_served() {
    assert_eq!(unfairness(&three_floods(capped())), None);
    assert_ne!(unfairness(&three_floods(uncapped())), None);
}

#[test]
fn without_the_caps_a_flood_keeps_a_quiet_peer_from_its_answers() {
    assert_eq!(starvation(&mut one_flood(capped())), None);
    assert_ne!(starvation(&mut one_flood(uncapped())), None);
}
