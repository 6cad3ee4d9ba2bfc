//! Sessions over real loopback connections, against a host that the test drives.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should panic")]

mod calls;
mod fixture;
mod sessions;
