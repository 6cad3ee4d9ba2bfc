//! The engines that are ready at one moment, and what a strategy can query.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use baton_core::{GenerateRequest, Retry, ServeError, TokenRange};
use baton_protocol::Destination;
use futures_util::FutureExt;

use crate::fleet::{EngineId, Role};
use crate::pick::{Failed, Pick, Sending};

pub struct Roster {
    pub(crate) ready: Vec<Pick>,
    pub(crate) past: Arc<Past>,
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
    wanted_for: Work,
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

    pub(crate) fn has_lost(&self, failed: &BTreeSet<EngineId>) -> bool {
        self.ready.iter().any(|pick| failed.contains(&pick.id) && pick.is_lost())
    }

    fn candidates(&self, wanted_for: Work, role: impl Fn(Role) -> bool) -> Candidates {
        let engines = self.ready.iter().filter(|pick| role(pick.role)).cloned().collect();
        Candidates { engines, past: Arc::clone(&self.past), wanted_for }
    }
}

impl Candidates {
    pub fn is_empty(&self) -> bool {
        self.engines.is_empty()
    }

    /// Those that can hand KV to `receiver`: others than itself, with the same numerics.
    #[must_use]
    pub fn pairing_with(mut self, receiver: &Pick) -> Self {
        self.engines.retain(|pick| pick.id != receiver.id && pick.is_exact_with(receiver));
        self
    }

    /// What others have there plus what this router has in flight. Who decodes is compared by sequences, then by prompt tokens to
    /// compute; who prefills by tokens, then by sequences. At last the lower id wins.
    pub fn least_loaded(&self) -> Result<Pick, ServeError> {
        self.first_by(|pick| match self.wanted_for {
            Work::Decode => (u64::from(pick.sequences()), pick.prefill_tokens()),
            Work::Prefill => (pick.prefill_tokens(), u64::from(pick.sequences())),
        })
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

impl Past {
    fn speaks_against(&self, pick: &Pick) -> (bool, bool) {
        let other_numerics = self.numerics_id.as_deref().is_some_and(|id| id != pick.numerics_id());
        (self.failed.contains(&pick.id), other_numerics)
    }
}
