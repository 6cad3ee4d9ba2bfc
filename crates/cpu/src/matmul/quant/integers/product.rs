//! Strips of rows times the blocks of one panel.

use super::expanded_block::{ExpandedBlock, k4_of};
use super::rows::{ByteStrip, HIGH, ROW_BYTES, STRIP_ROWS};
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::simd::vector::{LANES, Lanes};
use crate::weights::quant::packing::{DOT_K, DOTS_PER_BLOCK};

/// C\[rows × 16\] = left · (scale · values + minimum), or C += where it resumes the sums of an earlier slice of k.
#[derive(Clone, Copy)]
pub(super) struct IntegerProduct {
    pub(super) rows: usize,
    /// Blocks of 32 k.
    pub(super) blocks: usize,
    pub(super) left: *const ByteStrip,
    /// Blocks from one strip of rows to the next.
    pub(super) left_stride: usize,
    /// Scales that a column has in a block: 1 or 2.
    pub(super) parts: usize,
    /// Sums of a part's products fit into 16 bits.
    #[cfg(target_arch = "x86_64")]
    pub(super) small_values: bool,
    pub(super) c: *mut f32,
    pub(super) c_stride: usize,
    pub(super) resume: bool,
}

/// Pointers are good for the shapes that are stated: a comment where one is made says why.
impl IntegerProduct {
    #[inline(always)]
    pub(super) fn run<L: Lanes>(&self, blocks: &[ExpandedBlock]) {
        assert!(blocks.len() == self.blocks);
        for strip in 0..self.rows.div_ceil(STRIP_ROWS) {
            let strip = self.strip(strip);
            // SAFETY: kernels over these lanes run where their instructions are: tables of 32 bytes come with AVX2 and FMA,
            // those of 64 with AVX-512 and VNNI. Pointers are good, or there would be no product.
            #[cfg(target_arch = "x86_64")]
            unsafe {
                match L::TABLE_BYTES {
                    64 => {
                        avx512::strip(&strip, blocks);
                        continue;
                    }
                    32.. => {
                        avx2::strip(&strip, blocks);
                        continue;
                    }
                    _ => {}
                }
            }
            for row in 0..strip.rows {
                match self.parts {
                    1 => strip.one_row::<L, 1>(row, blocks),
                    _ => strip.one_row::<L, 2>(row, blocks),
                }
            }
        }
    }

    #[inline(always)]
    fn strip(&self, strip: usize) -> Self {
        let row = strip * STRIP_ROWS;
        // SAFETY: inside of the rows and of C.
        unsafe {
            let left = self.left.add(strip * self.left_stride);
            Self { rows: STRIP_ROWS.min(self.rows - row), left, c: self.c.add(row * self.c_stride), ..*self }
        }
    }

    /// The blocks of its first strip.
    #[inline(always)]
    pub(super) fn left(&self) -> &[ByteStrip] {
        // SAFETY: blocks of a strip follow each other.
        unsafe { std::slice::from_raw_parts(self.left, self.blocks) }
    }

    #[inline(always)]
    fn one_row<L: Lanes, const PARTS: usize>(&self, row: usize, blocks: &[ExpandedBlock]) {
        // SAFETY: a row of C.
        let c = unsafe { self.c.add(row * self.c_stride) };
        // SAFETY: as above.
        let mut sum = if self.resume { unsafe { L::load(c) } } else { L::splat(0.0) };
        for (left, block) in self.left().iter().zip(blocks) {
            for part in 0..PARTS {
                let mut dots = [0.0; LANES];
                for (column, dot) in dots.iter_mut().enumerate() {
                    *dot = dot_of::<PARTS>(&left.bytes[row], block, part, column) as f32;
                }
                let (unit, row_sum) = (left.units[row], left.sums[PARTS - 1 + part][row]);
                // SAFETY: sixteen of each.
                unsafe {
                    let scales = L::load(block.scales[part].as_ptr());
                    sum = L::load(dots.as_ptr()).mul(L::splat(unit)).fma(scales, sum);
                    sum = L::load(block.minima[part].as_ptr()).fma(L::splat(row_sum), sum);
                }
            }
        }
        // SAFETY: a row of C.
        unsafe { sum.store(c) };
    }
}

#[inline(always)]
fn dot_of<const PARTS: usize>(bytes: &[i8; ROW_BYTES], block: &ExpandedBlock, part: usize, column: usize) -> i32 {
    let mut dot = 0;
    for i in 0..DOTS_PER_BLOCK / PARTS {
        let k4 = k4_of(PARTS, part, i);
        for k in 0..DOT_K {
            let (high, low) = (bytes[k4 * DOT_K + k], bytes[ROW_BYTES / 2 + k4 * DOT_K + k]);
            dot += (HIGH * i32::from(high) + i32::from(low)) * i32::from(block.values[k4][column * DOT_K + k]);
        }
    }
    dot
}
