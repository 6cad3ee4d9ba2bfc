//! The sending half: as each layer of each chunk of a prompt is done, its pages are offered to the receiver.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use baton_core::{PAGE_TOKENS, PageId, PromptTimes};

use crate::counters::FabricCounters;
use crate::error::FabricError;
use crate::fence::{Fence, FenceTable};
use crate::inbox::lock;
use crate::link::{Job, Link, Origin, Outcome, Pending};
use crate::options::FabricOptions;
use crate::pace::Pace;
use crate::pool::KvPool;
use crate::wire::{KvTarget, VERSION};

pub struct Sender {
    origin: Arc<Origin>,
    links: Mutex<BTreeMap<SocketAddr, Arc<Link>>>,
}

impl Sender {
    pub fn new(pool: Arc<KvPool>, options: FabricOptions, counters: Arc<FabricCounters>) -> Result<Self, FabricError> {
        let fences = FenceTable::new().map_err(FabricError::Memory)?;
        let origin = Arc::new(Origin { pool, fences, counters, options, pace: Pace::default() });
        Ok(Self { origin, links: Mutex::default() })
    }

    /// From now on offers leave no faster than this, over all links together: a stand-in for a slower network.
    pub fn limit(&self, bytes_per_s: u64) {
        self.origin.pace.limit(bytes_per_s);
    }

    /// Never waits: the link connects by itself, and says through `on_outcome` if it cannot.
    pub fn begin(
        &self,
        target: &KvTarget,
        on_outcome: impl FnOnce(Outcome) + Send + 'static,
    ) -> Result<Export, FabricError> {
        self.check(target)?;
        let fence = self.origin.fences.open().ok_or(FabricError::TooMany)?;
        let link = self.link(target.address)?;
        let last_layer_done = Arc::new(AtomicBool::new(false));
        let pending =
            Pending { on_outcome: Box::new(on_outcome), last_layer_done: last_layer_done.clone(), damaged: false };
        link.expect_outcome(target.reservation, pending);
        Ok(Export { link, fence, target: target.clone(), last_layer_done, layers: self.origin.pool.layout().layers })
    }

    pub fn check(&self, target: &KvTarget) -> Result<(), FabricError> {
        let ours = self.origin.pool.layout();
        let differs = |what, ours: &dyn std::fmt::Debug, theirs: &dyn std::fmt::Debug| {
            Err(FabricError::Mismatch { what, ours: format!("{ours:?}"), theirs: format!("{theirs:?}") })
        };
        if target.version != VERSION {
            return differs("KV protocol version", &VERSION, &target.version);
        }
        let numerics_id = &self.origin.options.numerics_id;
        if target.numerics_id != *numerics_id {
            return differs("numerics id", numerics_id, &target.numerics_id);
        }
        if target.layout != *ours || target.page_tokens != PAGE_TOKENS as u32 {
            return differs("KV layout", ours, &target.layout);
        }
        Ok(())
    }

    fn link(&self, address: SocketAddr) -> Result<Arc<Link>, FabricError> {
        let mut links = lock(&self.links);
        links.retain(|_, link| link.is_alive());
        if let Some(link) = links.get(&address) {
            return Ok(link.clone());
        }
        let link = Link::open(address, &self.origin)?;
        links.insert(address, link.clone());
        Ok(link)
    }

    pub fn counters(&self) -> &FabricCounters {
        &self.origin.counters
    }
}

/// One hand-off in progress. Drop it before its pages are reused: that closes the fence, and offers still on their way are
/// refused by whoever reads them.
pub struct Export {
    link: Arc<Link>,
    fence: Fence,
    target: KvTarget,
    last_layer_done: Arc<AtomicBool>,
    layers: u32,
}

impl Export {
    pub fn target(&self) -> &KvTarget {
        &self.target
    }

    /// Layer `layer` of the pages `first_index ..` of the sequence is final. `last` when no more chunks follow.
    pub fn layer_done(&self, layer: u32, first_index: u32, pages: &[PageId], last: bool) {
        if last && layer + 1 == self.layers {
            self.last_layer_done.store(true, Ordering::Release);
        }
        // Pages that the receiver has cached already need not travel.
        let wanted = self.target.begin / PAGE_TOKENS as u32;
        let skip = wanted.saturating_sub(first_index).min(pages.len() as u32);
        let pages = &pages[skip as usize..];
        if !pages.is_empty() {
            self.link.enqueue(Job::Offer {
                reservation: self.target.reservation,
                fence: self.fence.mark(),
                layer,
                first_index: first_index + skip,
                pages: pages.to_vec(),
            });
        }
    }

    /// Everything was offered: the outcome follows. `times` is how long it took to compute, for the receiver's account.
    pub fn finish(&self, times: PromptTimes) {
        self.link.enqueue(Job::Finish { reservation: self.target.reservation, times });
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        self.link.forget(self.target.reservation);
    }
}
