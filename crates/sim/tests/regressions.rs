//! Seeds that once broke a rule. What a seed draws changes with the scenarios, so each bug also has a test next to its code.
#![allow(clippy::panic, reason = "a test that cannot go on should stop")]

use baton_sim::Run;

const SEEDS: [(u64, &str); 2] = [
    (49944, "an engine held itself for stuck when pages that had just landed could not grow at once"),
    (2408, "a reservation of an engine's earlier life was taken for another request's, and its prompt with it"),
];

#[test]
fn what_was_repaired_stays_repaired() {
    for (seed, what) in SEEDS {
        let run = Run { steps_in_flight: Some(1), ..Run::of(seed) };
        if let Err(failure) = run.verdict() {
            panic!("{failure}\nOnce: {what}.");
        }
    }
}
