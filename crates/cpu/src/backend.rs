//! The CPU backend. A [`StepPlan`] is checked and resolved into a [`Batch`], runs through the decoder's layers on a team of
//! threads, and its wanted rows are sampled by the same team.
//!
//! Results are exact by construction: every sum has one order, fixed by the model's shape and a token's position. Number of
//! threads, number of shards, instruction set, batch and chunks cannot change a bit.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use baton_core::{Guarantee, Numerics, PAGE_TOKENS, PageId, ShardCounters};
use baton_fabric::{KvMemory, LayerCounter};
use baton_model::{DecoderSpec, Model, Part, TensorFile, TensorView};
use half::bf16;

use crate::batch::{Batch, BatchHalves};
use crate::layers::decoder::{Decode, Decoder, DecoderSizes, Layers, PhaseClock, Watchers};
use crate::matmul::quant::TokenMatmuls;
use crate::options::{CpuOptions, Storage};
use crate::sampling::{RowResult, Sampling, write_output};
use crate::shards::Shards;
use crate::simd::isa::Isa;
use crate::slots::Slots;
use crate::threads::team::Team;
use crate::weights::{Progress, Weights};
use baton_backend::SampleScratch;
use baton_backend::{Backend, BackendError, BackendSpec, StepOutput, StepPlan, Ticket};

pub struct CpuBackend {
    spec: BackendSpec,
    isa: Isa,
    pub(crate) decoder: Box<dyn Decode>,
    slots: Slots,
    products: TokenMatmuls,
    batch: Batch,
    halves: BatchHalves,
    results: Vec<RowResult>,
    scratch: Vec<SampleScratch>,
    layers_done: LayerCounter,
    /// The core that the submitting thread is pinned to with its first step.
    submitter_cpu: Option<usize>,
    submitted: u64,
    /// Outputs of steps that were not collected yet, oldest first.
    done: VecDeque<(u64, StepOutput)>,
    /// Buffers for the outputs of later steps.
    spare: Vec<StepOutput>,
}

impl Weights for Model {
    fn spec(&self) -> &DecoderSpec {
        &self.spec
    }

    fn tensor(&self, part: Part) -> Result<TensorView<'_>, String> {
        Self::tensor(self, part).map_err(|error| error.to_string())
    }

    fn tensor_file(&self, part: Part) -> Result<Option<TensorFile>, String> {
        Self::tensor_file(self, part).map_err(|error| error.to_string())
    }

    fn weights_id(&self) -> String {
        Self::weights_id(self).to_owned()
    }
}

impl CpuBackend {
    /// Packs the weights. Afterwards only the file of the token embeddings stays open.
    pub fn load(
        model: Arc<Model>,
        options: CpuOptions,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, BackendError> {
        Self::from_weights(model, options, progress)
    }

    /// Like [`Self::load`], for weights from anywhere.
    pub fn from_weights(
        weights: Arc<dyn Weights>,
        options: CpuOptions,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, BackendError> {
        let spec = weights.spec().clone();
        check(&spec, &options)?;
        let isa = Isa::choose(options.isa)?;
        let shards = Shards::new(&spec, options.tp)?;
        let team = Team::with_shards(options.threads, shards.count)?;
        let threads = team.size();
        let context = spec.max_context.min(options.kv_pages.saturating_mul(PAGE_TOKENS));
        let sizes = DecoderSizes {
            pages: options.kv_pages,
            context,
            max_rows: options.max_step_tokens,
            weights: options.weights,
        };
        let weights_id = weights.weights_id();
        let storage = Storage::decide(&spec, options.dtype, options.kv_dtype)
            .ok_or_else(|| BackendError::Load("weights stored as f32 have KV in f32, and no other".to_owned()))?;
        let decoder: Box<dyn Decode> = match storage {
            Storage::F32 => Box::new(Decoder::<f32, f32>::load(&weights, isa, shards, team, &sizes, progress)?),
            Storage::Bf16 => Box::new(Decoder::<bf16, bf16>::load(&weights, isa, shards, team, &sizes, progress)?),
            Storage::Bf16WithInt8Kv => {
                Box::new(Decoder::<bf16, i8>::load(&weights, isa, shards, team, &sizes, progress)?)
            }
        };
        let products = decoder.products(options.products.of_tokens());
        let guarantee = if products == Some(TokenMatmuls::Both) { Guarantee::ByOrigin } else { Guarantee::ByToken };
        let layers_done = LayerCounter::with_pieces(decoder.team().progress());
        Ok(Self {
            spec: BackendSpec {
                device: format!("cpu {isa:?}").to_lowercase(),
                numerics: Numerics { id: format!("{weights_id}-{}", decoder.numerics(products)), guarantee },
                vocab_size: spec.vocab,
                max_context_tokens: context,
                pages_total: options.kv_pages,
                max_step_tokens: options.max_step_tokens,
                max_slots: options.max_slots,
                steps_in_flight: 1,
                tokens_per_step: 1,
                batch_buckets: Vec::new(),
                poolings: Vec::new(),
                adapters: Vec::new(),
                threads,
            },
            isa,
            decoder,
            slots: Slots::new(options.max_slots, options.kv_pages, spec.vocab),
            // Without quantized weights the choice has no effect.
            products: products.unwrap_or(TokenMatmuls::Float),
            batch: Batch::default(),
            halves: BatchHalves::default(),
            results: Vec::new(),
            scratch: std::iter::repeat_with(SampleScratch::default).take(threads).collect(),
            layers_done,
            submitter_cpu: None,
            submitted: 0,
            done: VecDeque::new(),
            spare: Vec::new(),
        })
    }

    /// Pins each thread to one of these cores, and the thread that submits steps to the first.
    pub fn pin(&mut self, cpus: &[usize]) -> Result<(), BackendError> {
        self.decoder.team().pin(cpus)?;
        self.submitter_cpu = cpus.first().copied();
        Ok(())
    }

    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Runs a whole step; its output waits to be collected.
    pub(crate) fn run_step(&mut self, plan: &StepPlan, clock: Option<&PhaseClock>) -> Result<Ticket, BackendError> {
        self.slots.admit(plan)?;
        self.batch.resolve(plan, &self.slots, &self.spec)?;
        let mut output = self.spare.pop().unwrap_or_default();
        output.clear();
        if !self.batch.rows.is_empty() {
            let (slots, results, scratch) = (&mut self.slots, &mut self.results, &mut self.scratch);
            let sampling = Sampling::new(&self.batch, slots, results, scratch, &self.layers_done);
            let (first, (last, products)) = self.halves.cut(&self.batch, self.products);
            if let Some((batch, products)) = first {
                let watchers = Watchers { layers: Layers::NotFinal(&self.layers_done), clock: None };
                self.decoder.step(batch, products, &sampling, watchers)?;
            }
            // A layer is done when the rows of both halves have passed it.
            let watchers = Watchers { layers: Layers::Final(&self.layers_done), clock };
            self.decoder.step(last, products, &sampling, watchers)?;
            write_output(&self.batch, &mut self.results, &mut output);
        }
        self.slots.release(plan)?;
        self.submitted += 1;
        self.done.push_back((self.submitted, output));
        Ok(Ticket::new(self.submitted))
    }

    /// Digest of a page's first `tokens` tokens in canonical order, which is equal wherever and however they were computed.
    pub fn page_digest(&self, page: PageId, layers: Range<usize>, tokens: usize) -> [u8; 32] {
        let mut bytes = Vec::new();
        self.decoder.export(page, layers, tokens, &mut bytes);
        *blake3::hash(&bytes).as_bytes()
    }

    /// The residual stream after the last layer, row by row, of a segment of the last step, which was not cut into halves.
    pub fn hidden_of_last_step(&self, segment: usize) -> Vec<f32> {
        let rows = self.batch.segments.get(segment).map_or(0..0, |segment| segment.rows.clone());
        rows.flat_map(|row| self.decoder.hidden(row)).copied().collect()
    }
}

fn check(spec: &DecoderSpec, options: &CpuOptions) -> Result<(), BackendError> {
    let problem = if spec.head_dim == 0 || !spec.head_dim.is_multiple_of(2) {
        format!("a head dimension of {} cannot be rotated in pairs", spec.head_dim)
    } else if spec.kv_heads == 0 || !spec.heads.is_multiple_of(spec.kv_heads) {
        format!("{} heads cannot share {} KV heads", spec.heads, spec.kv_heads)
    } else if options.kv_pages == 0 || options.max_step_tokens == 0 || options.max_slots == 0 {
        "pages, step tokens and slots must be at least 1".to_owned()
    } else {
        return Ok(());
    };
    Err(BackendError::Load(problem))
}

impl Backend for CpuBackend {
    fn spec(&self) -> &BackendSpec {
        &self.spec
    }

    fn submit(&mut self, plan: &StepPlan) -> Result<Ticket, BackendError> {
        if let Some(cpu) = self.submitter_cpu.take() {
            crate::threads::pinning::pin_this_thread(cpu)?;
        }
        self.run_step(plan, None)
    }

    fn collect(&mut self, ticket: Ticket, output: &mut StepOutput) -> Result<(), BackendError> {
        match self.done.pop_front() {
            Some((number, result)) if ticket.step() == number => {
                self.spare.push(std::mem::replace(output, result));
                Ok(())
            }
            _ => Err(BackendError::Contract("steps are collected in the order of their submission".to_owned())),
        }
    }

    fn layers_done(&self) -> LayerCounter {
        self.layers_done.clone()
    }

    fn count_shards(&self, shards: &mut Vec<ShardCounters>) {
        let gathered = self.decoder.gathered_bytes();
        shards.resize(gathered.len(), ShardCounters::default());
        for (shard, bytes) in shards.iter_mut().zip(gathered) {
            shard.gathered_bytes += bytes;
        }
    }

    fn kv_memory(&self) -> Option<Arc<dyn KvMemory>> {
        Some(Arc::clone(self.decoder.kv_memory()) as _)
    }
}
