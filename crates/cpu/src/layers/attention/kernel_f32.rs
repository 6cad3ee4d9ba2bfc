//! Attention in f32. Keys and values are read in place; tokens that are not visible are not read.

use std::ops::Range;

use baton_core::PAGE_TOKENS;

use super::BLOCK_TOKENS;
use super::block::{Block, BlockProducts};
use super::softmax::{BlockSum, WeightsTo, largest_scores, weigh_rows};
use crate::matmul::f32::{MAX_TILE_ROWS, Product};
use crate::memory::region::Floats;
use crate::simd::vector::{LANES, Lanes};
use crate::weights::element::Element;
use crate::weights::layout::pair_stride;
use baton_backend::BackendError;

/// Weights take the place of their scores.
struct InPlace;

impl WeightsTo for InPlace {
    #[inline(always)]
    unsafe fn put<L: Lanes>(&mut self, _row: usize, _token: usize, scores: *mut f32, weights: L) {
        // SAFETY: the caller's promise.
        unsafe { weights.store(scores) };
    }
}

impl BlockProducts for f32 {
    const BLOCK_ROWS: usize = 2 * MAX_TILE_ROWS;
    /// Queries, `[dimension][row]`. Weights take the place of the scores.
    type Operands = Floats;

    fn operands(head_dim: usize) -> Result<Floats, BackendError> {
        Floats::new(Self::BLOCK_ROWS * head_dim)
    }

    #[inline(always)]
    fn put_query<L: Lanes>(queries: &mut Floats, row: usize, query: &[f32]) {
        let rows = queries.as_mut_slice().chunks_exact_mut(Self::BLOCK_ROWS);
        for (dimension, &value) in rows.zip(query) {
            dimension[row] = value;
        }
    }

    #[inline(always)]
    fn put_some<L: Lanes>(queries: &mut Floats, row: usize, dimension: usize, values: L) {
        let dimensions = queries.as_mut_slice().chunks_exact_mut(Self::BLOCK_ROWS).skip(dimension);
        for (dimension, value) in dimensions.zip(values.to_array()) {
            dimension[row] = value;
        }
    }

    #[inline(always)]
    fn scores<L: Lanes>(block: &Block<'_, Self>, queries: &mut Floats, scores: &mut [f32]) {
        let first = block.rows.start;
        for token in (0..block.tokens).step_by(PAGE_TOKENS) {
            let tokens = PAGE_TOKENS.min(block.tokens - token);
            // Queries and scores hold `BLOCK_ROWS` rows; the page holds 32 columns of `head_dim` k.
            L::call(Product::<1> {
                rows: block.rows.len(),
                panels: tokens.div_ceil(LANES),
                depth: block.head_dim(),
                a: queries.as_slice()[first..].as_ptr(),
                a_step: Self::BLOCK_ROWS,
                b: block.keys(token),
                b_pair_stride: pair_stride(PAGE_TOKENS),
                b_panel_stride: Self::index(0, LANES, PAGE_TOKENS),
                c: scores[first * BLOCK_TOKENS + token..].as_mut_ptr(),
                c_stride: BLOCK_TOKENS,
                resume: false,
            });
        }
    }

    #[inline(always)]
    fn largest<L: Lanes, const R: usize>(
        block: &Block<'_, Self>,
        _queries: &Floats,
        first_row: usize,
        scores: &mut [f32],
        scale: f32,
    ) -> [f32; R] {
        largest_scores::<L, R>(scores, block.visible_to(first_row), scale)
    }

    #[inline(always)]
    fn weigh<L: Lanes, const R: usize, const N: usize>(
        block: &Block<'_, Self>,
        _queries: &mut Floats,
        first_row: usize,
        scores: &mut [f32],
        scale_and_largest: (f32, [f32; R]),
    ) -> [BlockSum; R] {
        weigh_rows::<L, R, N>(scores, block.visible_to(first_row), scale_and_largest, &mut InPlace)
    }

    /// Over the tokens that each row sees.
    #[inline(always)]
    fn values<L: Lanes>(block: &Block<'_, Self>, _queries: &mut Floats, weights: &[f32], values: &mut [f32]) {
        let mut tile = block.rows.start;
        while tile < block.rows.end {
            let tile_end = (tile + MAX_TILE_ROWS).min(block.rows.end);
            // First the tokens that all rows of the tile see, in whole pairs; then the rest, rows of one position at a time.
            let common = block.visible(tile) & !1;
            values_of::<L>(block, tile..tile_end, 0..common, weights, values);
            let mut row = tile;
            while row < tile_end {
                let visible = block.visible(row);
                let next = (row..tile_end).find(|&row| block.visible(row) != visible).unwrap_or(tile_end);
                values_of::<L>(block, row..next, common..visible, weights, values);
                row = next;
            }
            tile = tile_end;
        }
    }
}

/// Adds the values of some tokens for some rows; the first token of the block starts new sums.
#[inline(always)]
fn values_of<L: Lanes>(
    block: &Block<'_, f32>,
    rows: Range<usize>,
    tokens: Range<usize>,
    weights: &[f32],
    values: &mut [f32],
) {
    let width = block.value_width();
    let mut token = tokens.start;
    while token < tokens.end {
        let end = tokens.end.min(token + PAGE_TOKENS - token % PAGE_TOKENS);
        // Weights and values hold `BLOCK_ROWS` rows; the page holds 32 k of `width` columns, and the first is even.
        L::call(Product::<BLOCK_TOKENS> {
            rows: rows.len(),
            panels: width / LANES,
            depth: end - token,
            a: weights[rows.start * BLOCK_TOKENS + token..].as_ptr(),
            a_step: 1,
            b: block.values(token).wrapping_add(f32::index(token % PAGE_TOKENS, 0, width)),
            b_pair_stride: pair_stride(width),
            b_panel_stride: f32::index(0, LANES, width),
            c: values[rows.start * width..].as_mut_ptr(),
            c_stride: width,
            resume: token > 0,
        });
        token = end;
    }
}
