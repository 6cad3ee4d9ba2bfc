//! Blocks of 32 values with one scale, and in the `_1` types one offset:
//!
//! ```text
//!   Q4_0  scale:2                 nibbles:16
//!   Q4_1  scale:2 offset:2        nibbles:16
//!   Q5_0  scale:2          fifth:4 nibbles:16
//!   Q5_1  scale:2 offset:2 fifth:4 nibbles:16
//!   Q8_0  scale:2                 signed bytes:32
//! ```
//!
//! Byte j of the nibbles holds value j (low) and value j + 16 (high); bit j of `fifth` is the fifth bit of value j.

use super::scale_at;

pub(super) fn q4_0(block: &[u8; 18], values: &mut [f32; 32]) {
    let scale = scale_at(block, 0);
    nibbles(&block[2..], |j, nibble| values[j] = scale * (i32::from(nibble) - 8) as f32);
}

pub(super) fn q4_1(block: &[u8; 20], values: &mut [f32; 32]) {
    let (scale, offset) = (scale_at(block, 0), scale_at(block, 2));
    nibbles(&block[4..], |j, nibble| values[j] = scale * f32::from(nibble) + offset);
}

pub(super) fn q5_0(block: &[u8; 22], values: &mut [f32; 32]) {
    let scale = scale_at(block, 0);
    let fifth = fifth_bits(&block[2..6]);
    nibbles(&block[6..], |j, nibble| values[j] = scale * (i32::from(nibble | fifth(j)) - 16) as f32);
}

pub(super) fn q5_1(block: &[u8; 24], values: &mut [f32; 32]) {
    let (scale, offset) = (scale_at(block, 0), scale_at(block, 2));
    let fifth = fifth_bits(&block[4..8]);
    nibbles(&block[8..], |j, nibble| values[j] = scale * f32::from(nibble | fifth(j)) + offset);
}

pub(super) fn q8_0(block: &[u8; 34], values: &mut [f32; 32]) {
    let scale = scale_at(block, 0);
    for (value, byte) in values.iter_mut().zip(&block[2..]) {
        *value = scale * f32::from(*byte as i8);
    }
}

fn nibbles(packed: &[u8], mut value: impl FnMut(usize, u8)) {
    for (j, byte) in packed.iter().enumerate() {
        value(j, byte & 0xF);
        value(j + 16, byte >> 4);
    }
}

/// Returns the fifth bit of value j: 0 or 16.
fn fifth_bits(bytes: &[u8]) -> impl Fn(usize) -> u8 {
    move |j| (bytes[j / 8] >> (j % 8) & 1) << 4
}

#[cfg(test)]
mod tests {
    use half::f16;

    use crate::Dtype;

    /// Scale 0.5, then `rest`.
    fn read(dtype: Dtype, rest: &[&[u8]]) -> Vec<f32> {
        let mut block = f16::from_f32(0.5).to_le_bytes().to_vec();
        rest.iter().for_each(|bytes| block.extend(*bytes));
        assert_eq!(block.len(), dtype.block_bytes());
        let mut values = vec![0.0; 32];
        dtype.read(&block, &mut values);
        values
    }

    /// 0 to 15 low, 15 to 0 high.
    fn counting() -> [u8; 16] {
        std::array::from_fn(|j| (j | (15 - j) << 4) as u8)
    }

    #[test]
    fn values_are_where_the_diagram_says() {
        let offset = f16::from_f32(-3.0).to_le_bytes();
        // The fifth bit of values 0, 9, 16 and 31.
        let fifth = [0b1, 0b10, 0b1, 0b1000_0000];
        let counted = |j: usize| if j < 16 { j } else { 31 - j };
        let counted_fifth = |j: usize| counted(j) + if [0, 9, 16, 31].contains(&j) { 16 } else { 0 };
        let bytes: [u8; 32] = std::array::from_fn(|j| (j as i8 - 16) as u8);

        let expect = |value: &dyn Fn(usize) -> f32| (0..32).map(value).collect::<Vec<_>>();
        assert_eq!(read(Dtype::Q4_0, &[&counting()]), expect(&|j| (counted(j) as f32 - 8.0) * 0.5));
        assert_eq!(read(Dtype::Q4_1, &[&offset, &counting()]), expect(&|j| counted(j) as f32 * 0.5 - 3.0));
        assert_eq!(read(Dtype::Q5_0, &[&fifth, &counting()]), expect(&|j| (counted_fifth(j) as f32 - 16.0) * 0.5));
        assert_eq!(
            read(Dtype::Q5_1, &[&offset, &fifth, &counting()]),
            expect(&|j| counted_fifth(j) as f32 * 0.5 - 3.0)
        );
        assert_eq!(read(Dtype::Q8_0, &[&bytes]), expect(&|j| (j as f32 - 16.0) * 0.5));
    }
}
