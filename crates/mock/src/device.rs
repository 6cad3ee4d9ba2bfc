//! The thread on which a mock's steps run, one after the other: plans arrive when they are submitted, outputs leave when
//! their time is over. The submitter goes on meanwhile.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use baton_backend::{
    BackendError, CannotSample, InputToken, MASK_PATIENCE, PromptLogprob, Sample, Segment, SlotId, SlotPages,
    StepOutput, StepPlan,
};
use baton_fabric::LayerCounter;

use crate::backend::MockSize;
use crate::config::MockConfig;
use crate::faults::Faults;
use crate::kv::MockKv;
use crate::pace::{StepPace, StepWork};
use crate::slot::MockSlot;
use crate::vocabulary::MockVocabulary;

pub(crate) struct Device {
    config: MockConfig,
    vocabulary: Arc<MockVocabulary>,
    kv: Arc<MockKv>,
    slots: Vec<Option<MockSlot>>,
    pages: SlotPages,
    faults: Faults,
    pace: StepPace,
    layers_done: LayerCounter,
    /// Slots of the last step.
    active: Vec<SlotId>,
}

impl Device {
    pub(crate) fn new(
        config: MockConfig,
        size: MockSize,
        vocabulary: Arc<MockVocabulary>,
        kv: Arc<MockKv>,
        layers_done: LayerCounter,
    ) -> Self {
        Self {
            slots: std::iter::repeat_with(|| None).take(size.max_slots).collect(),
            pages: SlotPages::new(size.max_slots, size.kv_pages),
            faults: Faults::new(config.faults.clone()),
            config,
            vocabulary,
            kv,
            pace: StepPace::default(),
            layers_done,
            active: Vec::new(),
        }
    }

    /// Ends with the backend that owns the other ends, or with the first step that cannot be run.
    pub(crate) fn run(mut self, plans: &Receiver<StepPlan>, outputs: &Sender<Result<StepOutput, BackendError>>) {
        for plan in plans {
            let done = self.step(&plan);
            let goes_on = done.is_ok();
            if outputs.send(done).is_err() || !goes_on {
                return;
            }
        }
    }

    fn step(&mut self, plan: &StepPlan) -> Result<StepOutput, BackendError> {
        let now = Instant::now();
        self.admit(plan)?;
        let (mut work, mut output) = (StepWork::default(), StepOutput::default());
        for segment in &plan.segments {
            self.compute(plan, segment, &mut work, &mut output)?;
        }
        self.pass_time(plan, now, &work);
        let masks_until = Instant::now() + MASK_PATIENCE;
        for segment in plan.segments.iter().filter(|segment| segment.output.samples > 0) {
            self.sample(segment, masks_until, &mut output)?;
        }
        self.release(plan)?;
        Ok(output)
    }

    fn admit(&mut self, plan: &StepPlan) -> Result<(), BackendError> {
        for (id, sampler) in &plan.admitted {
            match self.slots.get_mut(id.0 as usize) {
                Some(free @ None) => *free = Some(MockSlot::new(sampler, self.faults.doom())),
                _ => return broken(format!("slot {} is taken or does not exist", id.0)),
            }
        }
        self.pages.apply(plan)
    }

    fn compute(
        &mut self,
        plan: &StepPlan,
        segment: &Segment,
        work: &mut StepWork,
        output: &mut StepOutput,
    ) -> Result<(), BackendError> {
        let Some(inputs) = plan.tokens.get(segment.tokens.clone()).filter(|inputs| !inputs.is_empty()) else {
            return broken(format!("tokens {:?} are not in the plan", segment.tokens));
        };
        let pages = self.pages.up_to(segment.slot, segment.first_position + inputs.len())?;
        let slot = slot_of(&mut self.slots, segment.slot)?;
        work.add(&self.config.speed, segment.first_position, inputs.len(), slot.prompt_tokens());
        if slot.failure().is_none() {
            slot.attend(segment, pages, &self.kv);
        }
        if let Some(error) = slot.failure() {
            output.failed.push((segment.slot, error.clone()));
            return Ok(());
        }
        for (position, input) in (segment.first_position..).zip(inputs) {
            slot.append(*input, pages, &self.kv)?;
            segment.output.pooling.into_iter().for_each(|pooling| slot.pool(pooling));
            let next = slot.sampler.prompt.get(position + 1);
            if let (Some(top), Some(&next)) = (segment.output.prompt_logprobs, next) {
                let logprobs = self.vocabulary.logprobs(next, top);
                output.prompt_logprobs.push(PromptLogprob { slot: segment.slot, position: position + 1, logprobs });
            }
        }
        slot.check_doom(segment.output.samples > 0);
        if slot.failure().is_none() {
            let pooled = segment.output.pooling.and_then(|_| slot.pooled());
            output.pooled.extend(pooled.map(|vector| (segment.slot, vector)));
        }
        output.failed.extend(slot.failure().map(|error| (segment.slot, error.clone())));
        Ok(())
    }

    /// As long as a step of this work lasts, layer by layer.
    fn pass_time(&mut self, plan: &StepPlan, now: Instant, work: &StepWork) {
        let computes = !plan.segments.is_empty();
        let stall = if computes { self.faults.stall() } else { Duration::ZERO };
        // A slot that was admitted just now has another sequence than before.
        let is_new = |slot: SlotId| plan.admitted.iter().any(|(admitted, _)| *admitted == slot);
        let goes_on = |segment: &Segment| self.active.contains(&segment.slot) && !is_new(segment.slot);
        let continues = plan.segments.iter().any(goes_on);
        let span = self.pace.step(now, work.duration(&self.config.speed) + stall, continues);
        if computes {
            self.active.clear();
            self.active.extend(plan.segments.iter().map(|segment| segment.slot));
        }
        // Also without a hand-off, as on a real device: a step that takes long is no hang.
        let layers = if computes { self.config.shape.layers } else { 0 };
        for layer in 0..layers {
            span.wait_for_part(layer, layers, || self.layers_done.other_progress());
            self.layers_done.layer_done();
        }
        span.wait_for_part(0, 1, || {});
    }

    /// As many tokens as it may, also behind a stop token.
    fn sample(&mut self, segment: &Segment, masks_until: Instant, output: &mut StepOutput) -> Result<(), BackendError> {
        let end = segment.first_position + segment.tokens.len();
        let slot = slot_of(&mut self.slots, segment.slot)?;
        if slot.failure().is_some() {
            return Ok(());
        }
        for nth in 0..segment.output.samples.min(slot.tokens_before_doom()) {
            if nth > 0 {
                slot.append(InputToken::LastSampled, self.pages.up_to(segment.slot, end + nth)?, &self.kv)?;
            }
            if self.faults.crashes() {
                return Err(BackendError::Device("the mock engine crashes, as configured".to_owned()));
            }
            let mask = match &segment.output.mask {
                Some(cell) => {
                    cell.wait(masks_until, || self.layers_done.other_progress()).map(Some).ok_or(CannotSample::NoMask)
                }
                None => Ok(None),
            };
            let output_tokens = self.config.shape.output_tokens;
            let token = mask.and_then(|mask| slot.sample(&self.vocabulary, output_tokens, mask.as_deref()));
            if let Err(error) = token {
                slot.cannot_sample(error);
            }
            let logprobs = slot.sampler.logprobs.zip(token.ok());
            let logprobs = logprobs.map(|(top, token)| self.vocabulary.logprobs(token, top));
            output.samples.push(Sample { slot: segment.slot, token, logprobs });
        }
        Ok(())
    }

    fn release(&mut self, plan: &StepPlan) -> Result<(), BackendError> {
        for id in &plan.released {
            slot_of(&mut self.slots, *id)?;
            self.slots[id.0 as usize] = None;
        }
        Ok(())
    }
}

fn slot_of(slots: &mut [Option<MockSlot>], id: SlotId) -> Result<&mut MockSlot, BackendError> {
    let slot = slots.get_mut(id.0 as usize).and_then(Option::as_mut);
    slot.ok_or_else(|| BackendError::Contract(format!("slot {} was not admitted", id.0)))
}

fn broken<T>(what: String) -> Result<T, BackendError> {
    Err(BackendError::Contract(what))
}
