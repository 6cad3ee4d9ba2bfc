//! The sending half: as each layer of each chunk of a prompt is done, its pages are offered to the receiver.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use baton_core::{PAGE_TOKENS, PromptTimes};

use crate::connection::{self, Origin};
use crate::counters::FabricCounters;
use crate::cursor::{Chunk, Cursor, Outcome};
use crate::error::FabricError;
use crate::expected::lock;
use crate::fence::{Fence, FenceTable};
use crate::layers::LayerCounter;
use crate::link::Link;
use crate::memory::KvMemory;
use crate::options::FabricOptions;
use crate::pace::Pace;
use crate::wire::{KvTarget, VERSION};

pub struct Sender {
    origin: Arc<Origin>,
    links: Mutex<BTreeMap<SocketAddr, Arc<Link>>>,
    exports: AtomicU64,
}

impl Sender {
    /// `layers_done` counts the layers of the backend that writes the memory.
    pub fn new(
        memory: Arc<dyn KvMemory>,
        layers_done: LayerCounter,
        options: FabricOptions,
        counters: Arc<FabricCounters>,
    ) -> Result<Self, FabricError> {
        let fences = FenceTable::new().map_err(FabricError::Memory)?;
        let origin = Arc::new(Origin { memory, layers_done, fences, counters, options, pace: Pace::default() });
        Ok(Self { origin, links: Mutex::default(), exports: AtomicU64::new(0) })
    }

    /// From now on offers leave no faster than this, over all links together: a stand-in for a slower network.
    pub fn limit(&self, bytes_per_s: u64) {
        self.origin.pace.limit(bytes_per_s);
    }

    /// Never waits: the link connects by itself, and `on_outcome` is called with an error if it cannot.
    pub fn begin(
        &self,
        target: &KvTarget,
        on_outcome: impl FnOnce(Outcome) + Send + 'static,
    ) -> Result<Export, FabricError> {
        self.check(target)?;
        let fence = self.origin.fences.open().ok_or(FabricError::TooMany)?;
        let link = self.link(target.address)?;
        let number = self.exports.fetch_add(1, Ordering::Relaxed);
        link.begin(target.reservation, Cursor::new(number, fence.mark(), Instant::now(), Box::new(on_outcome)));
        Ok(Export { link, fence, target: target.clone(), number })
    }

    pub fn check(&self, target: &KvTarget) -> Result<(), FabricError> {
        let ours = self.origin.memory.layout();
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
        let link = connection::open(address, &self.origin)?;
        links.insert(address, link.clone());
        Ok(link)
    }

    pub fn counters(&self) -> &FabricCounters {
        &self.origin.counters
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        for link in lock(&self.links).values() {
            link.close("the sender has ended");
        }
    }
}

/// One hand-off in progress. Drop it before its pages are reused: that closes the fence, and offers still on their way are
/// refused by their readers.
pub struct Export {
    link: Arc<Link>,
    #[expect(dead_code, reason = "open while it lives")]
    fence: Fence,
    target: KvTarget,
    number: u64,
}

impl Export {
    pub fn target(&self) -> &KvTarget {
        &self.target
    }

    /// The chunk's layers are offered as they become final, after those of earlier chunks. Never waits.
    pub fn offer(&self, mut chunk: Chunk) {
        // Pages that the receiver has cached already need not travel.
        let wanted = self.target.begin / PAGE_TOKENS as u32;
        let skip = wanted.saturating_sub(chunk.first_index).min(chunk.pages.len() as u32);
        chunk.pages.drain(..skip as usize);
        chunk.first_index += skip;
        self.link.push(self.target.reservation, self.number, chunk);
    }

    /// No chunk follows: when all are offered, the outcome comes. `times` is how long it took to compute, for the receiver's
    /// account.
    pub fn finish(&self, times: PromptTimes) {
        self.link.finish(self.target.reservation, self.number, times);
    }

    /// When the receiver last answered an offer, or else when the hand-off began. `None` once its outcome is known.
    pub fn last_taken(&self) -> Option<Instant> {
        self.link.last_taken(self.target.reservation)
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        self.link.forget(self.target.reservation, self.number);
    }
}
