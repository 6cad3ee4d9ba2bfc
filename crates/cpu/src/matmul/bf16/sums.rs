//! Sums of some rows and one pair of panels, on their way from tiles to where they belong.

use std::ops::Range;

use half::bf16;

use super::sizes::PRODUCT_PANELS;
use crate::matmul::gemm::{GemmItem, Places};
use crate::simd::math::TOGETHER;
use crate::simd::vector::{LANES, Lanes};

/// Of rows that are not finished yet.
pub(super) struct Sums<'a> {
    places: Places<'a, bf16>,
    /// Of the first of them; the others follow.
    c: *const f32,
}

const STRIDE: usize = PRODUCT_PANELS * LANES;
/// Sums, and the places where they belong, are prefetched this many rows before they are needed.
const ROWS_AHEAD: usize = 2 * TOGETHER;

impl<'a> Sums<'a> {
    /// # Safety
    /// Sums of these rows lie at `c`, and nothing else is written there before they are finished.
    #[inline(always)]
    pub(super) unsafe fn new<L: Lanes>(
        item: &'a GemmItem<'a, bf16>,
        rows: Range<usize>,
        panels: Range<usize>,
        c: *const f32,
    ) -> Self {
        let sums = Self { places: item.places::<L>(rows, panels), c };
        for row in (0..ROWS_AHEAD).step_by(TOGETHER) {
            sums.places.prefetch::<L>(row, TOGETHER);
        }
        sums
    }

    /// Rows.
    #[inline(always)]
    pub(super) fn left(&self) -> usize {
        self.places.left()
    }

    /// The next [`TOGETHER`], if that many are left: enough that they do not wait for each other, few enough to be
    /// done while tiles are multiplied.
    #[inline(always)]
    pub(super) fn finish_some<L: Lanes>(&mut self) {
        if self.left() < TOGETHER {
            return;
        }
        self.places.prefetch::<L>(ROWS_AHEAD, TOGETHER);
        for line in (0..TOGETHER * STRIDE).step_by(LANES) {
            L::prefetch(self.c.wrapping_add(ROWS_AHEAD * STRIDE + line).cast());
        }
        // SAFETY: as `new` was promised.
        unsafe { self.places.put::<L, TOGETHER>(self.c, STRIDE) };
        self.c = self.c.wrapping_add(TOGETHER * STRIDE);
    }

    #[inline(always)]
    pub(super) fn finish_all<L: Lanes>(&mut self) {
        // SAFETY: as `new` was promised.
        unsafe { self.places.put_all::<L>(self.c, STRIDE) };
    }
}
