//! Codes as floats: the bits of a code become those of a mantissa, which is the code and a bias that offsets take away again.

use super::super::codes::{Field, QUAD, QUAD_BYTES, fields, place};
use crate::simd::vector::{Bits, Lanes, bits_bias};
use crate::weights::layout::GROUP;

/// Places of a code in a mantissa. Where it has four bits, or more in two lines, there are several, so that the eight codes of
/// a word move together, three at a time or two. The lower a place is the larger is its bias, and what is added to take that
/// away again is rounded: to 2⁻¹² of a scale, at most.
///
/// ```text
///   code of a word      7   6   5   4   3   2   1   0
///   four bits: place    0   1   2   0   1   2   1   2
///   moved               right by 9  left by 3   left by 11
///   five, six: place    0   1   0   1   0   1   0   1
///   moved, low bits     right 11    right 3  left 5  left 13
/// ```
pub(super) const PLACES: usize = 3;

/// For codes of `bits` bits.
pub(super) const fn places(bits: usize) -> usize {
    match bits {
        4 => PLACES,
        5 | 6 => 2,
        _ => 1,
    }
}

/// Of the `i`-th code of a word.
const fn place_of(bits: usize, i: usize) -> usize {
    const OF_FOUR: [usize; 8] = [2, 1, 2, 1, 0, 2, 1, 0];
    match bits {
        4 => OF_FOUR[i],
        5 | 6 => 1 - i % 2,
        _ => 0,
    }
}

/// The bit where a code begins.
const fn bit(bits: usize, place: usize) -> usize {
    match bits {
        4 => 19 - 4 * place,
        5 | 6 => 17 - 4 * place,
        8 => 15,
        _ => 16,
    }
}

/// What [`biased`] adds to codes at a place.
pub(super) const fn bias(bits: usize, place: usize) -> f32 {
    bits_bias(bit(bits, place))
}

/// The codes of 16 columns at `k`, plus the bias of their place.
///
/// # Safety
/// The codes of a block are readable.
#[inline(always)]
pub(super) unsafe fn biased<L: Lanes, const BITS: usize>(codes: *const u8, k: usize) -> (L, usize) {
    debug_assert!(k < GROUP);
    let (low, high) = fields(BITS);
    // SAFETY: words of the block.
    unsafe {
        let of_field = |field: Field| {
            let (line, bit) = field.of_quad(place(k) / QUAD);
            let words = codes.add(line * QUAD_BYTES).cast();
            Bits { words, first: place(k) % QUAD * 8 + bit, count: field.bits }
        };
        let low = of_field(low);
        let place = place_of(BITS, low.first / low.count % 8);
        let at = bit(BITS, place);
        let code = match high {
            Some(high) => L::load_split_bits(low, of_field(high), at),
            None => L::load_bits(low, at),
        };
        (code, place)
    }
}
