//! One block of tokens, and the products that an arithmetic makes of it.

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
    /// Left-hand sides of both products.
    type Operands: Send;

    fn operands(head_dim: usize) -> Result<Self::Operands, BackendError>;

    fn put_query<L: Lanes>(operands: &mut Self::Operands, row: usize, query: &[f32]);

    /// 16 dimensions from a multiple of 16 on.
    fn put_some<L: Lanes>(operands: &mut Self::Operands, row: usize, dimension: usize, values: L);

    /// Into `scores[row][token]`; those that a row does not see are anything.
    fn scores<L: Lanes>(block: &Block<'_, Self>, operands: &mut Self::Operands, scores: &mut [f32]);

    /// The largest scores of `R` rows, scaled. Scores may change, but stay scores.
    fn largest<L: Lanes, const R: usize>(
        block: &Block<'_, Self>,
        operands: &Self::Operands,
        first_row: usize,
        scores: &mut [f32],
        scale: f32,
    ) -> [f32; R];

    /// Weights of `R` rows from their scores, `N` vectors at a time.
    fn weigh<L: Lanes, const R: usize, const N: usize>(
        block: &Block<'_, Self>,
        operands: &mut Self::Operands,
        first_row: usize,
        scores: &mut [f32],
        scale_and_largest: (f32, [f32; R]),
    ) -> [BlockSum; R];

    /// Into `values[row][dimension]`. What lies in pages behind the written tokens may be a former owner's, at worst bits
    /// that are no number: it must not be multiplied, even with zero.
    fn values<L: Lanes>(block: &Block<'_, Self>, operands: &mut Self::Operands, scores: &[f32], values: &mut [f32]);
}

/// What an item's rows see of 256 tokens.
pub(crate) struct Block<'a, E: BlockProducts> {
    queries: &'a Queries<'a, E>,
    /// Tokens that each row sees, of all blocks.
    visible: &'a [usize],
    /// Its first token's position.
    begin: usize,
    /// Those that see some of it. Rows see more and more, so the first ones may end before it.
    pub(super) rows: Range<usize>,
    /// How many tokens the last row sees; at least 1.
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

    /// Tokens of the block that a row sees.
    #[inline(always)]
    pub(super) fn visible(&self, row: usize) -> usize {
        (self.visible[row] - self.begin).min(self.tokens)
    }

    /// … that some rows see.
    #[inline(always)]
    pub(super) fn visible_to<const R: usize>(&self, first_row: usize) -> [usize; R] {
        let mut visible = [0; R];
        for r in 0..R {
            visible[r] = self.visible(first_row + r);
        }
        visible
    }

    /// Whether all tokens before this one of the block are the sequence's, visible or not. They are numbers: where they are not,
    /// the sequence's logits are none either, and the request fails.
    pub(super) fn is_written_until(&self, token: usize) -> bool {
        self.begin + token <= self.queries.written
    }

    pub(super) fn head_dim(&self) -> usize {
        self.queries.attention.head_dim()
    }

    pub(super) fn value_width(&self) -> usize {
        self.queries.attention.kv.value_width()
    }

    /// Of the page with this token of the block.
    #[inline(always)]
    pub(super) fn keys(&self, token: usize) -> *const E {
        let &Queries { attention, kv_head, pages, .. } = self.queries;
        attention.kv.keys(attention.layer, pages[(self.begin + token) / PAGE_TOKENS], kv_head)
    }

    /// Of the first page of the next block, if rows see some of it.
    #[inline(always)]
    pub(super) fn next_keys(&self) -> Option<*const E> {
        let seen = self.visible.last().is_some_and(|&visible| visible > self.begin + BLOCK_TOKENS);
        seen.then(|| self.keys(BLOCK_TOKENS))
    }

    /// Of the page with this token of the block.
    #[inline(always)]
    pub(super) fn values(&self, token: usize) -> *const E {
        let &Queries { attention, kv_head, pages, .. } = self.queries;
        attention.kv.values(attention.layer, pages[(self.begin + token) / PAGE_TOKENS], kv_head)
    }
}
