//! Page tables by slot, as plans change them: what a backend keeps on the host, or mirrors on its device.

use baton_core::{PAGE_TOKENS, PageId};

use crate::{BackendError, SlotId, StepPlan};

/// Holds page ids only; whose they are is decided by the scheduler.
#[derive(Debug)]
pub struct SlotPages {
    /// By slot. One whose slot is not in use is never read: it is emptied when the slot is admitted.
    tables: Vec<Vec<PageId>>,
    pages_total: usize,
}

impl SlotPages {
    pub fn new(max_slots: usize, pages_total: usize) -> Self {
        Self { tables: vec![Vec::new(); max_slots], pages_total }
    }

    /// Takes over a plan's changes, in their order, or returns what is wrong with them.
    pub fn apply(&mut self, plan: &StepPlan) -> Result<(), BackendError> {
        for (slot, _) in &plan.admitted {
            self.table_mut(*slot)?.clear();
        }
        for change in &plan.tables {
            let slot = change.slot.0;
            let total = self.pages_total;
            let Some(pages) = plan.pages.get(change.pages.clone()) else {
                return broken(format!("pages {:?} for slot {slot} are not in the plan", change.pages));
            };
            if let Some(page) = pages.iter().find(|page| page.index() >= total) {
                return broken(format!("page {page} of {total} for slot {slot}"));
            }
            let table = self.table_mut(change.slot)?;
            if change.first > table.len() {
                return broken(format!("pages from {} on for slot {slot}, which has {}", change.first, table.len()));
            }
            table.truncate(change.first);
            table.extend_from_slice(pages);
        }
        Ok(())
    }

    /// The pages of positions `[0, end)`.
    pub fn up_to(&self, slot: SlotId, end: usize) -> Result<&[PageId], BackendError> {
        let table = self.tables.get(slot.0 as usize).map_or(&[][..], Vec::as_slice);
        match table.get(..end.div_ceil(PAGE_TOKENS)) {
            Some(pages) => Ok(pages),
            None => broken(format!("slot {} has {} pages, too few for {end} tokens", slot.0, table.len())),
        }
    }

    fn table_mut(&mut self, slot: SlotId) -> Result<&mut Vec<PageId>, BackendError> {
        let slots = self.tables.len();
        let table = self.tables.get_mut(slot.0 as usize);
        table.ok_or_else(|| BackendError::Contract(format!("slot {} of {slots}", slot.0)))
    }
}

fn broken<T>(what: String) -> Result<T, BackendError> {
    Err(BackendError::Contract(what))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use baton_core::{Choice, SamplingParams};

    use super::*;
    use crate::SamplerSpec;

    const SLOTS: u32 = 4;
    const PAGES: u32 = 50;

    fn spec() -> Arc<SamplerSpec> {
        Arc::new(SamplerSpec {
            params: SamplingParams::greedy(),
            choice: Choice(0),
            prompt: Arc::from([]),
            outputs: Vec::new(),
            min_tokens: 0,
            stop_tokens: Vec::new(),
            logprobs: None,
        })
    }

    /// SplitMix64.
    fn below(state: &mut u64, bound: u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    /// Whole tables are kept beside, and changes made from what differs between two of them.
    #[test]
    fn tables_made_of_changes_are_the_whole_ones() {
        let mut random = 7;
        let mut tables = SlotPages::new(SLOTS as usize, PAGES as usize);
        let mut whole: BTreeMap<SlotId, Vec<PageId>> = BTreeMap::new();
        for step in 0..2000 {
            let mut plan = StepPlan::default();
            for slot in (0..SLOTS).map(SlotId) {
                let new: Vec<PageId> =
                    (0..below(&mut random, 4)).map(|_| PageId(below(&mut random, PAGES.into()) as u32)).collect();
                match (below(&mut random, 8), whole.get_mut(&slot)) {
                    // Released, and taken by another sequence with the next plan.
                    (0, Some(_)) => {
                        plan.released.push(slot);
                    }
                    (0..4, None) => {
                        plan.admitted.push((slot, spec()));
                        plan.change_table(slot, 0, new.iter().copied());
                        whole.insert(slot, new);
                    }
                    // Preempted and resumed, with other pages.
                    (1, Some(table)) => {
                        plan.change_table(slot, 0, new.iter().copied());
                        *table = new;
                    }
                    (2, Some(table)) if !table.is_empty() => {
                        let kept = below(&mut random, table.len() as u64) as usize;
                        plan.change_table(slot, kept, new.iter().copied());
                        table.splice(kept.., new);
                    }
                    (3..6, Some(table)) => {
                        plan.change_table(slot, table.len(), new.iter().copied());
                        table.extend(new);
                    }
                    _ => {}
                }
            }
            tables.apply(&plan).unwrap();
            for (slot, table) in &whole {
                for end in [0, 1, table.len() * PAGE_TOKENS / 2, table.len() * PAGE_TOKENS] {
                    let pages = end.div_ceil(PAGE_TOKENS).min(table.len());
                    let end = end.min(table.len() * PAGE_TOKENS);
                    assert_eq!(tables.up_to(*slot, end).unwrap(), &table[..pages], "step {step}, {slot:?}, {end}");
                }
                assert!(tables.up_to(*slot, table.len() * PAGE_TOKENS + 1).is_err(), "step {step}, {slot:?}");
            }
            plan.released.iter().for_each(|slot| drop(whole.remove(slot)));
        }
    }

    #[test]
    fn changes_that_cannot_be_are_refused() {
        let first = |slot, first| {
            let mut plan = StepPlan::default();
            plan.change_table(SlotId(slot), first, [PageId(3)]);
            plan
        };
        let page = |page| {
            let mut plan = StepPlan::default();
            plan.change_table(SlotId(0), 0, [PageId(page)]);
            plan
        };
        let mut outside = page(0);
        outside.pages.clear();
        for (what, plan, accepted) in [
            ("a reset", first(0, 0), true),
            ("a gap", first(0, 1), false),
            ("no such slot", first(SLOTS, 0), false),
            ("the last page", page(PAGES - 1), true),
            ("no such page", page(PAGES), false),
            ("pages outside of the plan", outside, false),
        ] {
            let mut tables = SlotPages::new(SLOTS as usize, PAGES as usize);
            assert_eq!(tables.apply(&plan).is_ok(), accepted, "{what}");
        }
    }
}
