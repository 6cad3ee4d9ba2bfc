//! Log-probabilities in the shape of the completions endpoint: four lists with an entry per token.

use std::collections::BTreeMap;

use baton_core::TokenId;
use baton_text::Vocabulary;
use serde::Serialize;

use crate::choice::ScoredToken;
use crate::params::finite;

#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Logprobs {
    tokens: Vec<String>,
    token_logprobs: Vec<Option<f32>>,
    top_logprobs: Vec<Option<BTreeMap<String, f32>>>,
    text_offset: Vec<usize>,
}

impl Logprobs {
    pub(super) fn new(scored: &[ScoredToken], vocabulary: &Vocabulary) -> Self {
        let mut this = Self::default();
        for token in scored {
            this.tokens.push(name(token.token, vocabulary));
            this.token_logprobs.push(token.logprobs.as_ref().map(|logprobs| finite(logprobs.chosen)));
            this.top_logprobs.push(top(token, vocabulary));
            this.text_offset.push(token.offset_chars);
        }
        this
    }
}

/// The chosen token is always among them.
fn top(token: &ScoredToken, vocabulary: &Vocabulary) -> Option<BTreeMap<String, f32>> {
    let logprobs = token.logprobs.as_ref()?;
    let top = logprobs.top.iter().map(|candidate| (candidate.token, candidate.logprob));
    let all = top.chain([(token.token, logprobs.chosen)]);
    Some(all.map(|(token, logprob)| (name(token, vocabulary), finite(logprob))).collect())
}

/// Part of a character is spelled as OpenAI does, so that different tokens keep different names.
fn name(token: TokenId, vocabulary: &Vocabulary) -> String {
    let bytes = vocabulary.bytes(token);
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().fold("bytes:".to_owned(), |name, byte| name + &format!("\\x{byte:02x}")),
    }
}

#[cfg(test)]
mod tests {
    use baton_core::{Candidate, TokenLogprobs};
    use baton_text::Tokenizer;
    use serde_json::json;

    use super::*;

    #[test]
    fn four_lists_line_up() {
        let tokenizer =
            Tokenizer::from_json(include_bytes!("../../../../models/storyteller-11m/tokenizer.json")).unwrap();
        let (the, half) = (TokenId(267), tokenizer.token_to_id("Ã").unwrap());
        let scored = [
            ScoredToken { token: the, offset_chars: 0, logprobs: None },
            ScoredToken {
                token: half,
                offset_chars: 4,
                logprobs: Some(TokenLogprobs {
                    chosen: f32::NEG_INFINITY,
                    top: vec![Candidate { token: the, logprob: -0.5 }],
                }),
            },
        ];
        let logprobs = serde_json::to_value(Logprobs::new(&scored, tokenizer.vocabulary())).unwrap();
        assert_eq!(
            logprobs,
            json!({
                "tokens": [" the", "bytes:\\xc3"],
                "token_logprobs": [null, -9999.0],
                "top_logprobs": [null, {" the": -0.5, "bytes:\\xc3": -9999.0}],
                "text_offset": [0, 4],
            })
        );
    }
}
