//! KV memory as the fabric sees it. It may be a host's or a device's: nothing here gives out a pointer, and whatever is done
//! with bytes, the memory does. A block is one layer of one page in one shard.

use std::io::{self, Read, Write};
use std::sync::Arc;

use baton_core::PageId;
use serde::{Deserialize, Serialize};

use crate::layout::{KvLayout, ShardLayout};
use crate::region::MemfdAddress;

/// The KV of an engine, written by its steps and, in pages that are reserved for a hand-off, by the receiver. Sums are those of
/// [`checksum`](fn@crate::checksum). Every operation has ended when its call returns.
pub trait KvMemory: Send + Sync {
    fn layout(&self) -> &KvLayout;

    /// All shards, in the order of their heads: several may hold the same ones.
    fn shard_layouts(&self) -> Vec<ShardLayout>;

    /// The shards that are offered, which hold every head once: further holders of a head have the same bytes.
    fn addresses(&self) -> Vec<ShardAddress>;

    /// Sums the blocks of some pages: page after page, in each the offered shards in order.
    fn sum(&self, layer: u32, pages: &[PageId]) -> io::Result<Vec<u64>>;

    /// Writes the same blocks in the same order, for a peer that cannot read this memory.
    fn send(&self, layer: u32, pages: &[PageId], out: &mut dyn Write) -> io::Result<()>;

    /// Reads the blocks of one page as a peer of these shards sends them into all shards that hold their heads. Returns a sum for
    /// each of the peer's shards.
    ///
    /// # Safety
    /// Until this returns, nothing else touches this layer of the page.
    unsafe fn receive(
        &self,
        shards: &[ShardLayout],
        layer: u32,
        page: PageId,
        input: &mut dyn Read,
    ) -> io::Result<Vec<u64>>;

    /// Fails when this memory cannot read the peer's. `shards` are those that the peer offers, of the same [`KvLayout`].
    fn open_peer(self: Arc<Self>, shards: &[ShardAddress]) -> io::Result<Box<dyn PeerMemory>>;
}

/// The memory of another engine, from which pages are copied into our own.
pub trait PeerMemory: Send {
    /// Copies one layer of `(theirs, ours)` pages into all shards that hold their heads. The peer's may change meanwhile, so the
    /// sums are over what was written: page after page, in each the peer's shards in order.
    ///
    /// # Safety
    /// Until this returns, nothing else touches this layer of our pages.
    unsafe fn copy(&mut self, layer: u32, pages: &[(PageId, PageId)]) -> io::Result<Vec<u64>>;
}

/// Where a peer finds a shard that is offered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardAddress {
    pub layout: ShardLayout,
    pub region: RegionAddress,
}

/// One variant for each kind of memory that a peer on the same host may read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RegionAddress {
    Memfd(MemfdAddress),
}
