//! The checksum against its formula, and what it notices.

use super::*;

fn sample(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| mix(i) as u8).collect()
}

/// The formula in the head of `checksum.rs`, word by word in the order of `words`.
fn by_formula(bytes: &[u8], words: &[usize]) -> u64 {
    let mut lanes = [0_u64; 16];
    for &at in words {
        let (stripe, lane) = (at as u64 / 16, at % 16);
        let word = (0..8).fold(0, |word, byte| word | u64::from(*bytes.get(8 * at + byte).unwrap_or(&0)) << (8 * byte));
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
