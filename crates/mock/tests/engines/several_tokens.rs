//! Steps that give a sequence several tokens: no answer changes with that, there are only fewer steps.

use baton_core::{FinishReason, GenerateRequest};

use crate::fleet::{check_side_by_side, finish, generate, hand_over, mock, mock_with, request};

#[tokio::test]
async fn streams_do_not_depend_on_the_tokens_of_a_step() {
    let alone = mock("output-tokens=40");
    let mut preemptions = 0;
    for tokens_per_step in [1, 2, 5, 40] {
        for steps_in_flight in [1, 2] {
            let config = format!(
                "output-tokens=40,prefill-ms=10,decode-ms=1,tokens-per-step={tokens_per_step},steps-in-flight={steps_in_flight}"
            );
            // The small pool is not enough for all.
            for kv_pages in [400, 20] {
                let mock = mock_with(&config, kv_pages, 1);
                check_side_by_side(&mock, &alone).await;
                let counters = mock.handle.report().counters;
                assert!(counters.preemptions == 0 || kv_pages == 20, "{config}: {counters:?}");
                preemptions += counters.preemptions;
                mock.handle.audit().await.unwrap().unwrap();
            }
        }
    }
    // How many of the runs had streams that waited for pages depends on how soon the streams began.
    assert!(preemptions > 0);
}

#[tokio::test]
async fn there_are_as_few_steps_as_can_be() {
    // Prompt, tokens per step → steps for 24 tokens, the first of which is sampled with the prompt.
    for (tokens_per_step, steps) in [(1, 24), (2, 12), (5, 5), (24, 1), (64, 1)] {
        let mock = mock(&format!("tokens-per-step={tokens_per_step}"));
        assert_eq!(generate(&mock, request(1, 10, 24)).await.unwrap().len(), 24);
        let counters = mock.handle.report().counters;
        assert_eq!((counters.steps, counters.generated_tokens), (steps, 24), "{tokens_per_step} per step");
    }
}

#[tokio::test]
async fn a_choice_ends_where_it_should_inside_of_a_step() {
    let (one, several) = (mock("context=100,output-tokens=12"), mock("context=100,output-tokens=12,tokens-per-step=7"));
    // Most tokens, whether there is a stop token → how many come, and why no more.
    let cases = [
        (10, true, 10, FinishReason::Length),
        (30, true, 13, FinishReason::StopToken),
        (30, false, 30, FinishReason::Length),
        // The context is full.
        (500, false, 40, FinishReason::Length),
    ];
    for (max_tokens, stops, tokens, reason) in cases {
        let wanted = || {
            let mut request = request(1, 60, max_tokens);
            request.limits.stop_tokens.truncate(stops.into());
            request
        };
        let (generated, finished) = finish(&several, wanted()).await;
        assert_eq!((generated.len(), finished), (tokens, reason));
        assert_eq!(generated, generate(&one, wanted()).await.unwrap());
    }
    several.handle.audit().await.unwrap().unwrap();
}

#[tokio::test]
async fn prompts_are_handed_over_and_streams_resumed() {
    let (prefill, decode) = (mock("tokens-per-step=3"), mock("tokens-per-step=5"));
    for (id, prompt_tokens) in [(1, 33), (2, 700)] {
        let wanted = || request(id, prompt_tokens, 20);
        let whole = generate(&mock(""), wanted()).await.unwrap();
        assert_eq!(hand_over(&prefill, &decode, wanted()).await, whole, "{prompt_tokens} tokens");
        for accepted in [1, 4, 19] {
            let rest = GenerateRequest { outputs: vec![whole[..accepted].to_vec()], ..wanted() };
            assert_eq!(generate(&decode, rest).await.unwrap(), whole[accepted..], "after {accepted}");
        }
    }
    prefill.handle.audit().await.unwrap().unwrap();
    decode.handle.audit().await.unwrap().unwrap();
}

#[tokio::test]
async fn failures_come_after_the_same_tokens() {
    let faults = "error-rate=0.3,error-after-tokens=4,seed=3";
    let (one, several) = (mock(faults), mock(&format!("{faults},tokens-per-step=3")));
    let mut failed = 0;
    for id in 0..30 {
        let generated = [generate(&one, request(id, 40, 10)).await, generate(&several, request(id, 40, 10)).await];
        failed += usize::from(generated[0].is_err());
        assert_eq!(
            generated[0].as_ref().map_err(|(tokens, _)| tokens),
            generated[1].as_ref().map_err(|(tokens, _)| tokens)
        );
    }
    assert!(failed > 0);
}
