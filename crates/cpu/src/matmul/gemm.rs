//! Projections of many rows: which part of the output is one item for the team, and what becomes of the sums.

mod output_rows;

use std::ops::Range;

pub(crate) use self::output_rows::OutputRows;
use crate::matmul::arithmetic::{Arithmetic, LeftOperand};
use crate::matmul::quant::QuantMatmul;
use crate::matmul::rows::LeftRows;
use crate::memory::shared::Shared;
use crate::simd::isa::Isa;
use crate::weights::Projection;

/// y = x · W + bias for all rows of a step, each shard its own columns of y.
pub(crate) struct Gemm<'a, E: Arithmetic> {
    pub(crate) x: LeftRows<'a, E>,
    /// One part per shard.
    pub(crate) weights: &'a [Projection<E>],
    /// How quantized weights are multiplied.
    pub(crate) quant_matmul: QuantMatmul,
    pub(crate) y: Output<'a, E>,
}

/// What becomes of the sums. Row strides are whole vectors.
pub(crate) enum Output<'a, E: Arithmetic> {
    Store {
        y: Shared<'a, f32>,
        stride: usize,
    },
    /// y += sums
    AddTo {
        y: Shared<'a, f32>,
        stride: usize,
    },
    /// Panels alternate between gate and up: silu(gate) · up, half as wide as W.
    Gated(LeftOperand<'a, E>),
}

/// Rows of a step in blocks, which belong to members in turn: what a member computes of its own rows stays in its caches from
/// one phase to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowOwners {
    block: usize,
    blocks: usize,
    pub(crate) owners: usize,
}

impl RowOwners {
    /// For `members` of each shard; blocks are multiples of `tile_rows`, which divides `item_rows`.
    fn new(rows: usize, (tile_rows, item_rows): (usize, usize), members: usize, shards: usize) -> Self {
        let own = rows.div_ceil(members).max(LEAST_OWN_ROWS).next_multiple_of(tile_rows);
        let block = item_rows.min(own).min(rows).max(1);
        let blocks = rows.div_ceil(block);
        Self { block, blocks, owners: if shards > 1 { 1 } else { blocks.min(members).max(1) } }
    }

    /// As matmuls of this depth split rows.
    pub(crate) fn of<E: Arithmetic>(rows: usize, depth: usize, members: usize, shards: usize) -> Self {
        Self::new(rows, (E::TILE_ROWS, E::item_rows(depth)), members, shards)
    }

    pub(crate) fn owner(&self, row: usize) -> usize {
        row / self.block % self.owners
    }
}

/// How a matmul is split into items, in every shard. A member that has finished its own queue helps others.
///
/// ```text
///   many rows          panels
///                    | 0 | 1 | 2 |      queue 0: a member's own rows pass through all phases in its caches
///                    | 0 | 1 | 2 |      queue 1
///
///   few              | 0 | 1 || 0 | 1 |  queues 0 and 1: what a member prefetches beyond its item is its next one
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkSplit {
    row_block: usize,
    panel_block: usize,
    row_blocks: usize,
    /// Row block b is in queue b % queues; of a single one, each has a range of panels.
    pub(crate) queues: usize,
}

/// Enough for an even finish, few enough that the ticket costs nothing.
const ITEMS_PER_MEMBER: usize = 6;
/// Where every item of many rows reads them from afar, and the work is still shared out evenly: 3 took 4 % less time than 6.
const FAR_ITEMS_PER_MEMBER: usize = 3;
/// Fewer would read the weights too often for what they compute.
const LEAST_OWN_ROWS: usize = 128;

impl WorkSplit {
    /// `panels` and `members` are those of one shard; each member is to have `items`.
    fn new(own: &RowOwners, panels: usize, (members, items): (usize, usize), shards: usize) -> Self {
        let &RowOwners { block: row_block, blocks: row_blocks, owners } = own;
        let wanted = (members * items).div_ceil(row_blocks);
        // Even, so that gate and up stay together.
        let panel_block = panels.div_ceil(wanted).next_multiple_of(4).min(panels.next_multiple_of(2)).max(2);
        let queues = match row_blocks {
            _ if shards > 1 => 1,
            1 => members.max(1),
            _ => owners,
        };
        Self { row_block, panel_block, row_blocks, queues }
    }

    fn in_many(own: &RowOwners, panels: usize, members: usize, shards: usize) -> Self {
        Self::new(own, panels, (members, ITEMS_PER_MEMBER), shards)
    }

    /// Fewer items, if the longest share is shorter then. An equal one is not enough: it is counted in whole items, and last ones have
    /// less.
    fn in_few(own: &RowOwners, panels: usize, members: usize, shards: usize) -> Self {
        let few = Self::new(own, panels, (members, FAR_ITEMS_PER_MEMBER), shards);
        let many = Self::in_many(own, panels, members, shards);
        if few.longest_share(panels, members) < many.longest_share(panels, members) { few } else { many }
    }

    /// The most panels, times rows, that a member may have to do.
    fn longest_share(&self, panels: usize, members: usize) -> usize {
        (self.row_blocks * self.panel_blocks(panels)).div_ceil(members) * self.panel_block * self.row_block
    }

    fn panel_blocks(&self, panels: usize) -> usize {
        panels.div_ceil(self.panel_block)
    }

    fn items(&self, panels: usize, queue: usize) -> usize {
        if self.row_blocks == 1 {
            return self.own_panel_blocks(panels, queue).len();
        }
        (self.row_blocks + self.queues - 1 - queue) / self.queues * self.panel_blocks(panels)
    }

    /// The (row block, panel block) of an item: those of the same rows follow each other.
    fn place(&self, panels: usize, queue: usize, item: usize) -> (usize, usize) {
        if self.row_blocks == 1 {
            return (0, self.own_panel_blocks(panels, queue).start + item);
        }
        let panel_blocks = self.panel_blocks(panels);
        (queue + item / panel_blocks * self.queues, item % panel_blocks)
    }

    /// Of a single row block.
    fn own_panel_blocks(&self, panels: usize, queue: usize) -> Range<usize> {
        let panel_blocks = self.panel_blocks(panels);
        queue * panel_blocks / self.queues..(queue + 1) * panel_blocks / self.queues
    }
}

impl<E: Arithmetic> Gemm<'_, E> {
    /// For `members` of each shard.
    pub(crate) fn split(&self, isa: Isa, members: usize) -> WorkSplit {
        let panels = self.weights.iter().map(|part| part.matrix.panels()).max().unwrap_or(0);
        let depth = self.weights.first().map_or(0, |part| part.matrix.depth());
        let shards = self.weights.len();
        let is_integer =
            self.quant_matmul == QuantMatmul::Integer && self.weights.iter().any(|part| part.matrix.is_quantized());
        let own = RowOwners::of::<E>(self.x.len(), depth, members, shards);
        let reads_again = isa.has_tiles() && !is_integer && own.block >= LEAST_OWN_ROWS && E::reads_rows_again(depth);
        if reads_again {
            WorkSplit::in_few(&own, panels, members, shards)
        } else {
            WorkSplit::in_many(&own, panels, members, shards)
        }
    }

    pub(crate) fn items(&self, split: &WorkSplit, shard: usize, queue: usize) -> usize {
        split.items(self.weights[shard].matrix.panels(), queue)
    }

    pub(super) fn item(&self, split: &WorkSplit, shard: usize, (queue, item): (usize, usize)) -> GemmItem<'_, E> {
        let weights = &self.weights[shard];
        let all_panels = weights.matrix.panels();
        let (row_block, panel_block) = split.place(all_panels, queue, item);
        let (row, panel) = (row_block * split.row_block, panel_block * split.panel_block);
        GemmItem {
            gemm: self,
            weights,
            rows: row..(row + split.row_block).min(self.x.len()),
            panels: panel..(panel + split.panel_block).min(all_panels),
        }
    }
}

/// Rows × panels of one shard of a [`Gemm`], written by one member.
pub(crate) struct GemmItem<'a, E: Arithmetic> {
    pub(crate) gemm: &'a Gemm<'a, E>,
    pub(crate) weights: &'a Projection<E>,
    pub(crate) rows: Range<usize>,
    /// Begin at an even one.
    pub(crate) panels: Range<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_items_where_they_are_even() {
        for (rows, members, panels) in [(512, 2, 44), (512, 4, 44), (512, 16, 8), (128, 2, 12)] {
            let own = RowOwners::new(rows, (32, 256), members, 1);
            assert_eq!(WorkSplit::in_few(&own, 128, members, 1).panel_block, panels, "{rows} rows, {members} members");
        }
    }

    #[test]
    fn items_cover_everything_once() {
        for (rows, members) in [1, 2, 7, 12, 97, 512, 1000].into_iter().flat_map(|rows| [1, 2, 7].map(|n| (rows, n))) {
            for (tiles, panels) in
                [((12, 12), 1), ((12, 96), 2), ((32, 256), 3), ((32, 256), 24), ((32, 512), 40), ((12, 96), 130)]
            {
                for (shards, new) in
                    [(1, WorkSplit::in_many as fn(&_, _, _, _) -> _), (1, WorkSplit::in_few), (2, WorkSplit::in_many)]
                {
                    let split: WorkSplit = new(&RowOwners::new(rows, tiles, members, shards), panels, members, shards);
                    assert!(
                        split.row_block * split.row_blocks >= rows && split.row_block * (split.row_blocks - 1) < rows
                    );
                    assert!(split.row_blocks == 1 || split.row_block.is_multiple_of(tiles.0));
                    assert!(split.panel_block.is_multiple_of(2) && split.queues <= members);
                    // A shard may have fewer panels than the one that the split was made for.
                    for panels in [panels, panels - 1] {
                        let places = (0..split.queues).flat_map(|queue| {
                            (0..split.items(panels, queue)).map(move |item| split.place(panels, queue, item))
                        });
                        let mut places: Vec<_> = places.collect();
                        places.sort_unstable();
                        let blocks = panels.div_ceil(split.panel_block);
                        let expected = (0..split.row_blocks).flat_map(|row| (0..blocks).map(move |panel| (row, panel)));
                        assert_eq!(places, expected.collect::<Vec<_>>(), "{split:?}");
                    }
                }
            }
        }
    }
}
