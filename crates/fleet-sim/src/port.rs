//! One engine's hand-off port, in virtual time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use baton_core::{EngineCounters, PAGE_TOKENS, PageId, PromptTimes, ReservationId, ServeError, TokenRange};
use baton_engine::{Computed, ExportId, HandOff, HandedPrompt, PageOffer};

use crate::clock::lock;
use crate::event::EngineIndex;
use crate::fabric::{Expected, Export, State};

pub(crate) struct Port {
    pub(crate) engine: EngineIndex,
    pub(crate) state: Arc<Mutex<State>>,
}

/// Where to hand over to; travels through the router as bytes.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) engine: EngineIndex,
    pub(crate) reservation: ReservationId,
    room: TokenRange,
}

impl HandOff for Port {
    fn expect(
        &mut self,
        id: ReservationId,
        prompt: HandedPrompt<'_>,
        begin: usize,
        _pages: &[PageId],
    ) -> Result<Vec<u8>, ServeError> {
        let (mut state, end) = (lock(&self.state), prompt.tokens.len());
        let expected = Expected { begin, end, page_end: begin / PAGE_TOKENS, last_arrival: state.clock.now() };
        state.expected.insert((self.engine, id), expected);
        let room = TokenRange::new(begin as u32, end as u32).unwrap_or_default();
        Ok(Target { engine: self.engine, reservation: id, room }.to_bytes())
    }

    fn revoke(&mut self, id: ReservationId) -> Option<usize> {
        let expected = lock(&self.state).expected.remove(&(self.engine, id));
        Some(expected.map_or(0, |expected| expected.verified_tokens()))
    }

    fn last_arrival(&mut self, id: ReservationId) -> Duration {
        let state = lock(&self.state);
        state.expected.get(&(self.engine, id)).map_or(Duration::ZERO, |expected| expected.last_arrival)
    }

    fn begin_export(&mut self, id: ExportId, _: HandedPrompt<'_>, target: &[u8]) -> Result<TokenRange, ServeError> {
        let target = Target::from_bytes(target).ok_or_else(|| ServeError::caller("not a hand-off target"))?;
        let mut state = lock(&self.state);
        let export = Export { target, page_end: target.room.begin() as usize / PAGE_TOKENS, arrives: Duration::ZERO };
        state.exports.insert((self.engine, id), export);
        Ok(target.room)
    }

    fn offer(&mut self, offer: PageOffer) {
        let mut state = lock(&self.state);
        match offer.computed {
            Computed::Already => {
                let now = state.clock.now();
                state.send(self.engine, &offer, (now, now));
            }
            Computed::InStep(_) => state.offer_in_step(self.engine, offer),
        }
    }

    fn finish_export(&mut self, id: ExportId, times: PromptTimes) {
        lock(&self.state).finish(self.engine, id, times);
    }

    fn last_taken(&mut self, id: ExportId) -> Duration {
        let state = lock(&self.state);
        state.exports.get(&(self.engine, id)).map_or(Duration::ZERO, |export| export.arrives)
    }

    fn close_export(&mut self, id: ExportId) {
        lock(&self.state).exports.remove(&(self.engine, id));
    }

    fn count(&self, counters: &mut EngineCounters) {
        lock(&self.state).count(self.engine, counters);
    }
}

impl Target {
    fn to_bytes(self) -> Vec<u8> {
        let fields = [self.engine as u64, self.reservation.0, self.room.begin().into(), self.room.end().into()];
        fields.iter().flat_map(|field| field.to_le_bytes()).collect()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let ([engine, reservation, begin, end], []) = bytes.as_chunks::<8>() else { return None };
        let room = TokenRange::new(u64::from_le_bytes(*begin) as u32, u64::from_le_bytes(*end) as u32)?;
        let engine = usize::try_from(u64::from_le_bytes(*engine)).ok()?;
        Some(Self { engine, reservation: ReservationId(u64::from_le_bytes(*reservation)), room })
    }
}
