//! Who holds which KV page. The scheduler allocates, shares and frees pages; page ids leave for the step plan.
//! Ids only: the bytes behind a page are the backend's, and nothing here does I/O or reads a clock.
//!
//! Every page is held by any number of [`PageTable`]s (one per sequence) and by at most one node of the prefix cache:
//!
//! ```text
//!   free ──grow──▶ held by tables ──insert──▶ held by tables and cache
//!    ▲                  │ release                  │ release
//!    ├──────────────────┘                          ▼
//!    └───────────────evict────────────────── held by the cache alone
//! ```
//!
//! A table is a guard: dropped, it gives its pages back. Those that a step in flight touches stay held until it has ended.
//!
//! While another engine's KV is on its way into pages, the ledger holds them itself, and a [`PageReservation`] stands for
//! them: dropped, they come back when they are written no more.

mod audit;
mod dropped;
mod ledger;
mod pool;
mod prefix;
mod reservation;
mod table;

pub use audit::Discrepancy;
pub use ledger::{OutOfPages, PageLedger};
pub use reservation::{CannotReserve, PageReservation, ReceivedPages};
pub use table::{Origin, PageTable, StepNumber};

use baton_core::PAGE_TOKENS;

/// Pages that hold `tokens` tokens.
pub const fn pages_for(tokens: usize) -> usize {
    tokens.div_ceil(PAGE_TOKENS)
}
