use std::arch::x86_64::*;

use super::{LANES, Lanes};
use crate::cpu::isa::Kernel;

#[derive(Clone, Copy)]
pub(crate) struct Avx512(__m512);

macro_rules! avx512 {
    ($expression:expr) => {{
        // SAFETY: runs below `Isa::run` only, which has checked for AVX-512; pointers are the caller's promise.
        unsafe { $expression }
    }};
}

impl Lanes for Avx512 {
    const ACCUMULATORS: usize = 24;

    #[inline(always)]
    fn splat(x: f32) -> Self {
        Self(avx512!(_mm512_set1_ps(x)))
    }

    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        Self(avx512!(_mm512_loadu_ps(p)))
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        avx512!(_mm512_storeu_ps(p, self.0));
    }

    #[inline(always)]
    unsafe fn load_bf16_even(p: *const u8) -> Self {
        Self(avx512!(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_loadu_si512(p.cast())))))
    }

    #[inline(always)]
    unsafe fn load_bf16_odd(p: *const u8) -> Self {
        Self(avx512!(_mm512_castsi512_ps(_mm512_and_si512(
            _mm512_loadu_si512(p.cast()),
            _mm512_set1_epi32(0xffff_0000_u32 as i32)
        ))))
    }

    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        Self(avx512!(_mm512_fmadd_ps(self.0, b.0, c.0)))
    }

    #[inline(always)]
    fn add(self, b: Self) -> Self {
        Self(avx512!(_mm512_add_ps(self.0, b.0)))
    }

    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        Self(avx512!(_mm512_sub_ps(self.0, b.0)))
    }

    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        Self(avx512!(_mm512_mul_ps(self.0, b.0)))
    }

    #[inline(always)]
    fn div(self, b: Self) -> Self {
        Self(avx512!(_mm512_div_ps(self.0, b.0)))
    }

    #[inline(always)]
    fn max(self, b: Self) -> Self {
        Self(avx512!(_mm512_max_ps(self.0, b.0)))
    }

    #[inline(always)]
    fn min(self, b: Self) -> Self {
        Self(avx512!(_mm512_min_ps(self.0, b.0)))
    }

    #[inline(always)]
    fn keep_first(self, count: usize, other: Self) -> Self {
        let kept = ((1_u32 << count.min(LANES)) - 1) as u16;
        Self(avx512!(_mm512_mask_blend_ps(kept, other.0, self.0)))
    }

    #[inline(always)]
    fn pow2_of_magic(self) -> Self {
        Self(avx512!(_mm512_castsi512_ps(_mm512_add_epi32(
            _mm512_slli_epi32::<23>(_mm512_castps_si512(self.0)),
            _mm512_set1_epi32(127 << 23)
        ))))
    }

    #[inline(always)]
    fn to_array(self) -> [f32; LANES] {
        let mut array = [0.0; LANES];
        avx512!(self.store(array.as_mut_ptr()));
        array
    }

    #[inline(always)]
    fn prefetch(p: *const u8) {
        avx512!(_mm_prefetch::<_MM_HINT_T0>(p.cast()));
    }

    #[inline(always)]
    fn call<K: Kernel>(kernel: K) -> K::Output {
        avx512!(run(kernel))
    }
}

#[inline(never)]
#[target_feature(enable = "avx512f,avx2,fma")]
pub(crate) fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Avx512>()
}
