//! Many rows, with AVX-512 before VNNI: whole numbers in f32, which holds every sum of a part exactly, as do those of bytes.
//!
//! ```text
//!   14 bits of a row · 5 bits of a code · 32 k, or · 6 bits · 16 k     below 2²⁴
//! ```
//!
//! Powers of two change nothing about that, so rows are multiplied as what their numbers stand for. Bytes take as many instructions
//! for as many products, and more at the end of a part. A block of four panels stays in the first-level cache while strips of rows
//! pass by; these stay in the second-level one.
//!
//! ```text
//!   columns   [k][panel][16 columns]
//!   rows      [near strips][block of 32 k][strip]     near ones pass by all panels before others do
//!   sums      [row of near strips][panel][16 columns]
//! ```

#![allow(clippy::needless_range_loop, reason = "rows and panels are numbers here; indexed loops unroll into registers")]

use std::arch::x86_64::*;
use std::ops::Range;

use half::bf16;

use super::super::buffers::{QuantBuffers, WIDE_PANELS};
use super::super::cell_format::CellFormat;
use super::super::cells::Cells;
use super::super::codes::{QUAD, QUADS};
use super::super::format::GROUP;
use super::block::{Block, quad_of};
use super::rows::{STRIP_ROWS, Strip, Whole};
use crate::matmul::gemm::GemmItem;
use crate::memory::region::Number;
use crate::simd::vector::{LANES, Lanes};

/// Fewer do not fill strips well enough.
pub(super) const LEAST_ROWS: usize = 2 * STRIP_ROWS;
/// Strips that stay in a second-level cache of 1 MiB, at most.
const NEAR_BYTES: usize = 704 << 10;
/// Deep ones come from beyond it: expanding panels more often would take longer.
const LEAST_NEAR: usize = 16;
pub(super) const ROW_STRIDE: usize = WIDE_PANELS * LANES;
const LINE: usize = 64;
const STRIP_LINES: usize = size_of::<FloatStrip>() / LINE;
const SUM_LINES: usize = STRIP_ROWS * ROW_STRIDE * size_of::<f32>() / LINE;

/// 32 k of a strip's rows.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct FloatStrip {
    /// Even k, then odd ones.
    values: [[f32; GROUP]; STRIP_ROWS],
    /// Of all numbers of a row, of the first 16 and of the last 16.
    sums: [[f32; STRIP_ROWS]; 3],
}

// SAFETY: any bits are a float.
unsafe impl Number for FloatStrip {}

impl Strip for FloatStrip {
    /// About equally many.
    fn together(strips: usize, blocks: usize) -> usize {
        let most = (NEAR_BYTES / (blocks * size_of::<Self>()).max(1)).max(LEAST_NEAR);
        strips.div_ceil(strips.div_ceil(most).max(1)).max(1)
    }

    #[inline(always)]
    fn put<L: Lanes>(&mut self, row: usize, numbers: &Whole<L>) {
        let unit = L::splat(numbers.unit);
        // SAFETY: half of the values each.
        unsafe {
            let to = self.values[row].as_mut_ptr();
            numbers.even.mul(unit).store(to);
            numbers.odd.mul(unit).store(to.add(LANES));
        }
        for (to, sum) in self.sums.iter_mut().zip(numbers.sums) {
            to[row] = sum;
        }
    }
}

/// A block of some panels. Begins where a page does, as [other products'](crate::matmul::bf16) columns do.
#[repr(C, align(4096))]
pub(crate) struct WideBlock {
    codes: [[[f32; LANES]; WIDE_PANELS]; GROUP],
    scales: [[[f32; LANES]; WIDE_PANELS]; 2],
    minima: [[[f32; LANES]; WIDE_PANELS]; 2],
}

impl WideBlock {
    pub(crate) const ZERO: Self = Self {
        codes: [[[0.0; LANES]; WIDE_PANELS]; GROUP],
        scales: [[[0.0; LANES]; WIDE_PANELS]; 2],
        minima: [[[0.0; LANES]; WIDE_PANELS]; 2],
    };

    /// # Safety
    /// The machine has AVX-512.
    #[target_feature(enable = "avx512f")]
    unsafe fn put(&mut self, panel: usize, block: &Block) {
        for quad in 0..QUADS {
            // SAFETY: the codes of 16 columns, four k each.
            let mut codes = unsafe { _mm512_load_si512(block.codes[quad].as_ptr().cast()) };
            for k in quad * QUAD..(quad + 1) * QUAD {
                let of_k = _mm512_cvtepi32_ps(_mm512_and_si512(codes, _mm512_set1_epi32(0xff)));
                // SAFETY: a panel's 16 columns.
                unsafe { _mm512_store_ps(self.codes[k][panel].as_mut_ptr(), of_k) };
                codes = _mm512_srli_epi32::<8>(codes);
            }
        }
        for part in 0..2 {
            self.scales[part][panel] = block.scales[part];
            self.minima[part][panel] = block.minima[part];
        }
    }
}

/// How many scales a column of all these panels has in a block, if their products can be taken this way.
pub(super) fn parts(cells: &Cells, panels: Range<usize>) -> Option<usize> {
    let parts = |panel: usize| {
        let (format, _) = cells.panel(panel);
        format.has_small_codes().then(|| format.parts())
    };
    let first = parts(panels.start)?;
    panels.clone().all(|panel| parts(panel) == Some(first)).then_some(first)
}

/// All sums of an item whose rows are rounded, handed to its `finish`.
#[inline(always)]
pub(super) fn multiply<L: Lanes>(item: &GemmItem<'_, bf16>, cells: &Cells, parts: usize, buffers: &mut QuantBuffers) {
    let (rows, blocks) = (item.rows.len(), cells.blocks());
    let sums = buffers.sums.as_mut_slice();
    assert!(L::TABLE_BYTES == 64);
    for (near_rows, strips) in near(buffers.whole.strips(), rows, blocks) {
        assert!(sums.len() >= strips.len() / blocks * STRIP_ROWS * ROW_STRIDE);
        for first in item.panels.clone().step_by(WIDE_PANELS) {
            let panels = first..item.panels.end.min(first + WIDE_PANELS);
            let mut product = NearProduct { strips, blocks, parts, panels: [None; WIDE_PANELS] };
            for (place, panel) in panels.clone().enumerate() {
                product.panels[place] = Some(cells.panel(panel));
            }
            // SAFETY: panels of so many blocks; these are lanes of AVX-512; there are sums of all rows of the strips.
            unsafe { product.run::<L>(&mut buffers.wide_block, &mut buffers.expanded_cells[0], sums.as_mut_ptr()) };
            let rows = item.rows.start + near_rows.start..item.rows.start + near_rows.end;
            item.finish::<L>(rows, panels, sums, ROW_STRIDE);
        }
    }
}

/// Rows, of so many, that stay near together, and all blocks of their strips.
pub(super) fn near(
    strips: &[FloatStrip],
    rows: usize,
    blocks: usize,
) -> impl Iterator<Item = (Range<usize>, &[FloatStrip])> {
    let count = rows.div_ceil(STRIP_ROWS);
    let together = FloatStrip::together(count, blocks);
    strips[..count * blocks].chunks(together * blocks).enumerate().map(move |(number, strips)| {
        let first = number * together * STRIP_ROWS;
        (first..rows.min(first + together * STRIP_ROWS), strips)
    })
}

/// Strips of rows times some panels.
pub(super) struct NearProduct<'a> {
    /// `[block][strip]`
    pub(super) strips: &'a [FloatStrip],
    pub(super) blocks: usize,
    /// Scales that a column of all panels has in a block.
    pub(super) parts: usize,
    pub(super) panels: [Option<(CellFormat, *const u8)>; WIDE_PANELS],
}

impl NearProduct<'_> {
    /// Whole strips of sums, of all four panels.
    ///
    /// # Safety
    /// Panels have so many blocks; there are so many sums; the machine has AVX-512.
    #[inline(always)]
    pub(super) unsafe fn run<L: Lanes>(&self, columns: &mut WideBlock, room: &mut Block, sums: *mut f32) {
        assert!(self.strips.len().is_multiple_of(self.blocks));
        for (block, strips) in self.strips.chunks(self.strips.len() / self.blocks).enumerate() {
            for (place, panel) in self.panels.iter().enumerate() {
                let Some((format, cells)) = *panel else { continue };
                // SAFETY: the caller's promise, here and below.
                unsafe {
                    format.expand::<L>(cells, block, format.block_bytes(), room);
                    columns.put(place, room);
                }
            }
            // SAFETY: as above.
            unsafe {
                match (self.parts, block) {
                    (1, 0) => pass::<1, true>(strips, columns, sums),
                    (1, _) => pass::<1, false>(strips, columns, sums),
                    (_, 0) => pass::<2, true>(strips, columns, sums),
                    (..) => pass::<2, false>(strips, columns, sums),
                }
            }
        }
    }
}

/// Strips pass by a block, whose columns have so many `PARTS`; sums begin with it, or go on.
///
/// # Safety
/// There are sums of all rows of the strips, and the machine has AVX-512.
#[target_feature(enable = "avx512f")]
unsafe fn pass<const PARTS: usize, const BEGINS: bool>(strips: &[FloatStrip], columns: &WideBlock, mut sums: *mut f32) {
    for strip in strips {
        for part in 0..PARTS {
            // SAFETY: the caller's promise. What lies behind may be anything, it is only asked for.
            unsafe {
                let mut dots = [[_mm512_setzero_ps(); WIDE_PANELS]; STRIP_ROWS];
                for i in 0..QUADS / PARTS {
                    let quad = quad_of(PARTS, part, i);
                    ask(strip, sums, quad);
                    for k in quad * QUAD..(quad + 1) * QUAD {
                        let mut of_panels = [_mm512_setzero_ps(); WIDE_PANELS];
                        for panel in 0..WIDE_PANELS {
                            of_panels[panel] = _mm512_load_ps(columns.codes[k][panel].as_ptr());
                        }
                        for row in 0..STRIP_ROWS {
                            let x = _mm512_set1_ps(strip.values[row][k]);
                            for panel in 0..WIDE_PANELS {
                                dots[row][panel] = _mm512_fmadd_ps(x, of_panels[panel], dots[row][panel]);
                            }
                        }
                    }
                }
                for row in 0..STRIP_ROWS {
                    let row_sum = _mm512_set1_ps(strip.sums[PARTS - 1 + part][row]);
                    for panel in 0..WIDE_PANELS {
                        let to = sums.add(row * ROW_STRIDE + panel * LANES);
                        let sum = if BEGINS && part == 0 { _mm512_setzero_ps() } else { _mm512_loadu_ps(to) };
                        let scales = _mm512_load_ps(columns.scales[part][panel].as_ptr());
                        let minima = _mm512_load_ps(columns.minima[part][panel].as_ptr());
                        let sum = _mm512_fmadd_ps(dots[row][panel], scales, sum);
                        _mm512_storeu_ps(to, _mm512_fmadd_ps(minima, row_sum, sum));
                    }
                }
            }
        }
        // SAFETY: of the next strip, or behind the last one.
        sums = unsafe { sums.add(STRIP_ROWS * ROW_STRIDE) };
    }
}

/// An eighth of the next strip, and of its sums.
#[inline(always)]
fn ask(strip: &FloatStrip, sums: *const f32, eighth: usize) {
    let strip = std::ptr::from_ref(strip).wrapping_add(1).cast::<i8>();
    let sums = sums.wrapping_add(STRIP_ROWS * ROW_STRIDE).cast::<i8>();
    for (from, lines) in [(strip, STRIP_LINES), (sums, SUM_LINES)] {
        let share = lines.div_ceil(QUADS);
        for line in eighth * share..(eighth + 1) * share {
            // SAFETY: nothing is read.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(line * LINE)) };
        }
    }
}
