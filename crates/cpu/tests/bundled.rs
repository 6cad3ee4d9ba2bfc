//! The bundled model on the CPU: a stream depends on its request alone. Batch, chunks, threads, prefix cache, preemption and
//! sharing between choices do not change a token or log-probability.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use std::sync::Arc;

use baton_core::{
    Attempt, EngineCounters, EngineEvent, GenerateRequest, Limits, RequestId, SamplingParams, TokenId, TokenLogprobs,
};
use baton_cpu::{CpuBackend, CpuOptions, KvDtype, Products, StorageDtype, WeightForm};
use baton_engine::{EngineConfig, EngineHandle, LocalEngine};
use baton_model::{DEFAULT_MODEL, Model, ModelSource};
use baton_protocol::Engine;

const PROMPT_TOKENS: [usize; 8] = [1, 31, 33, 64, 65, 100, 170, 300];
const OUTPUT_TOKENS: u32 = 64;

#[derive(Clone, Copy)]
struct Setup {
    threads: usize,
    pages: usize,
    step_tokens: usize,
    prefix_cache: bool,
}

/// The contents of a request's events, by choice.
#[derive(Debug, Default, PartialEq)]
struct Generated {
    prompt: Vec<TokenLogprobs>,
    choices: Vec<Vec<(TokenId, Option<TokenLogprobs>)>>,
}

const PLAIN: Setup = Setup { threads: 1, pages: 400, step_tokens: 512, prefix_cache: false };

#[tokio::test]
async fn a_stream_depends_on_its_request_alone() {
    let model = Arc::new(Model::open(&ModelSource::resolve(DEFAULT_MODEL).unwrap()).unwrap());
    let requests = requests();

    let alone = PLAIN.engine(&model);
    let mut expected = Vec::new();
    for request in &requests {
        expected.push(all_at_once(&alone, std::slice::from_ref(request)).await.remove(0));
    }
    assert!(
        expected.iter().any(|generated| generated.choices.len() == 2 && generated.choices[0] != generated.choices[1])
    );

    type Happened = fn(&EngineCounters) -> bool;
    let cases: [(&str, Setup, Happened); 7] = [
        ("batch", PLAIN, |_| true),
        ("chunks of 32", Setup { step_tokens: 32, ..PLAIN }, |counters| counters.steps > 60),
        ("chunks of 100", Setup { step_tokens: 100, ..PLAIN }, |_| true),
        ("chunks of 2048", Setup { step_tokens: 2048, ..PLAIN }, |_| true),
        ("two threads", Setup { threads: 2, ..PLAIN }, |_| true),
        ("tiny pool", Setup { pages: 13, ..PLAIN }, |counters| counters.preemptions > 0),
        ("tiny pool, cache", Setup { pages: 13, prefix_cache: true, step_tokens: 100, ..PLAIN }, |counters| {
            counters.preemptions > 0 && counters.cached_tokens > 0 && counters.evicted_pages > 0
        }),
    ];
    for (name, setup, happened) in cases {
        let engine = setup.engine(&model);
        assert_eq!(all_at_once(&engine, &requests).await, expected, "{name}");
        let counters = engine.report().counters;
        assert!(happened(&counters), "{name} shows nothing: {counters:?}");
    }

    let caching = Setup { prefix_cache: true, ..PLAIN }.engine(&model);
    assert_eq!(all_at_once(&caching, &requests).await, expected, "cold cache");
    let cold = caching.report().counters;
    assert_eq!(all_at_once(&caching, &requests).await, expected, "warm cache");
    let warm = caching.report().counters;
    let computed = warm.prefill_tokens - cold.prefill_tokens;
    assert!(computed * 2 < cold.prefill_tokens, "{computed} prompt tokens computed again of {}", cold.prefill_tokens);
}

#[tokio::test]
async fn a_resumed_request_goes_on_as_if_it_had_never_stopped() {
    let model = Arc::new(Model::open(&ModelSource::resolve(DEFAULT_MODEL).unwrap()).unwrap());
    let engine = PLAIN.engine(&model);
    for request in requests() {
        let whole = all_at_once(&engine, std::slice::from_ref(&request)).await.remove(0);
        for kept in [1, 7, OUTPUT_TOKENS as usize - 1] {
            let mut resumed = request.clone();
            resumed.attempt = Attempt(1);
            for (outputs, generated) in resumed.outputs.iter_mut().zip(&whole.choices) {
                outputs.extend(generated.iter().take(kept).map(|(token, _)| *token));
            }
            let rest = all_at_once(&engine, &[resumed]).await.remove(0);
            for (rest, whole) in rest.choices.iter().zip(&whole.choices) {
                assert_eq!(rest, &whole[kept..], "request {} after {kept} tokens", request.id);
            }
        }
    }
}

impl Setup {
    fn engine(self, model: &Arc<Model>) -> LocalEngine {
        let options = CpuOptions {
            threads: self.threads,
            tp: 1,
            dtype: StorageDtype::Auto,
            kv_dtype: KvDtype::Auto,
            weights: WeightForm::Auto,
            products: Products::Auto,
            kv_pages: self.pages,
            max_step_tokens: self.step_tokens,
            max_slots: 16,
            isa: None,
        };
        let backend = CpuBackend::load(Arc::clone(model), options, &mut |_| {}).unwrap();
        let config =
            EngineConfig { prefix_cache: self.prefix_cache, step_tokens: self.step_tokens, ..EngineConfig::default() };
        LocalEngine::new(EngineHandle::spawn(Box::new(backend), config, None).unwrap())
    }
}

/// Greedy and sampled, with penalties, log-probabilities, two choices; some prompts begin alike.
fn requests() -> Vec<GenerateRequest> {
    PROMPT_TOKENS
        .iter()
        .zip(0..)
        .map(|(&tokens, id)| {
            let sampled = id % 2 == 1;
            let choices = if id % 4 == 1 { 2 } else { 1 };
            GenerateRequest {
                id: RequestId(id),
                attempt: Attempt(0),
                prompt: (0..tokens as u32)
                    .map(|at| TokenId(if at < 70 { at * 7 + 5 } else { at * 3 + id as u32 }))
                    .collect(),
                outputs: vec![Vec::new(); choices],
                ended: vec![false; choices],
                sampling: SamplingParams {
                    temperature: if sampled { 1.0 } else { 0.0 },
                    top_p: if sampled { 0.95 } else { 1.0 },
                    frequency_penalty: if id == 3 { 0.5 } else { 0.0 },
                    repetition_penalty: if id == 4 { 1.2 } else { 1.0 },
                    seed: id,
                    ..SamplingParams::greedy()
                },
                limits: Limits { max_tokens: OUTPUT_TOKENS, min_tokens: 0, stop_tokens: Vec::new() },
                logprobs: (id % 3 == 0).then_some(2),
                prompt_logprobs: (id == 6).then_some(1),
                adapter: None,
                pooling: None,
                affinity: None,
            }
        })
        .collect()
}

async fn all_at_once(engine: &LocalEngine, requests: &[GenerateRequest]) -> Vec<Generated> {
    let mut streams = Vec::new();
    for request in requests {
        streams.push(engine.start_generate(request.clone(), None).await.unwrap());
    }
    let mut all = Vec::new();
    for (request, mut stream) in requests.iter().zip(streams) {
        let mut generated = Generated { prompt: Vec::new(), choices: vec![Vec::new(); request.outputs.len()] };
        while let Some(event) = stream.next().await {
            match event {
                EngineEvent::Prompt(event) => generated.prompt = event.logprobs.unwrap_or_default(),
                EngineEvent::Token(event) => {
                    generated.choices[event.choice.index()].push((event.token, event.logprobs))
                }
                EngineEvent::Failed(event) => panic!("{}", event.error),
                EngineEvent::Reserved(_) | EngineEvent::Sent(_) => panic!("{event:?}"),
            }
        }
        all.push(generated);
    }
    all
}
