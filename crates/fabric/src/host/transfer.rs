//! How the fabric's bytes get into a host's memory and out of it.

use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;

use baton_core::PageId;

use super::HostMemory;
use crate::checksum::{Checksum, checksum};
use crate::layout::{Half, KvLayout, ShardLayout};
use crate::memory::{KvMemory, PeerMemory, RegionAddress, ShardAddress};
use crate::region::RemoteRegion;

impl KvMemory for HostMemory {
    fn layout(&self) -> &KvLayout {
        self.layout()
    }

    fn shard_layouts(&self) -> Vec<ShardLayout> {
        self.shards().iter().map(|shard| shard.layout.clone()).collect()
    }

    fn addresses(&self) -> Vec<ShardAddress> {
        let address = |region| RegionAddress::Memfd(region);
        self.offered()
            .map(|shard| ShardAddress { layout: shard.layout.clone(), region: address(shard.region.address()) })
            .collect()
    }

    fn sum(&self, layer: u32, pages: &[PageId]) -> io::Result<Vec<u64>> {
        Ok(self.blocks(layer, pages).map(checksum).collect())
    }

    fn send(&self, layer: u32, pages: &[PageId], out: &mut dyn Write) -> io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> = self.blocks(layer, pages).map(IoSlice::new).collect();
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            match out.write_vectored(rest)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => IoSlice::advance_slices(&mut rest, written),
            }
        }
        Ok(())
    }

    /// Bytes are read to where they stay and summed there, while still in cache.
    unsafe fn receive(
        &self,
        shards: &[ShardLayout],
        layer: u32,
        page: PageId,
        input: &mut dyn Read,
    ) -> io::Result<Vec<u64>> {
        let sums = shards.iter().map(|shard| {
            let fill = |sum: &mut Checksum, _: usize, target: *mut u8, bytes: usize| {
                // SAFETY: a piece of a block that nothing else touches, by the caller's promise.
                let piece = unsafe { std::slice::from_raw_parts_mut(target, bytes) };
                input.read_exact(piece)?;
                sum.update(piece);
                Ok(())
            };
            // SAFETY: the caller's promise.
            unsafe { self.place(shard, layer, page, fill) }
        });
        sums.collect()
    }

    fn open_peer(self: Arc<Self>, shards: &[ShardAddress]) -> io::Result<Box<dyn PeerMemory>> {
        let shards = shards.iter().map(|shard| {
            let RegionAddress::Memfd(address) = &shard.region;
            Ok((shard.layout.clone(), RemoteRegion::open(address)?))
        });
        Ok(Box::new(HostPeer { shards: shards.collect::<io::Result<_>>()?, memory: self }))
    }
}

impl HostMemory {
    /// What is offered of these pages.
    fn blocks(&self, layer: u32, pages: &[PageId]) -> impl Iterator<Item = &[u8]> {
        pages.iter().flat_map(move |page| self.offered().map(move |shard| (shard, *page))).map(move |(shard, page)| {
            // SAFETY: a block of our own. Steps do not write a page that is being handed over; should it be reused
            // all the same after an abort, the receiver notices by the fence or the checksum.
            unsafe { std::slice::from_raw_parts(shard.block(layer, page), shard.layout.block_bytes()) }
        })
    }

    /// Brings a peer's block to all shards of ours that hold its heads, and returns its sum: the whole block where one of them
    /// keeps it as it is, else head by head. `fill` is called for each piece in the peer's order, with its offset in the peer's
    /// block, and adds to the sum what it has written.
    ///
    /// # Safety
    /// Nothing else touches this layer of the page.
    unsafe fn place(
        &self,
        theirs: &ShardLayout,
        layer: u32,
        page: PageId,
        mut fill: impl FnMut(&mut Checksum, usize, *mut u8, usize) -> io::Result<()>,
    ) -> io::Result<u64> {
        let mut sum = Checksum::default();
        let mut place = |at: usize, bytes: usize, holders: &mut dyn Iterator<Item = *mut u8>| {
            let first = holders.next().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
            fill(&mut sum, at, first, bytes)?;
            for other in holders {
                // SAFETY: the same piece in the memory of another shard.
                unsafe { std::ptr::copy_nonoverlapping(first, other, bytes) };
            }
            Ok::<_, io::Error>(())
        };
        let mut same = self.shards().iter().filter(|ours| ours.layout.heads == theirs.heads).peekable();
        if same.peek().is_some() {
            place(0, theirs.block_bytes(), &mut same.map(|ours| ours.block(layer, page)))?;
            return Ok(sum.finish());
        }
        for half in [Half::Keys, Half::Values] {
            for head in theirs.heads.clone() {
                let holders = self.holders(head).map(|ours| {
                    // SAFETY: the offset of a head that this shard holds.
                    unsafe { ours.block(layer, page).add(ours.layout.head_in_block(half, head)) }
                });
                place(theirs.head_in_block(half, head), theirs.kv.head_bytes(), &mut { holders })?;
            }
        }
        Ok(sum.finish())
    }
}

/// Read where it lies, by any process of the same user.
struct HostPeer {
    memory: Arc<HostMemory>,
    shards: Vec<(ShardLayout, RemoteRegion)>,
}

impl PeerMemory for HostPeer {
    unsafe fn copy(&mut self, layer: u32, pages: &[(PageId, PageId)]) -> io::Result<Vec<u64>> {
        let outside = || io::Error::new(io::ErrorKind::InvalidData, "offered page outside the sender's memory");
        let blocks = pages.iter().flat_map(|pages| self.shards.iter().map(move |shard| (*pages, shard)));
        let sums = blocks.map(|((theirs, ours), (layout, region))| {
            if theirs.0 >= layout.pages {
                return Err(outside());
            }
            let block = layout.block_at(layer, theirs);
            let fill = |sum: &mut Checksum, at: usize, target: *mut u8, bytes: usize| {
                let source = region.at(block + at, bytes).ok_or_else(outside)?;
                // SAFETY: the source is mapped, and nothing else touches the target, by the caller's promise.
                unsafe { sum.copy(source.as_ptr(), target, bytes) };
                Ok(())
            };
            // SAFETY: the caller's promise.
            unsafe { self.memory.place(layout, layer, ours, fill) }
        });
        sums.collect()
    }
}

#[cfg(test)]
#[path = "transfer_tests.rs"]
mod tests;
