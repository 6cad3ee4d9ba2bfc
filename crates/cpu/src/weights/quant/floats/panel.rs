//! A panel of quantized weights, read as bf16.

use super::super::format::QuantFormat;
use super::scaled::Scaled;
use super::unpack::load_biased;
use crate::simd::vector::Lanes;
use crate::weights::format::{PanelKernel, WeightFormat};
use crate::weights::layout::GROUP;

/// A panel whose number of bits is not yet a constant.
#[derive(Clone, Copy)]
pub(crate) struct AnyPanel {
    pub(crate) format: QuantFormat,
    /// Where the panel begins.
    pub(crate) data: *const u8,
    /// The next block.
    pub(crate) block: usize,
    /// Prefetch distance in bytes.
    pub(crate) ahead: Option<usize>,
}

impl AnyPanel {
    #[inline(always)]
    pub(crate) fn run<L: Lanes>(self, kernel: impl PanelKernel) {
        match self.format.bits() {
            2 => kernel.run::<L, _>(QuantizedPanel::<2>(self)),
            3 => kernel.run::<L, _>(QuantizedPanel::<3>(self)),
            4 => kernel.run::<L, _>(QuantizedPanel::<4>(self)),
            5 => kernel.run::<L, _>(QuantizedPanel::<5>(self)),
            6 => kernel.run::<L, _>(QuantizedPanel::<6>(self)),
            _ => kernel.run::<L, _>(QuantizedPanel::<8>(self)),
        }
    }
}

/// A panel of values of `BITS` bits.
pub(crate) struct QuantizedPanel<const BITS: usize>(AnyPanel);

impl<const BITS: usize> WeightFormat for QuantizedPanel<BITS> {
    /// The packed values, and the scales of each half of the block.
    type Block<L: Lanes> = (*const u8, [Scaled<L>; 2]);

    #[inline(always)]
    unsafe fn next<L: Lanes>(&mut self) -> Self::Block<L> {
        let AnyPanel { format, data, block, ahead } = self.0;
        self.0.block += 1;
        if let Some(ahead) = ahead {
            let far = data.wrapping_add(block * format.block_bytes() + ahead);
            for line in (0..format.block_bytes()).step_by(64) {
                L::prefetch(far.wrapping_add(line));
            }
        }
        // SAFETY: the caller's promise.
        unsafe { format.block::<L, BITS>(data, block) }
    }

    #[inline(always)]
    unsafe fn pair<L: Lanes>((values, scaled): &Self::Block<L>, pair: usize) -> [L; 2] {
        let Scaled { scale, offsets } = scaled[pair / (GROUP / 4)];
        // SAFETY: the caller's promise.
        unsafe {
            let (even, position) = load_biased::<L, BITS>(*values, 2 * pair);
            let (odd, odd_position) = load_biased::<L, BITS>(*values, 2 * pair + 1);
            [even.fma(scale, offsets[position]).cut_to_bf16(), odd.fma(scale, offsets[odd_position]).cut_to_bf16()]
        }
    }
}
