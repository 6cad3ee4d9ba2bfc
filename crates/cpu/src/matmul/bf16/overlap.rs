//! Work that is done while tiles are multiplied, between one stretch of blocks and the next.

use std::ops::Range;

use half::bf16;

use super::expanding::Expanding;
use super::next_weights::NextWeights;
use super::pace::Pace;
use super::sizes::PRODUCT_SUMS;
use super::sums::UnfinishedSums;
use crate::matmul::gemm::GemmItem;
use crate::simd::math::TOGETHER;
use crate::simd::prefetch::Prefetch;
use crate::simd::vector::{LANES, Lanes};

pub(super) struct Overlap<'a> {
    item: &'a GemmItem<'a, bf16>,
    pub(super) next_weights: NextWeights,
    resumed_next: NextSums,
    unfinished: Option<UnfinishedSums<'a>>,
    finishing: Pace,
    pub(super) expanding: Option<Expanding<'a>>,
}

impl<'a> Overlap<'a> {
    pub(super) fn new(item: &'a GemmItem<'a, bf16>) -> Self {
        Self {
            item,
            next_weights: NextWeights::nothing(),
            resumed_next: NextSums { at: std::ptr::null(), blocks: 0 },
            unfinished: None,
            finishing: Pace::NEVER,
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

    /// Finishes `rows` within `blocks`, and as many within as many blocks after these.
    #[inline(always)]
    pub(super) fn finish_within(&mut self, blocks: usize, rows: usize) {
        self.finishing = Pace::within(blocks, rows.div_ceil(TOGETHER));
    }

    /// Makes these rows the next to be finished, and finishes those before them now.
    ///
    /// # Safety
    /// Sums of these rows lie at `c`, and no one writes there before they are finished.
    #[inline(always)]
    pub(super) unsafe fn finish_next<L: Lanes>(&mut self, rows: Range<usize>, panels: Range<usize>, c: *const f32) {
        self.finish_all::<L>();
        // SAFETY: the caller's promise.
        self.unfinished = Some(unsafe { UnfinishedSums::new::<L>(self.item, rows, panels, c) });
    }

    #[inline(always)]
    pub(super) fn finish_all<L: Lanes>(&mut self) {
        if let Some(mut sums) = self.unfinished.take() {
            sums.finish_all::<L>();
        }
    }
}

impl Overlap<'_> {
    /// Blocks that may be multiplied before the next [`advance`](Self::advance).
    #[inline(always)]
    pub(super) fn blocks(&self) -> usize {
        let expanding = self.expanding.as_ref().map_or(usize::MAX, |expanding| expanding.pace.until);
        self.next_weights.blocks().min(self.resumed_next.blocks()).min(self.finishing.until).min(expanding)
    }

    /// What those blocks prefetch.
    #[inline(always)]
    pub(super) fn prefetch(&self) -> Prefetch {
        Prefetch { far: self.next_weights.pages, near: self.resumed_next.at }
    }

    /// Does the work that is due after `blocks`, which have prefetched up to `reached`.
    #[inline(always)]
    pub(super) fn advance<L: Lanes>(&mut self, blocks: usize, reached: Prefetch) {
        self.next_weights.advance(blocks, reached.far);
        self.resumed_next.advance(blocks, reached.near);
        for _ in 0..self.finishing.advance(blocks) {
            if let Some(sums) = &mut self.unfinished {
                sums.finish_some::<L>();
            }
        }
        if let Some(expanding) = &mut self.expanding {
            let due = expanding.pace.advance(blocks);
            expanding.expand::<L>(due);
        }
    }
}

/// Sums of the next product, prefetched by the first blocks of this one.
struct NextSums {
    at: *const f32,
    /// Blocks that have yet to prefetch some.
    blocks: usize,
}

impl NextSums {
    const BLOCKS: usize = PRODUCT_SUMS / LANES / Prefetch::NEAR_LINES;

    #[inline(always)]
    fn blocks(&self) -> usize {
        if self.blocks == 0 { usize::MAX } else { self.blocks }
    }

    #[inline(always)]
    fn advance(&mut self, blocks: usize, reached: *const f32) {
        self.blocks = self.blocks.saturating_sub(blocks);
        self.at = if self.blocks == 0 { std::ptr::null() } else { reached };
    }
}
