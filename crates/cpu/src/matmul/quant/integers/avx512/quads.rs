//! Products of bytes, four k at a time in each of 16 lanes, and their sums.

use std::arch::x86_64::*;

use super::super::rows::HIGH;

/// Sums of one part of a block: codes times a row's high bytes, or its low ones.
pub(super) trait Quads: Copy {
    /// # Safety
    /// The machine has the instructions of this kind, here and below.
    unsafe fn zero() -> Self;

    /// Plus four products in each lane.
    ///
    /// # Safety
    /// See [`Quads::zero`].
    unsafe fn add(self, codes: __m512i, x: __m512i) -> Self;

    /// Sums of other k of the same part.
    ///
    /// # Safety
    /// See [`Quads::zero`].
    unsafe fn plus(self, other: Self) -> Self;

    /// Of a row's whole numbers.
    ///
    /// # Safety
    /// See [`Quads::zero`].
    unsafe fn dot(high: Self, low: Self) -> __m512i;
}

/// AVX-512 VNNI: one instruction multiplies, and adds all four.
#[derive(Clone, Copy)]
pub(super) struct Vnni(__m512i);

impl Quads for Vnni {
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller's promise, here and below.
        Self(unsafe { _mm512_setzero_si512() })
    }

    #[inline(always)]
    unsafe fn add(self, codes: __m512i, x: __m512i) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_dpbusd_epi32(self.0, codes, x) })
    }

    #[inline(always)]
    unsafe fn plus(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_add_epi32(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn dot(high: Self, low: Self) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_add_epi32(_mm512_slli_epi32::<{ HIGH.ilog2() }>(high.0), low.0) }
    }
}

/// Before VNNI, where a whole part's products of two k fit into 16 bits: 8 · 2 · 31 · 64, or 4 · 2 · 63 · 64.
#[derive(Clone, Copy)]
pub(super) struct Words(__m512i);

impl Quads for Words {
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller's promise, here and below.
        Self(unsafe { _mm512_setzero_si512() })
    }

    #[inline(always)]
    unsafe fn add(self, codes: __m512i, x: __m512i) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_add_epi16(self.0, _mm512_maddubs_epi16(codes, x)) })
    }

    #[inline(always)]
    unsafe fn plus(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_add_epi16(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn dot(high: Self, low: Self) -> __m512i {
        // SAFETY: as above.
        unsafe {
            let high = _mm512_madd_epi16(high.0, _mm512_set1_epi16(HIGH as i16));
            _mm512_add_epi32(high, _mm512_madd_epi16(low.0, _mm512_set1_epi16(1)))
        }
    }
}

/// Before VNNI, whatever the code: products of two k fit into 16 bits, 2 · 255 · 64, but not their sums.
#[derive(Clone, Copy)]
pub(super) struct Pairs(__m512i);

impl Quads for Pairs {
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller's promise, here and below.
        Self(unsafe { _mm512_setzero_si512() })
    }

    #[inline(always)]
    unsafe fn add(self, codes: __m512i, x: __m512i) -> Self {
        // SAFETY: as above.
        unsafe {
            let pairs = _mm512_maddubs_epi16(codes, x);
            Self(_mm512_add_epi32(self.0, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1))))
        }
    }

    #[inline(always)]
    unsafe fn plus(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_add_epi32(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn dot(high: Self, low: Self) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_add_epi32(_mm512_slli_epi32::<{ HIGH.ilog2() }>(high.0), low.0) }
    }
}
