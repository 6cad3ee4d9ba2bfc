//! Strips of rows times the cells of one panel.

use super::block::{Block, QUAD, QUADS, quad_of};
use super::rows::{HIGH, Left, ROW_BYTES, STRIP_ROWS, STRIP_SUMS};
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
    /// Scales that a column has in a block: 1 or 2.
    pub(super) parts: usize,
    /// Products of a part's codes fit into 16 bits.
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
                match self.parts {
                    1 => strip.one_row::<L, 1>(row, cells),
                    _ => strip.one_row::<L, 2>(row, cells),
                }
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
                sums: self.left.sums.add(strip * self.left.blocks * STRIP_SUMS),
                ..self.left
            };
            Self { rows: STRIP_ROWS.min(self.rows - row), left, c: self.c.add(row * self.c_stride), ..*self }
        }
    }

    #[inline(always)]
    fn one_row<L: Lanes, const PARTS: usize>(&self, row: usize, cells: &[Block]) {
        // SAFETY: a row of C.
        let c = unsafe { self.c.add(row * self.c_stride) };
        // SAFETY: as above.
        let mut sum = if self.resume { unsafe { L::load(c) } } else { L::splat(0.0) };
        for (block, cell) in cells.iter().enumerate() {
            let at = block * STRIP_ROWS + row;
            // SAFETY: a row of a block, and its unit.
            let (bytes, unit) = unsafe { (&*self.left.bytes.add(at * ROW_BYTES).cast(), *self.left.units.add(at)) };
            for part in 0..PARTS {
                let mut dots = [0.0; LANES];
                for (column, dot) in dots.iter_mut().enumerate() {
                    *dot = dot_of::<PARTS>(bytes, cell, part, column) as f32;
                }
                // SAFETY: sixteen of each, and a row's sum.
                unsafe {
                    let row_sum = *self.left.sums.add(sum_index(block, PARTS, part) + row);
                    let scales = L::load(cell.scales[part].as_ptr());
                    sum = L::load(dots.as_ptr()).mul(L::splat(unit)).fma(scales, sum);
                    sum = L::load(cell.minima[part].as_ptr()).fma(L::splat(row_sum), sum);
                }
            }
        }
        // SAFETY: a row of C.
        unsafe { sum.store(c) };
    }
}

/// Where a strip's sums of a part of a block begin.
#[inline(always)]
pub(super) const fn sum_index(block: usize, parts: usize, part: usize) -> usize {
    block * STRIP_SUMS + (parts - 1 + part) * STRIP_ROWS
}

#[inline(always)]
fn dot_of<const PARTS: usize>(bytes: &[i8; ROW_BYTES], cell: &Block, part: usize, column: usize) -> i32 {
    let mut dot = 0;
    for i in 0..QUADS / PARTS {
        let quad = quad_of(PARTS, part, i);
        for k in 0..QUAD {
            let (high, low) = (bytes[quad * QUAD + k], bytes[ROW_BYTES / 2 + quad * QUAD + k]);
            dot += (HIGH * i32::from(high) + i32::from(low)) * i32::from(cell.codes[quad][column * QUAD + k]);
        }
    }
    dot
}
