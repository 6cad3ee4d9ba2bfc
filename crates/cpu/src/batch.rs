//! A step plan after all checks, with every input token and page known. Kernels rely on the checks.

mod halves;

use std::ops::Range;

use baton_core::{PAGE_TOKENS, PageId, TokenId};

pub(crate) use self::halves::BatchHalves;
use super::slots::Slots;
use baton_backend::{BackendError, BackendSpec, InputToken, MaskCell, Segment, SlotId, StepPlan};

/// Buffers are reused from step to step.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) rows: Vec<Row>,
    pub(crate) segments: Vec<SegmentRows>,
    pub(crate) pages: Vec<PageId>,
    /// Rows whose logits are wanted, ascending.
    pub(crate) wanted: Vec<Wanted>,
    /// With the number of the wanted row that each is for.
    pub(crate) masks: Vec<(usize, MaskCell)>,
    /// By slot: whether it is sampled. Each is sampled at most once, so that members can sample in parallel.
    samples: Vec<bool>,
}

/// One token of the step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) token: TokenId,
    pub(crate) position: usize,
    /// The page of its K and V.
    pub(crate) page: PageId,
    /// Whether it was generated; otherwise it belongs to the prompt.
    pub(crate) generated: bool,
}

/// Rows of one segment.
#[derive(Clone, Debug)]
pub(crate) struct SegmentRows {
    pub(crate) rows: Range<usize>,
    pub(crate) first_position: usize,
    /// A range of [`Batch::pages`].
    pub(crate) pages: Range<usize>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Its index among the wanted rows of the whole step.
    pub(crate) number: usize,
    pub(crate) row: usize,
    pub(crate) slot: SlotId,
    pub(crate) position: usize,
    pub(crate) sample: bool,
    /// The next token of the prompt, and how many alternatives to report.
    pub(crate) prompt_logprobs: Option<(TokenId, u32)>,
}

impl Batch {
    pub(crate) fn resolve(&mut self, plan: &StepPlan, slots: &Slots, spec: &BackendSpec) -> Result<(), BackendError> {
        self.rows.clear();
        self.segments.clear();
        self.wanted.clear();
        self.pages.clear();
        self.masks.clear();
        self.samples.clear();
        self.samples.resize(spec.max_slots, false);
        if plan.tokens.len() > spec.max_step_tokens {
            return broken(format!("{} tokens in a step of {}", plan.tokens.len(), spec.max_step_tokens));
        }
        for segment in &plan.segments {
            self.segment(plan, segment, slots, spec)?;
        }
        if self.rows.len() != plan.tokens.len() {
            return broken("tokens outside of all segments".to_owned());
        }
        Ok(())
    }

    fn segment(
        &mut self,
        plan: &StepPlan,
        segment: &Segment,
        slots: &Slots,
        spec: &BackendSpec,
    ) -> Result<(), BackendError> {
        let slot = slots.get(segment.slot)?;
        if segment.output.samples > 0 && std::mem::replace(&mut self.samples[segment.slot.0 as usize], true) {
            return broken(format!("slot {} samples twice", segment.slot.0));
        }
        if segment.output.samples > 1 {
            return broken(format!("{} tokens of one slot in a step", segment.output.samples));
        }
        if let Some(adapter) = segment.adapter {
            return broken(format!("adapter {adapter}, of none"));
        }
        let first_row = self.rows.len();
        let tokens = match plan.tokens.get(segment.tokens.clone()) {
            Some(tokens) if segment.tokens.start == first_row && !tokens.is_empty() => tokens,
            _ => return broken(format!("tokens {:?} after row {first_row}", segment.tokens)),
        };
        let end = segment.first_position + tokens.len();
        if end > spec.max_context_tokens {
            return broken(format!("position {end} in a context of {}", spec.max_context_tokens));
        }
        let pages = slots.pages(segment.slot, end)?;
        let first_page = self.pages.len();
        self.pages.extend_from_slice(pages);
        for (offset, token) in tokens.iter().enumerate() {
            let position = segment.first_position + offset;
            let token = match token {
                InputToken::Known(token) => *token,
                InputToken::LastSampled => match slot.last_sampled() {
                    Some(token) => token,
                    None => return broken(format!("slot {} has not sampled yet", segment.slot.0)),
                },
            };
            if token.index() >= spec.vocab_size {
                return broken(format!("token {token} in a vocabulary of {}", spec.vocab_size));
            }
            let generated = position >= slot.prompt_tokens();
            self.rows.push(Row { token, position, page: pages[position / PAGE_TOKENS], generated });
            let next = slot.prompt_token(position + 1);
            let prompt_logprobs = segment.output.prompt_logprobs.and_then(|top| next.map(|token| (token, top)));
            let sample = segment.output.samples > 0 && position + 1 == end;
            if let Some(mask) = segment.output.mask.as_ref().filter(|_| sample) {
                self.masks.push((self.wanted.len(), mask.clone()));
            }
            if sample || prompt_logprobs.is_some() {
                self.wanted.push(Wanted {
                    number: self.wanted.len(),
                    row: first_row + offset,
                    slot: segment.slot,
                    position,
                    sample,
                    prompt_logprobs,
                });
            }
        }
        let rows = first_row..self.rows.len();
        let pages = first_page..self.pages.len();
        self.segments.push(SegmentRows { rows, first_position: segment.first_position, pages });
        Ok(())
    }
}

fn broken<T>(what: String) -> Result<T, BackendError> {
    Err(BackendError::Contract(what))
}
