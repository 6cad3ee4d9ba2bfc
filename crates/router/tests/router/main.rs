//! The router over engines that do what a test wrote down.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so by panicking")]

mod resume;
mod scripted;
mod strategies;
