//! Log-probabilities of the whole vocabulary after each token of a text, for scripts/compare_logits.py:
//!
//! ```text
//! cargo run --release -p baton-cpu --example logprobs -- \
//!     MODEL [auto|bf16|f32 [auto|bf16|int8 [auto|float|integer|both [PROMPT_TOKENS]]]] < tokens > logprobs
//! ```
//!
//! Tokens arrive as little-endian u32; a row of the vocabulary leaves for each but the last, as little-endian f32. The first
//! PROMPT_TOKENS of them, or all, are a prompt; the others count as generated, and are computed one by one.

use std::io::{self, BufWriter, Read, Write};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use baton_backend::{
    Backend, InputToken, SamplerSpec, Segment, SegmentOutput, SlotId, StepOutput, StepPlan, TableChange,
};
use baton_core::{Choice, PAGE_TOKENS, PageId, SamplingParams, TokenId};
use baton_cpu::{CpuBackend, CpuOptions, KvDtype, Products, StorageDtype, WeightForm};
use baton_model::{Model, ModelSource};

/// Positions whose whole distributions are held in memory.
const STEP_TOKENS: usize = 64;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().context("MODEL")?;
    let dtype = match arguments.next().as_deref() {
        None | Some("auto") => StorageDtype::Auto,
        Some("bf16") => StorageDtype::Bf16,
        Some("f32") => StorageDtype::F32,
        Some(other) => bail!("{other} is none of auto, bf16 and f32"),
    };
    let kv_dtype = match arguments.next().as_deref() {
        None | Some("auto") => KvDtype::Auto,
        Some("bf16") => KvDtype::Bf16,
        Some("int8") => KvDtype::Int8,
        Some(other) => bail!("{other} is none of auto, bf16 and int8"),
    };
    let products = match arguments.next().as_deref() {
        None | Some("auto") => Products::Auto,
        Some("float") => Products::Float,
        Some("integer") => Products::Integer,
        Some("both") => Products::Both,
        Some(other) => bail!("{other} is none of auto, float, integer and both"),
    };
    let prompt_tokens = arguments.next().map(|count| count.parse().context("PROMPT_TOKENS")).transpose()?;
    let mut bytes = Vec::new();
    io::stdin().read_to_end(&mut bytes)?;
    let tokens: Vec<_> = bytes.as_chunks().0.iter().map(|word| TokenId(u32::from_le_bytes(*word))).collect();
    let model = Model::open(&ModelSource::resolve(&name)?)?;
    let (prompt, generated) = tokens.split_at(prompt_tokens.unwrap_or(tokens.len()).min(tokens.len()));
    write_logprobs(model, (dtype, kv_dtype, products), (prompt, generated), BufWriter::new(io::stdout().lock()))
}

fn write_logprobs(
    model: Model,
    (dtype, kv_dtype, products): (StorageDtype, KvDtype, Products),
    (prompt, generated): (&[TokenId], &[TokenId]),
    mut out: impl Write,
) -> Result<()> {
    let vocab = model.spec.vocab;
    let pages = (prompt.len() + generated.len()).div_ceil(PAGE_TOKENS);
    let options = CpuOptions {
        threads: 2,
        tp: 1,
        dtype,
        kv_dtype,
        weights: WeightForm::Auto,
        products,
        kv_pages: pages,
        max_step_tokens: STEP_TOKENS,
        max_slots: 1,
        isa: None,
    };
    let mut backend = CpuBackend::load(Arc::new(model), options, &mut |_| {})?;
    let slot = SlotId(0);
    let sampler = SamplerSpec {
        params: SamplingParams::greedy(),
        choice: Choice(0),
        prompt: Arc::from(prompt),
        outputs: Vec::new(),
        min_tokens: 0,
        stop_tokens: Vec::new(),
        logprobs: Some(vocab as u32),
    };
    let mut admitted = vec![(slot, Arc::new(sampler))];
    let mut output = StepOutput::default();
    let mut row = vec![0.0_f32; vocab];
    let mut first_position = 0;
    // What follows the last token is not compared.
    let followed = generated.split_last().map_or(generated, |(_, followed)| followed);
    for step in prompt.chunks(STEP_TOKENS).chain(followed.chunks(1)) {
        let end = first_position + step.len();
        let prompt_logprobs = (end <= prompt.len()).then_some(vocab as u32);
        let sample = end >= prompt.len() && !generated.is_empty();
        let plan = StepPlan {
            admitted: std::mem::take(&mut admitted),
            segments: vec![Segment {
                slot,
                tokens: 0..step.len(),
                first_position,
                adapter: None,
                output: SegmentOutput { samples: sample.into(), prompt_logprobs, ..SegmentOutput::default() },
            }],
            tokens: step.iter().map(|token| InputToken::Known(*token)).collect(),
            tables: vec![TableChange { slot, first: 0, pages: 0..pages }],
            pages: (0..pages as u32).map(PageId).collect(),
            released: Vec::new(),
        };
        let ticket = backend.submit(&plan)?;
        backend.collect(ticket, &mut output)?;
        let of_prompt = output.prompt_logprobs.iter().map(|position| &position.logprobs);
        for logprobs in of_prompt.chain(output.samples.iter().filter_map(|sample| sample.logprobs.as_ref())) {
            logprobs.top.iter().for_each(|candidate| row[candidate.token.index()] = candidate.logprob);
            for logprob in &row {
                out.write_all(&logprob.to_le_bytes())?;
            }
        }
        first_position = end;
    }
    Ok(out.flush()?)
}
