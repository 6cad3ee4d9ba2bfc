//! The bytes of an engine's KV pool: one region per shard.

use std::io;
use std::sync::atomic::AtomicU64;

use baton_core::PageId;
use serde::{Deserialize, Serialize};

use crate::huge::HugePages;
use crate::layout::{KvLayout, ShardLayout};
use crate::region::{Region, RegionAddress};

/// Owned by the engine's backend; shared with the fabric's threads. Who may touch which page when is the step loop's
/// decision: a page is written either by steps or, while it is reserved for a hand-off, by the receiver; never by both.
pub struct KvPool {
    layout: KvLayout,
    pages: u32,
    shards: Vec<Shard>,
    pub(crate) huge: HugePages,
}

pub struct Shard {
    pub layout: ShardLayout,
    pub region: Region,
    /// Verified bytes from other engines that lie here.
    pub bytes_received: AtomicU64,
    /// Bytes that other engines took from here and verified.
    pub bytes_sent: AtomicU64,
}

impl Shard {
    /// One page of one layer.
    pub fn block(&self, layer: u32, page: PageId) -> *mut u8 {
        assert!(layer < self.layout.kv.layers && page.0 < self.layout.pages, "block outside the pool");
        // SAFETY: checked above; `block_at` of a valid block lies inside the region.
        unsafe { self.region.base().as_ptr().add(self.layout.block_at(layer, page)) }
    }
}

/// Where a shard of a sending engine can be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardAddress {
    pub layout: ShardLayout,
    pub region: RegionAddress,
}

impl KvPool {
    /// Heads are spread evenly, or the same on several shards where there are fewer heads than shards; `shards` of one
    /// engine are equal but for their heads.
    pub fn new(layout: KvLayout, pages: u32, shards: u32) -> io::Result<Self> {
        let uneven = || {
            let message = format!("{} KV heads and {shards} shards: one must divide the other", layout.kv_heads);
            io::Error::new(io::ErrorKind::InvalidInput, message)
        };
        if shards == 0 {
            return Err(uneven());
        }
        let shards = (0..shards)
            .map(|index| {
                let heads = layout.heads_of_shard(shards, index).ok_or_else(uneven)?;
                let layout = ShardLayout { kv: layout.clone(), heads, pages };
                let region = Region::new(layout.bytes())?;
                Ok(Shard { layout, region, bytes_received: AtomicU64::new(0), bytes_sent: AtomicU64::new(0) })
            })
            .collect::<io::Result<_>>()?;
        Ok(Self { layout, pages, shards, huge: HugePages::default() })
    }

    pub fn layout(&self) -> &KvLayout {
        &self.layout
    }

    pub fn pages(&self) -> u32 {
        self.pages
    }

    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// One page of one layer, as it is offered.
    pub(crate) fn block_bytes(&self) -> usize {
        self.offered().map(|shard| shard.layout.block_bytes()).sum()
    }

    /// One shard per head: what is offered to other engines. Further holders of a head have the same bytes.
    pub fn offered(&self) -> impl Iterator<Item = &Shard> {
        let mut covered = 0;
        self.shards.iter().filter(move |shard| {
            let first_holder = shard.layout.heads.start >= covered;
            covered = covered.max(shard.layout.heads.end);
            first_holder
        })
    }

    pub fn addresses(&self) -> Vec<ShardAddress> {
        self.offered()
            .map(|shard| ShardAddress { layout: shard.layout.clone(), region: shard.region.address() })
            .collect()
    }

    /// The shards that hold a head.
    pub fn holders(&self, head: u32) -> impl Iterator<Item = &Shard> {
        self.shards.iter().filter(move |shard| shard.layout.heads.contains(&head))
    }
}
