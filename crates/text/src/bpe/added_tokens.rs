//! Added tokens, which are matched in the text before it is split into words: turns of a chat, tools, fill-in-the-middle.

use aho_corasick::{AhoCorasick, MatchKind};

use crate::TextError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AddedToken {
    pub(crate) id: u32,
    pub(crate) content: String,
    pub(crate) special: bool,
}

pub(crate) enum TextPiece<'a> {
    Text(&'a str),
    Token(u32),
}

/// A matcher of added tokens. The first match in the text wins; of those that begin together the longest.
pub(crate) struct AddedTokens {
    finder: AhoCorasick,
    ids: Vec<u32>,
}

impl AddedTokens {
    /// `None` without tokens.
    pub(crate) fn new<'a>(tokens: impl Iterator<Item = &'a AddedToken>) -> Result<Option<Self>, TextError> {
        let (ids, contents): (Vec<u32>, Vec<&str>) =
            tokens.filter(|token| !token.content.is_empty()).map(|token| (token.id, token.content.as_str())).unzip();
        if ids.is_empty() {
            return Ok(None);
        }
        let finder = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(contents);
        let finder = finder.map_err(|error| TextError::file("added tokens", error))?;
        Ok(Some(Self { finder, ids }))
    }

    /// The pieces of a text in order; texts among them are not empty.
    pub(crate) fn split<'a>(&self, text: &'a str, mut piece: impl FnMut(TextPiece<'a>)) {
        let mut begin = 0;
        for found in self.finder.find_iter(text) {
            if begin < found.start() {
                piece(TextPiece::Text(&text[begin..found.start()]));
            }
            piece(TextPiece::Token(self.ids[found.pattern().as_usize()]));
            begin = found.end();
        }
        if begin < text.len() {
            piece(TextPiece::Text(&text[begin..]));
        }
    }
}
