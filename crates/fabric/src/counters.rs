//! What the fabric has done, for `/metrics`. Relaxed throughout: a reader wants a recent value, not an order.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub struct FabricCounters {
    pub pages_received: AtomicU64,
    pub bytes_received: AtomicU64,
    /// Blocks whose bytes did not match their checksum.
    pub checksum_failures: AtomicU64,
    /// Blocks whose sender had reused them.
    pub stale_blocks: AtomicU64,
    /// Offers for reservations that no longer exist.
    pub unknown_offers: AtomicU64,
    pub copy_us: AtomicU64,
    pub bytes_sent: AtomicU64,
    /// Of those: acknowledged before the last layer of their prompt was computed.
    pub bytes_sent_early: AtomicU64,
}

impl FabricCounters {
    pub(crate) fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Ordering::Relaxed);
    }

    pub fn get(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }
}
