//! What is done while tiles are multiplied, between one stretch of blocks and the next.

use std::ops::Range;

use half::bf16;

use super::ahead::Ahead;
use super::expanding::Expanding;
use super::sizes::PRODUCT_SUMS;
use super::sums::Sums;
use super::turns::Turns;
use crate::matmul::gemm::GemmItem;
use crate::simd::math::TOGETHER;
use crate::simd::prefetch::Prefetch;
use crate::simd::vector::{LANES, Lanes};

pub(super) struct Overlap<'a> {
    item: &'a GemmItem<'a, bf16>,
    pub(super) ahead: Ahead,
    resumed_next: NextSums,
    unfinished: Option<Sums<'a>>,
    finishing: Turns,
    pub(super) expanding: Option<Expanding<'a>>,
}

impl<'a> Overlap<'a> {
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

    /// Finishes `rows` rows within `blocks` blocks, and as many within the blocks after these.
    #[inline(always)]
    pub(super) fn finish_within(&mut self, blocks: usize, rows: usize) {
        self.finishing = Turns::within(blocks, rows.div_ceil(TOGETHER));
    }

    /// These are to be finished next; those before them are finished now.
    ///
    /// # Safety
    /// Sums of these rows lie at `c`, and nothing else is written there before they are finished.
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

impl Overlap<'_> {
    /// Blocks that may follow each other now.
    #[inline(always)]
    pub(super) fn blocks(&self) -> usize {
        let expanding = self.expanding.as_ref().map_or(usize::MAX, |expanding| expanding.turns.until);
        self.ahead.blocks().min(self.resumed_next.blocks()).min(self.finishing.until).min(expanding)
    }

    /// On their way.
    #[inline(always)]
    pub(super) fn prefetch(&self) -> Prefetch {
        Prefetch { far: self.ahead.pages, near: self.resumed_next.at }
    }

    /// Called after `blocks` blocks, which have prefetched up to `reached`.
    #[inline(always)]
    pub(super) fn go_on<L: Lanes>(&mut self, blocks: usize, reached: Prefetch) {
        self.ahead.go_on(blocks, reached.far);
        self.resumed_next.go_on(blocks, reached.near);
        for _ in 0..self.finishing.go_on(blocks) {
            if let Some(sums) = &mut self.unfinished {
                sums.finish_some::<L>();
            }
        }
        if let Some(expanding) = &mut self.expanding {
            let due = expanding.turns.go_on(blocks);
            expanding.expand::<L>(due);
        }
    }
}

/// Sums of the next product, prefetched by the first blocks of this one.
struct NextSums {
    at: *const f32,
    /// That have yet to prefetch some.
    blocks: usize,
}

impl NextSums {
    const BLOCKS: usize = PRODUCT_SUMS / LANES / Prefetch::NEAR_LINES;

    #[inline(always)]
    fn blocks(&self) -> usize {
        if self.blocks == 0 { usize::MAX } else { self.blocks }
    }

    #[inline(always)]
    fn go_on(&mut self, blocks: usize, reached: *const f32) {
        self.blocks = self.blocks.saturating_sub(blocks);
        self.at = if self.blocks == 0 { std::ptr::null() } else { reached };
    }
}
