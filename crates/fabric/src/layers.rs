//! How far a backend's computing is. Readers are on other threads: those that send KV, and the heartbeat.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Layers that a backend has finished since it was made, over all its steps. Clones count the same layers.
///
/// It only grows. One is added as soon as K and V of a layer are final for all segments of the step, while the rest of the
/// layer goes on. Every submitted step with rows adds exactly the model's number of layers, however many forward passes it
/// takes; a step without rows adds none. So between steps the count is a multiple of that number, and with `before` read then,
/// layer `l` of the next step is final once [`done`](Self::done) is above `before + l`.
#[derive(Clone, Debug, Default)]
pub struct LayerCounter(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    done: AtomicU64,
    other_progress: AtomicU64,
}

impl LayerCounter {
    /// For backends, in the order of layers. Whoever has read the new count sees all KV that was written before this call.
    pub fn layer_done(&self) {
        self.0.done.fetch_add(1, Ordering::Release);
    }

    /// For backends: work has moved though no layer is final, as in a forward pass that is not the step's last, or while a
    /// kernel is compiled.
    pub fn other_progress(&self) {
        self.0.other_progress.fetch_add(1, Ordering::Relaxed);
    }

    /// Layers whose K and V are final.
    pub fn done(&self) -> u64 {
        self.0.done.load(Ordering::Acquire)
    }

    /// Grows with every piece of work: a backend in the middle of a step for which this stands still has hung.
    pub fn progress(&self) -> u64 {
        self.done() + self.0.other_progress.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_count_together_and_other_progress_finishes_no_layer() {
        let counter = LayerCounter::default();
        let reader = counter.clone();
        counter.layer_done();
        counter.other_progress();
        counter.layer_done();
        assert_eq!((reader.done(), reader.progress()), (2, 3));
        assert_eq!(LayerCounter::default().done(), 0);
    }
}
