//! Models opened from files: the bundled one, tiny valid ones, and damaged ones.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests: allow-unwrap-in-tests covers test functions only")]

mod allocations;
mod bundled;
mod damaged_weights;
mod dequantized;
mod directories;
mod fuzz;
mod gguf;
mod sampling;
mod tiny;
mod tiny_gguf;
