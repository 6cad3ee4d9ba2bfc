//! Attention in bf16: queries and weights are rounded and laid out as tiles, and a page of values is one block of 32 k.
//!
//! Rows of a tile see different numbers of tokens. A token that a row does not see has weight 0, which changes no sum.

#![allow(clippy::needless_range_loop, reason = "rows are numbers here; indexed loops unroll into registers")]

use baton_core::PAGE_TOKENS;
use half::bf16;

use super::BLOCK_TOKENS;
use super::block::{Block, BlockProducts};
use super::softmax::{BlockSum, WeightsTo, largest_scores, weigh_rows};
use super::tile_pages::TilePages;
use crate::matmul::arithmetic::Arithmetic;
use crate::matmul::bf16::{PagedProduct, TileProduct, distance};
use crate::memory::region::Buffer;
use crate::simd::prefetch::Streamed;
use crate::simd::vector::{LANES, Lanes, load_some};
use crate::weights::element::Element;
use crate::weights::layout::{BLOCK_DEPTH, FEW_ROWS, TILE, TILE_ROWS, pair_stride, tile_index};
use baton_backend::BackendError;

const PAGES: usize = BLOCK_TOKENS / PAGE_TOKENS;
/// Two tiles side by side: a page of keys, or 32 dimensions of values.
const PRODUCT_COLUMNS: usize = 2 * LANES;

pub(crate) struct TileOperands<O> {
    /// In tile order.
    queries: Buffer<bf16>,
    query_blocks: usize,
    /// In tile order, a block of k per page.
    weights: Buffer<bf16>,
    /// A copy of the values of a page that is not full, with zeros after the visible tokens.
    last_page: Buffer<bf16>,
    /// Buffers for pages that are not read in place.
    buffers: O,
}

impl<K: TilePages> BlockProducts for K {
    const BLOCK_ROWS: usize = 2 * TILE_ROWS;
    type Operands = TileOperands<K::Buffers>;

    fn operands(head_dim: usize) -> Result<TileOperands<K::Buffers>, BackendError> {
        let query_blocks = head_dim.div_ceil(BLOCK_DEPTH);
        Ok(TileOperands {
            queries: Buffer::new(2 * query_blocks * TILE)?,
            query_blocks,
            weights: Buffer::new(2 * PAGES * TILE)?,
            last_page: Buffer::new(PAGE_TOKENS * head_dim.next_multiple_of(PRODUCT_COLUMNS))?,
            buffers: K::buffers(head_dim)?,
        })
    }

    #[inline(always)]
    fn put_query<L: Lanes>(operands: &mut TileOperands<K::Buffers>, row: usize, query: &[f32]) {
        assert!(row < Self::BLOCK_ROWS && query.len() <= operands.query_blocks * BLOCK_DEPTH);
        let queries = operands.queries.as_mut_slice().as_mut_ptr();
        let whole = query.len() / LANES * LANES;
        for i in (0..whole).step_by(LANES) {
            // SAFETY: 16 of the query, and 16 k of a row that exists.
            unsafe {
                bf16::put(L::load(query.as_ptr().add(i)), queries.add(tile_index(row, i, operands.query_blocks)))
            };
        }
        if whole < query.len() {
            let rest = load_some::<L>(&query[whole..]);
            // SAFETY: as above; what is not there is zero.
            unsafe { bf16::put(rest, queries.add(tile_index(row, whole, operands.query_blocks))) };
        }
    }

    #[inline(always)]
    fn put_some<L: Lanes>(operands: &mut TileOperands<K::Buffers>, row: usize, dimension: usize, values: L) {
        assert!(row < Self::BLOCK_ROWS && dimension + LANES <= operands.query_blocks * BLOCK_DEPTH);
        let queries = operands.queries.as_mut_slice().as_mut_ptr();
        // SAFETY: 16 k of a row that exists.
        unsafe { bf16::put(values, queries.add(tile_index(row, dimension, operands.query_blocks))) };
    }

    #[inline(always)]
    fn scores<L: Lanes>(block: &Block<'_, Self>, operands: &mut TileOperands<K::Buffers>, scores: &mut [f32]) {
        let first = block.rows.start / TILE_ROWS * TILE_ROWS;
        for token in (0..block.tokens).step_by(PAGE_TOKENS) {
            let next_keys = (token + PAGE_TOKENS < block.tokens).then(|| block.keys(token + PAGE_TOKENS));
            let mut b_ahead = 0;
            if prefetches_in_matmul::<L, K>(block) {
                b_ahead = distance(block.keys(token).cast(), next_keys.unwrap_or_else(|| block.values(0)).cast());
            } else if block.rows.end <= TILE_ROWS {
                // Values of this page are needed soon, keys of the next one sooner. With more rows other members have them in their caches.
                prefetch::<L, K>(block.values(token), PAGE_TOKENS * block.value_width());
                if let Some(keys) = next_keys {
                    prefetch::<L, K>(keys, PAGE_TOKENS * block.value_width());
                }
            }
            // Queries and scores hold two tiles of rows, the page 32 columns of `head_dim` k.
            L::call(TileProduct {
                rows: block.rows.end - first,
                panels: PAGE_TOKENS / LANES,
                pairs: block.head_dim() / 2,
                a: operands.queries.as_slice()[tile_index(first, 0, operands.query_blocks)..].as_ptr(),
                a_tile_stride: operands.query_blocks * TILE,
                b: K::keys::<L>(block, token, &mut operands.buffers),
                b_pair_stride: pair_stride(PAGE_TOKENS),
                b_panel_stride: bf16::index(0, LANES, PAGE_TOKENS),
                b_ahead,
                streamed: Streamed::Right,
                c: scores[first * BLOCK_TOKENS + token..].as_mut_ptr(),
                c_stride: BLOCK_TOKENS,
                resume: false,
            });
        }
    }

    #[inline(always)]
    fn largest<L: Lanes, const R: usize>(
        block: &Block<'_, Self>,
        operands: &TileOperands<K::Buffers>,
        first_row: usize,
        scores: &mut [f32],
        scale: f32,
    ) -> [f32; R] {
        let visible = block.visible_to(first_row);
        for (row, visible) in scores.chunks_exact_mut(BLOCK_TOKENS).zip(visible) {
            K::scale_scores::<L>(&operands.buffers, visible, row);
        }
        largest_scores::<L, R>(scores, visible, scale)
    }

    #[inline(always)]
    fn weigh<L: Lanes, const R: usize, const N: usize>(
        block: &Block<'_, Self>,
        operands: &mut TileOperands<K::Buffers>,
        first_row: usize,
        scores: &mut [f32],
        scale_and_largest: (f32, [f32; R]),
    ) -> [BlockSum; R] {
        assert!(first_row + R <= Self::BLOCK_ROWS);
        let (visible, weights) = (block.visible_to(first_row), operands.weights.as_mut_slice().as_mut_ptr());
        let mut to = InTiles::<K, R> { buffers: &operands.buffers, visible, first_row, weights };
        let sums = weigh_rows::<L, R, N>(scores, visible, scale_and_largest, &mut to);
        let end = block.tokens.next_multiple_of(PAGE_TOKENS);
        for r in 0..R {
            for token in (visible[r].next_multiple_of(LANES)..end).step_by(LANES) {
                // SAFETY: inside the block, and the row exists.
                unsafe { to.store(r, token, L::splat(0.0)) };
            }
        }
        sums
    }

    #[inline(always)]
    fn values<L: Lanes>(
        block: &Block<'_, Self>,
        operands: &mut TileOperands<K::Buffers>,
        _scores: &[f32],
        values: &mut [f32],
    ) {
        let (width, first) = (block.value_width(), block.rows.start / TILE_ROWS * TILE_ROWS);
        let mut pages = [std::ptr::null(); PAGES];
        let used = block.tokens.div_ceil(PAGE_TOKENS);
        for (i, page) in pages[..used].iter_mut().enumerate() {
            *page = K::values::<L>(block, i * PAGE_TOKENS, &mut operands.buffers);
        }
        let last_tokens = block.tokens - (used - 1) * PAGE_TOKENS;
        if last_tokens < PAGE_TOKENS && !block.is_written_until(used * PAGE_TOKENS) {
            // SAFETY: the page holds 32 tokens of `width` dimensions, and no thread writes it in this phase.
            let page = unsafe { std::slice::from_raw_parts(pages[used - 1], PAGE_TOKENS * width) };
            let copy = operands.last_page.as_mut_slice();
            copy_tokens(page, last_tokens, width, &mut copy[..PAGE_TOKENS * width]);
            pages[used - 1] = copy.as_ptr();
        }
        for column in (0..width).step_by(PRODUCT_COLUMNS) {
            let b_ahead = match block.next_keys() {
                Some(keys) if prefetches_in_matmul::<L, K>(block) && column + PRODUCT_COLUMNS >= width => {
                    distance(pages[used - 1], keys.cast())
                }
                _ => 0,
            };
            // Weights and values hold two tiles of rows, each page one block of k and `width` columns.
            L::call(PagedProduct {
                product: TileProduct {
                    rows: block.rows.end - first,
                    panels: (width - column).min(PRODUCT_COLUMNS) / LANES,
                    pairs: PAGE_TOKENS / 2,
                    a: operands.weights.as_slice()[tile_index(first, 0, PAGES)..].as_ptr(),
                    a_tile_stride: PAGES * TILE,
                    b: pages[0],
                    b_pair_stride: pair_stride(width),
                    b_panel_stride: bf16::index(0, LANES, width),
                    b_ahead,
                    streamed: Streamed::Right,
                    c: values[first * width + column..].as_mut_ptr(),
                    c_stride: width,
                    resume: false,
                },
                pages: &pages[..used],
                offset: bf16::index(0, column, width),
            });
        }
    }
}

/// Rows of weights in tile order.
struct InTiles<'a, K: TilePages, const R: usize> {
    buffers: &'a K::Buffers,
    visible: [usize; R],
    first_row: usize,
    weights: *mut bf16,
}

impl<K: TilePages, const R: usize> InTiles<'_, K, R> {
    /// # Safety
    /// The row exists, and 16 tokens from this one on are inside the block.
    #[inline(always)]
    unsafe fn store<L: Lanes>(&self, row: usize, token: usize, weights: L) {
        // SAFETY: 16 tokens of one page.
        unsafe { bf16::put(weights, self.weights.add(tile_index(self.first_row + row, token, PAGES))) };
    }
}

impl<K: TilePages, const R: usize> WeightsTo for InTiles<'_, K, R> {
    #[inline(always)]
    unsafe fn put<L: Lanes>(&mut self, row: usize, token: usize, _scores: *mut f32, weights: L) {
        debug_assert!(token + LANES <= BLOCK_TOKENS);
        // SAFETY: the caller's promise, and `weigh` has seen the rows.
        unsafe { self.store(row, token, K::weigh(self.buffers, self.visible[row], token, weights)) };
    }
}

/// Whether matmuls prefetch the next page line by line while they read one. Bursts of prefetches between matmuls would leave memory
/// and arithmetic waiting for each other.
#[inline(always)]
fn prefetches_in_matmul<L: Lanes, K: TilePages>(block: &Block<'_, K>) -> bool {
    !L::TILES && block.rows.end <= FEW_ROWS && size_of::<K>() == size_of::<bf16>()
}

#[inline(always)]
fn prefetch<L: Lanes, K>(first: *const K, elements: usize) {
    for i in (0..elements).step_by(64 / size_of::<K>()) {
        L::prefetch(first.wrapping_add(i).cast());
    }
}

/// Copies the first tokens of a page of values, and zeros for the others.
#[inline(always)]
fn copy_tokens(page: &[bf16], tokens: usize, width: usize, copy: &mut [bf16]) {
    let (whole, pair) = (tokens / 2 * pair_stride(width), pair_stride(width));
    copy[..whole].copy_from_slice(&page[..whole]);
    copy[whole..].fill(bf16::ZERO);
    if tokens % 2 == 1 {
        for (copy, value) in copy[whole..whole + pair].iter_mut().zip(&page[whole..]).step_by(2) {
            *copy = *value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_tokens_are_not_copied() {
        let width = 16;
        let page: Vec<bf16> = (0..PAGE_TOKENS * width).map(|i| bf16::from_f32(1.0 + i as f32)).collect();
        for tokens in [1, 2, 7, 31] {
            let mut copy = vec![bf16::NAN; page.len()];
            copy_tokens(&page, tokens, width, &mut copy);
            for (token, column) in (0..PAGE_TOKENS).flat_map(|token| (0..width).map(move |column| (token, column))) {
                let at = bf16::index(token, column, width);
                let expected = if token < tokens { page[at] } else { bf16::ZERO };
                assert_eq!(copy[at], expected, "token {token} of {tokens}");
            }
        }
    }
}
