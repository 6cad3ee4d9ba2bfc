//! `POST /v1/completions`: continues prompts as they are.

mod logprobs;
mod request;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use serde::Serialize;
use tokio::time::Instant;

use self::logprobs::Logprobs;
pub(crate) use self::request::CompletionRequest;
use crate::answer::{Shape, answer};
use crate::body;
use crate::choice::{Finish, Piece};
use crate::error::ApiError;
use crate::gateway::Gateway;

pub(crate) async fn completions(State(gateway): State<Arc<Gateway>>, body: Body) -> Result<Response, ApiError> {
    let arrived = Instant::now();
    let received = body::admit(&gateway, body).await?;
    let mut request = CompletionRequest::take(&mut received.fields()?, &gateway.card)?;
    let mut echoes = gateway.bodies.share();
    let prompts = request.prompts(&gateway, &mut echoes).await?;
    let shape = TextCompletion { logprobs: request.logprobs.is_some() };
    let job = request.into_job(prompts, arrived, Box::new((received.into_permit(), echoes)));
    let streams = job.dispatch(&gateway).await?;
    answer(&gateway, shape, job, streams).await
}

pub(crate) struct TextCompletion {
    pub(crate) logprobs: bool,
}

#[derive(Serialize)]
pub(crate) struct TextChoice {
    index: u32,
    text: String,
    logprobs: Option<Logprobs>,
    finish_reason: Option<Finish>,
}

impl Shape for TextCompletion {
    const ID_PREFIX: &'static str = "cmpl";
    const OBJECT: &'static str = "text_completion";
    const CHUNK_OBJECT: &'static str = "text_completion";
    type Choice = TextChoice;
    type Chunk = TextChoice;

    fn choice(&self, gateway: &Gateway, answer: Piece) -> TextChoice {
        let vocabulary = gateway.card.tokenizer.vocabulary();
        TextChoice {
            index: answer.index,
            logprobs: self.logprobs.then(|| Logprobs::new(&answer.tokens, vocabulary)),
            text: answer.text,
            finish_reason: answer.finish,
        }
    }

    fn chunk(&self, gateway: &Gateway, piece: Piece) -> TextChoice {
        self.choice(gateway, piece)
    }

    fn opening(&self, _index: u32) -> Option<TextChoice> {
        None
    }
}
