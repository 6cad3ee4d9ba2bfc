//! Blocks of 256 values: a half-precision scale for all, and a small integer scale for each 16 or 32 of them.
//!
//! ```text
//!   Q2_K  scales:16 (4 bits scale, 4 bits offset)      twos:64              scale:2 offset:2
//!   Q3_K  third:32  twos:64  scales:12 (6 bits each)                        scale:2
//!   Q4_K  scale:2 offset:2  scales:12 (6 + 6 bits)             nibbles:128
//!   Q5_K  scale:2 offset:2  scales:12 (6 + 6 bits)  fifth:32   nibbles:128
//!   Q6_K  nibbles:128  twos:64  scales:16 (signed bytes)                    scale:2
//! ```
//!
//! A value is scale × small scale × integer, less offset × small offset; each product is rounded on its own.

use super::scale_at;

/// 32 bytes hold 128 values: bits 2i and 2i + 1 of byte l are value 32 i + l.
pub(super) fn q2_k(block: &[u8; 84], values: &mut [f32; 256]) {
    let (scale, offset) = (scale_at(block, 80), scale_at(block, 82));
    let (scales, twos) = (&block[..16], &block[16..80]);
    for (sixteen, values) in values.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let (scale, offset) = (scale * f32::from(scales[sixteen] & 0xF), offset * f32::from(scales[sixteen] >> 4));
        let (bytes, shift) = twos_of(twos, sixteen);
        for (value, byte) in values.iter_mut().zip(bytes) {
            *value = scale * f32::from(byte >> shift & 3) - offset;
        }
    }
}

/// The low two bits as in Q2_K; bit i of byte l of `third` is the third bit of value 32 i + l, and 4 is subtracted.
pub(super) fn q3_k(block: &[u8; 110], values: &mut [f32; 256]) {
    let (third, twos, scales) = (&block[..32], &block[32..96], &block[96..108]);
    let scale = scale_at(block, 108);
    for (sixteen, values) in values.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let scale = scale * (i32::from(q3_scale(scales, sixteen)) - 32) as f32;
        let (bytes, shift) = twos_of(twos, sixteen);
        let third = &third[sixteen % 2 * 16..];
        for (l, (value, byte)) in values.iter_mut().zip(bytes).enumerate() {
            let quant = byte >> shift & 3 | (third[l] >> (sixteen / 2) & 1) << 2;
            *value = scale * (i32::from(quant) - 4) as f32;
        }
    }
}

/// 32 bytes hold 64 values: the low nibbles, then the high ones.
pub(super) fn q4_k(block: &[u8; 144], values: &mut [f32; 256]) {
    let (scales, nibbles) = (&block[4..16], &block[16..]);
    for (group, values) in values.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, offset) = scale_and_offset(scale_at(block, 0), scale_at(block, 2), scales, group);
        for (value, byte) in values.iter_mut().zip(&nibbles[group / 2 * 32..]) {
            *value = scale * f32::from(byte >> (group % 2 * 4) & 0xF) - offset;
        }
    }
}

/// Bit i of byte l of `fifth` is the fifth bit of value 32 i + l.
pub(super) fn q5_k(block: &[u8; 176], values: &mut [f32; 256]) {
    let (scales, fifth, nibbles) = (&block[4..16], &block[16..48], &block[48..]);
    for (group, values) in values.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, offset) = scale_and_offset(scale_at(block, 0), scale_at(block, 2), scales, group);
        for (l, (value, byte)) in values.iter_mut().zip(&nibbles[group / 2 * 32..]).enumerate() {
            let quant = byte >> (group % 2 * 4) & 0xF | (fifth[l] >> group & 1) << 4;
            *value = scale * f32::from(quant) - offset;
        }
    }
}

/// For each half of 128 values: 64 bytes of nibbles, low for the first 64 values and high for the others; the high two
/// bits as in Q2_K.
pub(super) fn q6_k(block: &[u8; 210], values: &mut [f32; 256]) {
    let (nibbles, twos, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let scale = scale_at(block, 208);
    for (sixteen, values) in values.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let scale = scale * f32::from(scales[sixteen] as i8);
        let (half, within) = (sixteen / 8, sixteen % 8);
        let nibbles = &nibbles[half * 64 + within % 4 * 16..];
        let (bytes, shift) = twos_of(twos, sixteen);
        for (l, (value, byte)) in values.iter_mut().zip(bytes).enumerate() {
            let quant = nibbles[l] >> (within / 4 * 4) & 0xF | (byte >> shift & 3) << 4;
            *value = scale * (i32::from(quant) - 32) as f32;
        }
    }
}

/// The bytes that hold two bits of each of sixteen values, and the shift inside each byte.
fn twos_of(twos: &[u8], sixteen: usize) -> (&[u8], usize) {
    let (half, within) = (sixteen / 8, sixteen % 8);
    (&twos[half * 32 + within % 2 * 16..], within / 2 * 2)
}

/// Bytes 0 to 7 hold the low four bits of scales 0 to 7 and, above them, 8 to 15; bytes 8 to 11 the high two bits.
fn q3_scale(scales: &[u8], sixteen: usize) -> u8 {
    let low = scales[sixteen % 8] >> (sixteen / 8 * 4) & 0xF;
    let high = scales[8 + sixteen % 4] >> (sixteen / 4 * 2) & 3;
    low | high << 4
}

/// Scales 0 to 3 and offsets 0 to 3 are the low six bits of bytes 0 to 7; the others have their low four bits in bytes 8
/// to 11 and their high two bits where bytes 0 to 7 have room.
fn scale_and_offset(scale: f32, offset: f32, scales: &[u8], group: usize) -> (f32, f32) {
    let (small_scale, small_offset) = match group {
        0..4 => (scales[group] & 63, scales[group + 4] & 63),
        _ => (scales[group + 4] & 0xF | scales[group - 4] >> 6 << 4, scales[group + 4] >> 4 | scales[group] >> 6 << 4),
    };
    (scale * f32::from(small_scale), offset * f32::from(small_offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_bit_scales_are_found() {
        // Scale i is 4 i + 1 and offset i is 63 - i, written down bit by bit.
        let mut packed = [0u8; 12];
        for group in 0..8 {
            let (scale, offset) = (4 * group as u8 + 1, 63 - group as u8);
            if group < 4 {
                packed[group] |= scale;
                packed[group + 4] |= offset;
            } else {
                packed[group + 4] |= scale & 0xF | (offset & 0xF) << 4;
                packed[group - 4] |= scale >> 4 << 6;
                packed[group] |= offset >> 4 << 6;
            }
        }
        for group in 0..8 {
            let expected = (4.0 * group as f32 + 1.0, 2.0 * (63.0 - group as f32));
            assert_eq!(scale_and_offset(1.0, 2.0, &packed, group), expected, "{group}");
        }
    }

    #[test]
    fn q3_scales_are_found() {
        let mut packed = [0u8; 12];
        for i in 0..16 {
            let scale = 63 - 3 * i as u8;
            packed[i % 8] |= (scale & 0xF) << (i / 8 * 4);
            packed[8 + i % 4] |= scale >> 4 << (i / 4 * 2);
        }
        assert_eq!(
            std::array::from_fn(|i| q3_scale(&packed, i)),
            std::array::from_fn::<_, 16, _>(|i| 63 - 3 * i as u8)
        );
    }

    #[test]
    fn two_bits_are_found() {
        // Only value 200 has its bits set: half 1, byte 200 - 128 - 2 · 32 = 8, bits 4 and 5.
        let mut twos = [0u8; 64];
        twos[32 + 8] = 3 << 4;
        for sixteen in 0..16 {
            let (bytes, shift) = twos_of(&twos, sixteen);
            let found = (0..16).filter(|l| bytes[*l] >> shift & 3 == 3).map(|l| sixteen * 16 + l);
            let expected = if sixteen == 12 { vec![200] } else { vec![] };
            assert_eq!(found.collect::<Vec<_>>(), expected);
        }
    }
}
