//! All prompts of one request at once, their pieces merged in the order in which they come.

use std::sync::Arc;

use baton_core::{Attempt, GenerateRequest, Limits, RequestId, SamplingParams};
use baton_protocol::TokenStream;
use baton_router::RouteHandle;
use futures_util::future::try_join_all;
use futures_util::stream::{self, BoxStream, SelectAll, StreamExt};
use tokio::time::Instant;

use crate::choice::Piece;
use crate::error::ApiError;
use crate::gateway::Gateway;
use crate::metrics::Stopwatch;
use crate::params::Params;
use crate::prompt::Prompt;
use crate::prompt_run::{Output, PromptRun};
use crate::timings::Timings;
use crate::usage::Usage;

/// A request that has been understood: nothing in it can be wrong any more.
pub(crate) struct Job {
    pub(crate) prompts: Vec<Prompt>,
    pub(crate) params: Params,
    pub(crate) logprobs: Option<u32>,
    /// With the log-probabilities of the prompt.
    pub(crate) score_prompt: bool,
    pub(crate) arrived: Instant,
    pub(crate) held: Held,
}

/// One prompt under way, and where a router has sent it.
pub(crate) struct Routed {
    pub(crate) events: TokenStream,
    /// `None`: no router was there to decide.
    pub(crate) route: Option<RouteHandle>,
}

/// Released after the last piece: a place among the open requests, a name that others cannot use.
pub(crate) type Held = Box<dyn Send + Sync>;

impl Job {
    pub(crate) fn choices(&self) -> u32 {
        self.prompts.len() as u32 * self.params.choices
    }

    /// Started wherever the router thinks best.
    pub(crate) async fn dispatch(&self, gateway: &Gateway) -> Result<Vec<Routed>, ApiError> {
        let requests = self.prompts.iter().map(|prompt| self.request(prompt));
        let started = requests.map(|request| gateway.dispatcher.dispatch(request));
        let started = try_join_all(started).await?.into_iter();
        Ok(started.map(|(events, route)| Routed { events, route: Some(route) }).collect())
    }

    pub(crate) fn request(&self, prompt: &Prompt) -> GenerateRequest {
        let choices = self.params.choices as usize;
        GenerateRequest {
            id: RequestId(0),
            attempt: Attempt(0),
            prompt: Arc::clone(&prompt.tokens),
            outputs: vec![Vec::new(); choices],
            ended: vec![false; choices],
            sampling: SamplingParams {
                seed: self.params.seed.unwrap_or_else(random_seed),
                ..self.params.sampling.clone()
            },
            limits: Limits {
                // An engine always samples; a prompt that is only scored is let go before that.
                max_tokens: prompt.max_tokens.max(1),
                min_tokens: self.params.min_tokens,
                stop_tokens: self.params.stop_tokens.clone(),
            },
            logprobs: self.logprobs,
            prompt_logprobs: self.logprobs.filter(|_| self.score_prompt),
            adapter: None,
            pooling: None,
            affinity: self.params.affinity,
        }
    }
}

fn random_seed() -> u64 {
    // A few bits of each half are the same in every UUID, at different places.
    let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
    high ^ low.rotate_left(32)
}

/// Dropping it aborts whatever still runs.
pub(crate) struct Generation {
    runs: SelectAll<BoxStream<'static, Result<Output, ApiError>>>,
    usage: Usage,
    timings: Timings,
    _held: Held,
}

impl Generation {
    pub(crate) fn new(gateway: &Arc<Gateway>, job: Job, streams: Vec<Routed>) -> Self {
        let Job { prompts, params, arrived, held, .. } = job;
        let vocabulary = gateway.card.tokenizer.vocabulary();
        let indices = (0..).step_by(params.choices as usize);
        let runs =
            streams.into_iter().zip(prompts).zip(indices).map(|((Routed { events, .. }, prompt), first_index)| {
                let stopwatch = Stopwatch::new(Arc::clone(gateway), arrived, params.choices);
                let run = PromptRun::new(events, prompt, vocabulary, &params, first_index, stopwatch);
                stream::unfold(run, |mut run| async move { run.next().await.map(|output| (output, run)) }).boxed()
            });
        Self { runs: runs.collect(), usage: Usage::default(), timings: Timings::default(), _held: held }
    }

    /// `None` when all choices have ended. After an error nothing more comes: the other prompts are given up.
    pub(crate) async fn next(&mut self) -> Result<Option<Piece>, ApiError> {
        while let Some(output) = self.runs.next().await {
            match output {
                Ok(Output::Piece(piece)) => return Ok(Some(piece)),
                Ok(Output::Ended(usage, timings)) => {
                    self.usage += usage;
                    self.timings = self.timings.longest(timings);
                }
                Err(error) => {
                    self.runs.clear();
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    /// Of what has ended so far.
    pub(crate) fn usage(&self) -> Usage {
        self.usage
    }

    /// Of the prompt that took longest so far.
    pub(crate) fn timings(&self) -> Timings {
        self.timings
    }
}
