//! RMSNorm of many rows. In a step it is part of the matmuls that read normed rows.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use baton_backend::BackendError;
use baton_cpu::Probe;

use super::Cost;
use super::threads::run;

pub(crate) struct Norms {
    probe: Probe,
    threads: usize,
    weight: Vec<f32>,
    from: Vec<f32>,
    to: Vec<f32>,
}

/// Rows of one item.
const ROWS: usize = 8;
/// How often all rows are normed in one measurement, so that starting the threads does not show.
const REPEATS: usize = 16;
/// Square and sum, then two factors.
const FLOPS_PER_VALUE: usize = 4;

impl Norms {
    /// Rows of `hidden` values, a multiple of 16.
    pub(crate) fn new(threads: usize, rows: usize, hidden: usize) -> Result<Self, BackendError> {
        // Not zero: memory that was never written is one page, which every cache holds.
        let values = || vec![0.5; rows * hidden];
        Ok(Self { probe: Probe::new(None)?, threads, weight: vec![1.0; hidden], from: values(), to: values() })
    }

    /// Bytes read and written by norming all rows once.
    pub(crate) fn bytes(&self) -> usize {
        2 * size_of_val(&*self.from)
    }

    /// Norms all rows, several times.
    pub(crate) fn run(&mut self) -> Result<(Duration, Cost), BackendError> {
        let bytes = (REPEATS * self.bytes()) as f64;
        let (probe, weight) = (self.probe, &self.weight);
        let values = ROWS * weight.len();
        let from: Vec<_> = self.from.chunks(values).collect();
        let to: Vec<_> = self.to.chunks_mut(values).map(Mutex::new).collect();
        let (flops, time) = run(self.threads, REPEATS * from.len(), |item| {
            let index = item % from.len();
            let mut to = to[index].lock().unwrap_or_else(PoisonError::into_inner);
            probe.rms_norm(weight, from[index], &mut to);
            FLOPS_PER_VALUE * to.len()
        })?;
        Ok((time, Cost { flops: flops as f64, bytes }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_normed() {
        let mut norms = Norms::new(2, 19, 32).unwrap();
        let (time, work) = norms.run().unwrap();
        let values = (REPEATS * 19 * 32) as f64;
        assert!(!time.is_zero());
        assert_eq!(work, Cost { flops: 4.0 * values, bytes: 8.0 * values });
        assert!(norms.to.iter().all(|value| (value - 1.0).abs() < 1e-4));
    }
}
