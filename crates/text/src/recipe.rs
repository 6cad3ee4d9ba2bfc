//! What byte pair encoding needs to know of a tokenizer, whatever file it came in.

use std::collections::HashMap;
use std::sync::Arc;

use crate::bpe::{AddedToken, AddedTokens, Bpe, Cut, Idle, Merge, Merges, Pieces, Prefix, WholeWords, Words};
use crate::decoder::{Decoder, byte_of_char};
use crate::{TextError, Vocabulary};

pub(crate) struct Recipe {
    /// As they are spelled in the file, with their ids.
    pub(crate) tokens: Vec<(String, u32)>,
    pub(crate) added: Vec<AddedToken>,
    pub(crate) added_to_normalized: Vec<AddedToken>,
    pub(crate) composed: bool,
    pub(crate) words: WordRule,
    pub(crate) merges: Vec<Merge>,
    pub(crate) ignore_merges: bool,
    /// A byte without a token leaves none behind, as in the reference when there is no token for the unknown.
    pub(crate) drops_unknown: bool,
    /// Ids around a text, when special tokens are wanted.
    pub(crate) before: Vec<u32>,
    pub(crate) after: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WordRule {
    Bytes(Cut),
    Pieces(Prefix),
    /// Bytes, in words that only the reference can cut: each sets its matches apart in what those before it left over.
    Regexes(&'static [&'static str]),
}

impl Recipe {
    /// How the file spells each id; empty where it has none.
    pub(crate) fn names(&self) -> Vec<&str> {
        let added = || self.added.iter().chain(&self.added_to_normalized);
        let last = self.tokens.iter().map(|&(_, id)| id).chain(added().map(|token| token.id)).max();
        let mut names = vec![""; last.map_or(0, |last| last as usize + 1)];
        self.tokens.iter().for_each(|(name, id)| names[*id as usize] = name);
        added().for_each(|token| names[token.id as usize] = &token.content);
        names
    }

    /// What each id stands for.
    pub(crate) fn vocabulary(&self, decoder: &Decoder) -> Vocabulary {
        let added = || self.added.iter().chain(&self.added_to_normalized);
        let special: HashMap<u32, bool> = added().map(|token| (token.id, token.special)).collect();
        let tokens = self.names().into_iter().zip(0..).map(|(name, id)| match special.get(&id) {
            // Added tokens are matched in the raw text, so they stand for exactly what they say.
            Some(&special) => (name.as_bytes().to_vec(), special),
            None => (decoder.bytes(name), false),
        });
        Vocabulary::new(tokens, decoder.leading_spaces)
    }

    /// `None` when the vocabulary cannot spell every text, or its words are not cut by us.
    pub(crate) fn cook(&self, vocabulary: &Arc<Vocabulary>) -> Result<Option<Bpe>, TextError> {
        let words = match self.words {
            WordRule::Bytes(cut) => self.byte_tokens().map(|tokens| Words::Bytes { cut, tokens }),
            WordRule::Pieces(prefix) => self.pieces(prefix).map(|pieces| Words::Pieces(Box::new(pieces))),
            WordRule::Regexes(_) => None,
        };
        let Some(words) = words else { return Ok(None) };
        let spelled = self.tokens.iter().filter(|(name, _)| name.chars().all(|char| byte_of_char(char).is_some()));
        let spelled = || spelled.clone().map(|&(_, id)| id).collect::<Vec<_>>().into_iter();
        Ok(Some(Bpe {
            added: AddedTokens::new(self.added.iter())?,
            added_to_normalized: AddedTokens::new(self.added_to_normalized.iter())?,
            composed: self.composed,
            words,
            merges: Merges::new(self.merges.iter().copied()),
            whole_words: self.ignore_merges.then(|| WholeWords::new(spelled(), Arc::clone(vocabulary))),
            idle: Idle::default(),
        }))
    }

    fn byte_tokens(&self) -> Option<Box<[Option<u32>; 256]>> {
        let tokens = self.tokens_of_bytes();
        (self.drops_unknown || tokens.iter().all(Option::is_some)).then(|| Box::new(tokens))
    }

    /// Whether every text of bytes has a token for each of them, or for several together.
    pub(crate) fn spells_every_byte(&self) -> bool {
        self.tokens_of_bytes().iter().all(Option::is_some)
    }

    fn tokens_of_bytes(&self) -> [Option<u32>; 256] {
        let mut tokens = [None; 256];
        for (name, id) in &self.tokens {
            let mut chars = name.chars();
            if let (Some(byte), None) = (chars.next().and_then(byte_of_char), chars.next()) {
                tokens[byte as usize] = Some(*id);
            }
        }
        tokens
    }

    fn pieces(&self, prefix: Prefix) -> Option<Pieces> {
        let names: HashMap<u32, &str> = self.tokens.iter().map(|(name, id)| (*id, name.as_str())).collect();
        let joined = self.merges.iter().filter_map(|merge| names.get(&merge.token).copied());
        Pieces::new(self.tokens.iter().map(|(name, id)| (name.as_str(), *id)), joined, prefix)
    }
}
