//! Tokens as bytes: everything that is the same in all events of a request is written once.

use std::io::Write;

use hyper::body::Bytes;
use serde_json::{Value, json};

use super::job::{Api, Job};
use super::{Dialect, DialectEngine};
use crate::vocabulary::{Said, Vocabulary};

/// Of every token, and of every other one that might have been.
const LOGPROB: f32 = -std::f32::consts::LN_2;

pub(super) struct Shape {
    api: Api,
    dialect: Dialect,
    id: String,
    model: String,
    created: u64,
    /// From the opening brace of an event to the first choice.
    chunk_head: Vec<u8>,
    finish: &'static str,
    prompts: Vec<usize>,
    /// When they are to be told.
    prompt_ids: Option<Vec<String>>,
    choices: usize,
    batch: bool,
    include_usage: bool,
    logprobs: bool,
}

pub(super) struct Usage {
    completion_tokens: usize,
}

impl Usage {
    pub(super) fn of(said: impl Iterator<Item = usize>) -> Self {
        Self { completion_tokens: said.sum() }
    }
}

impl Shape {
    pub(super) fn new(engine: &DialectEngine, job: &Job) -> Self {
        let (prefix, object) = match job.api {
            Api::Completions => ("cmpl-", "text_completion"),
            Api::Chat => ("chatcmpl-", "chat.completion.chunk"),
            Api::Generate => ("", ""),
        };
        let id = format!("{}{}", if engine.dialect == Dialect::Vllm { prefix } else { "" }, job.id);
        let created = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |at| at.as_secs());
        let model = &engine.model;
        let head = format!(
            "data: {{\"id\":\"{id}\",\"object\":\"{object}\",\"created\":{created},\"model\":{},\"choices\":[{{",
            Value::from(&**model)
        );
        Self {
            api: job.api,
            dialect: engine.dialect,
            id,
            model: model.clone(),
            created,
            chunk_head: head.into_bytes(),
            finish: job.finish,
            prompts: job.prompts.iter().map(Vec::len).collect(),
            prompt_ids: job
                .return_token_ids
                .then(|| job.prompts.iter().map(|ids| list(ids.iter().map(|id| id.0))).collect()),
            choices: job.choices as usize,
            batch: job.batch,
            include_usage: job.include_usage,
            logprobs: job.logprobs,
        }
    }

    /// What a chat's answer begins with.
    pub(super) fn opening(&self, answer: usize) -> Option<Bytes> {
        (self.api == Api::Chat).then(|| {
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

    /// The last of `said`.
    pub(super) fn token(&self, words: &Vocabulary, answer: usize, said: &[Said], last: bool) -> Bytes {
        let Some(&word) = said.last() else { return Bytes::new() };
        if self.api == Api::Generate {
            return event(&self.generated(words, answer, said, last));
        }
        let text = words.json(word);
        let mut event = Vec::with_capacity(self.chunk_head.len() + text.len() + 160);
        event.extend_from_slice(&self.chunk_head);
        // Writing to a vector cannot fail.
        let _ = match self.api {
            Api::Chat => write!(event, "\"index\":{answer},\"delta\":{{\"content\":{text}}},\"logprobs\":"),
            _ => write!(event, "\"index\":{answer},\"text\":{text},\"logprobs\":"),
        };
        match self.logprobs {
            true => event.extend_from_slice(self.logprobs(words, &[word]).to_string().as_bytes()),
            false => event.extend_from_slice(b"null"),
        }
        let _ = match last {
            true => write!(event, ",\"finish_reason\":\"{}\",{}", self.finish, self.stop_field()),
            false => write!(event, ",\"finish_reason\":null,{}", self.stop_field()),
        };
        if let Some(ids) = &self.prompt_ids {
            let _ = write!(event, ",\"token_ids\":[{}]", word.token);
            if self.api == Api::Completions {
                let prompt = if said.len() == 1 { &ids[answer / self.choices] } else { "null" };
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

    /// Why an answer ended, beside its reason.
    fn stop_field(&self) -> &'static str {
        match self.dialect {
            Dialect::Vllm => "\"stop_reason\":null",
            Dialect::Sglang => "\"matched_stop\":null",
        }
    }

    pub(super) fn usage(&self, usage: Usage) -> Option<Bytes> {
        if !self.include_usage || self.api == Api::Generate {
            return None;
        }
        let object = if self.api == Api::Chat { "chat.completion.chunk" } else { "text_completion" };
        let mut chunk = self.envelope(object, Vec::new());
        chunk["usage"] = self.usage_fields(&usage);
        Some(event(&chunk))
    }

    /// After this an answer is over.
    pub(super) fn error(&self, error: &Value) -> Bytes {
        match self.dialect {
            Dialect::Vllm => event(error),
            Dialect::Sglang => event(&json!({"error": error})),
        }
    }

    /// All answers at once. `extra`: one more field of the answer.
    pub(super) fn whole(&self, words: &Vocabulary, said: &[&[Said]], extra: Option<(&str, Value)>) -> Bytes {
        if self.api == Api::Generate {
            let mut answers: Vec<Value> =
                said.iter().enumerate().map(|(answer, said)| self.generated(words, answer, said, true)).collect();
            let list = self.batch || answers.len() != 1;
            let value = if list { Value::Array(answers) } else { answers.swap_remove(0) };
            return value.to_string().into();
        }
        let choices = said.iter().enumerate().map(|(answer, said)| self.choice(words, answer, said)).collect();
        let object = if self.api == Api::Chat { "chat.completion" } else { "text_completion" };
        let mut whole = self.envelope(object, choices);
        whole["usage"] = self.usage_fields(&Usage::of(said.iter().map(|said| said.len())));
        if let (Api::Chat, Some(ids)) = (self.api, &self.prompt_ids) {
            whole["prompt_token_ids"] = serde_json::from_str(&ids[0]).unwrap_or_default();
        }
        if let Some((name, value)) = extra {
            whole[name] = value;
        }
        whole.to_string().into()
    }

    fn choice(&self, words: &Vocabulary, answer: usize, said: &[Said]) -> Value {
        let text = text(words, said);
        let mut choice = json!({"index": answer, "logprobs": null, "finish_reason": self.finish});
        match self.api {
            Api::Chat => choice["message"] = json!({"role": "assistant", "content": text, "tool_calls": []}),
            _ => choice["text"] = json!(text),
        }
        if self.logprobs {
            choice["logprobs"] = self.logprobs(words, said);
        }
        if let Some(ids) = &self.prompt_ids {
            choice["token_ids"] = said.iter().map(|said| said.token.0).collect();
            if self.api == Api::Completions {
                choice["prompt_token_ids"] = serde_json::from_str(&ids[answer / self.choices]).unwrap_or_default();
            }
        }
        let stop = if self.dialect == Dialect::Vllm { "stop_reason" } else { "matched_stop" };
        choice[stop] = Value::Null;
        choice
    }

    /// SGLang's own events hold all that was said so far.
    fn generated(&self, words: &Vocabulary, answer: usize, said: &[Said], last: bool) -> Value {
        let finish = last.then(|| json!({"type": self.finish, "length": said.len()}));
        let mut answered = json!({
            "text": text(words, said),
            "output_ids": said.iter().map(|said| said.token.0).collect::<Vec<_>>(),
            "meta_info": {
                "id": self.id, "finish_reason": finish, "prompt_tokens": self.prompts[answer / self.choices],
                "completion_tokens": said.len(), "cached_tokens": 0, "weight_version": "default",
            },
        });
        if self.batch || self.choices > 1 {
            answered["index"] = json!(answer);
        }
        answered
    }

    fn logprobs(&self, words: &Vocabulary, said: &[Said]) -> Value {
        let tokens: Vec<String> = said.iter().map(|&word| text(words, &[word])).collect();
        match self.api {
            Api::Chat => {
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
                    "text_offset": offsets, "token_logprobs": vec![LOGPROB; said.len()],
                    "top_logprobs": null, "tokens": tokens,
                })
            }
        }
    }

    fn envelope(&self, object: &str, choices: Vec<Value>) -> Value {
        json!({"id": self.id, "object": object, "created": self.created, "model": self.model, "choices": choices})
    }

    fn usage_fields(&self, usage: &Usage) -> Value {
        let (prompt, completion) = (self.prompts.iter().sum::<usize>(), usage.completion_tokens);
        json!({
            "prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion,
            "prompt_tokens_details": null,
        })
    }
}

fn text(words: &Vocabulary, said: &[Said]) -> String {
    said.iter().map(|&word| words.text(word)).collect()
}

fn event(value: &Value) -> Bytes {
    format!("data: {value}\n\n").into()
}

fn list(ids: impl Iterator<Item = u32>) -> String {
    let ids: Vec<String> = ids.map(|id| id.to_string()).collect();
    format!("[{}]", ids.join(","))
}
