//! Hand-offs over the real fabric: its receiver and sender behind [`HandOff`], its answers into the step loop's inbox.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_core::{
    EngineCounters, PAGE_TOKENS, PageId, PromptTimes, ReservationId, ServeError, ShardCounters, TokenRange,
};
use baton_fabric::{
    Chunk, Export, FabricCounters, FabricError, FabricOptions, KvMemory, KvTarget, LayerCounter, PortKey, PortLimits,
    Receiver, ReceiverEvent, Sender, ShardLayout, checksum,
};
use baton_protocol::Secret;
use serde::{Deserialize, Serialize};

use crate::handoff::{Computed, ExportId, Exported, HandOff, HandedPrompt, PageOffer};
use crate::inbox::{Inbox, Message};

const TOO_MANY_RETRY_MS: u32 = 1000;
const KEY_PURPOSE: &str = "baton kv 1 deployment secret";

/// How other engines reach this one's KV.
pub struct Fabric {
    pub listener: TcpListener,
    /// What senders connect to, when it is not the listener's own address.
    pub advertised: Option<SocketAddr>,
    /// Shared memory where both ends are on one host; without it everything goes by TCP.
    pub shm: bool,
    /// Only engines that hold the same one hand KV over to each other.
    pub secret: Secret,
    /// Outgoing KV is held to this pace.
    pub limit_bytes_per_s: Option<u64>,
}

pub(crate) struct FabricHandOff {
    memory: Arc<dyn KvMemory>,
    shards: Vec<ShardLayout>,
    receiver: Receiver,
    sender: Sender,
    advertised: Option<SocketAddr>,
    counters: Arc<FabricCounters>,
    inbox: Arc<Inbox>,
    /// Zero of the step loop's time.
    started: Instant,
    expected: BTreeMap<ReservationId, KvTarget>,
    exports: BTreeMap<ExportId, Export>,
    /// The backend's count before the first step.
    layers_before: u64,
}

/// What a reservation's target holds, as it travels through routers.
#[derive(Serialize, Deserialize)]
struct Target {
    kv: KvTarget,
    /// Of `prompt[..end]` and its adapter: other KV must not end up in these pages, whatever a router mixes up.
    prompt: u64,
}

impl FabricHandOff {
    pub(crate) fn start(
        fabric: Fabric,
        memory: &Arc<dyn KvMemory>,
        layers_done: LayerCounter,
        numerics_id: &str,
        inbox: &Arc<Inbox>,
        started: Instant,
    ) -> Result<Self, FabricError> {
        let counters = Arc::new(FabricCounters::default());
        let messages = Arc::clone(inbox);
        let options = FabricOptions {
            numerics_id: numerics_id.to_owned(),
            shm_allowed: fabric.shm,
            key: PortKey::new(fabric.secret.key_for(KEY_PURPOSE)),
            limits: PortLimits::default(),
        };
        let on_event = move |event| {
            let message = match event {
                ReceiverEvent::Landed { reservation, times, .. } => {
                    Message::Landed(ReservationId(reservation.id), times)
                }
                ReceiverEvent::Revoked { reservation, verified_tokens } => {
                    Message::Revoked(ReservationId(reservation.id), verified_tokens as usize)
                }
            };
            // Refused only when the loop has ended: nothing waits then.
            let _ = messages.push(message);
        };
        let receiver =
            Receiver::start(fabric.listener, Arc::clone(memory), options.clone(), Arc::clone(&counters), on_event)?;
        let layers_before = layers_done.done();
        let sender = Sender::new(Arc::clone(memory), layers_done, options, Arc::clone(&counters))?;
        fabric.limit_bytes_per_s.iter().for_each(|&limit| sender.limit(limit));
        Ok(Self {
            memory: Arc::clone(memory),
            shards: memory.shard_layouts(),
            receiver,
            sender,
            advertised: fabric.advertised,
            counters,
            inbox: Arc::clone(inbox),
            started,
            expected: BTreeMap::new(),
            exports: BTreeMap::new(),
            layers_before,
        })
    }
}

impl HandOff for FabricHandOff {
    fn expect(
        &mut self,
        id: ReservationId,
        prompt: HandedPrompt<'_>,
        begin: usize,
        pages: &[PageId],
    ) -> Result<Vec<u8>, ServeError> {
        let expected = self.receiver.expect(id.0, begin as u32, prompt.tokens.len() as u32, pages.to_vec());
        let mut kv = expected.map_err(to_serve_error)?;
        kv.address = self.advertised.unwrap_or(kv.address);
        self.expected.insert(id, kv.clone());
        let target = Target { kv, prompt: digest(prompt) };
        postcard::to_stdvec(&target).map_err(|error| ServeError::engine(format!("cannot write a target: {error}")))
    }

    fn revoke(&mut self, id: ReservationId) -> Option<usize> {
        let Some(target) = self.expected.remove(&id) else { return Some(0) };
        self.receiver.revoke(&target).map(|tokens| tokens as usize)
    }

    fn last_arrival(&mut self, id: ReservationId) -> Duration {
        let at = self.expected.get(&id).and_then(|target| self.receiver.last_arrival(target));
        at.map_or(Duration::ZERO, |at| at.saturating_duration_since(self.started))
    }

    fn begin_export(
        &mut self,
        id: ExportId,
        prompt: HandedPrompt<'_>,
        target: &[u8],
    ) -> Result<TokenRange, ServeError> {
        let target: Target = postcard::from_bytes(target)
            .map_err(|error| ServeError::caller(format!("not a hand-off target: {error}")).about("kv_addr_info"))?;
        self.sender.check(&target.kv).map_err(to_serve_error)?;
        let (begin, end) = (target.kv.begin, target.kv.end);
        let range =
            TokenRange::new(begin, end).ok_or_else(|| ServeError::caller("a target that ends before it begins"))?;
        let HandedPrompt { tokens, adapter } = prompt;
        match tokens.get(..end as usize).map(|tokens| digest(HandedPrompt { tokens, adapter })) {
            Some(ours) if ours == target.prompt => {}
            ours => {
                let ours = ours.map_or_else(|| format!("only {} tokens", tokens.len()), |ours| format!("{ours:016x}"));
                let theirs = target.prompt;
                return Err(ServeError::conflict(format!(
                    "the receiver waits for another prompt: its first {end} tokens have hash {theirs:016x}, here {ours}"
                ))
                .about("prompt"));
            }
        }
        let inbox = Arc::clone(&self.inbox);
        let verified = move |pages: u32| (begin as usize + pages as usize * PAGE_TOKENS).min(end as usize);
        let export = self.sender.begin(&target.kv, move |outcome| {
            let exported =
                outcome.map(|d| Exported { verified_tokens: verified(d.verified_pages), damaged: d.damaged });
            let _ = inbox.push(Message::Exported(id, exported));
        });
        self.exports.insert(id, export.map_err(to_serve_error)?);
        Ok(range)
    }

    fn offer(&mut self, offer: PageOffer) {
        let PageOffer { export, first_index, pages, computed, last } = offer;
        let Some(export) = self.exports.get(&export) else { return };
        let computed = match computed {
            Computed::Already => baton_fabric::Computed::Already,
            Computed::InStep(step) => {
                let layers = u64::from(self.memory.layout().layers);
                baton_fabric::Computed::AfterLayers { before: self.layers_before + step * layers }
            }
        };
        export.offer(Chunk { first_index: first_index as u32, pages, computed, last });
    }

    fn finish_export(&mut self, id: ExportId, times: PromptTimes) {
        if let Some(export) = self.exports.get(&id) {
            export.finish(times);
        }
    }

    fn last_taken(&mut self, id: ExportId) -> Duration {
        let at = self.exports.get(&id).and_then(Export::last_taken);
        at.map_or(Duration::ZERO, |at| at.saturating_duration_since(self.started))
    }

    fn close_export(&mut self, id: ExportId) {
        self.exports.remove(&id);
    }

    fn count(&self, counters: &mut EngineCounters) {
        let from = &*self.counters;
        counters.kv_pages_received = FabricCounters::get(&from.pages_received);
        counters.kv_bytes_received = FabricCounters::get(&from.bytes_received);
        counters.kv_bytes_sent = FabricCounters::get(&from.bytes_sent);
        counters.kv_bytes_sent_early = FabricCounters::get(&from.bytes_sent_early);
        counters.kv_copy_us = FabricCounters::get(&from.copy_us);
        counters.checksum_failures = FabricCounters::get(&from.checksum_failures);
        counters.stale_blocks = FabricCounters::get(&from.stale_blocks);
        counters.unknown_offers = FabricCounters::get(&from.unknown_offers);
    }

    fn shards(&self) -> Vec<ShardCounters> {
        let shards = self.counters.by_shard(&self.shards).into_iter();
        let shards = shards.map(|(kv_bytes_received, kv_bytes_sent)| ShardCounters {
            kv_bytes_received,
            kv_bytes_sent,
            ..ShardCounters::default()
        });
        shards.collect()
    }
}

fn digest(prompt: HandedPrompt<'_>) -> u64 {
    let tokens = prompt.tokens.iter().flat_map(|token| token.0.to_le_bytes());
    let adapter = prompt.adapter.iter().flat_map(|adapter| adapter.0.to_le_bytes());
    checksum(&tokens.chain(adapter).collect::<Vec<u8>>())
}

fn to_serve_error(error: FabricError) -> ServeError {
    let message = error.to_string();
    match error {
        FabricError::Mismatch { .. } => ServeError::conflict(message).about("kv_addr_info"),
        FabricError::BadTarget(_) => ServeError::caller(message).about("kv_addr_info"),
        FabricError::TooMany => ServeError::busy(message, TOO_MANY_RETRY_MS),
        FabricError::Connect(_) | FabricError::Broken(_) | FabricError::Refused(_) | FabricError::Memory(_) => {
            ServeError::engine(message)
        }
    }
}
