//! A panel of quantized weights, read as bf16.

use super::super::cell_format::CellFormat;
use super::codes::biased;
use super::format::Scaled;
use crate::simd::vector::Lanes;
use crate::weights::format::{PanelKernel, WeightFormat};
use crate::weights::layout::GROUP;

/// A panel whose format is not yet a type.
#[derive(Clone, Copy)]
pub(crate) struct AnyPanel {
    pub(in crate::matmul::quant) format: CellFormat,
    /// Where the panel begins.
    pub(in crate::matmul::quant) cells: *const u8,
    /// The next block.
    pub(in crate::matmul::quant) block: usize,
    /// Prefetch distance in bytes.
    pub(in crate::matmul::quant) ahead: Option<usize>,
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

/// A panel with codes of `BITS` bits.
pub(crate) struct QuantizedPanel<const BITS: usize>(AnyPanel);

impl<const BITS: usize> WeightFormat for QuantizedPanel<BITS> {
    /// Codes, and what each half of the block has in common.
    type Block<L: Lanes> = (*const u8, [Scaled<L>; 2]);

    #[inline(always)]
    unsafe fn next<L: Lanes>(&mut self) -> Self::Block<L> {
        let AnyPanel { format, cells, block, ahead } = self.0;
        self.0.block += 1;
        if let Some(ahead) = ahead {
            let far = cells.wrapping_add(block * format.block_bytes() + ahead);
            for line in (0..format.block_bytes()).step_by(64) {
                L::prefetch(far.wrapping_add(line));
            }
        }
        // SAFETY: the caller's promise.
        unsafe { format.block::<L, BITS>(cells, block) }
    }

    #[inline(always)]
    unsafe fn pair<L: Lanes>((codes, scaled): &Self::Block<L>, pair: usize) -> [L; 2] {
        let Scaled { scale, offsets } = scaled[pair / (GROUP / 4)];
        // SAFETY: the caller's promise.
        unsafe {
            let (even, place) = biased::<L, BITS>(*codes, 2 * pair);
            let (odd, odd_place) = biased::<L, BITS>(*codes, 2 * pair + 1);
            [even.fma(scale, offsets[place]).cut_to_bf16(), odd.fma(scale, offsets[odd_place]).cut_to_bf16()]
        }
    }
}
