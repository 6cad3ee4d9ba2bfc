//! Where offered blocks come from: the sender's memory, or the connection. Either way the bytes go through one checked copy.

use std::io::{self, Read};

use baton_core::PageId;

use crate::checksum::Checksum;
use crate::fence::{FenceMark, FenceView, RemoteFences};
use crate::layout::{Half, ShardLayout};
use crate::pool::KvPool;
use crate::region::RemoteRegion;
use crate::wire::{Hello, Transport};

pub(crate) trait BlockSource {
    fn transport(&self) -> Transport;

    /// The sender's shards, in the order of an offer's checksums.
    fn shards(&self) -> &[ShardLayout];

    /// Makes the block available; always called, also for blocks nobody wants (their bytes are on the connection).
    fn fetch(&mut self, layer: u32, page: PageId, input: &mut dyn Read) -> io::Result<()>;

    /// Copies the fetched block into `target` of our pool. `false`: the bytes are not what the checksums say.
    fn copy(&mut self, layer: u32, page: PageId, sums: &[u64], pool: &KvPool, target: PageId) -> io::Result<bool>;

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

    fn fetch(&mut self, _layer: u32, _page: PageId, _input: &mut dyn Read) -> io::Result<()> {
        Ok(())
    }

    fn copy(&mut self, layer: u32, page: PageId, sums: &[u64], pool: &KvPool, target: PageId) -> io::Result<bool> {
        let mut good = true;
        for ((layout, region), sum) in self.layouts.iter().zip(&self.regions).zip(sums) {
            if page.0 >= layout.pages {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "offered page outside the sender's pool"));
            }
            let block = region
                .at(layout.block_at(layer, page), layout.block_bytes())
                .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "offered block outside the region"))?;
            // SAFETY: `block` is valid for `block_bytes`; the target page is reserved for this hand-off.
            good &= unsafe { copy_block(block.as_ptr(), layout, pool, layer, target) } == *sum;
        }
        Ok(good)
    }

    fn fence_holds(&self, mark: FenceMark) -> bool {
        self.fences.holds(mark)
    }
}

/// Bytes follow each offer on the connection. They pass through a buffer of one block, which stays in cache: a sender that
/// stops in the middle of a block must not hold the reservation's lock.
pub(crate) struct TcpSource {
    layouts: Vec<ShardLayout>,
    buffer: Vec<u8>,
}

impl TcpSource {
    pub(crate) fn new(hello: &Hello) -> Self {
        let layouts: Vec<_> = hello.shards.iter().map(|shard| shard.layout.clone()).collect();
        let bytes = layouts.iter().map(ShardLayout::block_bytes).sum();
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

    fn fetch(&mut self, _layer: u32, _page: PageId, input: &mut dyn Read) -> io::Result<()> {
        input.read_exact(&mut self.buffer)
    }

    fn copy(&mut self, layer: u32, _page: PageId, sums: &[u64], pool: &KvPool, target: PageId) -> io::Result<bool> {
        let (mut at, mut good) = (0, true);
        for (layout, sum) in self.layouts.iter().zip(sums) {
            let block = &self.buffer[at..at + layout.block_bytes()];
            // SAFETY: the slice is one block long; the target page is reserved for this hand-off.
            good &= unsafe { copy_block(block.as_ptr(), layout, pool, layer, target) } == *sum;
            at += layout.block_bytes();
        }
        Ok(good)
    }

    fn fence_holds(&self, _mark: FenceMark) -> bool {
        // The sender summed the bytes under its own fence before it sent them: a matching sum is proof enough.
        true
    }
}

/// One pass: reads the sender's block in its order, writes each head where our shards keep it, sums what was written.
///
/// # Safety
/// `source` is valid for the block that `layout` describes; nobody else touches page `target` of `pool`.
unsafe fn copy_block(source: *const u8, layout: &ShardLayout, pool: &KvPool, layer: u32, target: PageId) -> u64 {
    let mut sum = Checksum::default();
    if let [ours] = pool.shards()
        && ours.layout.heads == layout.heads
    {
        // SAFETY: equal layouts: both blocks have `block_bytes` bytes.
        unsafe { sum.copy(source, ours.block(layer, target), layout.block_bytes()) };
        return sum.finish();
    }
    let head_bytes = layout.kv.head_bytes();
    for half in [Half::Keys, Half::Values] {
        for head in layout.heads.clone() {
            let Some(ours) = pool.shard_of(head) else { return !sum.finish() };
            // SAFETY: both offsets name one head of `head_bytes` bytes inside their blocks.
            unsafe {
                let from = source.add(layout.head_in_block(half, head));
                let to = ours.block(layer, target).add(ours.layout.head_in_block(half, head));
                sum.copy(from, to, head_bytes);
            }
        }
    }
    sum.finish()
}
