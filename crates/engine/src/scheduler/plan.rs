//! Plan out: one row for every decoding sequence, then prefill chunks, oldest first, until the step's tokens are used up.

use std::time::Duration;

use baton_backend::{InputToken, Segment, SegmentOutput, StepPlan};

use super::{Row, Scheduler};
use crate::handoff::Computed;
use crate::sequence::{SequenceId, Stage};

impl Scheduler {
    /// The next step; `None` when there is nothing to do. A step may also only release slots.
    pub fn schedule(&mut self, now: Duration) -> Option<&StepPlan> {
        self.step_started = now;
        self.rows.clear();
        self.offers.clear();
        clear(&mut self.plan);

        self.plan_decoding();
        self.plan_prefilling();
        self.plan_admissions();
        let starving = self.running.is_empty() && !self.waiting.is_empty();
        self.starving = starving.then(|| self.starving.unwrap_or(now));
        self.slots.announce(&mut self.plan);
        if !self.plan.segments.is_empty() {
            self.offers.drain(..).for_each(|offer| self.handoff.offer(offer));
            self.computing_steps += 1;
        }

        let empty = self.plan.segments.is_empty() && self.plan.admitted.is_empty() && self.plan.released.is_empty();
        (!empty).then_some(&self.plan)
    }

    fn budget_left(&self) -> usize {
        self.limits.step_tokens - self.plan.tokens.len()
    }

    /// Preemption takes the youngest, whose turn in this loop has not come yet.
    fn plan_decoding(&mut self) {
        let mut at = 0;
        while let Some(&id) = self.running.get(at) {
            let decoding = self.sequences.get(&id).is_some_and(|s| matches!(s.stage, Stage::Decoding { .. }));
            if decoding && self.make_room(id) {
                self.plan_row(id);
            }
            at += 1;
        }
    }

    fn plan_prefilling(&mut self) {
        for at in 0..self.running.len() {
            let id = self.running[at];
            let prefilling = self.sequences.get(&id).is_some_and(|s| matches!(s.stage, Stage::Prefilling { .. }));
            if prefilling {
                self.plan_row(id);
            }
        }
    }

    fn plan_admissions(&mut self) {
        while self.budget_left() > 0
            && let Some(id) = self.admit_next()
        {
            self.plan_row(id);
        }
    }

    /// As many of a sequence's tokens as the step still has room for.
    fn plan_row(&mut self, id: SequenceId) {
        let Some(sequence) = self.sequences.get(&id) else { return };
        let (Stage::Prefilling { slot, pages, .. } | Stage::Decoding { slot, pages }) = &sequence.stage else { return };
        let Some(request) = self.requests.get(&sequence.request) else { return };
        let first_position = sequence.computed();
        let end = sequence.tokens.len().min(first_position + self.budget_left());
        if end == first_position {
            return;
        }

        let prompt_end = request.asked.prompt.len() - 1;
        let output = SegmentOutput {
            sample: end == sequence.tokens.len() && request.generates,
            prompt_logprobs: request.prompt_logprobs_for(id).filter(|_| first_position < prompt_end),
        };
        let plan = &mut self.plan;
        self.slots.give_pages(*slot, pages.pages(), plan);
        let tokens_begin = plan.tokens.len();
        plan.tokens.extend(sequence.tokens[first_position..end].iter().map(|&token| InputToken::Known(token)));
        plan.segments.push(Segment { slot: *slot, tokens: tokens_begin..plan.tokens.len(), first_position, output });
        self.rows.push(Row { sequence: id, slot: *slot, tokens: end - first_position, samples: output.sample });
        let offer = self.offer_of(id, first_position..end, Computed::InStep(self.computing_steps));
        self.offers.extend(offer.filter(|offer| offer.last || !offer.pages.is_empty()));
    }
}

/// Keeps the buffers.
fn clear(plan: &mut StepPlan) {
    plan.admitted.clear();
    plan.tables.clear();
    plan.segments.clear();
    plan.tokens.clear();
    plan.pages.clear();
    plan.released.clear();
}
