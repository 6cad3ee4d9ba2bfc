//! How codes lie in a cell: in words of 32 bits, sixteen of them, one per column, side by side.
//!
//! ```text
//!   2 bits   32 codes in two words, the first lowest
//!   3 bits   ten in each of three words; of the last two codes, two bits in the top of each word
//!   4 bits   eight in each of four words
//!   5 bits   six in each of five; the last two as above
//!   6 bits   five in each of six; the last two as above
//!   8 bits   signed bytes [k][column]
//! ```

use super::super::format::GROUP;
use crate::cpu::lanes::{LANES, Lanes, bits_bias};

/// Of 16 columns.
const WORD_BYTES: usize = LANES * size_of::<u32>();
/// Where bits of the last codes are.
const TOP: usize = 30;
const TOP_BITS: usize = 32 - TOP;

/// Of 16 columns × 32 k.
pub(super) const fn code_bytes(bits: usize) -> usize {
    bits * WORD_BYTES
}

/// Writes one column of codes that are zero so far.
pub(super) fn put(codes: &mut [u8], bits: usize, column: usize, column_codes: &[u8]) {
    let in_word = 32 / bits;
    for (k, &code) in column_codes.iter().enumerate() {
        match k.checked_sub(in_word * bits) {
            _ if bits == 8 => codes[k * LANES + column] = code,
            None => put_bits(codes, k / in_word, column, u32::from(code) << (k % in_word * bits)),
            Some(last) => {
                for bit in 0..bits {
                    let at = last * bits + bit;
                    put_bits(codes, at / TOP_BITS, column, u32::from(code >> bit & 1) << (TOP + at % TOP_BITS));
                }
            }
        }
    }
}

fn put_bits(codes: &mut [u8], word: usize, column: usize, bits: u32) {
    let at = &mut codes[word * WORD_BYTES + column * 4..][..4];
    for (byte, bits) in at.iter_mut().zip(bits.to_le_bytes()) {
        *byte |= bits;
    }
}

/// Places of a code in a float's mantissa. Where codes have four bits there are three of them, so that a word of eight is moved
/// three times and not eight. The lower a place is the larger is its bias, and what is added to take that away again is rounded:
/// to 2⁻¹² of a scale, at most.
///
/// ```text
///   code      7   6   5   4   3   2   1   0        of a word
///   place     0   1   2   0   1   2   1   2
///   moved     right by 9  left by 3   left by 11
/// ```
pub(super) const PLACES: usize = 3;

/// Of codes of so many bits.
pub(super) const fn places(bits: usize) -> usize {
    if bits == 4 { PLACES } else { 1 }
}

const fn place(bits: usize, k: usize) -> usize {
    const OF_FOUR: [usize; 8] = [2, 1, 2, 1, 0, 2, 1, 0];
    if bits == 4 { OF_FOUR[k % OF_FOUR.len()] } else { 0 }
}

/// The bit where a code begins.
const fn bit(bits: usize, place: usize) -> usize {
    if bits == 4 { 19 - 4 * place } else { 16 }
}

/// What [`biased`] adds to codes at a place.
pub(super) const fn bias(bits: usize, place: usize) -> f32 {
    if bits == 8 { 0.0 } else { bits_bias(bit(bits, place)) }
}

/// The codes of 16 columns at `k`, plus the bias of their place.
///
/// # Safety
/// The codes of a cell are readable.
#[inline(always)]
pub(super) unsafe fn biased<L: Lanes, const BITS: usize>(codes: *const u8, k: usize) -> (L, usize) {
    debug_assert!(k < GROUP);
    let (words, in_word, place) = (codes.cast::<u32>(), 32 / BITS, place(BITS, k));
    let at = bit(BITS, place);
    // SAFETY: words of the cell, or 16 bytes of it.
    unsafe {
        if BITS == 8 {
            return (L::load_i8(codes.add(k * LANES).cast()), place);
        }
        if k < in_word * BITS {
            return (L::load_bits(words.add(k / in_word * LANES), k % in_word * BITS, BITS, at), place);
        }
        let first = (k - in_word * BITS) * BITS;
        // Each part has a bias of its own.
        let (mut code, mut biases) = (L::splat(0.0), 0.0);
        for word in first / TOP_BITS..(first + BITS).div_ceil(TOP_BITS) {
            let (low, high) = (first.max(word * TOP_BITS), (first + BITS).min((word + 1) * TOP_BITS));
            let part = L::load_bits(words.add(word * LANES), TOP + low % TOP_BITS, high - low, at);
            let counts = (1 << (low - first)) as f32;
            code = part.fma(L::splat(counts), code);
            biases += counts * bits_bias(at);
        }
        (code.sub(L::splat(biases - bits_bias(at))), place)
    }
}
