//! Engines that listen, and what callers send to them.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use baton_core::TokenId;
use baton_cpu::{CpuBackend, CpuOptions, KvDtype, Products, StorageDtype, WeightForm};
use baton_engine::{EngineConfig, EngineHandle, Fabric, LocalEngine};
use baton_gateway::{EngineFace, GatewayConfig, LazyCard, ModelCard, SamplingDefaults, serve_engine};
use baton_model::{DEFAULT_MODEL, Model, ModelSource};
use baton_protocol::Secret;
use baton_text::Tokenizer;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::client::{Reply, call};

static MODEL: LazyLock<Arc<Model>> =
    LazyLock::new(|| Arc::new(Model::open(&ModelSource::resolve(DEFAULT_MODEL).unwrap()).unwrap()));

const TOKENIZER: &str = include_str!("../../../../models/storyteller-11m/tokenizer.json");

/// Three pages and a bit; begins like [`OTHER_STORY`] for more than a page.
pub(crate) const STORY: &str = "Once upon a time there was a little girl named Lily who lived near a big forest with \
    her mom and her dad and her small brown dog. One day she found a small red boat under the old bridge and asked her \
    mom if she could keep it. Her mom said that the boat belonged to somebody else, and that they should look for him.";
pub(crate) const OTHER_STORY: &str = "Once upon a time there was a little girl named Lily who lived near a big forest \
    with her mom and her dad and her small brown dog. One day she found a small red boat under the old tree.";

/// Of a reservation whose caller gives none.
pub(crate) const DEFAULT_LEASE: Duration = Duration::from_secs(60);

/// Longer than any test waits for what must happen: what gives back is not the time.
const NEVER: Duration = Duration::from_secs(600);

#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) secret: Secret,
    pub(crate) dtype: StorageDtype,
    pub(crate) kv_dtype: KvDtype,
    pub(crate) tokenizer: String,
    pub(crate) landing_timeout: Duration,
    pub(crate) pages: usize,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            secret: Secret::none(),
            dtype: StorageDtype::Auto,
            kv_dtype: KvDtype::Auto,
            tokenizer: TOKENIZER.to_owned(),
            landing_timeout: NEVER,
            pages: 200,
        }
    }
}

pub(crate) struct Node {
    pub(crate) address: SocketAddr,
    pub(crate) handle: EngineHandle,
    server: JoinHandle<()>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Setup {
    pub(crate) async fn start(self) -> Node {
        let options = CpuOptions {
            threads: 1,
            dtype: self.dtype,
            kv_dtype: self.kv_dtype,
            weights: WeightForm::Auto,
            products: Products::Auto,
            kv_pages: self.pages,
            max_step_tokens: 512,
            max_slots: 32,
            tp: 1,
            isa: None,
        };
        let backend = CpuBackend::load(Arc::clone(&MODEL), options, &mut |_| {}).unwrap();
        let config =
            EngineConfig { landing_timeout: self.landing_timeout, delivery_timeout: NEVER, ..EngineConfig::default() };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let fabric =
            Fabric { listener, advertised: None, shm: true, secret: self.secret.clone(), limit_bytes_per_s: None };
        let handle = EngineHandle::spawn(Box::new(backend), config, Some(fabric)).unwrap();
        let tokenizer = self.tokenizer;
        let face = EngineFace {
            name: "engine".to_owned(),
            serving: Arc::new(LocalEngine::new(handle.clone())),
            calls: Arc::new(LocalEngine::new(handle.clone())),
            secret: self.secret,
            config: GatewayConfig::default(),
            card: LazyCard::new(move || card(&tokenizer)),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(serve_engine(listener, face, handle.clone()));
        Node { address, handle, server }
    }
}

fn card(tokenizer: &str) -> Result<ModelCard, String> {
    Ok(ModelCard {
        id: DEFAULT_MODEL.to_owned(),
        tokenizer: Arc::new(Tokenizer::from_json(tokenizer.as_bytes()).map_err(|error| error.to_string())?),
        template: None,
        bos_token: Some(TokenId(0)),
        eos_tokens: vec![TokenId(0), TokenId(2)],
        defaults: SamplingDefaults::default(),
        max_context_tokens: 2048,
        vocab_size: 4096,
    })
}

impl Node {
    pub(crate) async fn get(&self, path: &str) -> Reply {
        call(self.address, "GET", path, b"").await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        call(self.address, "POST", path, body.to_string().as_bytes()).await
    }

    /// The answer to a call that must succeed.
    pub(crate) async fn post_ok(&self, path: &str, body: &Value) -> Value {
        let reply = self.post(path, body).await;
        assert_eq!(reply.status, 200, "{path} {body}: {}", reply.body);
        reply.json()
    }

    pub(crate) async fn tokens(&self, text: &str) -> Vec<u32> {
        let answer = self.post_ok("/tokenize", &json!({"prompt": text})).await;
        serde_json::from_value(answer["tokens"].clone()).unwrap()
    }

    /// Nothing is held any more, and the books agree.
    pub(crate) async fn check_all_given_back(&self) {
        eventually("all is given back", async || {
            let audited = self.get("/debug/audit").await.json();
            let sum = audited["pages_free"].as_u64().unwrap() + audited["pages_cached"].as_u64().unwrap();
            assert_eq!(audited["agrees"], true, "{audited}");
            let held = ["reservations", "reserved_pages", "running", "waiting", "exports"];
            audited["pages_total"].as_u64() == Some(sum) && held.iter().all(|gauge| audited[gauge] == 0)
        })
        .await;
    }
}

pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !holds().await {
        assert!(started.elapsed() < Duration::from_secs(60), "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// `base` with `fields` on top; `null` takes a field away.
pub(crate) fn with(base: &Value, fields: Value) -> Value {
    let mut merged = base.clone();
    for (name, value) in fields.as_object().unwrap() {
        merged[name] = value.clone();
    }
    merged
}

/// A completion request whose every byte is known beforehand.
pub(crate) fn completion(prompt: impl Into<Value>) -> Value {
    let (prompt, max_tokens) = (prompt.into(), 12);
    json!({"model": DEFAULT_MODEL, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": true})
}

/// The three calls, one after the other; `begin = 0` however much is cached. Returns what `prep_recv` has matched, and the
/// last answer.
pub(crate) async fn three_calls(prefill: &Node, decode: &Node, body: &Value, end: i64) -> (u64, Reply) {
    let prepared = decode.post_ok("/microserving/prep_recv", &with(body, json!({"end": end}))).await;
    let send = json!({"begin": 0, "end": end, "kv_addr_info": prepared["kv_append_metadata"], "recv_rank": 1});
    assert_eq!(prefill.post_ok("/microserving/remote_send", &with(body, send)).await, json!({}));
    let answer = decode.post("/microserving/start_generate", &with(body, json!({"begin": end}))).await;
    (prepared["prefix_matched_length"].as_u64().unwrap(), answer)
}
