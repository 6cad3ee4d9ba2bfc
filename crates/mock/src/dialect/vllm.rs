//! vLLM with its NixlConnector: the first leg computes the prompt and is answered with `kv_transfer_params`, which the second
//! leg brings to a decode engine, which pulls the KV.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use hyper::Response;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::body::KvTransferParams;
use super::clock::wait;
use super::counters::{Running, count};
use super::http::{self, Refused, Reply};
use super::job::Job;
use super::pour::Pour;
use super::{DialectEngine, Role};
use crate::history::History;

const BLOCK_TOKENS: usize = 16;

pub(super) async fn answer(engine: &Arc<DialectEngine>, mut job: Job) -> Result<Response<Reply>, Refused> {
    let running = Running::new(engine);
    match job.kv.take() {
        Some(kv) if kv.do_remote_decode => prefill(engine, job, running).await,
        Some(kv) if kv.do_remote_prefill => decode(engine, job, &kv, running).await,
        _ => {
            let first_due = Instant::now() + engine.prefill_time(job.prompt_tokens());
            http::tokens(Pour::start(engine, &job, first_due, running)?, job.stream).await
        }
    }
}

async fn prefill(engine: &Arc<DialectEngine>, job: Job, running: Running) -> Result<Response<Reply>, Refused> {
    let prompt = the_prompt(engine, &job, Role::Prefill)?;
    let first_due = Instant::now() + engine.prefill_time(prompt.tokens);
    let mut pour = Pour::start(engine, &job, first_due, running)?;
    if job.stream {
        return Ok(http::events(pour));
    }
    pour.say_all().await?;
    Ok(http::whole("application/json", pour.whole(Some(("kv_transfer_params", offer(engine, &job, &prompt))))))
}

/// As 0.32 writes it. Routers hand it on as it is.
fn offer(engine: &DialectEngine, job: &Job, prompt: &ThePrompt) -> Value {
    // A caller's id may come twice, a name may not.
    let name = format!("{}-{:08x}", job.id, uuid::Uuid::new_v4().as_fields().0);
    let lease = engine.desk.offers.put(name.clone(), prompt.hash, prompt.tokens as u32);
    count(&engine.counters.kv_offered);
    let address = engine.side_channel_address();
    let blocks: Vec<usize> = (1..=prompt.tokens.div_ceil(BLOCK_TOKENS)).collect();
    let expiry = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + lease;
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
    job: Job,
    kv: &KvTransferParams,
    running: Running,
) -> Result<Response<Reply>, Refused> {
    let prompt = the_prompt(engine, &job, Role::Decode)?;
    let missing = |field: &str| Refused::bad(engine, format!("kv_transfer_params has no {field}"));
    kv.remote_engine_id.as_ref().ok_or_else(|| missing("remote_engine_id"))?;
    kv.remote_block_ids.as_ref().filter(|blocks| blocks.is_array()).ok_or_else(|| missing("remote_block_ids"))?;
    let name = kv.remote_request_id.as_ref().ok_or_else(|| missing("remote_request_id"))?;
    let host = kv.remote_host.as_ref().ok_or_else(|| missing("remote_host"))?;
    let port = kv.remote_port.ok_or_else(|| missing("remote_port"))?;
    let tokens = engine.others.fetch(host, port, name, prompt.hash).await.map_err(|refusal| {
        count(&engine.counters.kv_load_failures);
        Refused::failed(engine, refusal.to_string())
    })?;
    wait(engine.transfer_time(tokens as usize)).await;
    // The last prompt token is computed here, like the first one that is generated.
    let first_due = Instant::now() + engine.config.speed.decode;
    http::tokens(Pour::start(engine, &job, first_due, running)?, job.stream).await
}

/// Only single prompts are handed over.
struct ThePrompt {
    tokens: usize,
    hash: u64,
}

fn the_prompt(engine: &DialectEngine, job: &Job, leg: Role) -> Result<ThePrompt, Refused> {
    if engine.role.is_some_and(|role| role != leg) {
        let message = format!("this is a leg for a {} engine", leg.name());
        return Err(Refused::bad(engine, message));
    }
    match &job.prompts[..] {
        [prompt] => Ok(ThePrompt { tokens: prompt.len(), hash: History::of(prompt).derive(0) }),
        prompts => Err(Refused::bad(engine, format!("kv_transfer_params are for one prompt, not {}", prompts.len()))),
    }
}
