//! Slots of the backend, handed out by number, and how much of their page tables it has been given.

use std::sync::Arc;

use baton_backend::{SamplerSpec, SlotId, StepPlan};
use baton_core::PageId;

/// A plan applies its admissions first and its releases last, so a slot can be taken again only after the plan that
/// releases it.
pub(crate) struct Slots {
    free: Vec<SlotId>,
    /// By slot: pages of its sequence that are in the backend's table.
    given_pages: Vec<usize>,
    admitted: Vec<(SlotId, Arc<SamplerSpec>)>,
    released: Vec<SlotId>,
}

impl Slots {
    pub(crate) fn new(total: usize) -> Self {
        Self {
            free: (0..total as u32).rev().map(SlotId).collect(),
            given_pages: vec![0; total],
            admitted: Vec::new(),
            released: Vec::new(),
        }
    }

    pub(crate) fn any_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Some of what was released is not in a plan yet.
    pub(crate) fn any_released(&self) -> bool {
        !self.released.is_empty()
    }

    pub(crate) fn take(&mut self, sampler: Arc<SamplerSpec>) -> Option<SlotId> {
        let slot = self.free.pop()?;
        self.lose_pages(slot);
        self.admitted.push((slot, sampler));
        Some(slot)
    }

    pub(crate) fn release(&mut self, slot: SlotId) {
        self.released.push(slot);
    }

    /// The sequence has lost its pages: the next that it gets replace them.
    pub(crate) fn lose_pages(&mut self, slot: SlotId) {
        self.given_pages[slot.0 as usize] = 0;
    }

    /// Adds the sequence's pages to the plan, if there are more than in the last one.
    pub(crate) fn give_pages(&mut self, slot: SlotId, pages: &[PageId], plan: &mut StepPlan) {
        let given = &mut self.given_pages[slot.0 as usize];
        if pages.len() > *given {
            plan.change_table(slot, *given, pages[*given..].iter().copied());
            *given = pages.len();
        }
    }

    /// Adds what was taken and released since the last plan.
    pub(crate) fn announce(&mut self, plan: &mut StepPlan) {
        plan.admitted.append(&mut self.admitted);
        plan.released.extend_from_slice(&self.released);
        self.free.append(&mut self.released);
    }
}
