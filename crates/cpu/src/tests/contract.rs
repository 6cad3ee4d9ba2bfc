//! Plans that break the contract are refused, and what the step loop relies on holds.

use std::sync::Arc;

use baton_core::{AdapterId, PageId, TokenId};
use baton_model::Dtype;

use super::runner::{Sequence, Setup, run_alone, step};
use super::tiny::{TinyModel, odd_spec};
use crate::CpuBackend;
use baton_backend::{
    Backend, BackendError, CannotSample, InputToken, MaskCell, Segment, SegmentOutput, SlotId, StepOutput, StepPlan,
    TableChange,
};

fn backend() -> CpuBackend {
    Setup::PLAIN.backend(Arc::new(TinyModel::new(odd_spec(Dtype::F32))))
}

/// Forty tokens of one sequence.
fn plan() -> StepPlan {
    let sequence = Sequence::new(0, 1, 40, 131, 0..2);
    StepPlan {
        admitted: vec![(sequence.slot, sequence.spec())],
        segments: vec![Segment {
            slot: SlotId(0),
            tokens: 0..40,
            first_position: 0,
            adapter: None,
            output: SegmentOutput { samples: 1, prompt_logprobs: Some(3), ..SegmentOutput::default() },
        }],
        tables: vec![TableChange { slot: SlotId(0), first: 0, pages: 0..2 }],
        tokens: sequence.tokens.iter().map(|&token| InputToken::Known(token)).collect(),
        pages: vec![PageId(0), PageId(1)],
        released: Vec::new(),
    }
}

#[test]
fn broken_plans_are_refused() {
    type Break = fn(&mut StepPlan);
    let cases: [(&str, Break); 15] = [
        ("unknown slot", |plan| plan.segments[0].slot = SlotId(3)),
        ("slot out of range", |plan| plan.admitted[0].0 = SlotId(16)),
        ("slot admitted twice", |plan| plan.admitted.push(plan.admitted[0].clone())),
        ("released twice", |plan| plan.released = vec![SlotId(0), SlotId(0)]),
        ("page out of range", |plan| plan.pages[1] = PageId(128)),
        ("too few pages", |plan| plan.tables[0].pages = 0..1),
        ("pages out of the list", |plan| plan.tables[0].pages = 1..3),
        ("pages behind a gap", |plan| plan.tables[0].first = 1),
        ("beyond the context", |plan| plan.segments[0].first_position = 1020),
        ("token out of range", |plan| plan.tokens[7] = InputToken::Known(TokenId(131))),
        ("nothing sampled yet", |plan| plan.tokens[0] = InputToken::LastSampled),
        ("empty segment", |plan| plan.segments[0].tokens = 0..0),
        ("an adapter", |plan| plan.segments[0].adapter = Some(AdapterId(1))),
        ("several tokens in a step", |plan| plan.segments[0].output.samples = 2),
        ("tokens of no segment", |plan| plan.tokens.push(InputToken::Known(TokenId(1)))),
    ];
    for (name, break_it) in cases {
        let mut plan = plan();
        break_it(&mut plan);
        let refused = backend().submit(&plan);
        assert!(matches!(refused, Err(BackendError::Contract(_))), "{name}: {refused:?}");
    }
    backend().submit(&plan()).unwrap();
}

#[test]
fn prompt_logprobs_for_every_position_but_the_first() {
    let mut backend = backend();
    let ticket = backend.submit(&plan()).unwrap();
    let mut output = StepOutput::default();
    backend.collect(ticket, &mut output).unwrap();
    assert_eq!(output.samples.len(), 1);
    let positions: Vec<usize> = output.prompt_logprobs.iter().map(|logprob| logprob.position).collect();
    assert_eq!(positions, (1..40).collect::<Vec<_>>());
    assert!(output.prompt_logprobs.iter().all(|p| p.logprobs.top.len() == 3 && p.logprobs.chosen < 0.0));
}

#[test]
fn masks_bind_what_is_sampled() {
    let sample = |mask: Option<MaskCell>| {
        let (mut backend, mut plan, mut output) = (backend(), plan(), StepOutput::default());
        plan.segments[0].output.mask = mask;
        let ticket = backend.submit(&plan).unwrap();
        backend.collect(ticket, &mut output).unwrap();
        output.samples[0].token
    };
    let filled = |allowed: &[u32]| {
        let (filler, cell) = MaskCell::new();
        filler.fill(allowed.iter().map(|&token| TokenId(token)).collect());
        Some(cell)
    };
    let free = sample(None).unwrap();
    let other = (free.0 + 1) % 131;
    assert_eq!(sample(filled(&[other])), Ok(TokenId(other)));
    assert_eq!(sample(filled(&(0..131).collect::<Vec<_>>())), Ok(free));
    assert_eq!(sample(filled(&[])), Err(CannotSample::NothingAllowed));
    let (filler, abandoned) = MaskCell::new();
    drop(filler);
    assert_eq!(sample(Some(abandoned)), Err(CannotSample::NoMask));
    // Another thread makes it while the step runs.
    let (filler, cell) = MaskCell::new();
    let late = std::thread::spawn(move || filler.fill([TokenId(other)].into_iter().collect()));
    assert_eq!(sample(Some(cell)), Ok(TokenId(other)));
    late.join().unwrap();
}

#[test]
fn a_sampled_token_can_be_an_input_before_it_is_known() {
    let mut backend = backend();
    let mut prompt = Sequence::new(0, 1, 40, 131, 0..2);
    run_alone(&mut backend, &mut prompt, 40);
    let last = StepPlan {
        segments: vec![Segment {
            slot: SlotId(0),
            tokens: 0..1,
            first_position: 40,
            adapter: None,
            output: SegmentOutput { samples: 1, ..SegmentOutput::default() },
        }],
        tokens: vec![InputToken::LastSampled],
        ..StepPlan::default()
    };
    let ticket = backend.submit(&last).unwrap();
    backend.collect(ticket, &mut StepOutput::default()).unwrap();
    let implicit = backend.hidden_of_last_step(0);
    prompt.tokens.push(prompt.sampled[0]);
    prompt.slot = SlotId(1);
    prompt.done = 0;
    step(&mut backend, &mut [(&mut prompt, 41)]);
    let explicit = backend.hidden_of_last_step(0);
    assert_eq!(implicit, explicit[40 * 37..]);
}

#[test]
fn steps_are_collected_in_order() {
    let mut backend = backend();
    let first = backend.submit(&plan()).unwrap();
    let second = backend.submit(&StepPlan { released: vec![SlotId(0)], ..StepPlan::default() }).unwrap();
    let mut output = StepOutput::default();
    backend.collect(first, &mut output).unwrap();
    assert_eq!(output.samples.len(), 1);
    backend.collect(second, &mut output).unwrap();
    assert!(output.samples.is_empty());
}
