//! Mock engines, requests and their answers.

use std::net::TcpListener;
use std::sync::Arc;

use baton_core::{
    Attempt, EngineEvent, FinishReason, GenerateRequest, Limits, RequestId, SamplingParams, ServeError, TokenId,
    TokenRange,
};
use baton_engine::{EngineConfig, EngineHandle, Fabric, LocalEngine, MaskMaker};
use baton_mock::{MockBackend, MockSize, MockVocabulary};
use baton_protocol::{Engine, Secret, TokenStream};

pub(crate) const VOCAB: u32 = 500;

pub(crate) struct Mock {
    pub(crate) handle: EngineHandle,
    pub(crate) engine: LocalEngine,
}

/// How a mock is started; `config` as on the command line.
pub(crate) struct Setup<'a> {
    pub(crate) config: &'a str,
    pub(crate) kv_pages: usize,
    pub(crate) step_tokens: usize,
    pub(crate) tp: u32,
    pub(crate) masks: Option<Box<dyn MaskMaker>>,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Self { config: "", kv_pages: 400, step_tokens: 512, tp: 1, masks: None }
    }
}

impl Setup<'_> {
    pub(crate) fn start(self) -> Mock {
        let words = (5..VOCAB).map(|id| (TokenId(id), format!(" w{id}")));
        let vocabulary = Arc::new(MockVocabulary::new(VOCAB, words).unwrap());
        let size = MockSize { kv_pages: self.kv_pages, step_tokens: self.step_tokens, max_slots: 64, tp: self.tp };
        let backend = MockBackend::new(self.config.parse().unwrap(), size, vocabulary).unwrap();
        let fabric = Fabric {
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            advertised: None,
            shm: true,
            secret: Secret::none(),
            limit_bytes_per_s: backend.transfer_bytes_per_s(),
        };
        let config = EngineConfig { step_tokens: self.step_tokens, ..EngineConfig::default() };
        let backend = Box::new(backend);
        let handle = EngineHandle::spawn_with_masks(backend, config, Some(fabric), self.masks).unwrap();
        Mock { engine: LocalEngine::new(handle.clone()), handle }
    }
}

pub(crate) fn mock(config: &str) -> Mock {
    Setup { config, ..Setup::default() }.start()
}

pub(crate) fn mock_with(config: &str, kv_pages: usize, tp: u32) -> Mock {
    Setup { config, kv_pages, tp, ..Setup::default() }.start()
}

/// Eight streams at once, of which some end by a stop token, some by their length: each is as by itself.
pub(crate) async fn check_side_by_side(mock: &Mock, alone: &Mock) {
    let requests = || {
        (0..8).map(|id| {
            let mut request = request(id, 60 + id as usize, 30 + 3 * id as u32);
            request.limits.stop_tokens.push(TokenId(5 + id as u32));
            request.sampling = SamplingParams { temperature: 1.0, seed: id, ..SamplingParams::greedy() };
            request
        })
    };
    let mut streams = Vec::new();
    for request in requests() {
        streams.push(mock.engine.start_generate(request, None).await.unwrap());
    }
    for (stream, request) in streams.into_iter().zip(requests()) {
        assert_eq!(read(stream).await.unwrap(), generate(alone, request).await.unwrap());
    }
}

pub(crate) fn request(id: u64, prompt_tokens: usize, max_tokens: u32) -> GenerateRequest {
    GenerateRequest {
        id: RequestId(id),
        attempt: Attempt(0),
        prompt: (0..prompt_tokens as u32).map(|at| TokenId((at * 7 + id as u32 * 131) % VOCAB)).collect(),
        outputs: vec![Vec::new()],
        ended: vec![false],
        sampling: SamplingParams::greedy(),
        limits: Limits { max_tokens, min_tokens: 0, stop_tokens: vec![TokenId(2)] },
        logprobs: None,
        prompt_logprobs: None,
        adapter: None,
        pooling: None,
        affinity: None,
    }
}

/// The first choice's tokens, or why it failed.
pub(crate) async fn read(mut stream: TokenStream) -> Result<Vec<TokenId>, (Vec<TokenId>, ServeError)> {
    let mut tokens = Vec::new();
    while let Some(event) = stream.next().await {
        match event {
            EngineEvent::Token(event) if event.choice.0 == 0 => tokens.push(event.token),
            EngineEvent::Failed(event) => return Err((tokens, event.error)),
            _ => {}
        }
    }
    Ok(tokens)
}

pub(crate) async fn generate(
    mock: &Mock,
    request: GenerateRequest,
) -> Result<Vec<TokenId>, (Vec<TokenId>, ServeError)> {
    read(mock.engine.start_generate(request, None).await.unwrap()).await
}

/// All tokens, and why there are no more.
pub(crate) async fn finish(mock: &Mock, request: GenerateRequest) -> (Vec<TokenId>, FinishReason) {
    let (mut stream, mut tokens) = (mock.engine.start_generate(request, None).await.unwrap(), Vec::new());
    loop {
        match stream.next().await {
            Some(EngineEvent::Prompt(_)) => {}
            Some(EngineEvent::Token(event)) => {
                tokens.push(event.token);
                if let Some(finish) = event.finish {
                    assert!(stream.next().await.is_none(), "more after the end");
                    return (tokens, finish);
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) async fn hand_over(prefill: &Mock, decode: &Mock, request: GenerateRequest) -> Vec<TokenId> {
    let end = request.prompt.len() as u32 - 1;
    let reservation = decode.engine.prep_recv(&request, end).await.unwrap();
    let range = TokenRange::new(reservation.matched, end).unwrap();
    let sent = prefill.engine.remote_send(&request, &reservation, range).await.unwrap();
    assert_eq!(sent.verified_tokens as usize, range.len());
    read(decode.engine.start_generate(request, Some((reservation, Some(sent)))).await.unwrap()).await.unwrap()
}
