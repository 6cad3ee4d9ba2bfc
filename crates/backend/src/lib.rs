//! The seam between the step loop and the hardware. A [`StepPlan`] arrives from the step loop and names pages and slots;
//! [`StepOutput`] leaves with sampled tokens. What runs it implements [`Backend`]; choosing a token from logits is the same
//! pure functions for all of them. There is no kernel here.

mod backend;
mod plan;
mod sample;

pub use backend::{Backend, BackendError, BackendSpec, NonFiniteLogits, PromptLogprob, Sample, StepOutput, Ticket};
pub use plan::{InputToken, LayerHook, SamplerSpec, Segment, SegmentOutput, SlotId, StepPlan};
pub use sample::{SampleScratch, SamplerState, token_logprobs};
