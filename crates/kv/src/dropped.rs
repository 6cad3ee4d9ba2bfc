//! What dropped guards leave behind. A guard cannot reach the ledger, so what it held waits here until the ledger looks.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use baton_core::{PageId, ReservationId};

use crate::table::StepNumber;

/// Shared by a ledger and its guards.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dropped(Arc<Mutex<Left>>);

#[derive(Debug, Default)]
pub(crate) struct Left {
    /// In the order in which they were dropped.
    pub(crate) tables: Vec<DroppedTable>,
    /// What is on its way into their pages is not wanted any more.
    pub(crate) reservations: VecDeque<ReservationId>,
    /// Held by [`Quota`]s.
    pub(crate) reserved_pages: usize,
}

#[derive(Debug)]
pub(crate) struct DroppedTable {
    /// The last step that touches the pages.
    pub(crate) last_step: StepNumber,
    pub(crate) pages: Vec<PageId>,
}

impl Dropped {
    pub(crate) fn left(&self) -> MutexGuard<'_, Left> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes out the tables that no step after `ended` touches.
    pub(crate) fn take_tables(&self, ended: StepNumber) -> Vec<DroppedTable> {
        self.left().tables.extract_if(.., |table| table.last_step <= ended).collect()
    }
}

/// This many pages count as reserved while it lives.
#[derive(Debug)]
pub(crate) struct Quota {
    pages: usize,
    dropped: Dropped,
}

impl Quota {
    pub(crate) fn take(pages: usize, dropped: &Dropped) -> Self {
        dropped.left().reserved_pages += pages;
        Self { pages, dropped: dropped.clone() }
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        self.dropped.left().reserved_pages -= self.pages;
    }
}
