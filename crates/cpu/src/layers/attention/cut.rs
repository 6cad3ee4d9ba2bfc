//! Cuts a step's attention into items of some rows and blocks.

use std::cmp::Reverse;
use std::ops::Range;

use super::BLOCK_TOKENS;
use crate::batch::Batch;
use crate::matmul::gemm::RowOwners;
use crate::shards::Shards;

/// With at least this many items for each member, all members end at about the same time.
const ITEMS_PER_MEMBER: usize = 4;

/// Cut anew for every step; buffers are reused. Items and folds are taken once for every KV head of every shard.
pub(crate) struct AttentionCut {
    /// KV heads of one shard.
    kv_heads: usize,
    /// Query heads per KV head.
    group: usize,
    /// The most rows of one item.
    block_rows: usize,
    partial_blocks: usize,
    items: Vec<ItemRows>,
    /// Items before some of them are split.
    whole: Vec<ItemRows>,
    /// The items of each owner of rows.
    queues: Vec<Range<usize>>,
    folds: Vec<ItemRows>,
}

/// Rows of one (segment, KV head): row r is head r % group of token r / group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ItemRows {
    pub(super) segment: usize,
    pub(super) rows: Range<usize>,
    /// The blocks of 256 tokens: all that the rows see, or some of them, as partial results.
    pub(super) blocks: Range<usize>,
    /// The index of the partial result of block 0, if blocks become partial results.
    pub(super) partials: Option<usize>,
}

impl AttentionCut {
    pub(crate) fn new(shards: &Shards, block_rows: usize, partial_blocks: usize) -> Self {
        let &Shards { kv_heads, .. } = shards;
        let (items, whole, queues, folds) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { kv_heads, group: shards.group(), block_rows, partial_blocks, items, whole, queues, folds }
    }

    pub(crate) fn items(&self) -> &[ItemRows] {
        &self.items
    }

    /// One queue for each member that owns rows, with the items of these; or a single queue with all items.
    pub(crate) fn queues(&self) -> &[Range<usize>] {
        &self.queues
    }

    /// The items to fold when all others are done.
    pub(crate) fn folds(&self) -> &[ItemRows] {
        &self.folds
    }

    /// Cuts a batch for `members` of each shard.
    pub(crate) fn cut(&mut self, batch: &Batch, members: usize, own: &RowOwners) {
        self.items.clear();
        self.folds.clear();
        for (segment, rows) in batch.segments.iter().enumerate() {
            let all = rows.rows.len() * self.group;
            for first in (0..all).step_by(self.block_rows) {
                let rows_end = all.min(first + self.block_rows);
                let visible = rows.first_position + rows_end.div_ceil(self.group);
                let blocks = 0..visible.div_ceil(BLOCK_TOKENS);
                self.items.push(ItemRows { segment, rows: first..rows_end, blocks, partials: None });
            }
        }
        if !(self.items.len() * self.kv_heads).is_multiple_of(members) {
            self.split(members);
        }
        // The phase ends with its last item. Where one item is a large part of the work, it must not wait in a queue behind others.
        let all: usize = self.items.iter().map(|item| item.blocks.len()).sum();
        let longest = self.items.iter().map(|item| item.blocks.len()).max().unwrap_or(0);
        let queues = if longest * members * ITEMS_PER_MEMBER > all { 1 } else { own.owners };
        let group = self.group;
        let owner = |item: &ItemRows| match queues {
            1 => 0,
            _ => own.owner(batch.segments[item.segment].rows.start + item.rows.start / group),
        };
        let tokens = |item: &ItemRows| {
            let visible = batch.segments[item.segment].first_position + item.rows.end.div_ceil(group);
            visible.min(item.blocks.end * BLOCK_TOKENS) - item.blocks.start * BLOCK_TOKENS
        };
        // Long items first.
        self.items.sort_unstable_by_key(|item| {
            (owner(item), Reverse((tokens(item), item.rows.end)), item.segment, Reverse(item.blocks.end))
        });
        self.queues.clear();
        for wanted in 0..queues {
            let first = self.queues.last().map_or(0, |queue| queue.end);
            let end = self.items.partition_point(|item| owner(item) <= wanted);
            self.queues.push(first..end);
        }
    }

    /// Called where items cannot be divided evenly among members: cuts long decoding sequences along their tokens. Blocks do not
    /// depend on each other until they are folded, and the order of folding stays the same.
    fn split(&mut self, members: usize) {
        let pieces = (ITEMS_PER_MEMBER * members).div_ceil(self.items.len() * self.kv_heads);
        let mut used_blocks = 0;
        std::mem::swap(&mut self.items, &mut self.whole);
        for whole in self.whole.drain(..) {
            let blocks = whole.blocks.len();
            let piece = blocks.div_ceil(pieces);
            // Partial results are stored by head, so the rows must be of one token.
            if whole.rows != (0..self.group) || piece == blocks || used_blocks + blocks > self.partial_blocks {
                self.items.push(whole);
                continue;
            }
            for first in (0..blocks).step_by(piece) {
                let blocks = first..blocks.min(first + piece);
                self.items.push(ItemRows { blocks, partials: Some(used_blocks), ..whole.clone() });
            }
            self.folds.push(ItemRows { partials: Some(used_blocks), ..whole });
            used_blocks += blocks;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::SegmentRows;

    fn empty() -> AttentionCut {
        let (kv_heads, group, block_rows) = (2, 3, 24);
        let (items, whole, queues, folds) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        AttentionCut { kv_heads, group, block_rows, partial_blocks: 16, items, whole, queues, folds }
    }

    /// Rows and first position of each segment.
    fn batch(segments: impl IntoIterator<Item = (Range<usize>, usize)>) -> Batch {
        let mut batch = Batch::default();
        let of_rows = |(rows, first_position)| SegmentRows { rows, first_position, pages: 0..0 };
        batch.segments.extend(segments.into_iter().map(of_rows));
        batch
    }

    /// (first position, tokens) of each segment → (segment, rows, blocks) of each item, and the folds.
    fn cut(members: usize, segments: &[(usize, usize)]) -> (Vec<(usize, usize, Range<usize>)>, usize) {
        let mut first_row = 0;
        let batch = batch(segments.iter().map(|&(first_position, tokens)| {
            first_row += tokens;
            (first_row - tokens..first_row, first_position)
        }));
        let mut cut = empty();
        cut.cut(&batch, members, &RowOwners::of::<f32>(first_row, 64, members, 1));
        let items = cut.items.iter().map(|item| (item.segment, item.rows.len(), item.blocks.clone()));
        (items.collect(), cut.folds.len())
    }

    #[test]
    fn long_items_first_and_idle_members_split_them() {
        assert_eq!(cut(2, &[(0, 10)]), (vec![(0, 6, 0..1), (0, 24, 0..1)], 0));
        // As many items as members: nothing to split.
        assert_eq!(cut(2, &[(1000, 1)]), (vec![(0, 3, 0..4)], 0));
        // 1001 tokens are 4 blocks; more pieces are wanted, 16 and 6.
        assert_eq!(cut(8, &[(1000, 1)]), (vec![(0, 3, 2..3), (0, 3, 1..2), (0, 3, 0..1), (0, 3, 3..4)], 1));
        assert_eq!(cut(3, &[(1000, 1)]), (vec![(0, 3, 2..3), (0, 3, 1..2), (0, 3, 0..1), (0, 3, 3..4)], 1));
        // Six items for four: two would wait while the others have a second one.
        assert_eq!(
            cut(4, &[(300, 1), (100, 1), (500, 1)]),
            (vec![(0, 3, 0..1), (2, 3, 0..1), (2, 3, 1..2), (1, 3, 0..1), (0, 3, 1..2)], 2)
        );
        // Four for four, and enough for everybody; five sequences are cut in two pieces each.
        assert_eq!(cut(4, &[(300, 1), (500, 1)]), (vec![(1, 3, 0..2), (0, 3, 0..2)], 0));
        assert_eq!((cut(3, &[(300, 1); 7]).1, cut(3, &[(300, 1); 5]).1), (0, 5));
        // More blocks than partial results: whole.
        assert_eq!(cut(8, &[(5000, 1)]), (vec![(0, 3, 0..20)], 0));
        assert_eq!(cut(64, &[(100, 1), (600, 2)]), (vec![(1, 6, 0..3), (0, 3, 0..1)], 0));
    }

    #[test]
    fn buffers_are_kept() {
        let mut cut = empty();
        cut.items.reserve(100);
        cut.whole.reserve(100);
        cut.cut(&batch([(0..1, 1000)]), 3, &RowOwners::of::<f32>(1, 64, 3, 1));
        assert!(cut.folds.len() == 1 && cut.items.capacity() >= 100 && cut.whole.capacity() >= 100);
    }

    #[test]
    fn a_members_own_rows_are_in_its_queue() {
        let batch = batch([(0..40, 100), (40..600, 0)]);
        let mut cut = empty();
        for members in [1, 2, 3] {
            let own = RowOwners::of::<f32>(600, 64, members, 1);
            cut.cut(&batch, members, &own);
            assert_eq!((cut.queues.len(), cut.queues[0].start), (members, 0));
            assert_eq!(cut.queues[members - 1].end, cut.items.len());
            for (queue, items) in cut.queues.iter().enumerate() {
                assert!(queue == 0 || cut.queues[queue - 1].end == items.start);
                assert!(
                    !items.is_empty() && cut.items[items.clone()].is_sorted_by_key(|item| Reverse(item.blocks.len()))
                );
                for item in &cut.items[items.clone()] {
                    assert_eq!(own.owner(batch.segments[item.segment].rows.start + item.rows.start / 3), queue);
                }
            }
        }
    }

    #[test]
    fn a_long_item_does_not_wait_for_its_queue() {
        let batch = batch([(0..1, 16_000), (1..600, 0)]);
        let mut cut = empty();
        cut.cut(&batch, 4, &RowOwners::of::<f32>(600, 64, 4, 1));
        assert_eq!((cut.queues.len(), cut.queues[0].clone(), cut.items[0].segment), (1, 0..cut.items.len(), 0));
    }
}
