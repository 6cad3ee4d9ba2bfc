//! Random numbers without state: Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011).

use baton_core::Choice;

/// Uniform in [0, 1), with 53 bits. A pure function, so a stream can be continued anywhere.
pub(super) fn uniform(seed: u64, choice: Choice, position: u64) -> f64 {
    let [a, b, _, _] =
        philox([position as u32, (position >> 32) as u32, choice.0, 0], [seed as u32, (seed >> 32) as u32]);
    let bits = u64::from(a) << 32 | u64::from(b);
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let low = u64::from(counter[0]) * 0xD251_1F53;
        let high = u64::from(counter[2]) * 0xCD9E_8D57;
        counter = [
            (high >> 32) as u32 ^ counter[1] ^ key[0],
            high as u32,
            (low >> 32) as u32 ^ counter[3] ^ key[1],
            low as u32,
        ];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From kat_vectors of the authors' Random123 library.
    #[test]
    fn known_answers() {
        let table = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, expected) in table {
            assert_eq!(philox(counter, key), expected);
        }
    }

    #[test]
    fn the_mean_is_a_half_and_the_ends_are_right() {
        let numbers: Vec<f64> = (0..100_000).map(|position| uniform(1, Choice(0), position)).collect();
        let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
        assert!((mean - 0.5).abs() < 3e-3, "{mean}");
        assert!(numbers.iter().all(|number| (0.0..1.0).contains(number)));
    }
}
