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
pub(crate) struct Checksum {
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
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        debug_assert!(self.bytes.is_multiple_of(STRIPE_BYTES as u64), "only the last piece may end within a stripe");
        self.bytes += bytes.len() as u64;
        let (stripes, tail) = bytes.as_chunks::<STRIPE_BYTES>();
        fold_stripes(&mut self.lanes, &mut self.keys, stripes);
        if !tail.is_empty() {
            let mut last = [0; STRIPE_BYTES];
            last[..tail.len()].copy_from_slice(tail);
            fold_stripes(&mut self.lanes, &mut self.keys, &[last]);
        }
    }

    pub(crate) fn finish(&self) -> u64 {
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
    /// Both ranges are valid for `bytes` bytes and do not overlap; nothing else touches the target.
    pub(crate) unsafe fn copy(&mut self, source: *const u8, target: *mut u8, bytes: usize) {
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

/// Sums by the formula at the head of `checksum.rs`.
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
#[path = "checksum_tests.rs"]
mod tests;
