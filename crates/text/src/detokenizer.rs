//! Converts token ids to text incrementally, in whole characters.

use std::sync::Arc;

use baton_core::TokenId;

use crate::Vocabulary;

/// Whether special tokens such as the end of a turn appear in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlTokens {
    Hide,
    Show,
}

/// Where a detokenizer's text begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextStart {
    /// With the first token: a space that the tokenizer put there is removed.
    Here,
    /// Earlier: the tokens continue a prompt, and a space between the two belongs to the text.
    Earlier,
}

impl TextStart {
    /// Where text that follows `prompt` begins: a prompt of control tokens alone has no text to continue.
    pub fn after(prompt: &[TokenId], vocabulary: &Vocabulary) -> Self {
        let has_text = prompt.iter().any(|&token| !vocabulary.is_special(token));
        if has_text { Self::Earlier } else { Self::Here }
    }
}

/// Returns for every token the text that it completes. Invalid bytes become U+FFFD, as in `String::from_utf8_lossy` over all of
/// them; an incomplete character is held back.
pub struct Detokenizer {
    vocabulary: Arc<Vocabulary>,
    control: ControlTokens,
    /// The number of spaces still to be removed, as long as no other text has come.
    leading_spaces: usize,
    /// The beginning of an incomplete character: at most three bytes.
    partial: Vec<u8>,
}

impl Detokenizer {
    pub fn new(vocabulary: Arc<Vocabulary>, control: ControlTokens, start: TextStart) -> Self {
        let leading_spaces = if start == TextStart::Here { vocabulary.leading_spaces } else { 0 };
        Self { vocabulary, control, leading_spaces, partial: Vec::new() }
    }

    /// Appends the text that `token` completes to `text`.
    pub fn push(&mut self, token: TokenId, text: &mut String) {
        if self.control == ControlTokens::Hide && self.vocabulary.is_special(token) {
            return;
        }
        let mut bytes = self.vocabulary.bytes(token);
        while let ([b' ', rest @ ..], 1..) = (bytes, self.leading_spaces) {
            self.leading_spaces -= 1;
            bytes = rest;
        }
        if !bytes.is_empty() {
            self.leading_spaces = 0;
        }
        self.partial.extend_from_slice(bytes);
        self.take_complete(text);
    }

    /// Ends the text: an incomplete character becomes U+FFFD.
    pub fn finish(&mut self, text: &mut String) {
        text.push_str(&String::from_utf8_lossy(&self.partial));
        self.partial.clear();
    }

    fn take_complete(&mut self, text: &mut String) {
        let mut rest = self.partial.as_slice();
        while !rest.is_empty() {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    rest = &[];
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    rest = after;
                    let Some(broken) = error.error_len() else { break };
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = &rest[broken..];
                }
            }
        }
        let taken = self.partial.len() - rest.len();
        self.partial.drain(..taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SpecialTokens;
    use crate::tokenizer::tests::{reference_decode, sentencepiece, storyteller};

    fn pieces(vocabulary: &Arc<Vocabulary>, tokens: &[u32], start: TextStart) -> Vec<String> {
        let mut detokenizer = Detokenizer::new(Arc::clone(vocabulary), ControlTokens::Hide, start);
        let mut pieces: Vec<String> = tokens
            .iter()
            .map(|&token| {
                let mut text = String::new();
                detokenizer.push(TokenId(token), &mut text);
                text
            })
            .collect();
        let mut tail = String::new();
        detokenizer.finish(&mut tail);
        pieces.push(tail);
        pieces
    }

    /// Ids of byte tokens: SentencePiece's start at 3.
    const SMILE: [u32; 4] = [0xF0 + 3, 0x9F + 3, 0x98 + 3, 0x80 + 3];
    const SPACE_A: u32 = 262;
    const SPACE: u32 = 259;

    #[test]
    fn characters_come_whole() {
        let vocabulary = Arc::clone(sentencepiece().vocabulary());
        let [a, b, c, d] = SMILE;
        let table: [(&[u32], TextStart, &[&str]); 8] = [
            (&[a, b, c, d], TextStart::Earlier, &["", "", "", "😀", ""]),
            (&[a, b], TextStart::Earlier, &["", "", "\u{FFFD}"]),
            (&[a, b, SPACE_A], TextStart::Earlier, &["", "", "\u{FFFD} a", ""]),
            (&[b, SPACE_A], TextStart::Earlier, &["\u{FFFD}", " a", ""]),
            (&[SPACE_A, SPACE_A], TextStart::Here, &["a", " a", ""]),
            (&[SPACE_A, SPACE_A], TextStart::Earlier, &[" a", " a", ""]),
            (&[1, SPACE, SPACE, 2], TextStart::Here, &["", "", " ", "", ""]),
            (&[a, 1, b, c, d, 4_000_000], TextStart::Earlier, &["", "", "", "", "😀", "", ""]),
        ];
        for (tokens, start, expected) in table {
            assert_eq!(pieces(&vocabulary, tokens, start), expected, "{tokens:?}");
        }
    }

    /// Random ids, half of them single bytes so that most characters are broken.
    fn random_ids(seed: u64, vocabulary: u32, bytes: std::ops::Range<u32>) -> Vec<u32> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u32
        };
        let len = next() % 60;
        (0..len)
            .map(
                |_| {
                    if next() % 2 == 0 { bytes.start + next() % (bytes.end - bytes.start) } else { next() % vocabulary }
                },
            )
            .collect()
    }

    #[test]
    fn pieces_add_up_to_the_whole() {
        for (name, tokenizer) in [("byte level", storyteller()), ("byte fallback", sentencepiece())] {
            let vocabulary = tokenizer.vocabulary();
            for seed in 0..3000 {
                let ids = random_ids(seed, vocabulary.len() as u32, 3..259);
                let tokens: Vec<TokenId> = ids.iter().copied().map(TokenId).collect();
                let visible = tokens.iter().filter(|&&token| !vocabulary.is_special(token));
                let bytes: Vec<u8> = visible.flat_map(|&token| vocabulary.bytes(token)).copied().collect();
                let pieces = pieces(vocabulary, &ids, TextStart::Earlier);
                assert_eq!(pieces.concat(), String::from_utf8_lossy(&bytes), "{name}, seed {seed}");
                let (tail, whole) = (pieces.last().unwrap(), tokenizer.decode(&tokens, ControlTokens::Hide));
                assert!(tail.is_empty() || tail == "\u{FFFD}", "{name}, seed {seed}: {tail:?}");
                if name == "byte level" {
                    assert_eq!(whole, reference_decode(&ids, true), "seed {seed}");
                }
            }
        }
    }

    #[test]
    fn real_text_arrives_without_replacement_characters() {
        let tokenizer = storyteller();
        let text = "Ein Mädchen sah 日本 und 😀, naïve façade.";
        let ids: Vec<u32> = tokenizer.encode(text, SpecialTokens::Add).unwrap().iter().map(|token| token.0).collect();
        let pieces = pieces(tokenizer.vocabulary(), &ids, TextStart::Here);
        assert_eq!(pieces.concat(), text);
        assert!(pieces.iter().all(|piece| !piece.contains('\u{FFFD}')), "{pieces:?}");
    }
}
