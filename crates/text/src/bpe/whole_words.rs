//! Words that are tokens as a whole, whatever the merges would give (`ignore_merges`).

use std::sync::Arc;

use baton_core::TokenId;

use crate::Vocabulary;

const NONE: u32 = u32::MAX;

/// Ids in an open-addressing table by the hash of their bytes, which the vocabulary holds.
pub(crate) struct WholeWords {
    slots: Vec<u32>,
    vocabulary: Arc<Vocabulary>,
}

impl WholeWords {
    pub(crate) fn new(ids: impl ExactSizeIterator<Item = u32>, vocabulary: Arc<Vocabulary>) -> Self {
        let slots = vec![NONE; (ids.len() * 2).next_power_of_two().max(2)];
        let mut this = Self { slots, vocabulary };
        for id in ids {
            let slot = this.slot(this.vocabulary.bytes(TokenId(id)));
            this.slots[slot] = id;
        }
        this
    }

    pub(crate) fn token(&self, word: &[u8]) -> Option<u32> {
        let id = self.slots[self.slot(word)];
        (id != NONE).then_some(id)
    }

    fn slot(&self, word: &[u8]) -> usize {
        let mask = self.slots.len() - 1;
        let hash = word
            .iter()
            .fold(0xCBF2_9CE4_8422_2325u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3));
        let mut slot = (hash ^ hash >> 32) as usize & mask;
        while self.slots[slot] != NONE && self.vocabulary.bytes(TokenId(self.slots[slot])) != word {
            slot = (slot + 1) & mask;
        }
        slot
    }
}
