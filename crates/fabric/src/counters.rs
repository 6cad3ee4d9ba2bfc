//! What the fabric has done, for `/metrics`. Relaxed throughout: a reader wants a recent value, not an order.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::layout::ShardLayout;

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

    /// Received and sent bytes of each of an engine's shards. Pages travel whole, so a shard has its share of them by heads; every
    /// holder of a head receives it, and the first one sends it.
    pub fn by_shard(&self, shards: &[ShardLayout]) -> Vec<(u64, u64)> {
        let (received, sent) = (Self::get(&self.bytes_received), Self::get(&self.bytes_sent));
        let mut offered_heads = 0;
        let shares = shards.iter().map(|shard| {
            let share = |bytes| bytes / u64::from(shard.kv.kv_heads) * shard.heads.len() as u64;
            let is_offered = shard.heads.start >= offered_heads;
            offered_heads = offered_heads.max(shard.heads.end);
            (share(received), if is_offered { share(sent) } else { 0 })
        });
        shares.collect()
    }

    pub fn get(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }
}
