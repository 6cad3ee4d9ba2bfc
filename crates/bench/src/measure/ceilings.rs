//! The fastest that this machine can do with the same threads and instructions as the kernels.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use baton_backend::BackendError;
use baton_cpu::{Isa, Probe};

use super::threads::{ITEMS_PER_THREAD, run};

pub struct Ceilings {
    probe: Probe,
    threads: usize,
    memory: Vec<f32>,
}

/// One measurement of memory moves at least this many bytes, which takes some milliseconds.
const LEAST_BYTES: usize = 256 << 20;

impl Ceilings {
    /// Reads and copies are measured over up to `memory_bytes`, which stay allocated.
    pub fn new(threads: usize, isa: Option<Isa>, memory_bytes: usize) -> Result<Self, BackendError> {
        // Not zero: memory that was never written is one page, which every cache holds.
        Ok(Self { probe: Probe::new(isa)?, threads, memory: vec![1.0; memory_bytes / size_of::<f32>()] })
    }

    /// f32 multiply-adds that never touch memory, in 10⁹ operations per second (a multiply-add is two) of all threads together.
    pub fn fma_gflops(&mut self) -> Result<f64, BackendError> {
        let probe = self.probe;
        let (flops, time) = run(self.threads, self.items(), |_| probe.multiply_add(100_000))?;
        Ok(giga_per_s(flops, time))
    }

    /// Products of bf16 tiles that never touch memory, in 10⁹ operations per second of all threads. `None` where there are no tiles.
    pub fn tile_gflops(&mut self) -> Result<Option<f64>, BackendError> {
        let probe = self.probe;
        if probe.multiply_tiles(1).is_none() {
            return Ok(None);
        }
        let (flops, time) = run(self.threads, self.items(), |_| probe.multiply_tiles(10_000).unwrap_or(0))?;
        Ok(Some(giga_per_s(flops, time)))
    }

    /// Copies from the first half of the first `bytes` of memory to the second half, in 10⁹ bytes per second; a byte counts when it
    /// is read and when it is written.
    pub fn copy_gbytes_per_s(&mut self, bytes: usize) -> Result<f64, BackendError> {
        let parts = self.items();
        let half = self.memory.len().min(bytes / size_of::<f32>()) / 2;
        let part = (half / parts).max(1);
        let (from, to) = self.memory.split_at_mut(half);
        let to: Vec<_> = to[..half].chunks_exact_mut(part).map(Mutex::new).collect();
        let repeats = LEAST_BYTES.div_ceil(bytes.max(1));
        let (copied, time) = run(self.threads, to.len() * repeats, |item| {
            let index = item % to.len();
            let mut to = to[index].lock().unwrap_or_else(PoisonError::into_inner);
            to.copy_from_slice(&from[index * part..][..part]);
            2 * size_of_val(&**to)
        })?;
        Ok(giga_per_s(copied, time))
    }

    /// Reads of the first `bytes` of memory, in 10⁹ bytes per second: from caches where they fit, else from DRAM.
    pub fn read_gbytes_per_s(&mut self, bytes: usize) -> Result<f64, BackendError> {
        let memory = &self.memory[..self.memory.len().min(bytes / size_of::<f32>())];
        let parts = self.items();
        let part = memory.len() / parts;
        let repeats = (LEAST_BYTES / bytes.max(1)).max(1);
        let probe = self.probe;
        let (read, time) =
            run(self.threads, parts * repeats, |item| probe.read(&memory[item % parts * part..][..part]))?;
        Ok(giga_per_s(read, time))
    }

    fn items(&self) -> usize {
        ITEMS_PER_THREAD * self.threads
    }
}

fn giga_per_s(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64() / 1e9
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
