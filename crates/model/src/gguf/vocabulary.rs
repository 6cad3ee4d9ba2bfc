//! The tokenizer inside a GGUF file.

use baton_core::{GgufVocabulary, TokenId, TokenType, VocabularyKind};

use super::GgufFile;
use super::metadata::ValueKind;
use crate::ModelError;

const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const SCORES: &str = "tokenizer.ggml.scores";
const MERGES: &str = "tokenizer.ggml.merges";

impl GgufFile {
    pub(crate) fn vocabulary(&self) -> Result<GgufVocabulary, ModelError> {
        let fields = self.values().under("tokenizer.ggml");
        let kind = match fields.text("model")? {
            Some("gpt2") => VocabularyKind::Bpe { pre: fields.text("pre")?.map(str::to_owned) },
            Some("llama") => VocabularyKind::SentencePiece,
            Some(other) => {
                return Err(fields.refuse("model", format!("{other:?} is not supported; supported are gpt2 and llama")));
            }
            None => return Err(fields.refuse("model", "missing: this file has no tokenizer")),
        };
        let tokens = self.texts(TOKENS)?;
        self.check_count(tokens.len())?;
        let scores = self.floats(SCORES)?;
        let types = self.types()?;
        for (key, count) in [(SCORES, scores.len()), (TYPES, types.len())] {
            if count != 0 && count != tokens.len() {
                return Err(self.values().refuse(key, format!("{count} for {} tokens", tokens.len())));
            }
        }
        Ok(GgufVocabulary {
            bos: self.special("bos", tokens.len())?,
            eos: self.special("eos", tokens.len())?,
            unknown: self.special("unknown", tokens.len())?,
            add_bos: fields.optional_flag("add_bos_token")?,
            add_eos: fields.optional_flag("add_eos_token")?,
            add_space_prefix: fields.optional_flag("add_space_prefix")?,
            merges: self.texts(MERGES)?,
            kind,
            tokens,
            scores,
            types,
        })
    }

    /// The token under `tokenizer.ggml.<name>_token_id`.
    pub(super) fn special(&self, name: &str, tokens: usize) -> Result<Option<TokenId>, ModelError> {
        let key = format!("tokenizer.ggml.{name}_token_id");
        match self.values().get(&key) {
            None => Ok(None),
            found @ Some(value) => match value.as_u64() {
                Some(id) if id < tokens as u64 => Ok(Some(TokenId(id as u32))),
                // llama.cpp's converter writes -1 for none.
                Some(id) if id == u64::from(u32::MAX) => Ok(None),
                _ => Err(self.values().wrong(&key, &format!("a token id below {tokens}"), found)),
            },
        }
    }

    /// Every token needs a row of the embedding table.
    fn check_count(&self, tokens: usize) -> Result<(), ModelError> {
        if tokens == 0 {
            return Err(self.values().refuse(TOKENS, "missing: this file has no tokenizer"));
        }
        let rows = self.tensor("token_embd.weight")?.shape[0];
        if tokens > rows {
            return Err(self
                .values()
                .refuse(TOKENS, format!("{tokens} tokens, but token_embd.weight has {rows} rows")));
        }
        Ok(())
    }

    pub(super) fn texts(&self, key: &str) -> Result<Vec<String>, ModelError> {
        let texts = self
            .list(key, "a list of texts", &[ValueKind::Text], |cursor| Ok(cursor.text(key, usize::MAX)?.to_owned()));
        Ok(texts?.unwrap_or_default())
    }

    fn floats(&self, key: &str) -> Result<Vec<f32>, ModelError> {
        let floats = self.list(key, "a list of f32", &[ValueKind::F32], |cursor| cursor.u32().map(f32::from_bits));
        Ok(floats?.unwrap_or_default())
    }

    pub(super) fn types(&self) -> Result<Vec<TokenType>, ModelError> {
        let types = self.list(TYPES, "a list of i32", &[ValueKind::I32, ValueKind::U32], |cursor| {
            let number = cursor.u32()? as i32;
            TokenType::from_gguf(number)
                .ok_or_else(|| self.values().refuse(TYPES, format!("{number} is not a type of token")))
        });
        Ok(types?.unwrap_or_default())
    }
}
