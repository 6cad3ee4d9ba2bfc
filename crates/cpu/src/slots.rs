//! Sampler states and page tables of the sequences that the step loop has admitted.

use std::sync::Arc;

use baton_core::{PageId, TokenId};

use baton_backend::{BackendError, SamplerSpec, SamplerState, SlotId, SlotPages, StepPlan};

pub(crate) struct Slots {
    slots: Vec<Option<Slot>>,
    pages: SlotPages,
    vocab_size: usize,
}

pub(crate) struct Slot {
    pub(crate) sampler: SamplerState,
    spec: Arc<SamplerSpec>,
    last_sampled: Option<TokenId>,
}

impl Slot {
    pub(crate) fn last_sampled(&self) -> Option<TokenId> {
        self.last_sampled
    }

    pub(crate) fn set_last_sampled(&mut self, token: TokenId) {
        self.last_sampled = Some(token);
    }

    pub(crate) fn prompt_tokens(&self) -> usize {
        self.spec.prompt.len()
    }

    /// The prompt's token at a position; `None` beyond the prompt.
    pub(crate) fn prompt_token(&self, position: usize) -> Option<TokenId> {
        self.spec.prompt.get(position).copied()
    }
}

impl Slots {
    pub(crate) fn new(max_slots: usize, pages_total: usize, vocab_size: usize) -> Self {
        let slots = std::iter::repeat_with(|| None).take(max_slots).collect();
        Self { slots, pages: SlotPages::new(max_slots, pages_total), vocab_size }
    }

    /// Applies a plan's changes of slots, before its segments run.
    pub(crate) fn admit(&mut self, plan: &StepPlan) -> Result<(), BackendError> {
        for (slot, spec) in &plan.admitted {
            let max_slots = self.slots.len();
            match self.slots.get_mut(slot.0 as usize) {
                None => return Err(BackendError::Contract(format!("slot {} of {max_slots}", slot.0))),
                Some(Some(_)) => return Err(BackendError::Contract(format!("slot {} is taken", slot.0))),
                Some(free) => {
                    let sampler = SamplerState::new(spec, self.vocab_size);
                    *free = Some(Slot { sampler, spec: Arc::clone(spec), last_sampled: None });
                }
            }
        }
        self.pages.apply(plan)
    }

    pub(crate) fn release(&mut self, plan: &StepPlan) -> Result<(), BackendError> {
        for slot in &plan.released {
            match self.slots.get_mut(slot.0 as usize).and_then(Option::take) {
                Some(_) => {}
                None => return Err(not_admitted(*slot)),
            }
        }
        Ok(())
    }

    pub(crate) fn get(&self, slot: SlotId) -> Result<&Slot, BackendError> {
        self.slots.get(slot.0 as usize).and_then(Option::as_ref).ok_or_else(|| not_admitted(slot))
    }

    /// The pages of a slot's positions `[0, end)`.
    pub(crate) fn pages(&self, slot: SlotId, end: usize) -> Result<&[PageId], BackendError> {
        self.pages.up_to(slot, end)
    }

    /// All slots by number, for the members that sample.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [Option<Slot>] {
        &mut self.slots
    }
}

fn not_admitted(slot: SlotId) -> BackendError {
    BackendError::Contract(format!("slot {} was not admitted", slot.0))
}
