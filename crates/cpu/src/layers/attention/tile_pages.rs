//! Pages for bf16 matmuls: read in place where KV is bf16, converted from int8 into buffers of this member otherwise.

use baton_core::PAGE_TOKENS;
use half::bf16;

use super::BLOCK_TOKENS;
use super::block::Block;
use crate::memory::kv::{KvElement, scales, widen};
use crate::memory::region::Buffer;
use crate::simd::vector::{LANES, Lanes, padded};
use baton_backend::BackendError;

pub(crate) trait TilePages: KvElement {
    /// Buffers for one block, where pages are not read in place.
    type Buffers: Send;

    fn buffers(head_dim: usize) -> Result<Self::Buffers, BackendError>;

    /// The keys of the page with this token of the block. Called before anything else for that page; valid until the next call.
    fn keys<L: Lanes>(block: &Block<'_, Self>, token: usize, buffers: &mut Self::Buffers) -> *const bf16;

    /// The values of the page with this token of the block, which replace the keys.
    fn values<L: Lanes>(block: &Block<'_, Self>, token: usize, buffers: &mut Self::Buffers) -> *const bf16;

    /// Multiplies a row of scores with the scales of keys. Scores of tokens that are not visible may become anything.
    fn scale_scores<L: Lanes>(buffers: &Self::Buffers, visible: usize, scores: &mut [f32]);

    /// Multiplies the weights of 16 tokens with the scales of values; the weights of tokens that are not visible are 0.
    fn weigh<L: Lanes>(buffers: &Self::Buffers, visible: usize, token: usize, weights: L) -> L;
}

impl TilePages for bf16 {
    type Buffers = ();

    fn buffers(_head_dim: usize) -> Result<(), BackendError> {
        Ok(())
    }

    #[inline(always)]
    fn keys<L: Lanes>(block: &Block<'_, Self>, token: usize, (): &mut ()) -> *const bf16 {
        block.keys(token)
    }

    #[inline(always)]
    fn values<L: Lanes>(block: &Block<'_, Self>, token: usize, (): &mut ()) -> *const bf16 {
        block.values(token)
    }

    #[inline(always)]
    fn scale_scores<L: Lanes>((): &(), _visible: usize, _scores: &mut [f32]) {}

    #[inline(always)]
    fn weigh<L: Lanes>((): &(), _visible: usize, _token: usize, weights: L) -> L {
        weights
    }
}

pub(crate) struct ConvertedPages {
    /// One page of keys, which stays in the cache; then the values of the block.
    pages: Buffer<bf16>,
    key_scales: [f32; BLOCK_TOKENS],
    value_scales: [f32; BLOCK_TOKENS],
}

impl TilePages for i8 {
    type Buffers = ConvertedPages;

    fn buffers(head_dim: usize) -> Result<ConvertedPages, BackendError> {
        Ok(ConvertedPages {
            pages: Buffer::new(BLOCK_TOKENS * padded(head_dim))?,
            key_scales: [0.0; BLOCK_TOKENS],
            value_scales: [0.0; BLOCK_TOKENS],
        })
    }

    #[inline(always)]
    fn keys<L: Lanes>(block: &Block<'_, Self>, token: usize, buffers: &mut ConvertedPages) -> *const bf16 {
        let (keys, values, width) = (block.keys(token), block.values(token), block.value_width());
        // SAFETY: a head of a page has a scale for each token, and no thread writes it in this phase.
        unsafe {
            read_scales(scales(keys.cast_mut(), width), &mut buffers.key_scales[token..][..PAGE_TOKENS]);
            read_scales(scales(values.cast_mut(), width), &mut buffers.value_scales[token..][..PAGE_TOKENS]);
        }
        // SAFETY: as many values as it has dimensions.
        unsafe { buffers.widen::<L>(keys, 0, block.head_dim(), width) }
    }

    #[inline(always)]
    fn values<L: Lanes>(block: &Block<'_, Self>, token: usize, buffers: &mut ConvertedPages) -> *const bf16 {
        let width = block.value_width();
        // SAFETY: all values of the page.
        unsafe { buffers.widen::<L>(block.values(token), token, width, width) }
    }

    #[inline(always)]
    fn scale_scores<L: Lanes>(buffers: &ConvertedPages, visible: usize, scores: &mut [f32]) {
        assert!(scores.len() == BLOCK_TOKENS && visible <= BLOCK_TOKENS);
        for token in (0..visible).step_by(LANES) {
            // SAFETY: whole vectors of a block.
            unsafe {
                let scale = L::load(buffers.key_scales.as_ptr().add(token));
                let at = scores.as_mut_ptr().add(token);
                L::load(at).mul(scale).store(at);
            }
        }
    }

    #[inline(always)]
    fn weigh<L: Lanes>(buffers: &ConvertedPages, visible: usize, token: usize, weights: L) -> L {
        assert!(token + LANES <= BLOCK_TOKENS);
        // SAFETY: a whole vector of the block.
        let weights = weights.mul(unsafe { L::load(buffers.value_scales.as_ptr().add(token)) });
        // The scale of a token that is not visible may be NaN.
        if token + LANES <= visible { weights } else { weights.keep_first(visible - token, L::splat(0.0)) }
    }
}

impl ConvertedPages {
    /// Converts the page's first `depth` dimensions of each token.
    ///
    /// # Safety
    /// They are readable at `quantized`, and no thread writes them in this phase.
    #[inline(always)]
    unsafe fn widen<L: Lanes>(
        &mut self,
        quantized: *const i8,
        token: usize,
        depth: usize,
        width: usize,
    ) -> *const bf16 {
        assert!(depth <= width && (token + PAGE_TOKENS) * width <= self.pages.as_slice().len());
        // SAFETY: a page of the buffer; the rest is the caller's promise.
        unsafe {
            let page = self.pages.as_mut_ptr().add(token * width);
            widen::<L>(quantized, PAGE_TOKENS * depth, page);
            page
        }
    }
}

/// # Safety
/// As many are readable at `from`, and no thread writes them in this phase.
#[inline(always)]
unsafe fn read_scales(from: *const f32, to: &mut [f32]) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::isa::Isa;
    use crate::simd::vector::Kernel;

    /// Scores and weights of 16 tokens from the 17th on.
    struct Scaled<'a>(&'a ConvertedPages, usize);

    impl Kernel for Scaled<'_> {
        type Output = ([f32; LANES], [f32; LANES]);

        #[inline(always)]
        fn run<L: Lanes>(self) -> ([f32; LANES], [f32; LANES]) {
            let Self(buffers, visible) = self;
            let mut scores = [3.0; BLOCK_TOKENS];
            i8::scale_scores::<L>(buffers, visible, &mut scores);
            let weights = i8::weigh(buffers, visible, LANES, L::splat(0.5));
            (std::array::from_fn(|i| scores[LANES + i]), weights.to_array())
        }
    }

    #[test]
    fn scales_of_tokens_that_are_not_visible_do_not_show() {
        let mut buffers = i8::buffers(16).unwrap();
        let visible = 23;
        for token in 0..BLOCK_TOKENS {
            let scale = if token < visible { token as f32 } else { f32::NAN };
            buffers.key_scales[token] = scale;
            buffers.value_scales[token] = scale * 4.0;
        }
        for isa in Isa::available() {
            let (scores, weights) = isa.run(Scaled(&buffers, visible));
            for (i, (score, weight)) in scores.into_iter().zip(weights).enumerate() {
                let token = LANES + i;
                if token < visible {
                    assert_eq!((score, weight), (3.0 * token as f32, 2.0 * token as f32), "{isa}: token {token}");
                } else {
                    assert_eq!(weight.to_bits(), 0, "{isa}: token {token}");
                }
            }
        }
    }
}
