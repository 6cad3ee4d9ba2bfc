//! Tiles of one panel or two, in the order in which their codes lie in memory.

use std::marker::PhantomData;
use std::ops::Range;

use half::bf16;

use super::super::cell_format::CellFormat;
use super::PREFETCH_BYTES;
use super::expand::Expand;
use crate::simd::vector::Lanes;
use crate::weights::layout::TILE;

#[derive(Clone)]
pub(crate) struct CellReader<'a> {
    blocks: Range<usize>,
    /// What is asked for is so many blocks ahead: of the same panel, or, where these are read to their end, of the one that
    /// comes next.
    ahead: usize,
    /// Blocks of panels in between.
    between: usize,
    /// For blocks that are still far.
    asks: bool,
    first: (CellFormat, *const u8),
    second: Option<(CellFormat, *const u8)>,
    cells: PhantomData<&'a [u8]>,
}

impl CellReader<'_> {
    /// # Safety
    /// Panels have these blocks, and are readable as long as it lives.
    pub(in crate::matmul::quant) unsafe fn new(
        first: (CellFormat, *const u8),
        second: Option<(CellFormat, *const u8)>,
        blocks: Range<usize>,
    ) -> Self {
        let ahead = PREFETCH_BYTES / first.0.block_bytes();
        let between = if second.is_some() { blocks.end } else { 0 };
        Self { blocks, ahead, between, asks: true, first, second, cells: PhantomData }
    }

    /// Somebody else asks for what it will read.
    pub(crate) fn without_asking(self) -> Self {
        Self { asks: false, ..self }
    }

    pub(crate) fn panels(&self) -> usize {
        1 + usize::from(self.second.is_some())
    }

    /// The next `blocks` of each panel, one behind the other, panels `panel_stride` apart.
    ///
    /// # Safety
    /// So many tiles are writable at `to`, and with a second panel as many at `to` + `panel_stride`.
    #[inline(always)]
    pub(crate) unsafe fn next<L: Lanes>(&mut self, blocks: usize, to: *mut bf16, panel_stride: usize) {
        let passed = self.blocks.start..self.blocks.start + blocks;
        assert!(passed.end <= self.blocks.end);
        self.blocks.start = passed.end;
        for (place, block) in passed.enumerate() {
            let after = block + self.ahead;
            let after = if after < self.blocks.end { after } else { after + self.between };
            for (which, panel) in [Some(self.first), self.second].into_iter().enumerate() {
                let Some((format, cells)) = panel else { continue };
                if self.asks {
                    format.prefetch::<L>(cells, after);
                }
                // SAFETY: the caller's promise; panels have the block.
                let to = unsafe { to.add(which * panel_stride + place * TILE) };
                L::call(Expand { format, cells, block, to });
            }
        }
    }
}
