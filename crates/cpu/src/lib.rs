//! The CPU engine: weights, KV bytes and kernels behind [`Backend`](baton_backend::Backend). Nothing outside of this crate
//! touches a weight, a KV byte or a logit of it.
#![allow(unsafe_code, reason = "kernels and KV memory live here; each block states why it is sound")]

mod backend;
mod batch;
mod layers;
mod matmul;
mod memory;
mod probe;
mod sampling;
mod shards;
mod simd;
mod slots;
mod storage;
#[cfg(test)]
mod tests;
mod threads;
mod weights;

pub use backend::{CpuBackend, CpuOptions};
pub use probe::{Phase, PhaseClock, Probe};
pub use simd::isa::Isa;
pub use storage::{KvDtype, Products, StorageDtype, WeightForm, kv_layout};
pub use threads::topology::{HardwareThreads, cores, quota};
pub use weights::{Progress, Weights};
