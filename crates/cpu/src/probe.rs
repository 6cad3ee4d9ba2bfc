//! What benchmarks need of this crate: loops that nothing but arithmetic or memory bounds, single kernels, and steps whose phases
//! are timed. It computes nothing that an engine serves.

#[cfg(target_arch = "x86_64")]
mod tiles;

use baton_backend::{BackendError, StepPlan, Ticket};

pub use crate::layers::decoder::PhaseClock;
pub use crate::weights::Phase;

use crate::CpuBackend;
use crate::matmul::norm::RmsNorm;
use crate::simd::isa::Isa;
use crate::simd::vector::{Kernel, LANES, Lanes};

/// Loops that run on the calling thread, with an instruction set that this machine has.
#[derive(Clone, Copy)]
pub struct Probe {
    isa: Isa,
}

impl Probe {
    /// With the instruction set that a backend with the same option would use.
    pub fn new(isa: Option<Isa>) -> Result<Self, BackendError> {
        Ok(Self { isa: Isa::choose(isa)? })
    }

    /// Multiplies and adds in registers; returns the number of operations (a multiply-add is two).
    pub fn multiply_add(self, rounds: usize) -> usize {
        self.isa.run(MultiplyAdd { rounds })
    }

    /// Multiplies tiles of bf16 in registers; returns the number of operations, or `None` where there are no tiles.
    pub fn multiply_tiles(self, rounds: usize) -> Option<usize> {
        #[cfg(target_arch = "x86_64")]
        return tiles::multiply(rounds);
        #[cfg(not(target_arch = "x86_64"))]
        None
    }

    /// Reads all values, as fast as loads go; returns the number of bytes.
    pub fn read(self, values: &[f32]) -> usize {
        self.isa.run(Read { values })
    }

    /// Writes to `to` the RMSNorm of each row of `from`. A row has as many values as `weight`, a multiple of 16.
    pub fn rms_norm(self, weight: &[f32], from: &[f32], to: &mut [f32]) {
        assert!(from.len() == to.len() && from.len().is_multiple_of(weight.len()));
        self.isa.run(NormRows { norm: RmsNorm { weight, hidden: weight.len(), eps: 1e-5 }, from, to });
    }
}

impl CpuBackend {
    /// [`submit`](baton_backend::Backend::submit), with the end of each phase noted on the clock.
    pub fn submit_timed(&mut self, plan: &StepPlan, clock: &PhaseClock) -> Result<Ticket, BackendError> {
        self.run_step(plan, Some(clock))
    }

    /// The memory of the weights that a phase reads in all layers.
    pub fn weight_bytes(&self, phase: Phase) -> usize {
        self.decoder.weight_bytes(phase)
    }

    /// Writes small numbers to all of the KV memory. What was never written is one page of zeros, which every cache holds.
    pub fn fill_kv(&mut self) {
        /// Makes a small number in all element types: about 0.005 in bf16.
        const BYTE: u8 = 0x3b;
        for shard in self.decoder.kv_memory().shards() {
            let region = &shard.region;
            // SAFETY: all of a mapped region; the backend is borrowed exclusively, so no step runs.
            unsafe { region.base().as_ptr().write_bytes(BYTE, region.bytes()) };
        }
    }
}

struct MultiplyAdd {
    rounds: usize,
}

impl Kernel for MultiplyAdd {
    /// Floating-point operations.
    type Output = usize;

    #[inline(always)]
    fn run<L: Lanes>(self) -> usize {
        // Independent chains, enough to hide the latency of one.
        const MOST: usize = 24;
        let chains = L::ACCUMULATORS.min(MOST);
        let half = L::splat(std::hint::black_box(0.5));
        let mut sums = [half; MOST];
        for _ in 0..self.rounds {
            for sum in sums.iter_mut().take(chains) {
                *sum = sum.fma(half, half);
            }
        }
        for sum in sums {
            std::hint::black_box(sum.to_array());
        }
        self.rounds * chains * LANES * 2
    }
}

/// Floats that one round of the read loop takes.
const LINE: usize = 8 * LANES;

struct Read<'a> {
    values: &'a [f32],
}

impl Kernel for Read<'_> {
    /// Bytes.
    type Output = usize;

    #[inline(always)]
    fn run<L: Lanes>(self) -> usize {
        let mut sums = [L::splat(0.0); 8];
        for line in self.values.as_chunks::<LINE>().0 {
            for (i, sum) in sums.iter_mut().enumerate() {
                // SAFETY: inside the line.
                *sum = sum.max(unsafe { L::load(line.as_ptr().add(i * LANES)) });
            }
        }
        for sum in sums {
            std::hint::black_box(sum.to_array());
        }
        self.values.len() / LINE * LINE * size_of::<f32>()
    }
}

struct NormRows<'a> {
    norm: RmsNorm<'a>,
    from: &'a [f32],
    to: &'a mut [f32],
}

impl Kernel for NormRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let hidden = self.norm.hidden;
        for (from, to) in self.from.chunks_exact(hidden).zip(self.to.chunks_exact_mut(hidden)) {
            // SAFETY: sixteen columns inside the row.
            self.norm.apply::<L>(from, |column, values| unsafe { values.store(to.as_mut_ptr().add(column)) });
        }
    }
}
