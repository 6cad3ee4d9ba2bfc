//! Speed of a model on this machine, as shares of what the machine could do at the same moment:
//!
//! ```text
//! cargo run --release -p baton-compute --example measure -- [MODEL] [THREADS] [ROUNDS] [TP]
//! ```
//!
//! Everything is measured once per round, rounds follow each other, and medians and ranges over the rounds are printed: on
//! a shared machine nothing else can be compared.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use baton_compute::{
    Backend, Ceilings, CpuBackend, CpuOptions, InputToken, SamplerSpec, Segment, SegmentOutput, SlotId, StepOutput,
    StepPlan, StorageDtype,
};
use baton_core::{Choice, PAGE_TOKENS, PageId, SamplingParams, TokenId};
use baton_model::{DEFAULT_MODEL, DecoderSpec, Dtype, Model, ModelSource};

const PREFILL_TOKENS: usize = 512;
const DECODE_CONTEXT: usize = 128;
const DECODE_STEPS: usize = 32;
const BATCHES: [usize; 3] = [1, 8, 32];
const DRAM_BYTES: usize = 512 << 20;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| DEFAULT_MODEL.to_owned());
    let threads = arguments.next().map_or(Ok(2), |n| n.parse()).context("THREADS")?;
    let rounds: usize = arguments.next().map_or(Ok(7), |n| n.parse()).context("ROUNDS")?;
    let tp = arguments.next().map_or(Ok(1), |n| n.parse()).context("TP")?;
    let model = Arc::new(Model::open(&ModelSource::resolve(&name)?)?);
    let work = Work::of(&model.spec);
    let pages = BATCHES.iter().max().unwrap_or(&1) * (DECODE_CONTEXT + DECODE_STEPS).div_ceil(PAGE_TOKENS);
    let options = CpuOptions {
        threads,
        tp,
        dtype: StorageDtype::Auto,
        kv_pages: pages.max(PREFILL_TOKENS / PAGE_TOKENS),
        max_step_tokens: PREFILL_TOKENS,
        max_slots: 64,
        isa: None,
    };
    let mut backend = CpuBackend::load(Arc::clone(&model), options, &mut |_| {})?;
    let mut ceilings = Ceilings::new(threads, None, DRAM_BYTES)?;
    println!("{name}: {:.1} MB of weights, {threads} threads, {}", work.weight_bytes / 1e6, backend.isa());

    let mut table = Table::default();
    for _ in 0..rounds {
        let peak = ceilings.fma_gflops()?;
        let dram = ceilings.read_gbytes_per_s(DRAM_BYTES)?;
        let near = ceilings.read_gbytes_per_s(work.weight_bytes as usize)?;
        table.add("f32 FMA peak, GFLOP/s", peak);
        table.add("DRAM read, GB/s", dram);
        table.add("read of as much as the weights, GB/s", near);
        let seconds = prefill(&mut backend)?;
        let gflops = work.prefill_flops(PREFILL_TOKENS) / seconds / 1e9;
        table.add("prefill 512, tok/s", PREFILL_TOKENS as f64 / seconds);
        table.add("prefill 512, GFLOP/s", gflops);
        table.add("prefill 512, % of the FMA peak", 100.0 * gflops / peak);
        for batch in BATCHES {
            let seconds = decode(&mut backend, batch)?;
            let floor = work.decode_floor_seconds(batch, peak, near);
            table.add(&format!("decode, batch {batch}, tok/s"), batch as f64 / seconds);
            table.add(&format!("decode, batch {batch}, % of the floor"), 100.0 * floor / seconds);
        }
    }
    table.print();
    Ok(())
}

/// What must be computed and read.
struct Work {
    layer_flops: f64,
    head_flops: f64,
    attention_flops_per_token_seen: f64,
    weight_bytes: f64,
    kv_bytes_per_token: f64,
}

impl Work {
    fn of(spec: &DecoderSpec) -> Self {
        let (q, kv) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
        let layer = spec.layers * spec.hidden * (2 * q + 2 * kv + 3 * spec.ffn);
        let head = spec.vocab * spec.hidden;
        let bytes = if spec.dtype == Dtype::F32 { 4 } else { 2 };
        Self {
            layer_flops: 2.0 * layer as f64,
            head_flops: 2.0 * head as f64,
            attention_flops_per_token_seen: 4.0 * (spec.layers * q) as f64,
            weight_bytes: (bytes * (layer + head)) as f64,
            kv_bytes_per_token: (2 * bytes * spec.layers * kv) as f64,
        }
    }

    fn prefill_flops(&self, tokens: usize) -> f64 {
        let seen = (tokens * (tokens + 1) / 2) as f64;
        tokens as f64 * self.layer_flops + self.head_flops + seen * self.attention_flops_per_token_seen
    }

    /// All weights and KV are read once, or all operations done, whichever takes longer.
    fn decode_floor_seconds(&self, batch: usize, peak_gflops: f64, read_gbytes: f64) -> f64 {
        let (batch, seen) = (batch as f64, (DECODE_CONTEXT + DECODE_STEPS / 2) as f64);
        let bytes = self.weight_bytes + batch * seen * self.kv_bytes_per_token;
        let flops = batch * (self.layer_flops + self.head_flops + seen * self.attention_flops_per_token_seen);
        (bytes / read_gbytes).max(flops / peak_gflops) / 1e9
    }
}

fn prefill(backend: &mut CpuBackend) -> Result<f64> {
    let mut plan = StepPlan::default();
    add(&mut plan, 0, 0, PREFILL_TOKENS, true);
    let started = Instant::now();
    run(backend, &plan)?;
    let seconds = started.elapsed().as_secs_f64();
    release(backend, 1)?;
    Ok(seconds)
}

/// Seconds of one step, the mean of [`DECODE_STEPS`].
fn decode(backend: &mut CpuBackend, batch: usize) -> Result<f64> {
    for slot in 0..batch {
        let mut plan = StepPlan::default();
        add(&mut plan, slot, 0, DECODE_CONTEXT, true);
        run(backend, &plan)?;
    }
    let mut plan = StepPlan::default();
    let started = Instant::now();
    for step in 0..DECODE_STEPS {
        plan.segments.clear();
        plan.tokens.clear();
        plan.pages.clear();
        for slot in 0..batch {
            add(&mut plan, slot, DECODE_CONTEXT + step, 1, false);
        }
        run(backend, &plan)?;
    }
    let seconds = started.elapsed().as_secs_f64() / DECODE_STEPS as f64;
    release(backend, batch)?;
    Ok(seconds)
}

fn add(plan: &mut StepPlan, slot: usize, first_position: usize, tokens: usize, admit: bool) {
    let pages_each = (DECODE_CONTEXT + DECODE_STEPS).div_ceil(PAGE_TOKENS);
    let (first_token, first_page) = (plan.tokens.len(), plan.pages.len());
    plan.tokens
        .extend((0..tokens).map(|i| InputToken::Known(TokenId(((slot + first_position + i) * 7 % 1000) as u32))));
    let pages = (first_position + tokens).div_ceil(PAGE_TOKENS);
    plan.pages.extend((0..pages).map(|page| PageId((slot * pages_each + page) as u32)));
    let slot = SlotId(slot as u32);
    if admit {
        let spec = SamplerSpec {
            params: SamplingParams::greedy(),
            choice: Choice(0),
            prompt: Arc::from([]),
            outputs: Vec::new(),
            min_tokens: 0,
            stop_tokens: Vec::new(),
            logprobs: None,
        };
        plan.admitted.push((slot, Arc::new(spec)));
    }
    plan.segments.push(Segment {
        slot,
        tokens: first_token..plan.tokens.len(),
        first_position,
        pages: first_page..plan.pages.len(),
        output: SegmentOutput { sample: true, prompt_logprobs: None },
    });
}

fn release(backend: &mut CpuBackend, slots: usize) -> Result<()> {
    let released = (0..slots as u32).map(SlotId).collect();
    run(backend, &StepPlan { released, ..StepPlan::default() })
}

fn run(backend: &mut CpuBackend, plan: &StepPlan) -> Result<()> {
    let ticket = backend.submit(plan)?;
    Ok(backend.collect(ticket, &mut StepOutput::default())?)
}

/// Values of all rounds by what they are, in the order of their first round.
#[derive(Default)]
struct Table {
    rows: Vec<(String, Vec<f64>)>,
}

impl Table {
    fn add(&mut self, name: &str, value: f64) {
        match self.rows.iter_mut().find(|(row, _)| row == name) {
            Some((_, values)) => values.push(value),
            None => self.rows.push((name.to_owned(), vec![value])),
        }
    }

    fn print(&mut self) {
        println!("{:<40} {:>10}   range", "", "median");
        for (name, values) in &mut self.rows {
            values.sort_by(f64::total_cmp);
            let (least, most) = (values[0], values[values.len() - 1]);
            println!("{name:<40} {:>10.1}   {least:.1} – {most:.1}", values[values.len() / 2]);
        }
    }
}
