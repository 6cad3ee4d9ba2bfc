//! A gateway that serves the bundled tokenizer and template, with a driven engine behind it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use baton_core::{FinishReason, TokenId};
use baton_gateway::{Admin, Gateway, GatewayConfig, ModelCard, SamplingDefaults, serve};
use baton_protocol::{Engine, Secret};
use baton_router::{DispatchConfig, Dispatcher, Fleet, LeastLoaded, Role};
use baton_text::{ChatTemplate, Tokenizer, TokenizerConfig};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::admin::Joins;
use crate::client::{Reply, call};
use crate::engine::{DrivenEngine, Started};

pub(crate) const MODEL: &str = "storyteller-11m";
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    started: mpsc::UnboundedReceiver<Started>,
    stop: Option<oneshot::Sender<()>>,
    pub(crate) task: JoinHandle<std::io::Result<()>>,
}

pub(crate) struct Options {
    pub(crate) gateway: GatewayConfig,
    pub(crate) defaults: SamplingDefaults,
    pub(crate) template: bool,
    pub(crate) bos: bool,
    pub(crate) engines: bool,
    /// Guards the routes for administration; without it there are none.
    pub(crate) secret: Option<Secret>,
}

impl Default for Options {
    fn default() -> Self {
        let defaults = SamplingDefaults {
            temperature: 0.7,
            top_p: 0.95,
            max_new_tokens: Some(256),
            ..SamplingDefaults::default()
        };
        Self { gateway: GatewayConfig::default(), defaults, template: true, bos: true, engines: true, secret: None }
    }
}

pub(crate) fn tokenizer() -> Tokenizer {
    Tokenizer::from_json(include_bytes!("../../../../models/storyteller-11m/tokenizer.json")).unwrap()
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::with(Options::default()).await
    }

    pub(crate) async fn with(options: Options) -> Self {
        let config = include_bytes!("../../../../models/storyteller-11m/tokenizer_config.json");
        let config = TokenizerConfig::from_json(config).unwrap();
        let card = ModelCard {
            id: MODEL.to_owned(),
            tokenizer: Arc::new(tokenizer()),
            template: ChatTemplate::from_files(&config, None).unwrap().filter(|_| options.template),
            bos_token: options.bos.then_some(TokenId(0)),
            eos_tokens: vec![TokenId(0), TokenId(2)],
            defaults: options.defaults,
            max_context_tokens: 2048,
            vocab_size: 4096,
        };
        let (engine, started) = DrivenEngine::new(Arc::new(tokenizer()));
        let fleet = if options.engines {
            Fleet::of_ready([("engine-0".to_owned(), Role::Mixed, Arc::new(engine) as Arc<dyn Engine>)])
        } else {
            Fleet::new([("engine-0".to_owned(), Role::Mixed)])
        };
        let fleet = Arc::new(fleet);
        let dispatcher = Dispatcher::new(Arc::clone(&fleet), Arc::new(LeastLoaded), DispatchConfig::default());
        let gateway = Gateway::new(card, Arc::new(dispatcher), options.gateway);
        let gateway = Arc::new(match options.secret {
            Some(secret) => gateway.with_admin(Admin { secret, membership: Arc::new(Joins::new(fleet)) }),
            None => gateway,
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(serve(listener, gateway, async {
            let _ = stopped.await;
        }));
        Self { address, started, stop: Some(stop), task }
    }

    /// The next request that reaches the engine.
    pub(crate) async fn started(&mut self) -> Started {
        tokio::time::timeout(PATIENCE, self.started.recv()).await.unwrap().unwrap()
    }

    pub(crate) fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    /// Posts `body`, lets every request that reaches the engine be answered by `answer`, and gives the reply.
    pub(crate) async fn post_with(&mut self, path: &str, body: Value, mut answer: impl FnMut(&mut Started)) -> Reply {
        let bytes = body.to_string().into_bytes();
        let call = call(self.address, "POST", path, &bytes);
        let mut held = Vec::new();
        tokio::pin!(call);
        loop {
            tokio::select! {
                biased;
                Some(mut started) = self.started.recv() => {
                    answer(&mut started);
                    held.push(started);
                }
                reply = &mut call => return reply,
            }
        }
    }

    /// The same with an answer that does not matter.
    pub(crate) async fn post(&mut self, path: &str, body: Value) -> Reply {
        self.post_with(path, body, |started| started.answer(" the cat", FinishReason::Length)).await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        call(self.address, "GET", path, b"").await
    }
}

/// `{"model": …, "prompt": "Hello", …fields}`
pub(crate) fn completion(fields: Value) -> Value {
    merged(json!({"model": MODEL, "prompt": "Hello", "max_tokens": 4}), fields)
}

pub(crate) fn chat(fields: Value) -> Value {
    merged(json!({"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}), fields)
}

fn merged(mut base: Value, fields: Value) -> Value {
    for (name, value) in fields.as_object().unwrap() {
        base[name] = value.clone();
    }
    base
}
