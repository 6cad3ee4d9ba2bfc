//! An engine that a test drives.

use std::sync::Arc;
use std::time::Duration;

use baton_core::{
    Candidate, Choice, EngineCounters, EngineEvent, EngineInfo, EngineLoad, EngineReport, FailedEvent, FinishReason,
    GenerateRequest, PromptEvent, PromptTimes, ServeError, SessionLoad, ShardCounters, TokenEvent, TokenId,
    TokenLogprobs, TokenRange,
};
use baton_protocol::{Destination, Engine, Reservation, Sent, TokenStream};
use baton_text::{SpecialTokens, Tokenizer};
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

/// What the engine reports of every prompt.
pub(crate) const TIMES: PromptTimes = PromptTimes {
    queue: Duration::from_micros(1_500),
    prefill: Duration::from_millis(20),
    handoff: Duration::from_millis(3),
};

pub(crate) struct DrivenEngine {
    info: EngineInfo,
    started: mpsc::UnboundedSender<Started>,
    tokenizer: Arc<Tokenizer>,
}

/// A request that has reached the engine, and the way to answer it.
pub(crate) struct Started {
    pub(crate) request: GenerateRequest,
    /// Resolves when the router has let go of the stream.
    pub(crate) dropped: oneshot::Receiver<()>,
    events: mpsc::UnboundedSender<EngineEvent>,
    tokenizer: Arc<Tokenizer>,
    next_index: Vec<u32>,
}

impl DrivenEngine {
    pub(crate) fn new(tokenizer: Arc<Tokenizer>) -> (Self, mpsc::UnboundedReceiver<Started>) {
        let (started, receiver) = mpsc::unbounded_channel();
        let info = EngineInfo {
            model: "storyteller-11m".to_owned(),
            numerics_id: "cpu/0123-4567-89ab-cdef".to_owned(),
            vocab_size: 4096,
            max_context_tokens: 2048,
            pages_total: 100,
            threads: 1,
            prefix_cache: true,
        };
        (Self { info, started, tokenizer }, receiver)
    }
}

impl Engine for DrivenEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn report(&self) -> EngineReport {
        EngineReport {
            sequence: 1,
            load: EngineLoad {
                running: 3,
                pages_total: 100,
                pages_free: 60,
                pages_cached: 30,
                ..EngineLoad::default()
            },
            own: SessionLoad::default(),
            counters: EngineCounters { preemptions: 7, busy_us: 1_500_000, ..EngineCounters::default() },
            costs: baton_core::StepCosts::default(),
            shards: [40, 2].map(|kv_bytes_received| ShardCounters { kv_bytes_received, ..Default::default() }).to_vec(),
        }
    }

    fn is_alive(&self) -> bool {
        true
    }

    fn prep_recv(&self, _: &GenerateRequest, _: u32) -> BoxFuture<'static, Result<Reservation, ServeError>> {
        Box::pin(async { Err(ServeError::engine("hands nothing over")) })
    }

    fn remote_send(
        &self,
        _: &GenerateRequest,
        _: &Destination,
        _: TokenRange,
    ) -> BoxFuture<'static, Result<Sent, ServeError>> {
        Box::pin(async { Err(ServeError::engine("hands nothing over")) })
    }

    fn start_generate(
        &self,
        request: GenerateRequest,
        _: Option<(Reservation, Option<Sent>)>,
    ) -> BoxFuture<'static, Result<TokenStream, ServeError>> {
        let (events, receiver) = mpsc::unbounded_channel();
        let (report_dropped, dropped) = oneshot::channel();
        let stream = TokenStream::new(request.id, receiver, move |_| {
            let _ = report_dropped.send(());
        });
        let next_index = vec![0; request.outputs.len()];
        let tokenizer = Arc::clone(&self.tokenizer);
        self.started.send(Started { request, dropped, events, tokenizer, next_index }).unwrap();
        Box::pin(async { Ok(stream) })
    }
}

/// The log-probability every token has here; the candidates are the token itself and token 5.
pub(crate) const LOGPROB: f32 = -0.5;

impl Started {
    /// The prompt is computed.
    pub(crate) fn prompt(&self, cached_tokens: u32) {
        let scored = |&token: &TokenId| logprobs(token);
        let logprobs = self.request.prompt_logprobs.map(|_| self.request.prompt[1..].iter().map(scored).collect());
        let (request, attempt) = (self.request.id, self.request.attempt);
        self.send(EngineEvent::Prompt(PromptEvent {
            request,
            attempt,
            cached_tokens,
            logprobs,
            pooled: None,
            times: TIMES,
        }));
    }

    /// The choice continues with this text; its last token has `finish`.
    pub(crate) fn generate(&mut self, choice: u32, text: &str, finish: Option<FinishReason>) {
        let tokens = self.tokenizer.encode(text, SpecialTokens::AsWritten).unwrap();
        for (at, &token) in tokens.iter().enumerate() {
            self.token(choice, token, finish.filter(|_| at + 1 == tokens.len()));
        }
    }

    pub(crate) fn token(&mut self, choice: u32, token: TokenId, finish: Option<FinishReason>) {
        let index = self.next_index[choice as usize];
        self.next_index[choice as usize] += 1;
        self.send(EngineEvent::Token(TokenEvent {
            request: self.request.id,
            attempt: self.request.attempt,
            choice: Choice(choice),
            index,
            token,
            logprobs: self.request.logprobs.map(|_| logprobs(token)),
            finish,
        }));
    }

    /// The prompt, then the same text for every choice.
    pub(crate) fn answer(&mut self, text: &str, finish: FinishReason) {
        self.prompt(0);
        for choice in self.request.choices() {
            self.generate(choice.0, text, Some(finish));
        }
    }

    pub(crate) fn fail(&self, error: ServeError) {
        let (request, attempt) = (self.request.id, self.request.attempt);
        self.send(EngineEvent::Failed(FailedEvent { request, attempt, error }));
    }

    pub(crate) fn prompt_text(&self) -> String {
        self.tokenizer.decode(&self.request.prompt, baton_text::ControlTokens::Show)
    }

    fn send(&self, event: EngineEvent) {
        // The client may be gone by now.
        let _ = self.events.send(event);
    }
}

fn logprobs(token: TokenId) -> TokenLogprobs {
    let candidate = |token, logprob| Candidate { token, logprob };
    TokenLogprobs { chosen: LOGPROB, top: vec![candidate(token, LOGPROB), candidate(TokenId(5), -2.0)] }
}
