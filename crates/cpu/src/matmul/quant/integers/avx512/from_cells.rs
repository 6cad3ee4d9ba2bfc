//! One or two rows, whose cells are not worth expanding first.

use std::arch::x86_64::*;

use super::super::super::cell_format::CellFormat;
use super::super::super::codes::{QUAD_BYTES, QUADS};
use super::super::super::format::{CodeWidth, Format};
use super::super::block::PREFETCH_BYTES;
use super::super::product::IntegerProduct;
use super::from_supercells::rows_from_supercells;
use super::{Dots, begin, end, sixteen};

/// Most rows that are multiplied with cells as these are read.
pub(in super::super) const MOST_FROM_CELLS: usize = 2;

/// Straight from the cells of a panel.
///
/// # Safety
/// Pointers are good for the shapes that the product states, all its cells are readable, and the machine has
/// AVX-512 with VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(in super::super) unsafe fn from_cells(product: &IntegerProduct, format: CellFormat, cells: *const u8) {
    // SAFETY: the caller's promise.
    unsafe {
        match (format, product.rows) {
            (CellFormat::Groups(groups), 1) => rows_from_cells::<1>(product, groups, cells),
            (CellFormat::Groups(groups), _) => rows_from_cells::<MOST_FROM_CELLS>(product, groups, cells),
            (CellFormat::Superblocks(superblocks), 1) => rows_from_supercells::<1>(product, superblocks, cells),
            (CellFormat::Superblocks(superblocks), _) => {
                rows_from_supercells::<MOST_FROM_CELLS>(product, superblocks, cells);
            }
        }
    }
}

/// # Safety
/// As above, with `R` rows.
#[inline(always)]
unsafe fn rows_from_cells<const R: usize>(product: &IntegerProduct, format: Format, cells: *const u8) {
    // SAFETY: the caller's promise.
    unsafe {
        let (low, fifth) = (_mm512_set1_epi8(15), _mm512_set1_epi8(16));
        let mut sums = begin::<R>(product);
        for (block, left) in product.left().iter().enumerate() {
            let cell = cells.add(block * format.cell_bytes());
            for line in (0..format.cell_bytes()).step_by(64) {
                _mm_prefetch::<_MM_HINT_T0>(cell.wrapping_add(PREFETCH_BYTES + line).cast());
            }
            let bytes = |at: usize| _mm512_loadu_si512(cell.add(at * QUAD_BYTES).cast());
            // Chains of even and of odd quads: one row alone would wait for its own sums.
            let (mut even, mut odd) = (Dots::<R>::zero(), Dots::<R>::zero());
            match format.width {
                CodeWidth::Four => {
                    for two in 0..QUADS / 2 {
                        let codes = bytes(two);
                        even.add(left, 2 * two, _mm512_and_si512(codes, low));
                        odd.add(left, 2 * two + 1, _mm512_and_si512(_mm512_srli_epi16::<4>(codes), low));
                    }
                }
                CodeWidth::Five => {
                    let mut fifths = bytes(QUADS / 2);
                    for two in 0..QUADS / 2 {
                        let codes = bytes(two);
                        // The lowest bit to bit 4, and the one above it.
                        let first = _mm512_and_si512(_mm512_slli_epi16::<4>(fifths), fifth);
                        let second = _mm512_and_si512(_mm512_slli_epi16::<3>(fifths), fifth);
                        even.add(left, 2 * two, _mm512_or_si512(_mm512_and_si512(codes, low), first));
                        let high = _mm512_and_si512(_mm512_srli_epi16::<4>(codes), low);
                        odd.add(left, 2 * two + 1, _mm512_or_si512(high, second));
                        fifths = _mm512_srli_epi16::<2>(fifths);
                    }
                }
                CodeWidth::Eight => {
                    for two in 0..QUADS / 2 {
                        even.add(left, 2 * two, bytes(2 * two));
                        odd.add(left, 2 * two + 1, bytes(2 * two + 1));
                    }
                }
            }
            let scales = scales(format, cell);
            even.plus(&odd).scale(left, 0, scales, &mut sums);
        }
        end(product, &sums);
    }
}

/// And minima.
///
/// # Safety
/// A whole cell is readable, and the machine has AVX-512.
#[inline(always)]
unsafe fn scales(format: Format, cell: *const u8) -> (__m512, __m512) {
    // SAFETY: behind the codes are the scales, and behind them the minima.
    unsafe {
        let at = cell.add(format.code_bytes());
        let scales = sixteen(format.scales, at);
        let minima = match format.minima {
            true => sixteen(format.scales, at.add(format.scale_bytes())),
            false => _mm512_mul_ps(scales, _mm512_set1_ps(-f32::from(format.zero))),
        };
        (scales, minima)
    }
}
