//! What every token id stands for, as bytes.

use std::borrow::Cow;

use baton_core::TokenId;

/// The bytes of all tokens, end to end: the bytes of token `i` are `bytes[ends[i - 1]..ends[i]]`.
#[derive(Debug)]
pub struct Vocabulary {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    special: Vec<bool>,
    pub(crate) leading_spaces: usize,
}

impl Vocabulary {
    /// `tokens` in the order of their ids, without a gap; (bytes, is special).
    pub(crate) fn new(tokens: impl Iterator<Item = (Vec<u8>, bool)>, leading_spaces: usize) -> Self {
        let mut this = Self { bytes: Vec::new(), ends: Vec::new(), special: Vec::new(), leading_spaces };
        for (bytes, special) in tokens {
            this.bytes.extend(bytes);
            this.ends.push(this.bytes.len() as u32);
            this.special.push(special);
        }
        this
    }

    /// One more than the largest id. A model may have more rows than this: rows without an entry stand for no text.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Not always UTF-8: a character may be spread over several tokens.
    pub fn bytes(&self, token: TokenId) -> &[u8] {
        let index = token.index();
        let Some(&end) = self.ends.get(index) else { return &[] };
        let begin = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[begin as usize..end as usize]
    }

    /// For a person; bytes that are no characters become U+FFFD.
    pub fn text(&self, token: TokenId) -> Cow<'_, str> {
        String::from_utf8_lossy(self.bytes(token))
    }

    /// Control tokens such as the end of a turn, which are no part of the text.
    pub fn is_special(&self, token: TokenId) -> bool {
        self.special.get(token.index()).copied().unwrap_or(false)
    }

    pub(crate) fn longest_token_bytes(&self) -> usize {
        (0..self.len() as u32).map(|id| self.bytes(TokenId(id)).len()).max().unwrap_or(0)
    }
}
