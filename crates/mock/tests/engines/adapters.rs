//! The same prompt with other adapters has other KV and gives other tokens.

use baton_core::{AdapterId, EngineEvent, Fault, GenerateRequest, Retry, TokenId, TokenRange};
use baton_protocol::Engine;

use crate::fleet::{Mock, generate, hand_over, mock, request};

fn with(adapter: Option<u64>, id: u64) -> GenerateRequest {
    // One prompt for all.
    GenerateRequest { adapter: adapter.map(AdapterId), prompt: request(0, 100, 1).prompt, ..request(id, 1, 20) }
}

/// The tokens, and how many of the prompt's came from the cache.
async fn cached(mock: &Mock, request: GenerateRequest) -> (Vec<TokenId>, u32) {
    let (mut stream, mut tokens, mut cached) = (mock.engine.start_generate(request, None).await.unwrap(), vec![], 0);
    while let Some(event) = stream.next().await {
        match event {
            EngineEvent::Prompt(event) => cached = event.cached_tokens,
            EngineEvent::Token(event) => tokens.push(event.token),
            other => panic!("{other:?}"),
        }
    }
    (tokens, cached)
}

#[tokio::test]
async fn adapters_share_nothing_and_say_something_else() {
    let mock = mock("adapters=2");
    let mut seen: Vec<Vec<TokenId>> = Vec::new();
    for (id, adapter) in [None, Some(1), Some(2)].into_iter().enumerate() {
        let (first, none) = cached(&mock, with(adapter, 2 * id as u64)).await;
        let (again, prompt) = cached(&mock, with(adapter, 2 * id as u64 + 1)).await;
        assert_eq!((none, prompt), (0, 96), "{adapter:?}");
        assert_eq!(first, again);
        assert!(!seen.contains(&first), "{adapter:?}");
        seen.push(first);
    }
    mock.handle.audit().await.unwrap().unwrap();
}

#[tokio::test]
async fn an_adapter_that_is_not_there_is_the_callers_fault() {
    let (mock, none) = (mock("adapters=2"), mock(""));
    for (mock, adapter) in [(&mock, 3), (&mock, 0), (&none, 1)] {
        let (tokens, error) = generate(mock, with(Some(adapter), 1)).await.unwrap_err();
        assert_eq!((tokens.len(), error.fault, error.retry), (0, Fault::Caller, Retry::Never));
        assert_eq!(error.message, format!("this engine has no adapter {adapter}"));
        assert_eq!(generate(mock, with(None, 1)).await.unwrap().len(), 20);
    }
}

#[tokio::test]
async fn a_hand_off_is_of_one_adapter() {
    let (prefill, decode, alone) = (mock("adapters=2"), mock("adapters=2"), mock("adapters=2"));
    let whole = generate(&alone, with(Some(2), 1)).await.unwrap();
    assert_eq!(hand_over(&prefill, &decode, with(Some(2), 1)).await, whole);

    // Neither side takes KV of another one.
    let reservation = decode.engine.prep_recv(&with(Some(1), 2), 99).await.unwrap();
    assert_eq!(reservation.matched, 0);
    let range = TokenRange::up_to(99);
    for other in [None, Some(2)] {
        let error = prefill.engine.remote_send(&with(other, 2), &reservation, range).await.err().unwrap();
        assert!(error.message.contains("the receiver waits for another prompt"), "{error}");
    }
    let mut stream = decode.engine.start_generate(with(Some(2), 2), Some((reservation, None))).await.unwrap();
    let Some(EngineEvent::Failed(failed)) = stream.next().await else { panic!("accepted") };
    assert!(failed.error.message.contains("the adapter is not"), "{}", failed.error);
    decode.handle.audit().await.unwrap().unwrap();
}
