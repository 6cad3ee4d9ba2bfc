//! Decides what each step computes. Commands come in, a plan goes out, its results come in, events go out; nothing here
//! waits, reads a clock or touches a byte of KV. Reads in that order: [`intake`], [`plan`], [`complete`]; hand-offs are
//! [`receive`] and [`export`].

mod admit;
mod complete;
mod cost_fit;
mod deadlines;
mod export;
mod intake;
mod limits;
mod plan;
mod receive;
mod report;
mod slots;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use baton_backend::{BackendSpec, SlotId, StepPlan};
use baton_core::{EngineCounters, EngineEvent, ReservationId};
use baton_kv::{Discrepancy, PageLedger, StepNumber};
use baton_protocol::SessionId;

use crate::config::EngineConfig;
use crate::error::EngineError;
use crate::handoff::{HandOff, PageOffer};
use crate::masks::MaskMaker;
use crate::request::ActiveRequest;
use crate::sequence::{Phase, RequestKey, Run, Sequence, SequenceId, Stage};
use cost_fit::CostFit;
pub(crate) use export::PromptExport;
use limits::StepLimits;
use receive::Reserved;
use slots::Slots;

/// As many steps may be in flight as the backend takes: [`schedule`](Self::schedule) plans one more, with "the token that a
/// step in flight will sample" where it is not known yet, and [`complete`](Self::complete) takes the results of the oldest.
/// Commands may be applied between any two of these calls.
pub struct Scheduler {
    limits: StepLimits,
    ledger: PageLedger,
    slots: Slots,
    handoff: Box<dyn HandOff>,
    masks: Option<Box<dyn MaskMaker>>,
    requests: BTreeMap<RequestKey, ActiveRequest>,
    sequences: BTreeMap<SequenceId, Sequence>,
    /// Hold pages; oldest first.
    running: Vec<SequenceId>,
    /// Could be admitted now, oldest first.
    waiting: BTreeSet<SequenceId>,
    /// Since when nothing runs and what waits has too few pages, because reservations hold them.
    starving: Option<Duration>,
    reservations: BTreeMap<ReservationId, Reserved>,
    next_sequence: u64,
    next_reservation: u64,
    next_export: u64,
    /// Planned so far, of those with rows.
    computing_steps: u64,
    plan: StepPlan,
    /// One per segment of the plan.
    rows: Vec<Row>,
    /// Pages that become final with the plan.
    offers: Vec<PageOffer>,
    /// Planned and not completed, oldest first.
    in_flight: VecDeque<StepInFlight>,
    last_planned: StepNumber,
    /// A sequence has to give its pages up, but only when no step is in flight.
    draining: bool,
    /// When the last plan was made.
    planned_at: Duration,
    /// When the last step was completed.
    completed_at: Duration,
    counters: EngineCounters,
    /// What steps take.
    costs: CostFit,
    reports: u64,
}

struct StepInFlight {
    number: StepNumber,
    planned_at: Duration,
    rows: Vec<Row>,
}

/// What a step does for a sequence. One that has ended meanwhile wants nothing of it any more.
struct Row {
    sequence: SequenceId,
    slot: SlotId,
    tokens: usize,
    phase: Phase,
    /// Tokens that it may sample.
    samples: usize,
    /// It ends a prompt whose hidden states are pooled.
    pools: bool,
}

/// An event, and the session it is for.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionEvent {
    pub session: SessionId,
    pub event: EngineEvent,
}

impl Scheduler {
    pub fn new(config: &EngineConfig, spec: &BackendSpec, handoff: Box<dyn HandOff>) -> Result<Self, EngineError> {
        Ok(Self {
            limits: StepLimits::new(config, spec)?,
            ledger: PageLedger::new(spec.pages_total, config.prefix_cache.then_some(spec.numerics.guarantee)),
            slots: Slots::new(spec.max_slots),
            handoff,
            masks: None,
            requests: BTreeMap::new(),
            sequences: BTreeMap::new(),
            running: Vec::new(),
            waiting: BTreeSet::new(),
            starving: None,
            reservations: BTreeMap::new(),
            next_sequence: 0,
            next_reservation: 0,
            next_export: 0,
            computing_steps: 0,
            plan: StepPlan::default(),
            rows: Vec::new(),
            offers: Vec::new(),
            in_flight: VecDeque::new(),
            last_planned: StepNumber::default(),
            draining: false,
            planned_at: Duration::ZERO,
            completed_at: Duration::ZERO,
            counters: EngineCounters::default(),
            costs: CostFit::default(),
            reports: 0,
        })
    }

    #[must_use]
    pub fn with_masks(self, masks: Option<Box<dyn MaskMaker>>) -> Self {
        Self { masks, ..self }
    }

    /// The longest sequence this engine can hold.
    pub fn context_tokens(&self) -> usize {
        self.limits.context_tokens
    }

    pub fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Nothing to compute, nothing under way and nothing to release in the backend.
    pub fn is_idle(&self) -> bool {
        !self.has_requests() && self.in_flight.is_empty() && !self.slots.any_released()
    }

    pub fn steps_in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// No sequence holds pages, and none has left any to a step in flight.
    fn nothing_runs(&self) -> bool {
        self.running.is_empty() && self.in_flight.is_empty()
    }

    /// For when there was nothing to schedule: sequences may wait only for steps, and for what other engines hold up.
    pub fn check_not_stuck(&self) -> Result<(), EngineError> {
        let delivering = |sequence: &Sequence| matches!(sequence.stage, Stage::Delivering { .. });
        let held_up =
            !self.in_flight.is_empty() || self.ledger.reservations() > 0 || self.sequences.values().any(delivering);
        if self.sequences.is_empty() || held_up {
            return Ok(());
        }
        Err(EngineError::Stuck { waiting: self.sequences.len() })
    }

    /// Recounts every page. For tests and for finding leaks.
    pub fn audit(&self) -> Result<(), Discrepancy> {
        let tables = self.sequences.values().filter_map(Sequence::pages);
        self.ledger.audit(tables, self.sequences.values().filter_map(Sequence::received))
    }

    /// Takes pages and slot back from a sequence that is no longer in any list.
    fn dismantle(&mut self, sequence: Sequence, keep_in_cache: bool) {
        let computed = sequence.computed();
        let tokens = &sequence.tokens;
        let keep = |computed: usize| if keep_in_cache { &tokens[..computed] } else { &[] };
        let (slot, pages) = match sequence.stage {
            Stage::AwaitingPrompt | Stage::Waiting | Stage::Revoking { .. } => return,
            Stage::Landing { pages, .. } => {
                drop(pages);
                return self.revoke_dropped();
            }
            Stage::Received { pages, .. } => (None, Some(pages.into_table())),
            Stage::Preempted { slot } => (Some(slot), None),
            Stage::Running(Run { slot, pages, .. }) => (Some(slot), Some(pages)),
            Stage::Delivering { pages } => (None, Some(pages)),
        };
        if let Some(slot) = slot {
            self.slots.release(slot);
        }
        if let Some(pages) = pages {
            self.ledger.insert(keep(computed), &pages);
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
        if let Some(export) = &request.export {
            // Before its pages can be reused.
            self.handoff.close_export(export.id);
        }
        for &id in &request.sequences {
            self.remove_sequence(id, keep_in_cache);
        }
        Some(request)
    }
}
