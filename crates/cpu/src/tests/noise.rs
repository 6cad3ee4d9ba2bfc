//! Numbers that look random, the same in every run.

pub(crate) fn noise(i: usize) -> u64 {
    (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23).wrapping_mul(0xd134_2543_de82_ef95)
}
