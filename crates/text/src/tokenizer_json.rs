//! A tokenizer.json as a [`TokenizerSpec`], if nothing in it is beyond one.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde_json::Value;

use crate::bpe::{AddedToken, Merge, Prefix, SPACE, SplitRule};
use crate::tokenizer_spec::{TokenizerSpec, WordRule};

#[derive(Deserialize)]
pub(crate) struct TokenizerJson<'a> {
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    pub(crate) decoder: Value,
    #[serde(borrow)]
    model: Model<'a>,
}

#[derive(Deserialize)]
struct Added {
    id: u32,
    content: String,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
    normalized: bool,
    special: bool,
}

#[derive(Deserialize)]
struct Model<'a> {
    #[serde(rename = "type")]
    kind: String,
    dropout: Option<f32>,
    #[serde(default)]
    unk_token: Option<String>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
    #[serde(borrow)]
    vocab: HashMap<Name<'a>, u32>,
    #[serde(borrow)]
    merges: Vec<Pair<'a>>,
}

#[derive(Deserialize, PartialEq, Eq, Hash)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// `["a", "b"]`, or `"a b"` in older files.
struct Pair<'a>(Cow<'a, str>, Cow<'a, str>);

impl TokenizerJson<'_> {
    /// `None` when the file needs what only the reference can do.
    pub(crate) fn spec(&self) -> Option<TokenizerSpec> {
        let model = &self.model;
        let plain = |field: &Option<String>| field.as_ref().is_none_or(String::is_empty);
        let plain_bpe = model.kind == "BPE"
            && model.dropout.is_none_or(|dropout| dropout == 0.0)
            && plain(&model.continuing_subword_prefix)
            && plain(&model.end_of_word_suffix);
        if !plain_bpe || self.added_tokens.iter().any(|token| token.single_word || token.lstrip || token.rstrip) {
            return None;
        }
        let (words, composed) = self.words()?;
        let (before, after) = additions(&self.post_processor)?;
        let (normalized, added): (Vec<_>, Vec<_>) = self.added_tokens.iter().partition(|token| token.normalized);
        // The reference spells such a token with ▁ first; no vocabulary means that.
        if matches!(words, WordRule::Pieces(_)) && !normalized.is_empty() {
            return None;
        }
        Some(TokenizerSpec {
            tokens: model.vocab.iter().map(|(name, &id)| (name.0.to_string(), id)).collect(),
            added: self.ids(added),
            added_to_normalized: self.ids(normalized),
            composed,
            words,
            merges: model.merges.iter().zip(0..).map(|(pair, rank)| self.merge(pair, rank)).collect::<Option<_>>()?,
            ignore_merges: model.ignore_merges,
            drops_unknown: model.unk_token.is_none(),
            before,
            after,
        })
    }

    /// How words are made, and whether the text is composed first.
    fn words(&self) -> Option<(WordRule, bool)> {
        let normalizers = steps(&self.normalizer, "normalizers");
        let cutters = steps(&self.pre_tokenizer, "pretokenizers");
        if self.model.byte_fallback {
            let prefix = match (normalizers.as_slice(), cutters.as_slice()) {
                ([first, second], []) if **first == prepends_space() && **second == replaces_spaces() => Prefix::Always,
                ([only], []) if **only == replaces_spaces() => Prefix::Never,
                ([], [metaspace]) => metaspace_prefix(metaspace)?,
                _ => return None,
            };
            return Some((WordRule::Pieces(prefix), false));
        }
        let composed = match normalizers.as_slice() {
            [] => false,
            [nfc] if nfc["type"] == "NFC" => true,
            _ => return None,
        };
        let cut = match cutters.as_slice() {
            [bytes] if is_byte_level(bytes, true) => SplitRule::Gpt2,
            [digits, bytes] if is_byte_level(bytes, true) && is_single_digits(digits) => SplitRule::Gpt2Digits,
            [split, bytes] if is_byte_level(bytes, false) => isolating_cut(split)?,
            _ => return None,
        };
        Some((WordRule::Bytes(cut), composed))
    }

    fn ids(&self, tokens: Vec<&Added>) -> Vec<AddedToken> {
        let id = |token: &Added| *self.model.vocab.get(&Name(token.content.as_str().into())).unwrap_or(&token.id);
        let token =
            |token: &Added| AddedToken { id: id(token), content: token.content.clone(), special: token.special };
        tokens.into_iter().map(token).collect()
    }

    fn merge(&self, pair: &Pair<'_>, rank: u32) -> Option<Merge> {
        let id = |name: &str| self.model.vocab.get(name).copied();
        let Pair(left, right) = pair;
        Some(Merge { left: id(left)?, right: id(right)?, rank, token: id(&[left.as_ref(), right].concat())? })
    }
}

impl std::borrow::Borrow<str> for Name<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Pair<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PairVisitor)
    }
}

struct PairVisitor;

impl<'de> Visitor<'de> for PairVisitor {
    type Value = Pair<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("two tokens")
    }

    fn visit_borrowed_str<E: de::Error>(self, pair: &'de str) -> Result<Self::Value, E> {
        let (left, right) = pair.split_once(' ').ok_or_else(|| E::custom("a merge is two tokens"))?;
        Ok(Pair(left.into(), right.into()))
    }

    fn visit_str<E: de::Error>(self, pair: &str) -> Result<Self::Value, E> {
        let (left, right) = pair.split_once(' ').ok_or_else(|| E::custom("a merge is two tokens"))?;
        Ok(Pair(left.to_owned().into(), right.to_owned().into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut pair: A) -> Result<Self::Value, A::Error> {
        let mut next = || pair.next_element::<Name<'de>>()?.ok_or_else(|| de::Error::custom("a merge is two tokens"));
        Ok(Pair(next()?.0, next()?.0))
    }
}

/// A step, or the steps of a sequence.
fn steps<'a>(value: &'a Value, list: &str) -> Vec<&'a Value> {
    match value {
        Value::Null => Vec::new(),
        sequence if sequence["type"] == "Sequence" => sequence[list].as_array().into_iter().flatten().collect(),
        step => vec![step],
    }
}

fn prepends_space() -> Value {
    serde_json::json!({"type": "Prepend", "prepend": SPACE})
}

fn replaces_spaces() -> Value {
    serde_json::json!({"type": "Replace", "pattern": {"String": " "}, "content": SPACE})
}

fn metaspace_prefix(step: &Value) -> Option<Prefix> {
    if step["type"] != "Metaspace" || step["replacement"] != SPACE.to_string() || step["split"] != false {
        return None;
    }
    match step["prepend_scheme"].as_str()? {
        "always" => Some(Prefix::WhereMissing),
        "first" => Some(Prefix::WhereMissingAtStart),
        "never" => Some(Prefix::Never),
        _ => None,
    }
}

fn is_byte_level(step: &Value, with_regex: bool) -> bool {
    let uses_regex = step["use_regex"].as_bool().unwrap_or(true);
    step["type"] == "ByteLevel" && step["add_prefix_space"] == false && uses_regex == with_regex
}

fn is_single_digits(step: &Value) -> bool {
    step["type"] == "Digits" && step["individual_digits"] == true
}

fn isolating_cut(step: &Value) -> Option<SplitRule> {
    let isolates = step["type"] == "Split" && step["behavior"] == "Isolated" && step["invert"] == false;
    step["pattern"]["Regex"].as_str().filter(|_| isolates).and_then(SplitRule::of_regex)
}

/// The ids that a post-processor puts before and after a text.
fn additions(post_processor: &Value) -> Option<(Vec<u32>, Vec<u32>)> {
    let mut around = (Vec::new(), Vec::new());
    for step in steps(post_processor, "processors") {
        match step["type"].as_str()? {
            "ByteLevel" => {}
            "TemplateProcessing" => {
                let mut text_seen = false;
                for part in step["single"].as_array()? {
                    if let Some(special) = part["SpecialToken"]["id"].as_str() {
                        let ids = step["special_tokens"][special]["ids"].as_array()?;
                        let ids = ids.iter().map(|id| id.as_u64().map(|id| id as u32)).collect::<Option<Vec<_>>>()?;
                        if text_seen { &mut around.1 } else { &mut around.0 }.extend(ids);
                    } else {
                        text_seen = part["Sequence"]["id"] == "A" && !text_seen;
                        if !text_seen {
                            return None;
                        }
                    }
                }
                if !text_seen {
                    return None;
                }
            }
            _ => return None,
        }
    }
    Some(around)
}
