//! A parsed request with all defaults filled in: prompts, number of tokens, and the format of the answer.

use baton_core::TokenId;
use hyper::StatusCode;

use super::body::{Body, KvTransferParams};
use super::engine::DialectEngine;
use super::error::ErrorResponse;
use super::prompts::{PromptValue, Prompts};
use crate::history::{History, mix};

/// The originals' defaults for `max_tokens`; for chats, vLLM would fill the context.
const DEFAULT_COMPLETION_TOKENS: u32 = 16;
const DEFAULT_TOKENS: u32 = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    Completions,
    Chat,
    /// SGLang's `/generate`.
    Generate,
}

pub(super) struct DialectRequest {
    pub(super) api: RequestKind,
    /// The caller's `x-request-id`, or a fresh id.
    pub(super) id: String,
    pub(super) prompts: Vec<Vec<TokenId>>,
    pub(super) batch: bool,
    /// Answers per prompt, OpenAI's `n`.
    pub(super) choices: u32,
    pub(super) max_tokens: u32,
    pub(super) finish: &'static str,
    pub(super) seed: Option<u64>,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    pub(super) logprobs: bool,
    pub(super) return_token_ids: bool,
    pub(super) kv: Option<KvTransferParams>,
    /// One for each prompt; empty outside of SGLang's disaggregation.
    pub(super) rooms: Vec<BootstrapRoom>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BootstrapRoom {
    pub(super) host: String,
    pub(super) port: Option<u16>,
    pub(super) number: u64,
}

impl DialectRequest {
    pub(super) fn parse(
        engine: &DialectEngine,
        api: RequestKind,
        bytes: &[u8],
        request_id: Option<&str>,
    ) -> Result<Self, ErrorResponse> {
        let bad = |message: String| ErrorResponse::bad(engine, message);
        let mut body: Body = serde_json::from_slice(bytes).map_err(|error| bad(error.to_string()))?;
        if let Some(model) = body.model.as_ref().filter(|model| **model != engine.model) {
            let message = format!("The model `{model}` does not exist.");
            return Err(ErrorResponse::new(engine, StatusCode::NOT_FOUND, message));
        }
        let Prompts { list, batch } = prompts(api, &mut body).ok_or_else(|| bad("there is no prompt".to_owned()))?;
        let mut prompts: Vec<_> = list.into_iter().map(|prompt| prompt.into_tokens(&engine.vocabulary)).collect();
        if let Some(tokens) = body.kv_transfer_params.as_mut().and_then(|kv| kv.prompt_token_ids.take()) {
            prompts = vec![tokens];
        }
        let rooms = rooms(&body, prompts.len()).map_err(bad)?;
        let (max_tokens, finish) = length(engine, api, &body);
        check(engine, &prompts, max_tokens).map_err(bad)?;
        Ok(Self {
            api,
            id: request_id.map_or_else(|| uuid::Uuid::new_v4().simple().to_string(), printable),
            prompts,
            batch,
            choices: body.n.unwrap_or(1).clamp(1, 128),
            max_tokens,
            finish,
            seed: body.seed,
            stream: body.stream.unwrap_or(false),
            include_usage: body.stream_options.is_some_and(|options| options.include_usage),
            logprobs: body.logprobs.is_some_and(|value| !value.is_null() && value != false),
            return_token_ids: body.return_token_ids.unwrap_or(false),
            kv: body.kv_transfer_params,
            rooms,
        })
    }

    pub(super) fn prompt_tokens(&self) -> usize {
        self.prompts.iter().map(Vec::len).sum()
    }

    /// For every answer, the history that it continues and a value that distinguishes answers to equal prompts.
    pub(super) fn answers(&self) -> impl Iterator<Item = (History, u64)> {
        let draw = |choice: u32| match (self.seed, choice) {
            (None, 0) => 0,
            (seed, choice) => mix(seed.unwrap_or(0), choice.into()),
        };
        self.prompts.iter().flat_map(move |prompt| {
            let history = History::of(prompt);
            (0..self.choices).map(move |choice| (history, draw(choice)))
        })
    }
}

fn prompts(api: RequestKind, body: &mut Body) -> Option<Prompts> {
    match api {
        RequestKind::Completions => body.prompt.take(),
        RequestKind::Generate => body.input_ids.take().or(body.text.take()),
        RequestKind::Chat => {
            let mut text = String::new();
            body.messages.as_ref()?.iter().for_each(|message| message.write_to(&mut text));
            Some(Prompts { list: vec![PromptValue::Text(text)], batch: false })
        }
    }
}

/// How many tokens are generated, and the finish reason.
fn length(engine: &DialectEngine, api: RequestKind, body: &Body) -> (u32, &'static str) {
    let default = if api == RequestKind::Completions { DEFAULT_COMPLETION_TOKENS } else { DEFAULT_TOKENS };
    let new_tokens = body.sampling_params.as_ref().and_then(|sampling| sampling.max_new_tokens);
    let limit = body.max_completion_tokens.or(body.max_tokens).or(new_tokens);
    match (engine.config.shape.output_tokens, limit) {
        (Some(output), limit) if limit.is_none_or(|limit| output <= limit) => (output, "stop"),
        (_, limit) => (limit.unwrap_or(default), "length"),
    }
}

fn check(engine: &DialectEngine, prompts: &[Vec<TokenId>], max_tokens: u32) -> Result<(), String> {
    if prompts.is_empty() || prompts.iter().any(Vec::is_empty) {
        return Err("a prompt has no tokens".to_owned());
    }
    let context = engine.config.shape.context_tokens as usize;
    let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
    if longest + max_tokens as usize > context {
        return Err(format!("{longest} prompt tokens and {max_tokens} more do not fit into {context}"));
    }
    let size = engine.vocabulary.size();
    match prompts.iter().flatten().find(|token| token.0 >= size) {
        Some(token) => Err(format!("token {token} is not in the vocabulary of {size} tokens")),
        None => Ok(()),
    }
}

fn rooms(body: &Body, prompts: usize) -> Result<Vec<BootstrapRoom>, String> {
    let (Some(hosts), Some(numbers)) = (&body.bootstrap_host, &body.bootstrap_room) else { return Ok(Vec::new()) };
    let wrong = || format!("bootstrap fields must have one entry for each of {prompts} prompts");
    let hosts = hosts.spread(prompts).ok_or_else(wrong)?;
    let numbers = numbers.spread(prompts).ok_or_else(wrong)?;
    let ports = match &body.bootstrap_port {
        Some(ports) => ports.spread(prompts).ok_or_else(wrong)?,
        None => vec![None; prompts],
    };
    let rooms = hosts.into_iter().zip(ports).zip(numbers).map(|((host, port), number)| {
        let number = number.filter(|number| *number < 1 << 63).ok_or("a bootstrap_room lies in [0, 2^63)")?;
        Ok(BootstrapRoom { host: host.ok_or("a bootstrap_host is missing")?, port, number })
    });
    rooms.collect::<Result<_, &str>>().map_err(str::to_owned)
}

/// Keeps only characters that need no escaping in JSON and between mocks.
fn printable(id: &str) -> String {
    let keeps = |char: &char| char.is_ascii_alphanumeric() || "-_.:".contains(*char);
    id.chars().filter(keeps).take(128).collect()
}
