//! A file's superblocks, read as quantized values with their scales.

use baton_model::Dtype;
use half::f16;

use super::{SMALL_GROUPS, SUPER_DEPTH};

/// Weights are `scale · small scale · (value - zero_point) + minimum · small minimum`.
pub(crate) struct Superblock {
    pub(crate) values: [u8; SUPER_DEPTH],
    pub(crate) small_scales: [i8; SMALL_GROUPS],
    pub(crate) small_minima: [i8; SMALL_GROUPS],
    pub(crate) scale: f16,
    pub(crate) minimum: f16,
}

impl Superblock {
    /// The `number`-th 256 weights of a row; `None` for other types, and beyond the row's end.
    pub(crate) fn read(dtype: Dtype, row: &[u8], number: usize) -> Option<Self> {
        let block = row.chunks_exact(dtype.block_bytes()).nth(number)?;
        let half = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]);
        let small = |scale: &dyn Fn(usize) -> i8| std::array::from_fn(scale);
        Some(match dtype {
            Dtype::Q2K => Self {
                values: std::array::from_fn(|k| two_bits(&block[16..80], k)),
                small_scales: small(&|group| (block[group] & 15) as i8),
                small_minima: small(&|group| (block[group] >> 4) as i8),
                scale: half(80),
                minimum: -half(82),
            },
            Dtype::Q3K => Self {
                values: std::array::from_fn(|k| two_bits(&block[32..96], k) | (block[k % 32] >> (k / 32) & 1) << 2),
                small_scales: small(&|group| six_bits(&block[96..108], group) as i8 - 32),
                small_minima: [0; SMALL_GROUPS],
                scale: half(108),
                minimum: f16::ZERO,
            },
            Dtype::Q6K => Self {
                values: std::array::from_fn(|k| {
                    let low = block[k / 128 * 64 + k % 64] >> (k % 128 / 64 * 4) & 15;
                    low | two_bits(&block[128..192], k) << 4
                }),
                small_scales: small(&|group| block[192 + group] as i8),
                small_minima: [0; SMALL_GROUPS],
                scale: half(208),
                minimum: f16::ZERO,
            },
            _ => return None,
        })
    }
}

/// 32 bytes hold two bits of 128 values: of value k in byte k % 32, the first 32 lowest.
fn two_bits(bytes: &[u8], k: usize) -> u8 {
    bytes[k / 128 * 32 + k % 32] >> (k % 128 / 32 * 2) & 3
}

/// Sixteen scales of six bits in twelve bytes.
///
/// ```text
///   byte 0..8   low 4 bits: of scale i | high 4 bits: of scale i + 8
///   byte 8..12  two bits more of scales i, i + 4, i + 8 and i + 12, the first lowest
/// ```
fn six_bits(bytes: &[u8], group: usize) -> u8 {
    bytes[group % 8] >> (group / 8 * 4) & 15 | (bytes[8 + group % 4] >> (group / 4 * 2) & 3) << 4
}

#[cfg(test)]
mod tests {
    use super::super::{SMALL_GROUP, SuperblockFormat};
    use super::*;

    #[test]
    fn superblocks_are_what_blocks_stand_for() {
        for dtype in [Dtype::Q2K, Dtype::Q3K, Dtype::Q6K] {
            let zero = i32::from(SuperblockFormat::of(dtype).unwrap().zero_point());
            let mut row: Vec<u8> = (0..dtype.bytes_of(512)).map(|i| ((i * 2_654_435_761) >> 7) as u8).collect();
            for block in row.chunks_mut(dtype.block_bytes()) {
                // Finite scales and minima.
                let halves = dtype.block_bytes() - if dtype == Dtype::Q2K { 4 } else { 2 };
                block[halves..].chunks_mut(2).for_each(|half| half[1] &= 0x3f);
            }
            let mut expected = vec![0.0; 512];
            dtype.read(&row, &mut expected);
            for (number, expected) in expected.chunks(SUPER_DEPTH).enumerate() {
                let superblock = Superblock::read(dtype, &row, number).unwrap();
                for (k, expected) in expected.iter().enumerate() {
                    let group = k / SMALL_GROUP;
                    let weight = i32::from(superblock.small_scales[group]) * (i32::from(superblock.values[k]) - zero);
                    let minimum = superblock.minimum.to_f32() * f32::from(superblock.small_minima[group]);
                    assert_eq!(superblock.scale.to_f32() * weight as f32 + minimum, *expected, "{dtype} at {k}");
                }
            }
            assert!(Superblock::read(dtype, &row, 2).is_none());
        }
        assert!(Superblock::read(Dtype::Q4K, &[0; 144], 0).is_none());
    }
}
