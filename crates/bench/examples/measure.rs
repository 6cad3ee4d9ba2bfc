//! Speed of a model on this machine, as shares of what the machine could do at the same moment:
//!
//! ```text
//! cargo run --release -p baton-bench --example measure -- [MODEL] [THREADS] [ROUNDS] [TP] [plain|compact|float|integer]…
//! ```
//!
//! Everything is measured once per round, rounds follow each other, and medians and ranges over the rounds are printed: on
//! a shared machine nothing else can be compared.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use baton_bench::measure::{Ceilings, LargestStep, StepTime, Steps};
use baton_cpu::{Products, WeightForm};
use baton_model::{DEFAULT_MODEL, Model, ModelSource};

const PREFILL_TOKENS: usize = 512;
const DECODE_CONTEXT: usize = 144;
const DECODE_STEPS: u32 = 32;
const BATCHES: [usize; 3] = [1, 8, 32];
const DRAM_BYTES: usize = 512 << 20;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| DEFAULT_MODEL.to_owned());
    let threads = arguments.next().map_or(Ok(2), |n| n.parse()).context("THREADS")?;
    let rounds: usize = arguments.next().map_or(Ok(7), |n| n.parse()).context("ROUNDS")?;
    let tp = arguments.next().map_or(Ok(1), |n| n.parse()).context("TP")?;
    let (mut weights, mut products) = (WeightForm::Auto, Products::Auto);
    for word in arguments {
        match word.as_str() {
            "plain" => weights = WeightForm::Plain,
            "compact" => weights = WeightForm::Compact,
            "float" => products = Products::Float,
            "integer" => products = Products::Integer,
            "both" => products = Products::Both,
            other => bail!("{other:?} is neither plain nor compact, float, integer nor both"),
        }
    }
    let model = Arc::new(Model::open(&ModelSource::resolve(&name)?)?);
    let limits = LargestStep { tokens: PREFILL_TOKENS, batch: 32, context: DECODE_CONTEXT };
    let mut steps = Steps::model(model, threads, tp, limits, weights, products)?;
    let mut ceilings = Ceilings::new(threads, None, DRAM_BYTES)?;
    println!("{name}: {:.1} MB of weights, {threads} threads, {}", steps.weight_bytes() / 1e6, steps.isa());

    let mut table = Table::default();
    for _ in 0..rounds {
        let peak = ceilings.fma_gflops()?;
        let near = ceilings.read_gbytes_per_s(steps.weight_bytes() as usize)?;
        table.add("f32 FMA peak, GFLOP/s", peak);
        let tiles = ceilings.tile_gflops()?;
        if let Some(tiles) = tiles {
            table.add("bf16 tile peak, GFLOP/s", tiles);
        }
        let peak = tiles.unwrap_or(peak);
        table.add("DRAM read, GB/s", ceilings.read_gbytes_per_s(DRAM_BYTES)?);
        table.add("read of as much as the weights, GB/s", near);
        let prefill = steps.prefill(PREFILL_TOKENS)?;
        let gflops = prefill.work().gflops_per_s(prefill.whole);
        table.add("prefill 512, tok/s", PREFILL_TOKENS as f64 / prefill.whole.as_secs_f64());
        table.add("prefill 512, GFLOP/s", gflops);
        table.add("prefill 512, % of the peak", 100.0 * gflops / peak);
        table.add_phases("prefill 512", &prefill);
        for batch in BATCHES {
            let (seconds, step) = decode(&mut steps, batch)?;
            // All weights and KV are read once, or all operations done, whichever takes longer.
            let floor = (step.work().bytes / near).max(step.work().flops / peak) / 1e9;
            table.add(&format!("decode, batch {batch}, tok/s"), batch as f64 / seconds);
            table.add(&format!("decode, batch {batch}, % of the floor"), 100.0 * floor / seconds);
            table.add_phases(&format!("decode, batch {batch}"), &step);
        }
    }
    table.print();
    Ok(())
}

/// Seconds of one step, the mean of [`DECODE_STEPS`]; and one of them.
fn decode(steps: &mut Steps, batch: usize) -> Result<(f64, StepTime)> {
    let mut last = steps.decode(batch, DECODE_CONTEXT)?;
    let mut whole = last.whole;
    for _ in 1..DECODE_STEPS {
        last = steps.decode(batch, DECODE_CONTEXT)?;
        whole += last.whole;
    }
    Ok(((whole / DECODE_STEPS).as_secs_f64(), last))
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

    fn add_phases(&mut self, name: &str, step: &StepTime) {
        for (phase, time, _) in step.phases() {
            let share = 100.0 * time.as_secs_f64() / step.whole.as_secs_f64();
            self.add(&format!("{name}, {phase:?}, % of the step"), share);
        }
    }

    fn print(&mut self) {
        println!("{:<44} {:>10}   range", "", "median");
        for (name, values) in &mut self.rows {
            values.sort_by(f64::total_cmp);
            let (least, most) = (values[0], values[values.len() - 1]);
            println!("{name:<44} {:>10.1}   {least:.1} – {most:.1}", values[values.len() / 2]);
        }
    }
}
