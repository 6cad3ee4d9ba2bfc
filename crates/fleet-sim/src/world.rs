//! Users, router and engines of one run. Tasks run until all wait; then time moves to the next event.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use baton_protocol::{Engine, OpenRequests};
use baton_router::{DispatchConfig, Dispatcher, Fleet, RetryPolicy, Runtime, strategy};

use crate::client::User;
use crate::clock::{Clock, Due, lock};
use crate::engine::{Connection, SimulatedEngine};
use crate::event::Event;
use crate::executor::Executor;
use crate::fabric::Fabric;
use crate::preset::Preset;
use crate::process::{Process, info};
use crate::record::Records;
use crate::run::{Run, SimulationError};
use crate::workload::Workload;

pub(crate) struct World {
    clock: Arc<Clock>,
    executor: Executor,
    fabric: Fabric,
    processes: Vec<Process>,
    /// The router's ends of the connections to them.
    open: Vec<Arc<OpenRequests>>,
    records: Arc<Mutex<Records>>,
    requests: usize,
}

impl World {
    pub(crate) fn new(run: &Run, preset: &Preset, workload: &Workload) -> Result<Self, SimulationError> {
        let strategy = strategy(&run.strategy, &run.parameters)?;
        let members = run.layout.members();
        if members.is_empty() {
            return Err(SimulationError::NoEngines { layout: run.layout });
        }
        let (clock, executor) = (Arc::<Clock>::default(), Executor::default());
        let fabric = Fabric::new(&clock, preset, members.len());
        let latency = Duration::from_micros(preset.latency_us);
        let (mut processes, mut open, mut engines) = (Vec::new(), Vec::new(), Vec::new());
        for (engine, (name, role)) in members.into_iter().enumerate() {
            let connection = Connection { clock: Arc::clone(&clock), engine, latency };
            let process = Process::new(preset, connection.clone(), &fabric);
            processes.push(process.map_err(|error| SimulationError::Engine { engine, error })?);
            let simulated = SimulatedEngine::new(info(preset), connection);
            open.push(Arc::clone(&simulated.open));
            engines.push((name, role, Arc::new(simulated) as Arc<dyn Engine>));
        }
        let runtime = executor.runtime(&clock);
        let fleet = Arc::new(Fleet::of_ready(engines));
        let config = dispatch_config(workload);
        let dispatcher =
            Arc::new(Dispatcher::with_runtime(fleet, strategy, config, Arc::clone(&runtime) as Arc<dyn Runtime>));
        let records = Arc::<Mutex<Records>>::default();
        for (number, chat) in (0..).zip(&workload.chats) {
            let user = User {
                number,
                chat: chat.clone(),
                think: workload.think,
                seed: workload.seed,
                clock: Arc::clone(&clock),
                dispatcher: Arc::clone(&dispatcher),
                records: Arc::clone(&records),
            };
            runtime.spawn(Box::pin(user.run()));
        }
        Ok(Self { clock, executor, fabric, processes, open, records, requests: workload.requests() })
    }

    /// Until every request has ended. Returns what users have written down, and how often a sequence lost its pages.
    pub(crate) fn run(&mut self) -> Result<(Records, u64), SimulationError> {
        loop {
            self.executor.run();
            let ended = lock(&self.records).requests.len();
            if ended == self.requests {
                break;
            }
            match self.clock.advance() {
                Some(Due::Wake(waker)) => waker.wake(),
                Some(Due::Event(event)) => self.handle(event)?,
                None => return Err(SimulationError::Stuck { open: self.requests - ended }),
            }
        }
        let preemptions = self.processes.iter_mut().map(|process| process.report().counters.preemptions).sum();
        Ok((std::mem::take(&mut *lock(&self.records)), preemptions))
    }

    fn handle(&mut self, event: Event) -> Result<(), SimulationError> {
        let (engine, done) = match event {
            Event::Boundary(engine) => (engine, self.processes[engine].boundary()),
            Event::StepDone(engine) => (engine, self.processes[engine].step_done()),
            Event::Input(engine, input) => {
                self.processes[engine].receive(input);
                return Ok(());
            }
            Event::Reply(engine, reply) => {
                self.open[engine].deliver(*reply);
                return Ok(());
            }
            Event::Arrived(arrival) => {
                self.fabric.arrived(arrival);
                return Ok(());
            }
            Event::Landed { arrival, export, times } => {
                self.fabric.landed(arrival, export, times);
                return Ok(());
            }
        };
        done.map_err(|error| SimulationError::Engine { engine, error })
    }
}

/// However long queues get, no request is refused or given up: latencies show that.
fn dispatch_config(workload: &Workload) -> DispatchConfig {
    let for_ever = Duration::from_secs(86_400);
    let retry =
        RetryPolicy { max_outage: for_ever, max_busy: for_ever, max_silence: for_ever, ..RetryPolicy::default() };
    DispatchConfig { max_in_flight: workload.requests().max(1), retry, seed: workload.seed }
}
