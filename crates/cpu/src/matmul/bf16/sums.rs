//! Sums of some rows and two panels, on their way from tiles to the output.

use std::ops::Range;

use half::bf16;

use super::sizes::PRODUCT_PANELS;
use crate::matmul::gemm::{GemmItem, OutputRows};
use crate::simd::math::TOGETHER;
use crate::simd::vector::{LANES, Lanes};

/// Sums of rows that are not finished yet.
pub(super) struct UnfinishedSums<'a> {
    output: OutputRows<'a, bf16>,
    /// The sums of the first of them; those of the others follow.
    c: *const f32,
}

const STRIDE: usize = PRODUCT_PANELS * LANES;
/// Rows by which sums and outputs are prefetched before they are needed.
const ROWS_AHEAD: usize = 2 * TOGETHER;

impl<'a> UnfinishedSums<'a> {
    /// # Safety
    /// Sums of these rows lie at `c`, and no one writes there before they are finished.
    #[inline(always)]
    pub(super) unsafe fn new<L: Lanes>(
        item: &'a GemmItem<'a, bf16>,
        rows: Range<usize>,
        panels: Range<usize>,
        c: *const f32,
    ) -> Self {
        let sums = Self { output: item.output_rows::<L>(rows, panels), c };
        for row in (0..ROWS_AHEAD).step_by(TOGETHER) {
            sums.output.prefetch::<L>(row, TOGETHER);
        }
        sums
    }

    /// Rows that are left.
    #[inline(always)]
    pub(super) fn left(&self) -> usize {
        self.output.left()
    }

    /// Finishes the next [`TOGETHER`] rows, unless fewer are left: enough that they do not wait for each other, few enough to be
    /// done while tiles are multiplied.
    #[inline(always)]
    pub(super) fn finish_some<L: Lanes>(&mut self) {
        if self.left() < TOGETHER {
            return;
        }
        self.output.prefetch::<L>(ROWS_AHEAD, TOGETHER);
        for line in (0..TOGETHER * STRIDE).step_by(LANES) {
            L::prefetch(self.c.wrapping_add(ROWS_AHEAD * STRIDE + line).cast());
        }
        // SAFETY: as `new` was promised.
        unsafe { self.output.put::<L, TOGETHER>(self.c, STRIDE) };
        self.c = self.c.wrapping_add(TOGETHER * STRIDE);
    }

    #[inline(always)]
    pub(super) fn finish_all<L: Lanes>(&mut self) {
        // SAFETY: as `new` was promised.
        unsafe { self.output.put_all::<L>(self.c, STRIDE) };
    }
}
