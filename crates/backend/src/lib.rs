//! The seam between the step loop and the hardware. A [`StepPlan`] arrives from the step loop and names pages and slots;
//! [`StepOutput`] leaves with sampled tokens. What runs it implements [`Backend`]; choosing a token from logits is the same
//! pure functions for all of them. There is no kernel here.

mod backend;
mod mask;
mod plan;
mod sample;
mod slot_pages;

pub use backend::{Backend, BackendError, BackendSpec, CannotSample, PromptLogprob, Sample, StepOutput, Ticket};
pub use mask::{MASK_PATIENCE, MaskCell, MaskFiller, TokenMask};
pub use plan::{InputToken, SamplerSpec, Segment, SegmentOutput, SlotId, StepPlan, TableChange};
pub use sample::{SampleScratch, SamplerState, token_logprobs};
pub use slot_pages::SlotPages;
