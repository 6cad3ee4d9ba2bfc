//! The bytes of an engine's KV pool: one region per shard.

use std::io;
use std::ops::Range;

use baton_core::PageId;
use serde::{Deserialize, Serialize};

use crate::layout::{KvLayout, ShardLayout};
use crate::region::{Region, RegionAddress};

/// Owned by the engine's backend; shared with the fabric's threads. Who may touch which page when is the step loop's
/// decision: a page is written either by steps or, while it is reserved for a hand-off, by the receiver; never by both.
pub struct KvPool {
    layout: KvLayout,
    pages: u32,
    shards: Vec<Shard>,
}

pub struct Shard {
    pub layout: ShardLayout,
    pub region: Region,
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
    /// Heads are spread evenly; `shards` of one engine are equal but for their heads.
    pub fn new(layout: KvLayout, pages: u32, shards: u32) -> io::Result<Self> {
        let shards = (0..shards)
            .map(|index| {
                let layout = ShardLayout { kv: layout.clone(), heads: heads_of(&layout, shards, index), pages };
                Ok(Shard { region: Region::new(layout.bytes())?, layout })
            })
            .collect::<io::Result<_>>()?;
        Ok(Self { layout, pages, shards })
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

    /// One page of one layer, all shards.
    pub(crate) fn block_bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.layout.block_bytes()).sum()
    }

    pub fn addresses(&self) -> Vec<ShardAddress> {
        self.shards
            .iter()
            .map(|shard| ShardAddress { layout: shard.layout.clone(), region: shard.region.address() })
            .collect()
    }

    /// The shard that holds a head, and the shard's layout.
    pub fn shard_of(&self, head: u32) -> Option<&Shard> {
        self.shards.iter().find(|shard| shard.layout.heads.contains(&head))
    }
}

fn heads_of(layout: &KvLayout, shards: u32, index: u32) -> Range<u32> {
    let at = |i: u32| (u64::from(layout.kv_heads) * u64::from(i) / u64::from(shards)) as u32;
    at(index)..at(index + 1)
}
