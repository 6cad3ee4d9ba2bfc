//! Seeds that once broke a rule. What a seed draws changes with the weather, so each bug also has a test next to its code.
#![allow(clippy::panic, reason = "a test that cannot go on should stop")]

use baton_sim::Run;

const SEEDS: [(u64, &str); 1] =
    [(49944, "an engine held itself for stuck when pages that had just landed could not grow at once")];

#[test]
fn what_was_repaired_stays_repaired() {
    for (seed, what) in SEEDS {
        if let Err(failure) = Run::of(seed).verdict() {
            panic!("{failure}\nOnce: {what}.");
        }
    }
}
