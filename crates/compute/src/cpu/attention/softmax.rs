//! Softmax of one block of scores, and the fold of blocks into a row's result.

use crate::cpu::lanes::{LANES, Lanes};
use crate::cpu::math;

/// Largest score, scaled, and sum of weights.
#[derive(Clone, Copy)]
pub(crate) struct BlockSum {
    max: f32,
    sum: f32,
}

impl BlockSum {
    pub(crate) const EMPTY: Self = Self { max: f32::NEG_INFINITY, sum: 0.0 };
}

/// Hands 2^(scale · (score - largest)) of the first `visible` scores to `put`, 16 tokens at a time, and the scores, which are
/// not needed any more; lane i sums the weights of tokens i, i + 16, ….
#[inline(always)]
pub(super) fn softmax_block<L: Lanes>(
    scores: &mut [f32],
    visible: usize,
    scale: f32,
    mut put: impl FnMut(&mut [f32], usize, L),
) -> BlockSum {
    assert!(visible > 0 && visible <= scores.len() && scores.len().is_multiple_of(LANES));
    let (whole, nothing) = (visible / LANES * LANES, L::splat(f32::NEG_INFINITY));
    // SAFETY: whole vectors inside the block.
    let score = |scores: &[f32], token: usize| unsafe { L::load(scores.as_ptr().add(token)) };
    let mut largest = nothing;
    for token in (0..whole).step_by(LANES) {
        largest = largest.max(score(scores, token));
    }
    if whole < visible {
        largest = largest.max(score(scores, whole).keep_first(visible - whole, nothing));
    }
    let max = largest.largest() * scale;
    let (scale, less) = (L::splat(scale), L::splat(-max));
    let mut sums = L::splat(0.0);
    for token in (0..visible).step_by(LANES) {
        let weight = math::exp2_of_negative(score(scores, token).fma(scale, less));
        let weight = if token < whole { weight } else { weight.keep_first(visible - token, L::splat(0.0)) };
        put(scores, token, weight);
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
        assert!(values.len() == self.width);
        if old.sum == 0.0 {
            // The first one.
            self.sums[row] = block;
            folded.copy_from_slice(values);
            return;
        }
        let max = if old.max > block.max { old.max } else { block.max };
        let keep = math::exp2_of_negative(L::splat(old.max - max));
        let take = math::exp2_of_negative(L::splat(block.max - max));
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

    /// The row's result.
    #[inline(always)]
    pub(super) fn finish<L: Lanes>(&mut self, row: usize) -> &[f32] {
        let scale = L::splat(1.0 / self.sums[row].sum);
        let values = &mut self.values[row * self.width..][..self.width];
        for values in values.as_chunks_mut::<LANES>().0 {
            // SAFETY: a whole vector.
            unsafe { L::load(values.as_ptr()).mul(scale).store(values.as_mut_ptr()) };
        }
        values
    }
}
