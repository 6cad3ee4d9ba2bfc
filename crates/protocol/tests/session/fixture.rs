//! A listening host that records what sessions send and replies as the test directs.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use baton_core::{
    Attempt, CacheUpdate, Choice, EngineEvent, EngineInfo, EngineReport, FinishReason, GenerateRequest, Limits,
    PromptEvent, PromptTimes, RequestId, SamplingParams, ServeError, TokenEvent, TokenId,
};
use baton_protocol::{
    Command, Heartbeat, Secret, SessionClient, SessionHost, SessionId, StepReply, TokenStream, serve_sessions,
};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

#[derive(Debug, PartialEq)]
pub(crate) enum Seen {
    Opened(SessionId),
    Sent(SessionId, Command),
    Closed(SessionId),
}

/// Records what sessions send; the test sends the replies.
pub(crate) struct Host {
    pub(crate) seen: mpsc::UnboundedSender<Seen>,
    pub(crate) outboxes: Arc<Mutex<Vec<mpsc::UnboundedSender<StepReply>>>>,
    pub(crate) heartbeat: Arc<Mutex<Heartbeat>>,
}

impl SessionHost for Host {
    fn info(&self) -> EngineInfo {
        info()
    }

    fn open(&self, outbox: mpsc::UnboundedSender<StepReply>) -> SessionId {
        let mut outboxes = self.outboxes.lock().unwrap();
        outboxes.push(outbox);
        let session = SessionId(outboxes.len() as u64 - 1);
        self.seen.send(Seen::Opened(session)).unwrap();
        session
    }

    fn send(&self, session: SessionId, command: Command) -> Result<(), ServeError> {
        if matches!(&command, Command::Generate { request, reservation: None } if request.prompt.is_empty()) {
            return Err(ServeError::caller("the prompt is empty").about("prompt"));
        }
        self.seen.send(Seen::Sent(session, command)).unwrap();
        Ok(())
    }

    fn heartbeat(&self) -> Heartbeat {
        *self.heartbeat.lock().unwrap()
    }

    fn close(&self, session: SessionId) {
        // The test may have ended.
        let _ = self.seen.send(Seen::Closed(session));
    }
}

pub(crate) struct Fixture {
    pub(crate) address: SocketAddr,
    pub(crate) seen: mpsc::UnboundedReceiver<Seen>,
    pub(crate) outboxes: Arc<Mutex<Vec<mpsc::UnboundedSender<StepReply>>>>,
    /// What it reports of itself.
    pub(crate) heartbeat: Arc<Mutex<Heartbeat>>,
    pub(crate) server: JoinHandle<()>,
}

impl Fixture {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (events, seen) = mpsc::unbounded_channel();
        let (outboxes, heartbeat) = (Arc::default(), Arc::default());
        let host = Host { seen: events, outboxes: Arc::clone(&outboxes), heartbeat: Arc::clone(&heartbeat) };
        let server = tokio::spawn(serve_sessions(listener, Secret::new("right"), host));
        Self { address, seen, outboxes, heartbeat, server }
    }

    pub(crate) async fn connect(&mut self) -> SessionClient {
        let client = SessionClient::connect(self.address, &Secret::new("right")).await.unwrap();
        assert!(matches!(self.next().await, Seen::Opened(_)));
        client
    }

    pub(crate) async fn next(&mut self) -> Seen {
        timeout(Duration::from_secs(60), self.seen.recv()).await.expect("nothing was seen").unwrap()
    }

    pub(crate) fn reply_with_cache(&self, session: usize, events: Vec<EngineEvent>, cache: CacheUpdate) {
        let reply = StepReply { report: EngineReport::default(), events, cache: Some(cache) };
        self.outboxes.lock().unwrap()[session].send(reply).unwrap();
    }

    pub(crate) fn reply(&self, session: usize, sequence: u64, events: Vec<EngineEvent>) {
        let report = EngineReport { sequence, ..EngineReport::default() };
        self.outboxes.lock().unwrap()[session].send(StepReply { report, events, cache: None }).unwrap();
    }
}

pub(crate) fn info() -> EngineInfo {
    EngineInfo {
        model: "tiny".into(),
        numerics_id: "n".into(),
        vocab_size: 8,
        max_context_tokens: 64,
        pages_total: 2,
        threads: 1,
        prefix_cache: true,
    }
}

pub(crate) fn request(id: u64, choices: usize, prompt: &[u32]) -> GenerateRequest {
    GenerateRequest {
        id: RequestId(id),
        attempt: Attempt(0),
        prompt: prompt.iter().copied().map(TokenId).collect(),
        outputs: vec![vec![]; choices],
        ended: vec![false; choices],
        sampling: SamplingParams::greedy(),
        limits: Limits { max_tokens: 4, min_tokens: 0, stop_tokens: vec![] },
        logprobs: None,
        prompt_logprobs: None,
        adapter: None,
        pooling: None,
        affinity: None,
    }
}

pub(crate) fn prompt(id: u64) -> EngineEvent {
    EngineEvent::Prompt(PromptEvent {
        request: RequestId(id),
        attempt: Attempt(0),
        cached_tokens: 0,
        logprobs: None,
        pooled: None,
        times: PromptTimes::default(),
    })
}

pub(crate) fn token(id: u64, choice: u32, index: u32, finish: Option<FinishReason>) -> EngineEvent {
    EngineEvent::Token(TokenEvent {
        request: RequestId(id),
        attempt: Attempt(0),
        choice: Choice(choice),
        index,
        token: TokenId(index + 1),
        logprobs: None,
        finish,
    })
}

pub(crate) async fn next(stream: &mut TokenStream) -> Option<EngineEvent> {
    timeout(Duration::from_secs(60), stream.next()).await.expect("the stream is stuck")
}
