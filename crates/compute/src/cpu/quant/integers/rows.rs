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
use crate::cpu::region::{Buffer, Floats, Number};
use crate::cpu::rows::Normed;

/// Rows that are multiplied at a time: so many have their sums in registers.
pub(super) const STRIP_ROWS: usize = 6;
/// Of one row's numbers in a block.
pub(super) const ROW_BYTES: usize = 2 * GROUP;
/// Bits behind the leading one of a block's largest value.
const FRACTION_BITS: u32 = 12;
/// A high byte counts so much.
pub(super) const HIGH: i32 = 128;
const EXPONENT_BIAS: u32 = 127;
const INFINITE: u32 = 0x7f80_0000;

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
    /// One, normed.
    row: Floats,
    rounded: Option<Range<usize>>,
}

impl WholeRows {
    pub(crate) fn new(rows: usize, max_depth: usize) -> Result<Self, ComputeError> {
        let strips = Buffer::new(rows.div_ceil(STRIP_ROWS) * max_depth.div_ceil(GROUP))?;
        Ok(Self { strips, row: Floats::new(max_depth.next_multiple_of(GROUP))?, rounded: None })
    }

    /// Forgets the rows of the phase before.
    pub(crate) fn clear(&mut self) {
        self.rounded = None;
    }

    /// From some block on.
    pub(super) fn blocks_from(&self, block: usize) -> *const StripBlock {
        self.strips.as_slice()[block..].as_ptr()
    }

    /// Rows that wait as bf16. Those that are rounded already are not rounded again.
    ///
    /// # Safety
    /// `left` has all blocks of these rows in tile order.
    #[inline(always)]
    pub(super) unsafe fn round<L: Lanes>(&mut self, rows: &Range<usize>, left: *const bf16, blocks: usize) {
        if !self.must_round(rows) {
            return;
        }
        for row in 0..rows.len() {
            for block in 0..blocks {
                // SAFETY: the caller's promise; 32 k of a row are side by side.
                let values = unsafe { &*left.add(tile_index(row, block * GROUP, blocks_apart(blocks))).cast() };
                self.put::<L>(row, block, blocks, Values::of_bf16(values));
            }
        }
    }

    /// Rows that no one has rounded yet.
    #[inline(always)]
    pub(super) fn round_normed<L: Lanes>(&mut self, rows: &Range<usize>, normed: &Normed<'_>, blocks: usize) {
        if !self.must_round(rows) {
            return;
        }
        assert!(normed.norm.weight.len() == blocks * GROUP && self.row.as_slice().len() >= blocks * GROUP);
        for row in 0..rows.len() {
            let values = self.row.as_mut_ptr();
            normed.norm.apply::<L>(normed.row(rows.start + row), |column, x| {
                // SAFETY: 16 columns of a row that fits.
                unsafe { x.store(values.add(column)) };
            });
            for block in 0..blocks {
                let values = Values::of_f32(&self.row.as_slice().as_chunks().0[block]);
                self.put::<L>(row, block, blocks, values);
            }
        }
    }

    /// From now on they are.
    fn must_round(&mut self, rows: &Range<usize>) -> bool {
        self.rounded.replace(rows.clone()).as_ref() != Some(rows)
    }

    #[inline(always)]
    fn put<L: Lanes>(&mut self, row: usize, block: usize, blocks: usize, values: Values<L>) {
        let to = &mut self.strips.as_mut_slice()[row / STRIP_ROWS * blocks + block];
        let row = row % STRIP_ROWS;
        let (unit, sums) = round::<L>(values, &mut to.bytes[row]);
        to.units[row] = unit;
        for (to, sum) in to.sums.iter_mut().zip(sums) {
            to[row] = sum;
        }
    }
}

/// 32 of a row.
pub(super) struct Values<L> {
    /// Bits of the largest one, without its sign.
    largest: u32,
    even: L,
    odd: L,
}

impl<L: Lanes> Values<L> {
    #[inline(always)]
    pub(super) fn of_bf16(values: &[bf16; GROUP]) -> Self {
        let mut largest = 0;
        for value in values {
            largest = largest.max(value.to_bits() & 0x7fff);
        }
        let pairs = values.as_ptr().cast();
        // SAFETY: 16 pairs.
        let (even, odd) = unsafe { (L::load_bf16_even(pairs), L::load_bf16_odd(pairs)) };
        Self { largest: u32::from(largest) << 16, even, odd }
    }

    #[inline(always)]
    pub(super) fn of_f32(values: &[f32; GROUP]) -> Self {
        let (mut largest, mut even, mut odd) = (0, [0.0; LANES], [0.0; LANES]);
        for i in 0..LANES {
            (even[i], odd[i]) = (values[2 * i], values[2 * i + 1]);
        }
        for i in 0..LANES {
            largest = largest.max(even[i].to_bits() & 0x7fff_ffff).max(odd[i].to_bits() & 0x7fff_ffff);
        }
        // SAFETY: sixteen of each.
        let (even, odd) = unsafe { (L::load(even.as_ptr()), L::load(odd.as_ptr())) };
        Self { largest, even, odd }
    }
}

/// What the numbers are multiples of, and the sums of all, of the first 16 and of the last 16. A value that is infinite or no
/// number makes all of these no number; where no value is 2⁻¹¹⁴ or more, all count as zeros.
#[inline(always)]
pub(super) fn round<L: Lanes>(values: Values<L>, bytes: &mut [i8; ROW_BYTES]) -> (f32, [f32; 3]) {
    let Values { largest, even, odd } = values;
    let exponent = largest >> 23;
    if largest >= INFINITE || exponent <= FRACTION_BITS {
        *bytes = [0; ROW_BYTES];
        let unit = if largest >= INFINITE { f32::NAN } else { 0.0 };
        return (unit, [unit; 3]);
    }
    let power = |biased: u32| f32::from_bits(biased << 23);
    let unit = power(exponent - FRACTION_BITS);
    let units_per_one = L::splat(power(2 * EXPONENT_BIAS + FRACTION_BITS - exponent));
    // SAFETY: half of the values fill 16 bytes, high and low.
    let sum = unsafe {
        let to = bytes.as_mut_ptr();
        put_half(even.mul(units_per_one), to).add(put_half(odd.mul(units_per_one), to.add(LANES)))
    };
    // Whole numbers below 2²⁴, so the order of the sum does not matter.
    let (all, first) = (sum.sum(), sum.keep_first(LANES / 2, L::splat(0.0)).sum());
    (unit, [all * unit, first * unit, (all - first) * unit])
}

/// 16 of the values become whole numbers, which are returned: their high bytes, and [`GROUP`] behind them their low ones.
///
/// # Safety
/// Both are writable.
#[inline(always)]
unsafe fn put_half<L: Lanes>(units: L, to: *mut i8) -> L {
    let q = whole(units);
    let high = whole(q.mul(L::splat(1.0 / HIGH as f32)));
    // SAFETY: the caller's promise.
    unsafe {
        high.store_i8(to);
        high.fma(L::splat(-HIGH as f32), q).store_i8(to.add(GROUP));
    }
    q
}

#[inline(always)]
fn whole<L: Lanes>(x: L) -> L {
    x.add(L::splat(MAGIC)).sub(L::splat(MAGIC))
}
