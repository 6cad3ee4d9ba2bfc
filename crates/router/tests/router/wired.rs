//! Engines that hand KV over as a test wrote down. What arrives where is counted in tokens; a reservation is open until it
//! is given back or a prompt was computed with it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use baton_core::{
    BlockHash, CacheEvent, CacheUpdate, EngineCounters, EngineEvent, EngineInfo, EngineLoad, EngineReport, FailedEvent,
    GenerateRequest, ReservationId, ServeError, TokenId, TokenRange,
};
use baton_protocol::{CacheFollower, Destination, Engine, Heartbeats, Reservation, Sent, TokenStream};
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use crate::scripted::{Heart, info, prompt_event, token_event};
use crate::wire::{Landing, MS, OnGenerate, OnPrepRecv, OnRemoteSend, Script, Wire};

pub(crate) struct Wired {
    info: EngineInfo,
    wire: Arc<Wire>,
    script: Mutex<Script>,
    /// Prompt tokens in its prefix cache.
    pub(crate) cached: u32,
    pub(crate) load: Mutex<EngineLoad>,
    /// What it says it has spent on prompts.
    pub(crate) prefill_us: AtomicU64,
    alive: Arc<Alive>,
    pub(crate) heart: Heart,
    follower: Mutex<Option<Arc<dyn CacheFollower>>>,
    pub(crate) reserved: AtomicUsize,
    open_reservations: Arc<Mutex<BTreeSet<ReservationId>>>,
    pub(crate) sends: Mutex<Vec<TokenRange>>,
    pub(crate) open_sends: Arc<AtomicUsize>,
    pub(crate) started: Mutex<Vec<GenerateRequest>>,
    /// Prompt tokens computed for requests that started here.
    pub(crate) computed_tokens: Arc<AtomicU64>,
}

struct Alive {
    flag: AtomicBool,
    died: watch::Sender<bool>,
}

impl Wired {
    pub(crate) fn new(wire: &Arc<Wire>) -> Self {
        Self {
            info: info(),
            wire: Arc::clone(wire),
            script: Mutex::default(),
            cached: 0,
            load: Mutex::default(),
            prefill_us: AtomicU64::new(0),
            alive: Arc::new(Alive { flag: AtomicBool::new(true), died: watch::Sender::new(false) }),
            heart: Heart::default(),
            follower: Mutex::default(),
            reserved: AtomicUsize::new(0),
            open_reservations: Arc::default(),
            sends: Mutex::default(),
            open_sends: Arc::default(),
            started: Mutex::default(),
            computed_tokens: Arc::default(),
        }
    }

    pub(crate) fn with(self, script: Script) -> Self {
        Self { script: Mutex::new(script), ..self }
    }

    pub(crate) fn with_numerics(mut self, id: &str) -> Self {
        self.info.numerics_id = id.into();
        self
    }

    pub(crate) fn with_cached(self, cached: u32) -> Self {
        Self { cached, ..self }
    }

    /// Its prefix cache holds the first `pages` of this prompt.
    pub(crate) fn report_cached(&self, prompt: &[TokenId], pages: usize) {
        let blocks = BlockHash::chain(prompt, None).take(pages).collect();
        let events = vec![CacheEvent::Reset, CacheEvent::Stored { parent: None, blocks }];
        let follower = self.follower.lock().unwrap().clone().unwrap();
        follower.cache_changed(CacheUpdate { first: 0, events });
    }

    pub(crate) fn starts(&self) -> usize {
        self.started.lock().unwrap().len()
    }

    pub(crate) fn sends(&self) -> usize {
        self.sends.lock().unwrap().len()
    }

    /// A process that died holds nothing.
    pub(crate) fn open_reservations(&self) -> usize {
        if self.is_alive() { self.open_reservations.lock().unwrap().len() } else { 0 }
    }

    pub(crate) fn die(&self) {
        self.alive.die();
    }
}

impl Alive {
    fn die(&self) {
        self.flag.store(false, Ordering::Relaxed);
        self.died.send_replace(true);
    }

    async fn died(&self) {
        self.died.subscribe().wait_for(|died| *died).await.map(drop).unwrap();
    }
}

fn gone() -> ServeError {
    ServeError::engine("gone")
}

impl Engine for Wired {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn report(&self) -> EngineReport {
        let prefill_us = self.prefill_us.load(Ordering::Relaxed);
        let counters = EngineCounters { prefill_us, ..EngineCounters::default() };
        EngineReport { load: *self.load.lock().unwrap(), counters, ..EngineReport::default() }
    }

    fn heartbeats(&self) -> Option<Heartbeats> {
        Some(self.heart.beats())
    }

    fn follow_cache(&self, follower: Arc<dyn CacheFollower>) {
        *self.follower.lock().unwrap() = Some(follower);
    }

    fn is_alive(&self) -> bool {
        self.alive.flag.load(Ordering::Relaxed)
    }

    fn prep_recv(&self, request: &GenerateRequest, end: u32) -> BoxFuture<'static, Result<Reservation, ServeError>> {
        assert!(end as usize <= request.prompt.len());
        let matched = self.cached.min(end) / 32 * 32;
        let (act, alive) = (self.script.lock().unwrap().prep_recv.pop_front(), Arc::clone(&self.alive));
        let (wire, open) = (Arc::clone(&self.wire), Arc::clone(&self.open_reservations));
        let id = ReservationId(self.reserved.fetch_add(1, Ordering::Relaxed) as u64);
        Box::pin(async move {
            sleep(MS(1)).await;
            match act {
                _ if *alive.died.borrow() => return Err(gone()),
                None => {}
                Some(OnPrepRecv::Fail(error)) => return Err(error),
                Some(OnPrepRecv::Die) => {
                    alive.die();
                    return Err(gone());
                }
                Some(OnPrepRecv::Hang) => std::future::pending().await,
            }
            open.lock().unwrap().insert(id);
            let target = wire.open();
            let destination = Destination { matched, end, target: target.to_le_bytes().into() };
            Ok(Reservation::new(id, destination, move |id| {
                open.lock().unwrap().remove(&id);
                wire.landing(target).send_modify(|landing| landing.no_more = true);
            }))
        })
    }

    fn remote_send(
        &self,
        _: &GenerateRequest,
        to: &Destination,
        range: TokenRange,
    ) -> BoxFuture<'static, Result<Sent, ServeError>> {
        self.sends.lock().unwrap().push(range);
        let (act, alive) = (self.script.lock().unwrap().remote_send.pop_front(), Arc::clone(&self.alive));
        let landing = self.wire.landing(usize::from_le_bytes((*to.target).try_into().unwrap()));
        let open = Open::new(&self.open_sends);
        Box::pin(async move {
            let _open = open;
            tokio::select! {
                () = sleep(MS(10)) => {}
                () = alive.died() => return Err(gone()),
            }
            let verified_tokens = match act {
                None => range.len() as u32,
                Some(OnRemoteSend::Damage { verified }) => verified,
                Some(OnRemoteSend::Fail(error)) => return Err(error),
                Some(OnRemoteSend::Die) => {
                    alive.die();
                    return Err(gone());
                }
                Some(OnRemoteSend::Hang) => std::future::pending().await,
            };
            landing.send_modify(|landing| landing.verified = landing.verified.max(verified_tokens));
            Ok(Sent { verified_tokens })
        })
    }

    fn start_generate(
        &self,
        request: GenerateRequest,
        handoff: Option<(Reservation, Option<Sent>)>,
    ) -> BoxFuture<'static, Result<TokenStream, ServeError>> {
        let act = self.script.lock().unwrap().generate.pop_front();
        self.started.lock().unwrap().push(request.clone());
        if let Some(OnGenerate::Refuse(error)) = act {
            return Box::pin(async { Err(error) });
        }
        let (reservation, sent) = handoff.unzip();
        let kv = reservation.as_ref().map(|reservation| {
            let landing = self.wire.landing(usize::from_le_bytes((*reservation.target).try_into().unwrap()));
            Awaited { landing, id: reservation.id(), matched: reservation.matched, wanted: reservation.end }
        });
        let (out, events) = mpsc::unbounded_channel();
        let run = Run {
            kv,
            cached: self.cached,
            open: Arc::clone(&self.open_reservations),
            computed_tokens: Arc::clone(&self.computed_tokens),
            alive: Arc::clone(&self.alive),
            act,
        };
        let id = request.id;
        let task = tokio::spawn(run.generate(request, out));
        let mut stream = TokenStream::new(id, events, move |_| task.abort()).with(reservation);
        if sent.flatten().is_some() {
            stream.expect_no_more();
        }
        Box::pin(async { Ok(stream) })
    }
}

struct Awaited {
    landing: watch::Sender<Landing>,
    id: ReservationId,
    matched: u32,
    wanted: u32,
}

struct Run {
    kv: Option<Awaited>,
    cached: u32,
    open: Arc<Mutex<BTreeSet<ReservationId>>>,
    computed_tokens: Arc<AtomicU64>,
    alive: Arc<Alive>,
    act: Option<OnGenerate>,
}

impl Run {
    async fn generate(self, request: GenerateRequest, out: mpsc::UnboundedSender<EngineEvent>) {
        let alive = Arc::clone(&self.alive);
        tokio::select! {
            biased;
            () = alive.died() => {}
            () = self.steps(&request, &out) => {}
        }
    }

    async fn steps(self, request: &GenerateRequest, out: &mpsc::UnboundedSender<EngineEvent>) {
        if matches!(self.act, Some(OnGenerate::DieBeforePrompt)) {
            sleep(MS(5)).await;
            return self.alive.die();
        }
        let mut there = self.cached.min(request.prompt.len() as u32 - 1) / 32 * 32;
        if let Some(kv) = self.kv {
            let missing = kv.wanted - kv.matched;
            let landed = kv.landing.subscribe().wait_for(|at| at.verified >= missing || at.no_more).await.map(|at| *at);
            there = kv.matched + landed.unwrap().verified;
            self.open.lock().unwrap().remove(&kv.id);
        }
        self.computed_tokens.fetch_add(request.prompt.len() as u64 - u64::from(there), Ordering::Relaxed);
        let send = |event| drop(out.send(event));
        send(prompt_event(request));
        for index in 0..request.limits.max_tokens {
            sleep(MS(1)).await;
            match &self.act {
                Some(OnGenerate::DieAfter(tokens)) if *tokens == index => return self.alive.die(),
                Some(OnGenerate::FailAfter(tokens, error)) if *tokens == index => {
                    let (request, attempt, error) = (request.id, request.attempt, error.clone());
                    return send(EngineEvent::Failed(FailedEvent { request, attempt, error }));
                }
                _ => {}
            }
            for choice in request.unfinished_choices() {
                let known = request.outputs[choice.index()].len() as u32;
                if known + index < request.limits.max_tokens {
                    send(token_event(request, request.attempt, choice, known + index));
                }
            }
        }
    }
}

struct Open(Arc<AtomicUsize>);

impl Open {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
