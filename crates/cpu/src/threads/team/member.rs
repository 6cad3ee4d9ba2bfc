//! One thread of a team, and how it takes part in phases.

use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::Ordering;

use super::{State, Stopped};
use crate::threads::item_counter::Next;

/// One thread inside a region.
pub(crate) struct Member<'a> {
    state: &'a State,
    index: usize,
    shards: Range<usize>,
    /// The number of phases that it has taken part in or missed.
    phase: Cell<u32>,
}

impl<'a> Member<'a> {
    pub(super) fn new(state: &'a State, index: usize) -> Self {
        Self { state, index, shards: state.shards_of(index), phase: Cell::new(0) }
    }

    /// Unique and below the team's size, so it can index scratch memory.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Ends the region for all members, after this phase at the latest.
    pub(crate) fn fail(&self, message: String) {
        self.state.fail(message);
    }

    /// One phase: `body` sees each of `0..items` once, on some member, lower ones first. Returns when all are done. A
    /// member that comes late finds nothing left to do; outside of `body` it must not touch what later phases write.
    pub(crate) fn each(&self, items: usize, mut body: impl FnMut(usize)) -> Result<(), Stopped> {
        self.run_phase(0..1, items, |_| items, |_, item| body(item))
    }

    /// One phase of all shards: `body` sees each item of `0..items(shard)` of each shard once, on a member of that shard.
    /// Returns when all shards are done, so what one wrote the others can read.
    pub(crate) fn each_of_shards(
        &self,
        items: impl Fn(usize) -> usize,
        body: impl FnMut(usize, usize),
    ) -> Result<(), Stopped> {
        let all = (0..self.state.shards).map(&items).sum();
        self.run_phase(self.shards.clone(), all, items, body)
    }

    /// One phase of several queues, at most one per member: each begins with its own and goes on with the others.
    pub(crate) fn each_of_queues(
        &self,
        queues: usize,
        items: impl Fn(usize) -> usize,
        body: impl FnMut(usize, usize),
    ) -> Result<(), Stopped> {
        let own = self.index % queues.max(1);
        let all = (0..queues).map(&items).sum();
        self.run_phase((own..queues).chain(0..own), all, items, body)
    }

    /// This member takes items of `queues`, in their order; the phase ends with the last of `all` items.
    #[inline]
    fn run_phase(
        &self,
        queues: impl Iterator<Item = usize> + Clone,
        all: usize,
        items: impl Fn(usize) -> usize,
        mut body: impl FnMut(usize, usize),
    ) -> Result<(), Stopped> {
        let state = self.state;
        if all == 0 {
            return Ok(());
        }
        let phase = self.phase.replace(self.phase.get() + 1);
        loop {
            let seen = state.phase.openings();
            match self.take(phase, queues.clone(), &items) {
                (queue, Next::Item(item)) => {
                    body(queue, item);
                    if state.finished.0.fetch_add(1, Ordering::AcqRel) + 1 == all {
                        state.finished.0.store(0, Ordering::Relaxed);
                        state.counters.iter().for_each(|counter| counter.next_phase(phase));
                        state.phase.open();
                    }
                }
                (_, Next::Nothing) => state.phase.wait_past(seen, &state.failed),
                (_, Next::Over) if state.failed.load(Ordering::Relaxed) => return Err(Stopped),
                (_, Next::Over) => return Ok(()),
            }
            if state.failed.load(Ordering::Relaxed) {
                return Err(Stopped);
            }
        }
    }

    /// Takes an item from the first of `queues` that has one.
    #[inline]
    fn take(&self, phase: u32, queues: impl Iterator<Item = usize>, items: impl Fn(usize) -> usize) -> (usize, Next) {
        for queue in queues {
            match self.state.counters[queue].take(phase, items(queue)) {
                Next::Nothing => {}
                next => return (queue, next),
            }
        }
        (0, Next::Nothing)
    }
}
