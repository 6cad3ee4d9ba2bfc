//! Where offered blocks come from: the sender's memory, or the connection. Either way the bytes go through one checked copy.

use std::io::{self, Read};

use baton_core::PageId;

use crate::checksum::{Checksum, checksum};
use crate::fence::{FenceMark, FenceView, RemoteFences};
use crate::layout::{Half, ShardLayout};
use crate::pool::{KvPool, Shard};
use crate::region::RemoteRegion;
use crate::wire::{Hello, Transport};

/// One page of one layer on the sender's side.
#[derive(Clone, Copy)]
pub(crate) struct Block<'a> {
    pub(crate) layer: u32,
    pub(crate) page: PageId,
    /// Per sender shard.
    pub(crate) sums: &'a [u64],
}

pub(crate) trait BlockSource {
    fn transport(&self) -> Transport;

    /// The sender's shards, in the order of an offer's checksums.
    fn shards(&self) -> &[ShardLayout];

    /// Brings one block into page `target` of our pool, or past us when nobody wants it (its bytes may be on the connection).
    /// `false`: the bytes are not what the checksums say.
    fn receive(
        &mut self,
        block: Block<'_>,
        pool: &KvPool,
        target: Option<PageId>,
        input: &mut dyn Read,
    ) -> io::Result<bool>;

    fn fence_holds(&self, mark: FenceMark) -> bool;

    /// One page of one layer, all shards.
    fn block_bytes(&self) -> usize {
        self.shards().iter().map(ShardLayout::block_bytes).sum()
    }
}

/// The receiver reads the sender's pages where they lie.
pub(crate) struct ShmSource {
    layouts: Vec<ShardLayout>,
    regions: Vec<RemoteRegion>,
    fences: RemoteFences,
}

impl ShmSource {
    pub(crate) fn open(hello: &Hello) -> io::Result<Self> {
        let fences = RemoteFences::open(&hello.fences)?;
        let regions =
            hello.shards.iter().map(|shard| RemoteRegion::open(&shard.region)).collect::<io::Result<Vec<_>>>()?;
        Ok(Self { layouts: hello.shards.iter().map(|shard| shard.layout.clone()).collect(), regions, fences })
    }
}

impl BlockSource for ShmSource {
    fn transport(&self) -> Transport {
        Transport::Shm
    }

    fn shards(&self) -> &[ShardLayout] {
        &self.layouts
    }

    fn receive(
        &mut self,
        block: Block<'_>,
        pool: &KvPool,
        target: Option<PageId>,
        _input: &mut dyn Read,
    ) -> io::Result<bool> {
        let Some(target) = target else { return Ok(true) };
        let mut good = true;
        for ((layout, region), sum) in self.layouts.iter().zip(&self.regions).zip(block.sums) {
            if block.page.0 >= layout.pages {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "offered page outside the sender's pool"));
            }
            let bytes = region
                .at(layout.block_at(block.layer, block.page), layout.block_bytes())
                .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "offered block outside the region"))?;
            // SAFETY: `bytes` is valid for one block; the target page is reserved for this hand-off.
            good &= unsafe { copy_block(bytes.as_ptr(), layout, pool, block.layer, target) } == *sum;
        }
        Ok(good)
    }

    fn fence_holds(&self, mark: FenceMark) -> bool {
        self.fences.holds(mark)
    }
}

/// Bytes follow each offer on the connection. A block that one of our shards keeps as it is is read straight into the page
/// and summed there, while still in cache; others pass through a buffer.
pub(crate) struct TcpSource {
    layouts: Vec<ShardLayout>,
    buffer: Vec<u8>,
}

impl TcpSource {
    pub(crate) fn new(hello: &Hello) -> Self {
        let layouts: Vec<_> = hello.shards.iter().map(|shard| shard.layout.clone()).collect();
        let bytes = layouts.iter().map(ShardLayout::block_bytes).max().unwrap_or(0);
        Self { layouts, buffer: vec![0; bytes] }
    }
}

impl BlockSource for TcpSource {
    fn transport(&self) -> Transport {
        Transport::Tcp
    }

    fn shards(&self) -> &[ShardLayout] {
        &self.layouts
    }

    fn receive(
        &mut self,
        block: Block<'_>,
        pool: &KvPool,
        target: Option<PageId>,
        input: &mut dyn Read,
    ) -> io::Result<bool> {
        let mut good = true;
        for (layout, sum) in self.layouts.iter().zip(block.sums) {
            let bytes = layout.block_bytes();
            match target.and_then(|target| Some((target, same_block(pool, layout)?))) {
                Some((target, ours)) => {
                    // SAFETY: one block of our pool, reserved for this hand-off: nobody else touches it while the lock is
                    // held.
                    let page = unsafe { std::slice::from_raw_parts_mut(ours.block(block.layer, target), bytes) };
                    input.read_exact(page)?;
                    good &= checksum(page) == *sum;
                    // SAFETY: as above, and `ours` holds the block now.
                    unsafe { copy_to_other_holders(ours, pool, block.layer, target) };
                }
                None => {
                    let buffer = &mut self.buffer[..bytes];
                    input.read_exact(buffer)?;
                    if let Some(target) = target {
                        // SAFETY: the buffer holds one block; the target page is reserved for this hand-off.
                        good &= unsafe { copy_block(buffer.as_ptr(), layout, pool, block.layer, target) } == *sum;
                    }
                }
            }
        }
        Ok(good)
    }

    fn fence_holds(&self, _mark: FenceMark) -> bool {
        // The sender summed the bytes under its own fence before it sent them: a matching sum is proof enough.
        true
    }
}

/// Our shard whose blocks look like those of `layout`, byte for byte.
fn same_block<'a>(pool: &'a KvPool, layout: &ShardLayout) -> Option<&'a Shard> {
    pool.shards().iter().find(|shard| shard.layout.heads == layout.heads)
}

/// One pass: reads the sender's block in its order, writes each head where our shards keep it, sums what was written. A head
/// that several of our shards hold is copied on from the first of them, whose bytes are the ones that were summed.
///
/// # Safety
/// `source` is valid for the block that `layout` describes; nobody else touches page `target` of `pool`.
unsafe fn copy_block(source: *const u8, layout: &ShardLayout, pool: &KvPool, layer: u32, target: PageId) -> u64 {
    let mut sum = Checksum::default();
    if let Some(ours) = same_block(pool, layout) {
        // SAFETY: equal layouts: both blocks have `block_bytes` bytes, and ours is written when it is copied on.
        unsafe {
            sum.copy(source, ours.block(layer, target), layout.block_bytes());
            copy_to_other_holders(ours, pool, layer, target);
        }
        return sum.finish();
    }
    let head_bytes = layout.kv.head_bytes();
    for half in [Half::Keys, Half::Values] {
        for head in layout.heads.clone() {
            let mut holders = pool.holders(head).map(|ours| {
                // SAFETY: the offset of a head that this shard holds.
                unsafe { ours.block(layer, target).add(ours.layout.head_in_block(half, head)) }
            });
            let Some(first) = holders.next() else { return !sum.finish() };
            // SAFETY: both offsets name one head of `head_bytes` bytes inside their blocks.
            unsafe { sum.copy(source.add(layout.head_in_block(half, head)), first, head_bytes) };
            for other in holders {
                // SAFETY: the same head in the memory of another shard.
                unsafe { std::ptr::copy_nonoverlapping(first, other, head_bytes) };
            }
        }
    }
    sum.finish()
}

/// Gives the block of `first` to the other shards with the same heads.
///
/// # Safety
/// Nobody else touches page `target` of `pool`.
unsafe fn copy_to_other_holders(first: &Shard, pool: &KvPool, layer: u32, target: PageId) {
    let same = pool.shards().iter().filter(|shard| shard.layout.heads == first.layout.heads);
    for other in same.filter(|shard| !std::ptr::eq(*shard, first)) {
        // SAFETY: blocks of two shards of equal layout; their memory is apart.
        unsafe {
            std::ptr::copy_nonoverlapping(
                first.block(layer, target),
                other.block(layer, target),
                first.layout.block_bytes(),
            );
        }
    }
}
