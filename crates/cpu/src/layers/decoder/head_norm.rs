//! RMSNorm of single heads of q and k, before their rotation.

use crate::simd::vector::LANES;

/// head = head / √(mean(head²) + eps) · weight. Products and sums are plain and in one order, so every instruction set gives
/// the same bits.
pub(super) fn norm_head(head: &mut [f32], weight: &[f32], eps: f32) {
    let mut squares = [0.0_f32; LANES];
    for chunk in head.chunks(LANES) {
        for (square, x) in squares.iter_mut().zip(chunk) {
            *square += x * x;
        }
    }
    let mean = squares.iter().sum::<f32>() / head.len() as f32;
    let scale = 1.0 / (mean + eps).sqrt();
    for (x, weight) in head.iter_mut().zip(weight) {
        *x = *x * scale * weight;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_square_becomes_one() {
        let mut head: Vec<f32> = (0..20).map(|i| i as f32 - 3.0).collect();
        let mean = head.iter().map(|x| x * x).sum::<f32>() / 20.0;
        let expected: Vec<f32> = head.iter().enumerate().map(|(i, x)| x / (mean + 0.5).sqrt() * i as f32).collect();
        let weight: Vec<f32> = (0..20).map(|i| i as f32).collect();
        norm_head(&mut head, &weight, 0.5);
        for (got, expected) in head.iter().zip(expected) {
            assert!((got - expected).abs() <= 1e-6 * expected.abs(), "{got} instead of {expected}");
        }
    }
}
