//! What this router has in flight on an engine, held by guards.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use baton_core::GenerateRequest;

#[derive(Default)]
pub(crate) struct Load {
    sequences: AtomicU32,
}

impl Load {
    pub(crate) fn sequences(&self) -> u32 {
        self.sequences.load(Ordering::Relaxed)
    }
}

/// A request's share of an engine's load. Dropping it is the release.
pub struct LoadGuard {
    load: Arc<Load>,
    sequences: u32,
}

impl LoadGuard {
    pub(crate) fn hold(load: &Arc<Load>, request: &GenerateRequest) -> Self {
        let sequences = request.ended.iter().filter(|ended| !**ended).count() as u32;
        load.sequences.fetch_add(sequences, Ordering::Relaxed);
        Self { load: Arc::clone(load), sequences }
    }
}

impl Drop for LoadGuard {
    fn drop(&mut self) {
        self.load.sequences.fetch_sub(self.sequences, Ordering::Relaxed);
    }
}
