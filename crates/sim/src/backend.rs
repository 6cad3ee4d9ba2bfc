//! The simulated hardware of an engine: steps are submitted, computed one after the other and layer by layer while time
//! passes, and collected.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use baton_backend::{
    Backend, BackendError, BackendSpec, CannotSample, InputToken, PromptLogprob, Sample, SamplerSpec, Segment, SlotId,
    SlotPages, StepOutput, StepPlan, Ticket,
};
use baton_core::{Guarantee, ServeError, TokenId};
use baton_fabric::LayerCounter;

use crate::clock::lock;
use crate::event_log::{Checker, EventLog};
use crate::memory::{Memory, Written};
use crate::model::{LAYERS, Logits, Sampler};
use crate::mutation::Mutation;
use crate::random::Random;
use crate::scenario::EngineSetup;

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
    log: Arc<EventLog>,
    slots: BTreeMap<SlotId, Slot>,
    pages: SlotPages,
    /// Submitted and not done, oldest first: that one is being computed.
    queue: VecDeque<Step>,
    /// Done and not collected, oldest first.
    done: VecDeque<StepOutput>,
    submitted: u64,
    layers_done: LayerCounter,
    mutation: Option<Mutation>,
    /// What steps that count as done have yet to write.
    late: VecDeque<Vec<Written>>,
    /// Decides which sequences break down.
    random: Random,
    failures_per_mille: u64,
}

#[derive(Default)]
struct Step {
    plan: StepPlan,
    /// Per segment, per position that it computes.
    logits: Vec<Vec<Logits>>,
}

struct Slot {
    sampler: Arc<SamplerSpec>,
    tokens: Vec<TokenId>,
    /// It cannot go on: what was planned behind that is void.
    has_failed: bool,
}

impl Hardware {
    pub(crate) fn new(
        setup: &EngineSetup,
        (guarantee, mutation): (Guarantee, Option<Mutation>),
        memory: Memory,
        log: Arc<EventLog>,
        random: Random,
        failures_per_mille: u64,
    ) -> Self {
        Self(Arc::new(Mutex::new(State {
            max_slots: setup.slots,
            guarantee,
            memory,
            log,
            slots: BTreeMap::new(),
            pages: SlotPages::new(setup.slots, setup.pages),
            queue: VecDeque::new(),
            done: VecDeque::new(),
            submitted: 0,
            layers_done: LayerCounter::default(),
            mutation,
            late: VecDeque::new(),
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

    /// Segments and tokens of the newest step.
    pub(crate) fn step_size(&self) -> (usize, usize) {
        let state = lock(&self.0);
        state.queue.back().map_or((0, 0), |step| (step.plan.segments.len(), step.plan.tokens.len()))
    }

    /// What the heartbeat reports of it.
    pub(crate) fn progress(&self) -> u64 {
        lock(&self.0).layers_done.progress()
    }

    /// K and V of this layer become final for the step that is computed. Returns how many layers have been done so far.
    pub(crate) fn finish_layer(&self, layer: u32) -> u64 {
        let mut state = lock(&self.0);
        state.finish_layer(layer);
        if state.queue.front().is_some_and(|step| !step.plan.tokens.is_empty()) {
            state.layers_done.layer_done();
        }
        state.layers_done.done()
    }

    /// The step that is computed is done, and the next one begins. Whether it has more to write all the same.
    pub(crate) fn finish_step(&self) -> bool {
        let mut state = lock(&self.0);
        state.finish();
        !state.late.is_empty()
    }

    /// Writes what is late.
    pub(crate) fn write_late(&self) {
        let mut state = lock(&self.0);
        if let Some(late) = state.late.pop_front() {
            late.iter().for_each(|written| state.memory.rewrite(written));
        }
    }
}

impl Backend for SimBackend {
    fn spec(&self) -> &BackendSpec {
        &self.spec
    }

    fn submit(&mut self, plan: &StepPlan) -> Result<Ticket, BackendError> {
        let mut state = lock(&self.hardware.0);
        let logits = |segment: &Segment| vec![Logits::default(); segment.tokens.len()];
        let logits = plan.segments.iter().map(logits).collect();
        state.queue.push_back(Step { plan: plan.clone(), logits });
        let unfinished = state.queue.len() + state.done.len();
        state.check_contract(unfinished <= self.spec.steps_in_flight, || format!("{unfinished} steps in flight"));
        if state.queue.len() == 1 {
            state.begin();
        }
        state.submitted += 1;
        Ok(Ticket::new(state.submitted))
    }

    fn collect(&mut self, _ticket: Ticket, output: &mut StepOutput) -> Result<(), BackendError> {
        let done = lock(&self.hardware.0).done.pop_front();
        *output = done.ok_or_else(|| BackendError::Contract("collected before it is done".to_owned()))?;
        Ok(())
    }

    fn layers_done(&self) -> LayerCounter {
        self.layers_done.clone()
    }
}

impl State {
    /// Steps are computed one after the other, so a plan's changes of slots count when its turn comes.
    fn begin(&mut self) {
        let Some(Step { plan, .. }) = self.queue.front() else { return };
        for (slot, sampler) in &plan.admitted {
            let tokens = [&*sampler.prompt, &sampler.outputs].concat();
            let new = Slot { sampler: Arc::clone(sampler), tokens, has_failed: false };
            let replaced = self.slots.insert(*slot, new);
            self.check_contract(replaced.is_none(), || format!("{slot:?} admitted twice"));
        }
        self.check_contract(self.slots.len() <= self.max_slots, || "more slots than there are".to_owned());
        if let Err(error) = self.pages.apply(plan) {
            self.check_contract(false, || error.to_string());
        }
        for segment in &plan.segments {
            self.check(plan, segment);
        }
    }

    fn check(&self, plan: &StepPlan, segment: &Segment) {
        let end = segment.first_position + segment.tokens.len();
        let Some(slot) = self.slots.get(&segment.slot) else {
            return self.check_contract(false, || format!("{:?} is not admitted", segment.slot));
        };
        let pages = self.pages.up_to(segment.slot, end);
        self.check_contract(pages.is_ok(), || format!("too few pages for {:?}", segment.slot));
        if slot.has_failed {
            return;
        }
        let input = plan.tokens[segment.tokens.clone()].iter();
        let known = slot.tokens.get(segment.first_position..end).unwrap_or_default();
        let newest = (end == slot.tokens.len() && end > slot.sampler.prompt.len()).then(|| known.last()).flatten();
        let given: Option<Vec<TokenId>> = input
            .map(|input| match input {
                InputToken::Known(token) => Some(*token),
                InputToken::LastSampled => newest.copied(),
            })
            .collect();
        self.check_contract(given.is_some_and(|given| given == known), || {
            format!("wrong input for {:?}", segment.slot)
        });
        let whole = segment.output.samples == 0 || end == slot.tokens.len();
        self.check_contract(whole, || format!("{:?} samples from a part of its sequence", segment.slot));
    }

    fn finish_layer(&mut self, layer: u32) {
        let Some(Step { plan, logits }) = self.queue.front_mut() else { return };
        for (segment, logits) in plan.segments.iter().zip(logits) {
            let Some(slot) = self.slots.get(&segment.slot).filter(|slot| !slot.has_failed) else { continue };
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

    fn finish(&mut self) {
        let Some(Step { plan, logits }) = self.queue.pop_front() else { return };
        if self.mutation == Some(Mutation::GivePagesInFlight) {
            self.write_later(&plan);
        }
        let mut output = StepOutput::default();
        for (segment, logits) in plan.segments.iter().zip(&logits) {
            let Some(slot) = self.slots.get_mut(&segment.slot) else { continue };
            if slot.has_failed || self.random.per_mille(self.failures_per_mille) {
                slot.has_failed = true;
                output.failed.push((segment.slot, ServeError::engine("the device lost a sequence")));
                continue;
            }
            let Slot { sampler, tokens, .. } = slot;
            let positions = segment.first_position..;
            if let Some(alternatives) = segment.output.prompt_logprobs {
                for (logits, position) in logits.iter().zip(positions.map(|position| position + 1)) {
                    let Some(&next) = sampler.prompt.get(position) else { break };
                    let logprobs = logits.logprobs(next, alternatives);
                    output.prompt_logprobs.push(PromptLogprob { slot: segment.slot, position, logprobs });
                }
            }
            if segment.output.samples > 0
                && let Some(logits) = logits.last()
            {
                let index = tokens.len() - sampler.prompt.len();
                let token = logits.sample(Sampler::of(sampler), index);
                tokens.extend(token);
                let logprobs = token.zip(sampler.logprobs).map(|(token, count)| logits.logprobs(token, count));
                slot.has_failed = token.is_none();
                output.samples.push(Sample {
                    slot: segment.slot,
                    token: token.ok_or(CannotSample::NotFinite),
                    logprobs,
                });
            }
        }
        for slot in &plan.released {
            let removed = self.slots.remove(slot);
            self.check_contract(removed.is_some(), || format!("{slot:?} released but not in use"));
        }
        self.done.push_back(output);
        self.begin();
    }

    /// The planted bug: what a step that counts as done writes behind generated tokens is written once more, later.
    fn write_later(&mut self, plan: &StepPlan) {
        let decoding = plan.segments.iter().filter(|segment| segment.output.samples > 0);
        let written = decoding.flat_map(|segment| {
            let end = segment.first_position + segment.tokens.len();
            let pages = self.pages.up_to(segment.slot, end).unwrap_or_default();
            self.memory.written(LAYERS - 1, segment.first_position, end, pages)
        });
        let written = written.collect();
        self.late.push_back(written);
    }

    fn check_contract(&self, holds: bool, message: impl FnOnce() -> String) {
        if !holds {
            self.log.report_violation(Checker::Plan, message());
        }
    }
}

impl<'a> Sampler<'a> {
    fn of(spec: &'a SamplerSpec) -> Self {
        Self { params: &spec.params, choice: spec.choice, min_tokens: spec.min_tokens, stop_tokens: &spec.stop_tokens }
    }
}
