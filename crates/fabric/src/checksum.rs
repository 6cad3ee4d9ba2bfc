//! A 64-bit checksum that keeps up with memory, and the copy that is checked on the way. It guards against accidents (stale
//! or torn reads, bad memory, a bad network card), not against an adversary: both ends share a secret already.
//!
//! The `n` bytes are padded with zeros to whole stripes of 16 words of 64 bits, little-endian. Word `l` of stripe `s` is
//! `w(s, l)`, and all arithmetic is modulo 2⁶⁴:
//!
//! ```text
//!   key(s, l)  = mix((l + 2) · 0x9E3779B97F4A7C15) + s · 0x9E3779B185EBCA87
//!   x(s, l)    = w(s, l) ^ key(s, l)
//!   term(s, l) = rotl(w(s, l), 32) + low32(x(s, l)) · high32(x(s, l))
//!   lane(l)    = Σ term(s, l) over all stripes s
//!   sum        = mix(n ^ 0xA0761D6478BD642F), then for l = 0, 1 … 15:  sum = mix(sum ^ lane(l)) + rotl(lane(l), 29)
//! ```
//! [`mix`] is SplitMix64's last step. A term depends on its word and on the word's position alone and is added to one of 16
//! sums: so a device computes them in any order, a thread takes any words, and what threads have summed is added at the end.
//! A key changes with the position, so a flipped bit, a swapped block and a shifted block all show.

/// Copied, then summed while still in the first-level cache: one pass over memory.
const PIECE_BYTES: usize = 4096;
const LANES: usize = 16;
const STRIPE_BYTES: usize = LANES * 8;
const LANE_KEY: u64 = 0x9E37_79B9_7F4A_7C15;
const STRIPE_KEY: u64 = 0x9E37_79B1_85EB_CA87;
const LENGTH_KEY: u64 = 0xA076_1D64_78BD_642F;

#[derive(Clone)]
pub struct Checksum {
    lanes: [u64; LANES],
    keys: [u64; LANES],
    bytes: u64,
}

impl Default for Checksum {
    fn default() -> Self {
        let keys = std::array::from_fn(|lane| mix(LANE_KEY.wrapping_mul(lane as u64 + 2)));
        Self { lanes: [0; LANES], keys, bytes: 0 }
    }
}

impl Checksum {
    /// Whole stripes only, except in the last call.
    pub fn update(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        let (stripes, tail) = bytes.as_chunks::<STRIPE_BYTES>();
        fold_stripes(&mut self.lanes, &mut self.keys, stripes);
        if !tail.is_empty() {
            let mut last = [0; STRIPE_BYTES];
            last[..tail.len()].copy_from_slice(tail);
            fold_stripes(&mut self.lanes, &mut self.keys, &[last]);
        }
    }

    pub fn finish(&self) -> u64 {
        let mut sum = mix(self.bytes ^ LENGTH_KEY);
        for lane in self.lanes {
            sum = mix(sum ^ lane).wrapping_add(lane.rotate_left(29));
        }
        sum
    }

    /// Copies `bytes` from `source` to `target` and adds what was written to the sum. The source may change meanwhile: the
    /// sum is over the copy, so what is checked is what is kept.
    ///
    /// # Safety
    /// Both ranges are valid for `bytes` bytes and do not overlap; nobody else touches the target.
    pub unsafe fn copy(&mut self, source: *const u8, target: *mut u8, bytes: usize) {
        let mut done = 0;
        while done < bytes {
            let piece = PIECE_BYTES.min(bytes - done);
            // SAFETY: `done + piece <= bytes`, so both stay inside the caller's ranges.
            let copied = unsafe {
                std::ptr::copy_nonoverlapping(source.add(done), target.add(done), piece);
                std::slice::from_raw_parts(target.add(done), piece)
            };
            self.update(copied);
            done += piece;
        }
    }
}

pub fn checksum(bytes: &[u8]) -> u64 {
    let mut sum = Checksum::default();
    sum.update(bytes);
    sum.finish()
}

/// A bijection after which every bit depends on every bit.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

fn fold_stripes(lanes: &mut [u64; LANES], keys: &mut [u64; LANES], stripes: &[[u8; STRIPE_BYTES]]) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the feature is there.
            return unsafe { fold_avx512(lanes, keys, stripes) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the feature is there.
            return unsafe { fold_avx2(lanes, keys, stripes) };
        }
    }
    fold(lanes, keys, stripes);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn fold_avx512(lanes: &mut [u64; LANES], keys: &mut [u64; LANES], stripes: &[[u8; STRIPE_BYTES]]) {
    fold(lanes, keys, stripes);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn fold_avx2(lanes: &mut [u64; LANES], keys: &mut [u64; LANES], stripes: &[[u8; STRIPE_BYTES]]) {
    fold(lanes, keys, stripes);
}

/// Written so that the compiler vectorises it: every lane does the same, independent of the others.
#[inline(always)]
fn fold(lanes: &mut [u64; LANES], keys: &mut [u64; LANES], stripes: &[[u8; STRIPE_BYTES]]) {
    let (mut acc, mut key) = (*lanes, *keys);
    for stripe in stripes {
        let (words, _) = stripe.as_chunks::<8>();
        for lane in 0..LANES {
            let word = u64::from_le_bytes(words[lane]);
            let mixed = word ^ key[lane];
            acc[lane] = acc[lane]
                .wrapping_add(word.rotate_left(32))
                .wrapping_add((mixed & 0xFFFF_FFFF).wrapping_mul(mixed >> 32));
            key[lane] = key[lane].wrapping_add(STRIPE_KEY);
        }
    }
    (*lanes, *keys) = (acc, key);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(len: usize) -> Vec<u8> {
        (0..len as u64).map(|i| mix(i) as u8).collect()
    }

    /// The formula in the head of this file, word by word in the order of `words`.
    fn by_formula(bytes: &[u8], words: &[usize]) -> u64 {
        let mut lanes = [0_u64; 16];
        for &at in words {
            let (stripe, lane) = (at as u64 / 16, at % 16);
            let word =
                (0..8).fold(0, |word, byte| word | u64::from(*bytes.get(8 * at + byte).unwrap_or(&0)) << (8 * byte));
            let key = mix((lane as u64 + 2).wrapping_mul(0x9E37_79B9_7F4A_7C15))
                .wrapping_add(stripe.wrapping_mul(0x9E37_79B1_85EB_CA87));
            let x = word ^ key;
            let term = word.rotate_left(32).wrapping_add((x & 0xFFFF_FFFF).wrapping_mul(x >> 32));
            lanes[lane] = lanes[lane].wrapping_add(term);
        }
        let length = mix(bytes.len() as u64 ^ 0xA076_1D64_78BD_642F);
        lanes.into_iter().fold(length, |sum, lane| mix(sum ^ lane).wrapping_add(lane.rotate_left(29)))
    }

    #[test]
    fn words_in_any_order_give_the_sum_of_the_checked_copy() {
        let block = 2 * 32 * 8 * 64 * 2;
        for (seed, len) in
            (0..).zip([0, 1, 7, 8, 9, 64, 127, 128, 129, 1000, 4096, 4097, 3 * PIECE_BYTES + 640, block, block + 24])
        {
            let bytes = sample(len);
            let mut words: Vec<usize> = (0..len.div_ceil(STRIPE_BYTES) * LANES).collect();
            let mut state = mix(seed);
            for at in (1..words.len()).rev() {
                state = mix(state.wrapping_add(at as u64));
                words.swap(at, state as usize % (at + 1));
            }
            let mut copy = vec![0; len];
            let mut sum = Checksum::default();
            // SAFETY: two vectors of the same length.
            unsafe { sum.copy(bytes.as_ptr(), copy.as_mut_ptr(), len) };
            assert_eq!(by_formula(&bytes, &words), sum.finish(), "{len} bytes");
        }
    }

    /// Engines of different versions hand over to each other as long as their KV protocol is the same.
    #[test]
    fn sums_stay_what_they_were() {
        for (len, sum) in [
            (0, 0x466C_67C1_BF37_24DA),
            (1, 0x6DB1_0CBC_1F75_A1E6),
            (128, 0xC0D2_4B56_2BC1_EFC9),
            (4096, 0x8587_7FA7_5603_DCF1),
            (100_000, 0x6F2A_1FC5_0752_EC46),
        ] {
            assert_eq!(checksum(&sample(len)), sum, "{len} bytes");
        }
    }

    #[test]
    fn every_flipped_bit_shows() {
        let mut bytes = sample(1024);
        let sum = checksum(&bytes);
        for position in 0..bytes.len() {
            for bit in 0..8 {
                bytes[position] ^= 1 << bit;
                assert_ne!(checksum(&bytes), sum, "byte {position} bit {bit}");
                bytes[position] ^= 1 << bit;
            }
        }
        assert_eq!(checksum(&bytes), sum);
    }

    #[test]
    fn swapped_shifted_and_shortened_blocks_show() {
        let bytes = sample(4096);
        let sum = checksum(&bytes);
        let swapped = [&bytes[2048..], &bytes[..2048]].concat();
        let rotated = [&bytes[128..], &bytes[..128]].concat();
        for other in [swapped, rotated, bytes[..4088].to_vec(), vec![0; 4096], [&bytes[..], &[0]].concat()] {
            assert_ne!(checksum(&other), sum);
        }
        assert_ne!(checksum(&[0; 128]), checksum(&[0; 256]));
    }

    #[test]
    fn copying_in_parts_sums_like_the_whole_in_every_instruction_set() {
        let bytes = sample(3 * PIECE_BYTES + 640);
        let mut copy = vec![0; bytes.len()];
        let mut sum = Checksum::default();
        // SAFETY: two vectors of the same length.
        unsafe {
            sum.copy(bytes.as_ptr(), copy.as_mut_ptr(), 1280);
            sum.copy(bytes.as_ptr().add(1280), copy.as_mut_ptr().add(1280), bytes.len() - 1280);
        }
        assert_eq!((sum.finish(), &copy), (checksum(&bytes), &bytes));
        let mut plain = Checksum::default();
        fold(&mut plain.lanes, &mut plain.keys, bytes.as_chunks::<STRIPE_BYTES>().0);
        plain.bytes = bytes.len() as u64;
        assert_eq!(plain.finish(), checksum(&bytes));
    }
}
