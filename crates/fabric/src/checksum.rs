//! A 64-bit checksum that keeps up with memory, and the copy that is checked on the way.
//!
//! Sixteen lanes each fold `low32 × high32` of the input mixed with a key that changes with the position, so a flipped bit, a
//! swapped block and a shifted block all show. It guards against accidents (stale or torn reads, bad memory, a bad
//! network card), not against an adversary: both ends share a secret already.

/// Copied, then summed while still in the first-level cache: one pass over memory.
const PIECE_BYTES: usize = 4096;
const LANES: usize = 16;
const STRIPE_BYTES: usize = LANES * 8;

#[derive(Clone)]
pub struct Checksum {
    lanes: [u64; LANES],
    keys: [u64; LANES],
    bytes: u64,
}

impl Default for Checksum {
    fn default() -> Self {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let keys = std::array::from_fn(|_| {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            mix(state)
        });
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
        let mut sum = mix(self.bytes ^ 0xA076_1D64_78BD_642F);
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
            key[lane] = key[lane].wrapping_add(0x9E37_79B1_85EB_CA87);
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
