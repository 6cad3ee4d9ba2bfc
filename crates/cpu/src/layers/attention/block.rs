//! One block of tokens, and the two matmuls over it.

#![allow(clippy::needless_range_loop, reason = "rows are numbers here; indexed loops unroll into registers")]

use std::ops::Range;

use baton_core::PAGE_TOKENS;

use super::softmax::BlockSum;
use super::{BLOCK_TOKENS, Queries};
use crate::memory::kv::KvElement;
use crate::simd::vector::Lanes;
use baton_backend::BackendError;

/// Scores = queries · keys, values = weights · values; weights are what softmax makes of scores.
pub(crate) trait BlockProducts: KvElement {
    /// Query rows of one item. A row is one query head at one position; rows that share a KV head go by position, then head.
    const BLOCK_ROWS: usize;
    /// The left-hand sides of both matmuls.
    type Operands: Send;

    fn operands(head_dim: usize) -> Result<Self::Operands, BackendError>;

    fn put_query<L: Lanes>(operands: &mut Self::Operands, row: usize, query: &[f32]);

    /// Stores 16 dimensions of a query, from a multiple of 16 on.
    fn put_some<L: Lanes>(operands: &mut Self::Operands, row: usize, dimension: usize, values: L);

    /// Writes `scores[row][token]`. Scores of tokens that a row does not see may be anything.
    fn scores<L: Lanes>(block: &Block<'_, Self>, operands: &mut Self::Operands, scores: &mut [f32]);

    /// The largest scores of `R` rows, scaled. May also apply scales to the stored scores.
    fn largest<L: Lanes, const R: usize>(
        block: &Block<'_, Self>,
        operands: &Self::Operands,
        first_row: usize,
        scores: &mut [f32],
        scale: f32,
    ) -> [f32; R];

    /// Computes the weights of `R` rows from their scores, `N` vectors at a time.
    fn weigh<L: Lanes, const R: usize, const N: usize>(
        block: &Block<'_, Self>,
        operands: &mut Self::Operands,
        first_row: usize,
        scores: &mut [f32],
        scale_and_largest: (f32, [f32; R]),
    ) -> [BlockSum; R];

    /// Writes `values[row][dimension]`. Pages may hold data of a former owner after the written tokens, at worst NaN, so these
    /// must not be multiplied, not even with zero.
    fn values<L: Lanes>(block: &Block<'_, Self>, operands: &mut Self::Operands, scores: &[f32], values: &mut [f32]);
}

/// A block of 256 tokens, and the rows that see some of it.
pub(crate) struct Block<'a, E: BlockProducts> {
    queries: &'a Queries<'a, E>,
    /// The number of tokens that each row sees, in all blocks together.
    visible: &'a [usize],
    /// Its first token's position.
    begin: usize,
    /// The rows that see some of it. Later rows see more tokens, so the first ones may end before this block.
    pub(super) rows: Range<usize>,
    /// The number of tokens of the block that the last row sees; at least 1.
    pub(super) tokens: usize,
}

impl<'a, E: BlockProducts> Block<'a, E> {
    #[inline(always)]
    pub(super) fn new(queries: &'a Queries<'a, E>, visible: &'a [usize], index: usize) -> Self {
        let (begin, rows) = (index * BLOCK_TOKENS, visible.len());
        let first = visible.iter().position(|&visible| visible > begin).unwrap_or(rows);
        let tokens = (visible[rows - 1] - begin).min(BLOCK_TOKENS);
        Self { queries, visible, begin, rows: first..rows, tokens }
    }

    /// The number of tokens of the block that a row sees.
    #[inline(always)]
    pub(super) fn visible(&self, row: usize) -> usize {
        (self.visible[row] - self.begin).min(self.tokens)
    }

    /// [`Self::visible`] of `R` rows.
    #[inline(always)]
    pub(super) fn visible_to<const R: usize>(&self, first_row: usize) -> [usize; R] {
        let mut visible = [0; R];
        for r in 0..R {
            visible[r] = self.visible(first_row + r);
        }
        visible
    }

    /// Whether the sequence has written all tokens of the block before this one, visible or not. Then they can be multiplied with
    /// zero: if they are not finite, neither are the sequence's logits, and the request fails.
    pub(super) fn is_written_until(&self, token: usize) -> bool {
        self.begin + token <= self.queries.written
    }

    pub(super) fn head_dim(&self) -> usize {
        self.queries.attention.head_dim()
    }

    pub(super) fn value_width(&self) -> usize {
        self.queries.attention.kv.value_width()
    }

    /// The keys of the page with this token of the block.
    #[inline(always)]
    pub(super) fn keys(&self, token: usize) -> *const E {
        let &Queries { attention, kv_head, pages, .. } = self.queries;
        attention.kv.keys(attention.layer, pages[(self.begin + token) / PAGE_TOKENS], kv_head)
    }

    /// The keys of the first page of the next block, if rows see some of it.
    #[inline(always)]
    pub(super) fn next_keys(&self) -> Option<*const E> {
        let seen = self.visible.last().is_some_and(|&visible| visible > self.begin + BLOCK_TOKENS);
        seen.then(|| self.keys(BLOCK_TOKENS))
    }

    /// The values of the page with this token of the block.
    #[inline(always)]
    pub(super) fn values(&self, token: usize) -> *const E {
        let &Queries { attention, kv_head, pages, .. } = self.queries;
        attention.kv.values(attention.layer, pages[(self.begin + token) / PAGE_TOKENS], kv_head)
    }
}
