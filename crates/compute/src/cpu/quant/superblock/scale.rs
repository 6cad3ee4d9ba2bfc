//! Products of one supercell, scaled and added to the sums of their rows.

#![allow(clippy::needless_range_loop, reason = "rows and groups are numbers here; indexed loops unroll into registers")]

use super::cell::Supercell;
use super::{SMALL_GROUPS, expand::SUPER_TILES};
use crate::cpu::isa::Kernel;
use crate::cpu::lanes::Lanes;
use crate::cpu::pairs::TILE_ROWS;

pub(super) struct Scale<const BITS: usize> {
    pub(super) rows: usize,
    pub(super) cell: *const u8,
    pub(super) dots: *const f32,
    pub(super) dots_stride: usize,
    /// `[row tile][block][half][row]`, from this supercell's first block on; read if there are minima.
    pub(super) half_sums: *const f32,
    pub(super) half_sums_tile_stride: usize,
    pub(super) c: *mut f32,
    pub(super) c_stride: usize,
    /// Whether C holds sums already.
    pub(super) resume: bool,
}

/// Pointers are good for the shapes it states: whoever makes it says why.
impl<const BITS: usize> Kernel for Scale<BITS> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        // SAFETY: a whole one.
        let cell = unsafe { Supercell::<BITS>::at(self.cell) };
        let scale: L = cell.scale();
        for row in 0..self.rows {
            // SAFETY: rows of the products and of C.
            unsafe {
                let c = self.c.add(row * self.c_stride);
                let before = if self.resume { L::load(c) } else { L::splat(0.0) };
                L::load(self.dots.add(row * self.dots_stride)).fma(scale, before).store(c);
            }
        }
        if Supercell::<BITS>::MINIMA {
            let mut row = 0;
            while row < self.rows {
                row += match self.rows - row {
                    8.. if L::ACCUMULATORS >= 16 => self.add_minima::<L, 8>(cell, row),
                    4.. => self.add_minima::<L, 4>(cell, row),
                    _ => self.add_minima::<L, 1>(cell, row),
                };
            }
        }
    }
}

impl<const BITS: usize> Scale<BITS> {
    /// Of `R` rows from `row` on.
    #[inline(always)]
    fn add_minima<L: Lanes, const R: usize>(&self, cell: Supercell<BITS>, row: usize) -> usize {
        const { assert!(SMALL_GROUPS == 2 * SUPER_TILES) };
        let mut offsets = [L::splat(0.0); R];
        for group in 0..SMALL_GROUPS {
            let minimum = cell.small_minimum::<L>(group);
            for r in 0..R {
                let (tile, in_tile) = ((row + r) / TILE_ROWS, (row + r) % TILE_ROWS);
                // SAFETY: sums of all blocks of the row's tile.
                let sum =
                    unsafe { *self.half_sums.add(tile * self.half_sums_tile_stride + group * TILE_ROWS + in_tile) };
                offsets[r] = minimum.fma(L::splat(sum), offsets[r]);
            }
        }
        let minimum: L = cell.minimum();
        for r in 0..R {
            // SAFETY: a row of C.
            unsafe {
                let c = self.c.add((row + r) * self.c_stride);
                offsets[r].fma(minimum, L::load(c)).store(c);
            }
        }
        R
    }
}
