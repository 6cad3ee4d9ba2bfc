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

mod cut;
mod partials;
mod softmax;

use std::ops::Range;

use baton_core::{PAGE_TOKENS, PageId};

pub(crate) use self::cut::{AttentionCut, ItemRows};
pub(crate) use self::partials::{PartialBuffers, Partials};
use self::softmax::{BlockSum, Folded, softmax_block};
use super::arithmetic::{Arithmetic, Waiting};
use super::batch::Batch;
use super::chain::{MAX_TILE_ROWS, Product};
use super::element::pair_stride;
use super::isa::Kernel;
use super::kv::KvShard;
use super::lanes::{LANES, Lanes};
use super::rope::RopeTable;
use super::shards::Shards;
use super::shared::Shared;

/// Part of the reduction plan: changing it changes results.
pub(crate) const BLOCK_TOKENS: usize = 256;

/// Query rows of one item. A row is one query head at one position; rows that share a KV head go by position, then head.
pub(crate) const BLOCK_ROWS: usize = 2 * MAX_TILE_ROWS;

/// What all items of one layer and shard have in common. Heads are the shard's, numbered from 0.
pub(crate) struct Attention<'a, E: Arithmetic> {
    pub(crate) kv: KvShard<'a, E>,
    pub(crate) layer: usize,
    pub(crate) rope: &'a RopeTable,
    pub(crate) shards: Shards,
    pub(crate) shard: usize,
    /// Rows of the step: heads of q (not yet rotated), then k, then v. Not written in this phase.
    pub(crate) qkv: Shared<'a, f32>,
    pub(crate) qkv_stride: usize,
    /// Where the shard's heads of q begin.
    pub(crate) qkv_first: usize,
    pub(crate) out: Waiting<'a, E>,
    pub(crate) partials: Partials<'a>,
}

impl<'a, E: Arithmetic> Attention<'a, E> {
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
        scratch: &'a mut AttentionScratch,
    ) -> AttentionItem<'a, E> {
        let segment = &batch.segments[item.segment];
        AttentionItem {
            attention: self,
            kv_head,
            pages: &batch.pages[segment.pages.clone()],
            first_row: segment.rows.start,
            first_position: segment.first_position,
            item,
            scratch,
        }
    }

    /// Folds the partial results of an item that was split.
    pub(crate) fn fold(
        &'a self,
        batch: &'a Batch,
        item: &'a ItemRows,
        kv_head: usize,
        scratch: &'a mut AttentionScratch,
    ) -> AttentionFold<'a, E> {
        AttentionFold(self.item(batch, item, kv_head, scratch))
    }
}

/// Buffers of one member.
pub(crate) struct AttentionScratch {
    /// One rotated query.
    turned: Vec<f32>,
    /// `[dimension][row]`
    queries: Vec<f32>,
    /// `[row][token]`: scores, then weights.
    scores: Vec<f32>,
    /// Of one block.
    sums: Vec<BlockSum>,
    values: Vec<f32>,
    folded: Folded,
}

impl AttentionScratch {
    pub(crate) fn new(head_dim: usize, value_width: usize) -> Self {
        Self {
            turned: vec![0.0; head_dim],
            queries: vec![0.0; BLOCK_ROWS * head_dim],
            scores: vec![0.0; BLOCK_ROWS * BLOCK_TOKENS],
            sums: vec![BlockSum::EMPTY; BLOCK_ROWS],
            values: vec![0.0; BLOCK_ROWS * value_width],
            folded: Folded::new(BLOCK_ROWS, value_width),
        }
    }
}

pub(crate) struct AttentionItem<'a, E: Arithmetic> {
    attention: &'a Attention<'a, E>,
    kv_head: usize,
    pages: &'a [PageId],
    /// The segment's first row in the step, and its position.
    first_row: usize,
    first_position: usize,
    item: &'a ItemRows,
    scratch: &'a mut AttentionScratch,
}

impl<E: Arithmetic> Kernel for AttentionItem<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        self.gather_queries::<L>();
        self.scratch.folded.clear();
        let scale = 1.0 / (self.attention.head_dim() as f32).sqrt();
        let longest = self.visible(self.rows() - 1);
        for block in self.item.blocks.clone() {
            let (begin, end) = (block * BLOCK_TOKENS, longest.min((block + 1) * BLOCK_TOKENS));
            // Rows see more and more: the first ones may end before this block.
            let first = (0..self.rows()).find(|&row| self.visible(row) > begin).unwrap_or(self.rows());
            self.scores::<L>(first, begin..end);
            for row in first..self.rows() {
                let visible = self.visible(row).min(end) - begin;
                let scores = &mut self.scratch.scores[row * BLOCK_TOKENS..][..BLOCK_TOKENS];
                self.scratch.sums[row] = softmax_block::<L>(scores, visible, scale);
            }
            self.values::<L>(first, begin..end);
            for row in first..self.rows() {
                self.keep::<L>(row, block);
            }
        }
        if self.item.partials.is_none() {
            self.finish::<L>();
        }
    }
}

/// An item whose blocks are all in the partial results.
pub(crate) struct AttentionFold<'a, E: Arithmetic>(AttentionItem<'a, E>);

impl<E: Arithmetic> Kernel for AttentionFold<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let mut item = self.0;
        let partials = item.item.partials.unwrap_or(0);
        item.scratch.folded.clear();
        for block in item.item.blocks.clone() {
            for row in 0..item.rows() {
                let (_, head) = item.token_and_head(row);
                // SAFETY: written in the phase before.
                let (sum, values) =
                    unsafe { item.attention.partials.get(partials + block, item.attention.model_head(head)) };
                item.scratch.folded.fold::<L>(row, sum, values);
            }
        }
        item.finish::<L>();
    }
}

impl<E: Arithmetic> AttentionItem<'_, E> {
    #[inline(always)]
    fn rows(&self) -> usize {
        self.item.rows.len()
    }

    /// Of a row of this block.
    #[inline(always)]
    fn token_and_head(&self, row: usize) -> (usize, usize) {
        let (row, group) = (self.item.rows.start + row, self.attention.shards.group());
        (row / group, self.kv_head * group + row % group)
    }

    /// Tokens a row of this block sees: all up to its own.
    #[inline(always)]
    fn visible(&self, row: usize) -> usize {
        self.first_position + (self.item.rows.start + row) / self.attention.shards.group() + 1
    }

    #[inline(always)]
    fn gather_queries<L: Lanes>(&mut self) {
        let &Attention { qkv, qkv_stride, qkv_first, rope, .. } = self.attention;
        let head_dim = self.attention.head_dim();
        for row in 0..self.rows() {
            let (token, head) = self.token_and_head(row);
            let first = (self.first_row + token) * qkv_stride + qkv_first + head * head_dim;
            // SAFETY: nobody writes them in this phase.
            let query = unsafe { qkv.slice(first..first + head_dim) };
            rope.rotate::<L>(self.first_position + token, query, &mut self.scratch.turned);
            for (dim, &value) in self.scratch.turned.iter().enumerate() {
                self.scratch.queries[dim * BLOCK_ROWS + row] = value;
            }
        }
    }

    /// q · k of rows `first..` and tokens `block`.
    #[inline(always)]
    fn scores<L: Lanes>(&mut self, first: usize, block: Range<usize>) {
        let &Attention { kv, layer, .. } = self.attention;
        for begin in block.clone().step_by(PAGE_TOKENS) {
            let tokens = PAGE_TOKENS.min(block.end - begin);
            let page = self.pages[begin / PAGE_TOKENS];
            // Queries and scores hold `BLOCK_ROWS` rows; the page holds 32 columns of `head_dim` k.
            L::call(Product::<E, 1> {
                rows: self.rows() - first,
                panels: tokens.div_ceil(LANES),
                depth: self.attention.head_dim(),
                a: self.scratch.queries[first..].as_ptr(),
                a_step: BLOCK_ROWS,
                b: kv.keys(layer, page, self.kv_head).cast_const(),
                b_pair_stride: pair_stride(PAGE_TOKENS),
                b_panel_stride: E::index(0, LANES, PAGE_TOKENS),
                c: self.scratch.scores[first * BLOCK_TOKENS + begin - block.start..].as_mut_ptr(),
                c_stride: BLOCK_TOKENS,
                resume: false,
            });
        }
    }

    /// p · v of rows `first..` over the tokens of `block` that each sees; nothing is read beyond them, since what lies
    /// there may be a former owner's.
    #[inline(always)]
    fn values<L: Lanes>(&mut self, first: usize, block: Range<usize>) {
        let mut tile = first;
        while tile < self.rows() {
            let tile_end = (tile + MAX_TILE_ROWS).min(self.rows());
            // What all rows of the tile see, in whole pairs; then the rest, rows of one position at a time.
            let common = (self.visible(tile).min(block.end) - block.start) & !1;
            self.values_of::<L>(tile..tile_end, block.start, 0..common);
            let mut row = tile;
            while row < tile_end {
                let visible = self.visible(row);
                let next = (row..tile_end).find(|&row| self.visible(row) != visible).unwrap_or(tile_end);
                let end = visible.min(block.end) - block.start;
                if end > common {
                    self.values_of::<L>(row..next, block.start, common..end);
                }
                row = next;
            }
            tile = tile_end;
        }
    }

    /// p · v of `rows` over `tokens` of the block at `block`; continues earlier sums unless it starts at 0.
    #[inline(always)]
    fn values_of<L: Lanes>(&mut self, rows: Range<usize>, block: usize, tokens: Range<usize>) {
        let &Attention { kv, layer, .. } = self.attention;
        let width = kv.value_width();
        let mut begin = tokens.start;
        while begin < tokens.end {
            let position = block + begin;
            let end = tokens.end.min(begin + PAGE_TOKENS - position % PAGE_TOKENS);
            let page = self.pages[position / PAGE_TOKENS];
            let values = kv.values(layer, page, self.kv_head).cast_const();
            // Scores and values hold `BLOCK_ROWS` rows; the page holds 32 k of `width` columns, and the first is even.
            L::call(Product::<E, BLOCK_TOKENS> {
                rows: rows.len(),
                panels: width / LANES,
                depth: end - begin,
                a: self.scratch.scores[rows.start * BLOCK_TOKENS + begin..].as_ptr(),
                a_step: 1,
                b: values.wrapping_add(E::index(position % PAGE_TOKENS, 0, width)),
                b_pair_stride: pair_stride(width),
                b_panel_stride: E::index(0, LANES, width),
                c: self.scratch.values[rows.start * width..].as_mut_ptr(),
                c_stride: width,
                resume: begin > 0,
            });
            begin = end;
        }
    }

    /// One row's block: folded at once, or put aside until the others are there.
    #[inline(always)]
    fn keep<L: Lanes>(&mut self, row: usize, block: usize) {
        let width = self.attention.kv.value_width();
        let (sum, values) = (self.scratch.sums[row], &self.scratch.values[row * width..][..width]);
        match self.item.partials {
            None => self.scratch.folded.fold::<L>(row, sum, values),
            Some(first) => {
                let (_, head) = self.token_and_head(row);
                // SAFETY: this block and head are this item's alone.
                unsafe { self.attention.partials.put(first + block, self.attention.model_head(head), sum, values) };
            }
        }
    }

    #[inline(always)]
    fn finish<L: Lanes>(&mut self) {
        let head_dim = self.attention.head_dim();
        for row in 0..self.rows() {
            let (token, head) = self.token_and_head(row);
            let column = self.attention.model_head(head) * head_dim;
            let attended = &self.scratch.folded.finish::<L>(row)[..head_dim];
            // SAFETY: this row and head belong to this item alone.
            unsafe { self.attention.out.put_slice::<L>(self.first_row + token, column, attended) };
        }
    }
}
