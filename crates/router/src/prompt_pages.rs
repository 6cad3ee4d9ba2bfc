//! A prompt as prefix caches name it: the hashes of its whole pages.

use std::sync::{Arc, OnceLock};

use baton_core::{AdapterId, BlockHash, GenerateRequest, PAGE_TOKENS, TokenId};

use crate::prefix_index::PrefixIndex;

/// Hashed once, however many engines and attempts it is compared for.
pub(crate) struct PromptPages {
    prompt: Arc<[TokenId]>,
    adapter: Option<AdapterId>,
    /// Nothing is taken from a prefix cache.
    needs_whole_prompt: bool,
    hashes: OnceLock<Vec<BlockHash>>,
}

impl PromptPages {
    pub(crate) fn of(request: &GenerateRequest) -> Self {
        Self {
            prompt: Arc::clone(&request.prompt),
            adapter: request.adapter,
            needs_whole_prompt: request.needs_whole_prompt(),
            hashes: OnceLock::new(),
        }
    }

    /// How much of the prompt an engine would take from its prefix cache, by what is known of it. The last token is never
    /// part of that: its logits are needed.
    pub(crate) fn cached_tokens(&self, cached: &PrefixIndex) -> u32 {
        if self.needs_whole_prompt || cached.blocks() == 0 {
            return 0;
        }
        (cached.matching(self.hashes()) * PAGE_TOKENS) as u32
    }

    pub(crate) fn uncached_tokens(&self, cached: &PrefixIndex) -> u64 {
        self.prompt.len() as u64 - u64::from(self.cached_tokens(cached))
    }

    fn hashes(&self) -> &[BlockHash] {
        let matchable = &self.prompt[..self.prompt.len().saturating_sub(1)];
        self.hashes.get_or_init(|| BlockHash::chain(matchable, self.adapter).collect())
    }
}

#[cfg(test)]
mod tests {
    use baton_core::{Attempt, CacheEvent, CacheUpdate, Limits, Pooling, RequestId, SamplingParams};

    use super::*;

    fn request(prompt: &[TokenId]) -> GenerateRequest {
        GenerateRequest {
            id: RequestId(0),
            attempt: Attempt(0),
            prompt: prompt.into(),
            outputs: vec![vec![]],
            ended: vec![false],
            sampling: SamplingParams::greedy(),
            limits: Limits { max_tokens: 1, min_tokens: 0, stop_tokens: vec![] },
            logprobs: None,
            prompt_logprobs: None,
            adapter: None,
            pooling: None,
            affinity: None,
        }
    }

    /// By table: an engine that holds three pages, without and with an adapter.
    #[test]
    fn cached_tokens_are_the_longest_cached_prefix_in_whole_pages() {
        let tokens: Vec<_> = (0..200).map(TokenId).collect();
        let blocks: Vec<_> = BlockHash::chain(&tokens[..96], Some(AdapterId(7))).collect();
        let others: Vec<_> = BlockHash::chain(&tokens[..64], None).collect();
        let stored = |blocks| CacheEvent::Stored { parent: None, blocks };
        let cached = PrefixIndex::new(100);
        let empty = PrefixIndex::new(100);
        let events = vec![CacheEvent::Reset, stored(blocks), stored(others)];
        cached.apply(&CacheUpdate { first: 0, events }).unwrap();

        let with_change_at = |at: usize| {
            let mut changed = tokens.clone();
            changed[at] = TokenId(5000);
            changed
        };
        let adapter = Some(AdapterId(7));
        let cases = [
            ("all that is cached", &tokens[..], adapter, 96),
            ("another adapter", &tokens, Some(AdapterId(8)), 0),
            ("no adapter", &tokens, None, 64),
            ("one token", &tokens[..1], adapter, 0),
            ("a page, of which the last token is computed", &tokens[..32], adapter, 0),
            ("a page and a token", &tokens[..33], adapter, 32),
            ("the cached pages exactly", &tokens[..96], adapter, 64),
            ("another token in the first page", &with_change_at(0), adapter, 0),
            ("in the last cached page", &with_change_at(95), adapter, 64),
            ("behind it", &with_change_at(96), adapter, 96),
        ];
        for (what, prompt, adapter, expected) in cases {
            let request = GenerateRequest { adapter, ..request(prompt) };
            let pages = PromptPages::of(&request);
            assert_eq!((pages.cached_tokens(&cached), pages.cached_tokens(&empty)), (expected, 0), "{what}");
            let pooled = GenerateRequest { pooling: Some(Pooling::Mean), ..request };
            assert_eq!(PromptPages::of(&pooled).cached_tokens(&cached), 0, "{what}, but computed as a whole");
        }
    }
}
