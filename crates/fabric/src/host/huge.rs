//! KV memory on huge pages, where reading it does not wait for the address of every 4 KiB to be looked up.
//!
//! Linux gives shared memory huge pages only where an administrator has allowed it, but moves what is there into them on
//! request. It is requested as pages come into use, so that memory which is not used stays free:
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
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::shard::HostShard;
use crate::layout::ShardLayout;
use crate::region::HUGE_PAGE_BYTES;

/// Since Linux 6.1, and 5.14.
const MADV_COLLAPSE: libc::c_int = 25;
const MADV_POPULATE_READ: libc::c_int = 22;
const SMALL_PAGE_BYTES: usize = 4096;

/// How much of a memory has been in use, and been moved.
pub(super) struct HugePages {
    shards: Arc<[HostShard]>,
    /// Pages below it have been in use.
    used: AtomicU32,
    /// Below it nothing is left to do.
    moved: AtomicU32,
    at_work: AtomicBool,
}

impl HugePages {
    pub(super) fn new(shards: Arc<[HostShard]>) -> Self {
        Self { shards, used: AtomicU32::new(0), moved: AtomicU32::new(0), at_work: AtomicBool::new(false) }
    }

    /// Pages below `end`, which all exist, are in use. Returns at once.
    pub(super) fn in_use(self: &Arc<Self>, end: u32) {
        if end > self.used.load(Ordering::Relaxed) {
            self.used.store(end, Ordering::SeqCst);
            self.move_if_worth_it();
        }
    }

    fn move_if_worth_it(self: &Arc<Self>) {
        if !self.is_worth_it() || self.at_work.swap(true, Ordering::SeqCst) {
            return;
        }
        let huge = Arc::clone(self);
        let started = std::thread::Builder::new().name("baton-kv-huge".to_owned()).spawn(move || {
            run_where_the_process_may();
            huge.move_used();
            huge.at_work.store(false, Ordering::SeqCst);
            // Callers that found it at work have left the rest to it.
            huge.move_if_worth_it();
        });
        if started.is_err() {
            // Pages stay small for now.
            self.at_work.store(false, Ordering::SeqCst);
        }
    }

    /// A page here and there moves no chunk.
    fn is_worth_it(&self) -> bool {
        let block_bytes = self.shards.first().map_or(1, |shard| shard.layout.block_bytes());
        let half_chunk_pages = (HUGE_PAGE_BYTES / 2 / block_bytes.max(1)).max(1) as u32;
        let (used, moved) = (self.used.load(Ordering::SeqCst), self.moved.load(Ordering::SeqCst));
        used.saturating_sub(moved) >= half_chunk_pages
    }

    fn move_used(&self) {
        let pages = self.moved.load(Ordering::SeqCst)..self.used.load(Ordering::SeqCst);
        let moved = self.shards.iter().try_for_each(|shard| {
            middles(&shard.layout, &pages)
                .filter(|middle| middle + HUGE_PAGE_BYTES / 2 <= shard.region.bytes())
                .try_for_each(|middle| shard.move_chunk(middle))
        });
        // An older kernel, or no memory in such pieces: further attempts would cost more than they give.
        self.moved.store(if moved.is_ok() { pages.end } else { u32::MAX }, Ordering::SeqCst);
    }
}

/// The thread that starts this one may be bound to a core that steps need. The process's first thread is bound to none, but
/// has all cores that its user allows.
fn run_where_the_process_may() {
    // SAFETY: any bits are a set of cores. Where the system does not answer, this thread stays where it is.
    unsafe {
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(libc::getpid(), size_of_val(&allowed), &raw mut allowed) == 0 {
            libc::sched_setaffinity(0, size_of_val(&allowed), &raw const allowed);
        }
    }
}

/// Middles of the chunks that have them in these pages, of any layer. A chunk has one middle, so it is moved once.
fn middles(layout: &ShardLayout, pages: &Range<u32>) -> impl Iterator<Item = usize> {
    const HALF: usize = HUGE_PAGE_BYTES / 2;
    let (block, layer_bytes) = (layout.block_bytes(), layout.pages as usize * layout.block_bytes());
    let (first, end) = (pages.start as usize * block, pages.end as usize * block);
    (0..layout.kv.layers as usize).flat_map(move |layer| {
        let (first, end) = (layer * layer_bytes + first, layer * layer_bytes + end);
        let chunk = first.saturating_sub(HALF).div_ceil(HUGE_PAGE_BYTES);
        (chunk * HUGE_PAGE_BYTES + HALF..end).step_by(HUGE_PAGE_BYTES)
    })
}

impl HostShard {
    fn move_chunk(&self, middle: usize) -> io::Result<()> {
        // SAFETY: a chunk inside of the region, which begins at a multiple of its size. A page in its middle must exist for
        // there to be something to move; what the chunk holds stays the same to everyone.
        let result = unsafe {
            let middle = self.region.base().as_ptr().add(middle);
            libc::madvise(middle.cast(), SMALL_PAGE_BYTES, MADV_POPULATE_READ);
            libc::madvise(middle.sub(HUGE_PAGE_BYTES / 2).cast(), HUGE_PAGE_BYTES, MADV_COLLAPSE)
        };
        if result == 0 {
            return Ok(());
        }
        match io::Error::last_os_error() {
            // A page was held just then: the chunk stays as it is.
            error if error.raw_os_error() == Some(libc::EAGAIN) => Ok(()),
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
    fn huge_pages(pages: u32) -> Arc<HugePages> {
        let kv = KvLayout { order: PageOrder::InterleavedBf16, layers: 3, kv_heads: 4, head_dim: 64 };
        let shard = HostShard::new(ShardLayout { kv, heads: 0..4, pages }).unwrap();
        Arc::new(HugePages::new(Arc::new([shard])))
    }

    #[test]
    fn chunks_are_moved_once_and_only_when_their_middle_is_in_use() {
        let huge = huge_pages(200);
        let layout = &huge.shards[0].layout;
        let in_pages = |at: usize, pages: &Range<u32>| {
            let block = at / layout.block_bytes();
            block < 3 * 200 && pages.contains(&((block % 200) as u32))
        };
        for pages in [0..0, 0..1, 0..31, 0..32, 0..33, 31..32, 70..150, 0..150, 0..200, 199..200] {
            let all = (0..layout.bytes().div_ceil(HUGE_PAGE_BYTES)).map(|i| i * HUGE_PAGE_BYTES + HUGE_PAGE_BYTES / 2);
            let expected: Vec<usize> = all.filter(|middle| in_pages(*middle, &pages)).collect();
            assert_eq!(middles(layout, &pages).collect::<Vec<_>>(), expected, "{pages:?}");
        }
    }

    #[test]
    fn what_came_into_use_while_others_moved_is_moved_too() {
        let huge = huge_pages(200);
        for end in 1..=150 {
            huge.in_use(end);
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        while huge.is_worth_it() || huge.at_work.load(Ordering::SeqCst) {
            assert!(Instant::now() < deadline, "chunks were not moved");
            std::thread::sleep(Duration::from_millis(1));
        }
        if huge.moved.load(Ordering::SeqCst) == u32::MAX {
            println!("this system moves nothing");
            return;
        }
        // No byte was written: what memory there is came with chunks. Some may have been refused for the moment.
        let chunks = middles(&huge.shards[0].layout, &(0..150)).count();
        let resident = resident_bytes(&huge.shards[0]);
        assert!(
            (HUGE_PAGE_BYTES..=chunks * HUGE_PAGE_BYTES).contains(&resident),
            "{resident} bytes of {chunks} chunks"
        );
    }

    fn resident_bytes(shard: &HostShard) -> usize {
        let (base, bytes) = (shard.region.base().as_ptr(), shard.region.bytes());
        let mut resident = vec![0u8; bytes / SMALL_PAGE_BYTES];
        // SAFETY: asks about our own mapping; there is a byte for each of its pages.
        assert_eq!(unsafe { libc::mincore(base.cast(), bytes, resident.as_mut_ptr()) }, 0);
        resident.iter().filter(|flags| **flags & 1 == 1).count() * SMALL_PAGE_BYTES
    }

    #[test]
    fn no_reader_sees_other_bytes() {
        let huge = huge_pages(128);
        let shard = &huge.shards[0];
        let remote = RemoteRegion::open(&shard.region.address()).unwrap();
        let block = |layer, page| shard.block(layer, PageId(page)).cast::<u64>();
        let words = shard.layout.block_bytes() / 8;
        let value = |layer: u32, page: u32, i: usize| u64::from(layer) << 40 | u64::from(page) << 20 | i as u64;
        let all = || (0..3).flat_map(|layer| (0..128).map(move |page| (layer, page)));
        for (layer, page) in all() {
            // Some are written while they move.
            huge.in_use(page + 1);
            for i in 0..words {
                // SAFETY: inside the block; nothing else writes it.
                unsafe { *block(layer, page).add(i) = value(layer, page, i) };
            }
        }
        for (layer, page) in all() {
            let at = remote.at(shard.layout.block_at(layer, PageId(page)), words * 8).unwrap().cast::<u64>();
            for i in 0..words {
                // SAFETY: both mappings hold the block, and nothing writes it now.
                let (here, there) = unsafe { (*block(layer, page).add(i), *at.as_ptr().add(i)) };
                assert_eq!((here, there), (value(layer, page, i), value(layer, page, i)), "{layer} {page} {i}");
            }
        }
    }
}
