//! Runs sequences through a backend in any chunks and batches, and keeps every bit of the output.

use std::sync::Arc;

use baton_core::{Choice, PAGE_TOKENS, PageId, SamplingParams, TokenId, TokenLogprobs};

use crate::weights::Weights;
use crate::{CpuBackend, CpuOptions, Isa, KvDtype, Products, StorageDtype, WeightForm};
use baton_backend::{
    Backend, InputToken, SamplerSpec, Segment, SegmentOutput, SlotId, StepOutput, StepPlan, TableChange,
};

#[derive(Clone, Copy)]
pub(super) struct Setup {
    pub(super) threads: usize,
    pub(super) tp: usize,
    pub(super) isa: Option<Isa>,
    pub(super) dtype: StorageDtype,
    pub(super) kv_dtype: KvDtype,
    pub(super) weights: WeightForm,
    pub(super) products: Products,
}

impl Setup {
    pub(super) const PLAIN: Self = Self {
        threads: 1,
        tp: 1,
        isa: None,
        dtype: StorageDtype::Auto,
        kv_dtype: KvDtype::Auto,
        weights: WeightForm::Plain,
        products: Products::Float,
    };

    pub(super) const INT8_KV: Self = Self { kv_dtype: KvDtype::Int8, ..Self::PLAIN };
    pub(super) const INTEGER: Self = Self { products: Products::Integer, ..Self::PLAIN };
    pub(super) const BOTH: Self = Self { products: Products::Both, ..Self::PLAIN };

    /// The prompt's length in a sequence of this many tokens. Where generated tokens are multiplied differently, the prompt ends in the
    /// middle of a page and of most chunks.
    pub(super) fn prompt_of(&self, tokens: usize) -> usize {
        if self.products == Products::Both { tokens * 3 / 10 + 1 } else { tokens }
    }

    pub(super) fn backend(&self, weights: Arc<dyn Weights>) -> CpuBackend {
        let options = CpuOptions {
            threads: self.threads,
            tp: self.tp,
            dtype: self.dtype,
            kv_dtype: self.kv_dtype,
            weights: self.weights,
            products: self.products,
            kv_pages: 128,
            max_step_tokens: 2048,
            max_slots: 16,
            isa: self.isa,
        };
        CpuBackend::from_weights(weights, options, &mut |_| {}).unwrap()
    }
}

/// One sequence: its tokens, its pages, and how much of it is computed.
pub(super) struct Sequence {
    pub(super) slot: SlotId,
    pub(super) tokens: Vec<TokenId>,
    /// The number of prompt tokens; the rest was generated.
    pub(super) prompt: usize,
    pub(super) pages: Vec<PageId>,
    pub(super) done: usize,
    /// Bits of the hidden states of all positions; empty where some were generated, as batches may be cut into halves then.
    pub(super) hidden: Vec<u32>,
    pub(super) sampled: Vec<TokenId>,
}

impl Sequence {
    /// `seed` chooses the tokens.
    pub(super) fn new(slot: u32, seed: usize, len: usize, vocab: usize, pages: impl Iterator<Item = u32>) -> Self {
        let tokens = (0..len).map(|i| TokenId(((i * 7919 + seed * 104_729 + i * i * 31) % vocab) as u32)).collect();
        let pages: Vec<PageId> = pages.take(len.div_ceil(PAGE_TOKENS) + 1).map(PageId).collect();
        Self { slot: SlotId(slot), tokens, prompt: len, pages, done: 0, hidden: Vec::new(), sampled: Vec::new() }
    }

    pub(super) fn with_prompt(self, prompt: usize) -> Self {
        Self { prompt, ..self }
    }

    pub(super) fn spec(&self) -> Arc<SamplerSpec> {
        Arc::new(SamplerSpec {
            params: SamplingParams::greedy(),
            choice: Choice(0),
            prompt: self.tokens[..self.prompt].into(),
            outputs: self.tokens[self.prompt..].to_vec(),
            min_tokens: 0,
            stop_tokens: Vec::new(),
            logprobs: None,
        })
    }

    /// Everything that must not depend on how it was computed.
    pub(super) fn result(&self, backend: &CpuBackend, layers: usize) -> (Vec<u32>, Vec<[u8; 32]>, Vec<TokenId>) {
        let pages = (0..self.done.div_ceil(PAGE_TOKENS)).map(|page| {
            backend.page_digest(self.pages[page], 0..layers, (self.done - page * PAGE_TOKENS).min(PAGE_TOKENS))
        });
        (self.hidden.clone(), pages.collect(), self.sampled.clone())
    }
}

/// Computes the next `count` tokens of each sequence in one step; samples where a sequence's tokens are used up.
pub(super) fn step(backend: &mut CpuBackend, batch: &mut [(&mut Sequence, usize)]) -> StepOutput {
    let mut plan = StepPlan::default();
    for (sequence, count) in batch.iter() {
        if sequence.done == 0 {
            plan.admitted.push((sequence.slot, sequence.spec()));
        }
        let inputs =
            sequence.tokens[sequence.done..sequence.done + count].iter().map(|&token| InputToken::Known(token));
        let first_token = plan.tokens.len();
        plan.tokens.extend(inputs);
        plan.change_table(sequence.slot, 0, sequence.pages.iter().copied());
        plan.segments.push(Segment {
            slot: sequence.slot,
            tokens: first_token..plan.tokens.len(),
            first_position: sequence.done,
            adapter: None,
            output: SegmentOutput {
                samples: (sequence.done + count == sequence.tokens.len()).into(),
                ..SegmentOutput::default()
            },
        });
    }
    let ticket = backend.submit(&plan).unwrap();
    let mut output = StepOutput::default();
    backend.collect(ticket, &mut output).unwrap();
    for (segment, (sequence, count)) in batch.iter_mut().enumerate() {
        sequence.done += *count;
        if sequence.prompt == sequence.tokens.len() {
            sequence.hidden.extend(backend.hidden_of_last_step(segment).into_iter().map(f32::to_bits));
        }
        let samples = output.samples.iter().filter(|sample| sample.slot == sequence.slot);
        sequence.sampled.extend(samples.map(|sample| sample.token.unwrap()));
    }
    output
}

/// Admits a sequence that begins with KV from another engine.
pub(super) fn admit(backend: &mut CpuBackend, sequence: &Sequence) {
    let plan = StepPlan { admitted: vec![(sequence.slot, sequence.spec())], ..StepPlan::default() };
    let ticket = backend.submit(&plan).unwrap();
    backend.collect(ticket, &mut StepOutput::default()).unwrap();
}

/// Runs one sequence alone, in chunks of `chunk` tokens.
pub(super) fn run_alone(backend: &mut CpuBackend, sequence: &mut Sequence, chunk: usize) {
    while sequence.done < sequence.tokens.len() {
        let count = chunk.min(sequence.tokens.len() - sequence.done);
        step(backend, &mut [(sequence, count)]);
    }
}

/// Logits of every position but the last, as log-probabilities of the whole vocabulary.
pub(super) fn distributions(backend: &mut CpuBackend, sequence: &Sequence, vocab: usize) -> Vec<TokenLogprobs> {
    let tokens = sequence.tokens.len();
    let plan = StepPlan {
        admitted: vec![(sequence.slot, sequence.spec())],
        segments: vec![Segment {
            slot: sequence.slot,
            tokens: 0..tokens,
            first_position: 0,
            adapter: None,
            output: SegmentOutput { prompt_logprobs: Some(vocab as u32), ..SegmentOutput::default() },
        }],
        tokens: sequence.tokens.iter().map(|&token| InputToken::Known(token)).collect(),
        tables: vec![TableChange { slot: sequence.slot, first: 0, pages: 0..sequence.pages.len() }],
        pages: sequence.pages.clone(),
        released: vec![sequence.slot],
    };
    let ticket = backend.submit(&plan).unwrap();
    let mut output = StepOutput::default();
    backend.collect(ticket, &mut output).unwrap();
    assert_eq!(output.prompt_logprobs.len(), tokens - 1);
    output.prompt_logprobs.into_iter().map(|prompt| prompt.logprobs).collect()
}
