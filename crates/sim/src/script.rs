//! A caller without a router, as over plain HTTP: makes the three calls itself, in sensible and other orders, with leases
//! instead of guards, and may disappear between calls.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use baton_core::{Attempt, GenerateRequest, RequestId, ServeError, TokenRange};
use baton_protocol::{Reservation, Sent};

use crate::client::check_events;
use crate::client_requests::{ClientOutcome, ClientRequests};
use crate::clock::{Clock, lock};
use crate::random::Random;
use crate::session::Session;
use crate::stream_checker::StreamChecker;

/// The session with each engine, if it is connected.
pub(crate) type Sessions = Mutex<Vec<Option<Arc<Session>>>>;

pub(crate) struct Script {
    pub(crate) id: u64,
    pub(crate) clock: Arc<Clock>,
    pub(crate) requests: Arc<ClientRequests>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) random: Random,
    pub(crate) context_tokens: usize,
    pub(crate) plan: Plan,
    pub(crate) patience: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// The decode engine computes the whole request.
    Plain,
    /// One call after the other.
    InTurn,
    /// Generation is started while the KV is still on its way.
    AtOnce,
    /// KV is reserved for but never sent.
    NeverSent,
    /// The KV is moved; nothing is generated.
    Migrate,
    /// Reserved with a lease, then forgotten.
    Forget,
}

impl Plan {
    pub(crate) fn draw(random: &mut Random) -> Self {
        random.pick(&[Self::Plain, Self::InTurn, Self::AtOnce, Self::NeverSent, Self::Migrate, Self::Forget])
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::InTurn => "in turn",
            Self::AtOnce => "at once",
            Self::NeverSent => "never sent",
            Self::Migrate => "migrate",
            Self::Forget => "forget",
        }
    }
}

/// `None`: the session was lost, so there is no outcome.
type Answer = Option<ClientOutcome>;

impl Script {
    pub(crate) async fn run(mut self, request: GenerateRequest) {
        let (clock, patience) = (Arc::clone(&self.clock), self.patience);
        let (id, requests) = (self.id, Arc::clone(&self.requests));
        let answer = tokio::select! {
            biased;
            answer = self.follow(request) => answer,
            () = clock.sleep(patience) => Some(ClientOutcome::Left),
        };
        requests.close(id, answer.unwrap_or(ClientOutcome::CutOff));
    }

    async fn follow(&mut self, mut request: GenerateRequest) -> Answer {
        let engines = lock(&self.sessions).len();
        let decode = self.random.index(engines);
        let prefill = self.random.index(engines);
        if self.plan == Plan::Plain {
            return self.generate(decode, request, None).await;
        }
        match self.hand_over(decode, prefill, &request).await {
            // No room, or the reservation has expired: continue without a hand-off.
            Some(ClientOutcome::Failed { hopeless: false, .. }) if self.random.percent(70) => {
                request.attempt = Attempt(1);
                self.generate(decode, request, None).await
            }
            answer => answer,
        }
    }

    async fn hand_over(&mut self, decode: usize, prefill: usize, request: &GenerateRequest) -> Answer {
        let prompt_tokens = request.prompt.len() as u64;
        let end = match self.random.below(4) {
            0 => self.random.below(prompt_tokens + 1),
            _ if self.plan == Plan::Migrate => prompt_tokens,
            _ => prompt_tokens - 1,
        } as u32;
        let leased = self.plan == Plan::Forget || self.random.percent(50);
        let lease_ms = leased.then(|| self.random.between(5, 80) as u32);
        let reserved = self.session(decode)?.caller.prep_recv(request, end, lease_ms).await;
        let reserved = match reserved {
            Ok(reserved) => reserved,
            Err(error) => return self.failed(request, error),
        };
        // Both calls may go to one engine: the id distinguishes them.
        let sender = GenerateRequest { id: RequestId(request.id.0 | 1 << 32), ..request.clone() };
        match self.plan {
            Plan::Forget => {
                // A caller that has disappeared does not release its reservation.
                std::mem::forget(reserved);
                Some(ClientOutcome::Left)
            }
            Plan::NeverSent => self.generate(decode, request.clone(), Some((reserved, None))).await,
            Plan::AtOnce => {
                let range = self.range(&reserved);
                let sending = self.session(prefill)?.caller.remote_send(&sender, &reserved, range);
                let (session, mut stream) = (self.session(decode)?, self.checker(request));
                let mut events = match session.caller.start_generate(request.clone(), Some((reserved, None))) {
                    Ok(events) => events,
                    Err(error) => return self.failed(request, error),
                };
                tokio::select! {
                    biased;
                    answer = check_events(&mut events, &mut stream) => return check_early_end(&session, answer),
                    _sent = sending => {}
                }
                if self.random.percent(80) {
                    events.expect_no_more();
                }
                check_early_end(&session, check_events(&mut events, &mut stream).await)
            }
            Plan::InTurn | Plan::Migrate | Plan::Plain => {
                let range = self.range(&reserved);
                let sent = self.session(prefill)?.caller.remote_send(&sender, &reserved, range).await;
                if self.plan == Plan::Migrate {
                    return Some(sent.map_or_else(
                        |error| ClientOutcome::Failed { error, hopeless: true },
                        |_| ClientOutcome::Served,
                    ));
                }
                if self.random.percent(30) {
                    self.clock.sleep(self.random.millis(1, 60)).await;
                }
                self.generate(decode, request.clone(), Some((reserved, sent.ok()))).await
            }
        }
    }

    /// The missing range, or all from the prompt's start as simple callers send it; sometimes a shorter one.
    fn range(&mut self, reserved: &Reservation) -> TokenRange {
        let begin = if self.random.percent(30) { 0 } else { reserved.matched };
        let all = u64::from(reserved.end - begin);
        let length = if self.random.percent(10) { self.random.below(all + 1) } else { all };
        TokenRange::new(begin, begin + length as u32).unwrap_or_default()
    }

    async fn generate(
        &mut self,
        engine: usize,
        request: GenerateRequest,
        handoff: Option<(Reservation, Option<Sent>)>,
    ) -> Answer {
        let session = self.session(engine)?;
        let mut stream = self.checker(&request);
        match session.caller.start_generate(request.clone(), handoff) {
            Ok(mut events) => check_early_end(&session, check_events(&mut events, &mut stream).await),
            Err(error) => self.failed(&request, error),
        }
    }

    fn failed(&self, request: &GenerateRequest, error: ServeError) -> Answer {
        Some(ClientOutcome::Failed { error, hopeless: self.checker(request).is_hopeless() })
    }

    fn checker(&self, request: &GenerateRequest) -> StreamChecker {
        StreamChecker::new(request.clone(), self.context_tokens)
    }

    fn session(&self, engine: usize) -> Option<Arc<Session>> {
        lock(&self.sessions)[engine].clone()
    }
}

/// A stream may end before its request only if the session is lost.
fn check_early_end(session: &Session, answer: Answer) -> Answer {
    match answer {
        None if session.open.is_alive() => Some(ClientOutcome::Wrong("the stream ended before the request".to_owned())),
        answer => answer,
    }
}
