//! What a link has yet to send: the cursors of all its hand-offs, which take turns.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Instant;

use baton_core::PromptTimes;

use crate::cursor::{Chunk, Cursor, Delivered, Next, OnOutcome, Turn};
use crate::wire::ReservationKey;

pub(crate) struct Cursors {
    layers: u32,
    open: BTreeMap<ReservationKey, Cursor>,
    /// Had the last turn.
    served: Option<ReservationKey>,
}

impl Cursors {
    pub(crate) fn new(layers: u32) -> Self {
        Self { layers, open: BTreeMap::new(), served: None }
    }

    /// Returns the one that it takes the place of.
    pub(crate) fn open(&mut self, reservation: ReservationKey, cursor: Cursor) -> Option<OnOutcome> {
        self.open.insert(reservation, cursor).map(|replaced| replaced.on_outcome)
    }

    pub(crate) fn forget(&mut self, reservation: ReservationKey, export: u64) {
        if self.of(reservation, export).is_some() {
            self.open.remove(&reservation);
        }
    }

    pub(crate) fn push(&mut self, reservation: ReservationKey, export: u64, chunk: Chunk) {
        if let Some(cursor) = self.of(reservation, export) {
            cursor.push(chunk);
        }
    }

    pub(crate) fn finish(&mut self, reservation: ReservationKey, export: u64, times: PromptTimes) {
        if let Some(cursor) = self.of(reservation, export) {
            cursor.finish(times);
        }
    }

    fn of(&mut self, reservation: ReservationKey, export: u64) -> Option<&mut Cursor> {
        self.open.get_mut(&reservation).filter(|cursor| cursor.export == export)
    }

    /// What is to be sent now that `layers_done` layers are done. Each hand-off in turn; within one in order.
    pub(crate) fn next(&mut self, layers_done: u64) -> Next {
        let behind = self.served.map_or(Bound::Unbounded, Bound::Excluded);
        let up_to = self.served.map_or(Bound::Unbounded, Bound::Included);
        let in_turn = self.open.range((behind, Bound::Unbounded));
        let in_turn = in_turn.chain(self.open.range((Bound::Unbounded, up_to)));
        let (mut ready, mut none) = (None, Next::Nothing);
        for (&reservation, cursor) in in_turn {
            match cursor.turn(layers_done) {
                Turn::Ready => {
                    ready = Some(reservation);
                    break;
                }
                Turn::Computing => none = Next::Computing,
                Turn::Nothing => {}
            }
        }
        let Some(reservation) = ready else { return none };
        self.served = ready;
        self.open.get_mut(&reservation).map_or(none, |cursor| cursor.take(reservation, self.layers))
    }

    /// The receiver has answered an offer. Whether the prompt was still being computed then.
    pub(crate) fn taken(&mut self, reservation: ReservationKey, damaged: bool, layers_done: u64, now: Instant) -> bool {
        let last_layer = self.layers.saturating_sub(1);
        let Some(cursor) = self.open.get_mut(&reservation) else { return false };
        cursor.taken(damaged, now);
        !cursor.is_computed(last_layer, layers_done)
    }

    pub(crate) fn last_taken(&self, reservation: ReservationKey) -> Option<Instant> {
        self.open.get(&reservation).map(|cursor| cursor.last_taken)
    }

    /// The receiver has answered the end of a hand-off.
    pub(crate) fn delivered(
        &mut self,
        reservation: ReservationKey,
        verified_pages: u32,
    ) -> Option<(OnOutcome, Delivered)> {
        self.open.remove(&reservation).map(|cursor| cursor.delivered(verified_pages))
    }

    pub(crate) fn drain(&mut self) -> Vec<OnOutcome> {
        std::mem::take(&mut self.open).into_values().map(|cursor| cursor.on_outcome).collect()
    }
}

#[cfg(test)]
#[path = "cursors_tests.rs"]
mod tests;
