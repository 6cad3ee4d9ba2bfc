//! KV memory of a CPU: one region of shared memory per shard.

mod huge;
mod shard;
mod transfer;

use std::io;
use std::sync::Arc;

use self::huge::HugePages;
pub use self::shard::HostShard;
use crate::layout::{KvLayout, ShardLayout};

/// Owned by the engine's backend; shared with the fabric's threads. Who may touch which page when is the step loop's
/// decision: a page is written either by steps or, while it is reserved for a hand-off, by the receiver; never by both.
pub struct HostMemory {
    layout: KvLayout,
    pages: u32,
    shards: Arc<[HostShard]>,
    huge: Arc<HugePages>,
}

impl HostMemory {
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
        let shards = (0..shards).map(|index| {
            let heads = layout.heads_of_shard(shards, index).ok_or_else(uneven)?;
            HostShard::new(ShardLayout { kv: layout.clone(), heads, pages })
        });
        let shards = shards.collect::<io::Result<Arc<[_]>>>()?;
        let huge = Arc::new(HugePages::new(shards.clone()));
        Ok(Self { layout, pages, shards, huge })
    }

    pub fn layout(&self) -> &KvLayout {
        &self.layout
    }

    pub fn pages(&self) -> u32 {
        self.pages
    }

    pub fn shards(&self) -> &[HostShard] {
        &self.shards
    }

    /// One shard per head: what is offered to other engines. Further holders of a head have the same bytes.
    pub fn offered(&self) -> impl Iterator<Item = &HostShard> {
        let mut covered = 0;
        self.shards.iter().filter(move |shard| {
            let first_holder = shard.layout.heads.start >= covered;
            covered = covered.max(shard.layout.heads.end);
            first_holder
        })
    }

    /// The shards that hold a head.
    fn holders(&self, head: u32) -> impl Iterator<Item = &HostShard> {
        self.shards.iter().filter(move |shard| shard.layout.heads.contains(&head))
    }

    /// Pages below `end` are in use. What that makes worth moving to huge pages is moved in the background, while steps go on:
    /// no reader sees other bytes, but a thread that touches memory on its way waits for it.
    pub fn in_use(&self, end: u32) {
        self.huge.in_use(end.min(self.pages));
    }
}
