//! Softmax of one block of scores, and folding blocks into a row's result.

#![allow(clippy::needless_range_loop, reason = "vectors are numbers here; indexed loops unroll into registers")]

use super::BLOCK_TOKENS;
use crate::memory::region::Floats;
use crate::simd::math;
use crate::simd::vector::{LANES, Lanes};
use baton_backend::BackendError;

/// The largest score of a row in a block, scaled, and the sum of its weights.
#[derive(Clone, Copy)]
pub(crate) struct BlockSum {
    max: f32,
    sum: f32,
}

impl BlockSum {
    pub(crate) const EMPTY: Self = Self { max: f32::NEG_INFINITY, sum: 0.0 };
}

/// The largest score that each of `R` rows sees, scaled. Later rows see at least as many tokens. Rows are interleaved, because each
/// maximum waits for the one before.
#[inline(always)]
pub(super) fn largest_scores<L: Lanes, const R: usize>(scores: &[f32], visible: [usize; R], scale: f32) -> [f32; R] {
    check(scores, &visible);
    let (scores, nothing) = (scores.as_ptr(), L::splat(f32::NEG_INFINITY));
    let (mut largest, mut other) = ([nothing; R], [nothing; R]);
    let pairs = visible[0] / (2 * LANES) * (2 * LANES);
    let mut scaled = [0.0; R];
    // SAFETY: whole vectors inside of the rows.
    unsafe {
        for token in (0..pairs).step_by(2 * LANES) {
            for r in 0..R {
                largest[r] = largest[r].max(L::load(scores.add(r * BLOCK_TOKENS + token)));
                other[r] = other[r].max(L::load(scores.add(r * BLOCK_TOKENS + token + LANES)));
            }
        }
        for r in 0..R {
            for token in (pairs..visible[r]).step_by(LANES) {
                let score = L::load(scores.add(r * BLOCK_TOKENS + token));
                let is_whole = token + LANES <= visible[r];
                let score = if is_whole { score } else { score.keep_first(visible[r] - token, nothing) };
                largest[r] = largest[r].max(score);
            }
        }
    }
    for r in 0..R {
        scaled[r] = largest[r].max(other[r]).largest() * scale;
    }
    scaled
}

#[inline(always)]
fn check<const R: usize>(scores: &[f32], visible: &[usize; R]) {
    assert!(scores.len() == R * BLOCK_TOKENS && visible[0] > 0 && visible[R - 1] <= BLOCK_TOKENS);
    debug_assert!(visible.is_sorted());
}

/// A receiver of weights. It is a trait because a closure is not always inlined, and would then lack the instruction set.
pub(super) trait WeightsTo {
    /// Takes the weights of 16 tokens of a row; their `scores` may be overwritten. Must be `#[inline(always)]`.
    ///
    /// # Safety
    /// The row and the tokens exist.
    unsafe fn put<L: Lanes>(&mut self, row: usize, token: usize, scores: *mut f32, weights: L);
}

/// Passes on the weights 2^(scale · score - largest) of the tokens that each of `R` rows sees; later rows see at least as many. Lane i
/// of a row's sum adds the weights of its tokens i, i + 16, …. `N` vectors are interleaved, some of each row.
#[inline(always)]
pub(super) fn weigh_rows<L: Lanes, const R: usize, const N: usize>(
    scores: &mut [f32],
    visible: [usize; R],
    (scale, largest): (f32, [f32; R]),
    to: &mut impl WeightsTo,
) -> [BlockSum; R] {
    const { assert!(N >= R && N.is_multiple_of(R)) };
    check(scores, &visible);
    let (scores, scale, step) = (scores.as_mut_ptr(), L::splat(scale), N / R * LANES);
    let (mut less, mut sums) = ([scale; R], [L::splat(0.0); R]);
    for r in 0..R {
        less[r] = L::splat(-largest[r]);
    }
    let whole = visible[0] / step * step;
    // SAFETY: whole vectors inside of the rows.
    unsafe {
        for first in (0..whole).step_by(step) {
            let mut weights = [scale; N];
            for i in 0..N {
                let at = i % R * BLOCK_TOKENS + first + i / R * LANES;
                weights[i] = L::load(scores.add(at)).fma(scale, less[i % R]);
            }
            weights = math::exp2_of_negative(weights);
            for i in 0..N {
                let (r, token) = (i % R, first + i / R * LANES);
                to.put(r, token, scores.add(r * BLOCK_TOKENS + token), weights[i]);
                sums[r] = sums[r].add(weights[i]);
            }
        }
        for token in (whole..visible[R - 1]).step_by(LANES) {
            let mut weights = [scale; R];
            for r in 0..R {
                weights[r] = L::load(scores.add(r * BLOCK_TOKENS + token)).fma(scale, less[r]);
            }
            weights = math::exp2_of_negative(weights);
            for r in 0..R {
                if token >= visible[r] {
                    continue;
                }
                let is_whole = token + LANES <= visible[r];
                let seen = if is_whole { weights[r] } else { weights[r].keep_first(visible[r] - token, L::splat(0.0)) };
                to.put(r, token, scores.add(r * BLOCK_TOKENS + token), seen);
                sums[r] = sums[r].add(seen);
            }
        }
    }
    let mut of_rows = [BlockSum::EMPTY; R];
    for r in 0..R {
        of_rows[r] = BlockSum { max: largest[r], sum: sums[r].sum() };
    }
    of_rows
}

/// Blocks folded so far: value = Σ weights · v, all weights relative to the largest score.
pub(super) struct Folded {
    width: usize,
    sums: Vec<BlockSum>,
    values: Floats,
}

impl Folded {
    pub(super) fn new(rows: usize, width: usize) -> Result<Self, BackendError> {
        Ok(Self { width, sums: vec![BlockSum::EMPTY; rows], values: Floats::new(rows * width)? })
    }

    /// Starts with the first block of all rows, and swaps its values out of `values`.
    #[inline(always)]
    pub(super) fn begin(&mut self, sums: &[BlockSum], values: &mut Floats) {
        self.sums[..sums.len()].copy_from_slice(sums);
        std::mem::swap(&mut self.values, values);
    }

    /// Starts with the first block of one row.
    pub(super) fn put(&mut self, row: usize, block: BlockSum, values: &[f32]) {
        self.sums[row] = block;
        self.values.as_mut_slice()[row * self.width..][..self.width].copy_from_slice(values);
    }

    /// Adds the row's next block with its weighted values.
    #[inline(always)]
    pub(super) fn fold<L: Lanes>(&mut self, row: usize, block: BlockSum, values: &[f32]) {
        let old = self.sums[row];
        let folded = &mut self.values.as_mut_slice()[row * self.width..][..self.width];
        assert!(values.len() == self.width && self.width.is_multiple_of(LANES));
        let max = if old.max > block.max { old.max } else { block.max };
        let [keep, take] = math::exp2_of_negative([L::splat(old.max - max), L::splat(block.max - max)]);
        let sum = L::splat(old.sum).fma(keep, L::splat(block.sum).mul(take));
        self.sums[row] = BlockSum { max, sum: sum.to_array()[0] };
        for i in (0..values.len()).step_by(LANES) {
            // SAFETY: rows are whole vectors.
            unsafe {
                let old = L::load(folded.as_ptr().add(i));
                let new = L::load(values.as_ptr().add(i)).mul(take);
                old.fma(keep, new).store(folded.as_mut_ptr().add(i));
            }
        }
    }

    /// The row's result, as values and a factor that they are still to be multiplied with.
    #[inline(always)]
    pub(super) fn result(&self, row: usize) -> (&[f32], f32) {
        (&self.values.as_slice()[row * self.width..][..self.width], 1.0 / self.sums[row].sum)
    }
}
