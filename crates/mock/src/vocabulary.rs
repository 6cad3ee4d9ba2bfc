//! The tokens that a mock generates.

use baton_core::{Candidate, TokenId, TokenLogprobs};
use serde_json::Value;

use crate::history::{History, mix};

/// Tokens with whole, visible text, so that a stream has one piece of text per token.
pub struct MockVocabulary {
    size: u32,
    words: Vec<Word>,
    digest: u64,
}

struct Word {
    token: TokenId,
    text: Box<str>,
    /// The text as a JSON string, with quotes.
    json: Box<str>,
}

impl MockVocabulary {
    /// Accepts token ids below `size` in prompts and generates `words` (token and text). `None` when no word has such an id.
    pub fn new(size: u32, words: impl IntoIterator<Item = (TokenId, String)>) -> Option<Self> {
        let valid = |(token, _): &(TokenId, String)| token.0 < size;
        let words: Vec<Word> = words
            .into_iter()
            .filter(valid)
            .map(|(token, text)| Word { token, json: Value::from(&*text).to_string().into(), text: text.into() })
            .collect();
        let digest = words.iter().fold(size.into(), |digest, word| mix(digest, word.token.0.into()));
        (!words.is_empty()).then_some(Self { size, words, digest })
    }

    pub fn size(&self) -> u32 {
        self.size
    }

    /// Mocks with equal digests generate the same tokens.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// The token after a history: a function of history and `draw`.
    pub(crate) fn next(&self, history: History, draw: u64) -> Generated {
        let word = self.first(history, draw);
        Generated { token: self.words[word].token, word }
    }

    /// The first that is allowed, of those that follow the token after a history.
    pub(crate) fn next_allowed(
        &self,
        history: History,
        draw: u64,
        allows: impl Fn(TokenId) -> bool,
    ) -> Option<TokenId> {
        let (before, behind) = self.words.split_at(self.first(history, draw));
        behind.iter().chain(before).map(|word| word.token).find(|token| allows(*token))
    }

    fn first(&self, history: History, draw: u64) -> usize {
        (history.derive(draw) % self.words.len() as u64) as usize
    }

    pub(crate) fn text(&self, generated: Generated) -> &str {
        &self.words[generated.word].text
    }

    pub(crate) fn json(&self, generated: Generated) -> &str {
        &self.words[generated.word].json
    }

    /// The token that stands for four bytes of text, as there is no tokenizer.
    pub(crate) fn token_for(&self, text: [u8; 4]) -> TokenId {
        let hash = mix(0, u32::from_le_bytes(text).into());
        self.words[(hash % self.words.len() as u64) as usize].token
    }

    /// The generated token has probability 1/2; each next candidate has half of the one before.
    pub(crate) fn logprobs(&self, token: TokenId, top: u32) -> TokenLogprobs {
        let logprob = |rank: usize| -(rank as f32 + 1.0) * std::f32::consts::LN_2;
        let others = self.words.iter().map(|word| word.token).filter(|&other| other != token);
        let ranked = std::iter::once(token).chain(others).take(top as usize).enumerate();
        let top = ranked.map(|(rank, token)| Candidate { token, logprob: logprob(rank) }).collect();
        TokenLogprobs { chosen: logprob(0), top }
    }
}

/// A generated token and the index of its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generated {
    pub(crate) token: TokenId,
    word: usize,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn words(count: u32) -> MockVocabulary {
        MockVocabulary::new(count, (0..count).map(|id| (TokenId(id), format!(" w{id}")))).unwrap()
    }

    #[test]
    fn equal_histories_give_equal_tokens_and_others_do_not() {
        let vocabulary = words(1000);
        let history = History::of(&[TokenId(1), TokenId(2)]);
        let generated = vocabulary.next(history, 0);
        assert_eq!(generated, vocabulary.next(History::of(&[TokenId(1)]).then(TokenId(2)), 0));
        assert_ne!(generated, vocabulary.next(history, 1));
        assert_ne!(generated, vocabulary.next(History::of(&[TokenId(2), TokenId(1)]), 0));
        let other = vocabulary.next_allowed(history, 0, |token| token != generated.token);
        assert_eq!(other, Some(TokenId((generated.token.0 + 1) % 1000)));
        assert_eq!(vocabulary.next_allowed(history, 0, |_| true), Some(generated.token));
        assert_eq!(vocabulary.next_allowed(history, 0, |_| false), None);
        assert_eq!(vocabulary.json(generated), format!("\" w{}\"", generated.token));
    }

    #[test]
    fn only_words_with_valid_ids_are_generated() {
        let pairs = [(TokenId(3), "a".to_owned()), (TokenId(9), "b".to_owned())];
        let vocabulary = MockVocabulary::new(5, pairs).unwrap();
        for draw in 0..20 {
            assert_eq!(vocabulary.next(History::default(), draw).token, TokenId(3));
        }
        assert!(MockVocabulary::new(5, [(TokenId(9), String::new())]).is_none());
    }

    #[test]
    fn logprobs_are_a_distribution_led_by_the_generated_token() {
        let found = words(10).logprobs(TokenId(7), 4);
        assert_eq!(found.top.iter().map(|candidate| candidate.token.0).collect::<Vec<_>>(), [7, 0, 1, 2]);
        assert_eq!(found.chosen, found.top[0].logprob);
        assert!(found.top.windows(2).all(|pair| pair[0].logprob > pair[1].logprob));
        assert!(found.top.iter().map(|candidate| candidate.logprob.exp()).sum::<f32>() < 1.0);
    }
}
