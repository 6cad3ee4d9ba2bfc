//! Plan out: one row for every decoding sequence, then prefill chunks, oldest first, until the step's tokens are used up.

use std::time::Duration;

use baton_backend::{InputToken, Segment, SegmentOutput, StepPlan};
use baton_core::PAGE_TOKENS;
use baton_kv::{PageLedger, PageTable, StepNumber};

use super::{Row, Scheduler, StepInFlight};
use crate::handoff::Computed;
use crate::sequence::{Phase, Sequence, SequenceId, Stage};

impl Scheduler {
    /// The next step; `None` when there is nothing to do, or nothing before the oldest step in flight is completed. A step
    /// may also only release slots.
    pub fn schedule(&mut self, now: Duration) -> Option<&StepPlan> {
        self.draining &= !self.in_flight.is_empty();
        if self.draining || self.in_flight.len() >= self.limits.steps_in_flight {
            return None;
        }
        self.planned_at = now;
        self.offers.clear();
        clear(&mut self.plan);

        self.plan_decoding();
        self.plan_prefilling();
        if !self.draining {
            self.plan_admissions();
        }
        let starving = self.nothing_runs() && !self.waiting.is_empty();
        self.starving = starving.then(|| self.starving.unwrap_or(now));
        self.slots.announce(&mut self.plan);
        if !self.plan.segments.is_empty() {
            self.offers.drain(..).for_each(|offer| self.handoff.offer(offer));
            self.computing_steps += 1;
        }

        if self.plan.segments.is_empty() && self.plan.admitted.is_empty() && self.plan.released.is_empty() {
            return None;
        }
        self.last_planned = self.next_step();
        let rows = std::mem::take(&mut self.rows);
        self.in_flight.push_back(StepInFlight { number: self.last_planned, planned_at: now, rows });
        Some(&self.plan)
    }

    /// The one that is being planned.
    fn next_step(&self) -> StepNumber {
        StepNumber(self.last_planned.0 + 1)
    }

    fn budget_left(&self) -> usize {
        self.limits.step_tokens - self.plan.tokens.len()
    }

    /// Preemption takes the youngest, whose turn in this loop has not come yet.
    fn plan_decoding(&mut self) {
        let mut at = 0;
        while let Some(&id) = self.running.get(at) {
            if self.is_in(id, Phase::Decoding) && self.wants_another(id) && self.allocate_or_preempt(id) {
                self.plan_row(id);
            }
            at += 1;
        }
    }

    fn plan_prefilling(&mut self) {
        for at in 0..self.running.len() {
            let id = self.running[at];
            if self.is_in(id, Phase::Prefilling) {
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

    fn is_in(&self, id: SequenceId, phase: Phase) -> bool {
        self.sequences.get(&id).is_some_and(|sequence| sequence.is_in(phase))
    }

    /// Whether a token may follow those that steps in flight sample. One that turns out to be a stop token makes what was
    /// planned behind it void. Where a step may sample several their number is not known yet.
    fn wants_another(&self, id: SequenceId) -> bool {
        let Some(Sequence { request, tokens, stage: Stage::Running(run), .. }) = self.sequences.get(&id) else {
            return false;
        };
        let most = self.requests.get(request).map_or(0, |request| request.most_tokens(self.limits.context_tokens));
        tokens.len() + run.sampling < most && (run.sampling == 0 || self.limits.tokens_per_step == 1)
    }

    /// As many of a sequence's tokens as the step still has room for.
    fn plan_row(&mut self, id: SequenceId) {
        let (step, budget) = (self.next_step(), self.budget_left());
        let Some(sequence) = self.sequences.get_mut(&id) else { return };
        let Sequence { tokens, masks, stage: Stage::Running(run), request, .. } = sequence else { return };
        let Some(request) = self.requests.get(request) else { return };
        let (begin, total) = (run.scheduled, tokens.len() + run.sampling);
        let end = total.min(begin + budget);
        if end == begin {
            return;
        }

        let prompt_end = request.input.prompt.len() - 1;
        // A mask is of one token.
        let per_step = if masks.is_some() { 1 } else { self.limits.tokens_per_step };
        let wanted = per_step.min(request.most_tokens(self.limits.context_tokens).saturating_sub(total));
        let samples = match end == total && request.generates {
            true => with_pages(&mut self.ledger, &mut run.pages, end, wanted),
            false => 0,
        };
        let output = SegmentOutput {
            samples,
            mask: masks.as_mut().filter(|_| samples > 0).map(|masks| masks.next_cell()),
            pooling: request.input.pooling,
            prompt_logprobs: request.prompt_logprobs_for(id).filter(|_| begin < prompt_end),
        };
        let plan = &mut self.plan;
        self.slots.give_pages(run.slot, run.pages.pages(), plan);
        let first_input = plan.tokens.len();
        let input = |at: usize| tokens.get(at).map_or(InputToken::LastSampled, |&token| InputToken::Known(token));
        plan.tokens.extend((begin..end).map(input));
        plan.segments.push(Segment {
            slot: run.slot,
            tokens: first_input..plan.tokens.len(),
            first_position: begin,
            adapter: request.input.adapter,
            output,
        });
        let (tokens, phase) = (end - begin, run.phase);
        let pools = end == total && request.input.pooling.is_some();
        self.rows.push(Row { sequence: id, slot: run.slot, tokens, phase, samples, pools });
        run.scheduled = end;
        run.pages.touched_by(step);
        if samples > 0 {
            run.sampling += 1;
            run.phase = Phase::Decoding;
        }
        let offer = self.offer_of(id, begin..end, Computed::InStep(self.computing_steps));
        self.offers.extend(offer.filter(|offer| offer.last || !offer.pages.is_empty()));
    }
}

/// How many of the wanted tokens behind position `end` a step may sample: all but the last need pages, for which no
/// sequence is preempted.
fn with_pages(ledger: &mut PageLedger, pages: &mut PageTable, end: usize, wanted: usize) -> usize {
    if wanted <= 1 {
        return 1;
    }
    let _fewer = ledger.grow(pages, end + wanted - 1);
    wanted.min(pages.pages().len() * PAGE_TOKENS - end + 1)
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
