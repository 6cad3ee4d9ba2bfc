//! Steps of a real decoder, timed as a whole and phase by phase, with the operations and bytes that each phase needs at least.

use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_backend::{
    Backend, BackendError, InputToken, SamplerSpec, Segment, SegmentOutput, SlotId, StepOutput, StepPlan,
};
use baton_core::{Choice, PAGE_TOKENS, PageId, SamplingParams, TokenId};
use baton_cpu::{CpuBackend, CpuOptions, Isa, KvDtype, Phase, PhaseClock, Products, StorageDtype, WeightForm, Weights};
use baton_model::Model;

use super::random_layer::RandomLayer;
use super::work::{Cost, ModelShape, StepRows};

/// A backend whose steps are measured.
pub struct Steps {
    backend: CpuBackend,
    shape: ModelShape,
    context: usize,
    plan: StepPlan,
}

/// The largest steps that will be measured.
#[derive(Clone, Copy, Debug)]
pub struct LargestStep {
    pub tokens: usize,
    pub batch: usize,
    pub context: usize,
}

/// What one step took.
#[derive(Clone, Debug)]
pub struct StepTime {
    pub whole: Duration,
    phases: Vec<(Phase, Duration, Cost)>,
}

impl StepTime {
    /// The phases that do arithmetic, in their order.
    pub fn phases(&self) -> impl Iterator<Item = &(Phase, Duration, Cost)> {
        self.phases.iter().filter(|(_, _, work)| work.flops > 0.0)
    }

    pub fn work(&self) -> Cost {
        self.phases.iter().map(|&(_, _, work)| work).sum()
    }
}

impl Steps {
    /// One layer of a Llama with 1B parameters, stored as bf16, with random weights.
    pub fn random_layer(threads: usize, limits: LargestStep, weights: WeightForm) -> Result<Self, BackendError> {
        let layer = RandomLayer::llama_1b(limits.context);
        let options = CpuOptions { weights, ..options(threads, 1, limits) };
        Self::new(Arc::new(layer), options, limits)
    }

    /// All of a model.
    pub fn model(
        model: Arc<Model>,
        threads: usize,
        tp: usize,
        limits: LargestStep,
        weights: WeightForm,
        products: Products,
    ) -> Result<Self, BackendError> {
        let options = CpuOptions { weights, products, ..options(threads, tp, limits) };
        Self::new(model, options, limits)
    }

    fn new(weights: Arc<dyn Weights>, options: CpuOptions, limits: LargestStep) -> Result<Self, BackendError> {
        let mut backend = CpuBackend::from_weights(Arc::clone(&weights), options, &mut |_| {})?;
        backend.fill_kv();
        let shape = ModelShape::of(weights.spec(), |phase| backend.weight_bytes(phase));
        Ok(Self { backend, shape, context: limits.context, plan: StepPlan::default() })
    }

    pub fn isa(&self) -> Isa {
        self.backend.isa()
    }

    /// Bytes of all weights that a step reads.
    pub fn weight_bytes(&self) -> f64 {
        self.shape.weight_bytes()
    }

    /// Times a prompt of `tokens` tokens.
    pub fn prefill(&mut self, tokens: usize) -> Result<StepTime, BackendError> {
        self.time(1, 0, tokens)
    }

    /// Times the next token of `batch` sequences that hold `context` tokens each.
    pub fn decode(&mut self, batch: usize, context: usize) -> Result<StepTime, BackendError> {
        self.time(batch, context, 1)
    }

    fn time(&mut self, batch: usize, first_position: usize, tokens: usize) -> Result<StepTime, BackendError> {
        self.plan_step(batch, first_position, tokens);
        let clock = PhaseClock::start(self.shape.layers as usize);
        let started = Instant::now();
        let ticket = self.backend.submit_timed(&self.plan, &clock)?;
        self.backend.collect(ticket, &mut StepOutput::default())?;
        let whole = started.elapsed();
        let load = StepRows::new(batch, first_position, tokens);
        let phases = Phase::ALL.map(|phase| (phase, clock.time(phase), self.shape.work(phase, &load)));
        Ok(StepTime { whole, phases: phases.to_vec() })
    }

    fn plan_step(&mut self, batch: usize, first_position: usize, tokens: usize) {
        let plan = &mut self.plan;
        *plan = StepPlan::default();
        let pages = (first_position + tokens).div_ceil(PAGE_TOKENS);
        // Prompts begin at their beginning; a token behind others was generated.
        let sampler = Arc::new(greedy(if first_position == 0 { tokens } else { 0 }));
        for slot in 0..batch {
            let first_token = plan.tokens.len();
            let token = |i| InputToken::Known(TokenId(((slot + first_position + i) * 7 % self.shape.vocab) as u32));
            plan.tokens.extend((0..tokens).map(token));
            let own = slot * pages_of(self.context);
            let slot = SlotId(slot as u32);
            plan.change_table(slot, 0, (own..own + pages).map(|page| PageId(page as u32)));
            plan.admitted.push((slot, Arc::clone(&sampler)));
            plan.released.push(slot);
            plan.segments.push(Segment {
                slot,
                tokens: first_token..plan.tokens.len(),
                first_position,
                adapter: None,
                output: SegmentOutput { samples: 1, ..SegmentOutput::default() },
            });
        }
    }
}

fn pages_of(context: usize) -> usize {
    (context + 1).div_ceil(PAGE_TOKENS)
}

fn options(threads: usize, tp: usize, limits: LargestStep) -> CpuOptions {
    CpuOptions {
        threads,
        tp,
        dtype: StorageDtype::Auto,
        kv_dtype: KvDtype::Auto,
        weights: WeightForm::Auto,
        products: Products::Auto,
        kv_pages: (limits.batch * pages_of(limits.context)).max(limits.tokens.div_ceil(PAGE_TOKENS)),
        max_step_tokens: limits.tokens.max(limits.batch),
        max_slots: limits.batch.max(1),
        isa: None,
    }
}

fn greedy(prompt_tokens: usize) -> SamplerSpec {
    SamplerSpec {
        params: SamplingParams::greedy(),
        choice: Choice(0),
        prompt: std::iter::repeat_n(TokenId(0), prompt_tokens).collect(),
        outputs: Vec::new(),
        min_tokens: 0,
        stop_tokens: Vec::new(),
        logprobs: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_the_step() {
        let limits = LargestStep { tokens: 16, batch: 2, context: 64 };
        let mut steps = Steps::random_layer(2, limits, WeightForm::Auto).unwrap();
        let share = |step: &StepTime| {
            assert_eq!(step.phases().count(), 6);
            assert!(step.phases().all(|(_, time, _)| !time.is_zero()), "{step:?}");
            let phases: Duration = step.phases.iter().map(|&(_, time, _)| time).sum();
            assert!(phases <= step.whole, "{step:?}");
            phases.as_secs_f64() / step.whole.as_secs_f64()
        };
        // A busy machine also takes time between two phases, though hardly in every step.
        let prefill = (0..50).map(|_| share(&steps.prefill(16).unwrap())).find(|&share| share > 0.5);
        let decode = (0..50).map(|_| share(&steps.decode(2, 64).unwrap())).find(|&share| share > 0.5);
        assert!(prefill.is_some() && decode.is_some(), "phases are less than half of every step");
    }
}
