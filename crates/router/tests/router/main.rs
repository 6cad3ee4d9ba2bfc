//! The router over engines that do what a test wrote down.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod auto;
mod cache_events;
#[path = "../../examples/custom_strategy/strategy.rs"]
mod custom_strategy;
mod disagg;
mod disagg_faults;
mod hangs;
mod membership;
mod resume;
mod scripted;
mod strategies;
mod wire;
mod wired;
