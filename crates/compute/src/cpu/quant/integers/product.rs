//! Strips of rows times the cells of one panel.

use super::cell::{Block, QUAD, QUADS};
use super::rows::{HIGH, Left, ROW_BYTES, STRIP_ROWS};
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512, has_byte_products};
use crate::cpu::lanes::{LANES, Lanes};

/// C\[rows × 16\] = left · (scale · codes + minimum), or C += when it goes on where an earlier slice of k has ended.
#[derive(Clone, Copy)]
pub(super) struct IntegerProduct {
    pub(super) rows: usize,
    /// Cells.
    pub(super) blocks: usize,
    pub(super) left: Left,
    /// Codes are below 32.
    pub(super) small_codes: bool,
    pub(super) c: *mut f32,
    pub(super) c_stride: usize,
    pub(super) resume: bool,
}

/// Pointers are good for the shapes that are stated: whoever makes one says why.
impl IntegerProduct {
    #[inline(always)]
    pub(super) fn run<L: Lanes>(&self, cells: &[Block]) {
        assert!(cells.len() == self.blocks);
        for strip in 0..self.rows.div_ceil(STRIP_ROWS) {
            let strip = self.strip(strip);
            // SAFETY: kernels over these lanes run where their instructions are.
            #[cfg(target_arch = "x86_64")]
            unsafe {
                match L::TABLE_BYTES {
                    64 if has_byte_products() => {
                        avx512::strip(&strip, cells);
                        continue;
                    }
                    32.. => {
                        avx2::strip(&strip, cells);
                        continue;
                    }
                    _ => {}
                }
            }
            for row in 0..strip.rows {
                strip.one_row::<L>(row, cells);
            }
        }
    }

    #[inline(always)]
    fn strip(&self, strip: usize) -> Self {
        let row = strip * STRIP_ROWS;
        let first = strip * self.left.blocks * STRIP_ROWS;
        // SAFETY: inside of the rows and of C.
        unsafe {
            let left = Left {
                bytes: self.left.bytes.add(first * ROW_BYTES),
                units: self.left.units.add(first),
                sums: self.left.sums.add(first),
                ..self.left
            };
            Self { rows: STRIP_ROWS.min(self.rows - row), left, c: self.c.add(row * self.c_stride), ..*self }
        }
    }

    #[inline(always)]
    fn one_row<L: Lanes>(&self, row: usize, cells: &[Block]) {
        // SAFETY: a row of C.
        let c = unsafe { self.c.add(row * self.c_stride) };
        // SAFETY: as above.
        let mut sum = if self.resume { unsafe { L::load(c) } } else { L::splat(0.0) };
        for (block, cell) in cells.iter().enumerate() {
            let at = block * STRIP_ROWS + row;
            // SAFETY: a row of a block, and what belongs to it.
            let (bytes, unit, row_sum) = unsafe {
                let bytes = &*self.left.bytes.add(at * ROW_BYTES).cast::<[i8; ROW_BYTES]>();
                (bytes, *self.left.units.add(at), *self.left.sums.add(at))
            };
            let mut dots = [0.0; LANES];
            for (column, dot) in dots.iter_mut().enumerate() {
                *dot = dot_of(bytes, cell, column) as f32;
            }
            // SAFETY: sixteen of each.
            unsafe {
                let (scale, minimum) = (L::load(cell.scales.as_ptr()), L::load(cell.minima.as_ptr()));
                sum = L::load(dots.as_ptr()).mul(L::splat(unit)).fma(scale, sum);
                sum = minimum.fma(L::splat(row_sum), sum);
            }
        }
        // SAFETY: a row of C.
        unsafe { sum.store(c) };
    }
}

#[inline(always)]
fn dot_of(bytes: &[i8; ROW_BYTES], cell: &Block, column: usize) -> i32 {
    let mut dot = 0;
    for i in 0..QUADS * QUAD {
        let q = HIGH * i32::from(bytes[i]) + i32::from(bytes[ROW_BYTES / 2 + i]);
        dot += q * i32::from(cell.codes[i / QUAD][column * QUAD + i % QUAD]);
    }
    dot
}
