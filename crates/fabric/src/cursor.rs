//! What a link has yet to send: one cursor per hand-off, at the piece that is offered next. However far a receiver falls behind,
//! a hand-off takes no more memory than the page ids of its prompt.
//!
//! ```text
//!              chunk 0   chunk 1          chunk 2
//!   layer 0    offered   offered          being computed
//!   layer 1    offered   ◀ cursor
//!   layer 2    offered   being computed
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::time::Instant;

use baton_core::{PageId, PromptTimes};

use crate::fence::FenceMark;
use crate::wire::ReservationKey;

/// More pages of a layer are offered in several pieces, so that what has arrived is noticed on slow connections, too.
const MAX_PAGES_PER_OFFER: usize = 64;

/// Consecutive pages of a sequence that become final together.
#[derive(Clone, Debug)]
pub struct Chunk {
    pub first_index: u32,
    pub pages: Vec<PageId>,
    pub computed: Computed,
    /// No chunk follows.
    pub last: bool,
}

/// When the layers of a chunk are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Computed {
    Already,
    /// Layer `l` is once the backend has done more than `before + l` layers.
    AfterLayers {
        before: u64,
    },
}

impl Computed {
    fn includes(self, layer: u32, layers_done: u64) -> bool {
        match self {
            Self::Already => true,
            Self::AfterLayers { before } => layers_done > before + u64::from(layer),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// From the target's `begin` on.
    pub verified_pages: u32,
    /// Bytes changed after they were summed: what lies in the sender's memory is not to be trusted either.
    pub damaged: bool,
}

/// What became of a hand-off, or why there is no answer.
pub type Outcome = Result<Delivered, String>;
pub(crate) type OnOutcome = Box<dyn FnOnce(Outcome) + Send>;

/// One layer of some pages, final and yet to be summed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) reservation: ReservationKey,
    pub(crate) fence: FenceMark,
    pub(crate) layer: u32,
    pub(crate) first_index: u32,
    pub(crate) pages: Vec<PageId>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Offer(Piece),
    Finish {
        reservation: ReservationKey,
        times: PromptTimes,
    },
    /// What comes next is not final yet.
    Computing,
    Nothing,
}

/// All hand-offs of a link, which take turns.
pub(crate) struct Cursors {
    layers: u32,
    open: BTreeMap<ReservationKey, Cursor>,
    /// Had the last turn.
    served: Option<ReservationKey>,
}

pub(crate) struct Cursor {
    /// Tells this export from another one to the same reservation.
    export: u64,
    fence: FenceMark,
    chunks: VecDeque<Chunk>,
    /// Where in the first of `chunks`.
    layer: u32,
    page: usize,
    finish: Option<PromptTimes>,
    /// When the last chunk is final; `None` until it is known.
    all_computed: Option<Computed>,
    /// Some of it arrived damaged.
    damaged: bool,
    last_taken: Instant,
    on_outcome: OnOutcome,
}

impl Cursor {
    pub(crate) fn new(export: u64, fence: FenceMark, now: Instant, on_outcome: OnOutcome) -> Self {
        Self {
            export,
            fence,
            chunks: VecDeque::new(),
            layer: 0,
            page: 0,
            finish: None,
            all_computed: None,
            damaged: false,
            last_taken: now,
            on_outcome,
        }
    }

    fn turn(&self, layers_done: u64) -> Turn {
        match self.chunks.front() {
            Some(chunk) if chunk.computed.includes(self.layer, layers_done) => Turn::Ready,
            Some(_) => Turn::Computing,
            None if self.finish.is_some() => Turn::Ready,
            None => Turn::Nothing,
        }
    }

    fn take(&mut self, reservation: ReservationKey, layers: u32) -> Next {
        let Some(chunk) = self.chunks.front() else {
            return self.finish.take().map_or(Next::Nothing, |times| Next::Finish { reservation, times });
        };
        let end = chunk.pages.len().min(self.page + MAX_PAGES_PER_OFFER);
        let piece = Piece {
            reservation,
            fence: self.fence,
            layer: self.layer,
            first_index: chunk.first_index + self.page as u32,
            pages: chunk.pages[self.page..end].to_vec(),
        };
        self.page = end;
        if end == chunk.pages.len() {
            (self.layer, self.page) = (self.layer + 1, 0);
        }
        if self.layer == layers {
            self.chunks.pop_front();
            self.layer = 0;
        }
        Next::Offer(piece)
    }
}

enum Turn {
    Ready,
    Computing,
    Nothing,
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
        let Some(cursor) = self.of(reservation, export) else { return };
        if chunk.last {
            cursor.all_computed = Some(chunk.computed);
        }
        if !chunk.pages.is_empty() {
            cursor.chunks.push_back(chunk);
        }
    }

    pub(crate) fn finish(&mut self, reservation: ReservationKey, export: u64, times: PromptTimes) {
        if let Some(cursor) = self.of(reservation, export) {
            cursor.finish = Some(times);
        }
    }

    fn of(&mut self, reservation: ReservationKey, export: u64) -> Option<&mut Cursor> {
        self.open.get_mut(&reservation).filter(|cursor| cursor.export == export)
    }

    /// What is to be sent now that so many layers are done. Each hand-off in turn; within one in order.
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
        cursor.damaged |= damaged;
        cursor.last_taken = now;
        cursor.all_computed.is_none_or(|computed| !computed.includes(last_layer, layers_done))
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
        let Cursor { on_outcome, damaged, .. } = self.open.remove(&reservation)?;
        Some((on_outcome, Delivered { verified_pages, damaged }))
    }

    pub(crate) fn drain(&mut self) -> Vec<OnOutcome> {
        std::mem::take(&mut self.open).into_values().map(|cursor| cursor.on_outcome).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYERS: u32 = 2;
    const FENCE: FenceMark = FenceMark { slot: 0, generation: 0 };

    fn key(id: u64) -> ReservationKey {
        ReservationKey { id, key: 7 }
    }

    fn cursors(ids: &[u64]) -> Cursors {
        let mut cursors = Cursors::new(LAYERS);
        for &id in ids {
            cursors.open(key(id), Cursor::new(id, FENCE, Instant::now(), Box::new(|_| ())));
        }
        cursors
    }

    fn chunk(first_index: u32, pages: u32, computed: Computed) -> Chunk {
        Chunk { first_index, pages: (first_index..first_index + pages).map(PageId).collect(), computed, last: false }
    }

    fn after(before: u64) -> Computed {
        Computed::AfterLayers { before }
    }

    /// `reservation: layer of pages`, or what else there is to do.
    fn show(next: &Next) -> String {
        match next {
            Next::Offer(Piece { reservation, layer, first_index, pages, .. }) => {
                format!("{}: layer {layer} of {first_index}..{}", reservation.id, first_index + pages.len() as u32)
            }
            Next::Finish { reservation, .. } => format!("{}: finish", reservation.id),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn a_layer_is_offered_once_it_is_final_and_chunks_keep_their_order() {
        let mut cursors = cursors(&[1]);
        cursors.push(key(1), 1, chunk(0, 3, Computed::Already));
        cursors.push(key(1), 1, chunk(3, 2, after(10)));
        cursors.push(key(1), 1, chunk(5, 1, after(12)));
        cursors.finish(key(1), 1, PromptTimes::default());
        for (layers_done, expected) in [
            (10, "1: layer 0 of 0..3"),
            (10, "1: layer 1 of 0..3"),
            (10, "Computing"),
            (11, "1: layer 0 of 3..5"),
            (11, "Computing"),
            (14, "1: layer 1 of 3..5"),
            (14, "1: layer 0 of 5..6"),
            (14, "1: layer 1 of 5..6"),
            (14, "1: finish"),
            (99, "Nothing"),
        ] {
            assert_eq!(show(&cursors.next(layers_done)), expected, "after {layers_done} layers");
        }
    }

    #[test]
    fn hand_offs_take_turns_and_none_waits_for_one_that_is_being_computed() {
        let mut cursors = cursors(&[1, 2, 3]);
        cursors.push(key(1), 1, chunk(0, 1, Computed::Already));
        cursors.push(key(2), 2, chunk(0, 1, after(50)));
        cursors.push(key(3), 3, chunk(0, 1, Computed::Already));
        let order: Vec<_> = (0..5).map(|_| show(&cursors.next(0))).collect();
        let expected =
            ["1: layer 0 of 0..1", "3: layer 0 of 0..1", "1: layer 1 of 0..1", "3: layer 1 of 0..1", "Computing"];
        assert_eq!(order, expected);
        cursors.forget(key(2), 2);
        assert_eq!(cursors.next(0), Next::Nothing);
    }

    #[test]
    fn many_pages_go_in_pieces() {
        let mut cursors = cursors(&[1]);
        cursors.push(key(1), 1, chunk(10, 150, Computed::Already));
        let order: Vec<_> = (0..7).map(|_| show(&cursors.next(0))).collect();
        let layer = |layer| [10, 74, 138].map(|at| format!("1: layer {layer} of {at}..{}", (at + 64).min(160)));
        assert_eq!(order, [&layer(0)[..], &layer(1), &["Nothing".to_owned()]].concat());
    }

    #[test]
    fn what_was_taken_before_the_last_layer_was_computed_is_early() {
        let mut cursors = cursors(&[1]);
        let now = Instant::now();
        assert!(cursors.taken(key(1), false, 99, now), "the last chunk is not known yet");
        cursors.push(key(1), 1, Chunk { last: true, ..chunk(0, 0, after(10)) });
        assert_eq!(cursors.next(99), Next::Nothing, "a chunk without a page of its own");
        assert!(cursors.taken(key(1), true, 11, now) && !cursors.taken(key(1), false, 12, now));
        let (_, delivered) = cursors.delivered(key(1), 5).unwrap();
        assert_eq!(delivered, Delivered { verified_pages: 5, damaged: true });
        assert!(!cursors.taken(key(1), false, 0, now));
    }

    #[test]
    fn an_older_export_does_not_touch_a_newer_one_to_the_same_reservation() {
        let mut cursors = cursors(&[1]);
        let newer = Cursor::new(2, FENCE, Instant::now(), Box::new(|_| ()));
        assert!(cursors.open(key(1), newer).is_some());
        cursors.push(key(1), 1, chunk(0, 1, Computed::Already));
        cursors.finish(key(1), 1, PromptTimes::default());
        cursors.forget(key(1), 1);
        assert_eq!(cursors.next(0), Next::Nothing);
        assert_eq!(cursors.drain().len(), 1);
    }
}
