//! Attention of a block of query rows over the pages of one sequence, for one KV head.
//!
//! Keys are taken in blocks of 256 tokens at absolute positions 0, 256, 512, …, folded in that order:
//!
//! ```text
//!   positions   0 ........ 256 ........ 512 ... visible
//!               | block 0   | block 1    | part  |
//! ```
//!
//! Prefill and decode, alone or in a batch, take the same blocks; a row's arithmetic depends on its own position only.

mod block;
mod chain;
mod cut;
mod pairs;
mod partials;
mod softmax;
mod tile_pages;

use baton_core::PageId;

use self::block::Block;
pub(crate) use self::block::BlockProducts;
pub(crate) use self::cut::{AttentionCut, ItemRows};
pub(crate) use self::partials::{PartialBuffers, Partials};
use self::softmax::{BlockSum, Folded};
use super::arithmetic::Waiting;
use super::batch::Batch;
use super::isa::Kernel;
use super::kv::{KvShard, even_out};
use super::lanes::{LANES, Lanes, padded};
use super::region::Floats;
use super::rope::RopeTable;
use super::shards::Shards;
use super::shared::Shared;
use crate::ComputeError;

/// Part of the reduction plan: changing it changes results.
pub(crate) const BLOCK_TOKENS: usize = 256;

/// What all items of one layer and shard have in common. Heads are the shard's, numbered from 0.
pub(crate) struct Attention<'a, E: BlockProducts> {
    pub(crate) kv: KvShard<'a, E>,
    pub(crate) layer: usize,
    /// Of the shard's KV heads, where their keys are evened out.
    pub(crate) evening: Option<&'a [f32]>,
    pub(crate) rope: &'a RopeTable,
    pub(crate) shards: Shards,
    pub(crate) shard: usize,
    /// Rows of the step: heads of q (not yet rotated), then k, then v. Not written in this phase.
    pub(crate) qkv: Shared<'a, f32>,
    pub(crate) qkv_stride: usize,
    /// Where the shard's heads of q begin.
    pub(crate) qkv_first: usize,
    pub(crate) out: Waiting<'a, E::Arithmetic>,
    pub(crate) partials: Partials<'a>,
}

impl<'a, E: BlockProducts> Attention<'a, E> {
    #[inline(always)]
    fn head_dim(&self) -> usize {
        self.shards.head_dim
    }

    /// A query head's number in the model.
    #[inline(always)]
    fn model_head(&self, head: usize) -> usize {
        self.shards.first_head(self.shard) + head
    }

    pub(crate) fn item(
        &'a self,
        batch: &'a Batch,
        item: &'a ItemRows,
        kv_head: usize,
        scratch: &'a mut AttentionScratch<E>,
    ) -> AttentionItem<'a, E> {
        AttentionItem { queries: self.queries(batch, item, kv_head), next: None, scratch }
    }

    fn queries(&'a self, batch: &'a Batch, item: &'a ItemRows, kv_head: usize) -> Queries<'a, E> {
        let segment = &batch.segments[item.segment];
        Queries {
            attention: self,
            kv_head,
            pages: &batch.pages[segment.pages.clone()],
            first_row: segment.rows.start,
            first_position: segment.first_position,
            written: segment.first_position + segment.rows.len(),
            group: self.shards.group() as u32,
            item,
        }
    }

    /// Folds the partial results of an item that was split.
    pub(crate) fn fold(
        &'a self,
        batch: &'a Batch,
        item: &'a ItemRows,
        kv_head: usize,
        scratch: &'a mut AttentionScratch<E>,
    ) -> AttentionFold<'a, E> {
        AttentionFold(self.item(batch, item, kv_head, scratch))
    }
}

/// Buffers of one member.
pub(crate) struct AttentionScratch<E: BlockProducts> {
    /// One rotated query.
    turned: Vec<f32>,
    operands: E::Operands,
    /// `[row][token]` of one block.
    scores: Floats,
    /// Of each row's scores.
    largest: Vec<f32>,
    sums: Vec<BlockSum>,
    values: Floats,
    folded: Folded,
}

impl<E: BlockProducts> AttentionScratch<E> {
    pub(crate) fn new(head_dim: usize) -> Result<Self, ComputeError> {
        let width = padded(head_dim);
        Ok(Self {
            turned: vec![0.0; head_dim],
            operands: E::operands(head_dim)?,
            scores: Floats::new(E::BLOCK_ROWS * BLOCK_TOKENS)?,
            largest: vec![0.0; E::BLOCK_ROWS],
            sums: vec![BlockSum::EMPTY; E::BLOCK_ROWS],
            values: Floats::new(E::BLOCK_ROWS * width)?,
            folded: Folded::new(E::BLOCK_ROWS, width),
        })
    }
}

/// Rows of an item, and the sequence that they look at.
struct Queries<'a, E: BlockProducts> {
    attention: &'a Attention<'a, E>,
    kv_head: usize,
    pages: &'a [PageId],
    /// The segment's first row in the step, and its position.
    first_row: usize,
    first_position: usize,
    /// Tokens that the sequence has in its pages: those of this step are there.
    written: usize,
    /// Query heads per KV head. Small numbers, whose division is fast.
    group: u32,
    item: &'a ItemRows,
}

impl<E: BlockProducts> Queries<'_, E> {
    #[inline(always)]
    fn rows(&self) -> usize {
        self.item.rows.len()
    }

    /// Of a row of this item.
    #[inline(always)]
    fn token_and_head(&self, row: usize) -> (usize, usize) {
        let row = (self.item.rows.start + row) as u32;
        ((row / self.group) as usize, self.kv_head * self.group as usize + (row % self.group) as usize)
    }

    /// Tokens a row of this item sees: all up to its own.
    #[inline(always)]
    fn visible(&self, row: usize) -> usize {
        self.first_position + ((self.item.rows.start + row) as u32 / self.group) as usize + 1
    }

    /// Rows of this item with their tokens and where their queries begin.
    #[inline(always)]
    fn each(&self) -> EachQuery {
        let &Attention { qkv_stride, qkv_first, .. } = self.attention;
        let (head_dim, group) = (self.attention.head_dim(), self.group as usize);
        let (token, head) = self.token_and_head(0);
        EachQuery {
            row: 0,
            rows: self.rows(),
            token,
            left_of_token: (self.kv_head + 1) * group - head,
            group,
            query: (self.first_row + token) * qkv_stride + qkv_first + head * head_dim,
            head_dim,
            to_next_token: qkv_stride - group * head_dim,
        }
    }

    /// They were written by another member, maybe.
    #[inline(always)]
    fn ask_for<L: Lanes>(&self) {
        let (qkv, head_dim) = (self.attention.qkv.as_ptr(), self.attention.head_dim());
        for (_, _, query) in self.each() {
            for i in (query..query + head_dim).step_by(LANES) {
                L::prefetch_second_level(qkv.wrapping_add(i).cast());
            }
        }
    }
}

/// Counted on from row to row.
struct EachQuery {
    row: usize,
    rows: usize,
    token: usize,
    left_of_token: usize,
    group: usize,
    query: usize,
    head_dim: usize,
    to_next_token: usize,
}

impl Iterator for EachQuery {
    /// Row, token, and where the query begins.
    type Item = (usize, usize, usize);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let now = (self.row, self.token, self.query);
        self.row += 1;
        self.query += self.head_dim;
        self.left_of_token -= 1;
        if self.left_of_token == 0 {
            self.left_of_token = self.group;
            self.token += 1;
            self.query += self.to_next_token;
        }
        (now.0 < self.rows).then_some(now)
    }
}

pub(crate) struct AttentionItem<'a, E: BlockProducts> {
    queries: Queries<'a, E>,
    /// Of an item that this member will probably take soon.
    next: Option<Queries<'a, E>>,
    scratch: &'a mut AttentionScratch<E>,
}

impl<'a, E: BlockProducts> AttentionItem<'a, E> {
    pub(crate) fn before(
        self,
        attention: &'a Attention<'a, E>,
        batch: &'a Batch,
        next: &'a ItemRows,
        kv_head: usize,
    ) -> Self {
        Self { next: Some(attention.queries(batch, next, kv_head)), ..self }
    }
}

impl<E: BlockProducts> Kernel for AttentionItem<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        self.gather_queries::<L>();
        self.scratch.folded.clear();
        // Weights are powers of two: log₂ e is a part of the scale.
        let scale = std::f32::consts::LOG2_E / (self.queries.attention.head_dim() as f32).sqrt();
        for index in self.queries.item.blocks.clone() {
            let block = Block::new(&self.queries, index);
            let AttentionScratch { operands, scores, largest, sums, values, .. } = &mut *self.scratch;
            let (scores, values) = (scores.as_mut_slice(), values.as_mut_slice());
            E::scores::<L>(&block, operands, scores);
            if let Some(next) = self.next.take() {
                next.ask_for::<L>();
            }
            for row in block.rows.clone() {
                let scores = &mut scores[row * BLOCK_TOKENS..][..BLOCK_TOKENS];
                largest[row] = E::largest::<L>(&block, operands, row, scores, scale);
            }
            for row in block.rows.clone() {
                let scores = &mut scores[row * BLOCK_TOKENS..][..BLOCK_TOKENS];
                sums[row] = E::weigh::<L>(&block, operands, row, scores, (scale, largest[row]));
            }
            E::values::<L>(&block, operands, scores, values);
            for row in block.rows.clone() {
                self.keep::<L>(row, index);
            }
        }
        if self.queries.item.partials.is_none() {
            self.finish::<L>();
        }
    }
}

/// An item whose blocks are all in the partial results.
pub(crate) struct AttentionFold<'a, E: BlockProducts>(AttentionItem<'a, E>);

impl<E: BlockProducts> Kernel for AttentionFold<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let mut item = self.0;
        let partials = item.queries.item.partials.unwrap_or(0);
        item.scratch.folded.clear();
        for block in item.queries.item.blocks.clone() {
            for row in 0..item.queries.rows() {
                let (_, head) = item.queries.token_and_head(row);
                let attention = item.queries.attention;
                // SAFETY: written in the phase before.
                let (sum, values) = unsafe { attention.partials.get(partials + block, attention.model_head(head)) };
                item.scratch.folded.fold::<L>(row, sum, values);
            }
        }
        item.finish::<L>();
    }
}

impl<E: BlockProducts> AttentionItem<'_, E> {
    #[inline(always)]
    fn gather_queries<L: Lanes>(&mut self) {
        let &Attention { qkv, rope, evening, .. } = self.queries.attention;
        let head_dim = self.queries.attention.head_dim();
        for (row, token, query) in self.queries.each() {
            // SAFETY: nobody writes them in this phase.
            let query = unsafe { qkv.slice(query..query + head_dim) };
            rope.rotate::<L>(self.queries.first_position + token, query, &mut self.scratch.turned);
            if let Some(powers) = evening {
                even_out(&mut self.scratch.turned, &powers[self.queries.kv_head * head_dim..]);
            }
            E::put_query::<L>(&mut self.scratch.operands, row, &self.scratch.turned);
        }
    }

    /// One row's block: folded at once, or put aside until the others are there.
    #[inline(always)]
    fn keep<L: Lanes>(&mut self, row: usize, block: usize) {
        let attention = self.queries.attention;
        let width = attention.kv.value_width();
        let (sum, values) = (self.scratch.sums[row], &self.scratch.values.as_slice()[row * width..][..width]);
        match self.queries.item.partials {
            None => self.scratch.folded.fold::<L>(row, sum, values),
            Some(first) => {
                let (_, head) = self.queries.token_and_head(row);
                // SAFETY: this block and head are this item's alone.
                unsafe { attention.partials.put(first + block, attention.model_head(head), sum, values) };
            }
        }
    }

    #[inline(always)]
    fn finish<L: Lanes>(&mut self) {
        let attention = self.queries.attention;
        for row in 0..self.queries.rows() {
            let (token, head) = self.queries.token_and_head(row);
            let column = attention.model_head(head) * attention.head_dim();
            let (values, factor) = self.scratch.folded.result(row);
            let (row, values) = (self.queries.first_row + token, &values[..attention.head_dim()]);
            // SAFETY: this row and head belong to this item alone.
            unsafe { attention.out.put_scaled::<L>(row, column, values, factor) };
        }
    }
}
