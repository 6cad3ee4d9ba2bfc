//! What is done while tiles are multiplied, between one stretch of blocks and the next.

use std::ops::Range;

use half::bf16;

use super::PRODUCT_SUMS;
use super::ahead::Ahead;
use super::asking::{Asking, NEAR_LINES};
use super::passes::Pass;
use super::sums::{Sums, TOGETHER};
use super::tile_rows::TILE;
use crate::cpu::gemm::GemmItem;
use crate::cpu::lanes::{LANES, Lanes};
use crate::cpu::tile_reader::TileReader;
use crate::cpu::weights::Matrix;

pub(super) struct Meanwhile<'a> {
    item: &'a GemmItem<'a, bf16>,
    pub(super) ahead: Ahead,
    resumed_next: NextSums,
    unfinished: Option<Sums<'a>>,
    finishing: Turns,
    pub(super) expanding: Option<Expanding<'a>>,
}

impl<'a> Meanwhile<'a> {
    pub(super) fn new(item: &'a GemmItem<'a, bf16>) -> Self {
        Self {
            item,
            ahead: Ahead::nothing(),
            resumed_next: NextSums { at: std::ptr::null(), blocks: 0 },
            unfinished: None,
            finishing: Turns::NEVER,
            expanding: None,
        }
    }

    /// The next product resumes its sums here.
    #[inline(always)]
    pub(super) fn resume_next(&mut self, sums: *const f32) {
        self.resumed_next = NextSums { at: sums, blocks: NextSums::BLOCKS };
    }

    /// Rows that are not finished yet.
    #[inline(always)]
    pub(super) fn unfinished(&self) -> usize {
        match &self.unfinished {
            Some(sums) => sums.left(),
            None => 0,
        }
    }

    /// So many will be within so many blocks, and again within as many.
    #[inline(always)]
    pub(super) fn finish_within(&mut self, blocks: usize, rows: usize) {
        self.finishing = Turns::within(blocks, rows.div_ceil(TOGETHER));
    }

    /// These are to be finished next; those before them are finished now.
    ///
    /// # Safety
    /// Sums of these rows lie at `c`, and nobody writes there before they are finished.
    #[inline(always)]
    pub(super) unsafe fn finish_next<L: Lanes>(&mut self, rows: Range<usize>, panels: Range<usize>, c: *const f32) {
        self.finish_all::<L>();
        // SAFETY: the caller's promise.
        self.unfinished = Some(unsafe { Sums::new::<L>(self.item, rows, panels, c) });
    }

    #[inline(always)]
    pub(super) fn finish_all<L: Lanes>(&mut self) {
        if let Some(mut sums) = self.unfinished.take() {
            sums.finish_all::<L>();
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl Meanwhile<'_> {
    /// So many blocks may follow each other now.
    #[inline(always)]
    pub(super) fn blocks(&self) -> usize {
        let blocks = self.ahead.blocks().min(self.resumed_next.blocks()).min(self.finishing.until);
        match &self.expanding {
            Some(expanding) => blocks.min(expanding.turns.until),
            None => blocks,
        }
    }

    /// On their way.
    #[inline(always)]
    pub(super) fn asking(&self) -> Asking {
        Asking { far: self.ahead.pages, near: self.resumed_next.at }
    }

    /// After so many, which have asked until there.
    #[inline(always)]
    pub(super) fn go_on<L: Lanes>(&mut self, blocks: usize, asked: Asking) {
        self.ahead.go_on(blocks, asked.far);
        self.resumed_next.go_on(blocks, asked.near);
        for _ in 0..self.finishing.go_on(blocks) {
            if let Some(sums) = &mut self.unfinished {
                sums.finish_some::<L>();
            }
        }
        if let Some(expanding) = &mut self.expanding {
            for _ in 0..expanding.turns.go_on(blocks) {
                expanding.expand::<L>();
            }
        }
    }
}

/// Sums of the next product, asked for by the first blocks of this one.
struct NextSums {
    at: *const f32,
    /// That are still to ask.
    blocks: usize,
}

#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "asked for by tiles"))]
impl NextSums {
    const BLOCKS: usize = PRODUCT_SUMS / LANES / NEAR_LINES;

    #[inline(always)]
    fn blocks(&self) -> usize {
        if self.blocks == 0 { usize::MAX } else { self.blocks }
    }

    #[inline(always)]
    fn go_on(&mut self, blocks: usize, asked: *const f32) {
        self.blocks = self.blocks.saturating_sub(blocks);
        self.at = if self.blocks == 0 { std::ptr::null() } else { asked };
    }
}

/// When something is done, and how much of it.
struct Turns {
    /// Blocks from one turn to the next, and until the next one.
    every: usize,
    until: usize,
    each: usize,
}

#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "taken between blocks of tiles"))]
impl Turns {
    const NEVER: Self = Self { every: usize::MAX, until: usize::MAX, each: 0 };

    /// So much work within so many blocks, about evenly.
    #[inline(always)]
    fn within(blocks: usize, work: usize) -> Self {
        if work == 0 || blocks == 0 {
            return Self::NEVER;
        }
        let every = (blocks / work).max(1);
        Self { every, until: every, each: work.div_ceil(blocks / every) }
    }

    /// What is due after so many blocks, at most until the next turn.
    #[inline(always)]
    fn go_on(&mut self, blocks: usize) -> usize {
        self.until -= blocks;
        if self.until > 0 {
            return 0;
        }
        self.until = self.every;
        self.each
    }
}

/// What the next pass multiplies with, where weights have to be expanded.
pub(super) struct Expanding<'a> {
    reader: TileReader<'a>,
    to: *mut bf16,
    blocks: Range<usize>,
    turns: Turns,
}

impl<'a> Expanding<'a> {
    /// What a pass will multiply with, within so many blocks; `None` where there is nothing to expand. There is room for it at `to`.
    pub(super) fn new(pass: &Pass, matrix: &'a Matrix<bf16>, to: *mut bf16, blocks: usize) -> Option<Self> {
        let reader = matrix.reader(pass.panels.clone(), pass.blocks.start)?;
        Some(Self { reader, to, blocks: pass.blocks.clone(), turns: Turns::within(blocks, pass.blocks.len()) })
    }

    /// The next block, if there is one.
    #[inline(always)]
    fn expand<L: Lanes>(&mut self) {
        let (block, blocks) = (self.reader.block(), &self.blocks);
        if block < blocks.end {
            // SAFETY: `to` has room for all tiles of the pass.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_in_time() {
        for (blocks, work, every) in [(128, 16, 8), (24, 8, 3), (18, 8, 2), (64, 8, 8), (3, 8, 1), (1, 1, 1), (5, 3, 1)]
        {
            let mut turns = Turns::within(blocks, work);
            assert_eq!(turns.every, every, "{work} within {blocks}");
            let done: usize = (0..blocks).map(|_| turns.go_on(1)).sum();
            assert!((work..2 * work + every).contains(&done), "{done} of {work} within {blocks}");
        }
        assert_eq!(Turns::within(5, 0).until, usize::MAX);
        let mut never = Turns::NEVER;
        assert_eq!(never.go_on(1000), 0);
    }
}
