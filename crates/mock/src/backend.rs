//! A backend that computes nothing: it takes its time, keeps KV that can be told apart, and says tokens that follow from
//! those before them, so that every mock continues a stream as any other would have.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use baton_backend::{
    Backend, BackendError, BackendSpec, PromptLogprob, Sample, Segment, SlotId, SlotPages, StepOutput, StepPlan, Ticket,
};
use baton_core::{Guarantee, Numerics, PAGE_TOKENS};
use baton_fabric::{KvPool, LayerCounter};

use crate::config::MockConfig;
use crate::faults::Faults;
use crate::history::mix;
use crate::kv::{MockKv, layout};
use crate::pace::{Pace, Span, StepWork};
use crate::slot::Slot;
use crate::vocabulary::Vocabulary;

/// How large the engine around it is.
#[derive(Clone, Copy, Debug)]
pub struct MockSize {
    pub kv_pages: usize,
    pub step_tokens: usize,
    pub max_slots: usize,
    /// Tensor-parallel shards: all hold the one KV head there is.
    pub tp: u32,
}

pub struct MockBackend {
    spec: BackendSpec,
    config: MockConfig,
    vocabulary: Arc<Vocabulary>,
    kv: MockKv,
    slots: Vec<Option<Slot>>,
    pages: SlotPages,
    faults: Faults,
    pace: Pace,
    steps: u64,
    layers_done: LayerCounter,
    /// Oldest first.
    running: VecDeque<Running>,
    /// Slots of the last step.
    active: Vec<SlotId>,
    spare: Vec<StepOutput>,
}

struct Running {
    number: u64,
    span: Span,
    /// It has layers to go through.
    computes: bool,
    output: StepOutput,
}

impl MockBackend {
    pub fn new(config: MockConfig, size: MockSize, vocabulary: Arc<Vocabulary>) -> Result<Self, BackendError> {
        let kv = MockKv::new(&config.shape, size.kv_pages, size.tp)?;
        // What the tokens of an answer depend on, besides the request.
        let says = mix(vocabulary.digest(), config.shape.output_tokens.map_or(0, u64::from));
        Ok(Self {
            spec: BackendSpec {
                device: "mock".to_owned(),
                numerics: Numerics { id: format!("mock-{says:016x}"), guarantee: Guarantee::ByToken },
                vocab_size: vocabulary.size() as usize,
                max_context_tokens: (config.shape.context_tokens as usize).min(size.kv_pages * PAGE_TOKENS),
                pages_total: size.kv_pages,
                max_step_tokens: size.step_tokens,
                max_slots: size.max_slots,
                steps_in_flight: 1,
                batch_buckets: Vec::new(),
                threads: 1,
            },
            slots: std::iter::repeat_with(|| None).take(size.max_slots).collect(),
            pages: SlotPages::new(size.max_slots, size.kv_pages),
            faults: Faults::new(config.faults.clone()),
            config,
            vocabulary,
            kv,
            pace: Pace::default(),
            steps: 0,
            layers_done: LayerCounter::default(),
            running: VecDeque::new(),
            active: Vec::new(),
            spare: Vec::new(),
        })
    }

    /// KV memory of one page.
    pub fn page_bytes(config: &MockConfig) -> u64 {
        layout(&config.shape).page_bytes() as u64
    }

    /// The pace at which its KV leaves, for the fabric; `None` for as fast as it can.
    pub fn transfer_bytes_per_s(&self) -> Option<u64> {
        let per_token = self.config.speed.transfer_per_token;
        (!per_token.is_zero()).then(|| (self.kv.bytes_per_token() as f64 / per_token.as_secs_f64()).ceil() as u64)
    }

    fn admit(&mut self, plan: &StepPlan) -> Result<(), BackendError> {
        for (id, sampler) in &plan.admitted {
            match self.slots.get_mut(id.0 as usize) {
                Some(free @ None) => *free = Some(Slot::new(sampler, self.faults.doom())),
                _ => return broken(format!("slot {} is taken or does not exist", id.0)),
            }
        }
        self.pages.apply(plan)
    }

    fn run_segment(
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
        let Some(Some(slot)) = self.slots.get_mut(segment.slot.0 as usize) else {
            return broken(format!("slot {} was not admitted", segment.slot.0));
        };
        work.add(&self.config.speed, segment.first_position, inputs.len(), slot.prompt_tokens());
        if let Err(error) = slot.attend(segment.first_position, pages, &self.kv) {
            output.failed.push((segment.slot, error));
            return Ok(());
        }
        for (position, input) in (segment.first_position..).zip(inputs) {
            slot.append(*input, pages, &self.kv)?;
            let next = slot.sampler.prompt.get(position + 1);
            if let (Some(top), Some(&next)) = (segment.output.prompt_logprobs, next) {
                let logprobs = self.vocabulary.logprobs(next, top);
                output.prompt_logprobs.push(PromptLogprob { slot: segment.slot, position: position + 1, logprobs });
            }
        }
        if let Err(error) = slot.check_doom(segment.output.sample) {
            output.failed.push((segment.slot, error));
        } else if segment.output.sample {
            if self.faults.crashes() {
                return Err(BackendError::Device("the mock engine crashes, as it was told to".to_owned()));
            }
            let token = slot.sample(&self.vocabulary, self.config.shape.output_tokens);
            let logprobs = slot.sampler.logprobs.map(|top| self.vocabulary.logprobs(token, top));
            output.samples.push(Sample { slot: segment.slot, token: Ok(token), logprobs });
        }
        Ok(())
    }

    fn release(&mut self, plan: &StepPlan) -> Result<(), BackendError> {
        for id in &plan.released {
            if self.slots.get_mut(id.0 as usize).and_then(Option::take).is_none() {
                return broken(format!("slot {} was not admitted", id.0));
            }
        }
        Ok(())
    }
}

impl Backend for MockBackend {
    fn spec(&self) -> &BackendSpec {
        &self.spec
    }

    fn submit(&mut self, plan: &StepPlan) -> Result<Ticket, BackendError> {
        let now = Instant::now();
        self.admit(plan)?;
        let (mut work, mut output) = (StepWork::default(), self.spare.pop().unwrap_or_default());
        output.clear();
        for segment in &plan.segments {
            self.run_segment(plan, segment, &mut work, &mut output)?;
        }
        self.release(plan)?;

        let computes = !plan.segments.is_empty();
        let stall = if computes { self.faults.stall() } else { Default::default() };
        // A slot that was admitted just now has another sequence than before.
        let is_new = |slot: SlotId| plan.admitted.iter().any(|(admitted, _)| *admitted == slot);
        let goes_on = |segment: &Segment| self.active.contains(&segment.slot) && !is_new(segment.slot);
        let continues = plan.segments.iter().any(goes_on);
        let span = self.pace.step(now, work.duration(&self.config.speed) + stall, continues);
        if computes {
            self.active.clear();
            self.active.extend(plan.segments.iter().map(|segment| segment.slot));
        }
        self.steps += 1;
        self.running.push_back(Running { number: self.steps, span, computes, output });
        Ok(Ticket::new(self.steps))
    }

    fn collect(&mut self, ticket: Ticket, output: &mut StepOutput) -> Result<(), BackendError> {
        let Some(step) = self.running.pop_front().filter(|step| step.number == ticket.step()) else {
            return broken("steps are collected in the order of their submission".to_owned());
        };
        // Also when nobody listens, as on a real device: a step that takes long is no hang.
        let layers = if step.computes { self.config.shape.layers } else { 0 };
        for layer in 0..layers {
            step.span.wait_for_part(layer, layers, || self.layers_done.other_progress());
            self.layers_done.layer_done();
        }
        step.span.wait_for_part(0, 1, || {});
        self.spare.push(std::mem::replace(output, step.output));
        Ok(())
    }

    fn layers_done(&self) -> LayerCounter {
        self.layers_done.clone()
    }

    fn kv_pool(&self) -> Option<Arc<KvPool>> {
        Some(Arc::clone(self.kv.pool()))
    }
}

fn broken<T>(what: String) -> Result<T, BackendError> {
    Err(BackendError::Contract(what))
}
