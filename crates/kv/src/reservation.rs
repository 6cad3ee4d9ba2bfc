//! Pages set aside for KV that another engine computes.

use baton_core::{PAGE_TOKENS, PageId};
use thiserror::Error;

use crate::ledger::OutOfPages;
use crate::table::PageTable;

/// Ends in a sequence ([`PageLedger::take_over`](crate::PageLedger::take_over)) or in nothing
/// ([`PageLedger::abandon`](crate::PageLedger::abandon)), else it stays on record for good.
///
/// ```text
///   position   0 ............... matched .......................... end
///   pages      | shared, cached   | own: the fabric writes, no step does |
/// ```
#[derive(Debug)]
#[must_use = "pages are given back with PageLedger::take_over or PageLedger::abandon"]
pub struct Reservation {
    pub(crate) table: PageTable,
    pub(crate) shared: usize,
}

/// Nothing has changed hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CannotReserve {
    /// Waiting helps, unless it is more than may ever be reserved.
    #[error("{wanted} pages wanted, {reserved} of {limit} that can be reserved are taken")]
    TooMuchReserved { wanted: usize, reserved: usize, limit: usize },
    #[error(transparent)]
    OutOfPages(#[from] OutOfPages),
}

impl CannotReserve {
    /// Not even in an empty pool.
    pub fn is_final(self) -> bool {
        matches!(self, Self::TooMuchReserved { wanted, limit, .. } if wanted > limit)
    }
}

impl Reservation {
    pub fn table(&self) -> &PageTable {
        &self.table
    }

    pub fn own_pages(&self) -> &[PageId] {
        &self.table.pages[self.shared..]
    }

    /// How much of the sequence is here already.
    pub fn matched_tokens(&self) -> usize {
        self.shared * PAGE_TOKENS
    }
}
