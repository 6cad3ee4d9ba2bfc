//! Turns rows of logits into a step's output.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use baton_core::TokenLogprobs;
use baton_fabric::LayerCounter;

use super::batch::{Batch, Wanted};
use super::slots::{Slot, Slots};
use crate::layers::decoder::LogitsSink;
use crate::memory::shared::Shared;
use baton_backend::{
    CannotSample, MASK_PATIENCE, MaskCell, PromptLogprob, Sample, SampleScratch, StepOutput, TokenMask, token_logprobs,
};

/// Output of one wanted row.
#[derive(Default)]
pub(crate) struct RowResult {
    sample: Option<Sample>,
    prompt_logprobs: Option<TokenLogprobs>,
}

/// Samples each row on the member that computed it.
pub(crate) struct Sampling<'a> {
    wanted: &'a [Wanted],
    masks: &'a [(usize, MaskCell)],
    /// How long masks are waited for, from the first that is.
    masks_until: OnceLock<Instant>,
    layers_done: &'a LayerCounter,
    slots: Shared<'a, Option<Slot>>,
    /// One per wanted row.
    results: Shared<'a, RowResult>,
    /// One per member.
    scratch: Shared<'a, SampleScratch>,
}

impl<'a> Sampling<'a> {
    pub(crate) fn new(
        batch: &'a Batch,
        slots: &'a mut Slots,
        results: &'a mut Vec<RowResult>,
        scratch: &'a mut [SampleScratch],
        layers_done: &'a LayerCounter,
    ) -> Self {
        results.clear();
        results.resize_with(batch.wanted.len(), RowResult::default);
        Self {
            wanted: &batch.wanted,
            masks: &batch.masks,
            masks_until: OnceLock::new(),
            layers_done,
            slots: Shared::new(slots.as_mut_slice()),
            results: Shared::new(results),
            scratch: Shared::new(scratch),
        }
    }
}

impl Sampling<'_> {
    /// Waits for the mask of a row that has one.
    fn mask(&self, wanted: usize) -> Result<Option<Arc<TokenMask>>, CannotSample> {
        let Some((_, cell)) = self.masks.iter().find(|(number, _)| *number == wanted) else { return Ok(None) };
        let until = *self.masks_until.get_or_init(|| Instant::now() + MASK_PATIENCE);
        cell.wait(until, || self.layers_done.other_progress()).map(Some).ok_or(CannotSample::NoMask)
    }
}

impl LogitsSink for Sampling<'_> {
    fn take(&self, wanted: usize, logits: &mut [f32], member: usize) {
        let &Wanted { slot, sample, prompt_logprobs, .. } = &self.wanted[wanted];
        // SAFETY: a row comes once, and a member is one thread.
        let (result, scratch) = unsafe { (self.results.get_mut(wanted), self.scratch.get_mut(member)) };
        if let Some((token, top)) = prompt_logprobs {
            result.prompt_logprobs = Some(token_logprobs(logits, token, top, scratch));
        }
        if sample {
            // SAFETY: the batch samples each slot at most once.
            if let Some(state) = unsafe { self.slots.get_mut(slot.0 as usize) } {
                let (token, logprobs) = match self.mask(wanted) {
                    Ok(mask) => state.sampler.sample(logits, mask.as_deref(), scratch),
                    Err(error) => (Err(error), None),
                };
                // A failed row's sequence ends, but a step that is already planned still needs a token.
                state.set_last_sampled(token.unwrap_or_default());
                result.sample = Some(Sample { slot, token, logprobs });
            }
        }
    }
}

/// Fills an empty output in the plan's order, which wanted rows have.
pub(crate) fn write_output(batch: &Batch, results: &mut [RowResult], output: &mut StepOutput) {
    for (wanted, result) in batch.wanted.iter().zip(results) {
        output.samples.extend(result.sample.take());
        if let Some(logprobs) = result.prompt_logprobs.take() {
            output.prompt_logprobs.push(PromptLogprob { slot: wanted.slot, position: wanted.position + 1, logprobs });
        }
    }
}
