//! KV from other engines: room is made for it, it lands, and a request starts from it or it is given back. Either way the
//! reservation is dropped first; its pages are used when the fabric has reported that it writes them no more.

use std::sync::Arc;
use std::time::Duration;

use baton_core::{
    AdapterId, Attempt, EngineEvent, Fault, GenerateRequest, PromptTimes, ReservationId, ReservedEvent, Retry,
    ServeError, TokenId,
};
use baton_kv::{CannotReserve, PageReservation, ReceivedPages};
use baton_protocol::{PrepRecv, SessionId};

use super::Scheduler;
use crate::handoff::HandedPrompt;
use crate::sequence::{RequestKey, Sequence, SequenceId, Stage};

/// Pages with which no request has started. Lives as long as its session, and no longer than its lease.
pub(super) struct Reserved {
    owner: RequestKey,
    attempt: Attempt,
    pub(super) prompt: Arc<[TokenId]>,
    pub(super) adapter: Option<AdapterId>,
    pages: PageReservation,
    /// Nothing more will come: the sender has reported its end and where its time went, or there was nothing to send.
    landed: Option<PromptTimes>,
    pub(super) lease: Option<Lease>,
}

impl Reserved {
    /// Why this request cannot start from it.
    pub(super) fn conflict(&self, request: &GenerateRequest) -> Option<ServeError> {
        let other = match () {
            () if self.prompt != request.prompt => "prompt",
            () if self.adapter != request.adapter => "adapter",
            () => return None,
        };
        Some(ServeError::conflict(format!("the {other} is not the one its reservation was made for")).about(other))
    }
}

/// Every arrival renews it. Looked at only when it runs out.
pub(super) struct Lease {
    pub(super) period: Duration,
    pub(super) expires: Duration,
}

impl Scheduler {
    pub(super) fn prep_recv(
        &mut self,
        now: Duration,
        session: SessionId,
        call: PrepRecv,
    ) -> Result<EngineEvent, ServeError> {
        let PrepRecv { request, attempt, prompt, adapter, end, lease_ms } = call;
        self.limits.check_prompt(&prompt, adapter)?;
        let Some(expected) = prompt.get(..end as usize) else {
            let length = prompt.len();
            return Err(ServeError::caller(format!("end {end} lies behind the prompt of {length} tokens")).about("end"));
        };
        let owner = RequestKey { session, request };
        match self.reservations.iter().find(|(_, reserved)| reserved.owner == owner) {
            Some((&id, older)) if older.attempt < attempt => self.abandon(id),
            Some(_) => return Err(ServeError::conflict(format!("request {request} has a reservation already"))),
            None => {}
        }
        if self.starving.is_some() || self.reservations.len() >= self.limits.max_waiting {
            let message = "no pages can be reserved while requests wait for them";
            return Err(ServeError::busy(message, self.retry_after_ms()));
        }

        let id = ReservationId(self.next_reservation);
        let pages = self.ledger.reserve(id, Arc::clone(&prompt), adapter, end as usize, self.headroom());
        let pages = pages.map_err(|error| self.cannot_reserve(error))?;
        self.next_reservation += 1;
        let (matched, own_pages) = (pages.matched_tokens(), self.ledger.own_pages(&pages));
        let expected = HandedPrompt { tokens: expected, adapter };
        let target = self.handoff.expect(id, expected, matched, own_pages)?;
        let landed = own_pages.is_empty().then(PromptTimes::default);
        let lease = lease_ms.map(|ms| Duration::from_millis(ms.into()));
        let lease = lease.map(|period| Lease { period, expires: now + period });
        self.reservations.insert(id, Reserved { owner, attempt, prompt, adapter, pages, landed, lease });
        Ok(EngineEvent::Reserved(ReservedEvent { request, attempt, reservation: id, matched: matched as u32, target }))
    }

    /// What will never fit can still be served without a hand-off.
    fn cannot_reserve(&self, error: CannotReserve) -> ServeError {
        let message = error.to_string();
        if error.is_final() {
            ServeError { fault: Fault::Capacity, retry: Retry::Never, message, param: None }
        } else {
            ServeError::busy(message, self.retry_after_ms())
        }
    }

    /// A request uses its own reservation only: ids of an engine's earlier life, or mixed up by a router, may name another's.
    pub(super) fn claim(&mut self, owner: RequestKey, id: ReservationId) -> Option<Reserved> {
        self.reservations.get(&id).filter(|reserved| reserved.owner == owner)?;
        self.reservations.remove(&id)
    }

    /// The request of `leader` starts from a reservation, as soon as its KV is there.
    pub(super) fn park(&mut self, now: Duration, leader: SequenceId, reserved: Reserved) {
        let Some(sequence) = self.sequences.get_mut(&leader) else { return self.give_back(reserved) };
        if self.requests.get(&sequence.request).is_some_and(|request| request.needs_whole_prompt(leader)) {
            self.give_back(reserved);
            return self.make_ready(leader);
        }
        let expires = now + self.limits.landing_timeout;
        sequence.stage = Stage::Landing { pages: reserved.pages, since: now, expires };
        if let Some(sender) = reserved.landed {
            self.end_landing(now, leader, sender);
        }
    }

    /// The sender has offered everything.
    pub fn landed(&mut self, now: Duration, id: ReservationId, sender: PromptTimes) {
        if let Some(reserved) = self.reservations.get_mut(&id) {
            reserved.landed = Some(sender);
        } else if let Some(sequence) = self.waits_for(id) {
            self.end_landing(now, sequence, sender);
        }
    }

    /// Nothing more is to be expected: what has arrived is used by the request that waits for it, or kept in the cache.
    pub fn release(&mut self, now: Duration, session: SessionId, id: ReservationId) {
        if self.reservations.get(&id).is_some_and(|reserved| reserved.owner.session == session) {
            self.abandon(id);
        } else if let Some(sequence) = self.waits_for(id)
            && self.sequences.get(&sequence).is_some_and(|waiting| waiting.request.session == session)
        {
            self.end_landing(now, sequence, PromptTimes::default());
        }
    }

    fn waits_for(&self, id: ReservationId) -> Option<SequenceId> {
        let waits = |stage: &Stage| matches!(stage, Stage::Landing { pages, .. } if pages.id() == id);
        self.sequences.iter().find(|(_, sequence)| waits(&sequence.stage)).map(|(&sequence, _)| sequence)
    }

    /// Nothing more is wanted: the sequence goes on with what is verified once its pages are written no more.
    pub(super) fn end_landing(&mut self, now: Duration, id: SequenceId, sender: PromptTimes) {
        let Some(Sequence { request, stage, .. }) = self.sequences.get_mut(&id) else { return };
        let Stage::Landing { pages, since, .. } = stage else { return };
        if let Some(request) = self.requests.get_mut(request) {
            request.progress.land(now, sender);
        }
        self.counters.landing_us += now.saturating_sub(*since).as_micros() as u64;
        *stage = Stage::Revoking { from: pages.id(), end: pages.end() };
        self.revoke_dropped();
    }

    /// The fabric is to stop writing what is not wanted any more.
    pub(super) fn revoke_dropped(&mut self) {
        while let Some(id) = self.ledger.next_dropped() {
            if let Some(verified_tokens) = self.handoff.revoke(id) {
                self.revoked(id, verified_tokens);
            }
        }
    }

    /// A reservation's pages are written no more: they go to the sequence that waits for them, else what was verified goes
    /// to the cache.
    pub fn revoked(&mut self, id: ReservationId, verified_tokens: usize) {
        let Some(pages) = self.ledger.revoked(id, verified_tokens) else { return };
        let waits = |stage: &Stage| matches!(stage, Stage::Revoking { from, .. } if *from == id);
        match self.sequences.iter().find(|(_, sequence)| waits(&sequence.stage)).map(|(&sequence, _)| sequence) {
            Some(sequence) => self.receive(sequence, pages),
            None => self.ledger.insert(pages.verified_prompt(), pages.table()),
        }
    }

    fn receive(&mut self, id: SequenceId, pages: ReceivedPages) {
        let Some(Sequence { tokens, stage, .. }) = self.sequences.get_mut(&id) else { return };
        let matched = pages.matched_tokens();
        // The last token is computed here in any case, for its logits.
        let computed = pages.verified_tokens().min(tokens.len() - 1).max(matched);
        self.ledger.insert(&tokens[..computed], pages.table());
        self.counters.handoffs_received += 1;
        self.counters.received_tokens += (computed - matched) as u64;
        *stage = Stage::Received { pages, computed };
        self.waiting.insert(id);
    }

    /// Takes the pages of the youngest received sequence: it will find them in the cache, or compute them.
    pub(super) fn give_up_received(&mut self, except: SequenceId) -> bool {
        let received = |sequence: &Sequence| matches!(sequence.stage, Stage::Received { .. });
        let youngest =
            self.waiting.iter().rev().find(|id| **id != except && self.sequences.get(id).is_some_and(received));
        let Some(Sequence { tokens, stage, .. }) = youngest.and_then(|id| self.sequences.get_mut(id)) else {
            return false;
        };
        if let Stage::Received { pages, computed } = std::mem::replace(stage, Stage::Waiting) {
            self.ledger.insert(&tokens[..computed], pages.table());
        }
        true
    }

    pub(super) fn abandon(&mut self, id: ReservationId) {
        if let Some(reserved) = self.reservations.remove(&id) {
            self.give_back(reserved);
        }
    }

    pub(super) fn abandon_all(&mut self, mut which: impl FnMut(RequestKey) -> bool) {
        let ids: Vec<_> = self.reservations.iter().filter(|(_, r)| which(r.owner)).map(|(&id, _)| id).collect();
        for id in ids {
            self.abandon(id);
        }
    }

    pub(super) fn give_back(&mut self, reserved: Reserved) {
        drop(reserved);
        self.revoke_dropped();
    }
}
