//! How KV travels between simulated engines: each engine has one link, on which hand-offs follow one another.
//!
//! ```text
//!   step       begin ── layer ── layer ── … ── end            pages of a chunk are final layer by layer
//!   link         │ busy ─────────────────┐  │  ▒               and travel while the next layers are computed:
//!   receiver                                    ▲ arrived     late by the last layer's share at least
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use baton_core::{EngineCounters, PAGE_TOKENS, PromptTimes, ReservationId};
use baton_engine::{ExportId, Exported, PageOffer};

use crate::clock::{Clock, lock};
use crate::event::{Arrival, EngineIndex, Event, Input};
use crate::port::{Port, Target};
use crate::preset::Preset;

/// Clones are the same network.
#[derive(Clone)]
pub(crate) struct Fabric(Arc<Mutex<State>>);

pub(crate) struct State {
    pub(crate) clock: Arc<Clock>,
    pub(crate) expected: BTreeMap<(EngineIndex, ReservationId), Expected>,
    pub(crate) exports: BTreeMap<(EngineIndex, ExportId), Export>,
    engines: Vec<Link>,
    page_bytes: u64,
    bytes_per_s: f64,
    layers: u32,
    latency: Duration,
}

/// One engine's end.
#[derive(Clone, Default)]
struct Link {
    sends_until: Duration,
    receives_until: Duration,
    /// Of the step that is being planned.
    offers: Vec<PageOffer>,
    bytes_sent: u64,
    bytes_received: u64,
}

/// A reservation that has not ended.
pub(crate) struct Expected {
    pub(crate) begin: usize,
    pub(crate) end: usize,
    /// Pages of the prompt up to this one have arrived.
    pub(crate) page_end: usize,
    pub(crate) last_arrival: Duration,
}

/// A hand-off that has not ended.
pub(crate) struct Export {
    pub(crate) target: Target,
    pub(crate) page_end: usize,
    /// When all that was offered so far has arrived.
    pub(crate) arrives: Duration,
}

impl Fabric {
    pub(crate) fn new(clock: &Arc<Clock>, preset: &Preset, engines: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            clock: Arc::clone(clock),
            expected: BTreeMap::new(),
            exports: BTreeMap::new(),
            engines: vec![Link::default(); engines],
            page_bytes: preset.kv_bytes_per_token * PAGE_TOKENS as u64,
            bytes_per_s: preset.bytes_per_s,
            layers: preset.layers.max(1),
            latency: Duration::from_micros(preset.latency_us),
        })))
    }

    pub(crate) fn port(&self, engine: EngineIndex) -> Port {
        Port { engine, state: Arc::clone(&self.0) }
    }

    /// What was offered for the step that begins now becomes final while it is computed.
    pub(crate) fn step_begins(&self, engine: EngineIndex, takes: Duration) {
        let mut state = lock(&self.0);
        let (now, layers) = (state.clock.now(), state.layers);
        for offer in std::mem::take(&mut state.engines[engine].offers) {
            state.send(engine, &offer, (now + takes / layers, now + takes));
        }
    }

    pub(crate) fn arrived(&self, arrival: Arrival) {
        let mut state = lock(&self.0);
        let now = state.clock.now();
        if let Some(expected) = state.expected.get_mut(&(arrival.to, arrival.reservation)) {
            expected.page_end = expected.page_end.max(arrival.page_end);
            expected.last_arrival = now;
        }
    }

    /// The receiver has all of it: its engine starts with it, and the sender gets to know.
    pub(crate) fn landed(&self, arrival: Arrival, export: (EngineIndex, ExportId), times: PromptTimes) {
        self.arrived(arrival);
        let state = lock(&self.0);
        let expected = state.expected.get(&(arrival.to, arrival.reservation));
        let outcome = match expected {
            Some(expected) => Ok(Exported { verified_tokens: expected.verified_tokens(), damaged: false }),
            None => Err("the receiver does not expect it any more".to_owned()),
        };
        state.clock.after(Duration::ZERO, Event::Input(arrival.to, Input::Landed(arrival.reservation, times)));
        state.clock.after(state.latency, Event::Input(export.0, Input::Exported(export.1, outcome)));
    }
}

impl State {
    pub(crate) fn offer_in_step(&mut self, engine: EngineIndex, offer: PageOffer) {
        self.engines[engine].offers.push(offer);
    }

    /// The pages' first layer is final at the first of two times, the last layer at the second; those between, evenly.
    pub(crate) fn send(&mut self, from: EngineIndex, offer: &PageOffer, (first, last): (Duration, Duration)) {
        let Some(export) = self.exports.get_mut(&(from, offer.export)) else { return };
        let target = export.target;
        export.page_end = export.page_end.max(offer.first_index + offer.pages.len());
        let bytes = self.page_bytes * offer.pages.len() as u64;
        let travels = Duration::from_secs_f64(bytes as f64 / self.bytes_per_s);
        let link_free = self.engines[from].sends_until.max(self.engines[target.engine].receives_until);
        // What waits for a layer lets others pass, so a link is only ever busy for as long as bytes travel.
        let busy_until = link_free.max(first) + travels;
        let arrives = busy_until.max(last + travels / self.layers) + self.latency;
        export.arrives = export.arrives.max(arrives);
        let arrival = Arrival { to: target.engine, reservation: target.reservation, page_end: export.page_end };
        self.clock.at(export.arrives, Event::Arrived(arrival));
        let sender = &mut self.engines[from];
        (sender.sends_until, sender.bytes_sent) = (busy_until, sender.bytes_sent + bytes);
        let receiver = &mut self.engines[target.engine];
        (receiver.receives_until, receiver.bytes_received) = (busy_until, receiver.bytes_received + bytes);
    }

    pub(crate) fn finish(&mut self, from: EngineIndex, id: ExportId, times: PromptTimes) {
        let Some(Export { target, page_end, arrives }) = self.exports.get(&(from, id)) else { return };
        let arrival = Arrival { to: target.engine, reservation: target.reservation, page_end: *page_end };
        let at = (*arrives).max(self.clock.now() + self.latency);
        self.clock.at(at, Event::Landed { arrival, export: (from, id), times });
    }

    pub(crate) fn count(&self, engine: EngineIndex, counters: &mut EngineCounters) {
        let link = &self.engines[engine];
        counters.kv_bytes_sent = link.bytes_sent;
        counters.kv_bytes_received = link.bytes_received;
        counters.kv_pages_received = link.bytes_received / self.page_bytes.max(1);
    }
}

impl Expected {
    /// From the sequence's start.
    pub(crate) fn verified_tokens(&self) -> usize {
        (self.page_end * PAGE_TOKENS).clamp(self.begin, self.end)
    }
}
