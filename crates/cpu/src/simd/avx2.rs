use std::arch::x86_64::*;

use super::vector::{Bits, Kernel, LANES, Lanes, MAGIC, bits_bias};

/// Lanes 0..8 and 8..16.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(__m256, __m256);

macro_rules! avx2 {
    ($expression:expr) => {{
        // SAFETY: runs below `Isa::run` only, which has checked for AVX2 and FMA; pointers are the caller's promise.
        unsafe { $expression }
    }};
}

impl Lanes for Avx2 {
    /// Twelve of sixteen registers.
    const ACCUMULATORS: usize = 6;
    const TABLE_BYTES: usize = 32;

    #[inline(always)]
    fn splat(x: f32) -> Self {
        let x = avx2!(_mm256_set1_ps(x));
        Self(x, x)
    }

    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        avx2!(Self(_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8))))
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        avx2!({
            _mm256_storeu_ps(p, self.0);
            _mm256_storeu_ps(p.add(8), self.1);
        });
    }

    #[inline(always)]
    unsafe fn load_bf16_even(p: *const u8) -> Self {
        avx2!(Self(
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_loadu_si256(p.cast()))),
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_loadu_si256(p.add(32).cast()))),
        ))
    }

    #[inline(always)]
    unsafe fn load_bf16_odd(p: *const u8) -> Self {
        avx2!({
            let high = _mm256_set1_epi32(0xffff_0000_u32 as i32);
            Self(
                _mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256(p.cast()), high)),
                _mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256(p.add(32).cast()), high)),
            )
        })
    }

    #[inline(always)]
    unsafe fn load_i8(p: *const i8) -> Self {
        avx2!(Self(
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast()))),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p.add(8).cast()))),
        ))
    }

    #[inline(always)]
    unsafe fn load_f16(p: *const u8) -> Self {
        avx2!(Self(_mm256_cvtph_ps(_mm_loadu_si128(p.cast())), _mm256_cvtph_ps(_mm_loadu_si128(p.add(16).cast()))))
    }

    #[inline(always)]
    unsafe fn load_bits(bits: Bits, at: usize) -> Self {
        avx2!({
            let half = |half| biased(moved(bits, half, at), at);
            Self(half(0), half(1))
        })
    }

    #[inline(always)]
    unsafe fn load_split_bits(low: Bits, high: Bits, at: usize) -> Self {
        avx2!({
            let both = |half| _mm256_or_si256(moved(low, half, at), moved(high, half, at + low.count));
            Self(biased(both(0), at), biased(both(1), at))
        })
    }

    #[inline(always)]
    fn cut_to_bf16(self) -> Self {
        avx2!({
            let upper = _mm256_castsi256_ps(_mm256_set1_epi32(0xffff_0000_u32 as i32));
            Self(_mm256_and_ps(self.0, upper), _mm256_and_ps(self.1, upper))
        })
    }

    #[inline(always)]
    unsafe fn store_bf16_pairs(even: Self, odd: Self, p: *mut u8) {
        avx2!({
            let low = _mm256_srli_epi32::<16>(_mm256_castps_si256(even.0));
            let high = _mm256_srli_epi32::<16>(_mm256_castps_si256(even.1));
            _mm256_storeu_si256(p.cast(), _mm256_blend_epi16::<0xaa>(low, _mm256_castps_si256(odd.0)));
            _mm256_storeu_si256(p.add(32).cast(), _mm256_blend_epi16::<0xaa>(high, _mm256_castps_si256(odd.1)));
        });
    }

    #[inline(always)]
    unsafe fn store_bf16(self, p: *mut u8) {
        avx2!({
            let packed = _mm256_packus_epi32(to_bf16(self.0), to_bf16(self.1));
            _mm256_storeu_si256(p.cast(), _mm256_permute4x64_epi64::<0b11_01_10_00>(packed));
        });
    }

    #[inline(always)]
    unsafe fn store_bf16_apart(self, p: *mut u8) {
        let mut rounded = [0_u16; LANES];
        avx2!(self.store_bf16(rounded.as_mut_ptr().cast()));
        for (i, rounded) in rounded.into_iter().enumerate() {
            avx2!(p.cast::<u16>().add(2 * i).write_unaligned(rounded));
        }
    }

    #[inline(always)]
    unsafe fn store_i8(self, p: *mut i8) {
        let biased = self.add(Self::splat(MAGIC)).to_array();
        avx2!(p.cast::<[i8; LANES]>().write_unaligned(biased.map(|lane| lane.to_bits() as i8)));
    }

    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        avx2!(Self(_mm256_fmadd_ps(self.0, b.0, c.0), _mm256_fmadd_ps(self.1, b.1, c.1)))
    }

    #[inline(always)]
    fn add(self, b: Self) -> Self {
        avx2!(Self(_mm256_add_ps(self.0, b.0), _mm256_add_ps(self.1, b.1)))
    }

    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        avx2!(Self(_mm256_sub_ps(self.0, b.0), _mm256_sub_ps(self.1, b.1)))
    }

    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        avx2!(Self(_mm256_mul_ps(self.0, b.0), _mm256_mul_ps(self.1, b.1)))
    }

    #[inline(always)]
    fn div(self, b: Self) -> Self {
        avx2!(Self(_mm256_div_ps(self.0, b.0), _mm256_div_ps(self.1, b.1)))
    }

    #[inline(always)]
    fn max(self, b: Self) -> Self {
        avx2!(Self(_mm256_max_ps(self.0, b.0), _mm256_max_ps(self.1, b.1)))
    }

    #[inline(always)]
    fn min(self, b: Self) -> Self {
        avx2!(Self(_mm256_min_ps(self.0, b.0), _mm256_min_ps(self.1, b.1)))
    }

    #[inline(always)]
    fn keep_first(self, count: usize, other: Self) -> Self {
        avx2!({
            let count = _mm256_set1_epi32(count.min(LANES) as i32);
            let low = _mm256_cmpgt_epi32(count, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
            let high = _mm256_cmpgt_epi32(count, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15));
            Self(
                _mm256_blendv_ps(other.0, self.0, _mm256_castsi256_ps(low)),
                _mm256_blendv_ps(other.1, self.1, _mm256_castsi256_ps(high)),
            )
        })
    }

    #[inline(always)]
    fn pow2_of_magic(self) -> Self {
        avx2!({
            let one = _mm256_set1_epi32(127 << 23);
            let low = _mm256_add_epi32(_mm256_slli_epi32::<23>(_mm256_castps_si256(self.0)), one);
            let high = _mm256_add_epi32(_mm256_slli_epi32::<23>(_mm256_castps_si256(self.1)), one);
            Self(_mm256_castsi256_ps(low), _mm256_castsi256_ps(high))
        })
    }

    #[inline(always)]
    fn times_pow2_of_magic(self, biased: Self) -> Self {
        avx2!({
            let times = |x: __m256, biased: __m256| {
                let n = _mm256_slli_epi32::<23>(_mm256_castps_si256(biased));
                _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), n))
            };
            Self(times(self.0, biased.0), times(self.1, biased.1))
        })
    }

    /// There are too few registers.
    #[inline(always)]
    fn keep_in_step<const N: usize>(_vectors: &mut [Self; N]) {}

    #[inline(always)]
    fn to_array(self) -> [f32; LANES] {
        let mut array = [0.0; LANES];
        avx2!(self.store(array.as_mut_ptr()));
        array
    }

    #[inline(always)]
    fn sum(self) -> f32 {
        avx2!(sum(_mm256_add_ps(self.0, self.1)))
    }

    #[inline(always)]
    fn largest(self) -> f32 {
        avx2!(largest(_mm256_max_ps(self.0, self.1)))
    }

    #[inline(always)]
    fn largest_magnitude(self, b: Self) -> u32 {
        avx2!({
            let bits = |x: __m256| _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(i32::MAX));
            let (low, high) = (_mm256_max_epu32(bits(self.0), bits(b.0)), _mm256_max_epu32(bits(self.1), bits(b.1)));
            largest_word(_mm256_max_epu32(low, high))
        })
    }

    #[inline(always)]
    fn prefetch(p: *const u8) {
        avx2!(_mm_prefetch::<_MM_HINT_T0>(p.cast()));
    }

    #[inline(always)]
    fn prefetch_second_level(p: *const u8) {
        avx2!(_mm_prefetch::<_MM_HINT_T1>(p.cast()));
    }

    #[inline(always)]
    fn call<K: Kernel>(kernel: K) -> K::Output {
        avx2!(run(kernel))
    }
}

/// The first half of some bits, or the second, from bit `at` on.
///
/// # Safety
/// Sixteen words are readable.
#[inline(always)]
unsafe fn moved(bits: Bits, half: usize, at: usize) -> __m256i {
    avx2!({
        let words = _mm256_loadu_si256(bits.words.add(half * 8).cast());
        let moved = if bits.first > at {
            _mm256_srlv_epi32(words, _mm256_set1_epi32((bits.first - at) as i32))
        } else {
            _mm256_sllv_epi32(words, _mm256_set1_epi32((at - bits.first) as i32))
        };
        _mm256_and_si256(moved, _mm256_set1_epi32(((1 << bits.count) - 1) << at))
    })
}

/// In a mantissa.
#[inline(always)]
fn biased(bits: __m256i, at: usize) -> __m256 {
    avx2!(_mm256_castsi256_ps(_mm256_or_si256(bits, _mm256_set1_epi32(bits_bias(at).to_bits() as i32))))
}

/// The rest of the tree.
#[inline(always)]
pub(super) fn sum(x: __m256) -> f32 {
    avx2!({
        let four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
        let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
    })
}

/// The rest of the tree.
#[inline(always)]
pub(super) fn largest(x: __m256) -> f32 {
    avx2!({
        let four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
        let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
    })
}

#[inline(always)]
pub(super) fn largest_word(x: __m256i) -> u32 {
    avx2!({
        let four = _mm_max_epu32(_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x));
        let two = _mm_max_epu32(four, _mm_shuffle_epi32::<0b_11_10_11_10>(four));
        _mm_cvtsi128_si32(_mm_max_epu32(two, _mm_shuffle_epi32::<1>(two))) as u32
    })
}

/// In the lower halves of 32-bit words.
#[inline(always)]
fn to_bf16(x: __m256) -> __m256i {
    avx2!({
        let bits = _mm256_castps_si256(x);
        let high = _mm256_srli_epi32::<16>(bits);
        let odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
        let half_up = _mm256_add_epi32(bits, _mm256_add_epi32(_mm256_set1_epi32(0x7fff), odd));
        let rounded = _mm256_srli_epi32::<16>(half_up);
        let exponent = _mm256_and_si256(bits, _mm256_set1_epi32(0x7f80_0000));
        let denormal = _mm256_cmpeq_epi32(exponent, _mm256_setzero_si256());
        let sign = _mm256_and_si256(high, _mm256_set1_epi32(0x8000));
        let rounded = _mm256_blendv_epi8(rounded, sign, denormal);
        let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(x, x));
        _mm256_blendv_epi8(rounded, _mm256_or_si256(high, _mm256_set1_epi32(0x40)), nan)
    })
}

#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c")]
fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Avx2>()
}
