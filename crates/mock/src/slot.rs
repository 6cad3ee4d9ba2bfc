//! One sequence on a mock: which tokens it has, what follows them, and whether the KV it is given is its own.

use std::sync::Arc;

use baton_backend::{BackendError, CannotSample, InputToken, SamplerSpec, Segment, TokenMask};
use baton_core::{AdapterId, Fault, PAGE_TOKENS, PageId, Pooling, Retry, ServeError, TokenId};

use crate::history::{History, mix};
use crate::kv::MockKv;
use crate::vocabulary::MockVocabulary;

/// Width of a hidden state.
const HIDDEN: usize = 8;

pub(crate) struct MockSlot {
    pub(crate) sampler: Arc<SamplerSpec>,
    /// Those it was admitted with, and what was sampled since.
    outputs: Vec<TokenId>,
    /// Of the tokens `[0, computed)`.
    history: History,
    computed: usize,
    /// Sum of hidden states, and of how many positions.
    pooled: ([f64; HIDDEN], u32),
    /// Tokens to sample before it fails.
    doomed_after: Option<usize>,
    /// Set when it cannot go on. What was planned before that was known fails for the same reason.
    failure: Option<ServeError>,
}

impl MockSlot {
    pub(crate) fn new(sampler: &Arc<SamplerSpec>, doomed_after: Option<u32>) -> Self {
        Self {
            sampler: Arc::clone(sampler),
            outputs: sampler.outputs.clone(),
            history: History::default(),
            computed: 0,
            pooled: ([0.0; HIDDEN], 0),
            doomed_after: doomed_after.map(|after| sampler.outputs.len() + after as usize),
            failure: None,
        }
    }

    pub(crate) fn failure(&self) -> Option<&ServeError> {
        self.failure.as_ref()
    }

    pub(crate) fn token(&self, position: usize) -> Option<TokenId> {
        let prompt = &self.sampler.prompt;
        prompt.get(position).or_else(|| self.outputs.get(position.checked_sub(prompt.len())?)).copied()
    }

    /// Reads what was computed before `first_position`: all of it when it came from elsewhere (a cache, another engine), else
    /// its last position. Fails when that is not the KV of its tokens.
    pub(crate) fn attend(&mut self, segment: &Segment, pages: &[PageId], kv: &MockKv) {
        self.failure = self.read(segment.first_position, segment.adapter, pages, kv).err();
    }

    fn read(
        &mut self,
        first_position: usize,
        adapter: Option<AdapterId>,
        pages: &[PageId],
        kv: &MockKv,
    ) -> Result<(), ServeError> {
        if first_position > 0 && first_position == self.computed {
            let holds = kv.holds(place(pages, first_position - 1), self.history);
            return if holds { Ok(()) } else { Err(foreign_kv(first_position - 1)) };
        }
        (self.history, self.computed) = (History::with(adapter), 0);
        for position in 0..first_position {
            let Some(token) = self.token(position) else { return Err(foreign_kv(position)) };
            self.history = self.history.then(token);
            if !kv.holds(place(pages, position), self.history) {
                return Err(foreign_kv(position));
            }
        }
        self.computed = first_position;
        Ok(())
    }

    /// Computes one more position.
    pub(crate) fn append(&mut self, input: InputToken, pages: &[PageId], kv: &MockKv) -> Result<(), BackendError> {
        let expected = self.token(self.computed);
        match (input, expected) {
            (InputToken::LastSampled, Some(token)) => self.history = self.history.then(token),
            (InputToken::Known(token), Some(expected)) if token == expected => {
                self.history = self.history.then(token);
            }
            _ => {
                let position = self.computed;
                return Err(BackendError::Contract(format!("{input:?} at position {position}, not {expected:?}")));
            }
        }
        kv.write(place(pages, self.computed), self.history);
        self.computed += 1;
        Ok(())
    }

    /// The position that was computed last counts. Its hidden state is made of the hash of all tokens up to it.
    pub(crate) fn pool(&mut self, pooling: Pooling) {
        if self.computed == 1 || pooling == Pooling::Last {
            self.pooled = ([0.0; HIDDEN], 0);
        }
        let (sum, positions) = &mut self.pooled;
        for (place, sum) in (0..).zip(sum) {
            *sum += f64::from(self.history.derive(place) as i32) / f64::from(i32::MAX);
        }
        *positions += 1;
    }

    /// The vector, at the end of the prompt.
    pub(crate) fn pooled(&self) -> Option<Vec<f32>> {
        let (sum, positions) = &self.pooled;
        let mean = |sum: &f64| (sum / f64::from(*positions)) as f32;
        (self.computed == self.prompt_tokens()).then(|| sum.iter().map(mean).collect())
    }

    /// The step that samples, or the last one of a prompt from which nothing is sampled here, is the one that fails.
    pub(crate) fn check_doom(&mut self, samples: bool) {
        let due =
            |after: usize| if samples { self.outputs.len() >= after } else { self.computed >= self.prompt_tokens() };
        if self.doomed_after.is_some_and(due) {
            self.failure = Some(ServeError::engine("the mock engine fails this request, as configured"));
        }
    }

    /// How many it may still sample until it fails.
    pub(crate) fn tokens_before_doom(&self) -> usize {
        self.doomed_after.map_or(usize::MAX, |after| after.saturating_sub(self.outputs.len()))
    }

    /// What was planned behind a token that could not be sampled is void.
    pub(crate) fn cannot_sample(&mut self, error: CannotSample) {
        self.failure = Some(ServeError::engine(format!("a step before could not sample: {error}")));
    }

    /// A mask comes before everything else; where it allows words, stop tokens wait for `output_tokens`.
    pub(crate) fn sample(
        &mut self,
        vocabulary: &MockVocabulary,
        output_tokens: Option<u32>,
        mask: Option<&TokenMask>,
    ) -> Result<TokenId, CannotSample> {
        let SamplerSpec { params, choice, min_tokens, stop_tokens, .. } = &*self.sampler;
        let allows = |token: TokenId| mask.is_none_or(|mask| mask.allows(token));
        let is_done = output_tokens.is_some_and(|most| self.outputs.len() >= most.max(*min_tokens) as usize);
        let stop = stop_tokens.iter().copied().find(|stop| allows(*stop));
        let draw = if params.temperature == 0.0 { 0 } else { mix(params.seed, choice.0.into()) };
        let word =
            || vocabulary.next_allowed(self.history, draw, |token| allows(token) && !stop_tokens.contains(&token));
        let token = if is_done { stop.or_else(word) } else { word().or(stop) };
        let token = token.ok_or(CannotSample::NothingAllowed)?;
        self.outputs.push(token);
        Ok(token)
    }

    pub(crate) fn prompt_tokens(&self) -> usize {
        self.sampler.prompt.len()
    }
}

fn place(pages: &[PageId], position: usize) -> (PageId, usize) {
    (pages[position / PAGE_TOKENS], position % PAGE_TOKENS)
}

/// Not to be retried: it is a bug, and a second try would hide it.
fn foreign_kv(position: usize) -> ServeError {
    let message = format!("the KV at position {position} is not that of this request's tokens");
    ServeError { fault: Fault::Engine, retry: Retry::Never, message, param: None }
}
