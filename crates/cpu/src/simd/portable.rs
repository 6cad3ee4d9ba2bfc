#![allow(
    clippy::needless_range_loop,
    reason = "rows, panels and lanes are numbers here; indexed loops unroll into registers"
)]

use half::f16;

use super::vector::{Bits, Kernel, LANES, Lanes, MAGIC, bits_bias, to_bf16};

/// What any target can run. Without a hardware FMA `mul_add` is a library call: exact, and slow.
#[derive(Clone, Copy)]
pub(crate) struct Portable([f32; LANES]);

impl Portable {
    #[inline(always)]
    fn zip(self, b: Self, operation: impl Fn(f32, f32) -> f32) -> Self {
        let mut lanes = self.0;
        for i in 0..LANES {
            lanes[i] = operation(self.0[i], b.0[i]);
        }
        Self(lanes)
    }

    /// # Safety
    /// 64 bytes are readable at `p`.
    #[inline(always)]
    unsafe fn load_words(p: *const u8) -> [u32; LANES] {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[u32; LANES]>().read_unaligned() }
    }

    /// # Safety
    /// Sixteen words are readable.
    #[inline(always)]
    unsafe fn load_integers(bits: Bits) -> [u32; LANES] {
        // SAFETY: the caller's promise.
        let words = unsafe { Self::load_words(bits.words.cast()) };
        words.map(|word| word >> bits.first & ((1 << bits.count) - 1))
    }
}

impl Lanes for Portable {
    const ACCUMULATORS: usize = 6;

    #[inline(always)]
    fn splat(x: f32) -> Self {
        Self([x; LANES])
    }

    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { p.cast::<[f32; LANES]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[f32; LANES]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn load_bf16_even(p: *const u8) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { Self::load_words(p) }.map(|word| f32::from_bits(word << 16)))
    }

    #[inline(always)]
    unsafe fn load_bf16_odd(p: *const u8) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { Self::load_words(p) }.map(|word| f32::from_bits(word & 0xffff_0000)))
    }

    #[inline(always)]
    unsafe fn load_i8(p: *const i8) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { p.cast::<[i8; LANES]>().read_unaligned() }.map(f32::from))
    }

    #[inline(always)]
    unsafe fn load_f16(p: *const u8) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { p.cast::<[[u8; 2]; LANES]>().read_unaligned() }.map(|half| f16::from_le_bytes(half).to_f32()))
    }

    #[inline(always)]
    unsafe fn load_bits(bits: Bits, at: usize) -> Self {
        // SAFETY: the caller's promise.
        let values = unsafe { Self::load_integers(bits) };
        Self(values.map(|value| bits_bias(at) + value as f32))
    }

    #[inline(always)]
    unsafe fn load_split_bits(low: Bits, high: Bits, at: usize) -> Self {
        // SAFETY: the caller's promise.
        let (lows, highs) = unsafe { (Self::load_integers(low), Self::load_integers(high)) };
        Self(std::array::from_fn(|i| bits_bias(at) + (lows[i] | highs[i] << low.count) as f32))
    }

    #[inline(always)]
    fn cut_to_bf16(self) -> Self {
        Self(self.0.map(|lane| f32::from_bits(lane.to_bits() & 0xffff_0000)))
    }

    #[inline(always)]
    unsafe fn store_bf16_pairs(even: Self, odd: Self, p: *mut u8) {
        for i in 0..LANES {
            // SAFETY: the caller's promise.
            unsafe {
                p.cast::<u32>().add(i).write_unaligned(even.0[i].to_bits() >> 16 | odd.0[i].to_bits() & 0xffff_0000)
            };
        }
    }

    #[inline(always)]
    unsafe fn store_bf16(self, p: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[u16; LANES]>().write_unaligned(self.0.map(to_bf16)) }
    }

    #[inline(always)]
    unsafe fn store_bf16_apart(self, p: *mut u8) {
        for (i, lane) in self.0.into_iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { p.cast::<u16>().add(2 * i).write_unaligned(to_bf16(lane)) }
        }
    }

    #[inline(always)]
    unsafe fn store_i8(self, p: *mut i8) {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[i8; LANES]>().write_unaligned(self.0.map(|lane| (lane + MAGIC).to_bits() as i8)) }
    }

    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        let mut lanes = c.0;
        for i in 0..LANES {
            lanes[i] = self.0[i].mul_add(b.0[i], c.0[i]);
        }
        Self(lanes)
    }

    #[inline(always)]
    fn add(self, b: Self) -> Self {
        self.zip(b, |a, b| a + b)
    }

    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        self.zip(b, |a, b| a - b)
    }

    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        self.zip(b, |a, b| a * b)
    }

    #[inline(always)]
    fn div(self, b: Self) -> Self {
        self.zip(b, |a, b| a / b)
    }

    #[inline(always)]
    fn max(self, b: Self) -> Self {
        self.zip(b, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn min(self, b: Self) -> Self {
        self.zip(b, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    fn keep_first(self, count: usize, other: Self) -> Self {
        let mut lanes = other.0;
        for i in 0..LANES {
            lanes[i] = if i < count { self.0[i] } else { other.0[i] };
        }
        Self(lanes)
    }

    #[inline(always)]
    fn pow2_of_magic(self) -> Self {
        Self(self.0.map(|lane| f32::from_bits((lane.to_bits() << 23).wrapping_add(127 << 23))))
    }

    #[inline(always)]
    fn times_pow2_of_magic(self, biased: Self) -> Self {
        let times = |i: usize| f32::from_bits(self.0[i].to_bits().wrapping_add(biased.0[i].to_bits() << 23));
        Self(std::array::from_fn(times))
    }

    #[inline(always)]
    fn keep_in_step<const N: usize>(_vectors: &mut [Self; N]) {}

    #[inline(always)]
    fn to_array(self) -> [f32; LANES] {
        self.0
    }

    #[inline(always)]
    fn prefetch(_p: *const u8) {}

    #[inline(always)]
    fn prefetch_second_level(_p: *const u8) {}

    #[inline(always)]
    fn call<K: Kernel>(kernel: K) -> K::Output {
        run(kernel)
    }
}

#[inline(never)]
fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Portable>()
}
