//! Which piece is offered next.

use baton_core::PageId;

use super::*;
use crate::cursor::{Computed, Piece};
use crate::fence::FenceMark;

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
