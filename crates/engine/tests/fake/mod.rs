//! A model whose KV and tokens are hashes of everything before them. It keeps real page contents, so that a page that was
//! shared, reused or left out wrongly is noticed by the first step that reads it.
#![allow(dead_code, reason = "each test uses its part")]

pub(crate) mod fabric;
pub(crate) mod stream;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use baton_backend::{
    Backend, BackendError, BackendSpec, CannotSample, InputToken, PromptLogprob, Sample, SamplerSpec, Segment, SlotId,
    SlotPages, StepOutput, StepPlan, Ticket,
};
use baton_core::{
    Attempt, Choice, GenerateRequest, Guarantee, Limits, Numerics, PAGE_TOKENS, RequestId, SamplingParams, ServeError,
    TokenId, TokenLogprobs,
};
use baton_fabric::LayerCounter;

pub(crate) const VOCAB: usize = 64;
/// A request with this seed has no finite logits after two outputs.
pub(crate) const POISONED_SEED: u64 = u64::MAX;

pub(crate) struct FakeModel {
    spec: BackendSpec,
    kv: Kv,
    slots: BTreeMap<SlotId, Slot>,
    pages: SlotPages,
    steps: u64,
    /// Submitted, not collected.
    plans: VecDeque<StepPlan>,
    /// Tokens that were sampled, whether or not they were wanted.
    pub(crate) samples: u64,
    layers_done: LayerCounter,
    /// Fails as soon as this many sequences are there.
    pub(crate) fail_at_slots: Option<usize>,
}

/// KV of each position of each page: the hash of all tokens up to and with it. Shared with the fabric that hands it over.
pub(crate) type Kv = Arc<Mutex<Vec<[u64; PAGE_TOKENS]>>>;

pub(crate) const LAYERS: u32 = 2;

struct Slot {
    sampler: Arc<SamplerSpec>,
    tokens: Vec<TokenId>,
    /// Its logits were not finite: what was planned behind that is void.
    has_failed: bool,
}

pub(crate) fn spec(pages_total: usize, max_slots: usize, max_context_tokens: usize) -> BackendSpec {
    BackendSpec {
        device: "fake".to_owned(),
        numerics: Numerics { id: "fake".to_owned(), guarantee: Guarantee::ByToken },
        vocab_size: VOCAB,
        max_context_tokens,
        pages_total,
        max_step_tokens: 4096,
        max_slots,
        steps_in_flight: 1,
        tokens_per_step: 1,
        batch_buckets: Vec::new(),
        poolings: Vec::new(),
        adapters: Vec::new(),
        threads: 1,
    }
}

impl FakeModel {
    pub(crate) fn new(spec: BackendSpec) -> Self {
        let kv = Arc::new(Mutex::new(vec![[0; PAGE_TOKENS]; spec.pages_total]));
        let pages = SlotPages::new(spec.max_slots, spec.pages_total);
        Self {
            spec,
            kv,
            slots: BTreeMap::new(),
            pages,
            steps: 0,
            plans: VecDeque::new(),
            samples: 0,
            layers_done: LayerCounter::default(),
            fail_at_slots: None,
        }
    }

    pub(crate) fn kv(&self) -> Kv {
        Arc::clone(&self.kv)
    }

    pub(crate) fn slots_in_use(&self) -> usize {
        self.slots.len()
    }

    /// Runs a plan, holding it to its contract.
    pub(crate) fn run(&mut self, plan: &StepPlan) -> StepOutput {
        assert!(plan.tokens.len() <= self.spec.max_step_tokens);
        for (slot, sampler) in &plan.admitted {
            let tokens = [&*sampler.prompt, &sampler.outputs].concat();
            let replaced = self.slots.insert(*slot, Slot { sampler: Arc::clone(sampler), tokens, has_failed: false });
            assert!(replaced.is_none(), "{slot:?} admitted twice");
        }
        assert!(self.slots.len() <= self.spec.max_slots);
        self.pages.apply(plan).unwrap();
        let mut output = StepOutput::default();
        for segment in &plan.segments {
            self.run_segment(plan, segment, &mut output);
        }
        let layers = if plan.tokens.is_empty() { 0 } else { LAYERS };
        (0..layers).for_each(|_| self.layers_done.layer_done());
        for slot in &plan.released {
            assert!(self.slots.remove(slot).is_some(), "{slot:?} released but not in use");
        }
        output
    }

    fn run_segment(&mut self, plan: &StepPlan, segment: &Segment, output: &mut StepOutput) {
        let slot = self.slots.get_mut(&segment.slot).unwrap();
        let end = segment.first_position + segment.tokens.len();
        let pages = self.pages.up_to(segment.slot, end + segment.output.samples.saturating_sub(1)).unwrap();
        assert!(!segment.tokens.is_empty());
        if slot.has_failed {
            output.failed.push((segment.slot, ServeError::engine("not finite, a step before")));
            return;
        }

        let mut memory = self.kv.lock().unwrap();
        let mut hash = 0;
        for position in 0..end {
            let token = slot.tokens[position];
            hash = mix(hash, token.0.into());
            let kv = &mut memory[pages[position / PAGE_TOKENS].index()][position % PAGE_TOKENS];
            let generated =
                self.spec.numerics.guarantee == Guarantee::ByOrigin && position >= slot.sampler.prompt.len();
            let expected = if generated { !hash } else { hash };
            if position < segment.first_position {
                assert_eq!(*kv, expected, "KV of position {position} of {:?} is another sequence's", segment.slot);
            } else {
                let input = plan.tokens[segment.tokens.start + position - segment.first_position];
                let newest = position + 1 == slot.tokens.len() && position >= slot.sampler.prompt.len();
                let expected_input = if newest && input == InputToken::LastSampled {
                    InputToken::LastSampled
                } else {
                    InputToken::Known(token)
                };
                assert_eq!(input, expected_input, "input at {position} of {:?}", segment.slot);
                *kv = expected;
                if segment.output.prompt_logprobs.is_some() && position + 1 < slot.sampler.prompt.len() {
                    let logprobs = prompt_logprobs(hash, slot.tokens[position + 1]);
                    output.prompt_logprobs.push(PromptLogprob { slot: segment.slot, position: position + 1, logprobs });
                }
            }
        }
        if segment.output.samples == 0 {
            return;
        }
        assert_eq!(end, slot.tokens.len(), "sampling needs the whole sequence");
        assert!(segment.output.samples <= self.spec.tokens_per_step);
        // A drafted token may be refused.
        for nth in 0..=hash % segment.output.samples as u64 {
            let position = slot.tokens.len() - 1;
            if nth > 0 {
                hash = mix(hash, slot.tokens[position].0.into());
                let generated = self.spec.numerics.guarantee == Guarantee::ByOrigin;
                let kv = if generated { !hash } else { hash };
                memory[pages[position / PAGE_TOKENS].index()][position % PAGE_TOKENS] = kv;
            }
            let outputs = slot.tokens.len() - slot.sampler.prompt.len();
            let token = sample(hash, slot.sampler.params.seed, slot.sampler.choice, outputs);
            slot.tokens.extend(token);
            slot.has_failed = token.is_none();
            self.samples += 1;
            output.samples.push(Sample {
                slot: segment.slot,
                token: token.ok_or(CannotSample::NotFinite),
                logprobs: None,
            });
            if slot.has_failed {
                return;
            }
        }
    }
}

impl Backend for FakeModel {
    fn spec(&self) -> &BackendSpec {
        &self.spec
    }

    fn submit(&mut self, plan: &StepPlan) -> Result<Ticket, BackendError> {
        self.steps += 1;
        self.plans.push_back(plan.clone());
        assert!(self.plans.len() <= self.spec.steps_in_flight);
        Ok(Ticket::new(self.steps))
    }

    /// A step is run when it is waited for: what the engine did before that, it did while the step was in flight.
    fn collect(&mut self, ticket: Ticket, output: &mut StepOutput) -> Result<(), BackendError> {
        assert_eq!(ticket, Ticket::new(self.steps + 1 - self.plans.len() as u64));
        let plan = self.plans.pop_front().unwrap();
        *output = self.run(&plan);
        if self.fail_at_slots.is_some_and(|slots| slots <= self.slots.len()) {
            return Err(BackendError::Device("unplugged".to_owned()));
        }
        Ok(())
    }

    fn layers_done(&self) -> LayerCounter {
        self.layers_done.clone()
    }
}

fn sample(hash: u64, seed: u64, choice: Choice, outputs: usize) -> Option<TokenId> {
    if seed == POISONED_SEED && outputs >= 2 {
        return None;
    }
    Some(TokenId((mix(mix(hash, seed), choice.0.into()) % VOCAB as u64) as u32))
}

fn prompt_logprobs(hash: u64, token: TokenId) -> TokenLogprobs {
    TokenLogprobs { chosen: (mix(hash, token.0.into()) % 1000) as f32, top: Vec::new() }
}

/// What a choice must generate, computed without an engine. `None` stands for logits that are not finite.
pub(crate) fn expected_tokens(
    request: &GenerateRequest,
    choice: Choice,
    context_tokens: usize,
) -> Vec<Option<TokenId>> {
    let mut tokens = [&*request.prompt, &request.outputs[choice.index()]].concat();
    let mut expected = Vec::new();
    while tokens.len() < request.max_total_tokens().min(context_tokens) {
        let hash = tokens.iter().fold(0, |hash, token| mix(hash, token.0.into()));
        let next = sample(hash, request.sampling.seed, choice, tokens.len() - request.prompt.len());
        expected.push(next);
        match next {
            Some(token) if !request.limits.stop_tokens.contains(&token) => tokens.push(token),
            _ => break,
        }
    }
    expected
}

pub(crate) fn expected_prompt_logprobs(request: &GenerateRequest) -> Option<Vec<TokenLogprobs>> {
    request.prompt_logprobs?;
    let mut hash = 0;
    let pairs = request.prompt.windows(2);
    Some(pairs.map(|pair| (hash = mix(hash, pair[0].0.into()), prompt_logprobs(hash, pair[1])).1).collect())
}

pub(crate) fn request(
    id: u64,
    prompt: impl IntoIterator<Item = TokenId>,
    choices: usize,
    max_tokens: u32,
) -> GenerateRequest {
    GenerateRequest {
        id: RequestId(id),
        attempt: Attempt(0),
        prompt: prompt.into_iter().collect(),
        outputs: vec![Vec::new(); choices],
        ended: vec![false; choices],
        sampling: SamplingParams { seed: id, ..SamplingParams::greedy() },
        limits: Limits { max_tokens, min_tokens: 0, stop_tokens: Vec::new() },
        logprobs: None,
        prompt_logprobs: None,
        adapter: None,
        pooling: None,
        affinity: None,
    }
}

/// SplitMix64's output function: good enough that no two prefixes meet.
pub(crate) fn mix(state: u64, value: u64) -> u64 {
    let mut z = state.rotate_left(17) ^ value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Seeded randomness for tests.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = mix(self.0, 1);
        self.0 % bound
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }
}
