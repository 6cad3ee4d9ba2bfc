//! One or two rows, straight from the supercells of a panel.

use std::arch::x86_64::*;

use super::super::super::codes::QUAD_BYTES;
use super::super::super::format::Precision;
use super::super::super::superblock::{HALVES_BYTES, SMALL_BYTES, SUPER_BLOCKS, Superblocks};
use super::super::block::PREFETCH_BYTES;
use super::super::product::IntegerProduct;
use super::super::supercell::{FOUR_BITS, TWO_BITS};
use super::{Dots, begin, end, sixteen};
use crate::simd::vector::LANES;

/// # Safety
/// Pointers are good for `R` rows of the shapes that the product states, all its supercells are readable, and the machine has
/// the instructions.
#[inline(always)]
pub(super) unsafe fn rows_from_supercells<const R: usize>(
    product: &IntegerProduct,
    format: Superblocks,
    cells: *const u8,
) {
    let eighth = format.cell_bytes() / SUPER_BLOCKS;
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = begin::<R>(product);
        for (i, left) in product.left().chunks(SUPER_BLOCKS).enumerate() {
            let cell = cells.add(i * format.cell_bytes());
            let scales = Scales::of(format, cell);
            for (number, left) in left.iter().enumerate() {
                let codes = cell.add(number * format.block_bytes());
                for line in (0..eighth).step_by(64) {
                    _mm_prefetch::<_MM_HINT_T0>(cell.wrapping_add(PREFETCH_BYTES + number * eighth + line).cast());
                }
                let mut parts = [Dots::<R>::zero(), Dots::<R>::zero()];
                for half in 0..2 {
                    let [a, b, c, d] = four_quads(format, codes, half);
                    parts[0].add(left, 4 * half, a);
                    parts[0].add(left, 4 * half + 1, b);
                    parts[1].add(left, 4 * half + 2, c);
                    parts[1].add(left, 4 * half + 3, d);
                }
                parts[0].scale(left, 1, scales.of_part(2 * number), &mut sums);
                parts[1].scale(left, 2, scales.of_part(2 * number + 1), &mut sums);
            }
        }
        end(product, &sums);
    }
}

/// Half of a block's codes: two quads of the first 16 k, and two of the others.
///
/// # Safety
/// The block's codes are readable, and the machine has AVX-512.
#[inline(always)]
unsafe fn four_quads(format: Superblocks, codes: *const u8, half: usize) -> [__m512i; 4] {
    // SAFETY: the caller's promise.
    unsafe {
        let line = |at: usize| _mm512_loadu_si512(codes.add(at).cast());
        let masked = |codes, bits| _mm512_and_si512(codes, _mm512_set1_epi8(bits));
        let two_bits = |codes| {
            [
                masked(codes, 3),
                masked(_mm512_srli_epi16::<2>(codes), 3),
                masked(_mm512_srli_epi16::<4>(codes), 3),
                masked(_mm512_srli_epi16::<6>(codes), 3),
            ]
        };
        match format {
            Superblocks::Two => two_bits(line(half * QUAD_BYTES)),
            Superblocks::Three => {
                let [a, b, c, d] = two_bits(line(half * QUAD_BYTES));
                let all = line(TWO_BITS);
                // One bit for each quad, those of this half first.
                let third = if half == 0 { all } else { _mm512_srli_epi16::<4>(all) };
                [
                    _mm512_or_si512(a, masked(_mm512_slli_epi16::<2>(third), 4)),
                    _mm512_or_si512(b, masked(_mm512_slli_epi16::<1>(third), 4)),
                    _mm512_or_si512(c, masked(third, 4)),
                    _mm512_or_si512(d, masked(_mm512_srli_epi16::<1>(third), 4)),
                ]
            }
            Superblocks::Six => {
                let (first, second) = (line(2 * half * QUAD_BYTES), line((2 * half + 1) * QUAD_BYTES));
                let high = line(FOUR_BITS + half * QUAD_BYTES);
                [
                    _mm512_or_si512(masked(first, 15), masked(_mm512_slli_epi16::<4>(high), 48)),
                    _mm512_or_si512(
                        masked(_mm512_srli_epi16::<4>(first), 15),
                        masked(_mm512_slli_epi16::<2>(high), 48),
                    ),
                    _mm512_or_si512(masked(second, 15), masked(high, 48)),
                    _mm512_or_si512(
                        masked(_mm512_srli_epi16::<4>(second), 15),
                        masked(_mm512_srli_epi16::<2>(high), 48),
                    ),
                ]
            }
        }
    }
}

/// Of a supercell.
struct Scales {
    small: *const u8,
    scale: __m512,
    /// Where the type has minima; what a scale is multiplied with where it has none.
    minimum: __m512,
    has_minima: bool,
}

impl Scales {
    /// # Safety
    /// A whole supercell is readable, and the machine has AVX-512.
    #[inline(always)]
    unsafe fn of(format: Superblocks, cell: *const u8) -> Self {
        let has_minima = format.has_minima();
        // SAFETY: behind all codes are small scales, scales and minima.
        unsafe {
            let small = cell.add(SUPER_BLOCKS * format.block_bytes());
            let minimum = match has_minima {
                true => sixteen(Precision::Half, small.add(SMALL_BYTES + HALVES_BYTES)),
                false => _mm512_set1_ps(-f32::from(format.zero())),
            };
            Self { small, scale: sixteen(Precision::Half, small.add(SMALL_BYTES)), minimum, has_minima }
        }
    }

    /// And minima, of 16 k. Products of 11 bits and 8 are exact.
    ///
    /// # Safety
    /// The supercell is still readable, and has more than `part` parts.
    #[inline(always)]
    unsafe fn of_part(&self, part: usize) -> (__m512, __m512) {
        // SAFETY: the caller's promise.
        unsafe {
            let small = _mm_loadu_si128(self.small.add(part * LANES).cast());
            let floats = |bytes| _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
            if self.has_minima {
                let half = |bytes| floats(_mm_and_si128(bytes, _mm_set1_epi8(15)));
                let (scales, minima) = (half(small), half(_mm_srli_epi16::<4>(small)));
                return (_mm512_mul_ps(self.scale, scales), _mm512_mul_ps(self.minimum, minima));
            }
            let scales = _mm512_mul_ps(self.scale, floats(small));
            (scales, _mm512_mul_ps(scales, self.minimum))
        }
    }
}
