//! Matmuls of bf16, in the order in which AMX takes its sums: machines without tiles do the same with fused multiply-adds.
//!
//! ```text
//!   k        0  1  2  3 … 31 | 32 33 …          in blocks of 32, the last one filled up with zeros
//!   e        +     +                            one chain over the even k of a block, from 0
//!   o           +     +                         one over the odd k
//!   sum      sum + (e + o)                      block after block
//! ```
//!
//! Left-hand rows are rounded to bf16; sums are f32. Denormals are zero throughout.

mod blocks;
#[cfg(target_arch = "x86_64")]
mod expanding;
mod few_rows;
#[cfg(target_arch = "x86_64")]
mod many_rows;
#[cfg(target_arch = "x86_64")]
mod next_weights;
#[cfg(target_arch = "x86_64")]
mod overlap;
#[cfg(target_arch = "x86_64")]
mod pace;
#[cfg(target_arch = "x86_64")]
mod passes;
mod product;
mod sizes;
#[cfg(target_arch = "x86_64")]
mod streamed;
#[cfg(target_arch = "x86_64")]
mod sums;
mod tile_rows;
mod vectors;

use half::bf16;

use self::blocks::in_blocks;
#[cfg(test)]
pub(crate) use self::few_rows::Chains;
use self::few_rows::few_rows;
#[cfg(target_arch = "x86_64")]
use self::many_rows::many_rows;
pub(crate) use self::product::{PagedProduct, TileProduct, distance};
use self::sizes::{ITEM_ELEMENTS, MAX_ITEM_ROWS, PRODUCT_ROWS};
#[cfg(target_arch = "x86_64")]
use self::streamed::streamed;
pub(crate) use self::tile_rows::TileRows;
use crate::matmul::arithmetic::Arithmetic;
use crate::matmul::gemm::GemmItem;
use crate::matmul::multiply::Multiply;
use crate::matmul::quant::{self, QuantMatmul};
use crate::matmul::rows::LeftRows;
use crate::simd::vector::{Lanes, to_bf16};
use crate::weights::layout::{BLOCK_DEPTH, TILE_ROWS, WHOLE_BLOCKS, block_stride, tile_index};

impl Arithmetic for bf16 {
    const NUMERICS: &'static str = "bf16-pairs-v3";
    type Left = Self;
    const TILE_ROWS: usize = PRODUCT_ROWS;

    fn left_operand_elements(rows: usize, width: usize) -> usize {
        rows.next_multiple_of(TILE_ROWS) * block_stride(width.div_ceil(BLOCK_DEPTH)) * BLOCK_DEPTH
    }

    fn left_operand_stride(width: usize) -> usize {
        block_stride(width.div_ceil(BLOCK_DEPTH))
    }

    #[inline(always)]
    fn left_operand_index(row: usize, column: usize, stride: usize) -> usize {
        tile_index(row, column, stride)
    }

    #[inline(always)]
    unsafe fn put<L: Lanes>(values: L, to: *mut Self) {
        // SAFETY: the caller's promise.
        unsafe { values.store_bf16(to.cast()) };
    }

    #[inline(always)]
    fn left_from_f32(value: f32) -> Self {
        Self::from_bits(to_bf16(value))
    }

    fn item_rows(depth: usize) -> usize {
        let depth = depth.clamp(1, WHOLE_BLOCKS * BLOCK_DEPTH);
        (ITEM_ELEMENTS / depth / PRODUCT_ROWS * PRODUCT_ROWS).clamp(PRODUCT_ROWS, MAX_ITEM_ROWS)
    }

    fn reads_rows_again(depth: usize) -> bool {
        depth > WHOLE_BLOCKS * BLOCK_DEPTH
    }
}

impl Multiply for bf16 {
    type Packed = TileRows;

    #[inline(always)]
    fn multiply<L: Lanes>(item: &GemmItem<'_, Self>, packed: &mut TileRows) {
        let (matrix, rows) = (&item.weights.matrix, item.rows.len());
        if let Some(quantized) = matrix.quantized()
            && item.gemm.quant_matmul == QuantMatmul::Integer
        {
            return quant::integers::<L>(item, quantized, &mut packed.quant);
        }
        let left = match &item.gemm.x {
            LeftRows::Normed(rows) => packed.pack::<L>(rows, item.rows.clone()),
            // SAFETY: written in an earlier phase; items begin at whole tiles.
            LeftRows::Stored(rows) => unsafe { rows.at_row(item.rows.start) },
        };
        match rows {
            _ if rows <= matrix.most_rows_as_read::<L>() => few_rows::<L>(item, left, packed),
            #[cfg(target_arch = "x86_64")]
            ..=PRODUCT_ROWS if L::TILES && !matrix.is_plain() => streamed::<L>(item, left, packed),
            #[cfg(target_arch = "x86_64")]
            _ if L::TILES => many_rows::<L>(item, left, packed),
            _ => in_blocks::<L>(item, left, packed),
        }
    }
}
