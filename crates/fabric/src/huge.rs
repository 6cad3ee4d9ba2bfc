//! KV memory on huge pages, where reading it does not wait for the address of every 4 KiB to be looked up.
//!
//! Linux gives shared memory huge pages only where an administrator has allowed it, but moves what is there into them on
//! request. That is asked for as pages come into use, so that memory which nobody uses stays free:
//!
//! ```text
//!   region     | layer 0                     | layer 1                     |
//!   in use     |###############              |###############              |
//!   chunks     |-----|-----|-----|-----|-----|-----|-----|-----|-----|-----|
//!   moved      |=====|=====|                 |=====|=====|                      whose middle is in use
//! ```

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use crate::pool::{KvPool, Shard};

pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Since Linux 6.1.
const MADV_COLLAPSE: libc::c_int = 25;

/// How much of a pool has been in use, and been moved.
#[derive(Default)]
pub(crate) struct HugePages {
    /// Pages below it have been in use.
    used: AtomicU32,
    /// Below it nothing is left to do.
    moved: AtomicU32,
    at_work: AtomicBool,
}

impl KvPool {
    /// Pages below `end` are in use. What that makes worth moving is moved in the background, while steps go on: nobody sees
    /// other bytes, but who touches memory on its way waits for it.
    pub fn in_use(self: &Arc<Self>, end: u32) {
        let (huge, end) = (&self.huge, end.min(self.pages()));
        if end <= huge.used.load(Ordering::Relaxed) {
            return;
        }
        huge.used.store(end, Ordering::Relaxed);
        // A page here and there moves no chunk.
        let worth_it = end.saturating_sub(huge.moved.load(Ordering::Relaxed)) >= self.half_chunk_pages();
        if worth_it && !huge.at_work.swap(true, Ordering::Acquire) {
            let pool = Arc::clone(self);
            // Without a thread pages stay small.
            let _ = std::thread::Builder::new().name("baton-kv-huge".to_owned()).spawn(move || pool.move_used());
        }
    }

    fn half_chunk_pages(&self) -> u32 {
        let block_bytes = self.shards().first().map_or(1, |shard| shard.layout.block_bytes());
        (HUGE_PAGE_BYTES / 2 / block_bytes.max(1)).max(1) as u32
    }

    fn move_used(&self) {
        let huge = &self.huge;
        let pages = huge.moved.load(Ordering::Relaxed)..huge.used.load(Ordering::Relaxed);
        let moved = self.shards().iter().try_for_each(|shard| shard.move_chunks(&pages));
        // A kernel that refuses once would refuse again.
        huge.moved.store(if moved.is_ok() { pages.end } else { u32::MAX }, Ordering::Relaxed);
        huge.at_work.store(false, Ordering::Release);
    }
}

impl Shard {
    /// Those whose middle lies in these pages of a layer. Every chunk has one middle, so it is moved once.
    fn move_chunks(&self, pages: &Range<u32>) -> io::Result<()> {
        let (block, layer_bytes) = (self.layout.block_bytes(), self.layout.pages as usize * self.layout.block_bytes());
        for layer in 0..self.layout.kv.layers as usize {
            let bytes = |page: u32| layer * layer_bytes + page as usize * block;
            let first = bytes(pages.start).saturating_sub(HUGE_PAGE_BYTES / 2).div_ceil(HUGE_PAGE_BYTES);
            for chunk in first.. {
                let middle = chunk * HUGE_PAGE_BYTES + HUGE_PAGE_BYTES / 2;
                if middle >= bytes(pages.end) || middle + HUGE_PAGE_BYTES / 2 > self.region.bytes() {
                    break;
                }
                self.move_chunk(middle)?;
            }
        }
        Ok(())
    }

    fn move_chunk(&self, middle: usize) -> io::Result<()> {
        // SAFETY: a chunk inside of the region, which begins at a multiple of its size. The byte is only looked at, so that
        // there is something to move; what the chunk holds stays the same to everyone.
        let result = unsafe {
            let middle = self.region.base().as_ptr().add(middle);
            AtomicU8::from_ptr(middle).load(Ordering::Relaxed);
            libc::madvise(middle.sub(HUGE_PAGE_BYTES / 2).cast(), HUGE_PAGE_BYTES, MADV_COLLAPSE)
        };
        if result == 0 {
            return Ok(());
        }
        match io::Error::last_os_error() {
            // Somebody held a page just then: the chunk stays as it is.
            error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) => Ok(()),
            error => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use baton_core::PageId;

    use super::*;
    use crate::layout::{KvLayout, PageOrder};
    use crate::region::RemoteRegion;

    /// 32 KiB per page and layer; layers do not begin with a chunk.
    fn pool(pages: u32) -> Arc<KvPool> {
        let layout = KvLayout { order: PageOrder::PairsBf16, layers: 3, kv_heads: 4, head_dim: 64 };
        Arc::new(KvPool::new(layout, pages, 1).unwrap())
    }

    #[test]
    fn every_chunk_is_moved_once_and_none_that_is_not_used() {
        let (pool, used) = (pool(200), 150);
        let shard = &pool.shards()[0];
        let block = shard.layout.block_bytes();
        let middles = |pages: Range<u32>| -> Vec<usize> {
            let chunks = 0..shard.region.bytes() / HUGE_PAGE_BYTES;
            let middle = |chunk| chunk * HUGE_PAGE_BYTES + HUGE_PAGE_BYTES / 2;
            let in_pages = |at: &usize| at / block < 3 * 200 && pages.contains(&((at / block % 200) as u32));
            chunks.map(middle).filter(in_pages).collect()
        };
        assert_eq!(middles(0..used).len(), middles(0..70).len() + middles(70..used).len());
        assert!(middles(0..used).len() >= 6 && middles(0..200).len() > middles(0..used).len());
        // Resident memory is what was moved.
        pool.in_use(70);
        wait(&pool, 70);
        pool.in_use(used);
        wait(&pool, used);
        if pool.huge.moved.load(Ordering::Relaxed) == u32::MAX {
            println!("this kernel moves nothing");
            return;
        }
        assert_eq!(resident_bytes(shard), middles(0..used).len() * HUGE_PAGE_BYTES);
    }

    fn wait(pool: &KvPool, moved: u32) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while pool.huge.moved.load(Ordering::Relaxed) < moved {
            assert!(Instant::now() < deadline, "chunks were not moved");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn resident_bytes(shard: &Shard) -> usize {
        let pages = shard.region.bytes() / 4096;
        let mut resident = vec![0u8; pages];
        // SAFETY: asks about our own mapping; the vector has a byte per page.
        let result = unsafe {
            libc::mincore(shard.region.base().as_ptr().cast(), shard.region.bytes(), resident.as_mut_ptr().cast())
        };
        assert_eq!(result, 0);
        resident.iter().filter(|flags| **flags & 1 == 1).count() * 4096
    }

    #[test]
    fn nobody_sees_other_bytes() {
        let pool = pool(128);
        let shard = &pool.shards()[0];
        let remote = RemoteRegion::open(&shard.region.address()).unwrap();
        let block = |layer, page| shard.block(layer, PageId(page)).cast::<u64>();
        let words = shard.layout.block_bytes() / 8;
        let value = |layer: u32, page: u32, i: usize| u64::from(layer) << 40 | u64::from(page) << 20 | i as u64;
        let all = || (0..3).flat_map(|layer| (0..128).map(move |page| (layer, page)));
        for (layer, page) in all() {
            // Some are written while they move.
            pool.in_use(page + 1);
            for i in 0..words {
                // SAFETY: inside the block; nobody else writes it.
                unsafe { *block(layer, page).add(i) = value(layer, page, i) };
            }
        }
        for (layer, page) in all() {
            let at = remote.at(shard.layout.block_at(layer, PageId(page)), words * 8).unwrap().cast::<u64>();
            for i in 0..words {
                // SAFETY: both mappings hold the block, and nobody writes it now.
                let (here, there) = unsafe { (*block(layer, page).add(i), *at.as_ptr().add(i)) };
                assert_eq!((here, there), (value(layer, page, i), value(layer, page, i)), "{layer} {page} {i}");
            }
        }
    }
}
