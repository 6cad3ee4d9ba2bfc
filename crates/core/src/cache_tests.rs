use super::*;

fn tokens(from: u32, count: u32) -> Vec<TokenId> {
    (from..from + count).map(TokenId).collect()
}

fn chain(tokens: &[TokenId], adapter: Option<AdapterId>) -> Vec<BlockHash> {
    BlockHash::chain(tokens, adapter).collect()
}

fn block(number: u64) -> BlockHash {
    BlockHash(number.to_be_bytes())
}

fn stored(parent: Option<u64>, blocks: &[u64]) -> CacheEvent {
    CacheEvent::Stored { parent: parent.map(block), blocks: blocks.iter().copied().map(block).collect() }
}

fn removed(blocks: &[u64]) -> CacheEvent {
    CacheEvent::Removed { blocks: blocks.iter().copied().map(block).collect() }
}

/// Routers and engines of different builds must agree on these.
#[test]
fn hashes_never_change() {
    let known =
        [(None, "[f59585e5c6cce916, f3aa4a3f59158f8b]"), (Some(AdapterId(7)), "[3798b77e93447ae0, 8121b0e43a02d05a]")];
    for (adapter, expected) in known {
        assert_eq!(format!("{:?}", chain(&tokens(0, 70), adapter)), expected);
    }
}

#[test]
fn a_hash_names_the_page_what_stands_before_it_and_the_adapter() {
    let prompt = tokens(0, 100);
    let hashes = chain(&prompt, None);
    assert_eq!(hashes.len(), 3, "whole pages only");
    assert_eq!(chain(&prompt[..64], None), hashes[..2]);
    let changes: [(usize, usize); 4] = [(0, 0), (31, 0), (32, 1), (95, 2)];
    for (at, first_changed) in changes {
        let mut other = prompt.clone();
        other[at] = TokenId(5000);
        let others = chain(&other, None);
        for (page, (ours, theirs)) in hashes.iter().zip(&others).enumerate() {
            assert_eq!(ours == theirs, page < first_changed, "page {page} after a change at {at}");
        }
    }
    for adapter in [AdapterId(0), AdapterId(1)] {
        assert!(chain(&prompt, Some(adapter)).iter().zip(&hashes).all(|(ours, theirs)| ours != theirs));
    }
}

#[test]
fn blocks_of_a_chain_share_an_event() {
    let mut log = CacheLog::starting_at(5);
    log.stored(None, block(1));
    log.stored(Some(block(1)), block(2));
    log.stored(Some(block(1)), block(3));
    log.removed(block(2));
    log.removed(block(3));
    log.stored(None, block(4));
    log.stored(None, block(5));
    let events =
        vec![stored(None, &[1, 2]), stored(Some(1), &[3]), removed(&[2, 3]), stored(None, &[4]), stored(None, &[5])];
    assert_eq!(log.take(), CacheUpdate { first: 5, events });
    assert_eq!(log.take(), CacheUpdate { first: 10, events: vec![] });
}

#[test]
fn what_does_not_fit_leaves_numbers_out() {
    let mut log = CacheLog::default();
    for number in 0..LOG_BLOCKS as u64 {
        log.push(removed(&[number]));
    }
    assert_eq!(log.next(), LOG_BLOCKS as u64);
    log.removed(block(1));
    log.removed(block(2));
    assert_eq!(log.take(), CacheUpdate { first: LOG_BLOCKS as u64, events: vec![removed(&[1, 2])] });
    log.push(CacheEvent::Reset);
    log.lose(3);
    log.push(CacheEvent::Reset);
    assert_eq!(log.take(), CacheUpdate { first: LOG_BLOCKS as u64 + 5, events: vec![CacheEvent::Reset] });
}

#[test]
fn pieces_are_bounded_and_complete() {
    let long_chain = (1..=2000).map(|number| ((number > 1).then(|| block(number - 1)), block(number)));
    let events = cache_snapshot(long_chain);
    assert!(events.iter().all(|event| event.blocks() <= EVENT_BLOCKS));
    let update = CacheUpdate { first: 9, events };
    let pieces: Vec<_> = update.clone().pieces(600).collect();
    assert!(pieces.len() > 1);
    let mut next = 9;
    for piece in &pieces {
        assert_eq!(piece.first, next);
        assert!(piece.events.iter().map(CacheEvent::blocks).sum::<usize>() < 600 + EVENT_BLOCKS);
        next = piece.next();
    }
    assert_eq!(pieces.into_iter().flat_map(|piece| piece.events).collect::<Vec<_>>(), update.events);
    let nothing = CacheUpdate { first: 3, events: vec![] };
    assert_eq!(nothing.clone().pieces(600).collect::<Vec<_>>(), [nothing]);
}
