//! Rows as integers that share a power of two, 32 by 32, in strips of rows that are multiplied at a time.

use std::ops::Range;

use half::bf16;

use crate::matmul::rows::Normed;
use crate::memory::region::{Floats, Number, Region};
use crate::simd::vector::{LANES, Lanes, MAGIC};
use crate::weights::layout::{GROUP, TILE_ROWS, block_stride, tile_index};
use baton_backend::BackendError;

/// Rows that are multiplied at a time: the most whose sums fit into registers.
pub(crate) const STRIP_ROWS: usize = 6;
/// Bytes of one row in a block.
pub(super) const ROW_BYTES: usize = 2 * GROUP;
/// Bits behind the leading one of a block's largest value.
const FRACTION_BITS: u32 = 12;
/// The weight of a high byte.
pub(super) const HIGH: i32 = 128;
const EXPONENT_BIAS: u32 = 127;
/// Bits of 2¹¹². So large a value counts as no number: no sum of a block's products becomes infinite on its way (32 · 255 · 2¹¹²).
const TOO_LARGE: u32 = (112 + EXPONENT_BIAS) << 23;

/// 32 k of a strip's rows.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct ByteStrip {
    /// 32 high bytes, then 32 low ones.
    pub(super) bytes: [[i8; ROW_BYTES]; STRIP_ROWS],
    /// What a row's numbers are multiples of.
    pub(super) units: [f32; STRIP_ROWS],
    /// Of all numbers of a row, of the first 16 and of the last 16.
    pub(super) sums: [[f32; STRIP_ROWS]; 3],
}

// SAFETY: any bits are an integer or a float.
unsafe impl Number for ByteStrip {}

impl ByteStrip {
    #[inline(always)]
    pub(super) fn put<L: Lanes>(&mut self, row: usize, numbers: &RoundedValues<L>) {
        for (half, q) in [numbers.even, numbers.odd].into_iter().enumerate() {
            let high = nearest_integer(q.mul(L::splat(1.0 / HIGH as f32)));
            // SAFETY: half of the numbers fill 16 bytes, high and low.
            unsafe {
                let to = self.bytes[row].as_mut_ptr().add(half * LANES);
                high.store_i8(to);
                high.fma(L::splat(-HIGH as f32), q).store_i8(to.add(GROUP));
            }
        }
        self.units[row] = numbers.unit;
        for (to, sum) in self.sums.iter_mut().zip(numbers.sums) {
            to[row] = sum;
        }
    }
}

/// The rows of one item, kept from panel to panel: `[strip][block of 32 k]`.
pub(crate) struct IntegerRows {
    memory: Region,
    /// One normed row.
    row: Floats,
    rounded: Option<Range<usize>>,
}

impl IntegerRows {
    pub(crate) fn new(rows: usize, max_depth: usize) -> Result<Self, BackendError> {
        let memory = Region::new(rows.div_ceil(STRIP_ROWS) * max_depth.div_ceil(GROUP) * size_of::<ByteStrip>())?;
        let row = Floats::new(max_depth.next_multiple_of(GROUP))?;
        Ok(Self { memory, row, rounded: None })
    }

    /// Forgets the rows of the phase before.
    pub(crate) fn clear(&mut self) {
        self.rounded = None;
    }

    pub(super) fn strips(&self) -> &[ByteStrip] {
        // SAFETY: the region holds as many, at addresses that are multiples of 64; any bits are numbers.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), self.memory.bytes() / size_of::<ByteStrip>()) }
    }

    /// Rounds rows of bf16, unless they are rounded already.
    ///
    /// # Safety
    /// `left` has all blocks of these rows in tile order.
    #[inline(always)]
    pub(super) unsafe fn round<L: Lanes>(&mut self, rows: &Range<usize>, left: *const bf16, blocks: usize) {
        if self.rounded.replace(rows.clone()).as_ref() == Some(rows) {
            return;
        }
        for tile in (0..rows.len()).step_by(TILE_ROWS) {
            let of_tile = tile..rows.len().min(tile + TILE_ROWS);
            for block in 0..blocks {
                for row in of_tile.clone() {
                    // SAFETY: the caller's promise; 32 k of a row are side by side.
                    let values = unsafe { &*left.add(tile_index(row, block * GROUP, block_stride(blocks))).cast() };
                    self.put::<L>(row, (block, blocks), Values::of_bf16(values));
                }
            }
        }
    }

    /// Norms and rounds rows, unless they are rounded already.
    #[inline(always)]
    pub(super) fn round_normed<L: Lanes>(&mut self, rows: &Range<usize>, normed: &Normed<'_>, blocks: usize) {
        if self.rounded.replace(rows.clone()).as_ref() == Some(rows) {
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
                self.put::<L>(row, (block, blocks), values);
            }
        }
    }

    /// Rounds block `block` of `blocks` of a row.
    #[inline(always)]
    fn put<L: Lanes>(&mut self, row: usize, (block, blocks): (usize, usize), values: Values<L>) {
        let place = row / STRIP_ROWS * blocks + block;
        assert!((place + 1) * size_of::<ByteStrip>() <= self.memory.bytes());
        // SAFETY: inside of the region, at a multiple of 64; `self` is borrowed exclusively.
        let strip = unsafe { &mut *self.memory.as_ptr().cast::<ByteStrip>().add(place) };
        strip.put(row % STRIP_ROWS, &round(values));
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
        let pairs = values.as_ptr().cast();
        // SAFETY: 16 pairs.
        let (even, odd) = unsafe { (L::load_bf16_even(pairs), L::load_bf16_odd(pairs)) };
        Self { largest: even.largest_magnitude(odd), even, odd }
    }

    #[inline(always)]
    pub(super) fn of_f32(values: &[f32; GROUP]) -> Self {
        // SAFETY: 16 pairs.
        let (even, odd) = unsafe { L::load_pairs(values.as_ptr()) };
        Self { largest: even.largest_magnitude(odd), even, odd }
    }
}

/// 32 of a row, rounded.
pub(crate) struct RoundedValues<L> {
    pub(super) even: L,
    pub(super) odd: L,
    /// What they are multiples of.
    pub(super) unit: f32,
    /// What all, the first 16 and the last 16 add up to.
    pub(super) sums: [f32; 3],
}

/// A value that is too large or no number makes the unit and sums no number; where no value is 2⁻¹¹⁴ or more, all count as zeros.
#[inline(always)]
pub(super) fn round<L: Lanes>(values: Values<L>) -> RoundedValues<L> {
    let Values { largest, even, odd } = values;
    let exponent = largest >> 23;
    if largest >= TOO_LARGE || exponent <= FRACTION_BITS {
        let unit = if largest >= TOO_LARGE { f32::NAN } else { 0.0 };
        return RoundedValues { even: L::splat(0.0), odd: L::splat(0.0), unit, sums: [unit; 3] };
    }
    let power = |biased: u32| f32::from_bits(biased << 23);
    let unit = power(exponent - FRACTION_BITS);
    let units_per_one = L::splat(power(2 * EXPONENT_BIAS + FRACTION_BITS - exponent));
    let (even, odd) = (nearest_integer(even.mul(units_per_one)), nearest_integer(odd.mul(units_per_one)));
    // Integers below 2²⁴, so the order of the sum does not matter.
    let sum = even.add(odd);
    let (all, first) = (sum.sum(), sum.keep_first(LANES / 2, L::splat(0.0)).sum());
    RoundedValues { even, odd, unit, sums: [all * unit, first * unit, (all - first) * unit] }
}

#[inline(always)]
fn nearest_integer<L: Lanes>(x: L) -> L {
    x.add(L::splat(MAGIC)).sub(L::splat(MAGIC))
}
