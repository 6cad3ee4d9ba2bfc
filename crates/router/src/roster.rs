//! The engines that are ready at one moment, and what a strategy can query.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use baton_core::{AffinityKey, GenerateRequest, Retry, ServeError, TokenRange};
use baton_protocol::Destination;
use futures_util::FutureExt;

use crate::engine::{EngineId, Role};
use crate::pick::{Failed, Pick, Sending};

pub struct Roster {
    pub(crate) ready: Vec<Pick>,
    pub(crate) past: Arc<Past>,
    /// When it was made, by the router's clock.
    pub(crate) now: Duration,
    /// Filled by the calls of this attempt.
    pub(crate) failed: Failed,
}

/// What earlier attempts at the same request leave to the next one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Past {
    /// Failed the last attempt: others first.
    pub(crate) failed: BTreeSet<EngineId>,
    /// Of the engine that generated the tokens so far: the same first, for the same bytes.
    pub(crate) numerics_id: Option<String>,
}

/// Some engines of a roster, ascending by id.
#[derive(Clone)]
pub struct Candidates {
    engines: Vec<Pick>,
    past: Arc<Past>,
    work: Work,
    preferred: Option<EngineId>,
}

#[derive(Clone, Copy)]
enum Work {
    Prefill,
    Decode,
}

impl Roster {
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// All of them, whatever their roles.
    pub fn engines(&self) -> Candidates {
        self.candidates(Work::Decode, |_| true)
    }

    /// Those that compute prompts for others.
    pub fn prefill(&self) -> Candidates {
        self.candidates(Work::Prefill, |role| role != Role::Decode)
    }

    /// Those that generate.
    pub fn decode(&self) -> Candidates {
        self.candidates(Work::Decode, |role| role != Role::Prefill)
    }

    /// Those that can take a whole request: all that generate or, when none of them is there, all that are.
    pub fn serving(&self) -> Candidates {
        let decode = self.decode();
        if decode.is_empty() { self.candidates(Work::Decode, |_| true) } else { decode }
    }

    /// When it was made, by the router's clock.
    pub(crate) fn now(&self) -> Duration {
        self.now
    }

    /// The engine failed the last attempt, or gives other bits than it did.
    pub(crate) fn speaks_against(&self, pick: &Pick) -> bool {
        self.past.speaks_against(pick) != (false, false)
    }

    pub(crate) fn has_lost(&self, failed: &BTreeSet<EngineId>) -> bool {
        self.ready.iter().any(|pick| failed.contains(&pick.id) && pick.is_lost())
    }

    fn candidates(&self, work: Work, role: impl Fn(Role) -> bool) -> Candidates {
        let engines = self.ready.iter().filter(|pick| role(pick.role)).cloned().collect();
        Candidates { engines, past: Arc::clone(&self.past), work, preferred: None }
    }
}

impl Candidates {
    pub fn is_empty(&self) -> bool {
        self.engines.is_empty()
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Pick> {
        self.engines.iter()
    }

    /// Those that can hand KV to `receiver`: others than itself, with the same numerics.
    #[must_use]
    pub fn pairing_with(mut self, receiver: &Pick) -> Self {
        self.engines.retain(|pick| pick.id != receiver.id && pick.is_exact_with(receiver));
        self
    }

    /// This one, if it is among them.
    #[must_use]
    pub fn only(mut self, engine: EngineId) -> Self {
        self.engines.retain(|pick| pick.id == engine);
        self
    }

    /// Those that have at most `slack` more to do than the least loaded: sequences where who decodes is chosen, prompt
    /// tokens where who prefills is.
    #[must_use]
    pub fn within(mut self, slack: u64) -> Self {
        if let Ok(least) = self.least_loaded() {
            let (bound, work) = (self.work.load(&least).0.saturating_add(slack), self.work);
            self.engines.retain(|pick| work.load(pick).0 <= bound);
        }
        self
    }

    /// The least loaded of these is this one, if it is among them.
    #[must_use]
    pub(crate) fn preferring(self, engine: EngineId) -> Self {
        Self { preferred: Some(engine), ..self }
    }

    /// What others have there plus what this router has in flight. Who decodes is compared by sequences, then by prompt tokens
    /// to compute until this request's are; who prefills by tokens, then by sequences. At last the lower id wins.
    pub fn least_loaded(&self) -> Result<Pick, ServeError> {
        self.first_by(|pick| (self.preferred != Some(pick.id), self.work.load(pick)))
    }

    /// The one that would take most of the prompt from its prefix cache; of equals the least loaded.
    pub fn longest_match(&self) -> Result<Pick, ServeError> {
        self.first_by(|pick| (Reverse(pick.cached_tokens()), self.work.load(pick)))
    }

    /// The one that attracts this key most. When engines come, only keys move that go to them.
    pub fn home_of(&self, key: AffinityKey) -> Result<Pick, ServeError> {
        self.first_by(|pick| Reverse(key.weight(pick.name())))
    }

    /// The first after `last`, around the circle of ids.
    pub fn following(&self, last: Option<EngineId>) -> Result<Pick, ServeError> {
        self.first_by(|pick| Reverse(Some(pick.id) > last))
    }

    /// Sent by the least loaded of these and, if that fails, by the next.
    pub fn remote_send(mut self, request: &GenerateRequest, to: &Destination, range: TokenRange) -> Sending {
        let first = self.take_least_loaded().map(|pick| pick.remote_send(request, to, range));
        let (request, to) = (request.clone(), to.clone());
        let sent = async move {
            let mut sent = first?.await;
            while let Err(error) = &sent
                && error.retry != Retry::Never
                && let Ok(next) = self.take_least_loaded()
            {
                sent = next.remote_send(&request, &to, range).await;
            }
            sent
        };
        sent.boxed()
    }

    fn take_least_loaded(&mut self) -> Result<Pick, ServeError> {
        let pick = self.least_loaded()?;
        self.engines.retain(|other| other.id != pick.id);
        Ok(pick)
    }

    fn first_by<K: Ord>(&self, key: impl Fn(&Pick) -> K) -> Result<Pick, ServeError> {
        let first = self.engines.iter().min_by_key(|pick| (self.past.speaks_against(pick), key(pick), pick.id));
        first.cloned().ok_or_else(|| ServeError::engine("no engine is running"))
    }
}

impl Work {
    /// What counts first, and what decides between equals.
    fn load(self, pick: &Pick) -> (u64, u64) {
        match self {
            Self::Decode => (pick.sequences().into(), pick.tokens_until_computed()),
            Self::Prefill => (pick.tokens_until_computed(), pick.sequences().into()),
        }
    }
}

impl Past {
    fn speaks_against(&self, pick: &Pick) -> (bool, bool) {
        let other_numerics = self.numerics_id.as_deref().is_some_and(|id| id != pick.numerics_id());
        (self.failed.contains(&pick.id), other_numerics)
    }
}
