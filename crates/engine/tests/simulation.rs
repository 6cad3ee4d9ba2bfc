//! Scheduler and kv under thousands of random steps: arrivals, aborts, lost sessions, several choices, tiny pools. Every
//! stream must be what the model generates alone, and no page may be lost.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod fake;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use baton_backend::StepPlan;
use baton_core::{Attempt, BlockHash, CacheEvent, Fault, GenerateRequest, Guarantee, RequestId, TokenId};
use baton_engine::{EngineConfig, NoHandOff, Scheduler, SessionEvent};
use baton_protocol::SessionId;
use fake::stream::{Stream, Taken};
use fake::{FakeModel, Random};

const SEEDS: u64 = 300;
const ARRIVAL_STEPS: u64 = 400;

#[test]
fn streams_are_exact_and_pages_are_never_lost() {
    let mut totals = Totals::default();
    for seed in 0..SEEDS {
        simulate(seed, &mut totals);
    }
    // A simulation in which nothing happens proves nothing.
    println!("{totals:?}");
    assert!(totals.preemptions > 300 && totals.evicted_pages > 1000 && totals.cached_tokens > 10_000, "{totals:?}");
    assert!(totals.aborted > 100 && totals.failed > 50 && totals.busy > 20 && totals.finished > 5_000, "{totals:?}");
    assert!(totals.void_samples > 1000, "{totals:?}");
    assert!(totals.cache_events > 10_000, "{totals:?}");
}

#[derive(Debug, Default)]
struct Totals {
    preemptions: u64,
    evicted_pages: u64,
    cached_tokens: u64,
    aborted: u64,
    finished: u64,
    failed: u64,
    busy: u64,
    /// Sampled by a step that was planned before its sequence had ended.
    void_samples: u64,
    cache_events: u64,
}

struct World {
    random: Random,
    scheduler: Scheduler,
    model: FakeModel,
    /// Plans in flight, oldest first.
    in_flight: VecDeque<StepPlan>,
    context_tokens: usize,
    open: BTreeMap<(SessionId, RequestId), Stream>,
    next_request: u64,
    /// What the prefix cache holds by its events, where they are recorded.
    followed: Option<BTreeSet<BlockHash>>,
}

fn simulate(seed: u64, totals: &mut Totals) {
    let mut random = Random(seed);
    let pages = random.between(2, 40) as usize;
    let slots = random.between(1, 12) as usize;
    let context = random.between(40, 500) as usize;
    let config = EngineConfig {
        prefix_cache: random.chance(60),
        step_tokens: [1, 7, 32, 100, 512, 2048][random.below(6) as usize],
        max_running: random.between(1, 16) as usize,
        max_waiting: random.between(4, 30) as usize,
        ..EngineConfig::default()
    };
    let mut spec = fake::spec(pages, slots, context);
    spec.steps_in_flight = 1 + seed as usize % 2;
    spec.tokens_per_step = 1 + (seed as usize / 2 % 2) * (seed as usize / 4 % 40);
    spec.numerics.guarantee = if random.chance(50) { Guarantee::ByOrigin } else { Guarantee::ByToken };
    let scheduler = Scheduler::new(&config, &spec, Box::new(NoHandOff)).unwrap();
    let context_tokens = scheduler.context_tokens();
    let model = FakeModel::new(spec);
    let (in_flight, open) = (VecDeque::new(), BTreeMap::new());
    let mut world =
        World { random, scheduler, model, in_flight, context_tokens, open, next_request: 0, followed: None };

    let mut step = 0;
    while step < ARRIVAL_STEPS || world.scheduler.has_requests() {
        if step < ARRIVAL_STEPS {
            world.disturb(step, totals);
        }
        world.step(step, totals);
        step += 1;
        assert!(step < 100 * ARRIVAL_STEPS, "seed {seed}: {} requests never end", world.open.len());
    }
    assert!(world.open.is_empty(), "seed {seed}: requests without an end");
    while !world.scheduler.is_idle() {
        world.step(step, totals);
    }
    assert_eq!(world.model.slots_in_use(), 0, "seed {seed}: slots left over");
    let report = world.scheduler.report();
    assert_eq!(report.load.pages_free + report.load.pages_cached, pages as u32, "seed {seed}");
    assert_eq!(report.load.pending_prefill_tokens, 0);
    totals.preemptions += report.counters.preemptions;
    totals.evicted_pages += report.counters.evicted_pages;
    totals.cached_tokens += report.counters.cached_tokens;
    totals.aborted += report.counters.aborted;
    totals.finished += report.counters.finished;
    totals.void_samples += world.model.samples - report.counters.generated_tokens;
}

impl World {
    fn disturb(&mut self, step: u64, totals: &mut Totals) {
        while self.random.chance(12) {
            self.arrive(step, totals);
        }
        if self.random.chance(1)
            && let Some(&(session, request)) = self.any_open()
        {
            self.scheduler.abort(session, request);
            self.open.remove(&(session, request));
        }
        if self.random.below(500) == 0 {
            let session = SessionId(self.random.below(3));
            self.scheduler.close_session(session);
            self.open.retain(|key, _| key.0 != session);
        }
        if self.random.chance(1)
            && let Some(&key) = self.any_open()
        {
            self.resume(key, step);
        }
    }

    fn any_open(&mut self) -> Option<&(SessionId, RequestId)> {
        let at = self.random.below(self.open.len().max(1) as u64) as usize;
        self.open.keys().nth(at)
    }

    fn arrive(&mut self, step: u64, totals: &mut Totals) {
        let random = &mut self.random;
        let session = SessionId(random.below(3));
        let longest = self.context_tokens as u64 + 20;
        let prompt_tokens =
            if random.chance(70) { random.between(1, longest.min(100)) } else { random.between(1, longest) };
        // Few distinct prompts, so that prefixes meet.
        let family = random.below(3) as u32;
        let fork = random.below(prompt_tokens + 1);
        let mut prompt: Vec<_> = (0..prompt_tokens)
            .map(|at| TokenId(if at < fork { (family + at as u32) % 50 } else { random.below(50) as u32 }))
            .collect();
        // The next turn of a conversation: its prompt is another request's prompt and what that has generated.
        if random.chance(40)
            && let Some(&key) = self.any_open()
            && let Some(stream) = self.open.get(&key)
        {
            let history = [&*stream.request.prompt, &stream.outputs[0]].concat();
            let room = self.context_tokens.saturating_sub(history.len());
            prompt.truncate(room.min(20));
            prompt.splice(..0, history);
        }
        let random = &mut self.random;
        let choices = if random.chance(25) { random.between(2, 4) } else { 1 } as usize;
        let max_tokens = if random.chance(5) { 0 } else { random.between(1, 200) as u32 };
        let mut request = fake::request(self.next_request, prompt, choices, max_tokens);
        self.next_request += 1;
        if random.chance(30) {
            request.limits.stop_tokens = vec![TokenId(3), TokenId(17)];
        }
        if random.chance(15) {
            request.prompt_logprobs = Some(0);
        }
        if random.chance(2) {
            request.sampling.seed = fake::POISONED_SEED;
        }
        self.start(session, request, step, totals);
    }

    fn start(&mut self, session: SessionId, request: GenerateRequest, step: u64, totals: &mut Totals) {
        let fits = request.prompt.len() + usize::from(request.limits.max_tokens > 0) <= self.context_tokens;
        match self.scheduler.generate(Duration::from_millis(step), session, request.clone(), None) {
            Ok(()) => {
                assert!(fits, "{} tokens in a context of {}", request.prompt.len(), self.context_tokens);
                self.open.insert((session, request.id), Stream::new(request, step));
            }
            Err(error) if error.fault == Fault::Capacity => totals.busy += 1,
            Err(error) => assert!(!fits && error.fault == Fault::Caller, "{error}"),
        }
    }

    /// A router that lost track requests the rest again.
    fn resume(&mut self, key: (SessionId, RequestId), step: u64) {
        let Some(stream) = self.open.get(&key) else { return };
        let mut request = stream.request.clone();
        request.attempt = Attempt(request.attempt.0 + 1);
        request.ended = request.choices().map(|choice| stream.has_ended(choice.index(), self.context_tokens)).collect();
        request.outputs.clone_from(&stream.outputs);
        match self.scheduler.generate(Duration::from_millis(step), key.0, request.clone(), None) {
            Ok(()) => {
                self.open.insert(key, Stream::new(request, step));
            }
            // The attempt before it is gone all the same.
            Err(error) => {
                assert_eq!(error.fault, Fault::Capacity);
                self.open.remove(&key);
            }
        }
    }

    fn step(&mut self, step: u64, totals: &mut Totals) {
        let now = Duration::from_millis(step);
        let mut events = Vec::new();
        while let Some(plan) = self.scheduler.schedule(now) {
            self.in_flight.push_back(plan.clone());
        }
        match self.in_flight.pop_front() {
            Some(plan) => {
                let mut output = self.model.run(&plan);
                self.scheduler.complete(now, &mut output, &mut events).unwrap();
            }
            None => self.scheduler.check_not_stuck().unwrap(),
        }
        for event in events {
            self.check(event, step, totals);
        }
        self.scheduler.audit().unwrap();
        self.follow_cache(totals);
    }

    /// From some step on: after every change the events add up to what is cached.
    fn follow_cache(&mut self, totals: &mut Totals) {
        if self.followed.is_none() && self.random.chance(1) {
            self.followed = Some(held(&self.scheduler.cache_snapshot()));
        }
        let Some(followed) = &mut self.followed else { return };
        let Some(changes) = self.scheduler.take_cache_changes() else { return };
        assert_eq!(changes.first, 0, "changes were lost");
        if changes.events.is_empty() {
            return;
        }
        totals.cache_events += changes.events.len() as u64;
        apply(&changes.events, followed);
        assert_eq!(*followed, held(&self.scheduler.cache_snapshot()));
    }

    fn check(&mut self, SessionEvent { session, event }: SessionEvent, step: u64, totals: &mut Totals) {
        let key = (session, event.request());
        let stream = self.open.get_mut(&key).expect("events only for open requests");
        match stream.take(event, self.context_tokens) {
            Taken::More => {}
            Taken::Failed(_) => {
                totals.failed += 1;
                self.open.remove(&key);
            }
            Taken::End => {
                assert!(step - stream.opened_at_step < 20 * ARRIVAL_STEPS, "starved");
                self.open.remove(&key);
            }
        }
    }
}

fn held(snapshot: &[CacheEvent]) -> BTreeSet<BlockHash> {
    let mut held = BTreeSet::new();
    apply(snapshot, &mut held);
    held
}

fn apply(events: &[CacheEvent], held: &mut BTreeSet<BlockHash>) {
    for event in events {
        match event {
            CacheEvent::Stored { parent, blocks } => {
                assert!(parent.is_none_or(|parent| held.contains(&parent)), "stored behind nothing");
                assert!(blocks.iter().all(|block| held.insert(*block)), "stored twice");
            }
            CacheEvent::Removed { blocks } => assert!(blocks.iter().all(|block| held.remove(block)), "was not held"),
            CacheEvent::Reset => held.clear(),
        }
    }
}
