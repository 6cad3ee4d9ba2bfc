//! Kernels beside the fastest that arithmetic and memory can be. A kernel must do its operations and move its bytes; whichever takes
//! longer at that speed is its floor, and floor / time is its share.

use std::time::Duration;

use baton_backend::BackendError;
use baton_cpu::{Phase, WeightForm};

use super::section::{Column, Section};
use crate::error::BenchError;
use crate::measure::{Ceilings, Cost, LargestStep, Norms, StepTime, Steps};

const COLUMNS: &[Column] = &[Column::plain("GFLOP/s"), Column::plain("GB/s"), Column::percent("share")];

const PROMPT: usize = 512;
const CONTEXT: usize = 1024;
const LIMITS: LargestStep = LargestStep { tokens: PROMPT, batch: 32, context: CONTEXT };
const HIDDEN: usize = 2048;
/// More than any cache holds.
const DRAM_BYTES: usize = 512 << 20;

const VECTORS: &str = "f32 multiply-add";
const TILES: &str = "bf16 tiles";
const DRAM: &str = "DRAM read";
const COPY: &str = "copy of 8 MiB";

pub(super) struct Kernels {
    /// With weights as an engine for prompts has them, and as one for decoding.
    prefill: Steps,
    decode: Steps,
    norms: Norms,
    ceilings: Ceilings,
    pub(super) section: Section,
}

/// Steps that are taken together, since one is over soon.
#[derive(Clone, Copy)]
enum Case {
    Prefill,
    Decode { batch: usize, steps: usize },
}

const CASES: [(&str, Case); 3] = [
    ("prefill 512", Case::Prefill),
    ("decode ×1", Case::Decode { batch: 1, steps: 6 }),
    ("decode ×32", Case::Decode { batch: 32, steps: 3 }),
];

/// What the machine does at best, a moment before the kernel that is compared with it.
struct Best {
    gflops_per_s: f64,
    arithmetic: &'static str,
    gbytes_per_s: f64,
    memory: &'static str,
}

impl Kernels {
    pub(super) fn new(threads: usize) -> Result<Self, BenchError> {
        let steps = |weights| Steps::random_layer(threads, LIMITS, weights).map_err(failed);
        let (prefill, decode) = (steps(WeightForm::Plain)?, steps(WeightForm::Compact)?);
        let title = format!(
            "kernels: one layer of a 1B Llama in bf16 (decode: in 12 bits), {CONTEXT} tokens of context; {}, {threads} threads",
            prefill.isa()
        );
        let mut kernels = Self {
            prefill,
            decode,
            norms: Norms::new(threads, PROMPT, HIDDEN).map_err(failed)?,
            ceilings: Ceilings::new(threads, None, DRAM_BYTES).map_err(failed)?,
            section: Section::new("kernels", String::new(), COLUMNS),
        };
        // The first round meets buffers that were never touched.
        kernels.round()?;
        kernels.section = Section::new("kernels", title, COLUMNS);
        Ok(kernels)
    }

    pub(super) fn round(&mut self) -> Result<(), BenchError> {
        self.measure().map_err(failed)
    }

    fn measure(&mut self) -> Result<(), BackendError> {
        for (name, case) in CASES {
            match case {
                Case::Prefill => {
                    let best = self.best()?;
                    let step = self.prefill.prefill(PROMPT)?;
                    self.add_steps(name, &[(step, best)]);
                }
                Case::Decode { batch, steps } => {
                    let mut taken = Vec::new();
                    for _ in 0..steps {
                        // Reads what no cache holds, so the weights are in none afterwards: as in a model of many layers.
                        let best = self.best()?;
                        taken.push((self.decode.decode(batch, CONTEXT)?, best));
                    }
                    self.add_steps(name, &taken);
                }
            }
        }
        let (vectors, copy) = (self.ceilings.fma_gflops()?, self.ceilings.copy_gbytes_per_s(self.norms.bytes())?);
        self.section.add(&ceiling(COPY), &[None, Some(copy), None]);
        let (time, work) = self.norms.run()?;
        let best = Best { gflops_per_s: vectors, arithmetic: VECTORS, gbytes_per_s: copy, memory: COPY };
        self.add("RMSNorm of 512 rows", [(time, work, &best)].into_iter());
        Ok(())
    }

    fn best(&mut self) -> Result<Best, BackendError> {
        let (vectors, tiles) = (self.ceilings.fma_gflops()?, self.ceilings.tile_gflops()?);
        let read = self.ceilings.read_gbytes_per_s(DRAM_BYTES)?;
        self.section.add(&ceiling(VECTORS), &[Some(vectors), None, None]);
        if tiles.is_some() {
            self.section.add(&ceiling(TILES), &[tiles, None, None]);
        }
        self.section.add(&ceiling(DRAM), &[None, Some(read), None]);
        let (gflops_per_s, arithmetic) = tiles.map_or((vectors, VECTORS), |tiles| (tiles, TILES));
        Ok(Best { gflops_per_s, arithmetic, gbytes_per_s: read, memory: DRAM })
    }

    /// Of several steps, the sum of their times beside the sum of their floors.
    fn add_steps(&mut self, case: &str, steps: &[(StepTime, Best)]) {
        let Some((first, _)) = steps.first() else { return };
        // One row of a head is no work.
        let phases = first.phases().filter(|(phase, ..)| steps.len() > 1 || *phase != Phase::Logits);
        for (phase, ..) in phases {
            let parts = steps.iter().filter_map(|(step, best)| {
                step.phases().find(|(other, ..)| other == phase).map(|&(_, time, work)| (time, work, best))
            });
            self.add(&format!("{case}: {}", name(*phase)), parts);
        }
        let whole = steps.iter().map(|(step, best)| (step.whole, step.work(), best));
        self.add(&format!("{case}: whole step"), whole);
    }

    fn add<'a>(&mut self, row: &str, parts: impl Iterator<Item = (Duration, Cost, &'a Best)>) {
        let (mut time, mut work, mut arithmetic_s, mut memory_s) = (Duration::ZERO, Cost::default(), 0.0, 0.0);
        let mut names = (VECTORS, DRAM);
        for (part_time, part, best) in parts {
            time += part_time;
            work = [work, part].into_iter().sum();
            arithmetic_s += part.flops / best.gflops_per_s / 1e9;
            memory_s += part.bytes / best.gbytes_per_s / 1e9;
            names = (best.arithmetic, best.memory);
        }
        let share = arithmetic_s.max(memory_s) / time.as_secs_f64();
        self.section.add(row, &[Some(work.gflops_per_s(time)), Some(work.gbytes_per_s(time)), Some(share)]);
        self.section.share_of(row, if arithmetic_s > memory_s { names.0 } else { names.1 });
    }
}

fn ceiling(name: &str) -> String {
    format!("ceiling: {name}")
}

fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::Embed => "embed",
        Phase::Qkv => "GEMM q, k, v",
        Phase::StoreKv => "store KV",
        Phase::Attention => "attention",
        Phase::Output => "GEMM o",
        Phase::GateUp => "GEMM gate, up",
        Phase::Down => "GEMM down",
        Phase::Logits => "GEMM logits",
    }
}

fn failed(error: BackendError) -> BenchError {
    BenchError::System(error.to_string())
}
