//! The CPU engine: weights, KV bytes and kernels behind [`Backend`](baton_backend::Backend). Nothing outside of this crate
//! touches a weight, a KV byte or a logit of it.
#![allow(unsafe_code, reason = "kernels and KV memory live here; each block states why it is sound")]

mod backend;
mod batch;
mod layers;
mod matmul;
mod memory;
mod options;
mod probe;
mod sampling;
mod shards;
mod simd;
mod slots;
#[cfg(test)]
mod tests;
mod threads;
mod weights;

pub use backend::CpuBackend;
pub use options::{CpuOptions, KvDtype, Products, StorageDtype, WeightForm, kv_layout};
pub use probe::{Phase, PhaseClock, Probe};
pub use simd::isa::Isa;
pub use threads::topology::{HardwareThreads, cores, quota};
pub use weights::{Progress, Weights};
