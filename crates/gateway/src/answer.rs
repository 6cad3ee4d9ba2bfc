//! Pieces of choices to an HTTP response: one JSON object, or a chunk for every piece.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Json;
use axum::body::Bytes;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use baton_router::RouteHandle;
use futures_util::stream;
use serde::Serialize;

use crate::choice::Piece;
use crate::error::ApiError;
use crate::gateway::Gateway;
use crate::generation::{Generation, Job, Routed};
use crate::params::Delivery;
use crate::sse;
use crate::timings::Timings;
use crate::usage::Usage;

/// How an endpoint writes pieces of answers as JSON.
pub(crate) trait Shape: Send + Sync + 'static {
    const ID_PREFIX: &'static str;
    const OBJECT: &'static str;
    const CHUNK_OBJECT: &'static str;
    type Choice: Serialize;
    type Chunk: Serialize;

    /// A whole answer.
    fn choice(&self, gateway: &Gateway, answer: Piece) -> Self::Choice;

    /// The next piece of an answer.
    fn chunk(&self, gateway: &Gateway, piece: Piece) -> Self::Chunk;

    /// What comes before an answer's first piece.
    fn opening(&self, index: u32) -> Option<Self::Chunk>;
}

/// What all chunks of a response have in common.
struct Head {
    id: String,
    created: u64,
    model: String,
    fingerprint: Option<String>,
    /// Of the first prompt.
    route: Option<RouteHandle>,
}

#[derive(Serialize)]
struct Envelope<'a, C> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    system_fingerprint: Option<&'a str>,
    choices: Vec<C>,
    /// Outer `None`: not there; inner: null.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Usage>>,
    /// Wherever usage is.
    #[serde(skip_serializing_if = "Option::is_none")]
    timings: Option<Timings>,
}

impl Head {
    fn new<S: Shape>(gateway: &Gateway, route: Option<RouteHandle>) -> Self {
        let created = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        let id = format!("{}-{}", S::ID_PREFIX, uuid::Uuid::new_v4().simple());
        Self { id, created, model: gateway.card.id.clone(), fingerprint: gateway.fingerprint(), route }
    }

    fn envelope<C>(&self, object: &'static str, choices: Vec<C>, usage: Option<Option<Usage>>) -> Envelope<'_, C> {
        Envelope {
            id: &self.id,
            object,
            created: self.created,
            model: &self.model,
            system_fingerprint: self.fingerprint.as_deref(),
            choices,
            usage,
            timings: None,
        }
    }

    fn named(&self, mut response: Response) -> Response {
        if let Ok(id) = HeaderValue::from_str(&self.id) {
            response.headers_mut().insert("x-request-id", id);
        }
        let decision = self.route.as_ref().and_then(RouteHandle::decision);
        if let Some(route) = decision.and_then(|decision| HeaderValue::from_str(&decision.to_string()).ok()) {
            response.headers_mut().insert("x-baton-route", route);
        }
        response
    }
}

/// `streams`: one for each prompt of the job. An error before the first piece is an error with its own status, also for a
/// stream.
pub(crate) async fn answer<S: Shape>(
    gateway: &Arc<Gateway>,
    shape: S,
    job: Job,
    streams: Vec<Routed>,
) -> Result<Response, ApiError> {
    let (choices, delivery) = (job.choices(), job.params.delivery);
    let route = streams.first().and_then(|stream| stream.route.clone());
    let mut generation = Generation::new(gateway, job, streams);
    let head = Head::new::<S>(gateway, route);
    match delivery {
        Delivery::Whole => {
            let answers = collect(&mut generation, choices).await?;
            let answers = answers.into_iter().map(|answer| shape.choice(gateway, answer)).collect();
            let usage = Some(Some(generation.usage()));
            let whole = Envelope { timings: Some(generation.timings()), ..head.envelope(S::OBJECT, answers, usage) };
            Ok(head.named(Json(whole).into_response()))
        }
        Delivery::Stream { include_usage } => {
            let first = generation.next().await?;
            let chunks = Chunks { gateway: Arc::clone(gateway), shape, head, include_usage };
            chunks.respond(generation, first, choices)
        }
    }
}

async fn collect(generation: &mut Generation, choices: u32) -> Result<Vec<Piece>, ApiError> {
    let mut answers: Vec<Piece> = (0..choices).map(|index| Piece { index, ..Piece::default() }).collect();
    while let Some(piece) = generation.next().await? {
        let answer = &mut answers[piece.index as usize];
        answer.text += &piece.text;
        answer.tokens.extend(piece.tokens);
        answer.finish = piece.finish;
    }
    Ok(answers)
}

struct Chunks<S> {
    gateway: Arc<Gateway>,
    shape: S,
    head: Head,
    include_usage: bool,
}

impl<S: Shape> Chunks<S> {
    fn respond(self, generation: Generation, first: Option<Piece>, choices: u32) -> Result<Response, ApiError> {
        let mut ready = VecDeque::new();
        for opening in (0..choices).filter_map(|index| self.shape.opening(index)) {
            ready.push_back(self.chunk(opening)?);
        }
        if let Some(piece) = first {
            ready.push_back(self.piece(piece)?);
        }
        let name = self.head.named(Response::default());
        let state = (self, Some(generation), ready);
        let events = stream::unfold(state, |(chunks, mut generation, mut ready)| async move {
            if ready.is_empty() {
                ready = chunks.advance(&mut generation).await;
            }
            let event = ready.pop_front()?;
            Some((Ok::<Bytes, Infallible>(event), (chunks, generation, ready)))
        });
        let mut response = sse::response(events);
        response.headers_mut().extend(name.headers().clone());
        Ok(response)
    }

    /// The next events; none when all have been returned. `generation` is gone after the last.
    async fn advance(&self, generation: &mut Option<Generation>) -> VecDeque<Bytes> {
        let Some(running) = generation else { return VecDeque::new() };
        let events = match running.next().await {
            Ok(Some(piece)) => return self.piece(piece).into_iter().collect(),
            Ok(None) => self.closing(running.usage(), running.timings()),
            Err(error) => Err(error),
        };
        *generation = None;
        // Without [DONE], so that no client takes the answer for a whole one.
        events.unwrap_or_else(|error| sse::event(&error.body()).into_iter().collect())
    }

    fn closing(&self, usage: Usage, timings: Timings) -> Result<VecDeque<Bytes>, ApiError> {
        let mut events = VecDeque::new();
        if self.include_usage {
            let envelope = self.head.envelope(S::CHUNK_OBJECT, Vec::<S::Chunk>::new(), Some(Some(usage)));
            events.push_back(written(&Envelope { timings: Some(timings), ..envelope })?);
        }
        events.push_back(sse::DONE);
        Ok(events)
    }

    fn piece(&self, piece: Piece) -> Result<Bytes, ApiError> {
        self.chunk(self.shape.chunk(&self.gateway, piece))
    }

    fn chunk(&self, chunk: S::Chunk) -> Result<Bytes, ApiError> {
        written(&self.head.envelope(S::CHUNK_OBJECT, vec![chunk], self.include_usage.then_some(None)))
    }
}

fn written(chunk: &impl Serialize) -> Result<Bytes, ApiError> {
    sse::event(chunk).map_err(|error| {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, format!("a chunk could not be written: {error}"))
    })
}
