//! The CPU engine: weights, KV bytes and kernels behind [`Backend`](baton_backend::Backend). Nothing outside of this crate
//! touches a weight, a KV byte or a logit of it.
#![allow(unsafe_code, reason = "kernels and KV memory live here; each block states why it is sound")]

mod arithmetic;
mod attention;
mod backend;
mod batch;
mod ceilings;
mod chain;
mod chunks;
mod compact;
mod decoder;
mod element;
mod entry;
mod flush;
mod gate;
mod gemm;
mod hardware;
mod isa;
mod kept_rows;
mod kv;
mod lanes;
mod math;
pub mod measure;
mod norm;
mod pairs;
mod pinning;
mod quant;
mod region;
mod rope;
mod rows;
mod sampling;
mod shards;
mod shared;
mod slots;
mod storage;
mod team;
#[cfg(test)]
mod tests;
mod ticket;
mod tile_reader;
#[cfg(target_arch = "x86_64")]
mod tiles;
mod weights;
mod workspace;

pub use backend::{CpuBackend, CpuOptions};
pub use ceilings::Ceilings;
pub use hardware::{HardwareThreads, cores, quota};
pub use isa::Isa;
pub use storage::{KvDtype, Products, StorageDtype, WeightForm, kv_layout};
pub use weights::Progress;
