//! Log-probabilities in the shape of the chat endpoint: an object per token, with its bytes.

use baton_core::TokenId;
use baton_text::Vocabulary;
use serde::Serialize;

use crate::choice::ScoredToken;
use crate::params::finite;

#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Logprobs {
    content: Vec<Entry>,
    refusal: Option<Vec<Entry>>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Entry {
    #[serde(flatten)]
    chosen: Scored,
    top_logprobs: Vec<Scored>,
}

/// `token` is for people; `bytes` is exact, also where a token is only part of a character.
#[derive(Debug, PartialEq, Serialize)]
struct Scored {
    token: String,
    logprob: f32,
    bytes: Vec<u8>,
}

impl Logprobs {
    pub(super) fn new(tokens: &[ScoredToken], vocabulary: &Vocabulary) -> Self {
        let scored = |token: TokenId, logprob: f32| Scored {
            token: vocabulary.text(token).into_owned(),
            logprob: finite(logprob),
            bytes: vocabulary.bytes(token).to_vec(),
        };
        let entries = tokens.iter().filter_map(|entry| {
            let logprobs = entry.logprobs.as_ref()?;
            let top = logprobs.top.iter().map(|candidate| scored(candidate.token, candidate.logprob));
            Some(Entry { chosen: scored(entry.token, logprobs.chosen), top_logprobs: top.collect() })
        });
        Self { content: entries.collect(), refusal: None }
    }
}
