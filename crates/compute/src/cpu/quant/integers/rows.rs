//! Rows as whole numbers that share a power of two, 32 by 32.
//!
//! ```text
//!   [strip of rows][block of 32 k]   what a product of both reads
//! ```

use std::ops::Range;

use half::bf16;

use super::super::format::GROUP;
use crate::ComputeError;
use crate::cpu::lanes::{LANES, Lanes, MAGIC};
use crate::cpu::pairs::{blocks_apart, tile_index};
use crate::cpu::region::{Buffer, Number};

/// Rows that are multiplied at a time: so many have their sums in registers.
pub(super) const STRIP_ROWS: usize = 6;
/// Of one row's numbers in a block.
pub(super) const ROW_BYTES: usize = 2 * GROUP;
/// Bits behind the leading one of a block's largest value.
const FRACTION_BITS: u16 = 12;
/// A high byte counts so much.
pub(super) const HIGH: i32 = 128;
/// Exponents of f32, whose bits bf16 has.
const EXPONENT_BIAS: u16 = 127;
const INFINITE: u16 = 0x7f80;

/// 32 k of a strip's rows.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct StripBlock {
    /// 32 high bytes, then 32 low ones.
    pub(super) bytes: [[i8; ROW_BYTES]; STRIP_ROWS],
    /// What a row's numbers are multiples of.
    pub(super) units: [f32; STRIP_ROWS],
    /// Of all numbers of a row, of the first 16 and of the last 16.
    pub(super) sums: [[f32; STRIP_ROWS]; 3],
}

// SAFETY: any bits are an integer or a float.
unsafe impl Number for StripBlock {}

/// Of one item, kept from panel to panel.
pub(crate) struct WholeRows {
    strips: Buffer<StripBlock>,
    rounded: Option<Range<usize>>,
}

impl WholeRows {
    pub(crate) fn new(rows: usize, max_depth: usize) -> Result<Self, ComputeError> {
        let strips = Buffer::new(rows.div_ceil(STRIP_ROWS) * max_depth.div_ceil(GROUP))?;
        Ok(Self { strips, rounded: None })
    }

    /// Forgets the rows of the phase before.
    pub(crate) fn clear(&mut self) {
        self.rounded = None;
    }

    /// From some block on.
    pub(super) fn blocks_from(&self, block: usize) -> *const StripBlock {
        self.strips.as_slice()[block..].as_ptr()
    }

    /// Rows that are rounded already are not rounded again.
    ///
    /// # Safety
    /// `left` has all blocks of these rows in tile order.
    #[inline(always)]
    pub(super) unsafe fn round<L: Lanes>(&mut self, rows: &Range<usize>, left: *const bf16, blocks: usize) {
        if self.rounded.as_ref() == Some(rows) {
            return;
        }
        let strips = &mut self.strips.as_mut_slice()[..rows.len().div_ceil(STRIP_ROWS) * blocks];
        for (strip, of_strip) in strips.chunks_mut(blocks).enumerate() {
            let first = strip * STRIP_ROWS;
            for row in 0..STRIP_ROWS.min(rows.len() - first) {
                for (block, to) in of_strip.iter_mut().enumerate() {
                    // SAFETY: the caller's promise; 32 k of a row are side by side.
                    let values =
                        unsafe { &*left.add(tile_index(first + row, block * GROUP, blocks_apart(blocks))).cast() };
                    let (unit, sums) = round::<L>(values, &mut to.bytes[row]);
                    to.units[row] = unit;
                    for (to, sum) in to.sums.iter_mut().zip(sums) {
                        to[row] = sum;
                    }
                }
            }
        }
        self.rounded = Some(rows.clone());
    }
}

/// What the numbers are multiples of, and the sums of all, of the first 16 and of the last 16. A value that is infinite or no
/// number makes all of these no number; where no value is 2⁻¹¹⁴ or more, all count as zeros.
#[inline(always)]
pub(super) fn round<L: Lanes>(values: &[bf16; GROUP], bytes: &mut [i8; ROW_BYTES]) -> (f32, [f32; 3]) {
    let mut largest = 0;
    for value in values {
        largest = largest.max(value.to_bits() & 0x7fff);
    }
    let exponent = largest >> 7;
    if largest >= INFINITE || exponent <= FRACTION_BITS {
        *bytes = [0; ROW_BYTES];
        let unit = if largest >= INFINITE { f32::NAN } else { 0.0 };
        return (unit, [unit; 3]);
    }
    let power = |biased: u16| f32::from_bits(u32::from(biased) << 23);
    let unit = power(exponent - FRACTION_BITS);
    let units_per_one = L::splat(power(2 * EXPONENT_BIAS + FRACTION_BITS - exponent));
    let whole = |x: L| x.add(L::splat(MAGIC)).sub(L::splat(MAGIC));
    let mut sum = L::splat(0.0);
    for parity in 0..2 {
        // SAFETY: 16 pairs of values; half of them fill 16 bytes, high and low.
        unsafe {
            let pairs = values.as_ptr().cast();
            let x = if parity == 0 { L::load_bf16_even(pairs) } else { L::load_bf16_odd(pairs) };
            let q = whole(x.mul(units_per_one));
            let high = whole(q.mul(L::splat(1.0 / HIGH as f32)));
            let to = bytes.as_mut_ptr().add(parity * LANES);
            high.store_i8(to);
            high.fma(L::splat(-HIGH as f32), q).store_i8(to.add(GROUP));
            sum = sum.add(q);
        }
    }
    // Whole numbers below 2²⁴, so the order of the sum does not matter.
    let (all, first) = (sum.sum(), sum.keep_first(LANES / 2, L::splat(0.0)).sum());
    (unit, [all * unit, first * unit, (all - first) * unit])
}
