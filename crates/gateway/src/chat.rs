//! `POST /v1/chat/completions`: answers conversations.

mod logprobs;
pub(crate) mod messages;
mod request;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use serde::Serialize;
use tokio::time::Instant;

use self::logprobs::Logprobs;
use self::request::ChatRequest;
use crate::answer::{Shape, answer};
use crate::body;
use crate::choice::{Finish, Piece};
use crate::error::ApiError;
use crate::gateway::Gateway;
use crate::generation::Job;

pub(crate) async fn chat_completions(State(gateway): State<Arc<Gateway>>, body: Body) -> Result<Response, ApiError> {
    let arrived = Instant::now();
    let received = body::admit(&gateway, body).await?;
    let request = ChatRequest::take(&mut received.fields()?, &gateway.card)?;
    let prompts = vec![request.prompt(&gateway).await?];
    let ChatRequest { params, logprobs, .. } = request;
    let held = Box::new(received.into_permit());
    let job = Job { prompts, params, logprobs, score_prompt: false, arrived, held };
    let streams = job.dispatch(&gateway).await?;
    answer(&gateway, ChatCompletion { logprobs: logprobs.is_some() }, job, streams).await
}

struct ChatCompletion {
    logprobs: bool,
}

#[derive(Serialize)]
struct ChatChoice {
    index: u32,
    message: AssistantMessage,
    logprobs: Option<Logprobs>,
    finish_reason: Option<Finish>,
}

#[derive(Serialize)]
struct AssistantMessage {
    role: &'static str,
    content: String,
    refusal: Option<String>,
}

#[derive(Serialize)]
struct ChatChunk {
    index: u32,
    delta: Delta,
    logprobs: Option<Logprobs>,
    finish_reason: Option<Finish>,
}

#[derive(Default, Serialize)]
struct Delta {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
}

impl ChatCompletion {
    fn logprobs(&self, gateway: &Gateway, piece: &Piece) -> Option<Logprobs> {
        self.logprobs.then(|| Logprobs::new(&piece.tokens, gateway.card.tokenizer.vocabulary()))
    }
}

impl Shape for ChatCompletion {
    const ID_PREFIX: &'static str = "chatcmpl";
    const OBJECT: &'static str = "chat.completion";
    const CHUNK_OBJECT: &'static str = "chat.completion.chunk";
    type Choice = ChatChoice;
    type Chunk = ChatChunk;

    fn choice(&self, gateway: &Gateway, answer: Piece) -> ChatChoice {
        ChatChoice {
            index: answer.index,
            logprobs: self.logprobs(gateway, &answer),
            message: AssistantMessage { role: "assistant", content: answer.text, refusal: None },
            finish_reason: answer.finish,
        }
    }

    fn chunk(&self, gateway: &Gateway, piece: Piece) -> ChatChunk {
        ChatChunk {
            index: piece.index,
            logprobs: self.logprobs(gateway, &piece),
            delta: Delta { role: None, content: (!piece.text.is_empty()).then_some(piece.text) },
            finish_reason: piece.finish,
        }
    }

    fn opening(&self, index: u32) -> Option<ChatChunk> {
        let delta = Delta { role: Some("assistant"), content: Some(String::new()) };
        Some(ChatChunk { index, delta, logprobs: None, finish_reason: None })
    }
}
