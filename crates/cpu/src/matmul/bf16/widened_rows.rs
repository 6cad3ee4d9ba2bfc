//! A few rows in f32, for products whose weights are expanded in registers.

use std::ops::Range;

use half::bf16;

use crate::matmul::kept_rows::KeptRows;
use crate::matmul::quant::MOST_FROM_CODES;
use crate::memory::region::Floats;
use crate::simd::vector::Lanes;
use crate::weights::bf12::MOST_FROM_TILES;
use crate::weights::layout::{BLOCK_DEPTH, BLOCK_PAIRS, TILE, TILE_ROWS};
use baton_backend::BackendError;

/// `[block][row][even k, then odd k]`: multiply-adds take broadcasts from memory, as the unit that would make them in registers
/// has other work.
pub(crate) struct WidenedRows {
    floats: Floats,
    kept: KeptRows,
}

const MOST_ROWS: usize = if MOST_FROM_CODES > MOST_FROM_TILES { MOST_FROM_CODES } else { MOST_FROM_TILES };

impl WidenedRows {
    pub(super) fn new(max_depth: usize) -> Result<Self, BackendError> {
        let floats = Floats::new(MOST_ROWS * max_depth.next_multiple_of(BLOCK_DEPTH))?;
        Ok(Self { floats, kept: KeptRows::default() })
    }

    /// Rows of another phase are others.
    pub(super) fn clear(&mut self) {
        self.kept.clear();
    }

    /// These, unless they are there already.
    ///
    /// # Safety
    /// `left` has all blocks of them, in tile order.
    #[inline(always)]
    pub(super) unsafe fn of<L: Lanes>(&mut self, rows: &Range<usize>, blocks: usize, left: *const bf16) -> *const f32 {
        if self.kept.are_missing(rows) {
            let widened = &mut self.floats.as_mut_slice()[..blocks * rows.len() * BLOCK_DEPTH];
            // SAFETY: the caller's promise.
            unsafe { widen::<L>(left, rows.len(), widened) };
        }
        self.floats.as_slice().as_ptr()
    }
}

/// # Safety
/// `left` has so many rows in one tile, and all blocks.
#[inline(always)]
pub(crate) unsafe fn widen<L: Lanes>(left: *const bf16, rows: usize, widened: &mut [f32]) {
    debug_assert!(rows <= TILE_ROWS);
    for (i, wide) in widened.chunks_exact_mut(BLOCK_DEPTH).enumerate() {
        // SAFETY: a row of a block; half of its k fill a vector.
        unsafe {
            let from = left.add(i / rows * TILE + i % rows * BLOCK_DEPTH).cast();
            L::load_bf16_even(from).store(wide.as_mut_ptr());
            L::load_bf16_odd(from).store(wide.as_mut_ptr().add(BLOCK_PAIRS));
        }
    }
}
