//! What dropped guards leave behind. A guard cannot reach the ledger, so its pages wait here until the ledger looks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use baton_core::PageId;

use crate::table::StepNumber;

/// Shared by a ledger and its guards.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dropped(Arc<Mutex<Vec<DroppedTable>>>);

#[derive(Debug)]
pub(crate) struct DroppedTable {
    /// The last step that touches the pages.
    pub(crate) last_step: StepNumber,
    pub(crate) pages: Vec<PageId>,
}

impl Dropped {
    pub(crate) fn push(&self, table: DroppedTable) {
        self.tables().push(table);
    }

    /// Takes out those that no step after `ended` touches, in the order in which they were dropped.
    pub(crate) fn take(&self, ended: StepNumber) -> Vec<DroppedTable> {
        self.tables().extract_if(.., |table| table.last_step <= ended).collect()
    }

    pub(crate) fn tables(&self) -> MutexGuard<'_, Vec<DroppedTable>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
