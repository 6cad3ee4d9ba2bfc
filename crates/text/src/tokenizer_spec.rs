//! A tokenizer that uses byte pair encoding, independent of its file format.

use std::collections::HashMap;
use std::sync::Arc;

use crate::bpe::{
    AddedToken, AddedTokens, Bpe, Idle, Merge, Merges, Pieces, Prefix, SplitRule, WholeWords, WordVocabulary,
};
use crate::decoder::{TokenDecoder, byte_of_char};
use crate::{TextError, Vocabulary};

pub(crate) struct TokenizerSpec {
    /// The spelling in the file, with the ids.
    pub(crate) tokens: Vec<(String, u32)>,
    pub(crate) added: Vec<AddedToken>,
    pub(crate) added_to_normalized: Vec<AddedToken>,
    pub(crate) composed: bool,
    pub(crate) words: WordRule,
    pub(crate) merges: Vec<Merge>,
    pub(crate) ignore_merges: bool,
    /// Whether a byte without a token is dropped, as in the reference where there is no unknown token.
    pub(crate) drops_unknown: bool,
    /// Ids before a text, when special tokens are requested.
    pub(crate) before: Vec<u32>,
    pub(crate) after: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WordRule {
    Bytes(SplitRule),
    Pieces(Prefix),
    /// Bytes, split by regular expressions that only the reference supports: each splits what those before it left over.
    Regexes(&'static [&'static str]),
}

impl TokenizerSpec {
    /// The file's spelling of each id; empty where there is none.
    pub(crate) fn names(&self) -> Vec<&str> {
        let added = || self.added.iter().chain(&self.added_to_normalized);
        let last = self.tokens.iter().map(|&(_, id)| id).chain(added().map(|token| token.id)).max();
        let mut names = vec![""; last.map_or(0, |last| last as usize + 1)];
        self.tokens.iter().for_each(|(name, id)| names[*id as usize] = name);
        added().for_each(|token| names[token.id as usize] = &token.content);
        names
    }

    /// The bytes of each id.
    pub(crate) fn vocabulary(&self, decoder: &TokenDecoder) -> Vocabulary {
        let added = || self.added.iter().chain(&self.added_to_normalized);
        let special: HashMap<u32, bool> = added().map(|token| (token.id, token.special)).collect();
        let tokens = self.names().into_iter().zip(0..).map(|(name, id)| match special.get(&id) {
            // Added tokens are matched in the raw text, so their spelling is their text.
            Some(&special) => (name.as_bytes().to_vec(), special),
            None => (decoder.bytes(name), false),
        });
        Vocabulary::new(tokens, decoder.leading_spaces)
    }

    /// `None` when the vocabulary cannot spell every text, or only the reference can split it into words.
    pub(crate) fn build(&self, vocabulary: &Arc<Vocabulary>) -> Result<Option<Bpe>, TextError> {
        let words = match self.words {
            WordRule::Bytes(rule) => self.byte_tokens().map(|tokens| WordVocabulary::Bytes { rule, tokens }),
            WordRule::Pieces(prefix) => self.pieces(prefix).map(|pieces| WordVocabulary::Pieces(Box::new(pieces))),
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

    /// Whether every byte has a token.
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
