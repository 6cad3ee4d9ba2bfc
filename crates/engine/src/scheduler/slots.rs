//! Sampler slots of the backend, handed out by number.

use std::sync::Arc;

use baton_backend::{SamplerSpec, SlotId, StepPlan};

/// A plan applies its admissions first and its releases last, so a slot can be taken again only after the plan that
/// releases it.
pub(crate) struct Slots {
    free: Vec<SlotId>,
    admitted: Vec<(SlotId, Arc<SamplerSpec>)>,
    released: Vec<SlotId>,
}

impl Slots {
    pub(crate) fn new(total: usize) -> Self {
        Self { free: (0..total as u32).rev().map(SlotId).collect(), admitted: Vec::new(), released: Vec::new() }
    }

    pub(crate) fn any_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// The backend has not been told yet of all that was released.
    pub(crate) fn any_released(&self) -> bool {
        !self.released.is_empty()
    }

    pub(crate) fn take(&mut self, sampler: Arc<SamplerSpec>) -> Option<SlotId> {
        let slot = self.free.pop()?;
        self.admitted.push((slot, sampler));
        Some(slot)
    }

    pub(crate) fn release(&mut self, slot: SlotId) {
        self.released.push(slot);
    }

    /// Tells the backend what was taken and released since the last plan.
    pub(crate) fn announce(&mut self, plan: &mut StepPlan) {
        plan.admitted.append(&mut self.admitted);
        plan.released.extend_from_slice(&self.released);
        self.free.append(&mut self.released);
    }
}
