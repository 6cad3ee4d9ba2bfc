//! Pages as products of bf16 read them: in place, or widened from codes into buffers of this member.

use baton_core::PAGE_TOKENS;
use half::bf16;

use super::BLOCK_TOKENS;
use super::block::Block;
use crate::memory::kv::{KvElement, scales, widen};
use crate::memory::region::Buffer;
use crate::simd::vector::{LANES, Lanes, padded};
use baton_backend::BackendError;

pub(crate) trait TilePages: KvElement<Arithmetic = bf16> {
    /// Of one block, where pages are not read in place.
    type Opened: Send;

    fn opened(head_dim: usize) -> Result<Self::Opened, BackendError>;

    /// Of the page with this token of the block, before anything else is asked about it; good until the next page is asked for.
    fn keys<L: Lanes>(block: &Block<'_, Self>, token: usize, opened: &mut Self::Opened) -> *const bf16;

    /// Of the page with this token of the block; keys are not needed any more.
    fn values<L: Lanes>(block: &Block<'_, Self>, token: usize, opened: &mut Self::Opened) -> *const bf16;

    /// Makes scores of products with what `keys` gave. Tokens that are not visible may become anything.
    fn scale_scores<L: Lanes>(opened: &Self::Opened, visible: usize, scores: &mut [f32]);

    /// What 16 tokens from this one on count in a product with what `values` gives; 0 for those that are not visible.
    fn weigh<L: Lanes>(opened: &Self::Opened, visible: usize, token: usize, weights: L) -> L;
}

impl TilePages for bf16 {
    type Opened = ();

    fn opened(_head_dim: usize) -> Result<(), BackendError> {
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

pub(crate) struct OpenedCodes {
    /// One page of keys, which stays near; then values.
    pages: Buffer<bf16>,
    key_scales: [f32; BLOCK_TOKENS],
    value_scales: [f32; BLOCK_TOKENS],
}

impl TilePages for i8 {
    type Opened = OpenedCodes;

    fn opened(head_dim: usize) -> Result<OpenedCodes, BackendError> {
        Ok(OpenedCodes {
            pages: Buffer::new(BLOCK_TOKENS * padded(head_dim))?,
            key_scales: [0.0; BLOCK_TOKENS],
            value_scales: [0.0; BLOCK_TOKENS],
        })
    }

    #[inline(always)]
    fn keys<L: Lanes>(block: &Block<'_, Self>, token: usize, opened: &mut OpenedCodes) -> *const bf16 {
        let (keys, values, width) = (block.keys(token), block.values(token), block.value_width());
        // SAFETY: a head of a page has a scale for each token, and nobody writes it in this phase.
        unsafe {
            read_scales(scales(keys.cast_mut(), width), &mut opened.key_scales[token..][..PAGE_TOKENS]);
            read_scales(scales(values.cast_mut(), width), &mut opened.value_scales[token..][..PAGE_TOKENS]);
        }
        // SAFETY: as many codes as it has dimensions.
        unsafe { opened.widen::<L>(keys, 0, block.head_dim(), width) }
    }

    #[inline(always)]
    fn values<L: Lanes>(block: &Block<'_, Self>, token: usize, opened: &mut OpenedCodes) -> *const bf16 {
        let width = block.value_width();
        // SAFETY: all codes of the page.
        unsafe { opened.widen::<L>(block.values(token), token, width, width) }
    }

    #[inline(always)]
    fn scale_scores<L: Lanes>(opened: &OpenedCodes, visible: usize, scores: &mut [f32]) {
        assert!(scores.len() == BLOCK_TOKENS && visible <= BLOCK_TOKENS);
        for token in (0..visible).step_by(LANES) {
            // SAFETY: whole vectors of a block.
            unsafe {
                let scale = L::load(opened.key_scales.as_ptr().add(token));
                let at = scores.as_mut_ptr().add(token);
                L::load(at).mul(scale).store(at);
            }
        }
    }

    #[inline(always)]
    fn weigh<L: Lanes>(opened: &OpenedCodes, visible: usize, token: usize, weights: L) -> L {
        assert!(token + LANES <= BLOCK_TOKENS);
        // SAFETY: a whole vector of the block.
        let weights = weights.mul(unsafe { L::load(opened.value_scales.as_ptr().add(token)) });
        // A scale of a token that is not visible may be no number.
        if token + LANES <= visible { weights } else { weights.keep_first(visible - token, L::splat(0.0)) }
    }
}

impl OpenedCodes {
    /// The page's first `depth` dimensions per token.
    ///
    /// # Safety
    /// They are readable at `codes`, and nobody writes them in this phase.
    #[inline(always)]
    unsafe fn widen<L: Lanes>(&mut self, codes: *const i8, token: usize, depth: usize, width: usize) -> *const bf16 {
        assert!(depth <= width && (token + PAGE_TOKENS) * width <= self.pages.as_slice().len());
        // SAFETY: a page of the buffer; the rest is the caller's promise.
        unsafe {
            let page = self.pages.as_mut_ptr().add(token * width);
            widen::<L>(codes, PAGE_TOKENS * depth, page);
            page
        }
    }
}

/// # Safety
/// As many are readable at `from`, and nobody writes them in this phase.
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
    struct Scaled<'a>(&'a OpenedCodes, usize);

    impl Kernel for Scaled<'_> {
        type Output = ([f32; LANES], [f32; LANES]);

        #[inline(always)]
        fn run<L: Lanes>(self) -> ([f32; LANES], [f32; LANES]) {
            let Self(opened, visible) = self;
            let mut scores = [3.0; BLOCK_TOKENS];
            i8::scale_scores::<L>(opened, visible, &mut scores);
            let weights = i8::weigh(opened, visible, LANES, L::splat(0.5));
            (std::array::from_fn(|i| scores[LANES + i]), weights.to_array())
        }
    }

    #[test]
    fn scales_of_tokens_that_are_not_visible_do_not_show() {
        let mut opened = i8::opened(16).unwrap();
        let visible = 23;
        for token in 0..BLOCK_TOKENS {
            let scale = if token < visible { token as f32 } else { f32::NAN };
            opened.key_scales[token] = scale;
            opened.value_scales[token] = scale * 4.0;
        }
        for isa in Isa::available() {
            let (scores, weights) = isa.run(Scaled(&opened, visible));
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
