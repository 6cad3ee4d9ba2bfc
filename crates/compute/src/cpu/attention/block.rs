//! One block of tokens, and the products that an arithmetic makes of it.

use std::ops::Range;

use baton_core::PAGE_TOKENS;

use super::softmax::BlockSum;
use super::{BLOCK_TOKENS, Queries};
use crate::ComputeError;
use crate::cpu::kv::KvElement;
use crate::cpu::lanes::Lanes;

/// Scores = queries · keys, values = weights · values; weights are what softmax makes of scores.
pub(crate) trait BlockProducts: KvElement {
    /// Query rows of one item. A row is one query head at one position; rows that share a KV head go by position, then head.
    const BLOCK_ROWS: usize;
    /// Left-hand sides of both products.
    type Operands: Send;

    fn operands(head_dim: usize) -> Result<Self::Operands, ComputeError>;

    fn put_query<L: Lanes>(operands: &mut Self::Operands, row: usize, query: &[f32]);

    /// Into `scores[row][token]`; those that a row does not see are anything.
    fn scores<L: Lanes>(block: &Block<'_, Self>, operands: &mut Self::Operands, scores: &mut [f32]);

    /// The largest of a row's scores, scaled. Scores may change, but stay scores.
    fn largest<L: Lanes>(
        block: &Block<'_, Self>,
        operands: &Self::Operands,
        row: usize,
        scores: &mut [f32],
        scale: f32,
    ) -> f32;

    /// Weights of one row from its scores.
    fn weigh<L: Lanes>(
        block: &Block<'_, Self>,
        operands: &mut Self::Operands,
        row: usize,
        scores: &mut [f32],
        scale_and_max: (f32, f32),
    ) -> BlockSum;

    /// Into `values[row][dimension]`. What lies in pages behind the written tokens may be a former owner's, at worst bits
    /// that are no number: it must not be multiplied, even with zero.
    fn values<L: Lanes>(block: &Block<'_, Self>, operands: &mut Self::Operands, scores: &[f32], values: &mut [f32]);
}

/// What an item's rows see of 256 tokens.
pub(crate) struct Block<'a, E: BlockProducts> {
    queries: &'a Queries<'a, E>,
    /// Its first token's position.
    begin: usize,
    /// Those that see some of it. Rows see more and more, so the first ones may end before it.
    pub(super) rows: Range<usize>,
    /// How many tokens the last row sees; at least 1.
    pub(super) tokens: usize,
}

impl<'a, E: BlockProducts> Block<'a, E> {
    #[inline(always)]
    pub(super) fn new(queries: &'a Queries<'a, E>, index: usize) -> Self {
        let (begin, rows) = (index * BLOCK_TOKENS, queries.rows());
        let first = (0..rows).find(|&row| queries.visible(row) > begin).unwrap_or(rows);
        let tokens = (queries.visible(rows - 1) - begin).min(BLOCK_TOKENS);
        Self { queries, begin, rows: first..rows, tokens }
    }

    /// Tokens of the block that a row sees.
    #[inline(always)]
    pub(super) fn visible(&self, row: usize) -> usize {
        (self.queries.visible(row) - self.begin).min(self.tokens)
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

    /// Of the page with this token of the block.
    #[inline(always)]
    pub(super) fn values(&self, token: usize) -> *const E {
        let &Queries { attention, kv_head, pages, .. } = self.queries;
        attention.kv.values(attention.layer, pages[(self.begin + token) / PAGE_TOKENS], kv_head)
    }
}
