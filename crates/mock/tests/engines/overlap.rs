//! Steps run while the next is planned, and no answer changes with that.

use std::time::{Duration, Instant};

use baton_backend::{Backend, InputToken, Segment, SegmentOutput, SlotId, StepOutput, StepPlan};

use crate::fleet::{check_side_by_side, generate, hand_over, mock, mock_with, request};
use crate::foreign_kv::{backend, step};
use crate::speed::in_time;

/// The token after the one that the step before it samples.
fn next(position: usize) -> StepPlan {
    StepPlan {
        segments: vec![Segment {
            slot: SlotId(0),
            tokens: 0..1,
            first_position: position,
            adapter: None,
            output: SegmentOutput { samples: 1, ..SegmentOutput::default() },
        }],
        tokens: vec![InputToken::LastSampled],
        ..StepPlan::default()
    }
}

#[tokio::test]
async fn submitting_returns_at_once_and_collecting_waits() {
    let prompt: Vec<u32> = (0..20).collect();
    let (prefill, decode) = (Duration::from_millis(80), Duration::from_millis(40));
    let alone = {
        let mut backend = backend("");
        [step(0, &prompt, 0, &[1]), next(20), next(21)].map(|plan| {
            let (ticket, mut output) = (backend.submit(&plan).unwrap(), StepOutput::default());
            backend.collect(ticket, &mut output).unwrap();
            output.samples
        })
    };
    in_time(Duration::from_millis(20), async |_| {
        let mut backend = backend("prefill-ms=80,decode-ms=40,steps-in-flight=3");
        let began = Instant::now();
        let plans = [step(0, &prompt, 0, &[1]), next(20), next(21)];
        let tickets = plans.map(|plan| backend.submit(&plan).unwrap());
        let submitted = began.elapsed();
        let mut due = prefill;
        for (ticket, expected) in tickets.into_iter().zip(&alone) {
            let mut output = StepOutput::default();
            backend.collect(ticket, &mut output).unwrap();
            assert_eq!(output.samples, *expected);
            assert!(began.elapsed() >= due, "collected after {:?}, due after {due:?}", began.elapsed());
            due += decode;
        }
        submitted.max(began.elapsed().saturating_sub(prefill + 2 * decode))
    })
    .await;
}

#[tokio::test]
async fn streams_do_not_depend_on_the_number_of_steps_in_flight() {
    let alone = mock("output-tokens=40");
    let mut preemptions = 0;
    for steps_in_flight in [1, 2, 3] {
        let config = format!("output-tokens=40,prefill-ms=10,decode-ms=1,steps-in-flight={steps_in_flight}");
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
    // How many of the runs had streams that waited for pages depends on how soon the streams began.
    assert!(preemptions > 0);
}

#[tokio::test]
async fn prompts_are_handed_over_with_two_steps_in_flight() {
    let (prefill, decode) = (mock("steps-in-flight=2,prefill-ms=20"), mock("steps-in-flight=2"));
    for (id, prompt_tokens) in [(1, 33), (2, 700), (3, 1500)] {
        let whole = generate(&mock(""), request(id, prompt_tokens, 20)).await.unwrap();
        assert_eq!(hand_over(&prefill, &decode, request(id, prompt_tokens, 20)).await, whole, "{prompt_tokens} tokens");
    }
    prefill.handle.audit().await.unwrap().unwrap();
    decode.handle.audit().await.unwrap().unwrap();
}

#[tokio::test]
async fn failures_are_the_same_with_two_steps_in_flight() {
    let faults = "error-rate=0.3,error-after-tokens=4,seed=3";
    let (one, two) = (mock(faults), mock(&format!("{faults},steps-in-flight=2")));
    for id in 0..30 {
        let answers = [generate(&one, request(id, 40, 10)).await, generate(&two, request(id, 40, 10)).await];
        assert_eq!(
            answers[0].as_ref().map_err(|(tokens, _)| tokens),
            answers[1].as_ref().map_err(|(tokens, _)| tokens)
        );
    }
}
