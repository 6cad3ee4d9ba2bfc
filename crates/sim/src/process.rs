//! One engine of the fleet: a process that takes inputs at its step boundaries, computes while time passes, and may be
//! stopped, drained or killed at any moment.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use baton_backend::BackendSpec;
use baton_core::{CacheEvent, EngineInfo, EngineReport, Numerics, ServeError};
use baton_engine::{EngineError, Outbox, Scheduler, Stepper};
use baton_protocol::{Heartbeat, SessionId};

use crate::backend::Hardware;
use crate::clock::Clock;
use crate::event::{Event, Input};
use crate::event_log::{Checker, EventLog};
use crate::fabric::Fabric;
use crate::hang_scenario::slow_step;
use crate::ids::ProcessId;
use crate::log_entry::LogEntry;
use crate::memory::Memory;
use crate::model::{LAYERS, VOCAB};
use crate::mutation::Mutation;
use crate::progress::Progress;
use crate::random::Random;
use crate::scenario::{EngineSetup, Scenario};

const NUMERICS_ID: &str = "simulated";

pub(crate) struct Process {
    pub(crate) id: ProcessId,
    clock: Arc<Clock>,
    log: Arc<EventLog>,
    setup: EngineSetup,
    stepper: Stepper,
    hardware: Hardware,
    random: Random,
    inputs: Vec<Input>,
    /// The loop waits for the oldest step.
    collecting: bool,
    /// Steps that are done and were not collected.
    done: usize,
    /// When the last step that was submitted will be done.
    busy_until: Duration,
    /// A boundary is on its way.
    called: bool,
    next_session: u64,
    /// While it is stopped: what would have happened.
    stopped: Option<VecDeque<Event>>,
    frozen: bool,
    /// While its device is stuck: ends of layers and steps that would have come.
    stuck: Option<VecDeque<Event>>,
    pub(crate) progress: Progress,
    pub(crate) report: EngineReport,
}

impl Process {
    pub(crate) fn start(
        id: ProcessId,
        (scenario, mutation): (&Scenario, Option<Mutation>),
        clock: Arc<Clock>,
        log: Arc<EventLog>,
        fabric: &Fabric,
        mut random: Random,
    ) -> Result<Self, EngineError> {
        let setup = scenario.engines[id.engine].clone();
        let memory = Memory::new(id, setup.pages, Arc::clone(&log));
        let failures = scenario.sequence_failures_per_mille;
        let hardware = Hardware::new(
            &setup,
            (scenario.guarantee, mutation),
            memory.clone(),
            Arc::clone(&log),
            random.fork(),
            failures,
        );
        let spec = BackendSpec {
            device: "simulated".to_owned(),
            numerics: Numerics { id: NUMERICS_ID.to_owned(), guarantee: scenario.guarantee },
            vocab_size: VOCAB,
            max_context_tokens: scenario.context_tokens,
            pages_total: setup.pages,
            max_step_tokens: 4096,
            max_slots: setup.slots,
            steps_in_flight: setup.steps_in_flight,
            tokens_per_step: 1,
            batch_buckets: Vec::new(),
            poolings: Vec::new(),
            adapters: Vec::new(),
            threads: 1,
        };
        let scheduler = Scheduler::new(&setup.config, &spec, Box::new(fabric.join(id.engine, id, memory)))?;
        let stepper = Stepper::new(Box::new(hardware.backend(spec)), scheduler);
        log.record(LogEntry::Started(id));
        Ok(Self {
            id,
            clock,
            log,
            setup,
            stepper,
            hardware,
            random,
            inputs: Vec::new(),
            collecting: false,
            done: 0,
            busy_until: Duration::ZERO,
            called: false,
            next_session: 0,
            stopped: None,
            frozen: false,
            stuck: None,
            progress: Progress::default(),
            report: EngineReport::default(),
        })
    }

    pub(crate) fn info(&self, scenario: &Scenario) -> EngineInfo {
        EngineInfo {
            model: "simulated".to_owned(),
            numerics_id: NUMERICS_ID.to_owned(),
            vocab_size: VOCAB as u32,
            max_context_tokens: scenario.context_tokens as u32,
            pages_total: self.setup.pages as u32,
            threads: 1,
            prefix_cache: self.setup.config.prefix_cache,
        }
    }

    pub(crate) fn open_session(&mut self, outbox: Box<dyn Outbox>) -> SessionId {
        let session = SessionId(self.next_session);
        self.next_session += 1;
        self.receive(Input::Open(session, outbox));
        session
    }

    pub(crate) fn receive(&mut self, input: Input) {
        self.inputs.push(input);
        self.call_soon();
    }

    /// Until [`resume`](Self::resume) nothing happens here; what would have is kept.
    pub(crate) fn stop(&mut self) {
        self.stopped.get_or_insert_default();
        self.progress.stops(self.clock.now());
    }

    /// Until [`resume`](Self::resume) no layer ends here, though messages are read and heartbeats sent.
    pub(crate) fn stop_device(&mut self) {
        self.stuck.get_or_insert_default();
        self.progress.stops(self.clock.now());
    }

    pub(crate) fn resume(&mut self) -> VecDeque<Event> {
        let stopped = if self.frozen { None } else { self.stopped.take() };
        let stuck = self.stuck.take();
        self.progress.resumes(self.clock.now(), stuck.is_some());
        let mut kept = stuck.unwrap_or_default();
        kept.extend(stopped.unwrap_or_default());
        kept
    }

    /// Nothing will ever happen here again.
    pub(crate) fn freeze(&mut self) {
        self.stop();
        self.frozen = true;
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Since when it has shown no life, at the latest: an idle one with a stuck device does.
    pub(crate) fn hung_since(&self) -> Option<Duration> {
        let is_hung = self.stopped.is_some() || self.stuck.is_some() && self.stepper.steps_in_flight() > self.done;
        is_hung.then(|| self.progress.since(self.stopped.is_some()))
    }

    pub(crate) fn heartbeat(&mut self, counts_steps: bool) -> Heartbeat {
        let working = self.stepper.steps_in_flight() > 0 || self.called;
        let layers = if counts_steps { 0 } else { self.hardware.progress() };
        self.progress.heartbeat(self.clock.now(), working, layers)
    }

    /// `Some`: it is stopped and has kept the event.
    pub(crate) fn keep(&mut self, event: Event) -> Option<Event> {
        let of_device = matches!(event, Event::Layer(..) | Event::Stepped(_));
        match (&mut self.stopped, &mut self.stuck) {
            (Some(kept), _) => kept.push_back(event),
            (None, Some(kept)) if of_device => kept.push_back(event),
            _ => return Some(event),
        }
        None
    }

    fn call_soon(&mut self) {
        if !self.collecting && !std::mem::replace(&mut self.called, true) {
            let delay = self.random.micros(2, 30);
            self.clock.after(delay, Event::Boundary(self.id));
        }
    }

    /// Returns whether the process has ended.
    pub(crate) fn step_boundary(&mut self) -> bool {
        self.called = false;
        if self.collecting {
            return false;
        }
        let now = self.clock.now();
        self.progress.round(now);
        for input in std::mem::take(&mut self.inputs) {
            self.apply(now, input);
        }
        if let Err(error) = self.begin_steps(now) {
            self.report_violation(&error);
        }
        if self.stepper.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.log.report_violation(Checker::Deadline, format!("{:?} misses a deadline of its own", self.id));
        }
        self.collecting = self.stepper.steps_in_flight() > 0;
        if !self.collecting {
            let next_round = self.emit();
            let deadline = self.stepper.next_deadline().map(|at| at.max(now + Duration::from_millis(1)));
            if let Some(at) = now.checked_add(next_round).into_iter().chain(deadline).min() {
                self.clock.at(at, Event::Boundary(self.id));
            }
        }
        self.collect();
        self.has_ended()
    }

    fn begin_steps(&mut self, now: Duration) -> Result<(), EngineError> {
        while self.stepper.begin_step(now)? {
            self.compute(now);
        }
        Ok(())
    }

    fn apply(&mut self, now: Duration, input: Input) {
        match input {
            Input::Open(session, outbox) => self.stepper.open(session, outbox),
            Input::Command(session, command) => self.stepper.command(now, session, command),
            Input::Close(session) => self.stepper.close(session),
            Input::Landed(reservation, times) => self.stepper.landed(now, reservation, times),
            Input::Revoked(reservation, verified_tokens) => self.stepper.revoked(reservation, verified_tokens),
            Input::Exported(export, outcome) => self.stepper.exported(export, outcome),
            Input::Drain => self.stepper.drain(),
        }
    }

    /// The step that was just submitted begins when the one before it is done.
    fn compute(&mut self, now: Duration) {
        let (segments, tokens) = self.hardware.step_size();
        self.log.record(LogEntry::Step { process: self.id, segments, tokens });
        let begins = self.busy_until.max(now);
        let takes = match self.setup.slow_steps_per_mille {
            rate if tokens > 0 && self.random.per_mille(rate) => {
                self.progress.slow_steps += 1;
                slow_step(&mut self.random)
            }
            _ => self.setup.step + self.setup.token * tokens as u32,
        };
        for layer in 0..LAYERS {
            self.clock.at(begins + takes * (layer + 1) / (LAYERS + 1), Event::Layer(self.id, layer));
        }
        self.busy_until = begins + takes;
        self.clock.at(self.busy_until, Event::Stepped(self.id));
    }

    /// From now on no step takes seconds.
    pub(crate) fn calm(&mut self) {
        self.setup.slow_steps_per_mille = 0;
    }

    /// Returns how many layers have been done so far.
    pub(crate) fn layer_done(&mut self, layer: u32) -> u64 {
        self.progress.moved(self.clock.now());
        self.hardware.finish_layer(layer)
    }

    /// Returns whether the process has ended.
    pub(crate) fn stepped(&mut self) -> bool {
        self.log.record(LogEntry::Stepped(self.id));
        if self.hardware.finish_step() {
            let delay = self.random.micros(1, 3000);
            self.clock.after(delay, Event::WriteLate(self.id));
        }
        self.done += 1;
        self.collect();
        self.has_ended()
    }

    pub(crate) fn write_late(&self) {
        self.hardware.write_late();
    }

    /// The oldest step, if that is what the loop waits for and it is done.
    fn collect(&mut self) {
        if !self.collecting || self.done == 0 {
            return;
        }
        (self.collecting, self.done) = (false, self.done - 1);
        if let Err(error) = self.stepper.end_step(|| self.clock.now()) {
            self.report_violation(&error);
        }
        self.emit();
        self.called = true;
        self.clock.after(Duration::ZERO, Event::Boundary(self.id));
    }

    /// Returns how long to wait at most before the next round.
    fn emit(&mut self) -> Duration {
        self.report = self.stepper.report();
        let next_round = self.stepper.emit(self.clock.now(), self.report.clone());
        if let Err(discrepancy) = self.stepper.audit() {
            self.log.report_violation(Checker::Leak, format!("{:?}: {discrepancy}", self.id));
        }
        next_round
    }

    fn report_violation(&self, error: &EngineError) {
        self.log.report_violation(Checker::Progress, format!("{:?}: {error}", self.id));
    }

    /// It was drained, and is done.
    fn has_ended(&self) -> bool {
        self.stepper.steps_in_flight() == 0 && self.stepper.has_ended()
    }

    /// Fails all requests and releases every page. Replies are sent only over wires that are still open.
    pub(crate) fn release_all(&mut self) {
        self.stepper.fail_all(&ServeError::engine("the engine was stopped"));
        self.emit();
    }

    /// Everything in its prefix cache.
    pub(crate) fn cache_snapshot(&mut self) -> Vec<CacheEvent> {
        self.stepper.cache_snapshot()
    }

    /// What is still held although nothing is to be done.
    pub(crate) fn leftovers(&self) -> Option<String> {
        let load = self.report.load;
        let slots = self.hardware.slots_in_use();
        let busy = [load.running, load.waiting, load.reservations, load.reserved_pages, load.exports, slots as u32];
        let pages = load.pages_free + load.pages_cached == load.pages_total;
        let clean = busy == [0; 6] && load.pending_prefill_tokens == 0 && pages && self.stepper.steps_in_flight() == 0;
        (!clean).then(|| format!("{:?} at rest has {slots} slots in use and {load:?}", self.id))
    }
}
