//! Bugs planted on purpose, to show that checkers see them. Each breaks one rule of production code from the outside, at a
//! port that the simulation implements; without a mutation that code runs as it is.

use std::collections::BTreeMap;

use baton_core::{Attempt, EngineEvent, RequestId};
use baton_protocol::{Command, StepReply};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Neither does a sender look at its fence before it vouches for pages, nor a receiver after it has read them.
    SkipFence,
    /// Giving a reservation back is forgotten.
    DropRelease,
    /// An engine that is to continue after `n` tokens repeats the last one in the place of the next.
    ResumeFromWrongIndex,
    /// Events of older attempts are taken for events of the present one.
    IgnoreAttempt,
    /// A sender closes its fence only some time after the pages behind it may be reused.
    ReuseOfferedPagesEarly,
    /// A silent engine is taken for one that lives and has nothing to do.
    TrustSilence,
    /// Heartbeats count steps, not layers.
    CountSteps,
    /// Pages of a sequence that has ended may be given to a receiver of KV while a step that touches them is in flight: the
    /// engine takes a step for ended whose last layer is still being written.
    GivePagesInFlight,
    /// A receiver of KV reports revoked pages as written no more while it is still copying into them.
    ReportRevokedInCopy,
    /// Cache events that were lost leave no numbers out.
    HideCacheGaps,
}

/// What becomes of the commands and replies of one session.
pub(crate) struct Tamper {
    mutation: Option<Mutation>,
    newest: BTreeMap<RequestId, Attempt>,
    /// Attempts that were resumed one token early, by request.
    shifted: BTreeMap<RequestId, Attempt>,
    /// The number of the cache event that comes next.
    next_cache_event: u64,
}

impl Tamper {
    pub(crate) fn new(mutation: Option<Mutation>) -> Self {
        Self { mutation, newest: BTreeMap::new(), shifted: BTreeMap::new(), next_cache_event: 0 }
    }

    /// `false`: the command is not sent at all.
    pub(crate) fn filter(&mut self, command: &mut Command) -> bool {
        match self.mutation {
            Some(Mutation::DropRelease) => !matches!(command, Command::Release(_)),
            Some(Mutation::IgnoreAttempt) => {
                self.newest.extend(command.opens());
                true
            }
            Some(Mutation::ResumeFromWrongIndex) => {
                if let Command::Generate { request, .. } = command
                    && request.outputs.iter().any(|outputs| !outputs.is_empty())
                {
                    request.outputs.iter_mut().for_each(|outputs| outputs.truncate(outputs.len().saturating_sub(1)));
                    self.shifted.insert(request.id, request.attempt);
                }
                true
            }
            _ => true,
        }
    }

    pub(crate) fn change(&mut self, reply: &mut StepReply) {
        if self.mutation == Some(Mutation::HideCacheGaps)
            && let Some(update) = &mut reply.cache
        {
            update.first = self.next_cache_event;
            self.next_cache_event = update.next();
        }
        for event in &mut reply.events {
            if let Some(&newest) = self.newest.get(&event.request()) {
                set_attempt(event, newest);
            }
            if let EngineEvent::Token(token) = event
                && self.shifted.get(&token.request) == Some(&token.attempt)
            {
                token.index += 1;
            }
        }
    }
}

fn set_attempt(event: &mut EngineEvent, attempt: Attempt) {
    match event {
        EngineEvent::Prompt(event) => event.attempt = attempt,
        EngineEvent::Token(event) => event.attempt = attempt,
        EngineEvent::Reserved(event) => event.attempt = attempt,
        EngineEvent::Sent(event) => event.attempt = attempt,
        EngineEvent::Failed(event) => event.attempt = attempt,
    }
}
