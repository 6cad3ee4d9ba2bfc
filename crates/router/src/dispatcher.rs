//! Where a request enters: it gets its id and a relay that stays with it to the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use baton_core::{Attempt, EngineInfo, GenerateRequest, RequestId, ServeError};
use baton_protocol::TokenStream;
use tokio::sync::{Semaphore, mpsc};

use crate::counters::RouterCounters;
use crate::decision::{Decision, Decisions, RouteHandle};
use crate::engine::EngineStatus;
use crate::fleet::Fleet;
use crate::prompt_pages::PromptPages;
use crate::relay::Relay;
use crate::retry::{Patience, RetryPolicy};
use crate::roster::Past;
use crate::runtime::{Runtime, TokioRuntime};
use crate::strategy::{Strategy, StrategySwitch};
use crate::token_log::TokenLog;

#[derive(Clone, Debug)]
pub struct DispatchConfig {
    /// Requests that may be open at once; further ones are refused with a time to retry after.
    pub max_in_flight: usize,
    pub retry: RetryPolicy,
    /// Of the jitter in back-offs.
    pub seed: u64,
}

impl Default for DispatchConfig {
    fn default() -> Self {
        Self { max_in_flight: 4096, retry: RetryPolicy::default(), seed: 0 }
    }
}

pub struct Dispatcher {
    fleet: Arc<Fleet>,
    strategy: Arc<StrategySwitch>,
    runtime: Arc<dyn Runtime>,
    config: DispatchConfig,
    decisions: Arc<Decisions>,
    next_request: AtomicU64,
    in_flight: Arc<Semaphore>,
}

impl Dispatcher {
    pub fn new(fleet: Arc<Fleet>, strategy: Arc<dyn Strategy>, config: DispatchConfig) -> Self {
        Self::with_runtime(fleet, strategy, config, Arc::new(TokioRuntime::default()))
    }

    pub fn with_runtime(
        fleet: Arc<Fleet>,
        strategy: Arc<dyn Strategy>,
        config: DispatchConfig,
        runtime: Arc<dyn Runtime>,
    ) -> Self {
        let in_flight = Arc::new(Semaphore::new(config.max_in_flight));
        let strategy = Arc::new(StrategySwitch::new(strategy));
        let decisions = Arc::default();
        Self { fleet, strategy, runtime, config, decisions, next_request: AtomicU64::new(1), in_flight }
    }

    /// The request's id and attempt are set here; whatever they were is ignored. Dropping the stream aborts it.
    pub async fn generate(&self, request: GenerateRequest) -> Result<TokenStream, ServeError> {
        Ok(self.dispatch(request).await?.0)
    }

    /// The same, with a handle that shows how the request is routed.
    pub async fn dispatch(&self, request: GenerateRequest) -> Result<(TokenStream, RouteHandle), ServeError> {
        let Ok(permit) = Arc::clone(&self.in_flight).try_acquire_owned() else {
            let message = format!("{} requests are open already", self.config.max_in_flight);
            return Err(ServeError::busy(message, 1000));
        };
        let id = RequestId(self.next_request.fetch_add(1, Ordering::Relaxed));
        let request = GenerateRequest { id, attempt: Attempt(0), ..request };
        let (client, events) = mpsc::unbounded_channel();
        let (end_choice, unwanted) = mpsc::unbounded_channel();
        let route = RouteHandle::default();
        let relay = Relay {
            prompt: Arc::new(PromptPages::of(&request)),
            log: TokenLog::of(&request),
            patience: Patience::new(self.config.retry.clone(), self.config.seed ^ id.0),
            request,
            fleet: Arc::clone(&self.fleet),
            strategy: Arc::clone(&self.strategy),
            runtime: Arc::clone(&self.runtime),
            client,
            unwanted,
            prompt_sent: false,
            past: Past::default(),
            decisions: Arc::clone(&self.decisions),
            route: route.clone(),
        };
        self.runtime.spawn(Box::pin(async move {
            relay.run().await;
            drop(permit);
        }));
        // The relay notices by itself when the client is gone.
        let stream = TokenStream::new(id, events, |_| {});
        let stream = stream.with_end_choice(move |choice| {
            // A relay that has ended wants nothing more of any choice.
            let _ = end_choice.send(choice);
        });
        Ok((stream, route))
    }

    /// Attempts that begin from now on are routed by this strategy; those under way go on as they began.
    pub fn set_strategy(&self, strategy: Arc<dyn Strategy>) {
        self.strategy.replace(strategy);
    }

    pub fn strategy(&self) -> Arc<dyn Strategy> {
        self.strategy.current()
    }

    /// The newest decisions, oldest first.
    pub fn decisions(&self) -> Vec<Arc<Decision>> {
        self.decisions.newest()
    }

    pub fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    /// A request that arrived now would be served.
    pub fn is_ready(&self) -> bool {
        self.fleet.is_ready()
    }

    pub fn fleet_status(&self) -> Vec<EngineStatus> {
        self.fleet.status()
    }

    /// Of any engine that has ever been ready: all serve the same model.
    pub fn engine_info(&self) -> Option<EngineInfo> {
        self.fleet.status().into_iter().find_map(|engine| engine.info)
    }

    pub fn counters(&self) -> RouterCounters {
        self.fleet.totals()
    }

    /// Attempts that continued a request after its engine failed, vanished or had no room.
    pub fn resumed_total(&self) -> u64 {
        self.counters().resumed.total()
    }

    pub fn requests_in_flight(&self) -> usize {
        self.config.max_in_flight - self.in_flight.available_permits()
    }
}
