//! Weights that have to be expanded, on their way to tiles.

use std::ops::Range;

use half::bf16;

use super::passes::Pass;
use super::tile_rows::TILE;
use super::turns::Turns;
use crate::cpu::lanes::Lanes;
use crate::cpu::tile_reader::TileReader;
use crate::cpu::weights::Matrix;

/// What the next pass will multiply with.
pub(super) struct Expanding<'a> {
    reader: TileReader<'a>,
    to: *mut bf16,
    blocks: Range<usize>,
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "taken between blocks of tiles"))]
    pub(super) turns: Turns,
}

impl<'a> Expanding<'a> {
    /// Within so many blocks; `None` where there is nothing to expand.
    ///
    /// # Safety
    /// There is room for all tiles of the pass at `to`, which nobody else uses meanwhile.
    pub(super) unsafe fn new(pass: &Pass, matrix: &'a Matrix<bf16>, to: *mut bf16, blocks: usize) -> Option<Self> {
        let reader = matrix.reader(pass.panels.clone(), pass.blocks.start)?;
        Some(Self { reader, to, blocks: pass.blocks.clone(), turns: Turns::within(blocks, pass.blocks.len()) })
    }

    /// All of it has been asked for [before](super::ahead), little by little: readers ask for much at a time, and rows that pass by
    /// meanwhile have to wait for that.
    pub(super) fn without_asking(self) -> Self {
        Self { reader: self.reader.without_asking(), ..self }
    }

    /// The next block, if there is one.
    #[inline(always)]
    pub(super) fn expand<L: Lanes>(&mut self) {
        let (block, blocks) = (self.reader.block(), &self.blocks);
        if block < blocks.end {
            // SAFETY: as `new` was promised.
            unsafe { self.reader.next::<L>(self.to.add((block - blocks.start) * TILE), blocks.len() * TILE) };
        }
    }

    /// All that is left of it, and where it is.
    #[inline(always)]
    pub(super) fn complete<L: Lanes>(mut self) -> *const bf16 {
        while self.reader.block() < self.blocks.end {
            self.expand::<L>();
        }
        self.to
    }
}
