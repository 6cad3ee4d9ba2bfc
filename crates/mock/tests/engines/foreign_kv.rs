//! A page that holds someone else's KV is an error, not an answer.

use std::sync::Arc;

use baton_backend::{
    Backend, InputToken, SamplerSpec, Segment, SegmentOutput, SlotId, StepOutput, StepPlan, TableChange,
};
use baton_core::{Choice, PageId, Retry, SamplingParams, TokenId};
use baton_mock::{MockBackend, MockSize, MockVocabulary};

pub(crate) fn backend(config: &str) -> MockBackend {
    let words = (0..100).map(|id| (TokenId(id), format!(" w{id}")));
    let size = MockSize { kv_pages: 8, step_tokens: 512, max_slots: 4, tp: 1 };
    let vocabulary = Arc::new(MockVocabulary::new(100, words).unwrap());
    MockBackend::new(config.parse().unwrap(), size, vocabulary).unwrap()
}

/// Computes `prompt[first..]` of a new sequence in `pages`.
pub(crate) fn step(slot: u32, prompt: &[u32], first: usize, pages: &[u32]) -> StepPlan {
    let prompt: Arc<[TokenId]> = prompt.iter().copied().map(TokenId).collect();
    let tokens: Vec<InputToken> = prompt[first..].iter().copied().map(InputToken::Known).collect();
    let sampler = SamplerSpec {
        params: SamplingParams::greedy(),
        choice: Choice(0),
        prompt,
        outputs: Vec::new(),
        min_tokens: 0,
        stop_tokens: Vec::new(),
        logprobs: None,
    };
    StepPlan {
        admitted: vec![(SlotId(slot), Arc::new(sampler))],
        segments: vec![Segment {
            slot: SlotId(slot),
            tokens: 0..tokens.len(),
            first_position: first,
            adapter: None,
            output: SegmentOutput { samples: 1, ..SegmentOutput::default() },
        }],
        tokens,
        tables: vec![TableChange { slot: SlotId(slot), first: 0, pages: 0..pages.len() }],
        pages: pages.iter().copied().map(PageId).collect(),
        ..StepPlan::default()
    }
}

fn run(backend: &mut MockBackend, plan: &StepPlan) -> StepOutput {
    let mut output = StepOutput::default();
    let ticket = backend.submit(plan).unwrap();
    backend.collect(ticket, &mut output).unwrap();
    output
}

#[test]
fn only_the_kv_of_its_own_tokens_is_read() {
    let prompt: Vec<u32> = (0..70).collect();
    let mut other = prompt.clone();
    other[40] = 99;
    // (prompt, its first page, its second page) → whether the KV of `prompt` in pages 3 and 4 will do
    let cases = [(&prompt, 3, 4, None), (&prompt, 3, 5, Some(32)), (&prompt, 4, 3, Some(0)), (&other, 3, 4, Some(40))];
    for (length, first, second, wrong_at) in cases {
        let mut backend = backend("");
        let alone = run(&mut backend, &step(0, &prompt, 0, &[3, 4, 5])).samples;
        let shared = run(&mut backend, &step(1, length, 64, &[first, second, 6]));
        match wrong_at {
            None => assert_eq!(shared.samples[0].token, alone[0].token),
            Some(position) => {
                let (slot, error) = &shared.failed[0];
                assert_eq!((slot.0, error.retry, shared.samples.len()), (1, Retry::Never, 0));
                assert!(error.message.contains(&format!("position {position} ")), "{error}");
            }
        }
    }
}
