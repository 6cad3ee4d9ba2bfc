//! How far a backend's computing is. Readers are on other threads: those that send KV, and the heartbeat.

use std::fmt;
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

#[derive(Default)]
struct Counts {
    done: AtomicU64,
    device_done: Option<ReadCount>,
    other_progress: AtomicU64,
    within_layer: Option<ReadCount>,
}

type ReadCount = Box<dyn Fn() -> u64 + Send + Sync>;

impl LayerCounter {
    /// For backends whose layers may take seconds: what `within_layer` returns is another number after each piece of one.
    pub fn with_pieces(within_layer: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(Counts { within_layer: Some(Box::new(within_layer)), ..Counts::default() }))
    }

    /// For devices that count finished layers themselves, in memory that the host can read: `device_done` reads it. It must
    /// be a load with acquire order, and KV that the device wrote before must be visible to who reads it then.
    pub fn of_device(device_done: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(Counts { device_done: Some(Box::new(device_done)), ..Counts::default() }))
    }

    /// For backends, in the order of layers. A reader of the new count sees all KV that was written before this call.
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
        self.0.done.load(Ordering::Acquire) + self.0.device_done.as_ref().map_or(0, |count| count())
    }

    /// Changes with every piece of work: a backend in the middle of a step for which this stays the same has hung.
    pub fn progress(&self) -> u64 {
        let within_layer = self.0.within_layer.as_ref().map_or(0, |count| count());
        let layers = self.done() + self.0.other_progress.load(Ordering::Relaxed);
        layers.wrapping_add(within_layer)
    }
}

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counts")
            .field("done", &self.done)
            .field("other_progress", &self.other_progress)
            .finish_non_exhaustive()
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

    #[test]
    fn pieces_are_progress_but_no_layers() {
        let pieces = Arc::new(AtomicU64::new(7));
        let counter = LayerCounter::with_pieces({
            let pieces = Arc::clone(&pieces);
            move || pieces.load(Ordering::Relaxed)
        });
        let before = counter.progress();
        pieces.fetch_add(1, Ordering::Relaxed);
        assert_ne!(counter.progress(), before);
        assert_eq!(counter.done(), 0);
    }
}
