//! How the quantized values of 16 columns × 32 k lie in a block. A byte dot product takes a group of four k (`k4`) of every column
//! from one line of 64 bytes; float matmuls read the same lines as sixteen words of 32 bits, one per column.
//!
//! ```text
//!   place i of a block    0 … 15    16 … 31       even k come before odd ones
//!   k                     0 … 30     1 … 31
//!
//!   group t = i / 4, column c: in byte 4c + i % 4 of a line of 64 bytes
//!     8 bits   line t
//!     4 bits   line t / 2, low half for even t, high half for odd       the low bits of 5 and 6
//!     2 bits   line t / 4, bits 2(t % 4)                                the high ones of 6, the low ones of 3
//!     1 bit    one line, bit t                                          the high one of 3 and of 5
//! ```
//!
//! Values are unsigned; lines of low bits come first.

use crate::simd::vector::LANES;
use crate::weights::layout::GROUP;

/// k that one byte dot product adds up.
pub(crate) const DOT_K: usize = 4;
pub(crate) const DOTS_PER_BLOCK: usize = GROUP / DOT_K;
/// The bytes of four k of all columns: a line.
pub(crate) const DOT_BYTES: usize = DOT_K * LANES;

/// The place of k in its block.
pub(crate) const fn k_order(k: usize) -> usize {
    k / 2 + k % 2 * (GROUP / 2)
}

/// Bytes of the values of 16 columns × 32 k.
pub(crate) const fn packed_bytes(bits: usize) -> usize {
    bits * LANES * GROUP / 8
}

/// A number of bits of each value, which lie in lines of their own.
#[derive(Clone, Copy)]
pub(crate) struct Field {
    pub(crate) bits: usize,
    first_line: usize,
}

/// The low bits of values, and the high ones if those lie elsewhere.
pub(crate) const fn fields(bits: usize) -> (Field, Option<Field>) {
    let low = match bits {
        2 | 3 => 2,
        4..=6 => 4,
        _ => bits,
    };
    let low = Field { bits: low, first_line: 0 };
    match bits - low.bits {
        0 => (low, None),
        bits => (low, Some(Field { bits, first_line: low.bits * DOTS_PER_BLOCK / 8 })),
    }
}

impl Field {
    /// The line of a group of four k, and the lowest of its bits in each byte.
    pub(crate) const fn of_k4(self, k4: usize) -> (usize, usize) {
        let per_line = 8 / self.bits;
        (self.first_line + k4 / per_line, k4 % per_line * self.bits)
    }
}

/// Writes one column of a block whose values are zero so far.
pub(crate) fn pack_column(packed: &mut [u8], bits: usize, column: usize, column_values: &[u8]) {
    let (low, high) = fields(bits);
    for (k, &value) in column_values.iter().enumerate() {
        let (k4, byte) = (k_order(k) / DOT_K, column * DOT_K + k_order(k) % DOT_K);
        let mut rest = usize::from(value);
        for field in [Some(low), high].into_iter().flatten() {
            let (line, bit) = field.of_k4(k4);
            packed[line * DOT_BYTES + byte] |= ((rest & ((1 << field.bits) - 1)) << bit) as u8;
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
