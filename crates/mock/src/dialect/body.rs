//! Request bodies as routers send them. Unknown fields are ignored.

use baton_core::TokenId;
use serde::Deserialize;
use serde_json::Value;

use super::prompts::Prompts;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Body {
    pub(super) model: Option<String>,
    pub(super) prompt: Option<Prompts>,
    pub(super) messages: Option<Vec<ChatMessage>>,
    pub(super) max_tokens: Option<u32>,
    pub(super) max_completion_tokens: Option<u32>,
    pub(super) n: Option<u32>,
    pub(super) seed: Option<u64>,
    pub(super) stream: Option<bool>,
    pub(super) stream_options: Option<StreamOptions>,
    /// A number for completions, a boolean for chats.
    pub(super) logprobs: Option<Value>,
    pub(super) return_token_ids: Option<bool>,
    pub(super) kv_transfer_params: Option<KvTransferParams>,

    // SGLang's `/generate`.
    pub(super) text: Option<Prompts>,
    pub(super) input_ids: Option<Prompts>,
    pub(super) sampling_params: Option<SglangSampling>,
    pub(super) bootstrap_host: Option<OneOrMany<Option<String>>>,
    pub(super) bootstrap_port: Option<OneOrMany<Option<u16>>>,
    pub(super) bootstrap_room: Option<OneOrMany<Option<u64>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StreamOptions {
    pub(super) include_usage: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SglangSampling {
    pub(super) max_new_tokens: Option<u32>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ChatMessage {
    role: String,
    #[serde(default)]
    content: Content,
}

#[derive(Debug, Default, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
    #[default]
    Nothing,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContentPart {
    text: String,
}

impl ChatMessage {
    pub(super) fn write_to(&self, text: &mut String) {
        text.push_str(&self.role);
        text.push('\n');
        match &self.content {
            Content::Text(content) => text.push_str(content),
            Content::Parts(parts) => parts.iter().for_each(|part| text.push_str(&part.text)),
            Content::Nothing => {}
        }
        text.push('\n');
    }
}

/// vLLM's: the prefill leg requests KV to be kept, the decode leg has the fields of the prefill leg's response.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KvTransferParams {
    pub(super) do_remote_decode: bool,
    pub(super) do_remote_prefill: bool,
    pub(super) remote_engine_id: Option<String>,
    pub(super) remote_request_id: Option<String>,
    pub(super) remote_block_ids: Option<Value>,
    pub(super) remote_host: Option<String>,
    pub(super) remote_port: Option<u16>,
    /// The tokens of a chat, so that the decode leg need not tokenize again.
    pub(super) prompt_token_ids: Option<Vec<TokenId>>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T: Clone> OneOrMany<T> {
    /// One value for each of `count` prompts; a single one is repeated. `None` if a list has another length.
    pub(super) fn spread(&self, count: usize) -> Option<Vec<T>> {
        match self {
            Self::One(one) => Some(vec![one.clone(); count]),
            Self::Many(many) => (many.len() == count).then(|| many.clone()),
        }
    }
}
