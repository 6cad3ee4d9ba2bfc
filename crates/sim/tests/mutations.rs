//! A checker that never fires proves nothing: each planted bug is noticed, by the checker that is there for it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use baton_sim::{Checker, Mutation, Run};

/// Every one of them is seen within a fraction of these.
const SEEDS: u64 = 2000;

fn is_caught(mutation: Mutation, by: Checker) {
    let fails = |seed| Run { mutation: Some(mutation), ..Run::of(seed) }.verdict().err();
    let caught = (0..SEEDS).filter_map(fails).find(|failure| failure.violation.checker == by);
    let Some(failure) = caught else { panic!("{mutation:?}: {by:?} does not fire within {SEEDS} seeds") };
    println!("{mutation:?}: seed {}, {}", failure.seed, failure.violation);
}

#[test]
fn skipping_the_fence_is_caught() {
    is_caught(Mutation::SkipFence, Checker::Fence);
}

#[test]
fn dropping_a_release_is_caught() {
    is_caught(Mutation::DropRelease, Checker::Leak);
}

#[test]
fn resuming_from_the_wrong_index_is_caught() {
    is_caught(Mutation::ResumeFromWrongIndex, Checker::Stream);
}

#[test]
fn ignoring_an_attempt_number_is_caught() {
    is_caught(Mutation::IgnoreAttempt, Checker::Leak);
}

#[test]
fn reusing_offered_pages_early_is_caught() {
    is_caught(Mutation::ReuseOfferedPagesEarly, Checker::Reuse);
}

#[test]
fn trusting_a_silent_engine_is_caught() {
    is_caught(Mutation::TrustSilence, Checker::Hang);
}

#[test]
fn counting_steps_for_layers_is_caught() {
    is_caught(Mutation::CountSteps, Checker::Hang);
}
