//! One request, sent and timed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use crate::body::RequestApi;
use crate::client::HttpClient;
use crate::record::{RequestFailure, ServerTimings};
use crate::sse::ChunkUsage;

/// When things happened.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    pub(crate) sent: Option<Instant>,
    /// Of each chunk that carries tokens.
    pub(crate) chunks: Vec<Instant>,
    /// Of the whole answer.
    pub(crate) end: Option<Instant>,
    pub(crate) usage: Option<ChunkUsage>,
    pub(crate) timings: Option<ServerTimings>,
}

/// What all requests of a run have done so far, for the progress line.
#[derive(Debug, Default)]
pub(crate) struct RunProgress {
    pub(crate) started: AtomicU64,
    pub(crate) ended: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) chunks: AtomicU64,
}

pub(crate) struct RequestSender {
    pub(crate) client: Arc<HttpClient>,
    pub(crate) api: RequestApi,
    /// For the whole answer, from the moment it is sent.
    pub(crate) timeout: Duration,
    pub(crate) progress: Arc<RunProgress>,
}

impl RequestSender {
    /// What was seen, also of an answer that failed half-way.
    pub(crate) async fn send(&self, body: Bytes) -> (Exchange, Result<(), RequestFailure>) {
        let mut exchange = Exchange::default();
        self.progress.started.fetch_add(1, Ordering::Relaxed);
        let deadline = Instant::now() + self.timeout;
        let result =
            timeout_at(deadline, self.stream(body, &mut exchange)).await.unwrap_or(Err(RequestFailure::Timeout));
        self.progress.ended.fetch_add(1, Ordering::Relaxed);
        if result.is_err() {
            self.progress.failed.fetch_add(1, Ordering::Relaxed);
        }
        (exchange, result)
    }

    async fn stream(&self, body: Bytes, exchange: &mut Exchange) -> Result<(), RequestFailure> {
        let mut answer = self.client.post(self.api.path(), body, &mut exchange.sent).await?;
        let mut finished = false;
        while let Some(chunk) = answer.next().await? {
            if chunk.has_tokens() {
                exchange.chunks.push(Instant::now());
                self.progress.chunks.fetch_add(1, Ordering::Relaxed);
            }
            finished |= chunk.choices.0.as_ref().is_some_and(|choice| choice.finish_reason.is_some());
            exchange.usage = chunk.usage.or(exchange.usage);
            exchange.timings = chunk.timings.or(exchange.timings);
        }
        if !finished && !answer.is_done {
            return Err(RequestFailure::Cut("the stream ended without a finish_reason or [DONE]".into()));
        }
        exchange.end = Some(Instant::now());
        answer.finish(&self.client).await;
        Ok(())
    }
}
