//! Prompts as clients write them: text, token ids, or a list of either.

use std::fmt;

use baton_core::TokenId;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::vocabulary::MockVocabulary;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum PromptValue {
    Text(String),
    Ids(Vec<TokenId>),
}

impl PromptValue {
    /// Mocks have no tokenizer: every four bytes of text become a token.
    pub(super) fn into_tokens(self, vocabulary: &MockVocabulary) -> Vec<TokenId> {
        match self {
            Self::Text(text) => {
                let (fours, rest) = text.as_bytes().as_chunks::<4>();
                let mut last = [0; 4];
                last[..rest.len()].copy_from_slice(rest);
                let last = (!rest.is_empty()).then_some(last);
                fours.iter().copied().chain(last).map(|four| vocabulary.token_for(four)).collect()
            }
            Self::Ids(ids) => ids,
        }
    }
}

/// Parsed in one pass, so that a long prompt costs a mock no more than the router.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Prompts {
    pub(super) list: Vec<PromptValue>,
    /// Whether the prompts were a list: then the answer is a list too, even for one prompt.
    pub(super) batch: bool,
}

impl<'de> Deserialize<'de> for Prompts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PromptsVisitor)
    }
}

struct PromptsVisitor;

impl<'de> Visitor<'de> for PromptsVisitor {
    type Value = Prompts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, token ids, or a list of either")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Prompts, E> {
        Ok(Prompts { list: vec![PromptValue::Text(text.to_owned())], batch: false })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Prompts, A::Error> {
        let (mut list, mut ids) = (Vec::new(), Vec::new());
        while let Some(item) = items.next_element()? {
            match item {
                Item::Id(id) => ids.push(id),
                Item::Prompt(prompt) => list.push(prompt),
            }
        }
        match (list.is_empty(), ids.is_empty()) {
            (true, _) => Ok(Prompts { list: vec![PromptValue::Ids(ids)], batch: false }),
            (false, true) => Ok(Prompts { list, batch: true }),
            (false, false) => Err(A::Error::custom("a list of prompts cannot hold single token ids")),
        }
    }
}

enum Item {
    Id(TokenId),
    Prompt(PromptValue),
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ItemVisitor)
    }
}

struct ItemVisitor;

impl<'de> Visitor<'de> for ItemVisitor {
    type Value = Item;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a token id, a string or token ids")
    }

    fn visit_u64<E: Error>(self, id: u64) -> Result<Item, E> {
        let id = u32::try_from(id).map_err(|_| E::custom(format!("{id} is no token id")))?;
        Ok(Item::Id(TokenId(id)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Item, E> {
        Ok(Item::Prompt(PromptValue::Text(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Item, A::Error> {
        let mut ids = Vec::with_capacity(items.size_hint().unwrap_or(0));
        while let Some(id) = items.next_element()? {
            ids.push(TokenId(id));
        }
        Ok(Item::Prompt(PromptValue::Ids(ids)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_bytes_are_a_token() {
        let vocabulary = crate::vocabulary::tests::words(1000);
        let tokens = |text: &str| PromptValue::Text(text.to_owned()).into_tokens(&vocabulary);
        assert_eq!([tokens("").len(), tokens("abcd").len(), tokens("abcde").len()], [0, 1, 2]);
        assert_eq!(tokens("abcdabcd")[0], tokens("abcdabcd")[1]);
        assert_ne!(tokens("abcd"), tokens("abce"));
    }

    #[test]
    fn prompts_by_table() {
        let text = |text: &str| PromptValue::Text(text.to_owned());
        let ids = |ids: &[u32]| PromptValue::Ids(ids.iter().copied().map(TokenId).collect());
        for (json, batch, list) in [
            ("\"a b\"", false, vec![text("a b")]),
            ("[1, 2, 3]", false, vec![ids(&[1, 2, 3])]),
            ("[[1], [2, 3]]", true, vec![ids(&[1]), ids(&[2, 3])]),
            ("[\"a\"]", true, vec![text("a")]),
            ("[]", false, vec![ids(&[])]),
        ] {
            assert_eq!(serde_json::from_str::<Prompts>(json).unwrap(), Prompts { list, batch }, "{json}");
        }
        for json in ["7", "[1, \"a\"]", "[-1]", "[4294967296]", "{}"] {
            assert!(serde_json::from_str::<Prompts>(json).is_err(), "{json}");
        }
    }
}
