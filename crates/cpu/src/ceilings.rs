//! What this machine could do at best: the yardsticks for the speed of steps, measured with the same threads and
//! instructions. A shared machine changes its speed from second to second, so take them beside every measurement.

#[cfg(target_arch = "x86_64")]
mod tile_products;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

#[cfg(target_arch = "x86_64")]
use self::tile_products::tile_products;
use crate::memory::region::Floats;
use crate::memory::shared::Shared;
use crate::simd::isa::Isa;
use crate::simd::vector::{Kernel, LANES, Lanes};
use crate::threads::team::{Member, Team};
use baton_backend::BackendError;

pub struct Ceilings {
    isa: Isa,
    team: Team,
    memory: Floats,
}

impl Ceilings {
    /// Reads are measured over up to `memory_bytes`, which stay allocated.
    pub fn new(threads: usize, isa: Option<Isa>, memory_bytes: usize) -> Result<Self, BackendError> {
        let mut memory = Floats::new(memory_bytes / size_of::<f32>())?;
        // Untouched memory is one page of zeros.
        memory.as_mut_slice().fill(1.0);
        Ok(Self { isa: Isa::choose(isa)?, team: Team::new(threads)?, memory })
    }

    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Fused multiply-adds of f32 that never touch memory, in 10⁹ operations per second (one is two), all threads together.
    pub fn fma_gflops(&mut self) -> Result<f64, BackendError> {
        let isa = self.isa;
        let items = ITEMS_PER_MEMBER * self.team.size();
        let (flops, seconds) = run(&mut self.team, items, |_| isa.run(FmaLoop { rounds: 100_000 }))?;
        Ok(flops as f64 / seconds / 1e9)
    }

    /// Products of bf16 on matrix tiles that never touch memory, like [`Ceilings::fma_gflops`]. `None` where there are no tiles.
    pub fn tile_gflops(&mut self) -> Result<Option<f64>, BackendError> {
        if tile_products(1) == 0 {
            return Ok(None);
        }
        let items = ITEMS_PER_MEMBER * self.team.size();
        let (flops, seconds) = run(&mut self.team, items, |_| tile_products(10_000))?;
        Ok(Some(flops as f64 / seconds / 1e9))
    }

    /// Copies of the first half of `bytes` of the memory into the second, over and over, in 10⁹ bytes per second, those that
    /// are read and those that are written.
    pub fn copy_gbytes_per_s(&mut self, bytes: usize) -> Result<f64, BackendError> {
        let memory = self.memory.as_mut_slice();
        let half = memory.len().min(bytes / size_of::<f32>()) / 2;
        let (from, to) = memory.split_at_mut(half);
        let (from, to) = (&*from, Shared::new(&mut to[..half]));
        let parts = ITEMS_PER_MEMBER * self.team.size();
        let part = half / parts;
        let (mut copied, mut seconds) = (0, 0.0);
        while copied < LEAST_BYTES {
            let once = run(&mut self.team, parts, |item| {
                let values = item * part..(item + 1) * part;
                // SAFETY: this part is this item's alone.
                unsafe { to.slice_mut(values.clone()) }.copy_from_slice(&from[values]);
                2 * part * size_of::<f32>()
            })?;
            copied += once.0.max(1);
            seconds += once.1;
        }
        Ok(copied as f64 / seconds / 1e9)
    }

    /// Reads of the first `bytes` of the memory, over and over, in 10⁹ bytes per second: caches if they fit, else DRAM.
    pub fn read_gbytes_per_s(&mut self, bytes: usize) -> Result<f64, BackendError> {
        let memory = self.memory.as_slice();
        let memory = &memory[..memory.len().min(bytes / size_of::<f32>())];
        let parts = ITEMS_PER_MEMBER * self.team.size();
        let part = memory.len() / parts;
        let repeats = (LEAST_BYTES / bytes.max(1)).max(1);
        let isa = self.isa;
        let (read, seconds) = run(&mut self.team, parts * repeats, |item| {
            isa.run(ReadAll { part: &memory[item % parts * part..][..part] })
        })?;
        Ok(read as f64 / seconds / 1e9)
    }
}

/// That a measurement of memory moves: some milliseconds.
const LEAST_BYTES: usize = 256 << 20;
/// Handed out like those of a step, so that both see the same share of a busy machine.
const ITEMS_PER_MEMBER: usize = 20;

/// Runs `work` for every item; adds up what they say they did, and the seconds it took.
fn run(team: &mut Team, items: usize, work: impl Fn(usize) -> usize + Sync) -> Result<(usize, f64), BackendError> {
    let total = AtomicUsize::new(0);
    let started = Instant::now();
    team.run(&|member: &Member<'_>| {
        member.each(items, |item| {
            total.fetch_add(work(item), Ordering::Relaxed);
        })
    })?;
    Ok((total.into_inner(), started.elapsed().as_secs_f64()))
}

#[cfg(not(target_arch = "x86_64"))]
fn tile_products(_rounds: usize) -> usize {
    0
}

struct FmaLoop {
    rounds: usize,
}

impl Kernel for FmaLoop {
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

struct ReadAll<'a> {
    part: &'a [f32],
}

impl Kernel for ReadAll<'_> {
    /// Bytes.
    type Output = usize;

    #[inline(always)]
    fn run<L: Lanes>(self) -> usize {
        let mut sums = [L::splat(0.0); 8];
        for line in self.part.as_chunks::<LINE>().0 {
            for (i, sum) in sums.iter_mut().enumerate() {
                // SAFETY: inside the line.
                *sum = sum.max(unsafe { L::load(line.as_ptr().add(i * LANES)) });
            }
        }
        for sum in sums {
            std::hint::black_box(sum.to_array());
        }
        self.part.len() / LINE * LINE * size_of::<f32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plausible() {
        let mut ceilings = Ceilings::new(2, None, 8 << 20).unwrap();
        let (flops, bytes) = (ceilings.fma_gflops().unwrap(), ceilings.read_gbytes_per_s(8 << 20).unwrap());
        assert!((0.01..1e6).contains(&flops) && (0.01..1e5).contains(&bytes), "{flops} GFLOP/s, {bytes} GB/s");
        let copied = ceilings.copy_gbytes_per_s(8 << 20).unwrap();
        assert!((0.01..1e5).contains(&copied), "{copied} GB/s");
        if let Some(tiles) = ceilings.tile_gflops().unwrap() {
            assert!(tiles > flops, "tiles that are slower than vectors: {tiles} and {flops} GFLOP/s");
        }
    }
}
