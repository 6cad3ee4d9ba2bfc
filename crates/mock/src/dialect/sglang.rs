//! SGLang: the same request goes to both engines at once. They meet in the room that it names; the prefill engine answers
//! when the KV is with the decode engine, which goes on from the first token.

use std::sync::Arc;

use futures_util::future::try_join_all;
use hyper::{Response, StatusCode};
use tokio::time::Instant;

use super::clock::wait;
use super::counters::{Running, count};
use super::desk::Refusal;
use super::http::{self, Refused, Reply};
use super::job::{Job, Room};
use super::pour::Pour;
use super::{DialectEngine, Role};
use crate::history::History;

const DEFAULT_BOOTSTRAP_PORT: u16 = 8998;

pub(super) async fn answer(engine: &Arc<DialectEngine>, mut job: Job) -> Result<Response<Reply>, Refused> {
    let running = Running::new(engine);
    if engine.role.is_some() && job.rooms.is_empty() {
        let message = "a disaggregated engine needs bootstrap_host and bootstrap_room".to_owned();
        return Err(Refused::bad(engine, message));
    }
    match engine.role {
        Some(Role::Prefill) => {
            // It says the first token and leaves the others to the decode engine.
            job.max_tokens = 1;
            prefill(engine, &job, running).await
        }
        Some(Role::Decode) => {
            fetch(engine, &job).await?;
            http::tokens(Pour::start(engine, &job, Instant::now(), running)?, job.stream).await
        }
        None => {
            let first_due = Instant::now() + engine.prefill_time(job.prompt_tokens());
            http::tokens(Pour::start(engine, &job, first_due, running)?, job.stream).await
        }
    }
}

async fn prefill(engine: &Arc<DialectEngine>, job: &Job, running: Running) -> Result<Response<Reply>, Refused> {
    let opened = job.rooms.iter().map(|room| engine.desk.rooms.open(room.number)).collect::<Result<Vec<_>, _>>();
    let hosts = opened.map_err(|refusal| {
        count(&engine.counters.kv_reused);
        refused(engine, refusal)
    })?;
    let first_due = Instant::now() + engine.prefill_time(job.prompt_tokens());
    let pour = Pour::start(engine, job, first_due, running)?;
    pour.due().await;
    for (mut host, prompt) in hosts.into_iter().zip(&job.prompts) {
        count(&engine.counters.kv_offered);
        let guest = host.guest().await.map_err(|refusal| refused(engine, refusal))?;
        wait(engine.transfer_time(prompt.len())).await;
        guest.serve(hash(prompt), prompt.len() as u32).map_err(|refusal| refused(engine, refusal))?;
    }
    http::tokens(pour, job.stream).await
}

async fn fetch(engine: &DialectEngine, job: &Job) -> Result<(), Refused> {
    let legs = job.rooms.iter().zip(&job.prompts).map(|(room, prompt)| fetch_one(engine, room, hash(prompt)));
    try_join_all(legs).await.map(drop).map_err(|refusal| {
        count(&engine.counters.kv_load_failures);
        refused(engine, refusal)
    })
}

async fn fetch_one(engine: &DialectEngine, room: &Room, prompt: u64) -> Result<u32, Refusal> {
    let port = room.port.unwrap_or(DEFAULT_BOOTSTRAP_PORT);
    let route = engine.routes.find(&room.host, port).await.map_err(|_| Refusal::Gone)?;
    let fetched = engine.others.fetch(&route.host, route.port, &room.number.to_string(), prompt).await;
    if fetched == Err(Refusal::Gone) {
        engine.routes.forget(&room.host, port).await;
    }
    fetched
}

fn refused(engine: &DialectEngine, refusal: Refusal) -> Refused {
    let status = match refusal {
        Refusal::Used | Refusal::OtherPrompt => StatusCode::BAD_REQUEST,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Refused::new(engine, status, refusal.to_string())
}

fn hash(prompt: &[baton_core::TokenId]) -> u64 {
    History::of(prompt).derive(0)
}
