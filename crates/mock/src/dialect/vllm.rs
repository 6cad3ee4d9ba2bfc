//! vLLM's protocol with its NixlConnector: the prefill leg's response has `kv_transfer_params`, which the decode leg sends to a
//! decode engine; that engine pulls the KV.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use hyper::Response;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::body::KvTransferParams;
use super::clock::wait;
use super::config::DialectRole;
use super::counters::count;
use super::engine::DialectEngine;
use super::engine::RunningGuard;
use super::error::ErrorResponse;
use super::http::{self, Reply};
use super::request::DialectRequest;
use super::stream::ResponseStream;
use crate::history::History;

const BLOCK_TOKENS: usize = 16;

pub(super) async fn answer(
    engine: &Arc<DialectEngine>,
    mut request: DialectRequest,
) -> Result<Response<Reply>, ErrorResponse> {
    let running = RunningGuard::new(engine);
    match request.kv.take() {
        Some(kv) if kv.do_remote_decode => prefill(engine, request, running).await,
        Some(kv) if kv.do_remote_prefill => decode(engine, request, &kv, running).await,
        _ => {
            let first_due = Instant::now() + engine.prefill_time(request.prompt_tokens());
            http::tokens(ResponseStream::start(engine, &request, first_due, running)?, request.stream).await
        }
    }
}

async fn prefill(
    engine: &Arc<DialectEngine>,
    request: DialectRequest,
    running: RunningGuard,
) -> Result<Response<Reply>, ErrorResponse> {
    let prompt = single_prompt(engine, &request, DialectRole::Prefill)?;
    let first_due = Instant::now() + engine.prefill_time(prompt.tokens);
    let mut stream = ResponseStream::start(engine, &request, first_due, running)?;
    if request.stream {
        return Ok(http::events(stream));
    }
    stream.generate_all().await?;
    Ok(http::whole("application/json", stream.document(Some(("kv_transfer_params", offer(engine, &request, &prompt))))))
}

/// The `kv_transfer_params` of vLLM 0.32. Routers pass them on unchanged.
fn offer(engine: &DialectEngine, request: &DialectRequest, prompt: &SinglePrompt) -> Value {
    // A caller may use an id twice; the name must be unique.
    let name = format!("{}-{:08x}", request.id, uuid::Uuid::new_v4().as_fields().0);
    let expires_in = engine.handoffs.offers.put(name.clone(), prompt.hash, prompt.tokens as u32);
    count(&engine.counters.kv_offered);
    let address = engine.side_channel_address();
    let blocks: Vec<usize> = (1..=prompt.tokens.div_ceil(BLOCK_TOKENS)).collect();
    let expiry = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + expires_in;
    json!({
        "do_remote_prefill": true, "do_remote_decode": false, "remote_block_ids": [blocks],
        "remote_engine_id": engine.id, "remote_request_id": name,
        "remote_host": address.ip().to_string(), "remote_port": address.port(),
        "tp_size": 1, "dcp_size": 1, "pp_size": 1, "remote_num_tokens": prompt.tokens,
        "remote_blocks_expiry_time": expiry.as_secs_f64(), "transfer_mode": "pull", "remote_prefill_cached_tokens": 0,
    })
}

async fn decode(
    engine: &Arc<DialectEngine>,
    request: DialectRequest,
    kv: &KvTransferParams,
    running: RunningGuard,
) -> Result<Response<Reply>, ErrorResponse> {
    let prompt = single_prompt(engine, &request, DialectRole::Decode)?;
    let missing = |field: &str| ErrorResponse::bad(engine, format!("kv_transfer_params has no {field}"));
    kv.remote_engine_id.as_ref().ok_or_else(|| missing("remote_engine_id"))?;
    kv.remote_block_ids.as_ref().filter(|blocks| blocks.is_array()).ok_or_else(|| missing("remote_block_ids"))?;
    let name = kv.remote_request_id.as_ref().ok_or_else(|| missing("remote_request_id"))?;
    let host = kv.remote_host.as_ref().ok_or_else(|| missing("remote_host"))?;
    let port = kv.remote_port.ok_or_else(|| missing("remote_port"))?;
    let tokens = engine.remote_engines.fetch(host, port, name, prompt.hash).await.map_err(|error| {
        count(&engine.counters.kv_load_failures);
        ErrorResponse::failed(engine, error.to_string())
    })?;
    wait(engine.transfer_time(tokens as usize)).await;
    // The decode engine computes the last prompt token itself.
    let first_due = Instant::now() + engine.config.speed.decode;
    http::tokens(ResponseStream::start(engine, &request, first_due, running)?, request.stream).await
}

/// The prompt of a hand-off: vLLM's legs have one each.
struct SinglePrompt {
    tokens: usize,
    hash: u64,
}

fn single_prompt(
    engine: &DialectEngine,
    request: &DialectRequest,
    leg: DialectRole,
) -> Result<SinglePrompt, ErrorResponse> {
    if engine.role.is_some_and(|role| role != leg) {
        let message = format!("this leg belongs on a {} engine", leg.name());
        return Err(ErrorResponse::bad(engine, message));
    }
    match &request.prompts[..] {
        [prompt] => Ok(SinglePrompt { tokens: prompt.len(), hash: History::of(prompt).derive(0) }),
        prompts => {
            Err(ErrorResponse::bad(engine, format!("kv_transfer_params are for one prompt, not {}", prompts.len())))
        }
    }
}
