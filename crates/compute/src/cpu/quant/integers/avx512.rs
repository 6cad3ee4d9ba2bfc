//! With AVX-512 VNNI: one instruction adds four products of bytes in each of 16 lanes.

#![allow(
    clippy::needless_range_loop,
    reason = "rows and quads are numbers here; adapters of iterators would not be inlined across target features"
)]

use std::arch::x86_64::*;

use super::super::few_rows::sixteen;
use super::super::format::{CodeWidth, GROUP};
use super::PREFETCH_BYTES;
use super::block::{Block, QUAD, QUAD_BYTES, QUADS, quad_of};
use super::cell::IntegerGroups;
use super::product::IntegerProduct;
use super::rows::{HIGH, STRIP_ROWS, StripBlock};

/// So many rows gain nothing from cells that are expanded first.
pub(super) const MOST_FROM_CELLS: usize = 2;
const HIGH_BITS: u32 = HIGH.ilog2();

/// All rows of a strip.
///
/// # Safety
/// Pointers are good for the shapes that the product states, and the machine has AVX-512 with VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) unsafe fn strip(product: &IntegerProduct, cells: &[Block]) {
    // SAFETY: the caller's promise.
    unsafe {
        match product.parts {
            1 => strip_of_parts::<1>(product, cells),
            _ => strip_of_parts::<2>(product, cells),
        }
    }
}

/// # Safety
/// As above, with so many parts.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn strip_of_parts<const PARTS: usize>(product: &IntegerProduct, cells: &[Block]) {
    // SAFETY: the caller's promise.
    unsafe {
        match product.rows {
            1 => rows::<1, PARTS>(product, cells),
            2 => rows::<2, PARTS>(product, cells),
            3 => rows::<3, PARTS>(product, cells),
            4 => rows::<4, PARTS>(product, cells),
            5 => rows::<5, PARTS>(product, cells),
            _ => rows::<STRIP_ROWS, PARTS>(product, cells),
        }
    }
}

/// # Safety
/// As above, with `R` rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn rows<const R: usize, const PARTS: usize>(product: &IntegerProduct, cells: &[Block]) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = begin::<R>(product);
        for (left, cell) in product.left().iter().zip(cells) {
            for part in 0..PARTS {
                let mut dots = Dots::<R>::zero();
                for i in 0..QUADS / PARTS {
                    let quad = quad_of(PARTS, part, i);
                    dots.add(left, quad, _mm512_load_si512(cell.codes[quad].as_ptr().cast()));
                }
                let scales = _mm512_load_ps(cell.scales[part].as_ptr());
                let minima = _mm512_load_ps(cell.minima[part].as_ptr());
                dots.scale(left, PARTS - 1 + part, (scales, minima), &mut sums);
            }
        }
        end(product, &sums);
    }
}

/// One or two rows, straight from the cells of a panel.
///
/// # Safety
/// As above; so many cells are readable.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) unsafe fn from_cells(product: &IntegerProduct, format: IntegerGroups, cells: *const u8) {
    // SAFETY: the caller's promise.
    unsafe {
        match product.rows {
            1 => rows_from_cells::<1>(product, format, cells),
            _ => rows_from_cells::<MOST_FROM_CELLS>(product, format, cells),
        }
    }
}

/// # Safety
/// As above, with `R` rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn rows_from_cells<const R: usize>(product: &IntegerProduct, format: IntegerGroups, cells: *const u8) {
    let (low, fifth) = (_mm512_set1_epi8(15), _mm512_set1_epi8(16));
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = begin::<R>(product);
        for (block, left) in product.left().iter().enumerate() {
            let cell = cells.add(block * format.cell_bytes());
            for line in (0..format.cell_bytes()).step_by(64) {
                _mm_prefetch::<_MM_HINT_T0>(cell.wrapping_add(PREFETCH_BYTES + line).cast());
            }
            let bytes = |at: usize| _mm512_loadu_si512(cell.add(at * QUAD_BYTES).cast());
            // Chains of even and of odd quads: one row alone would wait for its own sums.
            let (mut even, mut odd) = (Dots::<R>::zero(), Dots::<R>::zero());
            match format.width() {
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
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn scales(format: IntegerGroups, cell: *const u8) -> (__m512, __m512) {
    let IntegerGroups(format_of_cell) = format;
    // SAFETY: behind the codes are the scales, and behind them the minima.
    unsafe {
        let at = cell.add(format_of_cell.code_bytes());
        let scales = sixteen(format_of_cell.scales, at);
        let minima = match format_of_cell.minima {
            true => sixteen(format_of_cell.scales, at.add(format_of_cell.scale_bytes())),
            false => _mm512_mul_ps(scales, _mm512_set1_ps(-f32::from(format.zero()))),
        };
        (scales, minima)
    }
}

/// Four k of a row in all lanes: of the high bytes, or of the low ones.
///
/// # Safety
/// The machine has AVX-512.
#[inline(always)]
unsafe fn four(left: &StripBlock, row: usize, byte: usize, quad: usize) -> __m512i {
    // SAFETY: inside of the row's bytes; below a function with these instructions.
    unsafe {
        let x = left.bytes[row].as_ptr().add(byte * GROUP + quad * QUAD);
        _mm512_set1_epi32(x.cast::<i32>().read_unaligned())
    }
}

/// Sums of a block's products.
struct Dots<const R: usize> {
    high: [__m512i; R],
    low: [__m512i; R],
}

impl<const R: usize> Dots<R> {
    #[inline(always)]
    fn zero() -> Self {
        // SAFETY: below a function with these instructions.
        let zero = unsafe { _mm512_setzero_si512() };
        Self { high: [zero; R], low: [zero; R] }
    }

    /// # Safety
    /// The machine has the instructions.
    #[inline(always)]
    unsafe fn add(&mut self, left: &StripBlock, quad: usize, codes: __m512i) {
        for row in 0..R {
            // SAFETY: the caller's promise.
            unsafe {
                self.high[row] = _mm512_dpbusd_epi32(self.high[row], codes, four(left, row, 0, quad));
                self.low[row] = _mm512_dpbusd_epi32(self.low[row], codes, four(left, row, 1, quad));
            }
        }
    }

    /// Adds them to the sums of their rows; `which` of the rows' own sums minima are multiplied with.
    ///
    /// # Safety
    /// The machine has the instructions.
    #[inline(always)]
    unsafe fn scale(
        &self,
        left: &StripBlock,
        which: usize,
        (scales, minima): (__m512, __m512),
        sums: &mut [__m512; R],
    ) {
        for row in 0..R {
            // SAFETY: the caller's promise.
            unsafe {
                let dot = _mm512_add_epi32(_mm512_slli_epi32::<HIGH_BITS>(self.high[row]), self.low[row]);
                let dot = _mm512_mul_ps(_mm512_cvtepi32_ps(dot), _mm512_set1_ps(left.units[row]));
                sums[row] = _mm512_fmadd_ps(dot, scales, sums[row]);
                sums[row] = _mm512_fmadd_ps(minima, _mm512_set1_ps(left.sums[which][row]), sums[row]);
            }
        }
    }

    #[inline(always)]
    fn plus(mut self, other: &Self) -> Self {
        for row in 0..R {
            // SAFETY: below a function with these instructions.
            unsafe {
                self.high[row] = _mm512_add_epi32(self.high[row], other.high[row]);
                self.low[row] = _mm512_add_epi32(self.low[row], other.low[row]);
            }
        }
        self
    }
}

/// # Safety
/// `R` rows of C are readable.
#[inline(always)]
unsafe fn begin<const R: usize>(product: &IntegerProduct) -> [__m512; R] {
    // SAFETY: the caller's promise; below a function with these instructions.
    unsafe {
        let mut sums = [_mm512_setzero_ps(); R];
        if product.resume {
            for row in 0..R {
                sums[row] = _mm512_loadu_ps(product.c.add(row * product.c_stride));
            }
        }
        sums
    }
}

/// # Safety
/// `R` rows of C are writable.
#[inline(always)]
unsafe fn end<const R: usize>(product: &IntegerProduct, sums: &[__m512; R]) {
    for row in 0..R {
        // SAFETY: the caller's promise; below a function with these instructions.
        unsafe { _mm512_storeu_ps(product.c.add(row * product.c_stride), sums[row]) };
    }
}
