//! Engines, router and gateway in this process's charge.

use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use baton_cli::{Deployment as Deployed, Failure};
use baton_gateway::Membership;
use baton_launcher::{Endpoint, Screen, Shutdown, Stage, Stop};
use baton_router::{Dispatcher, EngineId, EngineStatus, Fleet, NotThere, Parameters, Strategy};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use pyo3::exceptions::{PyKeyError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::error::{exception, not_deployed};
use crate::event_loop::EventLoop;
use crate::interrupt::{runtime, wait_for};
use crate::strategy::PythonStrategy;
use crate::tokenizer::Tokenizer;

/// What `baton serve` with these arguments makes, stage by stage.
#[pyclass(frozen)]
pub(crate) struct Deployment {
    stage: Mutex<Progress>,
    stop: Stop,
    stopped: AtomicBool,
    dispatcher: Arc<Dispatcher>,
    /// The strategy that the arguments name.
    built_in: Arc<dyn Strategy>,
    tokenizer: Tokenizer,
    secret: String,
    fleet: Arc<Fleet>,
    membership: Arc<dyn Membership>,
}

enum Progress {
    Prepared(Box<Deployed>),
    /// A call is busy with it.
    Taken,
    Running(Arc<End>),
    Ended,
}

/// Set once, when nothing is left running.
#[derive(Default)]
struct End {
    result: Mutex<Option<Result<(), Arc<Failure>>>>,
    reached: Condvar,
}

/// An engine: its id, name and role, its address if it was not started here, and whether it is ready.
type EngineRow = (usize, String, &'static str, Option<String>, bool);

#[pymethods]
impl Deployment {
    /// Finds the model and decides sizes. Nothing is started yet.
    #[new]
    fn new(py: Python<'_>, arguments: Vec<OsString>) -> PyResult<Self> {
        let screen = Screen::stderr();
        baton_cli::start_logging(&screen).map_err(|failure| not_deployed(&failure))?;
        let (stop, shutdown) = Shutdown::by_hand();
        let deployed = wait_for(py, baton_cli::prepare(arguments, shutdown, screen))?;
        let deployed = deployed.map_err(|failure| not_deployed(&failure))?;
        let dispatcher = Arc::clone(deployed.dispatcher());
        Ok(Self {
            stop,
            stopped: AtomicBool::new(false),
            fleet: Arc::clone(deployed.fleet()),
            membership: deployed.membership(),
            built_in: dispatcher.strategy(),
            dispatcher,
            tokenizer: Tokenizer(Arc::clone(deployed.tokenizer())),
            secret: deployed.secret().reveal().to_owned(),
            stage: Mutex::new(Progress::Prepared(Box::new(deployed))),
        })
    }

    /// Starts all engines, and returns when each has generated a token. `False` when it was stopped before.
    fn launch(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |deployed| deployed.launch().boxed())
    }

    /// Answers clients from now on, and returns where.
    #[pyo3(signature = (host=None, port=None))]
    fn listen(&self, py: Python<'_>, host: Option<String>, port: Option<u16>) -> PyResult<(String, u16)> {
        let at = match (host, port) {
            (Some(host), Some(port)) => Some(endpoint(&host, port)?),
            _ => None,
        };
        let address = self.with(py, |deployed| match at {
            Some(endpoint) => deployed.listen_at(endpoint).boxed(),
            None => deployed.listen().boxed(),
        })?;
        Ok((address.ip().to_string(), address.port()))
    }

    /// Serves until it is stopped.
    fn run(&self) -> PyResult<()> {
        let deployed = self.take()?;
        let end = Arc::new(End::default());
        let reached = Arc::clone(&end);
        *self.lock() = Progress::Running(end);
        runtime()?.spawn(async move { reached.set(deployed.until_stopped().await) });
        Ok(())
    }

    /// Waits for the end, no longer than `timeout` seconds; `True` when all has ended.
    fn wait(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        let timeout = Duration::try_from_secs_f64(timeout).unwrap_or_default();
        let end = match &*self.lock() {
            Progress::Running(end) => Some(Arc::clone(end)),
            Progress::Ended => return Ok(true),
            Progress::Prepared(_) | Progress::Taken => None,
        };
        let Some(end) = end else {
            py.detach(|| thread::sleep(timeout));
            return Ok(matches!(&*self.lock(), Progress::Ended));
        };
        match py.detach(|| end.wait(timeout)) {
            None => Ok(false),
            Some(Ok(())) => Ok(true),
            Some(Err(failure)) => Err(not_deployed(&failure)),
        }
    }

    /// Takes no more requests and ends when the open ones have been served, or `at_once`. Does not wait for the end.
    #[pyo3(signature = (at_once=false))]
    fn stop(&self, at_once: bool) {
        self.stopped.store(true, Ordering::Relaxed);
        self.stop.reach(if at_once { Stage::Stopping } else { Stage::Draining });
        // One that does not run yet is dropped, and its engines with it.
        let mut stage = self.lock();
        let dropped = match &*stage {
            Progress::Prepared(_) => Some(std::mem::replace(&mut *stage, Progress::Ended)),
            _ => None,
        };
        drop(stage);
        drop(dropped);
    }

    /// Requests that begin from now on are given to `begin`, as attempts, on the thread of the loop.
    fn route_with(&self, name: String, event_loop: &EventLoop, begin: Py<PyAny>) {
        let strategy = PythonStrategy { name, router_loop: event_loop.share(), begin: Arc::new(begin) };
        self.dispatcher.set_strategy(Arc::new(strategy));
    }

    /// Requests that begin from now on are routed by the strategy that the arguments name.
    fn route_as_prepared(&self) {
        self.dispatcher.set_strategy(Arc::clone(&self.built_in));
    }

    /// Requests that begin from now on are routed by a strategy in the box.
    fn route_by(&self, name: &str, parameters: Parameters) -> PyResult<()> {
        let chosen =
            baton_router::strategy(name, &parameters).map_err(|wrong| PyValueError::new_err(wrong.to_string()))?;
        self.dispatcher.set_strategy(chosen);
        Ok(())
    }

    /// What an engine gets from now on; what it has it finishes.
    fn set_role(&self, engine: &str, role: &str) -> PyResult<()> {
        let role = role.parse().map_err(PyValueError::new_err::<String>)?;
        self.fleet.set_role(self.engine(engine)?, role).map_err(|NotThere| not_there(engine))
    }

    /// An engine that runs already joins, and its name is returned when it can be sent requests.
    fn add(&self, py: Python<'_>, address: String, role: &str) -> PyResult<String> {
        let role = role.parse().map_err(PyValueError::new_err::<String>)?;
        let joined = wait_for(py, self.membership.join(address, role))?.map_err(exception)?;
        Ok(self.fleet.name(joined))
    }

    /// An engine gets no more requests, and leaves when those it has have ended.
    fn remove(&self, engine: &str) -> PyResult<()> {
        self.membership.leave(self.engine(engine)?).map_err(exception)
    }

    /// The name of the strategy in use.
    #[getter]
    fn strategy(&self) -> String {
        self.dispatcher.strategy().name().to_owned()
    }

    #[getter]
    fn engines(&self) -> Vec<EngineRow> {
        let row = |engine: EngineStatus| {
            let (ready, address) = (engine.is_ready(), self.membership.address(engine.id));
            (engine.id.0, engine.name, engine.role.name(), address, ready)
        };
        self.dispatcher.fleet_status().into_iter().map(row).collect()
    }

    #[getter]
    fn requests_in_flight(&self) -> usize {
        self.dispatcher.requests_in_flight()
    }

    #[getter]
    fn tokenizer(&self) -> Tokenizer {
        self.tokenizer.clone()
    }

    /// What engines want to see before they obey.
    #[getter]
    fn secret(&self) -> &str {
        &self.secret
    }
}

impl Deployment {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn engine(&self, name: &str) -> PyResult<EngineId> {
        self.fleet.id(name).ok_or_else(|| not_there(name))
    }

    /// Lends it to a call. It has ended where that fails, or where it was stopped meanwhile.
    fn with<T: Send + 'static>(
        &self,
        py: Python<'_>,
        call: impl for<'a> FnOnce(&'a mut Deployed) -> BoxFuture<'a, Result<T, Failure>> + Send + 'static,
    ) -> PyResult<T> {
        let mut deployed = self.take()?;
        let called = wait_for(py, async move { (call(&mut deployed).await, deployed) });
        let (result, stage) = match called {
            Ok((Ok(value), deployed)) if !self.stopped.load(Ordering::Relaxed) => {
                (Ok(value), Progress::Prepared(deployed))
            }
            Ok((Ok(value), _)) => (Ok(value), Progress::Ended),
            Ok((Err(failure), _)) => (Err(not_deployed(&failure)), Progress::Ended),
            Err(interrupted) => (Err(interrupted), Progress::Ended),
        };
        *self.lock() = stage;
        result
    }

    fn take(&self) -> PyResult<Box<Deployed>> {
        let mut stage = self.lock();
        match std::mem::replace(&mut *stage, Progress::Taken) {
            Progress::Prepared(deployed) => Ok(deployed),
            other => {
                *stage = other;
                Err(PyRuntimeError::new_err("the deployment runs already, is being started, or has ended"))
            }
        }
    }
}

impl End {
    fn set(&self, result: Result<(), Failure>) {
        *self.lock() = Some(result.map_err(Arc::new));
        self.reached.notify_all();
    }

    fn wait(&self, timeout: Duration) -> Option<Result<(), Arc<Failure>>> {
        let waited = self.reached.wait_timeout_while(self.lock(), timeout, |result| result.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Result<(), Arc<Failure>>>> {
        self.result.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_there(engine: &str) -> PyErr {
    PyKeyError::new_err(format!("there is no engine {engine:?}"))
}

fn endpoint(host: &str, port: u16) -> PyResult<Endpoint> {
    Ok(Endpoint { host: host.parse().map_err(PyValueError::new_err::<String>)?, port })
}
