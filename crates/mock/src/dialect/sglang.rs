//! SGLang's protocol: both engines get the same request at once and find each other by its `bootstrap_room`. The prefill
//! engine responds when the decode engine has the KV; the decode engine generates from the first token on.

use std::sync::Arc;

use futures_util::future::try_join_all;
use hyper::{Response, StatusCode};
use tokio::time::Instant;

use super::clock::wait;
use super::config::DialectRole;
use super::counters::count;
use super::engine::DialectEngine;
use super::engine::RunningGuard;
use super::error::ErrorResponse;
use super::handoffs::KvError;
use super::http::{self, Reply};
use super::request::{BootstrapRoom, DialectRequest};
use super::stream::ResponseStream;
use crate::history::History;

const DEFAULT_BOOTSTRAP_PORT: u16 = 8998;

pub(super) async fn answer(
    engine: &Arc<DialectEngine>,
    mut request: DialectRequest,
) -> Result<Response<Reply>, ErrorResponse> {
    let running = RunningGuard::new(engine);
    if engine.role.is_some() && request.rooms.is_empty() {
        let message = "a disaggregated engine needs bootstrap_host and bootstrap_room".to_owned();
        return Err(ErrorResponse::bad(engine, message));
    }
    match engine.role {
        Some(DialectRole::Prefill) => {
            // The prefill leg generates the first token only.
            request.max_tokens = 1;
            prefill(engine, &request, running).await
        }
        Some(DialectRole::Decode) => {
            fetch(engine, &request).await?;
            http::tokens(ResponseStream::start(engine, &request, Instant::now(), running)?, request.stream).await
        }
        None => {
            let first_due = Instant::now() + engine.prefill_time(request.prompt_tokens());
            http::tokens(ResponseStream::start(engine, &request, first_due, running)?, request.stream).await
        }
    }
}

async fn prefill(
    engine: &Arc<DialectEngine>,
    request: &DialectRequest,
    running: RunningGuard,
) -> Result<Response<Reply>, ErrorResponse> {
    let opened =
        request.rooms.iter().map(|room| engine.handoffs.sessions.open(room.number)).collect::<Result<Vec<_>, _>>();
    let legs = opened.map_err(|error| {
        count(&engine.counters.kv_reused);
        error_response(engine, error)
    })?;
    let first_due = Instant::now() + engine.prefill_time(request.prompt_tokens());
    let stream = ResponseStream::start(engine, request, first_due, running)?;
    stream.due().await;
    for (mut leg, prompt) in legs.into_iter().zip(&request.prompts) {
        count(&engine.counters.kv_offered);
        let decode_leg = leg.decode_leg().await.map_err(|error| error_response(engine, error))?;
        wait(engine.transfer_time(prompt.len())).await;
        decode_leg.serve(hash(prompt), prompt.len() as u32).map_err(|error| error_response(engine, error))?;
    }
    http::tokens(stream, request.stream).await
}

async fn fetch(engine: &DialectEngine, request: &DialectRequest) -> Result<(), ErrorResponse> {
    let legs = request.rooms.iter().zip(&request.prompts).map(|(room, prompt)| fetch_one(engine, room, hash(prompt)));
    try_join_all(legs).await.map(drop).map_err(|error| {
        count(&engine.counters.kv_load_failures);
        error_response(engine, error)
    })
}

async fn fetch_one(engine: &DialectEngine, room: &BootstrapRoom, prompt: u64) -> Result<u32, KvError> {
    let port = room.port.unwrap_or(DEFAULT_BOOTSTRAP_PORT);
    let route = engine.routes.find(&room.host, port).await.map_err(|_| KvError::Gone)?;
    let fetched = engine.remote_engines.fetch(&route.host, route.port, &room.number.to_string(), prompt).await;
    if fetched == Err(KvError::Gone) {
        engine.routes.forget(&room.host, port).await;
    }
    fetched
}

fn error_response(engine: &DialectEngine, error: KvError) -> ErrorResponse {
    let status = match error {
        KvError::Used | KvError::OtherPrompt => StatusCode::BAD_REQUEST,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    ErrorResponse::new(engine, status, error.to_string())
}

fn hash(prompt: &[baton_core::TokenId]) -> u64 {
    History::of(prompt).derive(0)
}
