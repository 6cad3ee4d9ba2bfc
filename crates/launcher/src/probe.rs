//! The readiness probe: an engine is ready when it has generated one token.

use std::time::Duration;

use baton_core::{Attempt, EngineEvent, GenerateRequest, Limits, RequestId, SamplingParams, ServeError, TokenId};
use baton_protocol::Engine;
use tokio::time::timeout;

/// Far more than one token takes, as the first step may have to read all weights from disk.
const PROBE_TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) async fn probe(engine: &dyn Engine) -> Result<(), ServeError> {
    timeout(PROBE_TIMEOUT, one_token(engine))
        .await
        .unwrap_or_else(|_| Err(ServeError::engine(format!("no token within {} s", PROBE_TIMEOUT.as_secs()))))
}

async fn one_token(engine: &dyn Engine) -> Result<(), ServeError> {
    let request = GenerateRequest {
        // Ids of clients' requests begin at 1.
        id: RequestId(0),
        attempt: Attempt(0),
        prompt: [TokenId(0)].into(),
        outputs: vec![vec![]],
        ended: vec![false],
        sampling: SamplingParams::greedy(),
        limits: Limits { max_tokens: 1, min_tokens: 0, stop_tokens: vec![] },
        logprobs: None,
        prompt_logprobs: None,
        adapter: None,
        pooling: None,
        affinity: None,
    };
    let mut stream = engine.start_generate(request, None).await?;
    loop {
        match stream.next().await {
            Some(EngineEvent::Token(_)) => return Ok(()),
            Some(EngineEvent::Prompt(_) | EngineEvent::Reserved(_) | EngineEvent::Sent(_)) => {}
            Some(EngineEvent::Failed(failed)) => return Err(failed.error),
            None => return Err(ServeError::engine("the session was closed")),
        }
    }
}
