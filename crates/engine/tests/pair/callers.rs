//! What callers want, and what they do when something fails.

use std::sync::Arc;
use std::time::Duration;

use baton_core::{
    Attempt, EngineEvent, FailedEvent, Fault, GenerateRequest, ReservationId, Retry, TokenId, TokenRange,
};
use baton_engine::SessionEvent;
use baton_protocol::{Command, PrepRecv, RemoteSend, SessionId};

use crate::fake::stream::{Heard, Stream};
use crate::fake::{self, POISONED_SEED};
use crate::world::{ARRIVAL_STEPS, SESSIONS, Totals, World};

/// A request and how its caller wants it served.
pub(crate) struct Job {
    pub(crate) session: SessionId,
    prefill: usize,
    decode: usize,
    plan: Plan,
    end: u32,
    reservation: Option<ReservationId>,
    sending: bool,
    stream: Stream,
    /// Whether `stream` has been asked for.
    generates: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Plan {
    /// Everything on the decode engine.
    Plain,
    /// One call after the other.
    InTurn,
    /// Generation is started while the KV is still on its way.
    AtOnce,
    /// Nobody sends what was reserved for.
    NeverSent,
    /// Only the KV moves.
    Migrate,
    /// Reserved with a lease, then forgotten.
    Forget,
}

impl World {
    pub(crate) fn arrive(&mut self) {
        let random = &mut self.random;
        let context = self.nodes.iter().map(|node| node.context_tokens).min().unwrap() as u64;
        let longest = if random.chance(70) { context.min(120) } else { context };
        let prompt_tokens = random.between(1, longest - 1);
        // Few distinct prompts, so that prefixes meet.
        let (family, fork) = (random.below(3) as u32, random.below(prompt_tokens + 1));
        let prompt: Vec<TokenId> = (0..prompt_tokens)
            .map(|at| TokenId(if at < fork { (family + at as u32) % 50 } else { random.below(50) as u32 }))
            .collect();
        let choices = if random.chance(20) { random.between(2, 3) } else { 1 } as usize;
        let mut request = fake::request(self.next_request, prompt, choices, random.between(1, 60) as u32);
        self.next_request += 1;
        if random.chance(10) {
            request.prompt_logprobs = Some(0);
        }
        if random.chance(2) {
            request.sampling.seed = POISONED_SEED;
        }
        let plans =
            [Plan::Plain, Plan::InTurn, Plan::InTurn, Plan::AtOnce, Plan::AtOnce, Plan::NeverSent, Plan::Migrate];
        let plan = if random.chance(4) { Plan::Forget } else { plans[random.below(7) as usize] };
        let end = match random.below(4) {
            0 => random.below(prompt_tokens + 1),
            _ if plan == Plan::Migrate => prompt_tokens,
            _ => prompt_tokens - 1,
        } as u32;
        let decode = random.below(2) as usize;
        let session = SessionId(random.below(SESSIONS));
        let stream = Stream::new(request, self.now.as_millis() as u64);
        let (id, prefill) = (stream.request.id, 1 - decode);
        let mut job =
            Job { session, prefill, decode, plan, end, reservation: None, sending: false, stream, generates: false };
        if plan == Plan::Plain {
            self.generate(&mut job, None);
        } else {
            let GenerateRequest { id: request, attempt, ref prompt, .. } = job.stream.request;
            let lease_ms = (plan == Plan::Forget || self.random.chance(20)).then(|| self.random.between(5, 80) as u32);
            let call = PrepRecv { request, attempt, prompt: Arc::clone(prompt), end, lease_ms };
            self.post(job.decode, session, Command::PrepRecv(Box::new(call)));
        }
        self.jobs.insert(id, job);
    }

    /// Callers are not always quick.
    fn post(&mut self, node: usize, session: SessionId, command: Command) {
        let delay = if self.random.chance(10) { self.random.below(100) } else { self.random.below(2) };
        self.posted.push((self.now + Duration::from_millis(delay), node, session, command));
    }

    fn generate(&mut self, job: &mut Job, reservation: Option<ReservationId>) {
        let mut request = job.stream.request.clone();
        if reservation.is_some() && self.random.chance(80) {
            request.prompt = Arc::from([]);
        }
        job.generates = true;
        self.post(job.decode, job.session, Command::Generate { request: Box::new(request), reservation });
    }

    fn send(&mut self, job: &mut Job, matched: u32, target: Vec<u8>) {
        let GenerateRequest { id: request, attempt, ref prompt, .. } = job.stream.request;
        let begin = if self.random.chance(30) { 0 } else { matched };
        let end = if self.random.chance(10) {
            begin + self.random.below(u64::from(job.end - begin) + 1) as u32
        } else {
            job.end
        };
        let range = TokenRange::new(begin, end).unwrap();
        let call = RemoteSend { request, attempt, prompt: Arc::clone(prompt), range, target };
        job.sending = true;
        self.post(job.prefill, job.session, Command::RemoteSend(Box::new(call)));
    }

    pub(crate) fn hear(&mut self, node: usize, SessionEvent { session, event }: SessionEvent, totals: &mut Totals) {
        let id = event.request();
        let Some(mut job) = self.jobs.remove(&id) else {
            assert!(self.just_ended.contains(&id), "events only for open requests");
            return;
        };
        assert_eq!(session, job.session);
        let done = match event {
            EngineEvent::Reserved(event) => {
                assert!(event.matched <= job.end && event.matched.is_multiple_of(32) && node == job.decode);
                job.reservation = Some(event.reservation);
                self.reserved(&mut job, event.matched, event.target)
            }
            EngineEvent::Sent(event) => {
                assert!(event.verified_tokens <= job.end && node == job.prefill);
                self.sent(&mut job, true, totals)
            }
            EngineEvent::Failed(FailedEvent { error, .. }) if node == job.prefill => {
                assert!(error.fault != Fault::Caller, "{error}");
                self.sent(&mut job, false, totals)
            }
            EngineEvent::Failed(FailedEvent { error, .. })
                if error.fault == Fault::Capacity || error.retry != Retry::Never =>
            {
                assert!(error.fault != Fault::Caller, "{error}");
                totals.refused += 1;
                self.refused(&mut job)
            }
            event => match job.stream.take(event, self.nodes[node].context_tokens) {
                Heard::More => false,
                Heard::End => {
                    totals.finished += 1;
                    let started = job.stream.opened_at_step;
                    assert!(self.now.as_millis() as u64 - started < 30 * ARRIVAL_STEPS, "starved");
                    true
                }
                Heard::Failed(_) => true,
            },
        };
        if !done {
            self.jobs.insert(id, job);
            return;
        }
        self.just_ended.insert(id);
        if job.sending {
            self.abort(job.prefill, id);
        }
    }

    fn reserved(&mut self, job: &mut Job, matched: u32, target: Vec<u8>) -> bool {
        match job.plan {
            Plan::Forget => return true,
            Plan::NeverSent => self.generate(job, job.reservation),
            Plan::AtOnce => {
                self.send(job, matched, target);
                self.generate(job, job.reservation);
            }
            Plan::InTurn | Plan::Migrate if matched == job.end && self.random.chance(50) => {
                return self.sent(job, true, &mut Totals::default());
            }
            Plan::InTurn | Plan::Migrate | Plan::Plain => self.send(job, matched, target),
        }
        false
    }

    /// The sender has ended, well or not.
    fn sent(&mut self, job: &mut Job, well: bool, totals: &mut Totals) -> bool {
        job.sending = false;
        let Some(reservation) = job.reservation else { return false };
        match job.plan {
            Plan::Migrate => {
                self.post(job.decode, job.session, Command::Release(reservation));
                totals.migrated += u64::from(well);
                true
            }
            Plan::InTurn => {
                self.generate(job, Some(reservation));
                if !well || self.random.chance(50) {
                    self.post(job.decode, job.session, Command::Release(reservation));
                }
                false
            }
            _ => {
                if self.random.chance(50) {
                    self.post(job.decode, job.session, Command::Release(reservation));
                }
                false
            }
        }
    }

    /// The decode engine is full, or the reservation has expired: it has to do without.
    fn refused(&mut self, job: &mut Job) -> bool {
        let give_up = job.plan == Plan::Plain || job.plan == Plan::Migrate || self.random.chance(20);
        if job.sending {
            self.abort(job.prefill, job.stream.request.id);
            job.sending = false;
        }
        if !give_up {
            job.plan = Plan::Plain;
            job.stream.request.attempt = Attempt(job.stream.request.attempt.0 + 1);
            self.generate(job, None);
        }
        give_up
    }
}
