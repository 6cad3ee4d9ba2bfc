//! A page arrives whole, with the sums that its sender offers, whichever way it takes and however the heads are shared out.

use baton_core::PageId;

use super::*;
use crate::host::HostShard;
use crate::layout::PageOrder;

const LAYERS: u32 = 2;
const PAGES: u32 = 4;

fn memory(order: PageOrder, head_dim: u32, shards: u32) -> Arc<HostMemory> {
    let layout = KvLayout { order, layers: LAYERS, kv_heads: 4, head_dim };
    Arc::new(HostMemory::new(layout, PAGES, shards).unwrap())
}

fn head(shard: &HostShard, (layer, page): (u32, PageId), half: Half, head: u32) -> *mut [u8] {
    let first = shard.block(layer, page).wrapping_add(shard.layout.head_in_block(half, head));
    std::ptr::slice_from_raw_parts_mut(first, shard.layout.kv.head_bytes())
}

/// What one page and layer holds of a head.
fn bytes_of(shard: &HostShard, at: (u32, PageId), half: Half, number: u32) -> Vec<u8> {
    // SAFETY: one head inside of a block, and one thread.
    unsafe { &*head(shard, at, half, number) }.to_vec()
}

fn every_head(memory: &HostMemory) -> impl Iterator<Item = (&HostShard, Half, u32)> {
    let heads = |shard: &HostShard| shard.layout.heads.clone();
    let halves = |(shard, head)| [(shard, Half::Keys, head), (shard, Half::Values, head)];
    memory.shards().iter().flat_map(move |shard| heads(shard).map(move |head| (shard, head))).flat_map(halves)
}

fn value(layer: u32, page: PageId, half: Half, head: u32, at: usize) -> u8 {
    (layer as usize * 131 + page.index() * 31 + (half == Half::Values) as usize * 17 + head as usize * 7 + at * 3) as u8
}

fn fill(memory: &HostMemory, layer: u32, page: PageId) {
    for (shard, half, number) in every_head(memory) {
        // SAFETY: one head inside of a block, and one thread.
        let bytes = unsafe { &mut *head(shard, (layer, page), half, number) };
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = value(layer, page, half, number, at);
        }
    }
}

/// All holders of each head have what page `source` was filled with.
fn holds(memory: &HostMemory, layer: u32, page: PageId, source: PageId) -> bool {
    every_head(memory).all(|(shard, half, number)| {
        let bytes = bytes_of(shard, (layer, page), half, number);
        bytes.iter().enumerate().all(|(at, byte)| *byte == value(layer, source, half, number, at))
    })
}

#[test]
fn copied_or_sent_a_page_has_the_sums_that_were_offered() {
    use PageOrder::{InterleavedBf16, InterleavedInt8, PlainF32};
    let shards = [1, 2, 4, 8];
    for (order, head_dim) in [(PlainF32, 3), (InterleavedBf16, 22), (InterleavedInt8, 16), (InterleavedInt8, 80)] {
        for (from_shards, to_shards) in shards.into_iter().flat_map(|from| shards.map(|to| (from, to))) {
            let (from, to) = (memory(order, head_dim, from_shards), memory(order, head_dim, to_shards));
            let (theirs, ours) = ([PageId(3), PageId(1)], [PageId(0), PageId(2)]);
            theirs.iter().for_each(|page| fill(&from, 1, *page));
            let label = format!("{order:?}, {from_shards} → {to_shards} shards");
            let offered = KvMemory::sum(&*from, 1, &theirs).unwrap();
            let addresses = from.addresses();
            assert_eq!(offered.len(), 2 * addresses.len(), "{label}");

            let mut peer = Arc::clone(&to).open_peer(&addresses).unwrap();
            // SAFETY: one thread.
            let copied = unsafe { peer.copy(1, &[(theirs[0], ours[0]), (theirs[1], ours[1])]) }.unwrap();
            assert_eq!(copied, offered, "{label}");
            assert!(ours.iter().zip(theirs).all(|(ours, theirs)| holds(&to, 1, *ours, theirs)), "{label}");

            let mut sent = Vec::new();
            from.send(1, &theirs, &mut sent).unwrap();
            let (mut input, mut received) = (&sent[..], Vec::new());
            let layouts: Vec<_> = addresses.into_iter().map(|shard| shard.layout).collect();
            for page in [ours[1], ours[0]] {
                // SAFETY: one thread.
                received.extend(unsafe { to.receive(&layouts, 1, page, &mut input) }.unwrap());
            }
            assert_eq!((received, input.len()), (offered, 0), "{label}");
            assert!(
                [ours[1], ours[0]].iter().zip(theirs).all(|(ours, theirs)| holds(&to, 1, *ours, theirs)),
                "{label}"
            );
            let untouched =
                |page| every_head(&to).all(|(s, half, h)| bytes_of(s, (0, page), half, h).iter().all(|b| *b == 0));
            assert!((0..PAGES).map(PageId).all(untouched), "{label}: another layer was written");
        }
    }
}

#[test]
fn pages_that_a_peer_does_not_have_are_an_error() {
    let (from, to) = (memory(PageOrder::PlainF32, 4, 1), memory(PageOrder::PlainF32, 4, 2));
    let mut peer = Arc::clone(&to).open_peer(&from.addresses()).unwrap();
    for page in [PAGES, u32::MAX] {
        // SAFETY: one thread.
        let error = unsafe { peer.copy(0, &[(PageId(page), PageId(0))]) }.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "page {page}");
    }
    // SAFETY: one thread.
    let error = unsafe { to.receive(&from.shard_layouts(), 0, PageId(0), &mut &[0; 100][..]) }.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "a page that ends early");
}
