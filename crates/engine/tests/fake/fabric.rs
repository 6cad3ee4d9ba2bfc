//! A fabric that does what a script says, and records its calls.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use baton_core::{EngineCounters, PAGE_TOKENS, PageId, PromptTimes, ReservationId, ServeError, TokenId, TokenRange};
use baton_engine::{Computed, ExportId, HandOff, HandedPrompt, PageOffer};

use super::{Kv, mix};

#[derive(Clone)]
pub(crate) struct ScriptedFabric(Arc<Mutex<State>>);

struct State {
    kv: Kv,
    now: Duration,
    calls: Vec<String>,
    expected: BTreeMap<ReservationId, Expected>,
    /// A sender is in the middle of a block.
    writing: BTreeSet<ReservationId>,
    /// When each receiver last confirmed something.
    taken: BTreeMap<ExportId, Duration>,
}

struct Expected {
    prompt: Vec<TokenId>,
    begin: usize,
    pages: Vec<PageId>,
    verified: usize,
    last_arrival: Duration,
}

impl ScriptedFabric {
    pub(crate) fn new(kv: Kv) -> Self {
        let (now, calls, taken) = (Duration::ZERO, Vec::new(), BTreeMap::new());
        let (expected, writing) = (BTreeMap::new(), BTreeSet::new());
        Self(Arc::new(Mutex::new(State { kv, now, calls, expected, writing, taken })))
    }

    pub(crate) fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().calls)
    }

    pub(crate) fn set_now(&self, now: Duration) {
        self.0.lock().unwrap().now = now;
    }

    pub(crate) fn arrive(&self, id: ReservationId, verified: usize) {
        let mut state = self.0.lock().unwrap();
        let now = state.now;
        let expected = state.expected.get_mut(&id).unwrap();
        (expected.verified, expected.last_arrival) = (verified, now);
    }

    /// A block for this reservation is on its way into its page.
    pub(crate) fn write(&self, id: ReservationId) {
        self.0.lock().unwrap().writing.insert(id);
    }

    /// It is there: this many tokens are verified.
    pub(crate) fn written(&self, id: ReservationId) -> usize {
        let mut state = self.0.lock().unwrap();
        assert!(state.writing.remove(&id));
        state.end(id)
    }

    /// The receiver confirms a piece of this export.
    pub(crate) fn take(&self, id: ExportId) {
        let mut state = self.0.lock().unwrap();
        let now = state.now;
        state.taken.insert(id, now);
    }

    fn record(&self, line: String) {
        self.0.lock().unwrap().calls.push(format!("~ {line}"));
    }
}

impl State {
    /// What was verified is in the pages.
    fn end(&mut self, id: ReservationId) -> usize {
        let Expected { prompt, begin, pages, verified, .. } = self.expected.remove(&id).unwrap();
        let mut hash = 0;
        for (position, token) in prompt[..verified].iter().enumerate() {
            hash = mix(hash, token.0.into());
            if let Some(at) = position.checked_sub(begin) {
                self.kv.lock().unwrap()[pages[at / PAGE_TOKENS].index()][at % PAGE_TOKENS] = hash;
            }
        }
        verified
    }
}

fn list(pages: &[PageId]) -> String {
    let mut text = String::new();
    pages.iter().for_each(|page| write!(text, " {page}").unwrap());
    text
}

fn show(offer: &PageOffer) -> String {
    let last = if offer.last { ", the last" } else { "" };
    let when = match offer.computed {
        Computed::Already => String::new(),
        Computed::InStep(step) => format!(" by step {step}"),
    };
    format!("pages {}.. of export {} in{}{when}{last}", offer.first_index, offer.export.0, list(&offer.pages))
}

impl HandOff for ScriptedFabric {
    fn expect(
        &mut self,
        id: ReservationId,
        prompt: HandedPrompt<'_>,
        begin: usize,
        pages: &[PageId],
    ) -> Result<Vec<u8>, ServeError> {
        let mut state = self.0.lock().unwrap();
        let (prompt_tokens, last_arrival) = (prompt.tokens.to_vec(), state.now);
        let pages_of = pages.to_vec();
        state
            .expected
            .insert(id, Expected { prompt: prompt_tokens, begin, pages: pages_of, verified: begin, last_arrival });
        drop(state);
        self.record(format!("expect [{begin}, {}) for reservation {id} in{}", prompt.tokens.len(), list(pages)));
        Ok(Vec::new())
    }

    fn revoke(&mut self, id: ReservationId) -> Option<usize> {
        let mut state = self.0.lock().unwrap();
        if state.writing.contains(&id) {
            state.calls.push(format!("~ revoke reservation {id}: it is being written"));
            return None;
        }
        let verified = state.end(id);
        state.calls.push(format!("~ revoke reservation {id}: {verified} verified"));
        Some(verified)
    }

    fn last_arrival(&mut self, id: ReservationId) -> Duration {
        self.0.lock().unwrap().expected[&id].last_arrival
    }

    /// The target is what the receiver has room for: `begin..end`.
    fn begin_export(&mut self, id: ExportId, _: HandedPrompt<'_>, target: &[u8]) -> Result<TokenRange, ServeError> {
        let (begin, end) = std::str::from_utf8(target).unwrap().split_once("..").unwrap();
        let room = TokenRange::new(begin.parse().unwrap(), end.parse().unwrap()).unwrap();
        self.record(format!("begin export {} into {room}", id.0));
        Ok(room)
    }

    fn offer(&mut self, offer: PageOffer) {
        self.record(format!("offer {}", show(&offer)));
    }

    fn finish_export(&mut self, id: ExportId, _: PromptTimes) {
        self.record(format!("finish export {}", id.0));
    }

    fn last_taken(&mut self, id: ExportId) -> Duration {
        self.0.lock().unwrap().taken.get(&id).copied().unwrap_or_default()
    }

    fn close_export(&mut self, id: ExportId) {
        self.record(format!("close export {}", id.0));
    }

    fn count(&self, _: &mut EngineCounters) {}
}
