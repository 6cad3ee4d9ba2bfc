//! The threads that compute: who runs where, which of them does what, and how they wait for each other.

mod barrier;
mod item_counter;
pub(crate) mod pinning;
pub(crate) mod team;
pub(crate) mod topology;
