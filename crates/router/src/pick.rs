//! One engine that was chosen, and the three calls to it. They hold its load and note its failures.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use baton_core::{EngineReport, GenerateRequest, ServeError, TokenRange};
use baton_protocol::{Destination, Engine, Reservation, Sent};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::counters::Counters;
use crate::engine::{EngineId, Role};
use crate::leg::Leg;
use crate::liveness::{Liveness, until_hung};
use crate::load::{Load, LoadGuard};
use crate::prefix_index::PrefixIndex;
use crate::prompt_pages::PromptPages;
use crate::receivers::Receivers;

#[derive(Clone)]
pub struct Pick {
    pub(crate) id: EngineId,
    pub(crate) name: Arc<str>,
    pub(crate) role: Role,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) cached: Arc<PrefixIndex>,
    /// Of the request that the roster was made for.
    pub(crate) prompt: Arc<PromptPages>,
    pub(crate) liveness: watch::Receiver<Liveness>,
    pub(crate) load: Arc<Load>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) failed: Failed,
    pub(crate) receivers: Receivers,
}

/// Engines that failed a call of one attempt.
#[derive(Clone, Default)]
pub(crate) struct Failed(Arc<Mutex<BTreeSet<EngineId>>>);

/// Pages of an engine that wait for KV. Dropping it gives them back.
pub struct Reserved {
    engine: EngineId,
    reservation: Reservation,
    load: LoadGuard,
}

/// KV on its way from one engine to another. Dropping it aborts that.
pub type Sending = BoxFuture<'static, Result<Sent, ServeError>>;

impl Pick {
    pub fn id(&self) -> EngineId {
        self.id
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn role(&self) -> Role {
        self.role
    }

    /// Bit-equal logits, and so KV that can be handed from one to the other.
    pub fn is_exact_with(&self, other: &Self) -> bool {
        self.engine.info().numerics_id == other.engine.info().numerics_id
    }

    /// How much of the request's prompt this engine would take from its prefix cache, as far as is known: whole pages.
    pub fn cached_tokens(&self) -> u32 {
        self.prompt.cached_tokens(&self.cached)
    }

    /// The engine's newest report, of all its callers' requests.
    pub fn report(&self) -> EngineReport {
        self.engine.report()
    }

    /// Requests there: of other routers as reported, and of this one, as it knows best. A report is always a little old.
    pub fn sequences(&self) -> u32 {
        self.engine.report().others().sequences + self.load.in_flight().sequences
    }

    /// Prompt tokens that it has still to compute, counted in the same way.
    pub fn prefill_tokens(&self) -> u64 {
        self.engine.report().others().pending_prefill_tokens + self.load.in_flight().prefill_tokens
    }

    /// Prompt tokens that it has to compute until it has computed this request's, as far as that is not cached.
    pub fn tokens_until_computed(&self) -> u64 {
        self.prefill_tokens() + self.prompt.uncached_tokens(&self.cached)
    }

    /// Reserves room for the KV of `prompt[..end]`.
    pub async fn prep_recv(&self, request: &GenerateRequest, end: u32) -> Result<Reserved, ServeError> {
        let load = self.load.decode(request);
        let reservation = self.answer(self.engine.prep_recv(request, end)).await?;
        self.receivers.add(&reservation, self.id, self.liveness.clone());
        Ok(Reserved { engine: self.id, reservation, load })
    }

    /// Computes `prompt[..range.end]` and hands `range` over. Begins at once; the future waits for the end of it, or until one
    /// of the two engines shows no sign of life.
    pub fn remote_send(&self, request: &GenerateRequest, to: &Destination, range: TokenRange) -> Sending {
        let load = self.load.prefill(range.end().saturating_sub(self.cached_tokens()).into());
        self.counters.handoffs.add();
        let (sent, this) = (self.engine.remote_send(request, to, range), self.clone());
        let receiver_hung = self.receivers.hung(to);
        let sent = async move {
            let sent = tokio::select! {
                biased;
                sent = this.unless_hung(sent) => sent.inspect_err(|error| this.has_failed(error)),
                receiver = receiver_hung => {
                    this.failed.note(receiver);
                    Err(ServeError::engine("the receiving engine shows no sign of life"))
                }
            };
            drop(load);
            sent.inspect_err(|_| this.counters.handoffs_failed.add())
        };
        sent.boxed()
    }

    /// Computes what of the prompt is not there, then decodes. With a reservation and nothing sent the request waits for
    /// its KV: [`Leg::fed_by`] sets where that comes from.
    pub async fn start_generate(
        &self,
        request: GenerateRequest,
        handoff: Option<(Reserved, Option<Sent>)>,
    ) -> Result<Leg, ServeError> {
        let cached = handoff.is_none().then(|| self.cached_tokens());
        let (load, prefill_tokens, handoff) = match handoff {
            None => (self.load.decode(&request), tokens_to_compute(&request, cached.unwrap_or(0)), None),
            Some((reserved, _)) if reserved.engine != self.id => {
                return Err(ServeError::engine("a reservation of another engine"));
            }
            Some((reserved, sent)) => {
                let tokens = tokens_to_compute(&request, reserved.end);
                (reserved.load, tokens, Some((reserved.reservation, sent)))
            }
        };
        let prefilling = self.load.prefill(prefill_tokens);
        let stream = self.answer(self.engine.start_generate(request, handoff)).await?;
        Ok(Leg::new(self.clone(), stream, load, prefilling).expecting(cached))
    }

    /// It is gone, or shows no sign of life.
    pub(crate) fn is_lost(&self) -> bool {
        !self.engine.is_alive() || self.is_hung()
    }

    pub(crate) fn is_hung(&self) -> bool {
        *self.liveness.borrow() != Liveness::Responsive
    }

    /// Waits until the engine shows no sign of life.
    pub(crate) async fn hung(&self) {
        until_hung(self.liveness.clone()).await;
    }

    pub(crate) fn numerics_id(&self) -> &str {
        &self.engine.info().numerics_id
    }

    pub(crate) fn has_failed(&self, error: &ServeError) {
        tracing::debug!(engine = self.id.0, %error, "a call failed");
        self.failed.note(self.id);
    }

    async fn unless_hung<T>(&self, call: impl Future<Output = Result<T, ServeError>>) -> Result<T, ServeError> {
        tokio::select! {
            biased;
            answer = call => answer,
            () = self.hung() => Err(ServeError::engine("the engine shows no sign of life")),
        }
    }

    /// An engine that never answers has failed too: its caller gives up in the middle.
    async fn answer<T>(&self, call: impl Future<Output = Result<T, ServeError>>) -> Result<T, ServeError> {
        self.failed.note(self.id);
        let answer = self.unless_hung(call).await.inspect_err(|error| self.has_failed(error))?;
        self.failed.forgive(self.id);
        Ok(answer)
    }
}

/// Prompt tokens behind position `end`, and those of earlier attempts' outputs.
fn tokens_to_compute(request: &GenerateRequest, end: u32) -> u64 {
    let outputs: usize = request.unfinished_choices().map(|choice| request.outputs[choice.index()].len()).sum();
    (request.prompt.len() + outputs).saturating_sub(end as usize) as u64
}

impl Deref for Reserved {
    type Target = Destination;

    fn deref(&self) -> &Destination {
        &self.reservation
    }
}

impl Failed {
    pub(crate) fn take(&self) -> BTreeSet<EngineId> {
        std::mem::take(&mut *self.lock())
    }

    fn note(&self, engine: EngineId) {
        self.lock().insert(engine);
    }

    fn forgive(&self, engine: EngineId) {
        self.lock().remove(&engine);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<EngineId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
