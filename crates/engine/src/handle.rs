//! How the rest of the process reaches the step loop.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use baton_backend::Backend;
use baton_core::{EngineInfo, EngineReport, ServeError};
use baton_fabric::LayerCounter;
use baton_kv::Discrepancy;
use baton_protocol::{Command, Heartbeat, SessionHost, SessionId, StepReply};
use tokio::sync::{mpsc, oneshot, watch};

use crate::config::EngineConfig;
use crate::error::EngineError;
use crate::fabric::{Fabric, FabricHandOff};
use crate::handoff::{HandOff, NoHandOff};
use crate::heartbeat::ProgressWatch;
use crate::inbox::{Inbox, Message, Refused};
use crate::masks::MaskMaker;
use crate::outbox::Outbox;
use crate::scheduler::Scheduler;
use crate::step_loop::StepLoop;
use crate::stepper::Stepper;

/// How long to wait before trying again when the queue in front of the loop is full: it is emptied at every step.
const QUEUE_FULL_RETRY_MS: u32 = 500;

/// A running engine. Clones are the same engine; it stops when the last one is dropped.
#[derive(Clone)]
pub struct EngineHandle(Arc<Shared>);

struct Shared {
    info: EngineInfo,
    inbox: Arc<Inbox>,
    report: watch::Receiver<EngineReport>,
    ended: watch::Receiver<Option<EngineEnd>>,
    next_session: AtomicU64,
    started: Instant,
    layers_done: LayerCounter,
    progress: Mutex<ProgressWatch>,
}

type EngineEnd = Result<(), EngineError>;

impl EngineHandle {
    /// Without a fabric the engine serves by itself, and refuses `prep_recv` and `remote_send`.
    pub fn spawn(backend: Box<dyn Backend>, config: EngineConfig, fabric: Option<Fabric>) -> Result<Self, EngineError> {
        Self::spawn_with_masks(backend, config, fabric, None)
    }

    /// An engine whose sampling may be bound by masks.
    pub fn spawn_with_masks(
        backend: Box<dyn Backend>,
        config: EngineConfig,
        fabric: Option<Fabric>,
        masks: Option<Box<dyn MaskMaker>>,
    ) -> Result<Self, EngineError> {
        let (inbox, started) = (Arc::new(Inbox::default()), Instant::now());
        let handoff = match fabric {
            Some(fabric) => start_fabric(fabric, &*backend, &inbox, started)?,
            None => Box::new(NoHandOff),
        };
        let scheduler = Scheduler::new(&config, backend.spec(), handoff)?.with_masks(masks);
        let info = info(&*backend, &scheduler, config);
        let (report, report_reader) = watch::channel(EngineReport::default());
        let (ended, ended_reader) = watch::channel(None);
        let layers_done = backend.layers_done();
        let stepper = Stepper::new(backend, scheduler);
        let step_loop = StepLoop { stepper, started, inbox: Arc::clone(&inbox), report };
        let end = AnnounceEnd { inbox: Arc::clone(&inbox), ended, how: Err(EngineError::Panicked) };
        thread::Builder::new()
            .name("steps".to_owned())
            .spawn(move || {
                let mut end = end;
                end.how = step_loop.run();
            })
            .map_err(|error| EngineError::Thread(Arc::new(error)))?;
        Ok(Self(Arc::new(Shared {
            info,
            inbox,
            report: report_reader,
            ended: ended_reader,
            next_session: AtomicU64::new(0),
            started,
            layers_done,
            progress: Mutex::default(),
        })))
    }

    pub fn info(&self) -> &EngineInfo {
        &self.0.info
    }

    /// As of the last step.
    pub fn report(&self) -> EngineReport {
        self.0.report.borrow().clone()
    }

    /// To be called at every [`HEARTBEAT_INTERVAL`](baton_protocol::HEARTBEAT_INTERVAL). Does not wait for the step loop.
    pub fn heartbeat(&self) -> Heartbeat {
        let (working, turns) = self.0.inbox.reader();
        let progress = self.0.layers_done.progress().wrapping_add(turns);
        let mut watch = self.0.progress.lock().unwrap_or_else(PoisonError::into_inner);
        watch.look(self.0.started.elapsed(), working, progress)
    }

    pub fn is_alive(&self) -> bool {
        self.0.ended.borrow().is_none()
    }

    /// Replies to the new session's commands go to `outbox`, which is dropped when the session is closed or the engine ends.
    pub fn open_session(&self, outbox: impl Outbox + 'static) -> SessionId {
        let session = SessionId(self.0.next_session.fetch_add(1, Ordering::Relaxed));
        // When the engine has ended the outbox is dropped here and now, which reports the same.
        let _ = self.0.inbox.push(Message::Open(session, Box::new(outbox)));
        session
    }

    /// Queues a command for the next step boundary. An error means that it will not be looked at.
    pub fn send(&self, session: SessionId, command: Command) -> Result<(), ServeError> {
        self.0.inbox.push(Message::Command(session, command, Instant::now())).map_err(|refused| match refused {
            Refused::Full => ServeError::busy("too many commands wait for the next step", QUEUE_FULL_RETRY_MS),
            Refused::Ended => ServeError::engine("the engine has ended"),
        })
    }

    /// Aborts all its requests.
    pub fn close_session(&self, session: SessionId) {
        let _ = self.0.inbox.push(Message::Close(session));
    }

    /// Recounts every page at the next step boundary. `Err` when the engine has ended.
    pub async fn audit(&self) -> Result<Result<(), Discrepancy>, ServeError> {
        let (answer, audited) = oneshot::channel();
        let _ = self.0.inbox.push(Message::Audit(answer));
        audited.await.map_err(|_| ServeError::engine("the engine has ended"))
    }

    /// Finishes what it has, refuses what is new, then ends.
    pub fn drain(&self) {
        let _ = self.0.inbox.push(Message::Drain);
    }

    /// Ends after the running step; requests fail and can be continued elsewhere.
    pub fn stop(&self) {
        let _ = self.0.inbox.push(Message::Stop);
    }

    /// Waits for the end; an error is why the process should exit with one.
    pub async fn ended(&self) -> Result<(), EngineError> {
        let mut ended = self.0.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(end) => end.clone().unwrap_or(Err(EngineError::Panicked)),
            Err(_) => Err(EngineError::Panicked),
        }
    }
}

impl SessionHost for EngineHandle {
    fn info(&self) -> EngineInfo {
        self.0.info.clone()
    }

    fn open(&self, outbox: mpsc::UnboundedSender<StepReply>) -> SessionId {
        self.open_session(outbox)
    }

    fn send(&self, session: SessionId, command: Command) -> Result<(), ServeError> {
        Self::send(self, session, command)
    }

    fn heartbeat(&self) -> Heartbeat {
        Self::heartbeat(self)
    }

    fn close(&self, session: SessionId) {
        self.close_session(session);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = self.inbox.push(Message::Stop);
    }
}

/// Reports that the loop has ended, also when it panicked.
struct AnnounceEnd {
    inbox: Arc<Inbox>,
    ended: watch::Sender<Option<EngineEnd>>,
    how: EngineEnd,
}

impl Drop for AnnounceEnd {
    fn drop(&mut self) {
        self.inbox.end();
        self.ended.send_replace(Some(self.how.clone()));
    }
}

fn start_fabric(
    fabric: Fabric,
    backend: &dyn Backend,
    inbox: &Arc<Inbox>,
    started: Instant,
) -> Result<Box<dyn HandOff>, EngineError> {
    let memory =
        backend.kv_memory().ok_or_else(|| EngineError::Fabric("the backend's KV cannot be shared".to_owned()))?;
    let numerics_id = &backend.spec().numerics.id;
    let handoff = FabricHandOff::start(fabric, &memory, backend.layers_done(), numerics_id, inbox, started);
    handoff.map(|handoff| Box::new(handoff) as _).map_err(|error| EngineError::Fabric(error.to_string()))
}

fn info(backend: &dyn Backend, scheduler: &Scheduler, config: EngineConfig) -> EngineInfo {
    let spec = backend.spec();
    EngineInfo {
        model: config.model,
        numerics_id: spec.numerics.id.clone(),
        vocab_size: spec.vocab_size as u32,
        max_context_tokens: scheduler.context_tokens() as u32,
        pages_total: spec.pages_total as u32,
        threads: spec.threads as u32,
        prefix_cache: config.prefix_cache,
    }
}
