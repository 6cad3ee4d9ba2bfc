use std::arch::x86_64::*;

use super::avx2;
use super::vector::{Bits, Kernel, LANES, Lanes, MAGIC, bits_bias};

/// `TILES`: the machine has AMX and with it AVX512_BF16, too, or, in tests, both are emulated.
#[derive(Clone, Copy)]
pub(crate) struct Avx512<const TILES: bool>(__m512);

macro_rules! avx512 {
    ($expression:expr) => {{
        // SAFETY: runs below `Isa::run` only, which has checked for AVX-512; pointers are the caller's promise.
        unsafe { $expression }
    }};
}

impl<const TILES: bool> Lanes for Avx512<TILES> {
    const ACCUMULATORS: usize = 24;
    const MANY_REGISTERS: bool = true;
    const TILES: bool = TILES;
    const TABLE_BYTES: usize = 64;

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
    unsafe fn store_past_caches(self, p: *mut f32) {
        debug_assert!(p.cast::<Self>().is_aligned());
        avx512!(_mm512_stream_ps(p, self.0));
    }

    #[inline(always)]
    fn wait_for_stores() {
        avx512!(_mm_sfence());
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
    unsafe fn load_pairs(p: *const f32) -> (Self, Self) {
        // SAFETY: the caller's promise.
        avx512!({
            let (first, second) = (_mm512_loadu_ps(p), _mm512_loadu_ps(p.add(LANES)));
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
            (Self(_mm512_permutex2var_ps(first, even, second)), Self(_mm512_permutex2var_ps(first, odd, second)))
        })
    }

    #[inline(always)]
    unsafe fn load_i8(p: *const i8) -> Self {
        Self(avx512!(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast())))))
    }

    #[inline(always)]
    unsafe fn load_f16(p: *const u8) -> Self {
        Self(avx512!(_mm512_cvtph_ps(_mm256_loadu_si256(p.cast()))))
    }

    #[inline(always)]
    unsafe fn load_bits(bits: Bits, at: usize) -> Self {
        avx512!(Self(biased(moved(bits, at), bits.count, at)))
    }

    #[inline(always)]
    unsafe fn load_split_bits(low: Bits, high: Bits, at: usize) -> Self {
        avx512!({
            let lower = _mm512_set1_epi32(((1 << low.count) - 1) << at);
            // lower ? low : high, bit by bit
            let both = _mm512_ternarylogic_epi32::<0xca>(lower, moved(low, at), moved(high, at + low.count));
            Self(biased(both, low.count + high.count, at))
        })
    }

    #[inline(always)]
    fn cut_to_bf16(self) -> Self {
        let upper = avx512!(_mm512_set1_epi32(0xffff_0000_u32 as i32));
        Self(avx512!(_mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(self.0), upper))))
    }

    #[inline(always)]
    unsafe fn store_bf16_pairs(even: Self, odd: Self, p: *mut u8) {
        avx512!({
            let even = _mm512_srli_epi32::<16>(_mm512_castps_si512(even.0));
            let upper = _mm512_set1_epi32(0xffff_0000_u32 as i32);
            // upper ? odd : even, bit by bit
            let pairs = _mm512_ternarylogic_epi32::<0xca>(upper, _mm512_castps_si512(odd.0), even);
            _mm512_storeu_si512(p.cast(), pairs);
        });
    }

    #[inline(always)]
    unsafe fn store_bf16(self, p: *mut u8) {
        avx512!(_mm256_storeu_si256(p.cast(), self.to_bf16()));
    }

    #[inline(always)]
    unsafe fn store_bf16_apart(self, p: *mut u8) {
        avx512!({
            let pairs = _mm512_cvtepu16_epi32(self.to_bf16());
            _mm512_mask_storeu_epi16(p.cast(), 0x5555_5555, pairs);
        });
    }

    #[inline(always)]
    unsafe fn store_i8(self, p: *mut i8) {
        let biased = self.add(Self::splat(MAGIC));
        avx512!(_mm_storeu_si128(p.cast(), _mm512_cvtepi32_epi8(_mm512_castps_si512(biased.0))));
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
    fn times_pow2_of_magic(self, biased: Self) -> Self {
        Self(avx512!(_mm512_castsi512_ps(_mm512_add_epi32(
            _mm512_slli_epi32::<23>(_mm512_castps_si512(biased.0)),
            _mm512_castps_si512(self.0)
        ))))
    }

    #[inline(always)]
    fn keep_in_step<const N: usize>(vectors: &mut [Self; N]) {
        for vector in vectors {
            avx512!(in_turn(&mut vector.0));
        }
    }

    #[inline(always)]
    fn to_array(self) -> [f32; LANES] {
        let mut array = [0.0; LANES];
        avx512!(self.store(array.as_mut_ptr()));
        array
    }

    #[inline(always)]
    fn sum(self) -> f32 {
        avx512!(avx2::sum(_mm256_add_ps(self.low(), self.high())))
    }

    #[inline(always)]
    fn largest(self) -> f32 {
        avx512!(avx2::largest(_mm256_max_ps(self.low(), self.high())))
    }

    #[inline(always)]
    fn largest_magnitude(self, b: Self) -> u32 {
        avx512!({
            let bits = |x: __m512| _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(i32::MAX));
            let both = _mm512_max_epu32(bits(self.0), bits(b.0));
            avx2::largest_word(_mm256_max_epu32(_mm512_castsi512_si256(both), _mm512_extracti64x4_epi64::<1>(both)))
        })
    }

    #[inline(always)]
    fn prefetch(p: *const u8) {
        avx512!(_mm_prefetch::<_MM_HINT_T0>(p.cast()));
    }

    #[inline(always)]
    fn prefetch_to_write(p: *const u8) {
        // `_mm_prefetch` would fetch it as if it were only read.
        // SAFETY: every machine with AVX-512 has the instruction, and any address will do.
        unsafe { std::arch::asm!("prefetchw [{}]", in(reg) p, options(nostack, preserves_flags, readonly)) };
    }

    #[inline(always)]
    fn prefetch_second_level(p: *const u8) {
        avx512!(_mm_prefetch::<_MM_HINT_T1>(p.cast()));
    }

    #[inline(always)]
    fn call<K: Kernel>(kernel: K) -> K::Output {
        if TILES { avx512!(run_with_tiles(kernel)) } else { avx512!(run(kernel)) }
    }

    #[inline(always)]
    fn call_without_tiles<K: Kernel>(kernel: K) -> K::Output {
        avx512!(run(kernel))
    }
}

impl<const TILES: bool> Avx512<TILES> {
    #[inline(always)]
    fn low(self) -> __m256 {
        avx512!(_mm512_castps512_ps256(self.0))
    }

    #[inline(always)]
    fn high(self) -> __m256 {
        avx512!(_mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(self.0))))
    }

    #[inline(always)]
    fn to_bf16(self) -> __m256i {
        if TILES && (cfg!(not(test)) || is_x86_feature_detected!("avx512bf16")) {
            // SAFETY: `TILES` promises the instruction, or it was looked for, and the two types are the same 32 bytes.
            return unsafe { std::mem::transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(self.0)) };
        }
        avx512!({
            let bits = _mm512_castps_si512(self.0);
            let high = _mm512_srli_epi32::<16>(bits);
            let odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
            let half_up = _mm512_add_epi32(bits, _mm512_add_epi32(_mm512_set1_epi32(0x7fff), odd));
            let rounded = _mm512_srli_epi32::<16>(half_up);
            let denormal = _mm512_testn_epi32_mask(bits, _mm512_set1_epi32(0x7f80_0000));
            let rounded = _mm512_mask_and_epi32(rounded, denormal, high, _mm512_set1_epi32(0x8000));
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(self.0, self.0);
            let rounded = _mm512_mask_or_epi32(rounded, nan, high, _mm512_set1_epi32(0x40));
            _mm512_cvtepi32_epi16(rounded)
        })
    }
}

/// Does nothing, but not before or behind others of its kind.
#[inline]
#[target_feature(enable = "avx512f")]
fn in_turn(vector: &mut __m512) {
    // SAFETY: there is no instruction.
    unsafe { std::arch::asm!("/* {} */", inout(zmm_reg) * vector, options(nostack, nomem, preserves_flags)) };
}

#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni,avx2,fma")]
fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Avx512<false>>()
}

/// So that they begin at bit `at`, with others beside them.
///
/// # Safety
/// Sixteen words are readable.
#[inline(always)]
unsafe fn moved(bits: Bits, at: usize) -> __m512i {
    avx512!({
        let words = _mm512_loadu_si512(bits.words.cast());
        if bits.first > at {
            _mm512_srlv_epi32(words, _mm512_set1_epi32((bits.first - at) as i32))
        } else {
            _mm512_sllv_epi32(words, _mm512_set1_epi32((at - bits.first) as i32))
        }
    })
}

/// A mask of `count` bits, in a mantissa.
#[inline(always)]
fn biased(words: __m512i, count: usize, at: usize) -> __m512 {
    avx512!({
        let kept = _mm512_and_si512(words, _mm512_set1_epi32(((1 << count) - 1) << at));
        _mm512_castsi512_ps(_mm512_or_si512(kept, _mm512_set1_epi32(bits_bias(at).to_bits() as i32)))
    })
}

#[inline(never)]
#[cfg_attr(not(test), target_feature(enable = "avx512f,avx512bw,avx512vnni,avx512bf16,avx2,fma"))]
#[cfg_attr(test, target_feature(enable = "avx512f,avx512bw,avx512vnni,avx2,fma"))]
fn run_with_tiles<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Avx512<true>>()
}
