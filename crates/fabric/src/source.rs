//! How offered pages come here: the receiver reads the sender's memory, or their bytes follow the offer on the connection.

use std::io::{self, Read};
use std::sync::Arc;

use baton_core::PageId;

use crate::fence::{FenceMark, FenceView, RemoteFences};
use crate::layout::ShardLayout;
use crate::memory::{KvMemory, PeerMemory};
use crate::wire::{Hello, MAX_OFFER_PAGES, Transport};

pub(crate) struct Source {
    /// Of the sender, in the order of an offer's checksums.
    shards: Vec<ShardLayout>,
    path: Path,
}

enum Path {
    Shm { peer: Box<dyn PeerMemory>, fences: RemoteFences },
    Tcp,
}

impl Source {
    pub(crate) fn shm(hello: &Hello, memory: Arc<dyn KvMemory>) -> io::Result<Self> {
        let fences = RemoteFences::open(&hello.fences)?;
        let path = Path::Shm { peer: memory.open_peer(&hello.shards)?, fences };
        Ok(Self { path, ..Self::tcp(hello) })
    }

    pub(crate) fn tcp(hello: &Hello) -> Self {
        Self { shards: hello.shards.iter().map(|shard| shard.layout.clone()).collect(), path: Path::Tcp }
    }

    pub(crate) fn transport(&self) -> Transport {
        match self.path {
            Path::Shm { .. } => Transport::Shm,
            Path::Tcp => Transport::Tcp,
        }
    }

    pub(crate) fn sums_per_page(&self) -> usize {
        self.shards.len()
    }

    /// How many pages one call of [`Self::receive`] takes: as many as are worth one launch on a device, but no more than one
    /// where the sender decides how long each takes.
    pub(crate) fn pages_at_once(&self) -> usize {
        match self.path {
            Path::Shm { .. } => MAX_OFFER_PAGES,
            Path::Tcp => 1,
        }
    }

    /// Brings one layer of each `(theirs, ours)` page here and returns the sums of what was written. Pages without one of ours
    /// are not wanted: they have no sums.
    ///
    /// # Safety
    /// Until this returns, nothing else touches this layer of our pages.
    pub(crate) unsafe fn receive(
        &mut self,
        layer: u32,
        pages: &[(PageId, Option<PageId>)],
        memory: &dyn KvMemory,
        input: &mut dyn Read,
    ) -> io::Result<Vec<u64>> {
        match &mut self.path {
            Path::Shm { peer, .. } => {
                let wanted: Vec<_> = pages.iter().filter_map(|&(theirs, ours)| Some((theirs, ours?))).collect();
                // SAFETY: the caller's promise.
                unsafe { peer.copy(layer, &wanted) }
            }
            Path::Tcp => {
                let mut sums = Vec::new();
                for (_, ours) in pages {
                    match ours {
                        // SAFETY: the caller's promise.
                        Some(ours) => sums.extend(unsafe { memory.receive(&self.shards, layer, *ours, input) }?),
                        None => skip(input, self.shards.iter().map(ShardLayout::block_bytes).sum())?,
                    }
                }
                Ok(sums)
            }
        }
    }

    pub(crate) fn fence_holds(&self, mark: FenceMark) -> bool {
        match &self.path {
            Path::Shm { fences, .. } => fences.holds(mark),
            // The sender summed the bytes under its own fence before it sent them: a matching sum is proof enough.
            Path::Tcp => true,
        }
    }
}

fn skip(input: &mut dyn Read, bytes: usize) -> io::Result<()> {
    let skipped = io::copy(&mut input.take(bytes as u64), &mut io::sink())?;
    if skipped < bytes as u64 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}
