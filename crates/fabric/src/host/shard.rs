use std::io;

use baton_core::PageId;

use crate::layout::ShardLayout;
use crate::region::Region;

/// The heads of one tensor-parallel shard, of all pages.
pub struct HostShard {
    pub layout: ShardLayout,
    pub region: Region,
}

impl HostShard {
    pub(super) fn new(layout: ShardLayout) -> io::Result<Self> {
        let region = Region::new(layout.bytes())?;
        Ok(Self { layout, region })
    }

    /// One page of one layer.
    pub fn block(&self, layer: u32, page: PageId) -> *mut u8 {
        assert!(layer < self.layout.kv.layers && page.0 < self.layout.pages, "block outside the memory");
        // SAFETY: checked above; `block_at` of a valid block lies inside the region.
        unsafe { self.region.base().as_ptr().add(self.layout.block_at(layer, page)) }
    }
}
