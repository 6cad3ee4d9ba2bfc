//! Pages set aside for KV that another engine computes.
//!
//! ```text
//!   PageReservation ──drop──▶ to be revoked ──its writer has stopped──▶ ReceivedPages ──▶ a sequence's, or free
//! ```

use std::sync::Arc;

use baton_core::{PAGE_TOKENS, PageId, ReservationId, TokenId};
use thiserror::Error;

use crate::dropped::{Dropped, Quota};
use crate::ledger::OutOfPages;
use crate::table::PageTable;

/// While it lives, the fabric may write its own pages. They stay with the ledger, which requests the reservation to be
/// revoked once this is dropped ([`PageLedger::next_dropped`](crate::PageLedger::next_dropped)), and hands them out when
/// they are written no more ([`PageLedger::revoked`](crate::PageLedger::revoked)).
///
/// ```text
///   position   0 ............... matched .......................... end
///   pages      | shared, cached   | own: the fabric writes, no step does |
/// ```
#[derive(Debug)]
pub struct PageReservation {
    id: ReservationId,
    matched_tokens: usize,
    end: usize,
    dropped: Dropped,
}

impl PageReservation {
    pub fn id(&self) -> ReservationId {
        self.id
    }

    /// How much of the sequence is here already.
    pub fn matched_tokens(&self) -> usize {
        self.matched_tokens
    }

    /// It has pages for positions `[0, end)`.
    pub fn end(&self) -> usize {
        self.end
    }
}

impl Drop for PageReservation {
    fn drop(&mut self) {
        self.dropped.left().reservations.push_back(self.id);
    }
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

/// What the ledger keeps of a reservation while the fabric may write its pages.
pub(crate) struct Reserved {
    pub(crate) prompt: Arc<[TokenId]>,
    pub(crate) table: PageTable,
    /// This many pages at the table's start are shared with the cache.
    shared: usize,
    quota: Quota,
}

impl Reserved {
    pub(crate) fn new(prompt: Arc<[TokenId]>, table: PageTable, shared: usize, dropped: &Dropped) -> Self {
        let quota = Quota::take(table.pages.len() - shared, dropped);
        Self { prompt, table, shared, quota }
    }

    pub(crate) fn guard(&self, id: ReservationId, end: usize, dropped: &Dropped) -> PageReservation {
        PageReservation { id, matched_tokens: self.shared * PAGE_TOKENS, end, dropped: dropped.clone() }
    }

    pub(crate) fn own_pages(&self) -> &[PageId] {
        &self.table.pages[self.shared..]
    }

    pub(crate) fn received(self, verified_tokens: usize) -> ReceivedPages {
        let Self { prompt, table, shared, quota } = self;
        let verified_tokens = verified_tokens.clamp(shared * PAGE_TOKENS, prompt.len());
        ReceivedPages { prompt, table, shared, verified_tokens, quota }
    }
}

/// Pages that were reserved, and that are written no more. They count as reserved until a sequence runs with them.
/// Dropped, they are free, but for what the cache was given of them.
#[derive(Debug)]
pub struct ReceivedPages {
    prompt: Arc<[TokenId]>,
    table: PageTable,
    shared: usize,
    verified_tokens: usize,
    #[expect(dead_code, reason = "counts while it lives")]
    quota: Quota,
}

impl ReceivedPages {
    pub fn table(&self) -> &PageTable {
        &self.table
    }

    pub fn into_table(self) -> PageTable {
        self.table
    }

    pub fn own_pages(&self) -> &[PageId] {
        &self.table.pages[self.shared..]
    }

    pub fn matched_tokens(&self) -> usize {
        self.shared * PAGE_TOKENS
    }

    /// From the sequence's start.
    pub fn verified_tokens(&self) -> usize {
        self.verified_tokens
    }

    /// The tokens whose KV was verified.
    pub fn verified_prompt(&self) -> &[TokenId] {
        &self.prompt[..self.verified_tokens]
    }
}
