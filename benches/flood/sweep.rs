//! The engine alone, with one cap at a time at other values: what of the flood comes through, and what the quiet peers
//! notice. Each cap is swept where it is what ends a share.

use std::time::Duration;

use wakeful::Config;

use super::run::{self, End, Scenario};
use super::{WAYS, heading, row, scenario};

pub fn run(span: Duration) {
    println!("the engine, three flooders, {span:?} each; columns as in the measurement\n");
    heading();
    for (through, way) in WAYS {
        for setting in settings() {
            let Setting { cap, value, bytes, each, config } = setting;
            let scenario = Scenario { config, ..scenario(through, &[bytes; 3], each) };
            row(&format!("{way}: {cap} {value}"), &run::run(&scenario, End::Engine, span));
        }
    }
}

struct Setting {
    cap: &'static str,
    value: String,
    bytes: usize,
    each: Duration,
    config: Config,
}

fn settings() -> Vec<Setting> {
    let us = Duration::from_micros;
    let mut all = Vec::new();
    for kib in [4, 64, 256, 1_024, 4_096, 16_384] {
        let config = Config { receive_bytes_max: kib << 10, ..Config::default() };
        let (value, each) = (format!("{kib} KiB"), us(0));
        all.push(Setting { cap: "receive_bytes_max", value, bytes: 64 << 10, each, config });
    }
    for time in [50, 100, 250, 500, 1_000, 2_000, 10_000] {
        // The turn has room for the three flooders' shares.
        let turn_time_max = us((4 * time).max(2_000));
        let config = Config { receive_time_max: us(time), turn_time_max, ..Config::default() };
        let (value, each) = (format!("{:?}", us(time)), us(100));
        all.push(Setting { cap: "receive_time_max", value, bytes: 64, each, config });
    }
    for time in [100, 500, 1_000, 2_000, 5_000, 20_000, 100_000] {
        let config = Config { turn_time_max: us(time), ..Config::default() };
        let (value, each) = (format!("{:?}", us(time)), us(20));
        all.push(Setting { cap: "turn_time_max", value, bytes: 64, each, config });
    }
    all
}
