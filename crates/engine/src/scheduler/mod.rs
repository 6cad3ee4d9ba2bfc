//! Decides what each step computes. Commands come in, a plan goes out, its results come in, events go out; nothing here
//! waits, reads a clock or touches a byte of KV. Reads in that order: [`intake`], [`plan`], [`complete`].

mod admit;
mod complete;
mod intake;
mod plan;
mod report;
mod slots;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use baton_compute::{BackendSpec, SlotId, StepPlan};
use baton_core::{EngineCounters, EngineEvent, PAGE_TOKENS};
use baton_kv::{Discrepancy, PageLedger};
use baton_protocol::SessionId;

use crate::config::EngineConfig;
use crate::error::EngineError;
use crate::request::ActiveRequest;
use crate::sequence::{RequestKey, Sequence, SequenceId, Stage};
use slots::Slots;

/// Commands are applied between [`complete`](Self::complete) and the next [`schedule`](Self::schedule), never in between.
pub struct Scheduler {
    limits: StepLimits,
    ledger: PageLedger,
    slots: Slots,
    requests: BTreeMap<RequestKey, ActiveRequest>,
    sequences: BTreeMap<SequenceId, Sequence>,
    /// Hold pages; oldest first.
    running: Vec<SequenceId>,
    /// Could be admitted now. Everything that runs is older, but for choices that joined after their prompt was computed.
    waiting: BTreeSet<SequenceId>,
    next_sequence: u64,
    plan: StepPlan,
    /// One per segment of the plan.
    rows: Vec<Row>,
    step_started: Duration,
    counters: EngineCounters,
    reports: u64,
}

struct StepLimits {
    step_tokens: usize,
    max_running: usize,
    max_waiting: usize,
    vocab_size: usize,
    pages_total: usize,
    /// A sequence that is alone can have this many tokens: the model's context, or all pages there are.
    context_tokens: usize,
}

struct Row {
    sequence: SequenceId,
    slot: SlotId,
    tokens: usize,
    samples: bool,
}

/// Something to say to the session that asked for it.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionEvent {
    pub session: SessionId,
    pub event: EngineEvent,
}

impl Scheduler {
    pub fn new(config: &EngineConfig, spec: &BackendSpec) -> Result<Self, EngineError> {
        let step_tokens = config.step_tokens.min(spec.max_step_tokens);
        let limits = StepLimits {
            step_tokens,
            max_running: config.max_running.min(spec.max_slots).min(step_tokens),
            max_waiting: config.max_waiting,
            vocab_size: spec.vocab_size,
            pages_total: spec.pages_total,
            context_tokens: spec.max_context_tokens.min(spec.pages_total * PAGE_TOKENS),
        };
        let at_least_one = [
            ("step_tokens", limits.step_tokens),
            ("max_running", limits.max_running),
            ("max_waiting", limits.max_waiting),
            ("pages_total", limits.context_tokens),
        ];
        if let Some(&(option, _)) = at_least_one.iter().find(|(_, value)| *value == 0) {
            return Err(EngineError::Config { option });
        }
        Ok(Self {
            limits,
            ledger: PageLedger::new(spec.pages_total, config.prefix_cache),
            slots: Slots::new(spec.max_slots),
            requests: BTreeMap::new(),
            sequences: BTreeMap::new(),
            running: Vec::new(),
            waiting: BTreeSet::new(),
            next_sequence: 0,
            plan: StepPlan::default(),
            rows: Vec::new(),
            step_started: Duration::ZERO,
            counters: EngineCounters::default(),
            reports: 0,
        })
    }

    /// The longest sequence this engine can hold.
    pub fn context_tokens(&self) -> usize {
        self.limits.context_tokens
    }

    pub fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Nothing to compute and nothing to tell the backend.
    pub fn is_idle(&self) -> bool {
        !self.has_requests() && !self.slots.any_released()
    }

    /// For when there was nothing to schedule.
    pub fn check_not_stuck(&self) -> Result<(), EngineError> {
        if self.sequences.is_empty() { Ok(()) } else { Err(EngineError::Stuck { waiting: self.sequences.len() }) }
    }

    /// Recounts every page. For tests and for whoever suspects a leak.
    pub fn audit(&self) -> Result<(), Discrepancy> {
        self.ledger.audit(self.sequences.values().filter_map(Sequence::pages), [])
    }

    /// Takes pages and slot back from a sequence that is no longer in any list.
    fn dismantle(&mut self, sequence: Sequence, keep_in_cache: bool) {
        let computed = sequence.computed();
        let (slot, pages) = match sequence.stage {
            Stage::AwaitingPrompt | Stage::Waiting => return,
            Stage::Preempted { slot } => (slot, None),
            Stage::Prefilling { slot, pages, .. } | Stage::Decoding { slot, pages } => (slot, Some(pages)),
        };
        self.slots.release(slot);
        if let Some(pages) = pages {
            if keep_in_cache {
                self.ledger.insert(&sequence.tokens[..computed], &pages);
            }
            self.ledger.release(pages);
        }
    }

    fn remove_sequence(&mut self, id: SequenceId, keep_in_cache: bool) {
        self.waiting.remove(&id);
        self.running.retain(|&running| running != id);
        if let Some(sequence) = self.sequences.remove(&id) {
            self.dismantle(sequence, keep_in_cache);
        }
    }

    fn remove_request(&mut self, key: RequestKey, keep_in_cache: bool) -> Option<ActiveRequest> {
        let request = self.requests.remove(&key)?;
        for &id in &request.sequences {
            self.remove_sequence(id, keep_in_cache);
        }
        Some(request)
    }
}
