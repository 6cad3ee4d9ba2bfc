//! When the pages of dropped guards are free again: not early, and not never.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use baton_core::{Guarantee, PAGE_TOKENS, TokenId};
use baton_kv::{Origin, PageLedger, StepNumber};

const TOKENS: usize = 3 * PAGE_TOKENS;
const PROMPT: Origin = Origin { prompt_tokens: TOKENS, adapter: None };

#[test]
fn a_dropped_table_gives_its_pages_back_when_the_last_step_that_touches_them_has_ended() {
    let mut ledger = PageLedger::new(4, None);
    let mut table = ledger.empty_table(PROMPT);
    ledger.grow(&mut table, TOKENS).unwrap();
    table.touched_by(StepNumber(1));
    table.touched_by(StepNumber(2));
    drop(table);
    for ended in [0, 1] {
        ledger.collect(StepNumber(ended));
        assert_eq!(ledger.pages_free(), 1, "step {ended} has ended, the next has not");
        assert!(ledger.grow(&mut ledger.empty_table(PROMPT), TOKENS).is_err());
        ledger.audit([], []).unwrap();
    }
    ledger.collect(StepNumber(2));
    assert_eq!(ledger.pages_free(), 4);
    ledger.audit([], []).unwrap();
}

#[test]
fn pages_that_no_step_in_flight_touches_are_free_at_once() {
    let mut ledger = PageLedger::new(4, Some(Guarantee::ByToken));
    let tokens = [TokenId(7); TOKENS];
    ledger.collect(StepNumber(5));
    let mut table = ledger.empty_table(PROMPT);
    ledger.grow(&mut table, TOKENS).unwrap();
    table.touched_by(StepNumber(5));
    ledger.insert(&tokens[..PAGE_TOKENS], &table);
    drop(table);
    assert_eq!((ledger.pages_cached(), ledger.pages_free()), (1, 3));
    ledger.audit([], []).unwrap();
}

#[test]
fn a_shared_page_waits_for_all_who_hold_it() {
    let mut ledger = PageLedger::new(4, None);
    let mut first = ledger.empty_table(PROMPT);
    ledger.grow(&mut first, TOKENS).unwrap();
    let mut second = ledger.share_prefix(&first, 2);
    first.touched_by(StepNumber(1));
    second.touched_by(StepNumber(2));
    drop((first, second));
    for (ended, free) in [(0, 1), (1, 2), (2, 4)] {
        ledger.collect(StepNumber(ended));
        assert_eq!(ledger.pages_free(), free, "after step {ended}");
    }
}
