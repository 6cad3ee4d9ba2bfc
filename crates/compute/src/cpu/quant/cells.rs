//! A matrix kept as cells: panels of 16 output columns, each panel with all its cells, of the type its rows have in the file.

use std::ops::Range;
use std::sync::Arc;

use half::bf16;

use super::cell::Tile;
use super::expand::expand;
use super::format::{Format, GROUP};
use super::group::Group;
use crate::ComputeError;
use crate::cpu::lanes::{LANES, Lanes};
use crate::cpu::region::Region;
use crate::cpu::weights::Columns;

pub(crate) struct Cells {
    memory: Arc<Region>,
    panels: Vec<Place>,
    blocks: usize,
}

/// So far ahead cells are asked for.
const PREFETCH_BYTES: usize = 8 << 10;

#[derive(Clone, Copy)]
struct Place {
    offset: usize,
    format: Format,
    table: [bf16; 32],
}

impl Cells {
    /// How each panel of these columns would be kept. `None` if one cannot: a type without cells, or two types in a panel.
    pub(crate) fn formats(columns: &Columns<'_>, depth: usize) -> Option<Vec<Format>> {
        if !depth.is_multiple_of(GROUP) {
            return None;
        }
        let panels = 0..columns.width() / LANES;
        panels.map(|panel| panel_format(columns, panel * LANES..(panel + 1) * LANES)).collect()
    }

    pub(crate) fn new(arena: &mut CellArena, formats: &[Format], depth: usize) -> Result<Self, ComputeError> {
        let blocks = depth / GROUP;
        let bytes = formats.iter().map(|format| format.cell_bytes() * blocks).sum();
        let (memory, mut offset) = arena.take(bytes)?;
        let panels = formats.iter().map(|&format| {
            offset += format.cell_bytes() * blocks;
            Place { offset: offset - format.cell_bytes() * blocks, format, table: format.table() }
        });
        Ok(Self { panels: panels.collect(), memory, blocks })
    }

    /// Cells of each panel.
    pub(super) fn blocks(&self) -> usize {
        self.blocks
    }

    pub(super) fn has_minima(&self, panels: Range<usize>) -> bool {
        self.panels[panels].iter().any(|place| place.format.minima)
    }

    pub(super) fn format(&self, panel: usize) -> Format {
        self.panels[panel].format
    }

    pub(super) fn table(&self, panel: usize) -> &[bf16; 32] {
        &self.panels[panel].table
    }

    /// All cells from this one on to the end of the panel are readable behind it.
    pub(super) fn cell(&self, panel: usize, block: usize) -> *const u8 {
        let &Place { offset, format, .. } = &self.panels[panel];
        assert!(block <= self.blocks);
        // SAFETY: inside the region, or one past the panel.
        unsafe { self.memory.as_ptr().add(offset + block * format.cell_bytes()) }
    }

    /// Writes one panel; nobody reads it before all are written.
    pub(crate) fn pack(&self, panel: usize, columns: &Columns<'_>) {
        let format = self.format(panel);
        let bytes = self.blocks * format.cell_bytes();
        // SAFETY: this panel's bytes, which the caller alone uses now; the region is zeroed.
        let cells = unsafe { std::slice::from_raw_parts_mut(self.cell(panel, 0).cast_mut(), bytes) };
        for lane in 0..LANES {
            let Some((tensor, row)) = columns.source(panel * LANES + lane) else { continue };
            let row = tensor.row(row);
            for (block, cell) in cells.chunks_mut(format.cell_bytes()).enumerate() {
                if let Some(group) = Group::read(tensor.dtype, row, block) {
                    format.put(cell, lane, &group);
                }
            }
        }
    }

    /// `tiles` = the codes of some blocks, one tile after the other.
    #[inline(always)]
    pub(super) fn expand<L: Lanes>(&self, panel: usize, blocks: Range<usize>, tiles: &mut [Tile]) {
        let format = self.format(panel);
        let table = self.table(panel);
        for (block, tile) in blocks.zip(tiles) {
            let cell = self.cell(panel, block);
            // Scales too, which nobody reads before the tile is needed.
            for line in (0..format.cell_bytes()).step_by(64) {
                L::prefetch(cell.wrapping_add(PREFETCH_BYTES + line));
            }
            // SAFETY: an existing cell.
            unsafe { expand::<L>(format, table, cell, tile) };
        }
    }
}

fn panel_format(columns: &Columns<'_>, lanes: Range<usize>) -> Option<Format> {
    let mut dtypes = lanes.filter_map(|column| columns.source(column)).map(|(tensor, _)| tensor.dtype);
    let first = dtypes.next()?;
    dtypes.all(|dtype| dtype == first).then(|| Format::of(first)).flatten()
}

/// Memory for the cells of many matrices, filled front to back.
#[derive(Default)]
pub(crate) struct CellArena {
    chunk: Option<Arc<Region>>,
    used: usize,
}

impl CellArena {
    /// Only what is written takes memory.
    const CHUNK_BYTES: usize = 256 << 20;

    fn take(&mut self, bytes: usize) -> Result<(Arc<Region>, usize), ComputeError> {
        let chunk = match &self.chunk {
            Some(chunk) if self.used + bytes <= chunk.bytes() => Arc::clone(chunk),
            _ => {
                self.used = 0;
                Arc::new(Region::new(bytes.max(Self::CHUNK_BYTES))?)
            }
        };
        self.chunk = Some(Arc::clone(&chunk));
        let offset = self.used;
        self.used += bytes.next_multiple_of(64);
        Ok((chunk, offset))
    }
}
