//! The spelling of tokens in a tokenizer's file.

use baton_core::TokenId;

/// All names in one string: the name of token `i` is `text[ends[i - 1]..ends[i]]`, empty if it has none.
pub(crate) struct TokenNames {
    text: String,
    ends: Vec<u32>,
}

impl TokenNames {
    pub(crate) fn new<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut this = Self { text: String::new(), ends: Vec::new() };
        for name in names {
            this.text.push_str(name);
            this.ends.push(this.text.len() as u32);
        }
        this
    }

    pub(crate) fn name(&self, token: TokenId) -> Option<&str> {
        let end = *self.ends.get(token.index())?;
        let begin = token.index().checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.text[begin as usize..end as usize]).filter(|name| !name.is_empty())
    }

    /// A linear search, used for two or three special tokens when a model is loaded.
    pub(crate) fn id(&self, name: &str) -> Option<TokenId> {
        (0..self.ends.len() as u32).map(TokenId).find(|&token| self.name(token) == Some(name))
    }
}
