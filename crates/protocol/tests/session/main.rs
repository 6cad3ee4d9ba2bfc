//! Sessions over real loopback connections, against a host that does what the test says.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should say so by panicking")]

mod calls;
mod fixture;
mod sessions;
