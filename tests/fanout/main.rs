//! The fanout beside its contract: both ends as engines, the cases of others, hosts that sleep, foreign publishers, and
//! every call that can be made wrongly.

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/fanout.rs"]
mod ticks;
#[path = "../support/zmtp.rs"]
mod zmtp;

mod bad_input;
mod cases;
mod engines;
mod floods;
mod foreign;
mod frozen;
mod hosts;
mod limits;
mod strangers;
mod swaps;
