//! Quantized values as floats: the bits of a value become bits of a mantissa, which adds a bias. The [offset](super::scaled) of a
//! weight subtracts that bias.

use super::super::packing::{DOT_BYTES, DOT_K, Field, fields, k_order};
use crate::simd::vector::{Bits, Lanes, bits_bias};
use crate::weights::layout::GROUP;

/// The most positions that values have in a mantissa. Values of four bits, and those whose bits lie in two lines, have several, so
/// that one shift moves two or three of the eight values of a word. The lower a position is the larger is its bias, and the offset
/// that subtracts it is rounded: to 2⁻¹² of a scale, at most.
///
/// ```text
///   value of a word        7   6   5   4   3   2   1   0
///   four bits: position    0   1   2   0   1   2   1   2
///   moved                  right by 9  left by 3   left by 11
///   five, six: position    0   1   0   1   0   1   0   1
///   moved, low bits        right 11    right 3  left 5  left 13
/// ```
pub(crate) const POSITIONS: usize = 3;

/// The positions that values of `bits` bits have.
pub(crate) const fn positions(bits: usize) -> usize {
    match bits {
        4 => POSITIONS,
        5 | 6 => 2,
        _ => 1,
    }
}

/// The position of the `i`-th value of a word.
const fn position_of(bits: usize, i: usize) -> usize {
    const OF_FOUR: [usize; 8] = [2, 1, 2, 1, 0, 2, 1, 0];
    match bits {
        4 => OF_FOUR[i],
        5 | 6 => 1 - i % 2,
        _ => 0,
    }
}

/// The bit of the mantissa where a value begins.
const fn bit(bits: usize, position: usize) -> usize {
    match bits {
        4 => 19 - 4 * position,
        5 | 6 => 17 - 4 * position,
        8 => 15,
        _ => 16,
    }
}

/// What [`load_biased`] adds to values at a position.
pub(crate) const fn bias(bits: usize, position: usize) -> f32 {
    bits_bias(bit(bits, position))
}

/// The values of 16 columns at `k` plus the bias of their position, and that position.
///
/// # Safety
/// The packed values of a block are readable.
#[inline(always)]
pub(crate) unsafe fn load_biased<L: Lanes, const BITS: usize>(values: *const u8, k: usize) -> (L, usize) {
    debug_assert!(k < GROUP);
    let (low, high) = fields(BITS);
    // SAFETY: words of the block.
    unsafe {
        let of_field = |field: Field| {
            let (line, bit) = field.of_k4(k_order(k) / DOT_K);
            let words = values.add(line * DOT_BYTES).cast();
            Bits { words, first: k_order(k) % DOT_K * 8 + bit, count: field.bits }
        };
        let low = of_field(low);
        let position = position_of(BITS, low.first / low.count % 8);
        let at = bit(BITS, position);
        let value = match high {
            Some(high) => L::load_split_bits(low, of_field(high), at),
            None => L::load_bits(low, at),
        };
        (value, position)
    }
}
