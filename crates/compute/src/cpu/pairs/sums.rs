//! Sums of one product, on their way from tiles to where they belong.

use std::ops::Range;

use half::bf16;

use super::PRODUCT_PANELS;
use crate::cpu::gemm::GemmItem;
use crate::cpu::lanes::{LANES, Lanes};

/// Of one product.
pub(super) struct Sums {
    pub(super) rows: Range<usize>,
    pub(super) panels: Range<usize>,
    pub(super) c: *mut f32,
}

impl Sums {
    /// Of some of its rows.
    #[inline(always)]
    pub(super) fn finish<L: Lanes>(&self, item: &GemmItem<'_, bf16>, some: Range<usize>) {
        const STRIDE: usize = PRODUCT_PANELS * LANES;
        let rows = self.rows.start + some.start..self.rows.start + some.end;
        // SAFETY: a member's own sums of a whole product, which nobody writes before they are finished.
        let sums = unsafe { std::slice::from_raw_parts(self.c.add(some.start * STRIDE), some.len() * STRIDE) };
        item.finish::<L>(rows, self.panels.clone(), sums, STRIDE);
    }
}
