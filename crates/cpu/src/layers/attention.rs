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
mod cut;
mod kernel_bf16;
mod kernel_f32;
mod partials;
mod queries;
mod softmax;
mod tile_pages;

use self::block::Block;
pub(crate) use self::block::BlockProducts;
pub(crate) use self::cut::{AttentionCut, ItemRows};
pub(crate) use self::partials::{PartialBuffers, Partials};
use self::queries::{NextQueries, Queries, Query};
use self::softmax::{BlockSum, Folded};
use super::rope::{RopeTable, rotated};
use crate::batch::Batch;
use crate::matmul::arithmetic::{Arithmetic, LeftOperand};
use crate::memory::kv::{KvShard, apply_scales};
use crate::memory::region::Floats;
use crate::memory::shared::Shared;
use crate::shards::Shards;
use crate::simd::math::TOGETHER;
use crate::simd::vector::{Kernel, LANES, Lanes, padded};
use baton_backend::BackendError;

/// The number of tokens whose values are summed at once. Changing it changes results.
pub(crate) const BLOCK_TOKENS: usize = 256;

/// What all items of one layer and shard share. Heads are the shard's, numbered from 0.
pub(crate) struct Attention<'a, E: BlockProducts> {
    pub(crate) kv: KvShard<'a, E>,
    pub(crate) layer: usize,
    /// Factors of queries for each of the shard's KV heads, where keys are scaled.
    pub(crate) query_scales: Option<&'a [f32]>,
    pub(crate) rope: &'a RopeTable,
    pub(crate) shards: Shards,
    pub(crate) shard: usize,
    /// Rows of the step: heads of q (not yet rotated), then k, then v. Not written in this phase.
    pub(crate) qkv: Shared<'a, f32>,
    pub(crate) qkv_stride: usize,
    /// The index of the shard's first head of q in a row.
    pub(crate) qkv_first: usize,
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

    pub(crate) fn item<W: Arithmetic>(
        &'a self,
        batch: &'a Batch,
        item: &'a ItemRows,
        kv_head: usize,
        scratch: &'a mut AttentionScratch<E>,
        out: LeftOperand<'a, W>,
    ) -> AttentionItem<'a, E, W> {
        AttentionItem { queries: self.queries(batch, item, kv_head), next: None, scratch, out }
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
            group: self.shards.group(),
            item,
        }
    }

    /// Folds the partial results of an item that was split.
    pub(crate) fn fold<W: Arithmetic>(
        &'a self,
        batch: &'a Batch,
        item: &'a ItemRows,
        kv_head: usize,
        scratch: &'a mut AttentionScratch<E>,
        out: LeftOperand<'a, W>,
    ) -> AttentionFold<'a, E, W> {
        AttentionFold(self.item(batch, item, kv_head, scratch, out))
    }
}

/// Buffers of one member.
pub(crate) struct AttentionScratch<E: BlockProducts> {
    /// Buffer for one rotated query.
    turned: Vec<f32>,
    /// The number of tokens that each row sees: all up to its own.
    visible: Vec<usize>,
    operands: E::Operands,
    /// `[row][token]` of one block.
    scores: Floats,
    /// The largest score of each row.
    largest: Vec<f32>,
    sums: Vec<BlockSum>,
    values: Floats,
    folded: Folded,
}

impl<E: BlockProducts> AttentionScratch<E> {
    pub(crate) fn new(head_dim: usize) -> Result<Self, BackendError> {
        let width = padded(head_dim);
        Ok(Self {
            turned: vec![0.0; head_dim],
            visible: Vec::with_capacity(E::BLOCK_ROWS),
            operands: E::operands(head_dim)?,
            scores: Floats::new(E::BLOCK_ROWS * BLOCK_TOKENS)?,
            largest: vec![0.0; E::BLOCK_ROWS],
            sums: vec![BlockSum::EMPTY; E::BLOCK_ROWS],
            values: Floats::new(E::BLOCK_ROWS * width)?,
            folded: Folded::new(E::BLOCK_ROWS, width)?,
        })
    }
}

/// Results are written to rows of the next matmul, whose weights are `W`.
pub(crate) struct AttentionItem<'a, E: BlockProducts, W: Arithmetic> {
    queries: Queries<'a, E>,
    next: Option<NextQueries>,
    scratch: &'a mut AttentionScratch<E>,
    out: LeftOperand<'a, W>,
}

impl<'a, E: BlockProducts, W: Arithmetic> AttentionItem<'a, E, W> {
    /// Also prefetches the queries of the item that this member will probably do next.
    pub(crate) fn before(
        self,
        attention: &'a Attention<'a, E>,
        batch: &'a Batch,
        next: &'a ItemRows,
        kv_head: usize,
    ) -> Self {
        Self { next: Some(NextQueries::new(&attention.queries(batch, next, kv_head))), ..self }
    }
}

impl<E: BlockProducts, W: Arithmetic> Kernel for AttentionItem<'_, E, W> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        self.gather_queries::<L>();
        // Softmax uses powers of two, so log₂ e is a part of the scale.
        let scale = std::f32::consts::LOG2_E / (self.queries.attention.head_dim() as f32).sqrt();
        for index in self.queries.item.blocks.clone() {
            let AttentionScratch { visible, operands, scores, largest, sums, values, folded, .. } = &mut *self.scratch;
            let block = Block::new(&self.queries, visible, index);
            let scores = scores.as_mut_slice();
            E::scores::<L>(&block, operands, scores);
            Softened { block: &block, operands, scores, scale, next: self.next.take(), largest, sums }.run::<L>();
            E::values::<L>(&block, operands, scores, values.as_mut_slice());
            match self.queries.item.partials {
                Some(first) => self.put_aside(first + index),
                None if index == 0 => folded.begin(&sums[..block.rows.end], values),
                None => {
                    let width = self.queries.attention.kv.value_width();
                    for row in block.rows.clone() {
                        folded.fold::<L>(row, sums[row], &values.as_slice()[row * width..][..width]);
                    }
                }
            }
        }
        if self.queries.item.partials.is_none() {
            self.finish::<L>();
        }
    }
}

/// Softmax of one block's scores.
struct Softened<'a, 'b, E: BlockProducts> {
    block: &'a Block<'b, E>,
    operands: &'a mut E::Operands,
    scores: &'a mut [f32],
    scale: f32,
    next: Option<NextQueries>,
    largest: &'a mut [f32],
    sums: &'a mut [BlockSum],
}

impl<E: BlockProducts> Softened<'_, '_, E> {
    /// Handles several rows together where there are registers for them, then the rest one by one. The largest scores of all rows
    /// come first, so that no exponential waits for one.
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let rows = self.block.rows.clone();
        let together = if L::MANY_REGISTERS { rows.len() / TOGETHER * TOGETHER } else { 0 };
        for row in (rows.start..rows.start + together).step_by(TOGETHER) {
            self.find_largest::<L, TOGETHER>(row);
        }
        for row in rows.start + together..rows.end {
            self.find_largest::<L, 1>(row);
        }
        for row in (rows.start..rows.start + together).step_by(TOGETHER) {
            self.weigh::<L, TOGETHER, TOGETHER>(row);
        }
        for row in rows.start + together..rows.end {
            if L::MANY_REGISTERS { self.weigh::<L, 1, TOGETHER>(row) } else { self.weigh::<L, 1, 1>(row) }
        }
        if let Some(next) = &mut self.next {
            next.prefetch::<L>(E::BLOCK_ROWS);
        }
    }

    #[inline(always)]
    fn find_largest<L: Lanes, const R: usize>(&mut self, row: usize) {
        let scores = &mut self.scores[row * BLOCK_TOKENS..][..R * BLOCK_TOKENS];
        let largest = E::largest::<L, R>(self.block, self.operands, row, scores, self.scale);
        self.largest[row..row + R].copy_from_slice(&largest);
    }

    #[inline(always)]
    fn weigh<L: Lanes, const R: usize, const N: usize>(&mut self, row: usize) {
        let scores = &mut self.scores[row * BLOCK_TOKENS..][..R * BLOCK_TOKENS];
        let mut largest = [0.0; R];
        largest.copy_from_slice(&self.largest[row..row + R]);
        let sums = E::weigh::<L, R, N>(self.block, self.operands, row, scores, (self.scale, largest));
        self.sums[row..row + R].copy_from_slice(&sums);
        if let Some(next) = &mut self.next {
            next.prefetch::<L>(R);
        }
    }
}

/// Folds an item whose blocks are all in the partial results.
pub(crate) struct AttentionFold<'a, E: BlockProducts, W: Arithmetic>(AttentionItem<'a, E, W>);

impl<E: BlockProducts, W: Arithmetic> Kernel for AttentionFold<'_, E, W> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let mut item = self.0;
        let partials = item.queries.item.partials.unwrap_or(0);
        for block in item.queries.item.blocks.clone() {
            for Query { row, head, .. } in item.queries.each() {
                let attention = item.queries.attention;
                // SAFETY: written in the phase before.
                let (sum, values) = unsafe { attention.partials.get(partials + block, attention.model_head(head)) };
                match block {
                    0 => item.scratch.folded.put(row, sum, values),
                    _ => item.scratch.folded.fold::<L>(row, sum, values),
                }
            }
        }
        item.finish::<L>();
    }
}

impl<E: BlockProducts, W: Arithmetic> AttentionItem<'_, E, W> {
    #[inline(always)]
    fn gather_queries<L: Lanes>(&mut self) {
        let &Attention { qkv, rope, query_scales, .. } = self.queries.attention;
        let head_dim = self.queries.attention.head_dim();
        let AttentionScratch { turned, visible, operands, .. } = &mut *self.scratch;
        visible.clear();
        for Query { row, token, at, .. } in self.queries.each() {
            let position = self.queries.first_position + token;
            visible.push(position + 1);
            // SAFETY: no thread writes them in this phase.
            let query = unsafe { qkv.slice(at..at + head_dim) };
            if query_scales.is_none() && rope.is_whole() {
                let (half, turn) = (head_dim / 2, rope.at(position));
                for j in (0..half).step_by(LANES) {
                    let (low, high) = rotated::<L>(turn, query, j);
                    E::put_some(operands, row, j, low);
                    E::put_some(operands, row, half + j, high);
                }
                continue;
            }
            rope.rotate::<L>(position, query, turned);
            if let Some(scales) = query_scales {
                apply_scales(turned, &scales[self.queries.kv_head * head_dim..]);
            }
            E::put_query::<L>(operands, row, turned);
        }
    }

    /// Stores a block's rows as partial results, to be folded when all blocks are done.
    #[inline(always)]
    fn put_aside(&self, place: usize) {
        let attention = self.queries.attention;
        let (width, values) = (attention.kv.value_width(), self.scratch.values.as_slice());
        for Query { row, head, .. } in self.queries.each() {
            let (sum, values) = (self.scratch.sums[row], &values[row * width..][..width]);
            // SAFETY: this block and head are this item's alone.
            unsafe { attention.partials.put(place, attention.model_head(head), sum, values) };
        }
    }

    #[inline(always)]
    fn finish<L: Lanes>(&mut self) {
        let attention = self.queries.attention;
        for Query { row, token, head, .. } in self.queries.each() {
            let column = attention.model_head(head) * attention.head_dim();
            let (values, factor) = self.scratch.folded.result(row);
            let (row, values) = (self.queries.first_row + token, &values[..attention.head_dim()]);
            // SAFETY: this row and head belong to this item alone.
            unsafe { self.out.put_scaled::<L>(row, column, values, factor) };
        }
    }
}
