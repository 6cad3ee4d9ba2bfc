//! Bytes and kernels. A [`StepPlan`] arrives from the step loop and names pages and slots; [`StepOutput`] leaves with
//! sampled tokens. Nothing above this crate touches a weight, a KV byte or a logit.
#![allow(unsafe_code, reason = "kernels and KV memory live here; each block states why it is sound")]

mod backend;
mod ceilings;
mod cpu;
mod hardware;
pub mod measure;
mod plan;
mod sample;

pub use backend::{Backend, BackendSpec, ComputeError, NonFiniteLogits, PromptLogprob, Sample, StepOutput, Ticket};
pub use ceilings::Ceilings;
pub use cpu::{CpuBackend, CpuOptions, Isa, KvDtype, Products, Progress, StorageDtype, WeightForm, kv_layout};
pub use hardware::{HardwareThreads, cores, quota};
pub use plan::{InputToken, LayerHook, SamplerSpec, Segment, SegmentOutput, SlotId, StepPlan};
pub use sample::{SampleScratch, SamplerState, token_logprobs};
