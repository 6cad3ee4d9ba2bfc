//! How a tokenizer's file spells its tokens.

use baton_core::TokenId;

/// End to end: the name of token `i` is `text[ends[i - 1]..ends[i]]`, and empty if it has none.
pub(crate) struct Names {
    text: String,
    ends: Vec<u32>,
}

impl Names {
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

    /// One by one: it is asked for a model's two or three special tokens when it is loaded.
    pub(crate) fn id(&self, name: &str) -> Option<TokenId> {
        (0..self.ends.len() as u32).map(TokenId).find(|&token| self.name(token) == Some(name))
    }
}
