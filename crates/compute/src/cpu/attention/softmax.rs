//! Softmax of one block of scores, and the fold of blocks into a row's result.

#![allow(clippy::needless_range_loop, reason = "vectors are numbers here; indexed loops unroll into registers")]

use crate::cpu::lanes::{LANES, Lanes};
use crate::cpu::math::{self, TOGETHER};

/// Largest score, scaled, and sum of weights.
#[derive(Clone, Copy)]
pub(crate) struct BlockSum {
    max: f32,
    sum: f32,
}

impl BlockSum {
    pub(crate) const EMPTY: Self = Self { max: f32::NEG_INFINITY, sum: 0.0 };
}

/// The largest of the first `visible` scores, scaled.
///
/// A pass of its own over all rows: a row's weights need not wait for it then.
#[inline(always)]
pub(super) fn largest_score<L: Lanes>(scores: &[f32], visible: usize, scale: f32) -> f32 {
    assert!(visible > 0 && visible <= scores.len() && scores.len().is_multiple_of(LANES));
    let (whole, nothing) = (visible / LANES * LANES, L::splat(f32::NEG_INFINITY));
    // SAFETY: whole vectors inside the block.
    let score = |token: usize| unsafe { L::load(scores.as_ptr().add(token)) };
    // Two chains: one would wait for itself.
    let (mut largest, mut other) = (nothing, nothing);
    let pairs = whole / (2 * LANES) * (2 * LANES);
    for token in (0..pairs).step_by(2 * LANES) {
        largest = largest.max(score(token));
        other = other.max(score(token + LANES));
    }
    if pairs < whole {
        largest = largest.max(score(pairs));
    }
    if whole < visible {
        other = other.max(score(whole).keep_first(visible - whole, nothing));
    }
    largest.max(other).largest() * scale
}

/// Where a row's weights go. No closure: those are not always inlined, and then know nothing of instruction sets.
pub(super) trait WeightsTo {
    /// Of 16 tokens, whose scores are not needed any more. Must be `#[inline(always)]`.
    fn put<L: Lanes>(&mut self, scores: &mut [f32], token: usize, weights: L);
}

/// Hands 2^(scale · score - max) of the first `visible` scores on; lane i sums the weights of tokens i, i + 16, ….
#[inline(always)]
pub(super) fn weigh_block<L: Lanes>(
    scores: &mut [f32],
    visible: usize,
    (scale, max): (f32, f32),
    to: &mut impl WeightsTo,
) -> BlockSum {
    assert!(visible <= scores.len() && scores.len().is_multiple_of(LANES));
    let (scale, less) = (L::splat(scale), L::splat(-max));
    let mut sums = L::splat(0.0);
    let together = if L::MANY_REGISTERS { visible / (TOGETHER * LANES) * (TOGETHER * LANES) } else { 0 };
    for first in (0..together).step_by(TOGETHER * LANES) {
        let mut weights = [sums; TOGETHER];
        for i in 0..TOGETHER {
            // SAFETY: whole vectors inside the block.
            weights[i] = unsafe { L::load(scores.as_ptr().add(first + i * LANES)) }.fma(scale, less);
        }
        weights = math::exp2_of_negative(weights);
        for i in 0..TOGETHER {
            to.put(scores, first + i * LANES, weights[i]);
            sums = sums.add(weights[i]);
        }
    }
    let whole = visible / LANES * LANES;
    for token in (together..visible).step_by(LANES) {
        // SAFETY: a whole vector inside the block.
        let score = unsafe { L::load(scores.as_ptr().add(token)) };
        let [weight] = math::exp2_of_negative([score.fma(scale, less)]);
        let weight = if token < whole { weight } else { weight.keep_first(visible - token, L::splat(0.0)) };
        to.put(scores, token, weight);
        sums = sums.add(weight);
    }
    BlockSum { max, sum: sums.sum() }
}

/// Blocks folded so far: value = Σ weights · v, all weights relative to the largest score.
pub(super) struct Folded {
    width: usize,
    sums: Vec<BlockSum>,
    values: Vec<f32>,
}

impl Folded {
    pub(super) fn new(rows: usize, width: usize) -> Self {
        Self { width, sums: vec![BlockSum::EMPTY; rows], values: vec![0.0; rows * width] }
    }

    pub(super) fn clear(&mut self) {
        self.sums.fill(BlockSum::EMPTY);
    }

    /// Adds the row's next block with its weighted values.
    #[inline(always)]
    pub(super) fn fold<L: Lanes>(&mut self, row: usize, block: BlockSum, values: &[f32]) {
        let old = self.sums[row];
        let folded = &mut self.values[row * self.width..][..self.width];
        assert!(values.len() == self.width && self.width.is_multiple_of(LANES));
        if old.sum == 0.0 {
            // The first one.
            self.sums[row] = block;
            for i in (0..values.len()).step_by(LANES) {
                // SAFETY: rows are whole vectors.
                unsafe { L::load(values.as_ptr().add(i)).store(folded.as_mut_ptr().add(i)) };
            }
            return;
        }
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

    /// The row's result, but for a factor.
    #[inline(always)]
    pub(super) fn result(&self, row: usize) -> (&[f32], f32) {
        (&self.values[row * self.width..][..self.width], 1.0 / self.sums[row].sum)
    }
}
