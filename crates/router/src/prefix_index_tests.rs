use baton_core::TokenId;

use super::*;

fn chain(first: u32, pages: usize) -> Vec<BlockHash> {
    let tokens: Vec<_> = (first..).take(32 * pages).map(TokenId).collect();
    BlockHash::chain(&tokens, None).collect()
}

fn stored(blocks: &[BlockHash]) -> CacheEvent {
    CacheEvent::Stored { parent: None, blocks: blocks.to_vec() }
}

fn removed(blocks: &[BlockHash]) -> CacheEvent {
    CacheEvent::Removed { blocks: blocks.to_vec() }
}

#[test]
fn an_index_follows_events_and_waits_for_a_snapshot_after_a_gap() {
    let (a, b) = (chain(0, 8), chain(1000, 8));
    let reset = || CacheEvent::Reset;
    let gap = |expected, got| Err(Gap { expected, got });
    // What happens, the update, the outcome, and how much of both chains is held then.
    let cases = [
        ("changes before the first snapshot", 0, vec![stored(&a)], Ok(()), (0, 0)),
        ("the snapshot", 1, vec![reset(), stored(&a[..5])], Ok(()), (5, 0)),
        ("its second part", 3, vec![stored(&b[..2])], Ok(()), (5, 2)),
        ("nothing has changed", 4, vec![], Ok(()), (5, 2)),
        ("a leaf goes, two come", 4, vec![removed(&a[4..5]), stored(&b[2..4])], Ok(()), (4, 4)),
        ("two events are lost", 8, vec![removed(&a[..4])], gap(6, 8), (4, 4)),
        ("what comes before the snapshot", 9, vec![stored(&b[4..])], Ok(()), (4, 4)),
        ("the snapshot leaves numbers out", 15, vec![reset(), stored(&b[..6])], Ok(()), (0, 6)),
        ("an empty update shows a loss too", 20, vec![], gap(17, 20), (0, 6)),
        ("and a snapshot that is lost", 23, vec![stored(&a)], gap(20, 23), (0, 6)),
        ("a snapshot behind other events", 25, vec![removed(&b[5..]), reset(), stored(&a)], Ok(()), (8, 0)),
        ("everything goes", 28, vec![reset()], Ok(()), (0, 0)),
    ];
    let index = PrefixIndex::new(100);
    for (what, first, events, outcome, held) in cases {
        assert_eq!(index.apply(&CacheUpdate { first, events }), outcome, "{what}");
        assert_eq!((index.matching(&a), index.matching(&b)), held, "{what}");
        assert_eq!(index.blocks(), held.0 + held.1, "{what}");
    }
}

#[test]
fn an_index_holds_no_more_than_its_engine_has_pages() {
    let index = PrefixIndex::new(6);
    let (a, b) = (chain(0, 4), chain(1000, 4));
    index.apply(&CacheUpdate { first: 0, events: vec![CacheEvent::Reset, stored(&a), stored(&b)] }).unwrap();
    assert_eq!((index.blocks(), index.matching(&a), index.matching(&b)), (6, 4, 2));
    assert!(index.holds(b[1]) && !index.holds(b[2]));
}
