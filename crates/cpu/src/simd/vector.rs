//! Sixteen f32 lanes, the only vector type kernels know. Each operation is one IEEE-754 operation per lane, so a kernel
//! written over this trait gives the same bits on every instruction set.

pub(crate) const LANES: usize = 16;

/// Added to a small number it leaves its nearest integer in the low mantissa bits.
pub(crate) const MAGIC: f32 = 12_582_912.0;

/// `count` bits of each of 16 words, from bit `first` on.
#[derive(Clone, Copy)]
pub(crate) struct Bits {
    pub(crate) words: *const u32,
    pub(crate) first: usize,
    pub(crate) count: usize,
}

/// Its mantissa takes small integers as they are, from bit `at` of a float on.
pub(crate) const fn bits_bias(at: usize) -> f32 {
    (1 << (f32::MANTISSA_DIGITS as usize - 1 - at)) as f32
}

/// `n` rounded up to whole vectors.
pub(crate) const fn padded(n: usize) -> usize {
    n.next_multiple_of(LANES)
}

/// Nearest, ties to even; denormals become zero, as they do in AVX512_BF16's instruction, and a NaN stays one.
#[inline(always)]
pub(crate) fn to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let high = (bits >> 16) as u16;
    if x.is_nan() {
        high | 0x40
    } else if bits & 0x7f80_0000 == 0 {
        high & 0x8000
    } else {
        ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
    }
}

/// A computation written once over [`Lanes`]. `run` must be `#[inline(always)]`: it takes on the instruction set of the
/// function it is inlined into.
pub(crate) trait Kernel {
    type Output;

    fn run<L: Lanes>(self) -> Self::Output;
}

/// Implementations run only below [`Isa::run`](super::isa::Isa::run), which has checked the machine for them. All
/// methods are inlined into the function that carries the target features; out of line they would pass lanes through
/// memory.
pub(crate) trait Lanes: Copy {
    /// Accumulators that fit into registers beside the operands of a matrix product.
    const ACCUMULATORS: usize;
    /// Whether there are 32 registers of 16 lanes.
    const MANY_REGISTERS: bool = false;
    /// Whether products of bf16 may use [tile registers](crate::simd::amx).
    const TILES: bool = false;
    /// Bytes that are looked up in tables of sixteen by one instruction; 0 where there is none.
    const TABLE_BYTES: usize = 0;

    fn splat(x: f32) -> Self;

    /// # Safety
    /// 16 values are readable at `p`.
    unsafe fn load(p: *const f32) -> Self;

    /// # Safety
    /// 16 values are writable at `p`.
    unsafe fn store(self, p: *mut f32);

    /// To memory, if the machine can do that: nothing has to be read and nothing is driven out of the caches.
    ///
    /// # Safety
    /// 16 values are writable at `p`, which is a multiple of 64. They are not read or written before [`Self::wait_for_stores`].
    #[inline(always)]
    unsafe fn store_past_caches(self, p: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { self.store(p) };
    }

    /// What this thread has stored past caches is there for everybody.
    #[inline(always)]
    fn wait_for_stores() {}

    /// The first of each of 16 pairs of bf16.
    ///
    /// # Safety
    /// 64 bytes are readable at `p`.
    unsafe fn load_bf16_even(p: *const u8) -> Self;

    /// The second of each of 16 pairs of bf16.
    ///
    /// # Safety
    /// 64 bytes are readable at `p`.
    unsafe fn load_bf16_odd(p: *const u8) -> Self;

    /// The first of each of 16 pairs, and the second.
    ///
    /// # Safety
    /// 32 values are readable at `p`.
    #[inline(always)]
    unsafe fn load_pairs(p: *const f32) -> (Self, Self) {
        let (mut even, mut odd) = ([0.0; LANES], [0.0; LANES]);
        for i in 0..LANES {
            // SAFETY: the caller's promise.
            unsafe { (even[i], odd[i]) = (*p.add(2 * i), *p.add(2 * i + 1)) };
        }
        // SAFETY: sixteen of each.
        unsafe { (Self::load(even.as_ptr()), Self::load(odd.as_ptr())) }
    }

    /// Sixteen signed bytes.
    ///
    /// # Safety
    /// 16 bytes are readable at `p`.
    unsafe fn load_i8(p: *const i8) -> Self;

    /// Sixteen halves (f16).
    ///
    /// # Safety
    /// 32 bytes are readable at `p`.
    unsafe fn load_f16(p: *const u8) -> Self;

    /// [`bits_bias`]`(at)` plus an integer: these bits, which become those from bit `at` on of a float's mantissa: `first +
    /// count` ≤ 32, `at + count` ≤ 23. Bits that move equally far can move together.
    ///
    /// # Safety
    /// 16 words are readable.
    unsafe fn load_bits(bits: Bits, at: usize) -> Self;

    /// The same, of integers whose low bits and high ones lie apart.
    ///
    /// # Safety
    /// 16 words of both are readable.
    unsafe fn load_split_bits(low: Bits, high: Bits, at: usize) -> Self;

    /// Without the bits that a bf16 has no room for.
    fn cut_to_bf16(self) -> Self;

    /// 16 pairs of bf16, cut off.
    ///
    /// # Safety
    /// 64 bytes are writable at `p`.
    unsafe fn store_bf16_pairs(even: Self, odd: Self, p: *mut u8);

    /// Rounded to bf16: nearest, ties to even, denormals to zero.
    ///
    /// # Safety
    /// 32 bytes are writable at `p`.
    unsafe fn store_bf16(self, p: *mut u8);

    /// The same as the first of each of 16 pairs; the second ones are not touched, even for an instant.
    ///
    /// # Safety
    /// The first halves of 16 words at `p` are writable.
    unsafe fn store_bf16_apart(self, p: *mut u8);

    /// The nearest integers, ties to even, as signed bytes. The lanes are in -127..=127.
    ///
    /// # Safety
    /// 16 bytes are writable at `p`.
    unsafe fn store_i8(self, p: *mut i8);

    /// `self · b + c`, rounded once.
    fn fma(self, b: Self, c: Self) -> Self;
    fn add(self, b: Self) -> Self;
    fn sub(self, b: Self) -> Self;
    fn mul(self, b: Self) -> Self;
    fn div(self, b: Self) -> Self;
    /// `self > b ? self : b`, also for zeros and NaN.
    fn max(self, b: Self) -> Self;
    /// `self < b ? self : b`, also for zeros and NaN.
    fn min(self, b: Self) -> Self;
    /// Lanes `count..16` become `other`.
    fn keep_first(self, count: usize, other: Self) -> Self;
    /// 2ⁿ per lane, where the lane is n + 1.5 · 2²³ and -126 ≤ n ≤ 127.
    fn pow2_of_magic(self) -> Self;
    /// `self` · 2ⁿ, where `biased` is n + 1.5 · 2²³, and `self` and the result are normal numbers. What is none becomes anything.
    fn times_pow2_of_magic(self, biased: Self) -> Self;
    /// All of these are there before the next step of any is taken: compilers would take one after the other.
    fn keep_in_step<const N: usize>(vectors: &mut [Self; N]);
    fn to_array(self) -> [f32; LANES];

    /// Sum of the lanes as a tree: i with i + 8, then + 4, + 2, + 1.
    #[inline(always)]
    fn sum(self) -> f32 {
        tree(self, |a, b| a + b)
    }

    /// Largest lane, by the same tree.
    #[inline(always)]
    fn largest(self) -> f32 {
        tree(self, |a, b| if a > b { a } else { b })
    }

    /// Bits of the largest of all lanes of both, without signs: infinity is larger than any number, and what is none larger still.
    #[inline(always)]
    fn largest_magnitude(self, b: Self) -> u32 {
        let lanes = self.to_array().into_iter().chain(b.to_array());
        lanes.fold(0, |largest, x| largest.max(x.to_bits() & 0x7fff_ffff))
    }

    /// Prefetches a cache line; any address will do.
    fn prefetch(p: *const u8);
    fn prefetch_second_level(p: *const u8);

    /// Prefetches a cache line that will be written; may do nothing.
    #[inline(always)]
    fn prefetch_to_write(_p: *const u8) {}

    /// Runs a kernel as a function of its own, so that big kernels exist once per instruction set.
    fn call<K: Kernel>(kernel: K) -> K::Output;

    /// The same for a kernel that neither uses tiles nor rounds to bf16: it exists once for AVX-512 with tiles and without.
    #[inline(always)]
    fn call_without_tiles<K: Kernel>(kernel: K) -> K::Output {
        Self::call(kernel)
    }
}

#[inline(always)]
fn tree<L: Lanes>(x: L, of_two: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = x.to_array();
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] = of_two(lanes[i], lanes[i + width]);
        }
        width /= 2;
    }
    lanes[0]
}

/// Up to 16 values; zeros behind them.
#[inline(always)]
pub(crate) fn load_some<L: Lanes>(values: &[f32]) -> L {
    let mut all = [0.0; LANES];
    let values = match values.as_array::<LANES>() {
        Some(values) => values,
        None => {
            all[..values.len()].copy_from_slice(values);
            &all
        }
    };
    // SAFETY: a whole vector.
    unsafe { L::load(values.as_ptr()) }
}

#[cfg(test)]
mod tests {
    use crate::simd::isa::Isa;
    use crate::simd::vector::Kernel;

    use super::*;

    /// Every operation on awkward inputs, as bits.
    struct Everything;

    impl Kernel for Everything {
        type Output = Vec<u32>;

        #[inline(always)]
        fn run<L: Lanes>(self) -> Vec<u32> {
            let a: [f32; LANES] =
                std::array::from_fn(|i| [1.5, -0.0, 3e-37, -7.25e12, 0.1, 1e-30][i % 6] * (i as f32 - 7.3));
            let b: [f32; LANES] = std::array::from_fn(|i| [0.7, 0.0, -2.5e-37, 3.0][i % 4] + (i / 5) as f32 * 0.3);
            let pairs: [u16; 32] = std::array::from_fn(|i| (i * 2711 + 77) as u16);
            // Not known to the compiler, which does not flush denormals.
            let (a, b, pairs) = std::hint::black_box((a, b, pairs));
            // SAFETY: all arrays hold 16 lanes or 64 bytes.
            let (a, b, even, odd) = unsafe {
                let pairs = pairs.as_ptr().cast();
                (L::load(a.as_ptr()), L::load(b.as_ptr()), L::load_bf16_even(pairs), L::load_bf16_odd(pairs))
            };
            let words: [u32; LANES] =
                std::hint::black_box(std::array::from_fn(|i| (i as u32 + 3).wrapping_mul(0x9e37_79b9)));
            let bits = |first, count| Bits { words: words.as_ptr(), first, count };
            let (low, high) = (bits(6, 6), bits(30, 2));
            // SAFETY: sixteen words.
            let (bits_low, bits_split) = unsafe { (L::load_bits(low, 16), L::load_split_bits(low, high, 11)) };
            let floats: [f32; 2 * LANES] = std::hint::black_box(std::array::from_fn(|i| i as f32 - 11.5));
            // SAFETY: sixteen pairs.
            let (first, second) = unsafe { L::load_pairs(floats.as_ptr()) };
            let magic = L::splat(MAGIC);
            let whole = a.max(L::splat(-100.0)).min(L::splat(100.0));
            let mut bits = Vec::new();
            for lanes in [
                a.fma(b, even),
                a.add(b),
                a.sub(b),
                a.mul(b),
                // Without 0 / 0: the sign of a NaN is not promised.
                a.div(b.max(L::splat(1e-30))),
                a.max(b),
                a.min(b),
                a.keep_first(0, b),
                a.keep_first(5, b),
                a.keep_first(16, b),
                a.cut_to_bf16(),
                bits_low,
                bits_split,
                whole.add(magic).pow2_of_magic(),
                L::splat(1.25).times_pow2_of_magic(whole.add(magic)),
                odd,
                first,
                second,
            ] {
                let mut stored = [0.0; LANES];
                // SAFETY: 16 lanes fit.
                unsafe { lanes.store(stored.as_mut_ptr()) };
                assert_eq!(stored.map(f32::to_bits), lanes.to_array().map(f32::to_bits));
                bits.extend(stored.map(f32::to_bits));
            }
            for lanes in [a, b, a.sub(b), odd.keep_first(3, a)] {
                bits.extend([lanes.sum().to_bits(), lanes.largest().to_bits()]);
            }
            for (x, y) in [(a, b), (b, a), (odd, even), (a.div(L::splat(0.0)), b), (b, L::splat(f32::NAN))] {
                bits.push(x.largest_magnitude(y));
            }
            let (mut pairs, mut bytes) = ([0_u32; LANES], [0_i8; LANES]);
            // SAFETY: 16 pairs fit, and 16 bytes.
            unsafe {
                L::store_bf16_pairs(even, odd, pairs.as_mut_ptr().cast());
                whole.store_i8(bytes.as_mut_ptr());
            }
            bits.extend(pairs);
            bits.extend(bytes.map(|byte| byte as u32));
            bits.extend(rounded(a.fma(b, even)).map(u32::from));
            bits.extend(rounded(odd).map(u32::from));
            bits
        }
    }

    fn rounded<L: Lanes>(lanes: L) -> [u16; LANES] {
        let (mut together, mut apart) = ([0; LANES], [[7; 2]; LANES]);
        // SAFETY: 16 lanes fit, and 16 pairs.
        unsafe {
            lanes.store_bf16(together.as_mut_ptr().cast());
            lanes.store_bf16_apart(apart.as_mut_ptr().cast());
        }
        assert_eq!(apart, together.map(|rounded| [rounded, 7]));
        together
    }

    struct Round<'a>(&'a [f32]);

    impl Kernel for Round<'_> {
        type Output = Vec<u16>;

        #[inline(always)]
        fn run<L: Lanes>(self) -> Vec<u16> {
            // SAFETY: whole vectors.
            self.0.as_chunks::<LANES>().0.iter().flat_map(|x| rounded(unsafe { L::load(x.as_ptr()) })).collect()
        }
    }

    #[test]
    fn rounding_to_bf16() {
        let table = [
            (0x3f80_0000, 0x3f80),
            // Halfway goes to even, a little more goes up.
            (0x3f80_8000, 0x3f80),
            (0x3f81_8000, 0x3f82),
            (0x3f80_8001, 0x3f81),
            (0xbf80_7fff, 0xbf80),
            // Too large to stay finite; infinite.
            (0x7f7f_ffff, 0x7f80),
            (0xff80_0000, 0xff80),
            // The smallest normal number, and denormals.
            (0x0080_0000, 0x0080),
            (0x007f_ffff, 0x0000),
            (0x807f_ffff, 0x8000),
            // No number, whatever its payload.
            (0x7f80_0001, 0x7fc0),
            (0xffff_ffff, 0xffff),
            (0x0000_0000, 0x0000),
            (0x8000_0000, 0x8000),
            (0x3f7f_ffff, 0x3f80),
            (0xc2f6_e979, 0xc2f7),
        ];
        let inputs = table.map(|(bits, _)| f32::from_bits(bits));
        for isa in Isa::available() {
            assert_eq!(isa.run(Round(&inputs)), table.map(|(_, rounded)| rounded), "{isa}");
        }
    }

    struct Whole<'a>(&'a [f32; LANES]);

    impl Kernel for Whole<'_> {
        type Output = [i8; LANES];

        #[inline(always)]
        fn run<L: Lanes>(self) -> [i8; LANES] {
            let mut bytes = [0; LANES];
            // SAFETY: 16 lanes.
            unsafe { L::load(self.0.as_ptr()).store_i8(bytes.as_mut_ptr()) };
            bytes
        }
    }

    struct Cut<'a>(&'a [f32; LANES], &'a [u32; LANES]);

    impl Kernel for Cut<'_> {
        type Output = ([f32; LANES], [[f32; LANES]; 2], [[u16; 2]; LANES]);

        #[inline(always)]
        fn run<L: Lanes>(self) -> Self::Output {
            let mut pairs = [[0; 2]; LANES];
            // SAFETY: sixteen of everything.
            unsafe {
                let numbers = L::load(self.0.as_ptr());
                L::store_bf16_pairs(numbers, numbers.mul(L::splat(-1.0)), pairs.as_mut_ptr().cast());
                let bits = |first, count| Bits { words: self.1.as_ptr(), first, count };
                let split = L::load_split_bits(bits(27, 3), bits(30, 2), 16);
                (numbers.cut_to_bf16().to_array(), [L::load_bits(bits(27, 5), 16), split].map(L::to_array), pairs)
            }
        }
    }

    #[test]
    fn rounding_to_whole_numbers() {
        let inputs = [
            0.0,
            -0.0,
            0.5,
            -0.5,
            1.5,
            -1.5,
            2.5,
            0.499_999_97,
            0.500_000_06,
            -126.5,
            126.5,
            127.0,
            -127.0,
            1e-30,
            3.3,
            -3.7,
        ];
        for isa in Isa::available() {
            let expected = [0, 0, 0, 0, 2, -2, 2, 0, 1, -126, 126, 127, -127, 0, 3, -4];
            assert_eq!(isa.run(Whole(&inputs)), expected, "{isa}");
        }
    }

    #[test]
    fn integers_and_what_is_left_of_them() {
        let (mut numbers, mut left) = ([0.0; LANES], [0.0; LANES]);
        let table =
            [(255.0, 255.0), (256.0, 256.0), (257.0, 256.0), (-257.0, -256.0), (-1031.0, -1024.0), (4095.0, 4080.0)];
        for (i, (number, expected)) in table.into_iter().enumerate() {
            (numbers[i], left[i]) = (number, expected);
        }
        let words = std::array::from_fn(|i| (i as u32 * 2) << 27 | 0x7ff_ffff);
        for isa in Isa::available() {
            let (cut, bits, pairs) = isa.run(Cut(&numbers, &words));
            assert_eq!(cut, left, "{isa}");
            assert_eq!(bits, [std::array::from_fn(|i| bits_bias(16) + (i as f32 * 2.0)); 2], "{isa}");
            assert_eq!(pairs, left.map(|value| [value, -value].map(|value| (value.to_bits() >> 16) as u16)), "{isa}");
        }
    }

    #[test]
    fn instruction_sets_agree_on_every_bit() {
        let reference = Isa::Portable.run(Everything);
        assert_eq!(reference.len(), 22 * LANES + 13);
        for isa in Isa::available() {
            assert_eq!(isa.run(Everything), reference, "{isa}");
        }
    }
}
