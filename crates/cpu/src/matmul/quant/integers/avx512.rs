//! With AVX-512: all columns of a panel at a time, with VNNI, whose instruction multiplies four bytes with four and adds up.

#![allow(
    clippy::needless_range_loop,
    reason = "rows and groups are numbers here; adapters of iterators would not be inlined across target features"
)]

mod few_rows;

use std::arch::x86_64::*;

pub(super) use self::few_rows::{FEW_ROWS, few_rows};
use super::expanded_block::{ExpandedBlock, k4_of};
use super::product::IntegerProduct;
use super::rows::{ByteStrip, HIGH, STRIP_ROWS};
use crate::weights::layout::GROUP;
use crate::weights::quant::block_format::Precision;
use crate::weights::quant::packing::{DOT_K, DOTS_PER_BLOCK};

/// All rows of a strip.
///
/// # Safety
/// Pointers are good for the shapes that the product states, and the machine has AVX-512 with VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) unsafe fn strip(product: &IntegerProduct, blocks: &[ExpandedBlock]) {
    // SAFETY: the caller's promise.
    unsafe {
        match product.parts {
            1 => strip_of::<1>(product, blocks),
            _ => strip_of::<2>(product, blocks),
        }
    }
}

/// # Safety
/// Pointers are good, a block has `PARTS`, and the machine has the instructions.
#[inline(always)]
unsafe fn strip_of<const PARTS: usize>(product: &IntegerProduct, blocks: &[ExpandedBlock]) {
    // SAFETY: the caller's promise.
    unsafe {
        match product.rows {
            1 => rows::<1, PARTS>(product, blocks),
            2 => rows::<2, PARTS>(product, blocks),
            3 => rows::<3, PARTS>(product, blocks),
            4 => rows::<4, PARTS>(product, blocks),
            5 => rows::<5, PARTS>(product, blocks),
            _ => rows::<STRIP_ROWS, PARTS>(product, blocks),
        }
    }
}

/// # Safety
/// As above, with `R` rows.
#[inline(always)]
unsafe fn rows<const R: usize, const PARTS: usize>(product: &IntegerProduct, blocks: &[ExpandedBlock]) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = begin::<R>(product);
        for (left, block) in product.left().iter().zip(blocks) {
            for part in 0..PARTS {
                let mut dots = Dots::<R>::zero();
                for i in 0..DOTS_PER_BLOCK / PARTS {
                    let k4 = k4_of(PARTS, part, i);
                    dots.add(left, k4, _mm512_load_si512(block.values[k4].as_ptr().cast()));
                }
                let scales = _mm512_load_ps(block.scales[part].as_ptr());
                let minima = _mm512_load_ps(block.minima[part].as_ptr());
                dots.scale(left, PARTS - 1 + part, (scales, minima), &mut sums);
            }
        }
        end(product, &sums);
    }
}

/// Four k of a row in all lanes: of the high bytes, or of the low ones.
///
/// # Safety
/// The machine has AVX-512; `byte` is 0 or 1, and `k4` below 8.
#[inline(always)]
unsafe fn four(left: &ByteStrip, row: usize, byte: usize, k4: usize) -> __m512i {
    // SAFETY: inside of the row's bytes.
    unsafe {
        let x = left.bytes[row].as_ptr().add(byte * GROUP + k4 * DOT_K);
        _mm512_set1_epi32(x.cast::<i32>().read_unaligned())
    }
}

/// Sums of a part's products.
struct Dots<const R: usize> {
    high: [__m512i; R],
    low: [__m512i; R],
}

impl<const R: usize> Dots<R> {
    /// # Safety
    /// The machine has the instructions.
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller's promise.
        let zero = unsafe { _mm512_setzero_si512() };
        Self { high: [zero; R], low: [zero; R] }
    }

    /// # Safety
    /// The machine has the instructions.
    #[inline(always)]
    unsafe fn add(&mut self, left: &ByteStrip, k4: usize, values: __m512i) {
        for row in 0..R {
            // SAFETY: the caller's promise.
            unsafe {
                self.high[row] = _mm512_dpbusd_epi32(self.high[row], values, four(left, row, 0, k4));
                self.low[row] = _mm512_dpbusd_epi32(self.low[row], values, four(left, row, 1, k4));
            }
        }
    }

    /// Adds them to the sums of their rows; `which` of the rows' own sums minima are multiplied with.
    ///
    /// # Safety
    /// The machine has the instructions.
    #[inline(always)]
    unsafe fn scale(&self, left: &ByteStrip, which: usize, (scales, minima): (__m512, __m512), sums: &mut [__m512; R]) {
        for row in 0..R {
            // SAFETY: the caller's promise.
            unsafe {
                let dot = _mm512_slli_epi32::<{ HIGH.ilog2() }>(self.high[row]);
                let dot = _mm512_cvtepi32_ps(_mm512_add_epi32(dot, self.low[row]));
                let dot = _mm512_mul_ps(dot, _mm512_set1_ps(left.units[row]));
                sums[row] = _mm512_fmadd_ps(dot, scales, sums[row]);
                sums[row] = _mm512_fmadd_ps(minima, _mm512_set1_ps(left.sums[which][row]), sums[row]);
            }
        }
    }

    /// # Safety
    /// The machine has the instructions.
    #[inline(always)]
    unsafe fn plus(mut self, other: &Self) -> Self {
        for row in 0..R {
            // SAFETY: the caller's promise.
            unsafe {
                self.high[row] = _mm512_add_epi32(self.high[row], other.high[row]);
                self.low[row] = _mm512_add_epi32(self.low[row], other.low[row]);
            }
        }
        self
    }
}

/// # Safety
/// `R` rows of C are readable, and the machine has AVX-512.
#[inline(always)]
unsafe fn begin<const R: usize>(product: &IntegerProduct) -> [__m512; R] {
    // SAFETY: the caller's promise.
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
/// `R` rows of C are writable, and the machine has AVX-512.
#[inline(always)]
unsafe fn end<const R: usize>(product: &IntegerProduct, sums: &[__m512; R]) {
    for row in 0..R {
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_ps(product.c.add(row * product.c_stride), sums[row]) };
    }
}

/// # Safety
/// 16 scales are readable.
#[inline(always)]
unsafe fn sixteen(precision: Precision, scales: *const u8) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe {
        match precision {
            Precision::Half => _mm512_cvtph_ps(_mm256_loadu_si256(scales.cast())),
            Precision::Single => _mm512_loadu_ps(scales.cast()),
        }
    }
}
