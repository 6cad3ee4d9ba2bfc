//! Engines that do what a test wrote down. The token at a place is a function of choice and index, so that any stream can
//! be checked against the undisturbed one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use baton_core::{
    Attempt, CacheEvent, CacheUpdate, Choice, EngineEvent, EngineInfo, EngineLoad, EngineReport, FailedEvent,
    FinishReason, GenerateRequest, Limits, PromptEvent, PromptTimes, RequestId, SamplingParams, ServeError,
    SessionLoad, TokenEvent, TokenId, TokenRange,
};
use baton_protocol::{CacheFollower, Destination, Engine, Heartbeat, Heartbeats, Reservation, Sent, TokenStream};
use baton_router::{Fleet, Role};
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

/// What an engine does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Serves it to the end.
    Serve,
    /// Generates this many tokens of each choice, then dies.
    DieAfter(u32),
    /// Generates this many tokens of each choice, then fails it.
    FailAfter(u32, ServeError),
    /// Refuses to start it.
    Refuse(ServeError),
    /// Repeats each choice from its first token.
    Repeat,
    /// Leaves out the next token of each choice, then goes on.
    Skip,
    /// Serves it under an older attempt's number first.
    EchoOldAttempt,
    /// Sends nothing more.
    Hang,
    /// Sends nothing at all.
    Silent,
}

/// Has beaten since it was last listened to, unless it is stopped.
#[derive(Default)]
pub(crate) struct Heart {
    stopped: AtomicBool,
    beats: AtomicU64,
}

impl Heart {
    pub(crate) fn stop(&self, stopped: bool) {
        self.stopped.store(stopped, Ordering::Relaxed);
    }

    pub(crate) fn beats(&self) -> Heartbeats {
        let more = u64::from(!self.stopped.load(Ordering::Relaxed));
        let received = self.beats.fetch_add(more, Ordering::Relaxed) + more;
        Heartbeats { received, newest: Heartbeat::default() }
    }
}

pub(crate) struct Scripted {
    info: EngineInfo,
    acts: Mutex<VecDeque<Act>>,
    pub(crate) requests: Mutex<Vec<GenerateRequest>>,
    pub(crate) load: Mutex<EngineLoad>,
    /// The part of it that this router requested.
    pub(crate) own: Mutex<SessionLoad>,
    pub(crate) dropped: Arc<Mutex<Vec<RequestId>>>,
    dead: AtomicBool,
    pub(crate) heart: Heart,
    /// Keeps streams of hanging requests open.
    held: Mutex<Vec<mpsc::UnboundedSender<EngineEvent>>>,
    /// One for each time its prefix cache was to be followed.
    pub(crate) followers: Mutex<Vec<Arc<dyn CacheFollower>>>,
}

impl Scripted {
    /// Acts in order, one per request; serves when there are no more.
    pub(crate) fn new(acts: impl IntoIterator<Item = Act>) -> Arc<Self> {
        Arc::new(Self {
            info: info(),
            acts: Mutex::new(acts.into_iter().collect()),
            requests: Mutex::default(),
            load: Mutex::default(),
            own: Mutex::default(),
            dropped: Arc::default(),
            dead: AtomicBool::new(false),
            heart: Heart::default(),
            held: Mutex::default(),
            followers: Mutex::default(),
        })
    }

    /// Its prefix cache reports these as event number `first` and so on.
    pub(crate) fn report_cache(&self, first: u64, events: Vec<CacheEvent>) {
        let follower = Arc::clone(self.followers.lock().unwrap().last().unwrap());
        follower.cache_changed(CacheUpdate { first, events });
    }

    pub(crate) fn served(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    fn act(&self, act: &Act, request: &GenerateRequest, out: &mpsc::UnboundedSender<EngineEvent>) {
        let send = |event| drop(out.send(event));
        let max = request.limits.max_tokens;
        if !matches!(act, Act::Silent) {
            send(prompt_event(request));
        }
        // Choices side by side, as a batch would.
        let span = |from: u32, to: u32| {
            for index in from..to {
                for choice in request.choices().filter(|choice| !request.ended[choice.index()]) {
                    let known = request.outputs[choice.index()].len() as u32;
                    if known + index < max {
                        send(token_event(request, request.attempt, choice, known + index));
                    }
                }
            }
        };
        match act {
            Act::Serve => span(0, max),
            Act::DieAfter(tokens) => {
                span(0, *tokens);
                self.dead.store(true, Ordering::Relaxed);
            }
            Act::FailAfter(tokens, error) => {
                span(0, *tokens);
                let (request, attempt) = (request.id, request.attempt);
                send(EngineEvent::Failed(FailedEvent { request, attempt, error: error.clone() }));
            }
            Act::Skip => span(1, max),
            Act::Repeat => {
                for index in 0..max {
                    request.choices().for_each(|choice| send(token_event(request, request.attempt, choice, index)));
                }
            }
            Act::EchoOldAttempt => {
                let old = Attempt(request.attempt.0.wrapping_sub(1));
                request.choices().for_each(|choice| send(token_event(request, old, choice, max - 1)));
                span(0, max);
            }
            Act::Hang | Act::Silent => self.held.lock().unwrap().push(out.clone()),
            Act::Refuse(_) => unreachable!("refused before it starts"),
        }
    }
}

impl Engine for Scripted {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn report(&self) -> EngineReport {
        EngineReport { load: *self.load.lock().unwrap(), own: *self.own.lock().unwrap(), ..EngineReport::default() }
    }

    fn heartbeats(&self) -> Option<Heartbeats> {
        Some(self.heart.beats())
    }

    fn follow_cache(&self, follower: Arc<dyn CacheFollower>) {
        self.followers.lock().unwrap().push(follower);
    }

    fn is_alive(&self) -> bool {
        !self.dead.load(Ordering::Relaxed)
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
        let act = self.acts.lock().unwrap().pop_front().unwrap_or(Act::Serve);
        let started = if let Act::Refuse(error) = act {
            Err(error)
        } else {
            let (out, events) = mpsc::unbounded_channel();
            self.act(&act, &request, &out);
            let dropped = Arc::clone(&self.dropped);
            Ok(TokenStream::new(request.id, events, move |id| dropped.lock().unwrap().push(id)))
        };
        self.requests.lock().unwrap().push(request);
        Box::pin(async { started })
    }
}

pub(crate) fn info() -> EngineInfo {
    EngineInfo {
        model: "scripted".into(),
        numerics_id: "s".into(),
        vocab_size: 1000,
        max_context_tokens: 100,
        pages_total: 64,
        threads: 1,
        prefix_cache: true,
    }
}

pub(crate) fn fleet(engines: &[&Arc<Scripted>]) -> Arc<Fleet> {
    let named = engines.iter().enumerate().map(|(index, engine)| {
        let engine: Arc<dyn Engine> = Arc::clone(engine) as _;
        (format!("engine-{index}"), Role::Mixed, engine)
    });
    Arc::new(Fleet::of_ready(named))
}

pub(crate) fn request(choices: usize, max_tokens: u32) -> GenerateRequest {
    long_request(3, choices, max_tokens)
}

pub(crate) fn long_request(prompt_tokens: u32, choices: usize, max_tokens: u32) -> GenerateRequest {
    GenerateRequest {
        id: RequestId(0),
        attempt: Attempt(0),
        prompt: (0..prompt_tokens).map(TokenId).collect(),
        outputs: vec![vec![]; choices],
        ended: vec![false; choices],
        sampling: SamplingParams::greedy(),
        limits: Limits { max_tokens, min_tokens: 0, stop_tokens: vec![] },
        logprobs: None,
        prompt_logprobs: None,
        adapter: None,
        pooling: None,
        affinity: None,
    }
}

pub(crate) fn token(choice: u32, index: u32) -> TokenId {
    TokenId(100 * choice + index)
}

/// What a client must have got in the end, per choice.
pub(crate) fn undisturbed(choices: u32, max_tokens: u32) -> Vec<Vec<TokenId>> {
    (0..choices).map(|choice| (0..max_tokens).map(|index| token(choice, index)).collect()).collect()
}

/// Reads a stream to its end: tokens per choice, prompt events, the failure if it failed.
pub(crate) async fn read(mut stream: TokenStream, choices: usize) -> (Vec<Vec<TokenId>>, usize, Option<ServeError>) {
    let (mut outputs, mut prompts, mut failure) = (vec![vec![]; choices], 0, None);
    while let Some(event) = stream.next().await {
        assert!(failure.is_none(), "{event:?} after a failure");
        match event {
            EngineEvent::Prompt(_) => prompts += 1,
            EngineEvent::Token(event) => {
                let output: &mut Vec<_> = &mut outputs[event.choice.index()];
                assert_eq!(event.index as usize, output.len());
                output.push(event.token);
            }
            EngineEvent::Failed(event) => failure = Some(event.error),
            EngineEvent::Reserved(_) | EngineEvent::Sent(_) => unreachable!("{event:?}"),
        }
    }
    (outputs, prompts, failure)
}

pub(crate) fn prompt_event(request: &GenerateRequest) -> EngineEvent {
    EngineEvent::Prompt(PromptEvent {
        request: request.id,
        attempt: request.attempt,
        cached_tokens: 0,
        logprobs: None,
        pooled: None,
        times: PromptTimes::default(),
    })
}

pub(crate) fn token_event(request: &GenerateRequest, attempt: Attempt, choice: Choice, index: u32) -> EngineEvent {
    EngineEvent::Token(TokenEvent {
        request: request.id,
        attempt,
        choice,
        index,
        token: token(choice.0, index),
        logprobs: None,
        finish: (index + 1 == request.limits.max_tokens).then_some(FinishReason::Length),
    })
}
