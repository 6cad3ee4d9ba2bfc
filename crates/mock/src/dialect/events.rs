//! Formats responses. What is equal in all events of a request is formatted once.

use std::io::Write;

use hyper::body::Bytes;
use serde_json::{Value, json};

use super::config::Dialect;
use super::engine::DialectEngine;
use super::request::{DialectRequest, RequestKind};
use crate::vocabulary::{Generated, MockVocabulary};

/// Reported for every token and for every alternative.
const LOGPROB: f32 = -std::f32::consts::LN_2;

pub(super) struct EventWriter {
    api: RequestKind,
    dialect: Dialect,
    id: String,
    model: String,
    created: u64,
    /// From the opening brace of an event to the first choice.
    chunk_head: Vec<u8>,
    finish: &'static str,
    prompts: Vec<usize>,
    /// As JSON lists, if the client wants token ids.
    prompt_ids: Option<Vec<String>>,
    choices: usize,
    batch: bool,
    include_usage: bool,
    logprobs: bool,
}

pub(super) struct TokenUsage {
    completion_tokens: usize,
}

impl TokenUsage {
    pub(super) fn of(tokens: impl Iterator<Item = usize>) -> Self {
        Self { completion_tokens: tokens.sum() }
    }
}

impl EventWriter {
    pub(super) fn new(engine: &DialectEngine, request: &DialectRequest) -> Self {
        let (prefix, object) = match request.api {
            RequestKind::Completions => ("cmpl-", "text_completion"),
            RequestKind::Chat => ("chatcmpl-", "chat.completion.chunk"),
            RequestKind::Generate => ("", ""),
        };
        let id = format!("{}{}", if engine.dialect == Dialect::Vllm { prefix } else { "" }, request.id);
        let created = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |at| at.as_secs());
        let model = &engine.model;
        let head = format!(
            "data: {{\"id\":\"{id}\",\"object\":\"{object}\",\"created\":{created},\"model\":{},\"choices\":[{{",
            Value::from(&**model)
        );
        Self {
            api: request.api,
            dialect: engine.dialect,
            id,
            model: model.clone(),
            created,
            chunk_head: head.into_bytes(),
            finish: request.finish,
            prompts: request.prompts.iter().map(Vec::len).collect(),
            prompt_ids: request
                .return_token_ids
                .then(|| request.prompts.iter().map(|ids| list(ids.iter().map(|id| id.0))).collect()),
            choices: request.choices as usize,
            batch: request.batch,
            include_usage: request.include_usage,
            logprobs: request.logprobs,
        }
    }

    /// The first event of a chat's answer, which has the role.
    pub(super) fn opening(&self, answer: usize) -> Option<Bytes> {
        (self.api == RequestKind::Chat).then(|| {
            let delta =
                "\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]";
            let mut event = self.chunk_head.clone();
            let _ = write!(event, "\"index\":{answer},{delta}");
            if let Some(ids) = &self.prompt_ids {
                let _ = write!(event, ",\"prompt_token_ids\":{}", ids[answer / self.choices]);
            }
            self.close(event)
        })
    }

    /// The event for the last of `tokens`.
    pub(super) fn token(&self, vocabulary: &MockVocabulary, answer: usize, tokens: &[Generated], last: bool) -> Bytes {
        let Some(&newest) = tokens.last() else { return Bytes::new() };
        if self.api == RequestKind::Generate {
            return event(&self.generated(vocabulary, answer, tokens, last));
        }
        let text = vocabulary.json(newest);
        let mut event = Vec::with_capacity(self.chunk_head.len() + text.len() + 160);
        event.extend_from_slice(&self.chunk_head);
        // Writing to a vector cannot fail.
        let _ = match self.api {
            RequestKind::Chat => write!(event, "\"index\":{answer},\"delta\":{{\"content\":{text}}},\"logprobs\":"),
            _ => write!(event, "\"index\":{answer},\"text\":{text},\"logprobs\":"),
        };
        match self.logprobs {
            true => event.extend_from_slice(self.logprobs(vocabulary, &[newest]).to_string().as_bytes()),
            false => event.extend_from_slice(b"null"),
        }
        let _ = match last {
            true => write!(event, ",\"finish_reason\":\"{}\",{}", self.finish, self.stop_field()),
            false => write!(event, ",\"finish_reason\":null,{}", self.stop_field()),
        };
        if let Some(ids) = &self.prompt_ids {
            let _ = write!(event, ",\"token_ids\":[{}]", newest.token);
            if self.api == RequestKind::Completions {
                let prompt = if tokens.len() == 1 { &ids[answer / self.choices] } else { "null" };
                let _ = write!(event, ",\"prompt_token_ids\":{prompt}");
            }
        }
        event.extend_from_slice(b"}]");
        self.close(event)
    }

    fn close(&self, mut event: Vec<u8>) -> Bytes {
        event.extend_from_slice(if self.include_usage { b",\"usage\":null}\n\n" } else { b"}\n\n" });
        event.into()
    }

    /// The dialect's field beside `finish_reason`.
    fn stop_field(&self) -> &'static str {
        match self.dialect {
            Dialect::Vllm => "\"stop_reason\":null",
            Dialect::Sglang => "\"matched_stop\":null",
        }
    }

    pub(super) fn usage(&self, usage: TokenUsage) -> Option<Bytes> {
        if !self.include_usage || self.api == RequestKind::Generate {
            return None;
        }
        let object = if self.api == RequestKind::Chat { "chat.completion.chunk" } else { "text_completion" };
        let mut chunk = self.envelope(object, Vec::new());
        chunk["usage"] = self.usage_fields(&usage);
        Some(event(&chunk))
    }

    /// The event after which a stream ends with an error.
    pub(super) fn error(&self, error: &Value) -> Bytes {
        match self.dialect {
            Dialect::Vllm => event(error),
            Dialect::Sglang => event(&json!({"error": error})),
        }
    }

    /// The JSON document with all answers and one more field if there is one.
    pub(super) fn document(
        &self,
        vocabulary: &MockVocabulary,
        answers: &[&[Generated]],
        extra: Option<(&str, Value)>,
    ) -> Bytes {
        if self.api == RequestKind::Generate {
            let mut values: Vec<Value> = answers
                .iter()
                .enumerate()
                .map(|(answer, tokens)| self.generated(vocabulary, answer, tokens, true))
                .collect();
            let list = self.batch || values.len() != 1;
            let value = if list { Value::Array(values) } else { values.swap_remove(0) };
            return value.to_string().into();
        }
        let choices =
            answers.iter().enumerate().map(|(answer, tokens)| self.choice(vocabulary, answer, tokens)).collect();
        let object = if self.api == RequestKind::Chat { "chat.completion" } else { "text_completion" };
        let mut document = self.envelope(object, choices);
        document["usage"] = self.usage_fields(&TokenUsage::of(answers.iter().map(|tokens| tokens.len())));
        if let (RequestKind::Chat, Some(ids)) = (self.api, &self.prompt_ids) {
            document["prompt_token_ids"] = serde_json::from_str(&ids[0]).unwrap_or_default();
        }
        if let Some((name, value)) = extra {
            document[name] = value;
        }
        document.to_string().into()
    }

    fn choice(&self, vocabulary: &MockVocabulary, answer: usize, tokens: &[Generated]) -> Value {
        let text = text(vocabulary, tokens);
        let mut choice = json!({"index": answer, "logprobs": null, "finish_reason": self.finish});
        match self.api {
            RequestKind::Chat => choice["message"] = json!({"role": "assistant", "content": text, "tool_calls": []}),
            _ => choice["text"] = json!(text),
        }
        if self.logprobs {
            choice["logprobs"] = self.logprobs(vocabulary, tokens);
        }
        if let Some(ids) = &self.prompt_ids {
            choice["token_ids"] = tokens.iter().map(|token| token.token.0).collect();
            if self.api == RequestKind::Completions {
                choice["prompt_token_ids"] = serde_json::from_str(&ids[answer / self.choices]).unwrap_or_default();
            }
        }
        let stop = if self.dialect == Dialect::Vllm { "stop_reason" } else { "matched_stop" };
        choice[stop] = Value::Null;
        choice
    }

    /// SGLang's events contain all tokens so far.
    fn generated(&self, vocabulary: &MockVocabulary, answer: usize, tokens: &[Generated], last: bool) -> Value {
        let finish = last.then(|| json!({"type": self.finish, "length": tokens.len()}));
        let mut answered = json!({
            "text": text(vocabulary, tokens),
            "output_ids": tokens.iter().map(|token| token.token.0).collect::<Vec<_>>(),
            "meta_info": {
                "id": self.id, "finish_reason": finish, "prompt_tokens": self.prompts[answer / self.choices],
                "completion_tokens": tokens.len(), "cached_tokens": 0, "weight_version": "default",
            },
        });
        if self.batch || self.choices > 1 {
            answered["index"] = json!(answer);
        }
        answered
    }

    fn logprobs(&self, vocabulary: &MockVocabulary, tokens: &[Generated]) -> Value {
        let tokens: Vec<String> = tokens.iter().map(|&token| text(vocabulary, &[token])).collect();
        match self.api {
            RequestKind::Chat => {
                let entry = |token: &String| json!({"token": token, "logprob": LOGPROB, "bytes": token.as_bytes(), "top_logprobs": []});
                json!({"content": tokens.iter().map(entry).collect::<Vec<_>>()})
            }
            _ => {
                let (mut offsets, mut offset) = (Vec::new(), 0);
                for token in &tokens {
                    offsets.push(offset);
                    offset += token.chars().count();
                }
                json!({
                    "text_offset": offsets, "token_logprobs": vec![LOGPROB; tokens.len()],
                    "top_logprobs": null, "tokens": tokens,
                })
            }
        }
    }

    fn envelope(&self, object: &str, choices: Vec<Value>) -> Value {
        json!({"id": self.id, "object": object, "created": self.created, "model": self.model, "choices": choices})
    }

    fn usage_fields(&self, usage: &TokenUsage) -> Value {
        let (prompt, completion) = (self.prompts.iter().sum::<usize>(), usage.completion_tokens);
        json!({
            "prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion,
            "prompt_tokens_details": null,
        })
    }
}

fn text(vocabulary: &MockVocabulary, tokens: &[Generated]) -> String {
    tokens.iter().map(|&token| vocabulary.text(token)).collect()
}

fn event(value: &Value) -> Bytes {
    format!("data: {value}\n\n").into()
}

fn list(ids: impl Iterator<Item = u32>) -> String {
    let ids: Vec<String> = ids.map(|id| id.to_string()).collect();
    format!("[{}]", ids.join(","))
}
