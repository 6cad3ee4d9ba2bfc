//! The backend of a simulated engine: it computes nothing, and remembers how large a step is.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use baton_backend::{Backend, BackendError, BackendSpec, Sample, SamplerSpec, SlotId, StepOutput, StepPlan, Ticket};
use baton_core::{Guarantee, Numerics, PAGE_TOKENS, TokenId};
use baton_fabric::LayerCounter;

use crate::clock::lock;
use crate::cost::StepSize;
use crate::preset::Preset;

pub(crate) const NUMERICS_ID: &str = "simulated";
pub(crate) const VOCABULARY: u32 = 1 << 17;

/// The token at a position that is generated. Prompts that contain answers know it without waiting for them.
pub(crate) fn generated_token(position: usize) -> TokenId {
    TokenId((position as u32).wrapping_mul(0x9e37_79b1) % STOP.0)
}

/// Ends an answer.
pub(crate) const STOP: TokenId = TokenId(VOCABULARY - 1);

/// The size of the step that was submitted last.
pub(crate) type NewestStep = Arc<Mutex<StepSize>>;

pub(crate) struct ModelledBackend {
    spec: BackendSpec,
    newest: NewestStep,
    /// Slots that sample, with the position of the token, step by step.
    samples: VecDeque<Vec<(SlotId, usize)>>,
    /// Where the last token of each slot's answer will be. Its request's seed is the length of the answer: a router cannot
    /// know that.
    ends: BTreeMap<SlotId, usize>,
    submitted: u64,
}

impl ModelledBackend {
    pub(crate) fn new(preset: &Preset, newest: NewestStep) -> Self {
        let spec = BackendSpec {
            device: preset.name.to_owned(),
            numerics: Numerics { id: NUMERICS_ID.to_owned(), guarantee: Guarantee::ByToken },
            vocab_size: VOCABULARY as usize,
            max_context_tokens: preset.context_tokens,
            pages_total: preset.kv_tokens / PAGE_TOKENS,
            max_step_tokens: preset.step_tokens,
            max_slots: preset.max_running,
            steps_in_flight: 1,
            tokens_per_step: 1,
            batch_buckets: Vec::new(),
            poolings: Vec::new(),
            adapters: Vec::new(),
            threads: 1,
        };
        Self { spec, newest, samples: VecDeque::new(), ends: BTreeMap::new(), submitted: 0 }
    }
}

impl Backend for ModelledBackend {
    fn spec(&self) -> &BackendSpec {
        &self.spec
    }

    fn submit(&mut self, plan: &StepPlan) -> Result<Ticket, BackendError> {
        *lock(&self.newest) = StepSize::of(plan);
        let end = |spec: &SamplerSpec| spec.prompt.len() + spec.params.seed as usize - 1;
        self.ends.extend(plan.admitted.iter().map(|(slot, spec)| (*slot, end(spec))));
        let sampling = plan.segments.iter().filter(|segment| segment.output.samples > 0);
        let samples = sampling.map(|segment| (segment.slot, segment.first_position + segment.tokens.len()));
        self.samples.push_back(samples.collect());
        self.submitted += 1;
        Ok(Ticket::new(self.submitted))
    }

    fn collect(&mut self, _ticket: Ticket, output: &mut StepOutput) -> Result<(), BackendError> {
        output.clear();
        let samples = self.samples.pop_front();
        let samples = samples.ok_or_else(|| BackendError::Contract("no step was submitted".to_owned()))?;
        let sampled = |(slot, position)| {
            let ends = self.ends.get(&slot).is_some_and(|end| position >= *end);
            Sample { slot, token: Ok(if ends { STOP } else { generated_token(position) }), logprobs: None }
        };
        output.samples.extend(samples.into_iter().map(sampled));
        Ok(())
    }

    fn layers_done(&self) -> LayerCounter {
        LayerCounter::default()
    }
}
