//! Products of f32: every output is one chain of fused multiply-adds over k ascending.

mod packed_rows;
mod product;

pub(crate) use self::packed_rows::PackedRows;
pub(crate) use self::product::{MAX_TILE_ROWS, Product};
use crate::matmul::arithmetic::Arithmetic;
use crate::matmul::gemm::GemmItem;
use crate::matmul::multiply::Multiply;
use crate::simd::vector::{LANES, Lanes, padded};
use crate::weights::layout::pair_stride;

/// Rows of an item stay in the second-level cache while the item's panels pass by.
const ITEM_BYTES: usize = 512 << 10;
/// Beyond that they save no more reads of W.
const MAX_ITEM_ROWS: usize = 8 * MAX_TILE_ROWS;
/// Panels whose sums are kept at once.
const TILE_PANELS: usize = 8;

#[repr(align(64))]
struct Sums([f32; MAX_TILE_ROWS * TILE_PANELS * LANES]);

impl Arithmetic for f32 {
    const NUMERICS: &'static str = "fma-chain-v3";
    type Left = Self;
    const TILE_ROWS: usize = MAX_TILE_ROWS;

    fn left_operand_elements(rows: usize, width: usize) -> usize {
        rows * padded(width)
    }

    fn left_operand_stride(width: usize) -> usize {
        padded(width)
    }

    #[inline(always)]
    fn left_operand_index(row: usize, column: usize, stride: usize) -> usize {
        row * stride + column
    }

    #[inline(always)]
    unsafe fn put<L: Lanes>(values: L, to: *mut Self) {
        // SAFETY: the caller's promise.
        unsafe { values.store(to) };
    }

    #[inline(always)]
    fn left_from_f32(value: f32) -> Self {
        value
    }

    fn item_rows(depth: usize) -> usize {
        let rows = (ITEM_BYTES / (depth * size_of::<Self>()).max(1)).clamp(MAX_TILE_ROWS, MAX_ITEM_ROWS);
        rows / MAX_TILE_ROWS * MAX_TILE_ROWS
    }
}

impl Multiply for f32 {
    type Packed = PackedRows;

    #[inline(always)]
    fn multiply<L: Lanes>(item: &GemmItem<'_, Self>, packed: &mut PackedRows) {
        let matrix = &item.weights.matrix;
        let depth = matrix.depth();
        packed.pack::<L>(&item.gemm.x, depth, item.rows.clone());
        // Many rows: few panels at a time, which stay in the first-level cache for all of them.
        let panel_step = if item.rows.len() >= 2 * MAX_TILE_ROWS { 2 } else { TILE_PANELS };
        let mut sums = Sums([0.0; MAX_TILE_ROWS * TILE_PANELS * LANES]);
        for panel in item.panels.clone().step_by(panel_step) {
            let panels = panel_step.min(item.panels.end - panel);
            for row in item.rows.clone().step_by(MAX_TILE_ROWS) {
                let rows = MAX_TILE_ROWS.min(item.rows.end - row);
                // A tile of packed rows has `depth` k, as has a panel of W; `sums` holds a full tile.
                L::call(Product::<1> {
                    rows,
                    panels,
                    depth,
                    a: packed.tile(row - item.rows.start, depth),
                    a_step: rows,
                    b: matrix.panel(panel),
                    b_pair_stride: pair_stride(LANES),
                    b_panel_stride: matrix.panel_stride(),
                    c: sums.0.as_mut_ptr(),
                    c_stride: TILE_PANELS * LANES,
                    resume: false,
                });
                item.finish::<L>(row..row + rows, panel..panel + panels, &sums.0, TILE_PANELS * LANES);
            }
        }
    }
}
