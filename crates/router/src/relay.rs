//! One request on its way: attempt after attempt, until every choice has ended or patience has.

use std::sync::Arc;
use std::time::Duration;

use baton_core::{Choice, EngineEvent, FailedEvent, GenerateRequest, PromptEvent, ServeError, TokenEvent};
use tokio::sync::mpsc;

use crate::decision::{Decision, Decisions, RouteHandle};
use crate::fleet::Fleet;
use crate::leg::Leg;
use crate::prompt_pages::PromptPages;
use crate::retry::Patience;
use crate::roster::{Past, Roster};
use crate::runtime::Runtime;
use crate::strategy::{Strategy, StrategySwitch};
use crate::token_log::{TokenLog, Verdict};
use crate::watchdog::Watchdog;

pub(crate) struct Relay {
    /// As the client made it; each attempt is this plus the log.
    pub(crate) request: GenerateRequest,
    pub(crate) prompt: Arc<PromptPages>,
    pub(crate) log: TokenLog,
    pub(crate) patience: Patience,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) strategy: Arc<StrategySwitch>,
    pub(crate) runtime: Arc<dyn Runtime>,
    /// Never holds more than the request may generate: `choices × max_tokens` events.
    pub(crate) client: mpsc::UnboundedSender<EngineEvent>,
    /// Choices that the client has enough of; each comes once.
    pub(crate) unwanted: mpsc::UnboundedReceiver<Choice>,
    pub(crate) prompt_sent: bool,
    pub(crate) past: Past,
    pub(crate) decisions: Arc<Decisions>,
    pub(crate) route: RouteHandle,
}

enum Next {
    Unwanted(Choice),
    Event(Option<EngineEvent>),
    Timeout,
}

/// Why an attempt did not serve the request to its end.
struct Ended {
    error: ServeError,
    /// One of its engines is gone.
    engine_lost: bool,
}

impl Relay {
    pub(crate) async fn run(mut self) {
        let client = self.client.clone();
        tokio::select! {
            biased;
            () = client.closed() => {}
            () = self.serve() => {}
        }
    }

    async fn serve(&mut self) {
        while let Err(Ended { error, engine_lost }) = self.attempt().await {
            let begun = self.log.has_begun();
            match self.patience.after(&error, begun, self.runtime.now()) {
                Ok(delay) => self.runtime.sleep(delay).await,
                Err(error) => return self.give_up(error),
            }
            tracing::info!(request = %self.request.id, attempt = self.request.attempt.0 + 1, %error, "resuming");
            self.fleet.counters().resumed(&error, engine_lost);
            self.request.attempt.0 += 1;
        }
    }

    async fn attempt(&mut self) -> Result<(), Ended> {
        let roster = Arc::new(self.engines().await.map_err(|error| Ended { error, engine_lost: false })?);
        let served = self.served_by(&roster).await;
        served.map_err(|error| {
            self.past.failed = roster.failed.take();
            if !self.log.has_begun() {
                self.past.numerics_id = None;
            }
            Ended { error, engine_lost: roster.has_lost(&self.past.failed) }
        })
    }

    async fn served_by(&mut self, roster: &Arc<Roster>) -> Result<(), ServeError> {
        while let Ok(choice) = self.unwanted.try_recv() {
            self.log.end(choice);
        }
        let request = self.log.continued(&self.request, self.prompt_sent);
        let (strategy, runtime) = (self.strategy.current(), Arc::clone(&self.runtime));
        let began = runtime.now();
        let mut watchdog = Watchdog::new(&*runtime, self.patience.policy().max_silence);
        let mut leg = tokio::select! {
            biased;
            leg = strategy.route(Arc::clone(roster), request) => leg?,
            () = watchdog.expired() => return Err(self.silent("an engine")),
        };
        self.check_numerics(&leg);
        self.move_role(&*strategy);
        let generated_before = self.log.tokens();
        let decision = self.decided(&mut leg, strategy.name(), began);
        let served = self.read(&mut leg, &decision, &mut watchdog).await;
        match &served {
            Ok(()) => decision.ended(runtime.now(), self.log.tokens() - generated_before),
            Err(error) => {
                decision.failed();
                leg.pick().has_failed(error);
            }
        }
        served
    }

    fn move_role(&self, strategy: &dyn Strategy) {
        // Time has passed since the roster was made that the request was routed by.
        let roster = self.fleet.roster(&self.past, &self.prompt, self.runtime.now());
        let Some((engine, role)) = strategy.role_change(&roster) else { return };
        let name = self.fleet.name(engine);
        // One that is leaving keeps its role.
        if self.fleet.set_role(engine, role).is_ok() {
            tracing::info!(engine = name, role = role.name(), "the strategy gives it another role");
        }
    }

    /// Records where the request went.
    fn decided(&self, leg: &mut Leg, strategy: &str, at: Duration) -> Arc<Decision> {
        let decision = Arc::new(Decision::new(&self.request, strategy, leg.take_explanation(), at));
        tracing::debug!(request = %self.request.id, prompt_tokens = decision.prompt_tokens, route = %decision, "routed");
        self.route.set(Arc::clone(&decision));
        self.decisions.push(Arc::clone(&decision));
        decision
    }

    async fn read(
        &mut self,
        leg: &mut Leg,
        decision: &Decision,
        watchdog: &mut Watchdog<'_>,
    ) -> Result<(), ServeError> {
        let mut begun = false;
        // The prompt's event counts even when there is nothing to generate.
        while !(self.prompt_sent && self.log.is_complete()) {
            let next = tokio::select! {
                biased;
                Some(choice) = self.unwanted.recv() => Next::Unwanted(choice),
                event = leg.next() => Next::Event(event),
                () = watchdog.expired() => Next::Timeout,
            };
            match next {
                Next::Unwanted(choice) => {
                    self.log.end(choice);
                    leg.end_choice(choice);
                }
                Next::Event(event) => {
                    let event = event.ok_or_else(|| self.vanished(leg))?;
                    watchdog.reset();
                    if event.attempt() == self.request.attempt {
                        if !begun && matches!(event, EngineEvent::Token(_)) {
                            begun = true;
                            decision.first_token(self.runtime.now());
                        }
                        self.accept(event, decision)?;
                    }
                }
                Next::Timeout => return Err(self.silent(&self.fleet.name(leg.engine()))),
            }
        }
        Ok(())
    }

    /// Bytes are promised to be those of an undisturbed run only among engines with equal numerics.
    fn check_numerics(&mut self, leg: &Leg) {
        let now = leg.pick().numerics_id();
        if let Some(before) = &self.past.numerics_id
            && before != now
            && self.log.has_begun()
        {
            self.fleet.counters().numerics_changed.add();
            tracing::warn!(request = %self.request.id, before, now, "resumed on an engine with other numerics");
        }
        self.past.numerics_id = Some(now.to_owned());
    }

    /// The engines that are ready now, or as soon as one is.
    async fn engines(&mut self) -> Result<Roster, ServeError> {
        let mut changes = self.fleet.changes();
        loop {
            let roster = self.fleet.roster(&self.past, &self.prompt, self.runtime.now());
            if !roster.is_empty() {
                return Ok(roster);
            }
            let remaining = self.patience.remaining(self.runtime.now());
            tokio::select! {
                biased;
                Ok(()) = changes.changed() => {}
                () = self.runtime.sleep(remaining) => {
                    let waited = self.patience.policy().max_outage.as_secs_f32();
                    return Err(ServeError::engine(format!("no engine is running; waited {waited} s for one")));
                }
            }
        }
    }

    fn accept(&mut self, event: EngineEvent, decision: &Decision) -> Result<(), ServeError> {
        match event {
            EngineEvent::Prompt(event) => {
                decision.prompt_computed(event.times);
                self.send_prompt(event);
            }
            EngineEvent::Token(event) => self.send_token(event)?,
            EngineEvent::Failed(event) => return Err(event.error),
            EngineEvent::Reserved(_) | EngineEvent::Sent(_) => {
                return Err(ServeError::engine("the engine answered a generation as if it were another call"));
            }
        }
        self.patience.progressed();
        Ok(())
    }

    fn send_prompt(&mut self, event: PromptEvent) {
        if !self.prompt_sent {
            self.prompt_sent = true;
            self.send(EngineEvent::Prompt(event));
        }
    }

    fn send_token(&mut self, event: TokenEvent) -> Result<(), ServeError> {
        match self.log.accept(&event) {
            Verdict::Next => self.send(EngineEvent::Token(event)),
            Verdict::Repeat => {}
            Verdict::Gap { expected } => {
                return Err(ServeError::engine(format!(
                    "the engine skipped tokens: choice {} went from {expected} to {}",
                    event.choice, event.index
                )));
            }
            Verdict::UnknownChoice => {
                return Err(ServeError::engine(format!("the engine answered for choice {}", event.choice)));
            }
        }
        Ok(())
    }

    fn give_up(&self, error: ServeError) {
        let (request, attempt) = (self.request.id, self.request.attempt);
        self.send(EngineEvent::Failed(FailedEvent { request, attempt, error }));
    }

    /// A client that has just gone needs nothing; `run` notices.
    fn send(&self, event: EngineEvent) {
        let _ = self.client.send(event);
    }

    fn silent(&self, engine: &str) -> ServeError {
        let silence = self.patience.policy().max_silence.as_secs_f32();
        ServeError::engine(format!("{engine} has sent nothing for {silence} s"))
    }

    fn vanished(&self, leg: &Leg) -> ServeError {
        let how = if leg.pick().is_hung() { "shows no sign of life" } else { "vanished" };
        ServeError::engine(format!("engine {} {how}", self.fleet.name(leg.engine())))
    }
}
