//! RMSNorm of many rows. In a step it is part of the products that read normed rows.

use std::time::{Duration, Instant};

use super::Work;
use crate::layers::norm::RmsNorm;
use crate::memory::region::Floats;
use crate::memory::shared::Shared;
use crate::simd::isa::Isa;
use crate::simd::vector::{Kernel, Lanes};
use crate::threads::team::{Member, Team};
use baton_backend::BackendError;

pub struct Norms {
    isa: Isa,
    team: Team,
    weight: Vec<f32>,
    rows: usize,
    from: Floats,
    to: Floats,
}

/// Rows of one item.
const ROWS: usize = 8;
/// Enough to outlast what wakes the team.
const REPEATS: usize = 16;

impl Norms {
    /// Rows of `hidden` values, a multiple of 16.
    pub fn new(threads: usize, rows: usize, hidden: usize) -> Result<Self, BackendError> {
        let (mut from, mut to) = (Floats::new(rows * hidden)?, Floats::new(rows * hidden)?);
        // Untouched memory is one page of zeros.
        from.as_mut_slice().fill(0.5);
        to.as_mut_slice().fill(0.5);
        Ok(Self { isa: Isa::choose(None)?, team: Team::new(threads)?, weight: vec![1.0; hidden], rows, from, to })
    }

    /// Bytes read and written.
    pub fn bytes(&self) -> usize {
        2 * size_of_val(self.from.as_slice())
    }

    /// All rows, several times.
    pub fn run(&mut self) -> Result<(Duration, Work), BackendError> {
        // Square and sum, then two factors.
        const FLOPS_PER_VALUE: usize = 4;
        let (hidden, isa) = (self.weight.len(), self.isa);
        let (flops, bytes) = (REPEATS * FLOPS_PER_VALUE * self.rows * hidden, REPEATS * self.bytes());
        let norm = RmsNorm { weight: &self.weight, hidden, eps: 1e-5 };
        let (rows, from, to) = (self.rows, self.from.as_slice(), Shared::new(self.to.as_mut_slice()));
        let started = Instant::now();
        self.team.run(&|member: &Member<'_>| {
            for _ in 0..REPEATS {
                member.each(rows.div_ceil(ROWS), |item| {
                    let values = item * ROWS * hidden..rows.min((item + 1) * ROWS) * hidden;
                    // SAFETY: these rows are this item's alone.
                    let to = unsafe { to.slice_mut(values.clone()) };
                    isa.run(NormRows { norm, from: &from[values], to });
                })?;
            }
            Ok(())
        })?;
        Ok((started.elapsed(), Work { flops: flops as f64, bytes: bytes as f64 }))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_normed() {
        let mut norms = Norms::new(2, 19, 32).unwrap();
        let (time, work) = norms.run().unwrap();
        assert!(!time.is_zero() && work.bytes == (REPEATS * 2 * 19 * 32 * 4) as f64);
        assert!(norms.to.as_slice().iter().all(|value| (value - 1.0).abs() < 1e-4));
    }
}
