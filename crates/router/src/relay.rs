//! One request on its way: attempt after attempt, until every choice has ended or patience has.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use baton_core::{EngineEvent, FailedEvent, GenerateRequest, PromptEvent, ServeError, TokenEvent};
use tokio::sync::mpsc;

use crate::fleet::{EngineId, Fleet};
use crate::retry::Patience;
use crate::roster::Roster;
use crate::runtime::Runtime;
use crate::strategy::Router;
use crate::token_log::{TokenLog, Verdict};

pub(crate) struct Relay {
    /// As the client made it; each attempt is this plus the log.
    pub(crate) request: GenerateRequest,
    pub(crate) log: TokenLog,
    pub(crate) patience: Patience,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) router: Arc<dyn Router>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) resumed: Arc<AtomicU64>,
    /// Never holds more than the request may generate: `choices × max_tokens` events.
    pub(crate) client: mpsc::UnboundedSender<EngineEvent>,
    pub(crate) prompt_told: bool,
    /// Where the last attempt failed: others first.
    pub(crate) avoid: Option<EngineId>,
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
        while let Err(error) = self.attempt().await {
            let begun = self.log.has_begun();
            match self.patience.after(&error, begun, self.runtime.now()) {
                Ok(delay) => self.runtime.sleep(delay).await,
                Err(error) => return self.give_up(error),
            }
            tracing::info!(request = %self.request.id, attempt = self.request.attempt.0 + 1, %error, "resuming");
            self.resumed.fetch_add(1, Ordering::Relaxed);
            self.request.attempt.0 += 1;
        }
    }

    async fn attempt(&mut self) -> Result<(), ServeError> {
        let roster = self.engines().await?;
        let mut leg = self.router.route(&roster, self.log.continued(&self.request, self.prompt_told)).await?;
        self.avoid = Some(leg.engine);
        // The prompt's event counts even when there is nothing to generate.
        while !(self.prompt_told && self.log.is_complete()) {
            let event = leg.stream.next().await.ok_or_else(|| self.vanished(leg.engine))?;
            if event.attempt() == self.request.attempt {
                self.accept(event)?;
            }
        }
        Ok(())
    }

    /// The engines that are ready now, or as soon as one is.
    async fn engines(&mut self) -> Result<Roster, ServeError> {
        let mut changes = self.fleet.changes();
        loop {
            let roster = self.fleet.roster(self.avoid);
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

    fn accept(&mut self, event: EngineEvent) -> Result<(), ServeError> {
        match event {
            EngineEvent::Prompt(event) => self.tell_prompt(event),
            EngineEvent::Token(event) => self.tell_token(event)?,
            EngineEvent::Failed(event) => return Err(event.error),
            EngineEvent::Reserved(_) | EngineEvent::Sent(_) => {
                return Err(ServeError::engine("the engine answered a generation as if it were another call"));
            }
        }
        self.patience.progressed();
        Ok(())
    }

    fn tell_prompt(&mut self, event: PromptEvent) {
        if !self.prompt_told {
            self.prompt_told = true;
            self.tell(EngineEvent::Prompt(event));
        }
    }

    fn tell_token(&mut self, event: TokenEvent) -> Result<(), ServeError> {
        match self.log.accept(&event) {
            Verdict::Next => self.tell(EngineEvent::Token(event)),
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
        self.tell(EngineEvent::Failed(FailedEvent { request, attempt, error }));
    }

    /// A client that has just gone needs nothing; `run` notices.
    fn tell(&self, event: EngineEvent) {
        let _ = self.client.send(event);
    }

    fn vanished(&self, engine: EngineId) -> ServeError {
        ServeError::engine(format!("engine {} vanished", self.fleet.name(engine)))
    }
}
