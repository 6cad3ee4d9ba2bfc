//! Mocks under the real scheduler, sessions and fabric.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod adapters;
mod faults;
mod fleet;
mod foreign_kv;
mod handoff;
mod masks;
mod overlap;
mod pooled;
mod several_tokens;
mod speed;
