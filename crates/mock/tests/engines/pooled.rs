//! Hidden states of a prompt, pooled into one vector: it is a function of the tokens, whatever the engine has to do for it.

use baton_core::{EngineEvent, Fault, GenerateRequest, Pooling, PromptEvent, Retry, TokenRange};
use baton_protocol::{Engine, TokenStream};

use crate::fleet::{Mock, Setup, generate, mock, read, request};

fn pooling(pooling: Pooling, id: u64, prompt_tokens: usize) -> GenerateRequest {
    // One prompt for all of a length.
    let prompt = request(0, prompt_tokens, 0).prompt;
    GenerateRequest { pooling: Some(pooling), prompt, ..request(id, 1, 0) }
}

async fn prompt_of(mut stream: TokenStream) -> PromptEvent {
    let Some(EngineEvent::Prompt(event)) = stream.next().await else { panic!("no prompt") };
    assert!(stream.next().await.is_none(), "more after the prompt");
    event
}

async fn pooled(mock: &Mock, request: GenerateRequest) -> (Vec<f32>, u32) {
    let event = prompt_of(mock.engine.start_generate(request, None).await.unwrap()).await;
    (event.pooled.unwrap(), event.cached_tokens)
}

#[tokio::test]
async fn a_vector_depends_on_the_tokens_and_not_on_chunks_or_cache() {
    let whole = Setup { step_tokens: 2048, ..Setup::default() }.start();
    let mut seen = Vec::new();
    for kind in [Pooling::Last, Pooling::Mean] {
        for prompt_tokens in [1, 32, 33, 700] {
            let (vector, _) = pooled(&whole, pooling(kind, 1, prompt_tokens)).await;
            assert!(vector.len() > 1 && vector.iter().all(|x| x.is_finite()));
            assert!(!seen.contains(&vector) || prompt_tokens == 1, "{kind:?} of {prompt_tokens} tokens");
            seen.push(vector.clone());
            for (step_tokens, config) in [(1, ""), (50, ""), (50, "steps-in-flight=2"), (64, "tokens-per-step=4")] {
                let chunked = Setup { step_tokens, config, ..Setup::default() }.start();
                for (id, from_cache) in [(1, false), (2, true)] {
                    let (again, cached) = pooled(&chunked, pooling(kind, id, prompt_tokens)).await;
                    assert_eq!(again, vector, "{kind:?}, {prompt_tokens} tokens by {step_tokens}");
                    let cacheable = if from_cache && kind == Pooling::Last { (prompt_tokens - 1) / 32 * 32 } else { 0 };
                    assert_eq!(cached as usize, cacheable, "{kind:?}, {prompt_tokens} tokens by {step_tokens}");
                }
            }
        }
    }
}

#[tokio::test]
async fn neither_neighbours_nor_preemption_change_it() {
    let alone = mock("");
    let small = Setup {
        kv_pages: 24,
        step_tokens: 40,
        config: "prefill-ms=10,decode-ms=1,steps-in-flight=2",
        ..Setup::default()
    }
    .start();
    let mut streams = Vec::new();
    for id in 0..6 {
        streams.push(small.engine.start_generate(request(id, 60, 120), None).await.unwrap());
    }
    for (id, kind) in [(6, Pooling::Last), (7, Pooling::Mean), (8, Pooling::Mean)] {
        let expected = pooled(&alone, pooling(kind, id, 300)).await.0;
        assert_eq!(pooled(&small, pooling(kind, id, 300)).await.0, expected, "{kind:?}");
    }
    for (id, stream) in (0..).zip(streams) {
        assert_eq!(read(stream).await.unwrap(), generate(&alone, request(id, 60, 120)).await.unwrap());
    }
    assert!(small.handle.report().counters.preemptions > 0);
    small.handle.audit().await.unwrap().unwrap();
}

#[tokio::test]
async fn a_prompt_that_was_handed_over_is_pooled_all_the_same() {
    let (prefill, decode) = (mock(""), mock(""));
    for (id, kind) in [(1, Pooling::Last), (2, Pooling::Mean)] {
        let wanted = || pooling(kind, id, 100 + id as usize);
        let reservation = decode.engine.prep_recv(&wanted(), 99).await.unwrap();
        let range = TokenRange::new(reservation.matched, 99).unwrap();
        let sent = prefill.engine.remote_send(&wanted(), &reservation, range).await.unwrap();
        let handed = decode.engine.start_generate(wanted(), Some((reservation, Some(sent)))).await.unwrap();
        assert_eq!(prompt_of(handed).await.pooled.unwrap(), pooled(&mock(""), wanted()).await.0, "{kind:?}");
    }
    decode.handle.audit().await.unwrap().unwrap();
}

#[tokio::test]
async fn nothing_is_generated_from_it() {
    let wanted = GenerateRequest { limits: request(1, 1, 5).limits, ..pooling(Pooling::Last, 1, 10) };
    let (tokens, error) = generate(&mock(""), wanted).await.unwrap_err();
    assert_eq!((tokens.len(), error.fault, error.retry), (0, Fault::Caller, Retry::Never));
    assert_eq!(error.message, "nothing is generated from a prompt whose hidden states are pooled");
}
