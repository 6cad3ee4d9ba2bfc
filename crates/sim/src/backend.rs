//! The simulated hardware of an engine: a step is submitted, its layers are done one after the other while time passes, and
//! its results are collected.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use baton_backend::{
    Backend, BackendError, BackendSpec, InputToken, NonFiniteLogits, PromptLogprob, Sample, SamplerSpec, Segment,
    SlotId, SlotPages, StepOutput, StepPlan, Ticket,
};
use baton_core::{Guarantee, ServeError, TokenId};
use baton_fabric::LayerCounter;

use crate::clock::lock;
use crate::journal::{Checker, Journal};
use crate::memory::Memory;
use crate::model::{Logits, Sampler};
use crate::random::Random;

/// Clones are the same hardware.
#[derive(Clone)]
pub(crate) struct Hardware(Arc<Mutex<State>>);

/// What the engine is given; the spec is out of the lock because it is lent.
pub(crate) struct SimBackend {
    spec: BackendSpec,
    layers_done: LayerCounter,
    hardware: Hardware,
}

struct State {
    max_slots: usize,
    guarantee: Guarantee,
    memory: Memory,
    journal: Arc<Journal>,
    slots: BTreeMap<SlotId, Slot>,
    pages: SlotPages,
    plan: StepPlan,
    /// Per segment, per position that it computes.
    logits: Vec<Vec<Logits>>,
    steps: u64,
    layers_done: LayerCounter,
    /// Decides which sequences break down.
    random: Random,
    failures_per_mille: u64,
}

struct Slot {
    sampler: Arc<SamplerSpec>,
    tokens: Vec<TokenId>,
}

impl Hardware {
    pub(crate) fn new(
        (max_slots, pages_total, guarantee): (usize, usize, Guarantee),
        memory: Memory,
        journal: Arc<Journal>,
        random: Random,
        failures_per_mille: u64,
    ) -> Self {
        Self(Arc::new(Mutex::new(State {
            max_slots,
            guarantee,
            memory,
            journal,
            slots: BTreeMap::new(),
            pages: SlotPages::new(max_slots, pages_total),
            plan: StepPlan::default(),
            logits: Vec::new(),
            steps: 0,
            layers_done: LayerCounter::default(),
            random,
            failures_per_mille,
        })))
    }

    pub(crate) fn backend(&self, spec: BackendSpec) -> SimBackend {
        SimBackend { spec, layers_done: lock(&self.0).layers_done.clone(), hardware: self.clone() }
    }

    pub(crate) fn slots_in_use(&self) -> usize {
        lock(&self.0).slots.len()
    }

    /// Segments and tokens of the step under way.
    pub(crate) fn step_size(&self) -> (usize, usize) {
        let state = lock(&self.0);
        (state.plan.segments.len(), state.plan.tokens.len())
    }

    /// What the heartbeat says of it.
    pub(crate) fn progress(&self) -> u64 {
        lock(&self.0).layers_done.progress()
    }

    /// K and V of this layer become final. Returns how many layers have been done so far.
    pub(crate) fn finish_layer(&self, layer: u32) -> u64 {
        let mut state = lock(&self.0);
        state.finish_layer(layer);
        if !state.plan.tokens.is_empty() {
            state.layers_done.layer_done();
        }
        state.layers_done.done()
    }
}

impl Backend for SimBackend {
    fn spec(&self) -> &BackendSpec {
        &self.spec
    }

    fn submit(&mut self, plan: &StepPlan) -> Result<Ticket, BackendError> {
        let mut state = lock(&self.hardware.0);
        state.begin(plan);
        Ok(Ticket::new(state.steps))
    }

    fn collect(&mut self, _ticket: Ticket, output: &mut StepOutput) -> Result<(), BackendError> {
        *output = lock(&self.hardware.0).finish();
        Ok(())
    }

    fn layers_done(&self) -> LayerCounter {
        self.layers_done.clone()
    }
}

impl State {
    fn begin(&mut self, plan: &StepPlan) {
        self.steps += 1;
        for (slot, sampler) in &plan.admitted {
            let tokens = [&*sampler.prompt, &sampler.outputs].concat();
            let replaced = self.slots.insert(*slot, Slot { sampler: Arc::clone(sampler), tokens });
            self.demand(replaced.is_none(), || format!("{slot:?} admitted twice"));
        }
        self.demand(self.slots.len() <= self.max_slots, || "more slots than there are".to_owned());
        if let Err(error) = self.pages.apply(plan) {
            self.demand(false, || error.to_string());
        }
        self.plan = plan.clone();
        let logits = |segment: &Segment| vec![Logits::default(); segment.tokens.len()];
        self.logits = plan.segments.iter().map(logits).collect();
        for segment in &plan.segments {
            self.check(segment);
        }
    }

    fn check(&self, segment: &Segment) {
        let plan = &self.plan;
        let end = segment.first_position + segment.tokens.len();
        let Some(slot) = self.slots.get(&segment.slot) else {
            return self.demand(false, || format!("{:?} is not admitted", segment.slot));
        };
        let input = plan.tokens[segment.tokens.clone()].iter();
        let known = slot.tokens.get(segment.first_position..end).unwrap_or_default();
        let told = input.map(|input| match input {
            InputToken::Known(token) => Some(*token),
            InputToken::LastSampled => None,
        });
        self.demand(told.eq(known.iter().map(|token| Some(*token))), || format!("wrong input for {:?}", segment.slot));
        let pages = self.pages.up_to(segment.slot, end);
        self.demand(pages.is_ok(), || format!("too few pages for {:?}", segment.slot));
        let whole = !segment.output.sample || end == slot.tokens.len();
        self.demand(whole, || format!("{:?} samples from a part of its sequence", segment.slot));
    }

    fn finish_layer(&mut self, layer: u32) {
        for (segment, logits) in self.plan.segments.iter().zip(&mut self.logits) {
            let Some(slot) = self.slots.get(&segment.slot) else { continue };
            let (first, end) = (segment.first_position, segment.first_position + segment.tokens.len());
            let (Some(tokens), Ok(pages)) = (slot.tokens.get(..end), self.pages.up_to(segment.slot, end)) else {
                continue;
            };
            let apart = match self.guarantee {
                Guarantee::ByToken => usize::MAX,
                Guarantee::ByOrigin => slot.sampler.prompt.len(),
            };
            self.memory.compute(layer, (tokens, apart), first, pages, |position, attention| {
                logits[position - first].add(attention);
            });
        }
    }

    fn finish(&mut self) -> StepOutput {
        let mut output = StepOutput::default();
        let plan = std::mem::take(&mut self.plan);
        for (segment, logits) in plan.segments.iter().zip(&self.logits) {
            let Some(Slot { sampler, tokens }) = self.slots.get_mut(&segment.slot) else { continue };
            if self.random.per_mille(self.failures_per_mille) {
                output.failed.push((segment.slot, ServeError::engine("the device lost a sequence")));
                continue;
            }
            let positions = segment.first_position..;
            if let Some(alternatives) = segment.output.prompt_logprobs {
                for (logits, position) in logits.iter().zip(positions.map(|position| position + 1)) {
                    let Some(&next) = sampler.prompt.get(position) else { break };
                    let logprobs = logits.logprobs(next, alternatives);
                    output.prompt_logprobs.push(PromptLogprob { slot: segment.slot, position, logprobs });
                }
            }
            if segment.output.sample
                && let Some(logits) = logits.last()
            {
                let index = tokens.len() - sampler.prompt.len();
                let token = logits.sample(Sampler::of(sampler), index);
                tokens.extend(token);
                let logprobs = token.zip(sampler.logprobs).map(|(token, count)| logits.logprobs(token, count));
                output.samples.push(Sample { slot: segment.slot, token: token.ok_or(NonFiniteLogits), logprobs });
            }
        }
        for slot in &plan.released {
            let removed = self.slots.remove(slot);
            self.demand(removed.is_some(), || format!("{slot:?} released but not in use"));
        }
        output
    }

    fn demand(&self, holds: bool, message: impl FnOnce() -> String) {
        if !holds {
            self.journal.blame(Checker::Plan, message());
        }
    }
}

impl<'a> Sampler<'a> {
    fn of(spec: &'a SamplerSpec) -> Self {
        Self { params: &spec.params, choice: spec.choice, min_tokens: spec.min_tokens, stop_tokens: &spec.stop_tokens }
    }
}
