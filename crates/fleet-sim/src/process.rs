//! One engine of the fleet: the real engine core, which takes what has arrived at its step boundaries and computes while
//! virtual time passes.

use std::sync::Arc;
use std::time::Duration;

use baton_core::{EngineInfo, EngineReport, PAGE_TOKENS};
use baton_engine::{EngineConfig, EngineError, Scheduler, Stepper};
use baton_protocol::SessionId;

use crate::backend::{ModelledBackend, NUMERICS_ID, NewestStep, VOCABULARY};
use crate::clock::{Clock, lock};
use crate::cost::CostModel;
use crate::engine::Connection;
use crate::event::{EngineIndex, Event, Input};
use crate::fabric::Fabric;
use crate::preset::Preset;

/// The router's.
const SESSION: SessionId = SessionId(0);

pub(crate) struct Process {
    engine: EngineIndex,
    clock: Arc<Clock>,
    stepper: Stepper,
    cost: CostModel,
    newest_step: NewestStep,
    fabric: Fabric,
    inputs: Vec<Input>,
    computing: bool,
    /// When it looks at its inputs next, unless a step is computed.
    wakes_at: Option<Duration>,
}

impl Process {
    pub(crate) fn new(preset: &Preset, connection: Connection, fabric: &Fabric) -> Result<Self, EngineError> {
        let (engine, clock) = (connection.engine, Arc::clone(&connection.clock));
        let newest_step = NewestStep::default();
        let backend = ModelledBackend::new(preset, Arc::clone(&newest_step));
        let config = EngineConfig {
            model: preset.name.to_owned(),
            step_tokens: preset.step_tokens,
            max_running: preset.max_running,
            // However long the queue gets, no request fails: that is what latencies are to show.
            max_waiting: usize::MAX,
            ..EngineConfig::default()
        };
        let scheduler = Scheduler::new(&config, baton_backend::Backend::spec(&backend), Box::new(fabric.port(engine)))?;
        let mut stepper = Stepper::new(Box::new(backend), scheduler);
        stepper.open(SESSION, Box::new(connection));
        Ok(Self {
            engine,
            clock,
            stepper,
            cost: preset.cost,
            newest_step,
            fabric: fabric.clone(),
            inputs: Vec::new(),
            computing: false,
            wakes_at: None,
        })
    }

    pub(crate) fn receive(&mut self, input: Input) {
        self.inputs.push(input);
        self.wake_at(self.clock.now());
    }

    pub(crate) fn boundary(&mut self) -> Result<(), EngineError> {
        let now = self.clock.now();
        if self.computing || self.wakes_at != Some(now) {
            return Ok(());
        }
        self.wakes_at = None;
        for input in std::mem::take(&mut self.inputs) {
            self.apply(now, input);
        }
        while self.stepper.begin_step(now)? {
            let size = *lock(&self.newest_step);
            if !size.is_empty() {
                let takes = self.cost.step(&size);
                self.fabric.step_begins(self.engine, takes);
                self.computing = true;
                self.clock.after(takes, Event::StepDone(self.engine));
                return Ok(());
            }
            // It only releases slots.
            self.stepper.end_step(|| now)?;
        }
        let next_round = now.checked_add(self.emit(now));
        let deadline = self.stepper.next_deadline().map(|at| at.max(now + Duration::from_millis(1)));
        if let Some(at) = next_round.into_iter().chain(deadline).min() {
            self.wake_at(at);
        }
        Ok(())
    }

    pub(crate) fn step_done(&mut self) -> Result<(), EngineError> {
        let now = self.clock.now();
        self.computing = false;
        self.stepper.end_step(|| now)?;
        self.emit(now);
        self.wakes_at = Some(now);
        self.boundary()
    }

    fn apply(&mut self, now: Duration, input: Input) {
        match input {
            Input::Command(command, arrived) => {
                let request = command.opens().map(|(request, _)| request);
                self.stepper.command(now, SESSION, command);
                if let Some(request) = request {
                    self.stepper.arrived(SESSION, request, arrived);
                }
            }
            Input::Landed(reservation, times) => self.stepper.landed(now, reservation, times),
            Input::Exported(export, outcome) => self.stepper.exported(export, outcome),
        }
    }

    fn wake_at(&mut self, at: Duration) {
        if !self.computing && self.wakes_at.is_none_or(|before| at < before) {
            self.wakes_at = Some(at);
            self.clock.at(at, Event::Boundary(self.engine));
        }
    }

    /// Returns how long to wait at most before the next round.
    fn emit(&mut self, now: Duration) -> Duration {
        let report = self.stepper.report();
        self.stepper.emit(now, report)
    }

    pub(crate) fn report(&mut self) -> EngineReport {
        self.stepper.report()
    }
}

pub(crate) fn info(preset: &Preset) -> EngineInfo {
    EngineInfo {
        model: preset.name.to_owned(),
        numerics_id: NUMERICS_ID.to_owned(),
        vocab_size: VOCABULARY,
        max_context_tokens: preset.context_tokens as u32,
        pages_total: (preset.kv_tokens / PAGE_TOKENS) as u32,
        threads: 1,
        prefix_cache: true,
    }
}
