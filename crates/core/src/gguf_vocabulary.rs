//! A tokenizer as a GGUF file's metadata spells it: `model` reads it out of the file, `text` makes a tokenizer of it.

use crate::TokenId;

/// The keys under `tokenizer.ggml.`, unchanged: what is missing in the file is `None` or empty here.
#[derive(Clone, Debug, PartialEq)]
pub struct GgufVocabulary {
    pub kind: VocabularyKind,
    /// In the order of their ids.
    pub tokens: Vec<String>,
    /// One per token; SentencePiece merges by them.
    pub scores: Vec<f32>,
    /// One per token; empty when all are normal.
    pub types: Vec<TokenType>,
    /// `left right`, best first; byte-level BPE only.
    pub merges: Vec<String>,
    pub bos: Option<TokenId>,
    pub eos: Option<TokenId>,
    pub unknown: Option<TokenId>,
    pub add_bos: Option<bool>,
    pub add_eos: Option<bool>,
    pub add_space_prefix: Option<bool>,
}

/// `tokenizer.ggml.model`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VocabularyKind {
    /// `gpt2`: byte-level BPE. `pre`: the name in `tokenizer.ggml.pre` of how text is cut into words.
    Bpe { pre: Option<String> },
    /// `llama`: SentencePiece's BPE with byte fallback.
    SentencePiece,
}

/// `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenType {
    Normal,
    Unknown,
    /// Found in text before it is cut into words; no part of an answer's text.
    Control,
    /// Found in text before it is cut into words.
    UserDefined,
    Unused,
    Byte,
}

impl TokenType {
    pub fn from_gguf(value: i32) -> Option<Self> {
        Some(match value {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return None,
        })
    }
}
