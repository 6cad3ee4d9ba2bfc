//! Which rows a buffer holds, in the form that products of a phase want.

use std::ops::Range;

#[derive(Default)]
pub(crate) struct KeptRows(Option<Range<usize>>);

impl KeptRows {
    /// Those of another phase are others.
    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }

    /// Whether these rows are still to be put there; from now on they are kept.
    pub(crate) fn are_missing(&mut self, rows: &Range<usize>) -> bool {
        self.0.replace(rows.clone()).as_ref() != Some(rows)
    }
}
