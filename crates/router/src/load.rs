//! What this router has in flight on an engine, held by guards.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use baton_core::GenerateRequest;
use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct Load {
    sequences: AtomicU32,
    prefill_tokens: AtomicU64,
    /// Guards, also those of nothing.
    guards: AtomicU32,
    released: Notify,
}

/// This router's own share of an engine's load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    /// That generate, or have pages reserved for it.
    pub sequences: u32,
    /// Prompt tokens still to be computed, as far as this side knows.
    pub prefill_tokens: u64,
}

impl Load {
    pub(crate) fn in_flight(&self) -> InFlight {
        InFlight {
            sequences: self.sequences.load(Ordering::Relaxed),
            prefill_tokens: self.prefill_tokens.load(Ordering::Relaxed),
        }
    }

    /// Waits until no request holds a share of it.
    pub(crate) async fn idle(&self) {
        loop {
            let released = self.released.notified();
            if self.guards.load(Ordering::Acquire) == 0 {
                return;
            }
            released.await;
        }
    }

    /// `tokens` of the prompt are to be computed for an engine that will also, or only, do that.
    pub(crate) fn prefill(self: &Arc<Self>, tokens: u64) -> LoadGuard {
        self.hold(InFlight { sequences: 0, prefill_tokens: tokens })
    }

    pub(crate) fn decode(self: &Arc<Self>, request: &GenerateRequest) -> LoadGuard {
        self.hold(InFlight { sequences: request.unfinished_choices().count().max(1) as u32, prefill_tokens: 0 })
    }

    fn hold(self: &Arc<Self>, share: InFlight) -> LoadGuard {
        self.guards.fetch_add(1, Ordering::Relaxed);
        self.sequences.fetch_add(share.sequences, Ordering::Relaxed);
        self.prefill_tokens.fetch_add(share.prefill_tokens, Ordering::Relaxed);
        LoadGuard { load: Arc::clone(self), share }
    }
}

/// A request's share of an engine's load. Dropping it is the release.
pub(crate) struct LoadGuard {
    load: Arc<Load>,
    share: InFlight,
}

impl Drop for LoadGuard {
    fn drop(&mut self) {
        self.load.sequences.fetch_sub(self.share.sequences, Ordering::Relaxed);
        self.load.prefill_tokens.fetch_sub(self.share.prefill_tokens, Ordering::Relaxed);
        self.load.guards.fetch_sub(1, Ordering::Release);
        self.load.released.notify_waiters();
    }
}
