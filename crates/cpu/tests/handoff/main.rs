//! Two real engines with the bundled model, in one process, over the real fabric: what one computes the other goes on from,
//! and the tokens do not show it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod engines;
mod exact;
mod faults;
mod proxy;
mod releases;
mod shards;
