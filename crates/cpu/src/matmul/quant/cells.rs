//! A matrix kept as cells: panels of 16 output columns, each panel with all its cells, of the type its rows have in the file.

use std::ops::Range;
use std::sync::Arc;

use super::cell_format::CellFormat;
use super::floats::AnyPanel;
use crate::memory::region::Region;
use crate::simd::vector::LANES;
use crate::weights::Columns;
use crate::weights::chunks::Chunks;
use crate::weights::layout::GROUP;
use baton_backend::BackendError;

pub(crate) struct Cells {
    memory: Arc<Region>,
    panels: Vec<Place>,
    /// Of 32 k.
    blocks: usize,
    bytes: usize,
}

#[derive(Clone, Copy)]
struct Place {
    offset: usize,
    format: CellFormat,
}

/// Begins a cache line, as long as all panels do.
fn panel_bytes(format: CellFormat, depth: usize) -> usize {
    (depth / format.depth() * format.cell_bytes()).next_multiple_of(64)
}

impl Cells {
    /// How each panel of these columns would be kept. `None` if one cannot: a type without cells, or two types in a panel.
    pub(crate) fn formats(columns: &Columns<'_>, depth: usize) -> Option<Vec<CellFormat>> {
        let panels = 0..columns.width() / LANES;
        let format = |panel: usize| panel_format(columns, panel * LANES..(panel + 1) * LANES);
        panels.map(|panel| format(panel).filter(|format| depth.is_multiple_of(format.depth()))).collect()
    }

    pub(crate) fn new(chunks: &mut Chunks, panels: &[CellFormat], depth: usize) -> Result<Self, BackendError> {
        let bytes = panels.iter().map(|&format| panel_bytes(format, depth)).sum();
        let (memory, mut offset) = chunks.take(bytes)?;
        let panels = panels.iter().map(|&format| {
            offset += panel_bytes(format, depth);
            Place { offset: offset - panel_bytes(format, depth), format }
        });
        Ok(Self { panels: panels.collect(), memory, blocks: depth / GROUP, bytes })
    }

    /// Of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Of 32 k, in each panel.
    pub(super) fn blocks(&self) -> usize {
        self.blocks
    }

    /// How a panel is kept, and where.
    pub(super) fn panel(&self, panel: usize) -> (CellFormat, *const u8) {
        (self.panels[panel].format, self.cells(panel))
    }

    /// For reading a panel as bf16 from this block on; with a prefetch distance in bytes.
    #[inline(always)]
    pub(crate) fn reader(&self, panel: usize, block: usize, ahead: Option<usize>) -> AnyPanel {
        assert!(block <= self.blocks);
        let (format, cells) = self.panel(panel);
        AnyPanel { format, cells, block, ahead }
    }

    /// Where a block of a panel lies; behind the last panel, where that ends.
    pub(crate) fn place(&self, panel: usize, block: usize) -> *const u8 {
        match (self.panels.get(panel), self.panels.first()) {
            (Some(_), _) => self.cells(panel).wrapping_add(block * self.block_bytes(panel)),
            (None, first) => self.memory.as_ptr().wrapping_add(first.map_or(0, |first| first.offset) + self.bytes),
        }
    }

    /// What such a block takes, about.
    pub(crate) fn block_bytes(&self, panel: usize) -> usize {
        self.panels[panel].format.block_bytes()
    }

    fn cells(&self, panel: usize) -> *const u8 {
        // SAFETY: inside the region.
        unsafe { self.memory.as_ptr().add(self.panels[panel].offset) }
    }

    /// Writes one panel; it is not read before all are written.
    pub(crate) fn pack(&self, panel: usize, columns: &Columns<'_>) {
        let format = self.panels[panel].format;
        let bytes = self.blocks * GROUP / format.depth() * format.cell_bytes();
        // SAFETY: this panel's bytes, which the caller alone uses now; the region is zeroed.
        let cells = unsafe { std::slice::from_raw_parts_mut(self.cells(panel).cast_mut(), bytes) };
        for lane in 0..LANES {
            let Some((tensor, row)) = columns.source(panel * LANES + lane) else { continue };
            let row = tensor.row(row);
            for (number, cell) in cells.chunks_mut(format.cell_bytes()).enumerate() {
                format.put(cell, lane, tensor.dtype, row, number);
            }
        }
    }
}

fn panel_format(columns: &Columns<'_>, lanes: Range<usize>) -> Option<CellFormat> {
    let mut dtypes = lanes.filter_map(|column| columns.source(column)).map(|(tensor, _)| tensor.dtype);
    let first = dtypes.next()?;
    dtypes.all(|dtype| dtype == first).then(|| CellFormat::of(first)).flatten()
}
