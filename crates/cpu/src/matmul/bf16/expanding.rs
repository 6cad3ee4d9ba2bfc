//! Weights that have to be expanded, on their way to tiles.

use std::ops::Range;

use half::bf16;

use super::passes::Pass;
use super::turns::Turns;
use crate::simd::vector::Lanes;
use crate::weights::Matrix;
use crate::weights::layout::TILE;
use crate::weights::tile_reader::TileReader;

/// What the next pass will multiply with.
pub(super) struct Expanding<'a> {
    reader: TileReader<'a>,
    to: *mut bf16,
    panel_stride: usize,
    /// Of the pass, those that are left.
    left: Range<usize>,
    pub(super) turns: Turns,
}

impl<'a> Expanding<'a> {
    /// When the turn of the pass comes. `None` where there is nothing to expand.
    ///
    /// # Safety
    /// There is room for all tiles of the pass at `to`, which nothing else uses until then.
    pub(super) unsafe fn new(pass: &Pass, matrix: &'a Matrix<bf16>, to: *mut bf16) -> Option<Self> {
        let reader = TileReader::new(matrix, pass.panels.clone(), pass.blocks.start)?;
        let blocks = pass.blocks.len();
        Some(Self { reader, to, panel_stride: blocks * TILE, left: 0..blocks, turns: Turns::NEVER })
    }

    /// All of it has been prefetched by then, little by little: readers prefetch much at a time, and rows that stream past would have
    /// to wait for that.
    pub(super) fn without_prefetch(self) -> Self {
        Self { reader: self.reader.without_prefetch(), ..self }
    }

    /// Little by little, within `blocks` blocks: so its reader waits for memory while tiles are multiplied. Otherwise it
    /// takes longer, as vectors and tiles alternate.
    pub(super) fn within(self, blocks: usize) -> Self {
        let turns = Turns::within(blocks, self.left.len());
        Self { turns, ..self }
    }

    /// The next blocks; fewer if fewer are left.
    #[inline(always)]
    pub(super) fn expand<L: Lanes>(&mut self, blocks: usize) {
        let blocks = blocks.min(self.left.len());
        // SAFETY: as `new` was promised.
        unsafe { self.reader.next::<L>(blocks, self.to.add(self.left.start * TILE), self.panel_stride) };
        self.left.start += blocks;
    }

    /// All that is left of it, and where it is: panels so far apart.
    #[inline(always)]
    pub(super) fn complete<L: Lanes>(mut self) -> (*const bf16, usize) {
        self.expand::<L>(self.left.len());
        (self.to, self.panel_stride)
    }
}
