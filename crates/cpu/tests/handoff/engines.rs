//! Engines, requests and their output.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use baton_core::{
    Attempt, EngineCounters, EngineEvent, GenerateRequest, Limits, RequestId, SamplingParams, TokenId, TokenLogprobs,
    TokenRange,
};
use baton_cpu::{CpuBackend, CpuOptions, KvDtype, Products, StorageDtype, WeightForm};
use baton_engine::{EngineConfig, EngineHandle, Fabric, LocalEngine};
use baton_model::{DEFAULT_MODEL, Model, ModelSource};
use baton_protocol::{Engine, Secret, TokenStream};

type Loaded = LazyLock<Arc<Model>>;

/// 6 query heads, 2 KV heads.
pub(crate) static STORYTELLER: Loaded = LazyLock::new(|| open(DEFAULT_MODEL));
/// 8 query heads, 2 KV heads; 128 tokens.
pub(crate) static SMALL: Loaded = LazyLock::new(|| open(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/qwen2")));

fn open(name: &str) -> Arc<Model> {
    Arc::new(Model::open(&ModelSource::resolve(name).unwrap()).unwrap())
}

/// Longer than any test waits, so that nothing is released because time has passed.
const NEVER: Duration = Duration::from_secs(600);

#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) model: &'static Loaded,
    pub(crate) threads: usize,
    pub(crate) tp: usize,
    pub(crate) shm: bool,
    pub(crate) secret: &'static str,
    /// The rate at which KV is sent, in bytes per second.
    pub(crate) line: Option<u64>,
    pub(crate) pages: usize,
    pub(crate) step_tokens: usize,
    pub(crate) prefix_cache: bool,
    pub(crate) dtype: StorageDtype,
    pub(crate) kv_dtype: KvDtype,
    pub(crate) weights: WeightForm,
    pub(crate) landing_timeout: Duration,
}

pub(crate) const PLAIN: Setup = Setup {
    model: &STORYTELLER,
    threads: 1,
    tp: 1,
    shm: true,
    secret: "s3cret",
    line: None,
    pages: 300,
    step_tokens: 512,
    prefix_cache: false,
    dtype: StorageDtype::Auto,
    kv_dtype: KvDtype::Auto,
    weights: WeightForm::Plain,
    landing_timeout: NEVER,
};

/// An engine and a session with it.
pub(crate) struct Node {
    pub(crate) handle: EngineHandle,
    pub(crate) engine: LocalEngine,
}

impl Setup {
    pub(crate) fn start(self) -> Node {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        self.start_at(listener, None)
    }

    pub(crate) fn start_at(self, listener: TcpListener, advertised: Option<SocketAddr>) -> Node {
        let options = CpuOptions {
            threads: self.threads,
            tp: self.tp,
            dtype: self.dtype,
            kv_dtype: self.kv_dtype,
            weights: self.weights,
            products: Products::Auto,
            kv_pages: self.pages,
            max_step_tokens: self.step_tokens,
            max_slots: 32,
            isa: None,
        };
        let backend = CpuBackend::load(Arc::clone(self.model), options, &mut |_| {}).unwrap();
        let config = EngineConfig {
            prefix_cache: self.prefix_cache,
            step_tokens: self.step_tokens,
            landing_timeout: self.landing_timeout,
            delivery_timeout: NEVER,
            ..EngineConfig::default()
        };
        let secret = Secret::new(self.secret);
        let fabric = Fabric { listener, advertised, shm: self.shm, secret, limit_bytes_per_s: self.line };
        let handle = EngineHandle::spawn(Box::new(backend), config, Some(fabric)).unwrap();
        Node { engine: LocalEngine::new(handle.clone()), handle }
    }
}

impl Node {
    pub(crate) fn counters(&self) -> EngineCounters {
        self.handle.report().counters
    }

    /// Checks that no pages are held any more, and that the audit agrees.
    pub(crate) async fn check_all_given_back(&self) {
        // Answered after a step boundary, so the report is not one from before the first command.
        self.handle.audit().await.unwrap().unwrap();
        eventually(&format!("all pages are given back: {:?}", self.handle.report()), || {
            let load = self.handle.report().load;
            load.pages_free + load.pages_cached == load.pages_total && load.reservations + load.exports == 0
        })
        .await;
        assert_eq!(self.handle.report().load.reserved_pages, 0);
        self.handle.audit().await.unwrap().unwrap();
    }
}

pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(60), "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Prompts of equal `family` begin alike.
pub(crate) fn request(id: u64, family: u32, prompt_tokens: usize) -> GenerateRequest {
    GenerateRequest {
        id: RequestId(id),
        attempt: Attempt(0),
        prompt: (0..prompt_tokens as u32).map(|at| TokenId((at * 7 + at / 40 + family * 131) % 4000 + 5)).collect(),
        outputs: vec![Vec::new()],
        ended: vec![false],
        sampling: SamplingParams { seed: id, ..SamplingParams::greedy() },
        limits: Limits { max_tokens: 12, min_tokens: 0, stop_tokens: Vec::new() },
        logprobs: None,
        prompt_logprobs: None,
        adapter: None,
        pooling: None,
        affinity: None,
    }
}

/// Two sampled choices with log-probabilities.
pub(crate) fn sampled(mut request: GenerateRequest) -> GenerateRequest {
    request.sampling.temperature = 1.0;
    request.logprobs = Some(2);
    request.outputs = vec![Vec::new(); 2];
    request.ended = vec![false; 2];
    request
}

/// Everything in a request's events about its choices.
pub(crate) type Generated = Vec<Vec<(TokenId, Option<TokenLogprobs>)>>;

pub(crate) async fn read(mut stream: TokenStream, choices: usize) -> Generated {
    let mut generated = vec![Vec::new(); choices];
    while let Some(event) = stream.next().await {
        match event {
            EngineEvent::Token(event) => generated[event.choice.index()].push((event.token, event.logprobs)),
            EngineEvent::Failed(event) => panic!("{}", event.error),
            _ => {}
        }
    }
    generated
}

/// The request's answer when one engine does it all.
pub(crate) async fn alone(node: &Node, request: &GenerateRequest) -> Generated {
    read(node.engine.start_generate(request.clone(), None).await.unwrap(), request.outputs.len()).await
}

/// Prefill on one engine, decode on the other, one call after the other. `begin` instead of what is matched.
pub(crate) async fn handed_over(
    prefill: &Node,
    decode: &Node,
    request: &GenerateRequest,
    end: usize,
    begin: Option<u32>,
) -> Generated {
    let reservation = decode.engine.prep_recv(request, end as u32).await.unwrap();
    assert!(reservation.matched as usize <= end && reservation.matched.is_multiple_of(32));
    let range = TokenRange::new(begin.unwrap_or(reservation.matched), end as u32).unwrap();
    let sent = prefill.engine.remote_send(request, &reservation, range).await.unwrap();
    assert_eq!(sent.verified_tokens as usize, range.len(), "{range}");
    let stream = decode.engine.start_generate(request.clone(), Some((reservation, Some(sent)))).await.unwrap();
    read(stream, request.outputs.len()).await
}
