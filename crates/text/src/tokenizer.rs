//! Converts text to token ids by the rules of a model's tokenizer.json or GGUF file.

use std::sync::Arc;

use baton_core::{GgufVocabulary, TokenId};
use serde_json::Value;

use crate::bpe::Bpe;
use crate::decoder::TokenDecoder;
use crate::names::TokenNames;
use crate::tokenizer_json::TokenizerJson;
use crate::tokenizer_spec::{TokenizerSpec, WordRule};
use crate::{ControlTokens, Detokenizer, TextError, TextStart, Vocabulary, gguf, reference};

/// Whether the tokenizer's own additions (usually a beginning-of-sequence token) are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialTokens {
    /// Adds what the file's post-processor defines, for plain prompts.
    Add,
    /// Adds none beside those spelled out in the text, for chat templates, which write their own.
    AsWritten,
}

pub struct Tokenizer {
    encoder: Encoder,
    vocabulary: Arc<Vocabulary>,
    names: TokenNames,
    id: String,
    /// The most bytes of text that a token stands for; `None` when the text is normalized before it is split into tokens.
    longest_token_bytes: Option<usize>,
}

enum Encoder {
    Bpe { bpe: Box<Bpe>, before: Vec<u32>, after: Vec<u32> },
    Reference(Box<tokenizers::Tokenizer>),
}

/// For each byte of a word: a symbol, twice while their list grows, and entries in the queue of joins.
const MERGE_BYTES: usize = 80;
/// For each byte of a text: the normalized text, where each of its bytes comes from, and tokens with their names and places.
const REFERENCE_BYTES: usize = 256;

impl Tokenizer {
    /// From the contents of a tokenizer.json.
    pub fn from_json(json: &[u8]) -> Result<Self, TextError> {
        const FILE: &str = "tokenizer.json";
        let id = short_id(blake3::hash(json));
        if let Ok(file) = serde_json::from_slice::<TokenizerJson<'_>>(json)
            && let Some(spec) = file.spec()
            && let Some(this) = Self::from_spec(&spec, &TokenDecoder::from_json(FILE, &file.decoder)?, &id)?
        {
            return Ok(this);
        }
        Self::from_reference(FILE, json, id)
    }

    /// From the metadata of a GGUF file; errors name the key.
    pub fn from_gguf(vocabulary: &GgufVocabulary) -> Result<Self, TextError> {
        let (spec, decoder) = gguf::spec(vocabulary)?;
        let id = short_id(gguf::hash(vocabulary));
        if let Some(this) = Self::from_spec(&spec, &decoder, &id)? {
            return Ok(this);
        }
        match spec.words {
            WordRule::Regexes(regexes) => {
                let json = reference::byte_level_json(&spec, regexes).to_string();
                Self::from_reference("tokenizer.ggml", json.as_bytes(), id)
            }
            _ => Err(TextError::file("tokenizer.ggml.tokens", "not every byte has a token")),
        }
    }

    fn from_spec(spec: &TokenizerSpec, decoder: &TokenDecoder, id: &str) -> Result<Option<Self>, TextError> {
        let vocabulary = Arc::new(spec.vocabulary(decoder));
        let Some(bpe) = spec.build(&vocabulary)? else { return Ok(None) };
        let unchanged = matches!(spec.words, WordRule::Bytes(_)) && !spec.composed && spec.spells_every_byte();
        Ok(Some(Self {
            encoder: Encoder::Bpe { bpe: Box::new(bpe), before: spec.before.clone(), after: spec.after.clone() },
            longest_token_bytes: unchanged.then(|| vocabulary.longest_token_bytes().max(1)),
            vocabulary,
            names: TokenNames::new(spec.names().into_iter()),
            id: id.to_owned(),
        }))
    }

    fn from_reference(file: &'static str, json: &[u8], id: String) -> Result<Self, TextError> {
        let fields: Value = serde_json::from_slice(json).map_err(|error| TextError::file(file, error))?;
        let decoder = TokenDecoder::from_json(file, &fields["decoder"])?;
        let inner = reference::from_json(file, json)?;
        let vocabulary = reference::vocabulary(&inner, &decoder);
        let every_byte_has_a_token = inner.get_normalizer().is_none() && fields["model"]["unk_token"].is_null();
        let longest_token_bytes = every_byte_has_a_token.then(|| vocabulary.longest_token_bytes().max(1));
        let names: Vec<_> = (0..vocabulary.len() as u32).map(|id| inner.id_to_token(id).unwrap_or_default()).collect();
        Ok(Self {
            encoder: Encoder::Reference(Box::new(inner)),
            vocabulary: Arc::new(vocabulary),
            names: TokenNames::new(names.iter().map(String::as_str)),
            id,
            longest_token_bytes,
        })
    }

    /// Of the file's bytes: tokenizers with equal ids make the same tokens.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn encode(&self, text: &str, special: SpecialTokens) -> Result<Vec<TokenId>, TextError> {
        let add = special == SpecialTokens::Add;
        match &self.encoder {
            Encoder::Bpe { bpe, before, after } => {
                let mut tokens = Vec::new();
                tokens.extend_from_slice(if add { before } else { &[] });
                bpe.encode(text, &mut tokens);
                tokens.extend_from_slice(if add { after } else { &[] });
                Ok(tokens.into_iter().map(TokenId).collect())
            }
            Encoder::Reference(inner) => {
                let encoding =
                    inner.encode_fast(text, add).map_err(|error| TextError::Untokenizable(error.to_string()))?;
                Ok(encoding.get_ids().iter().copied().map(TokenId).collect())
            }
        }
    }

    /// A lower bound of the number of tokens: lets a caller refuse a text that cannot fit without tokenizing it.
    pub fn fewest_tokens(&self, text: &str) -> usize {
        self.longest_token_bytes.map_or(0, |bytes| text.len().div_ceil(bytes))
    }

    /// The most memory, in bytes, that tokenizing takes beside the text and its tokens.
    pub fn working_memory(&self, text: &str) -> usize {
        match &self.encoder {
            // Words are merged one by one, and none of them goes on from spaces to letters or back more than once.
            Encoder::Bpe { .. } => longest_word(text) * MERGE_BYTES,
            Encoder::Reference(_) => text.len() * REFERENCE_BYTES,
        }
    }

    /// The whole text at once; equal to what a [`Detokenizer`] returns piece by piece.
    pub fn decode(&self, tokens: &[TokenId], control: ControlTokens) -> String {
        let mut detokenizer = Detokenizer::new(Arc::clone(&self.vocabulary), control, TextStart::Here);
        let mut text = String::new();
        tokens.iter().for_each(|&token| detokenizer.push(token, &mut text));
        detokenizer.finish(&mut text);
        text
    }

    pub fn vocabulary(&self) -> &Arc<Vocabulary> {
        &self.vocabulary
    }

    /// As the tokenizer's file spells it, which is not its text: `Ġcat` is " cat".
    pub fn id_to_token(&self, token: TokenId) -> Option<&str> {
        self.names.name(token)
    }

    pub fn token_to_id(&self, token: &str) -> Option<TokenId> {
        self.names.id(token)
    }
}

/// A bound in bytes: with the spaces before it.
fn longest_word(text: &str) -> usize {
    let run = |spaces: bool| {
        let runs = text.as_bytes().split(move |byte| byte.is_ascii_whitespace() != spaces);
        runs.map(<[u8]>::len).max().unwrap_or(0)
    };
    run(true) + run(false)
}

fn short_id(hash: blake3::Hash) -> String {
    hash.to_hex()[..16].to_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::LazyLock;

    use serde_json::json;

    use super::*;

    const STORYTELLER: &[u8] = include_bytes!("../../../models/storyteller-11m/tokenizer.json");

    /// What Hugging Face's own decoder makes of it.
    pub(crate) fn reference_decode(ids: &[u32], skip_special: bool) -> String {
        static REFERENCE: LazyLock<tokenizers::Tokenizer> =
            LazyLock::new(|| reference::from_json("tokenizer.json", STORYTELLER).unwrap());
        REFERENCE.decode(ids, skip_special).unwrap()
    }

    pub(crate) fn storyteller() -> Tokenizer {
        Tokenizer::from_json(STORYTELLER).unwrap()
    }

    /// The shape of Llama 2's: SentencePiece with byte fallback and a beginning-of-sequence token.
    pub(crate) fn sentencepiece() -> Tokenizer {
        let mut vocab: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
        vocab.extend((0..=255u8).map(|byte| format!("<0x{byte:02X}>")));
        vocab.extend(["▁", "a", "b", "▁a", "▁b", "ab", "▁ab"].map(str::to_owned));
        let ids: serde_json::Map<String, Value> =
            vocab.iter().enumerate().map(|(id, token)| (token.clone(), json!(id))).collect();
        let special = |id: u32, content: &str| {
            json!({"id": id, "content": content, "special": true, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false})
        };
        let file = json!({
            "version": "1.0",
            "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
            "padding": null,
            "added_tokens": [special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")],
            "normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ]},
            "pre_tokenizer": null,
            "post_processor": {"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ]},
            "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
                "vocab": ids, "merges": [["▁", "a"], ["▁", "b"], ["a", "b"], ["▁a", "b"]]},
        });
        Tokenizer::from_json(file.to_string().as_bytes()).unwrap()
    }

    fn ids(tokens: &[u32]) -> Vec<TokenId> {
        tokens.iter().copied().map(TokenId).collect()
    }

    #[test]
    fn text_survives_the_round_trip() {
        let texts = ["", "a", " a", "  a b ", "naïve café 😀", "ab\n\tab", "a<0x41>b", "日本語 ab"];
        for tokenizer in [storyteller(), sentencepiece()] {
            for text in texts {
                let tokens = tokenizer.encode(text, SpecialTokens::Add).unwrap();
                assert_eq!(tokenizer.decode(&tokens, ControlTokens::Hide), text);
            }
        }
    }

    #[test]
    fn decoding_agrees_with_the_reference() {
        let tokenizer = storyteller();
        let text = "Once upon a time <|im_end|> there was a café.";
        let tokens = tokenizer.encode(text, SpecialTokens::AsWritten).unwrap();
        let raw: Vec<u32> = tokens.iter().map(|token| token.0).collect();
        for (control, skip) in [(ControlTokens::Hide, true), (ControlTokens::Show, false)] {
            assert_eq!(tokenizer.decode(&tokens, control), reference_decode(&raw, skip));
        }
    }

    #[test]
    fn special_tokens_are_added_when_asked_and_recognised_always() {
        let tokenizer = sentencepiece();
        assert_eq!(tokenizer.encode("a", SpecialTokens::Add).unwrap(), ids(&[1, 262]));
        assert_eq!(tokenizer.encode("a", SpecialTokens::AsWritten).unwrap(), ids(&[262]));
        assert_eq!(tokenizer.encode("", SpecialTokens::Add).unwrap(), ids(&[1]));
        assert_eq!(storyteller().encode("<|im_end|>", SpecialTokens::AsWritten).unwrap(), ids(&[2]));
        assert!(tokenizer.vocabulary().is_special(TokenId(2)) && !tokenizer.vocabulary().is_special(TokenId(5)));
    }

    #[test]
    fn truncation_in_the_file_is_not_obeyed() {
        assert_eq!(sentencepiece().encode("a b a b a b a b", SpecialTokens::Add).unwrap().len(), 9);
    }

    #[test]
    fn the_lower_bound_holds() {
        let tokenizer = storyteller();
        for text in ["", "cat", &"cat ".repeat(500), &"Once upon a time there was ".repeat(80)] {
            let tokens = tokenizer.encode(text, SpecialTokens::Add).unwrap().len();
            let bound = tokenizer.fewest_tokens(text);
            assert!(bound <= tokens && (text.is_empty() || bound > 0), "{bound} of {tokens}");
        }
    }

    #[test]
    fn names_and_ids() {
        let tokenizer = storyteller();
        assert_eq!(tokenizer.vocabulary().len(), 4096);
        assert_eq!(tokenizer.id_to_token(TokenId(267)), Some("Ġthe"));
        assert_eq!(tokenizer.vocabulary().text(TokenId(267)), " the");
        assert_eq!(tokenizer.token_to_id("<|im_start|>"), Some(TokenId(1)));
        assert_eq!(tokenizer.vocabulary().bytes(TokenId(4096)), b"");
    }

    #[test]
    fn a_broken_file_is_named() {
        for json in ["", "{}", "[1]", r#"{"decoder": {"type": "ByteLevel"}}"#] {
            let error = Tokenizer::from_json(json.as_bytes()).err().unwrap();
            assert!(!error.is_callers_fault() && error.to_string().starts_with("tokenizer.json: "), "{error}");
        }
    }
}
