//! The threads that compute: who runs where, which of them does what, and how they wait for each other.

mod barrier;
pub(crate) mod pinning;
pub(crate) mod team;
mod ticket;
pub(crate) mod topology;
