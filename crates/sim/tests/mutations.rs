//! A checker that never fires proves nothing: each planted bug is noticed, by the checker that is there for it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use baton_sim::{Checker, Mutation, Run, Violation};

/// Every one of them is seen within a fraction of these.
const SEEDS: u64 = 2000;

/// Whether engines have one step in flight or two.
fn is_caught(mutation: Mutation, by: Checker) {
    is_caught_with(mutation, by, "");
}

fn is_caught_with(mutation: Mutation, by: Checker, message: &str) {
    for steps_in_flight in [1, 2] {
        let run = |seed| Run { mutation: Some(mutation), steps_in_flight: Some(steps_in_flight), ..Run::of(seed) };
        let mut caught = (0..SEEDS).filter_map(|seed| run(seed).verdict().err());
        let is_it = |violation: &Violation| violation.checker == by && violation.message.contains(message);
        let Some(failure) = caught.find(|failure| is_it(&failure.violation)) else {
            panic!("{mutation:?}: {by:?} does not fire within {SEEDS} seeds, {steps_in_flight} steps in flight")
        };
        println!("{mutation:?}, {steps_in_flight} in flight: seed {}, {}", failure.seed, failure.violation);
    }
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
fn giving_pages_to_a_receiver_that_a_step_touches_is_caught() {
    is_caught_with(Mutation::GivePagesInFlight, Checker::Reuse, "in which KV is expected");
}

#[test]
fn using_revoked_pages_during_a_copy_is_caught() {
    is_caught_with(Mutation::ReportRevokedInCopy, Checker::Reuse, "in which KV is expected");
}

#[test]
fn reusing_offered_pages_early_is_caught() {
    is_caught(Mutation::ReuseOfferedPagesEarly, Checker::Reuse);
}

#[test]
fn hiding_gaps_between_cache_events_is_caught() {
    is_caught(Mutation::HideCacheGaps, Checker::Cache);
}

#[test]
fn trusting_a_silent_engine_is_caught() {
    is_caught(Mutation::TrustSilence, Checker::Hang);
}

#[test]
fn counting_steps_for_layers_is_caught() {
    is_caught(Mutation::CountSteps, Checker::Hang);
}
