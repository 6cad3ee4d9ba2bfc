//! Types of stored numbers: single ones, or blocks that share a scale. [`Dtype::read`] defines their values; every kernel is tested
//! against it.

mod blocks;
mod superblocks;

use std::fmt;

use half::{bf16, f16};

/// A type of stored numbers. Block types have GGUF's names and layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dtype {
    F32,
    F16,
    Bf16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
}

impl Dtype {
    pub const ALL: [Self; 13] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q2K,
        Self::Q3K,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q8_0 => "Q8_0",
            Self::Q2K => "Q2_K",
            Self::Q3K => "Q3_K",
            Self::Q4K => "Q4_K",
            Self::Q5K => "Q5_K",
            Self::Q6K => "Q6_K",
        }
    }

    /// The number of values in a block; rows consist of whole blocks.
    pub const fn block_values(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => 32,
            Self::Q2K | Self::Q3K | Self::Q4K | Self::Q5K | Self::Q6K => 256,
        }
    }

    pub const fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q2K => 84,
            Self::Q3K => 110,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
        }
    }

    /// The bytes of `values` values in whole blocks.
    pub const fn bytes_of(self, values: usize) -> usize {
        values / self.block_values() * self.block_bytes()
    }

    /// Reads as many whole blocks as `bytes` contains and `out` can hold.
    pub fn read(self, bytes: &[u8], out: &mut [f32]) {
        match self {
            Self::F32 => each(bytes, out, |block, [value]| *value = f32::from_le_bytes(*block)),
            Self::F16 => each(bytes, out, |block, [value]| *value = f16::from_le_bytes(*block).to_f32()),
            Self::Bf16 => each(bytes, out, |block, [value]| *value = bf16::from_le_bytes(*block).to_f32()),
            Self::Q4_0 => each(bytes, out, blocks::q4_0),
            Self::Q4_1 => each(bytes, out, blocks::q4_1),
            Self::Q5_0 => each(bytes, out, blocks::q5_0),
            Self::Q5_1 => each(bytes, out, blocks::q5_1),
            Self::Q8_0 => each(bytes, out, blocks::q8_0),
            Self::Q2K => each(bytes, out, superblocks::q2_k),
            Self::Q3K => each(bytes, out, superblocks::q3_k),
            Self::Q4K => each(bytes, out, superblocks::q4_k),
            Self::Q5K => each(bytes, out, superblocks::q5_k),
            Self::Q6K => each(bytes, out, superblocks::q6_k),
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[inline(always)]
fn each<const BYTES: usize, const VALUES: usize>(
    bytes: &[u8],
    out: &mut [f32],
    read: impl Fn(&[u8; BYTES], &mut [f32; VALUES]),
) {
    for (block, values) in bytes.as_chunks().0.iter().zip(out.as_chunks_mut().0) {
        read(block, values);
    }
}

/// The half-precision number at `bytes[at..at + 2]`.
fn scale_at<const BYTES: usize>(block: &[u8; BYTES], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_reads_all_of_its_blocks() {
        for dtype in Dtype::ALL {
            let blocks = 3;
            let mut out = vec![f32::NAN; blocks * dtype.block_values()];
            dtype.read(&vec![0; dtype.bytes_of(out.len())], &mut out);
            assert!(out.iter().all(|value| *value == 0.0), "{dtype}: {out:?}");
        }
    }

    #[test]
    fn half_a_block_is_not_read() {
        let mut out = [7.0; 40];
        Dtype::Q8_0.read(&[0; 67], &mut out);
        assert_eq!(out[..32], [0.0; 32]);
        assert_eq!(out[32..], [7.0; 8]);
    }
}
