//! How the rows of a checkpoint's tensors become the columns of a packed matrix.

use std::ops::Range;

use baton_model::TensorView;

use crate::simd::vector::{LANES, padded};

/// Consecutive rows of a checkpoint's matrix.
pub(super) struct RowSlice<'a> {
    pub(super) tensor: TensorView<'a>,
    pub(super) rows: Range<usize>,
}

/// How the rows of several tensors become one matrix's columns.
#[derive(Clone, Copy)]
pub(super) enum Order {
    /// One tensor after the other.
    Stacked,
    /// 16 rows of the first, 16 of the second, and so on; tensors of equal size.
    AlternatingPanels,
}

impl Order {
    fn width(self, slices: &[RowSlice<'_>]) -> usize {
        match self {
            Self::Stacked => padded(slices.iter().map(|slice| slice.rows.len()).sum()),
            Self::AlternatingPanels => slices.iter().map(|slice| padded(slice.rows.len())).sum(),
        }
    }

    /// The column of a slice's row.
    pub(super) fn column(self, slice: usize, row: usize, slices: &[RowSlice<'_>]) -> usize {
        match self {
            Self::Stacked => row + slices[..slice].iter().map(|slice| slice.rows.len()).sum::<usize>(),
            Self::AlternatingPanels => (row / LANES * slices.len() + slice) * LANES + row % LANES,
        }
    }

    /// The (slice, row) of a column; `None` for padding.
    fn source(self, column: usize, slices: &[RowSlice<'_>]) -> Option<(usize, usize)> {
        match self {
            Self::Stacked => {
                let mut row = column;
                for (which, slice) in slices.iter().enumerate() {
                    if row < slice.rows.len() {
                        return Some((which, row));
                    }
                    row -= slice.rows.len();
                }
                None
            }
            Self::AlternatingPanels => {
                let (panel, lane) = (column / LANES, column % LANES);
                let (which, row) = (panel % slices.len(), panel / slices.len() * LANES + lane);
                (row < slices[which].rows.len()).then_some((which, row))
            }
        }
    }
}

/// Columns of one shard's part of a matrix.
pub(crate) struct Columns<'a> {
    pub(super) order: Order,
    pub(super) slices: &'a [RowSlice<'a>],
}

impl<'a> Columns<'a> {
    /// Padding included.
    pub(crate) fn width(&self) -> usize {
        self.order.width(self.slices)
    }

    /// The tensor and its row that a column comes from; `None` for padding.
    pub(crate) fn source(&self, column: usize) -> Option<(&'a TensorView<'a>, usize)> {
        let (which, row) = self.order.source(column, self.slices)?;
        let RowSlice { tensor, rows } = &self.slices[which];
        Some((tensor, rows.start + row))
    }
}

#[cfg(test)]
mod tests {
    use baton_model::Dtype;

    use super::*;

    #[test]
    fn columns_and_sources_are_inverse() {
        let tensor = TensorView::new(Dtype::F32, &[64, 3], &[]);
        let slice = |rows| RowSlice { tensor, rows };
        let (uneven, even) = ([slice(0..40), slice(16..40)], [slice(16..56), slice(0..40)]);
        for (order, slices) in [(Order::Stacked, &uneven), (Order::AlternatingPanels, &even)] {
            let mut padding = order.width(slices);
            for (which, slice) in slices.iter().enumerate() {
                for row in 0..slice.rows.len() {
                    assert_eq!(order.source(order.column(which, row, slices), slices), Some((which, row)));
                    padding -= 1;
                }
            }
            let empty = (0..order.width(slices)).filter(|&column| order.source(column, slices).is_none());
            assert_eq!(empty.count(), padding);
        }
    }
}
