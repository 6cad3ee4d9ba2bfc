//! Many rows without tiles: all of them pass by one cell of each panel, then by the next.

use half::bf16;

use super::cell::Tile;
use super::expand::expand;
use super::format::{Format, GROUP};
use crate::cpu::isa::Kernel;
use crate::cpu::lanes::{LANES, Lanes};
use crate::cpu::pairs::{BlockProduct, Fold, TILE, TILE_ROWS, WideColumns};

/// So far ahead cells are asked for.
const PREFETCH_BYTES: usize = 4 << 10;

/// C\[rows × 16·P\] = A · (scale · codes + minimum)
#[derive(Clone, Copy)]
pub(super) struct CellBlocks<'a, const P: usize> {
    pub(super) rows: usize,
    /// Cells of each panel.
    pub(super) blocks: usize,
    /// In tile order.
    pub(super) a: *const bf16,
    pub(super) a_tile_stride: usize,
    /// With minima or without, all of them.
    pub(super) panels: [PanelCells<'a>; P],
    /// `[row tile][block][row]`: sums of 32 values of A; read if there are minima.
    pub(super) sums: *const f32,
    pub(super) sums_tile_stride: usize,
    pub(super) c: *mut f32,
    pub(super) c_stride: usize,
}

#[derive(Clone, Copy)]
pub(super) struct PanelCells<'a> {
    pub(super) format: Format,
    pub(super) table: &'a [bf16; 32],
    pub(super) cells: *const u8,
}

/// Pointers are good for the shapes that are stated: whoever makes one says why.
impl<const P: usize> Kernel for CellBlocks<'_, P> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let mut columns = WideColumns::new();
        let mut scales = Scales { scales: [[0.0; LANES]; P], minima: [[0.0; LANES]; P] };
        let mut tile: Tile = [bf16::ZERO; TILE];
        let has_minima = self.panels.iter().any(|panel| panel.format.minima);
        debug_assert!(self.panels.iter().all(|panel| panel.format.minima == has_minima));
        for block in 0..self.blocks {
            for (place, panel) in self.panels.iter().enumerate() {
                let cell = panel.cells.wrapping_add(block * panel.format.cell_bytes());
                for line in (0..panel.format.cell_bytes()).step_by(64) {
                    L::prefetch(cell.wrapping_add(PREFETCH_BYTES + line));
                }
                // SAFETY: an existing cell, and a tile of pairs.
                unsafe {
                    expand::<L>(panel.format, panel.table, cell, &mut tile);
                    columns.put::<L>(place, tile.as_ptr(), 2 * LANES, GROUP / 2);
                    scales.put::<L>(place, panel.format, cell);
                }
            }
            // SAFETY: A, C and the sums have all rows, A and the sums this block.
            unsafe {
                let product = BlockProduct {
                    rows: self.rows,
                    panels: P,
                    pairs: GROUP / 2,
                    a: self.a.add(block * TILE),
                    a_tile_stride: self.a_tile_stride,
                    c: self.c,
                    c_stride: self.c_stride,
                    begins: block == 0,
                };
                if has_minima {
                    let sums = self.sums.add(block * TILE_ROWS);
                    let with_minima = ScaledWithMinima { scales: &scales, sums, tile_stride: self.sums_tile_stride };
                    product.run::<L>(&columns, &with_minima);
                } else {
                    product.run::<L>(&columns, &Scaled(&scales));
                }
            }
        }
    }
}

/// Of one cell of each panel.
#[repr(align(64))]
struct Scales<const P: usize> {
    scales: [[f32; LANES]; P],
    minima: [[f32; LANES]; P],
}

impl<const P: usize> Scales<P> {
    /// # Safety
    /// A whole cell is readable.
    #[inline(always)]
    unsafe fn put<L: Lanes>(&mut self, place: usize, format: Format, cell: *const u8) {
        // SAFETY: behind the codes are the scales, and behind them the minima.
        unsafe {
            let scales = cell.add(format.code_bytes());
            format.sixteen::<L>(scales).store(self.scales[place].as_mut_ptr());
            if format.minima {
                format.sixteen::<L>(scales.add(format.scale_bytes())).store(self.minima[place].as_mut_ptr());
            }
        }
    }

    #[inline(always)]
    fn scaled<L: Lanes>(&self, sum: L, products: L, place: usize) -> L {
        // SAFETY: sixteen values. The products from zero, as tiles begin.
        unsafe { L::splat(0.0).add(products).fma(L::load(self.scales[place].as_ptr()), sum) }
    }
}

struct Scaled<'a, const P: usize>(&'a Scales<P>);

impl<const P: usize> Fold for Scaled<'_, P> {
    #[inline(always)]
    fn fold<L: Lanes>(&self, sum: L, products: L, _row: usize, panel: usize) -> L {
        self.0.scaled(sum, products, panel)
    }
}

struct ScaledWithMinima<'a, const P: usize> {
    scales: &'a Scales<P>,
    /// Of A's rows, of this block.
    sums: *const f32,
    tile_stride: usize,
}

impl<const P: usize> Fold for ScaledWithMinima<'_, P> {
    #[inline(always)]
    fn fold<L: Lanes>(&self, sum: L, products: L, row: usize, panel: usize) -> L {
        // SAFETY: sums of all rows; sixteen minima.
        unsafe {
            let of_row = L::splat(*self.sums.add(row / TILE_ROWS * self.tile_stride + row % TILE_ROWS));
            L::load(self.scales.minima[panel].as_ptr()).fma(of_row, self.scales.scaled(sum, products, panel))
        }
    }
}
