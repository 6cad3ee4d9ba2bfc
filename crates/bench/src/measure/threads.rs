//! Threads that share numbered items.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use baton_backend::BackendError;

/// Items per thread: many, like those of a step, so that a thread that the system keeps waiting does not hold up the others.
pub(super) const ITEMS_PER_THREAD: usize = 20;

/// Runs `work` for every item, each thread taking the next one when it is free. Returns the sum of what `work` returned, and how long
/// all of it took.
pub(super) fn run(
    threads: usize,
    items: usize,
    work: impl Fn(usize) -> usize + Sync,
) -> Result<(usize, Duration), BackendError> {
    let (next, total) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let take_items = || {
        loop {
            let item = next.fetch_add(1, Ordering::Relaxed);
            if item >= items {
                return;
            }
            total.fetch_add(work(item), Ordering::Relaxed);
        }
    };
    let started = Instant::now();
    let spawned = std::thread::scope(|scope| {
        let spawn = |_| std::thread::Builder::new().spawn_scoped(scope, take_items).map(drop);
        let spawned: std::io::Result<()> = (1..threads).try_for_each(spawn);
        take_items();
        spawned
    });
    let time = started.elapsed();
    spawned.map_err(|error| BackendError::Device(format!("cannot start a thread: {error}")))?;
    Ok((total.into_inner(), time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_done_once() {
        for threads in [1, 3] {
            let counts: Vec<AtomicUsize> = (0..50).map(|_| AtomicUsize::new(0)).collect();
            let (sum, _) =
                run(threads, counts.len(), |item| counts[item].fetch_add(1, Ordering::Relaxed) + item).unwrap();
            assert_eq!(sum, (0..50).sum::<usize>());
            assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
        }
    }
}
