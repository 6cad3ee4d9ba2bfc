//! A seed replays a run exactly, down to the order in which tasks are woken.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod env;

use baton_sim::{Mutation, Run};

/// `BATON_SIM_SEED=7`: that one. `BATON_SIM_LOG=10000`: with that many lines of its log, should it fail.
#[test]
fn one_seed() {
    let mut run = Run::of(env::number("BATON_SIM_SEED").unwrap_or(0));
    run.log_lines = env::number("BATON_SIM_LOG").map_or(run.log_lines, |lines| lines as usize);
    let [first, second] = [(); 2].map(|()| match run.verdict() {
        Ok(outcome) => outcome.log_hash,
        Err(failure) => panic!("{failure}"),
    });
    println!("seed {}: log {first:016x}", run.seed);
    assert_eq!(first, second);
}

#[test]
fn every_seed_replays() {
    let hashes = || (0..60).map(|seed| Run::of(seed).verdict().unwrap().log_hash).collect::<Vec<_>>();
    let first = hashes();
    assert_eq!(first, hashes());
    let mut distinct = first.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), first.len(), "two seeds, two runs");
}

#[test]
fn failures_replay_too() {
    let fails = |seed| Run { mutation: Some(Mutation::ResumeFromWrongIndex), ..Run::of(seed) }.verdict().err();
    let failure = (0..100).find_map(fails).unwrap();
    let again = fails(failure.seed).unwrap();
    assert_eq!((failure.log_hash, failure.to_string()), (again.log_hash, again.to_string()));
    assert!(failure.to_string().contains(&format!("BATON_SIM_SEED={} ", failure.seed)));
}
