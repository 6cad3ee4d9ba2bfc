//! How codes of 16 columns × 32 k lie in a cell. Products of bytes read four k of a column at a time, a quad, from 64 bytes of
//! all columns; products of floats read the same lines as sixteen words of 32 bits, one per column.
//!
//! ```text
//!   place i of a block    0 … 15    16 … 31       even k come before odd ones
//!   k                     0 … 30     1 … 31
//!
//!   quad t = i / 4, column c: in byte 4c + i % 4 of a line of 64 bytes
//!     8 bits   line t
//!     4 bits   line t / 2, low half for even t, high half for odd       the low bits of 5 and 6
//!     2 bits   line t / 4, bits 2(t % 4)                                the high ones of 6, the low ones of 3
//!     1 bit    one line, bit t                                          the high one of 3 and of 5
//! ```
//!
//! All are unsigned; lines of low bits come first.

use crate::simd::vector::LANES;
use crate::weights::layout::GROUP;

/// k that one product of bytes adds up.
pub(super) const QUAD: usize = 4;
pub(super) const QUADS: usize = GROUP / QUAD;
/// Of all columns: a line.
pub(super) const QUAD_BYTES: usize = QUAD * LANES;

/// Where k is in its block.
pub(super) const fn place(k: usize) -> usize {
    k / 2 + k % 2 * (GROUP / 2)
}

/// Of 16 columns × 32 k.
pub(super) const fn code_bytes(bits: usize) -> usize {
    bits * LANES * GROUP / 8
}

/// Bits of codes that lie together.
#[derive(Clone, Copy)]
pub(super) struct Field {
    pub(super) bits: usize,
    first_line: usize,
}

/// The low bits of codes, and the high ones if those lie elsewhere.
pub(super) const fn fields(bits: usize) -> (Field, Option<Field>) {
    let low = match bits {
        2 | 3 => 2,
        4..=6 => 4,
        _ => bits,
    };
    let low = Field { bits: low, first_line: 0 };
    match bits - low.bits {
        0 => (low, None),
        bits => (low, Some(Field { bits, first_line: low.bits * QUADS / 8 })),
    }
}

impl Field {
    /// The line of a quad, and the lowest of its bits in each byte.
    pub(super) const fn of_quad(self, quad: usize) -> (usize, usize) {
        let quads = 8 / self.bits;
        (self.first_line + quad / quads, quad % quads * self.bits)
    }
}

/// Writes one column of codes that are zero so far.
pub(super) fn put(codes: &mut [u8], bits: usize, column: usize, of_column: &[u8]) {
    let (low, high) = fields(bits);
    for (k, &code) in of_column.iter().enumerate() {
        let (quad, byte) = (place(k) / QUAD, column * QUAD + place(k) % QUAD);
        let mut rest = usize::from(code);
        for field in [Some(low), high].into_iter().flatten() {
            let (line, bit) = field.of_quad(quad);
            codes[line * QUAD_BYTES + byte] |= ((rest & ((1 << field.bits) - 1)) << bit) as u8;
            rest >>= field.bits;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_all_bits() {
        for (bits, low, high) in
            [(2, 2, None), (3, 2, Some((1, 2))), (4, 4, None), (5, 4, Some((1, 4))), (6, 4, Some((2, 4))), (8, 8, None)]
        {
            let (got_low, got_high) = fields(bits);
            assert_eq!((got_low.bits, got_low.first_line), (low, 0), "{bits} bits");
            assert_eq!(got_high.map(|field| (field.bits, field.first_line)), high, "{bits} bits");
        }
    }
}
