//! Merges symbols into tokens: of all adjacent pairs with a merge, the one of the lowest rank first, from left to right.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A rule that merges `left` and `right` into `token`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Merge {
    pub(crate) left: u32,
    pub(crate) right: u32,
    pub(crate) rank: u32,
    pub(crate) token: u32,
}

const NO_TOKEN: u32 = u32::MAX;
const NO_RANK: u32 = u32::MAX;
const EMPTY: Merge = Merge { left: NO_TOKEN, right: NO_TOKEN, rank: NO_RANK, token: NO_TOKEN };

/// Up to this length scanning all ranks for each merge is faster than a queue.
const SHORT_SYMBOLS: usize = 24;

/// All pairs in an open-addressing hash table that is at most half full, so most lookups read one cache line.
pub(crate) struct Merges {
    slots: Vec<Merge>,
    shift: u32,
}

/// Buffers of one thread that merges.
#[derive(Default)]
pub(crate) struct MergeScratch {
    symbols: Vec<Symbol>,
    /// Merges by rank and position; entries that are out of date are skipped.
    queue: BinaryHeap<Reverse<(u32, u32)>>,
}

impl MergeScratch {
    /// Whether the buffers are worth keeping: a text without spaces may have needed megabytes.
    pub(crate) fn is_small(&self) -> bool {
        self.symbols.capacity() <= 1 << 14
    }
}

#[derive(Clone, Copy)]
struct Symbol {
    token: u32,
    /// The rank of merging it with the next symbol, and the token that results.
    rank: u32,
    joined: u32,
    previous: u32,
    next: u32,
}

const END: u32 = u32::MAX;

impl Merges {
    /// The last of several entries for one pair counts.
    pub(crate) fn new(merges: impl ExactSizeIterator<Item = Merge>) -> Self {
        let slots = (merges.len() * 2).next_power_of_two().max(2);
        let mut this = Self { slots: vec![EMPTY; slots], shift: u64::BITS - slots.ilog2() };
        for merge in merges {
            let slot = this.slot(merge.left, merge.right);
            this.slots[slot] = merge;
        }
        this
    }

    /// The index of the pair, or of the slot where it would be.
    #[inline]
    fn slot(&self, left: u32, right: u32) -> usize {
        let pair = u64::from(left) << 32 | u64::from(right);
        let mut slot =
            (pair.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ pair << 7).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> self.shift;
        loop {
            let found = &self.slots[slot as usize];
            if found.left == left && found.right == right || found.left == NO_TOKEN {
                return slot as usize;
            }
            slot = (slot + 1) & (self.slots.len() as u64 - 1);
        }
    }

    #[inline]
    fn join(&self, left: u32, right: u32) -> (u32, u32) {
        let found = &self.slots[self.slot(left, right)];
        (found.rank, found.token)
    }

    /// Appends the tokens of one word.
    pub(crate) fn merge(
        &self,
        symbols: impl Iterator<Item = u32>,
        scratch: &mut MergeScratch,
        mut push: impl FnMut(u32),
    ) {
        let word = &mut scratch.symbols;
        word.clear();
        word.extend(symbols.map(|token| Symbol { token, rank: NO_RANK, joined: NO_TOKEN, previous: END, next: END }));
        for at in 1..word.len() {
            (word[at - 1].rank, word[at - 1].joined) = self.join(word[at - 1].token, word[at].token);
        }
        if word.len() <= SHORT_SYMBOLS {
            self.merge_short(word);
            word.iter().for_each(|symbol| push(symbol.token));
        } else {
            self.merge_long(scratch);
            let mut at = 0;
            while let Some(symbol) = scratch.symbols.get(at as usize) {
                push(symbol.token);
                at = symbol.next;
            }
        }
    }

    fn merge_short(&self, word: &mut Vec<Symbol>) {
        loop {
            let mut best = (NO_RANK, 0);
            for (at, symbol) in word.iter().enumerate() {
                if symbol.rank < best.0 {
                    best = (symbol.rank, at);
                }
            }
            let (rank, at) = best;
            if rank == NO_RANK {
                return;
            }
            word[at].token = word[at].joined;
            word.remove(at + 1);
            self.rank_again(word, at);
            if at > 0 {
                self.rank_again(word, at - 1);
            }
        }
    }

    #[inline]
    fn rank_again(&self, word: &mut [Symbol], at: usize) {
        (word[at].rank, word[at].joined) = match word.get(at + 1) {
            Some(next) => self.join(word[at].token, next.token),
            None => (NO_RANK, NO_TOKEN),
        };
    }

    /// Uses a linked list in place: a merged symbol takes the place of its left part.
    fn merge_long(&self, scratch: &mut MergeScratch) {
        let MergeScratch { symbols: word, queue } = scratch;
        queue.clear();
        let len = word.len() as u32;
        for (symbol, at) in word.iter_mut().zip(0..) {
            symbol.previous = if at == 0 { END } else { at - 1 };
            symbol.next = if at + 1 == len { END } else { at + 1 };
            if symbol.rank != NO_RANK {
                queue.push(Reverse((symbol.rank, at)));
            }
        }
        while let Some(Reverse((rank, at))) = queue.pop() {
            let left = word[at as usize];
            // Out of date: the symbol was merged since. A removed symbol has no rank.
            if left.rank != rank {
                continue;
            }
            let right = word[left.next as usize];
            word[left.next as usize].rank = NO_RANK;
            let symbol = &mut word[at as usize];
            symbol.token = left.joined;
            symbol.next = right.next;
            if let Some(next) = word.get_mut(right.next as usize) {
                next.previous = at;
            }
            for changed in [at, left.previous] {
                let Some(&symbol) = word.get(changed as usize) else { continue };
                let (rank, joined) = match word.get(symbol.next as usize) {
                    Some(next) => self.join(symbol.token, next.token),
                    None => (NO_RANK, NO_TOKEN),
                };
                word[changed as usize].rank = rank;
                word[changed as usize].joined = joined;
                if rank != NO_RANK {
                    queue.push(Reverse((rank, changed)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition of merging, without optimizations.
    fn plainly(merges: &[Merge], word: &[u32]) -> Vec<u32> {
        let mut word = word.to_vec();
        loop {
            let joins = (1..word.len()).filter_map(|at| {
                let merge = merges.iter().rfind(|merge| (merge.left, merge.right) == (word[at - 1], word[at]))?;
                Some((merge.rank, at, merge.token))
            });
            let Some((_, at, token)) = joins.min() else { return word };
            word[at - 1] = token;
            word.remove(at);
        }
    }

    #[test]
    fn short_and_long_words_merge_by_rank_and_position() {
        let mut state = 1u64;
        let mut random = |bound: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) as u32) % bound
        };
        let mut joined = 0;
        for _ in 0..400 {
            // Few symbols and several pairs of one rank, so most merges compete with others.
            let alphabet = 2 + random(3);
            let merges: Vec<Merge> = (0..12)
                .map(|token| Merge {
                    left: random(alphabet + token),
                    right: random(alphabet + token),
                    rank: random(10),
                    token: alphabet + token,
                })
                .collect();
            let word: Vec<u32> = (0..random(80)).map(|_| random(alphabet)).collect();
            let mut tokens = Vec::new();
            let table = Merges::new(merges.iter().copied());
            table.merge(word.iter().copied(), &mut MergeScratch::default(), |token| tokens.push(token));
            assert_eq!(tokens, plainly(&merges, &word), "{merges:?} {word:?}");
            joined += word.len() - tokens.len();
        }
        assert!(joined > 1000, "{joined}");
    }
}
