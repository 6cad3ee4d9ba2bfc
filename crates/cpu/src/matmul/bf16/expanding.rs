//! Weights that have to be expanded, on their way to tiles.

use std::ops::Range;

use half::bf16;

use super::pace::Pace;
use super::passes::Pass;
use crate::simd::vector::Lanes;
use crate::weights::Matrix;
use crate::weights::layout::TILE;
use crate::weights::tile_reader::TileReader;

/// The weights of the next pass.
pub(super) struct Expanding<'a> {
    reader: TileReader<'a>,
    to: *mut bf16,
    panel_stride: usize,
    /// Blocks of the pass that are left.
    left: Range<usize>,
    pub(super) pace: Pace,
}

impl<'a> Expanding<'a> {
    /// Expands everything when the pass begins, or [before that](Self::within). `None` where there is nothing to expand.
    ///
    /// # Safety
    /// There is room for all tiles of the pass at `to`, which no one else uses until then.
    pub(super) unsafe fn new(pass: &Pass, matrix: &'a Matrix<bf16>, to: *mut bf16) -> Option<Self> {
        let reader = TileReader::new(matrix, pass.panels.clone(), pass.blocks.start)?;
        let blocks = pass.blocks.len();
        Some(Self { reader, to, panel_stride: blocks * TILE, left: 0..blocks, pace: Pace::NEVER })
    }

    /// Without prefetches of its own, for weights that were prefetched in small steps: a reader prefetches much at a time, and rows
    /// that stream past would have to wait for that.
    pub(super) fn without_prefetch(self) -> Self {
        Self { reader: self.reader.without_prefetch(), ..self }
    }

    /// Expands a little at a time, within `blocks`, so that the reader waits for memory while tiles are multiplied. Where it does not
    /// wait this takes longer, as vectors and tiles alternate.
    pub(super) fn within(self, blocks: usize) -> Self {
        let pace = Pace::within(blocks, self.left.len());
        Self { pace, ..self }
    }

    /// The next blocks; fewer if fewer are left.
    #[inline(always)]
    pub(super) fn expand<L: Lanes>(&mut self, blocks: usize) {
        let blocks = blocks.min(self.left.len());
        // SAFETY: as `new` was promised.
        unsafe { self.reader.next::<L>(blocks, self.to.add(self.left.start * TILE), self.panel_stride) };
        self.left.start += blocks;
    }

    /// Expands what is left. Returns where the tiles are, and the stride of panels.
    #[inline(always)]
    pub(super) fn complete<L: Lanes>(mut self) -> (*const bf16, usize) {
        self.expand::<L>(self.left.len());
        (self.to, self.panel_stride)
    }
}
