//! What the gateway has to know about the model it serves.

use std::sync::Arc;

use baton_core::TokenId;
use baton_text::{ChatTemplate, Tokenizer};
use serde::Serialize;

pub struct ModelCard {
    /// The name that clients put into `model`.
    pub id: String,
    pub tokenizer: Arc<Tokenizer>,
    /// `None`: the model cannot chat.
    pub template: Option<ChatTemplate>,
    /// Stands in for an empty prompt.
    pub bos_token: Option<TokenId>,
    /// Tokens that end an answer unless the client ignores them.
    pub eos_tokens: Vec<TokenId>,
    pub defaults: SamplingDefaults,
    /// Prompt and answer together.
    pub max_context_tokens: u32,
    /// Of the model, which may have more rows than the tokenizer has tokens.
    pub vocab_size: u32,
}

/// For fields that a client leaves out. `/v1/models` shows them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SamplingDefaults {
    pub temperature: f32,
    pub top_p: f32,
    pub top_k: Option<u32>,
    pub min_p: f32,
    pub repetition_penalty: f32,
    /// Of chat answers; `None` allows the rest of the context.
    pub max_new_tokens: Option<u32>,
    /// Who decided: the `model`'s files, its `makers`, `llama.cpp`, or none of them (`neutral`).
    pub source: &'static str,
}

impl Default for SamplingDefaults {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_p: 1.0,
            top_k: None,
            min_p: 0.0,
            repetition_penalty: 1.0,
            max_new_tokens: None,
            source: "neutral",
        }
    }
}
