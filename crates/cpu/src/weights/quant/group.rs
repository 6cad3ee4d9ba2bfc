//! A file's blocks, read as groups of 32 quantized values that share a scale and a minimum.

use baton_model::Dtype;
use half::f16;

use crate::weights::layout::GROUP;

/// Weights are `scale · (value - zero_point) + minimum`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Group {
    pub(crate) values: [u8; GROUP],
    pub(crate) scale: f32,
    pub(crate) minimum: f32,
}

impl Group {
    /// The `group`-th 32 weights of a row of blocks; `None` for types without groups of 32, and beyond the row's end.
    pub(crate) fn read(dtype: Dtype, row: &[u8], group: usize) -> Option<Self> {
        let groups = dtype.block_values() / GROUP;
        let block = row.chunks_exact(dtype.block_bytes()).nth(group.checked_div(groups)?)?;
        let half = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
        Some(match dtype {
            Dtype::Q4_0 => Self { values: nibbles(&block[2..18]), scale: half(0), minimum: 0.0 },
            Dtype::Q4_1 => Self { values: nibbles(&block[4..20]), scale: half(0), minimum: half(2) },
            Dtype::Q5_0 => Self { values: with_fifth_bits(&block[6..22], &block[2..6]), scale: half(0), minimum: 0.0 },
            Dtype::Q5_1 => {
                Self { values: with_fifth_bits(&block[8..24], &block[4..8]), scale: half(0), minimum: half(2) }
            }
            Dtype::Q8_0 => {
                // From two's complement.
                Self { values: std::array::from_fn(|i| block[2 + i] ^ 0x80), scale: half(0), minimum: 0.0 }
            }
            Dtype::Q4K | Dtype::Q5K => {
                let group = group % groups;
                let (scale, minimum) = six_bit_scales(&block[4..16], group);
                let (fifth_bits, low) = block[16..].split_at(if dtype == Dtype::Q5K { GROUP } else { 0 });
                let low = &low[group / 2 * GROUP..][..GROUP];
                let values = std::array::from_fn(|i| {
                    let fifth = fifth_bits.get(i).map_or(0, |bits| bits >> group & 1);
                    low[i] >> (group % 2 * 4) & 15 | fifth << 4
                });
                Self { values, scale: half(0) * f32::from(scale), minimum: -(half(2) * f32::from(minimum)) }
            }
            _ => return None,
        })
    }
}

/// Value i in the low half of byte i, value i + 16 in its high half.
fn nibbles(bytes: &[u8]) -> [u8; GROUP] {
    std::array::from_fn(|i| bytes[i % 16] >> (i / 16 * 4) & 15)
}

fn with_fifth_bits(low: &[u8], fifth: &[u8]) -> [u8; GROUP] {
    let low = nibbles(low);
    std::array::from_fn(|i| low[i] | (fifth[i / 8] >> (i % 8) & 1) << 4)
}

/// Eight scales and eight minima of six bits in twelve bytes.
///
/// ```text
///   byte 0..4   scale i      | top 2 bits: of scale i + 4
///   byte 4..8   minimum i    | top 2 bits: of minimum i + 4
///   byte 8..12  low 4 bits: of scale i + 4 | high 4 bits: of minimum i + 4
/// ```
fn six_bit_scales(packed: &[u8], group: usize) -> (u8, u8) {
    if group < 4 {
        (packed[group] & 63, packed[group + 4] & 63)
    } else {
        let low = packed[group + 4];
        (low & 15 | packed[group - 4] >> 6 << 4, low >> 4 | packed[group] >> 6 << 4)
    }
}

#[cfg(test)]
mod tests {
    use super::super::block_format::BlockFormat;
    use super::*;

    #[test]
    fn groups_are_what_blocks_stand_for() {
        for dtype in Dtype::ALL.into_iter().filter(|dtype| BlockFormat::of(*dtype).is_some()) {
            let zero = BlockFormat::of(dtype).unwrap().zero_point;
            let values = 512;
            let mut row: Vec<u8> = (0..dtype.bytes_of(values)).map(|i| ((i * 2_654_435_761) >> 7) as u8).collect();
            for block in row.chunks_mut(dtype.block_bytes()) {
                // Finite scales and minima.
                block[1] &= 0x3f;
                block[3] &= if matches!(dtype, Dtype::Q5_0 | Dtype::Q4_0 | Dtype::Q8_0) { 0xff } else { 0x3f };
            }
            let mut expected = vec![0.0; values];
            dtype.read(&row, &mut expected);
            for (number, expected) in expected.chunks(GROUP).enumerate() {
                let Group { values, scale, minimum } = Group::read(dtype, &row, number).unwrap();
                let got = values.map(|value| (f32::from(value) - f32::from(zero)) * scale + minimum);
                assert_eq!(got[..], *expected, "{dtype}, group {number}");
            }
            assert_eq!(Group::read(dtype, &row, values / GROUP), None);
        }
        assert_eq!(Group::read(Dtype::Q6K, &[0; 210], 0), None);
    }
}
