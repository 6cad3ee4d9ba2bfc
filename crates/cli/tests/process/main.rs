//! Tests of the real binary with its real child processes, over plain TCP.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on should panic")]

mod api_key;
mod baton;
mod exit_codes;
mod http;
mod lifecycle;
mod serving;
