//! Masks of the tokens that may be sampled next. They are made in the engine's process while a step runs, by code that knows
//! a grammar: a plan carries the cell, sampling waits until it is filled.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use baton_core::TokenId;

/// How long the sampling of a step waits for its masks, all together.
pub const MASK_PATIENCE: Duration = Duration::from_secs(2);

/// A backend that waits for a mask reports this often that it has not hung: the wait has a bound of its own.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// Which tokens may be sampled: a bit for each id, ids behind the last bit may not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenMask {
    words: Vec<u64>,
}

impl TokenMask {
    pub fn allow(&mut self, token: TokenId) {
        let word = token.index() / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (token.index() % 64);
    }

    pub fn allows(&self, token: TokenId) -> bool {
        self.words.get(token.index() / 64).is_some_and(|word| word >> (token.index() % 64) & 1 == 1)
    }

    /// Tokens that may not be sampled get no probability.
    pub fn apply(&self, logits: &mut [f32]) {
        let words = self.words.iter().copied().chain(std::iter::repeat(0));
        for (logits, word) in logits.chunks_mut(64).zip(words).filter(|(_, word)| *word != u64::MAX) {
            for (bit, logit) in logits.iter_mut().enumerate() {
                *logit = if word >> bit & 1 == 1 { *logit } else { f32::NEG_INFINITY };
            }
        }
    }
}

impl FromIterator<TokenId> for TokenMask {
    fn from_iter<T: IntoIterator<Item = TokenId>>(tokens: T) -> Self {
        let mut mask = Self::default();
        tokens.into_iter().for_each(|token| mask.allow(token));
        mask
    }
}

/// Where a step finds one slot's mask. Clones are the same cell.
#[derive(Clone, Debug)]
pub struct MaskCell(Arc<Shared>);

/// Fills one cell, once. Dropped before that it leaves word that no mask will come.
#[derive(Debug)]
pub struct MaskFiller(MaskCell);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
enum State {
    Empty,
    Filled(Arc<TokenMask>),
    Abandoned,
}

impl MaskCell {
    pub fn new() -> (MaskFiller, Self) {
        let cell = Self(Arc::new(Shared { state: Mutex::new(State::Empty), changed: Condvar::new() }));
        (MaskFiller(cell.clone()), cell)
    }

    /// `None` when it will not be filled, or has not been by then. `waiting` is called every tenth of a second until it ends.
    pub fn wait(&self, until: Instant, waiting: impl Fn()) -> Option<Arc<TokenMask>> {
        let mut state = self.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match &*state {
                State::Filled(mask) => return Some(Arc::clone(mask)),
                State::Empty if !left.is_zero() => {}
                State::Empty | State::Abandoned => return None,
            }
            let (changed, waited) = (&self.0.changed, left.min(REPORT_INTERVAL));
            let timeout;
            (state, timeout) = changed.wait_timeout(state, waited).unwrap_or_else(PoisonError::into_inner);
            if timeout.timed_out() {
                waiting();
            }
        }
    }

    fn set(&self, new: State) {
        let mut state = self.lock();
        if matches!(*state, State::Empty) {
            *state = new;
            self.0.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MaskFiller {
    pub fn fill(self, mask: TokenMask) {
        self.0.set(State::Filled(Arc::new(mask)));
    }
}

impl Drop for MaskFiller {
    fn drop(&mut self) {
        self.0.set(State::Abandoned);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_allowed_tokens_keep_their_logits() {
        for (vocab, allowed) in [(10, vec![0, 9]), (200, vec![63, 64, 130]), (130, (0..128).collect()), (65, vec![])] {
            let mask: TokenMask = allowed.iter().map(|&token| TokenId(token)).collect();
            let mut logits = vec![1.5; vocab];
            mask.apply(&mut logits);
            for (token, logit) in (0..).zip(logits) {
                let expected = if allowed.contains(&token) { 1.5 } else { f32::NEG_INFINITY };
                assert_eq!((logit, mask.allows(TokenId(token))), (expected, allowed.contains(&token)), "{token}");
            }
        }
    }

    #[test]
    fn a_waiter_gets_the_mask_or_none() {
        let mask: TokenMask = [TokenId(3)].into_iter().collect();
        let late = || Instant::now() + Duration::from_secs(60);
        let ((filler, cell), (dropped, abandoned)) = (MaskCell::new(), MaskCell::new());
        assert_eq!(cell.wait(Instant::now(), || ()), None, "not filled yet");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| (cell.wait(late(), || ()), abandoned.wait(late(), || ())));
            filler.fill(mask.clone());
            drop(dropped);
            assert_eq!(waiting.join().unwrap(), (Some(Arc::new(mask.clone())), None));
        });
        assert_eq!(cell.wait(Instant::now(), || ()).as_deref(), Some(&mask), "there is no hurry once it is there");
    }

    #[test]
    fn waiting_is_reported() {
        let ((_filler, cell), reports) = (MaskCell::new(), std::cell::Cell::new(0));
        let until = Instant::now() + 4 * REPORT_INTERVAL;
        assert_eq!(cell.wait(until, || reports.set(reports.get() + 1)), None);
        assert!((1..=4).contains(&reports.get()), "{} reports", reports.get());
    }
}
