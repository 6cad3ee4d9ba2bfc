//! Runs `testdata/*.txt`: commands in, plans and events out. `REWRITE_TESTDATA=1` writes what happens into the files; read
//! the difference before committing it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod fake;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use baton_backend::{InputToken, SlotId, SlotPages, StepPlan};
use baton_core::{
    Attempt, Choice, EngineEvent, GenerateRequest, Guarantee, PromptTimes, RequestId, ReservationId, TokenId,
    TokenRange,
};
use baton_engine::{EngineConfig, ExportId, Exported, Scheduler, SessionEvent};
use baton_protocol::{Command, PrepRecv, RemoteSend, SessionId};
use fake::FakeModel;
use fake::fabric::ScriptedFabric;

const SESSION: SessionId = SessionId(0);

#[test]
fn batching() {
    run("batching.txt");
}

#[test]
fn prefix_cache() {
    run("prefix_cache.txt");
}

#[test]
fn choices() {
    run("choices.txt");
}

#[test]
fn preemption() {
    run("preemption.txt");
}

#[test]
fn in_flight() {
    run("in_flight.txt");
}

#[test]
fn guarantee() {
    run("guarantee.txt");
}

#[test]
fn receiving() {
    run("receiving.txt");
}

#[test]
fn sending() {
    run("sending.txt");
}

#[test]
fn ends() {
    run("ends.txt");
}

fn run(name: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
    let script = std::fs::read_to_string(&path).unwrap();
    let mut happened = String::new();
    let mut world = World::new(&[]);
    for line in script.lines().filter(|line| !line.starts_with("    ")) {
        happened.push_str(line);
        happened.push('\n');
        if !line.is_empty() && !line.starts_with('#') {
            let answers = world.apply(line);
            for answer in answers.into_iter().chain(world.fabric.take_calls()) {
                writeln!(happened, "    {answer}").unwrap();
            }
            world.scheduler.audit().unwrap();
        }
    }
    if std::env::var_os("REWRITE_TESTDATA").is_some() {
        std::fs::write(&path, happened).unwrap();
        return;
    }
    for (number, (expected, got)) in script.lines().zip(happened.lines()).enumerate() {
        assert_eq!(got, expected, "{name}:{}", number + 1);
    }
    assert_eq!(happened.lines().count(), script.lines().count(), "{name}");
}

struct World {
    scheduler: Scheduler,
    model: FakeModel,
    /// Page tables as of the last plan.
    pages: SlotPages,
    /// Plans in flight, oldest first.
    in_flight: VecDeque<StepPlan>,
    fabric: ScriptedFabric,
    /// Which request and choice a slot belongs to.
    slots: BTreeMap<SlotId, String>,
    /// Prompt and outputs of each choice.
    tokens: BTreeMap<String, Vec<TokenId>>,
    steps: u64,
}

impl Drop for World {
    fn drop(&mut self) {
        self.scheduler.close_session(SESSION);
    }
}

impl World {
    /// `pages=8 context=512 slots=8 step_tokens=64 …`
    fn new(options: &[&str]) -> Self {
        let option = |name, default| value(options, name).map_or(default, |value| value.parse().unwrap());
        let mut spec = fake::spec(option("pages", 16), option("slots", 8), option("context", 512));
        spec.steps_in_flight = option("in_flight", 1);
        spec.tokens_per_step = option("tokens_per_step", 1);
        if options.contains(&"by_origin") {
            spec.numerics.guarantee = Guarantee::ByOrigin;
        }
        let config = EngineConfig {
            prefix_cache: options.contains(&"cache"),
            step_tokens: option("step_tokens", 64),
            max_running: option("max_running", 8),
            max_waiting: option("max_waiting", 8),
            landing_timeout: Duration::from_millis(100),
            delivery_timeout: Duration::from_millis(300),
            ..EngineConfig::default()
        };
        let model = FakeModel::new(spec.clone());
        let fabric = ScriptedFabric::new(model.kv());
        let scheduler = Scheduler::new(&config, &spec, Box::new(fabric.clone())).unwrap();
        Self {
            scheduler,
            model,
            pages: SlotPages::new(spec.max_slots, spec.pages_total),
            in_flight: VecDeque::new(),
            fabric,
            slots: BTreeMap::new(),
            tokens: BTreeMap::new(),
            steps: 0,
        }
    }

    fn apply(&mut self, line: &str) -> Vec<String> {
        let words: Vec<_> = line.split_whitespace().collect();
        let mut events = Vec::new();
        match words[..] {
            ["engine", ref options @ ..] => *self = Self::new(options),
            ["generate", name, prompt, ref options @ ..] => {
                let request = request(name, self.prompt(prompt), options);
                for choice in request.choices() {
                    let tokens = [&*request.prompt, &request.outputs[choice.index()]].concat();
                    self.tokens.insert(format!("{name}/{choice}"), tokens);
                }
                let reservation = value(options, "from").map(reservation);
                self.command(Command::Generate { request: Box::new(request), reservation }, &mut events);
            }
            ["reserve", name, prompt, end, ref options @ ..] => {
                let call = PrepRecv {
                    request: id(name),
                    attempt: Attempt(value(options, "attempt").map_or(0, |value| value.parse().unwrap())),
                    prompt: self.prompt(prompt).into(),
                    adapter: None,
                    end: end.parse().unwrap(),
                    lease_ms: value(options, "lease").map(|ms| ms.parse().unwrap()),
                };
                self.command(Command::PrepRecv(Box::new(call)), &mut events);
            }
            ["send", name, prompt, range, "into", room] => {
                let (begin, end) = range.split_once("..").unwrap();
                let call = RemoteSend {
                    request: id(name),
                    attempt: Attempt(0),
                    prompt: self.prompt(prompt).into(),
                    adapter: None,
                    range: TokenRange::new(begin.parse().unwrap(), end.parse().unwrap()).unwrap(),
                    target: room.as_bytes().to_vec(),
                };
                self.command(Command::RemoteSend(Box::new(call)), &mut events);
            }
            ["release", number] => self.command(Command::Release(reservation(number)), &mut events),
            ["abort", name, choice] => {
                let choice = Choice(choice.parse().unwrap());
                self.command(Command::AbortChoice { request: id(name), choice }, &mut events);
            }
            ["abort", name] => self.command(Command::Abort(id(name)), &mut events),
            ["arrive", number, verified] => self.fabric.arrive(reservation(number), verified.parse().unwrap()),
            ["write", number] => self.fabric.write(reservation(number)),
            ["written", number] => {
                let verified = self.fabric.written(reservation(number));
                self.scheduler.revoked(reservation(number), verified);
            }
            ["taken", number] => self.fabric.take(ExportId(number.parse().unwrap())),
            ["land", number, verified] => {
                self.fabric.arrive(reservation(number), verified.parse().unwrap());
                self.scheduler.landed(self.now(), reservation(number), PromptTimes::default());
            }
            ["confirm", number, verified, ref rest @ ..] => {
                let export = ExportId(number.parse().unwrap());
                let verified_tokens = verified.parse().unwrap();
                let exported = Exported { verified_tokens, damaged: rest.contains(&"damaged") };
                self.scheduler.exported(export, Ok(exported), &mut events);
            }
            ["break", number] => {
                let export = ExportId(number.parse().unwrap());
                self.scheduler.exported(export, Err("cut".to_owned()), &mut events);
            }
            ["wait", ms] => {
                self.steps += ms.parse::<u64>().unwrap();
                self.fabric.set_now(self.now());
                self.scheduler.tick(self.now(), &mut events);
            }
            ["step"] => return self.step(),
            ["steps", count] => return (0..count.parse().unwrap()).flat_map(|_: u32| self.step()).collect(),
            ["pass", count] => return self.pass(count.parse().unwrap()),
            ["load"] => return vec![self.load()],
            _ => panic!("not a command: {line}"),
        }
        events.into_iter().map(show_event).collect()
    }

    fn step(&mut self) -> Vec<String> {
        self.steps += 1;
        let now = self.now();
        self.fabric.set_now(now);
        let mut answers = Vec::new();
        while let Some(plan) = self.scheduler.schedule(now) {
            self.pages.apply(plan).unwrap();
            answers.extend(show_plan(plan, &self.pages, &mut self.slots));
            self.in_flight.push_back(plan.clone());
        }
        let Some(plan) = self.in_flight.pop_front() else { return vec!["nothing to do".to_owned()] };
        let mut output = self.model.run(&plan);
        let mut events = Vec::new();
        self.scheduler.complete(now, &mut output, &mut events).unwrap();
        for SessionEvent { event, .. } in &events {
            if let EngineEvent::Token(event) = event {
                let name = format!("r{}/{}", event.request, event.choice);
                self.tokens.get_mut(&name).unwrap().push(event.token);
            }
        }
        answers.extend(events.into_iter().map(show_event));
        answers
    }

    fn command(&mut self, command: Command, events: &mut Vec<SessionEvent>) {
        self.scheduler.apply(self.now(), SESSION, command, events);
    }

    fn now(&self) -> Duration {
        Duration::from_millis(self.steps)
    }

    /// Only the last event of each choice.
    fn pass(&mut self, steps: u32) -> Vec<String> {
        let mut last = BTreeMap::new();
        for event in (0..steps).flat_map(|_| self.step()).filter(|line| line.starts_with("=>")) {
            let name = event.split_whitespace().nth(1).unwrap_or_default().to_owned();
            last.insert(name, event);
        }
        last.into_values().collect()
    }

    /// `A32.B8` is 32 times token 1, then 8 times token 2; `@r1/0.A2` what r1/0 has so far, and 2 tokens more; `-` nothing.
    fn prompt(&self, text: &str) -> Vec<TokenId> {
        if text == "-" {
            return Vec::new();
        }
        let runs = text.split('.').flat_map(|run| match run.strip_prefix('@') {
            Some(name) => self.tokens[name].clone(),
            None => vec![TokenId(u32::from(run.as_bytes()[0] - b'A') + 1); run[1..].parse().unwrap()],
        });
        runs.collect()
    }

    fn load(&mut self) -> String {
        let report = self.scheduler.report();
        let load = report.load;
        format!(
            "running {} waiting {} to prefill {} | pages free {} cached {} of {} | preemptions {} evicted {} prefilled {} cached {}",
            load.running,
            load.waiting,
            load.pending_prefill_tokens,
            load.pages_free,
            load.pages_cached,
            load.pages_total,
            report.counters.preemptions,
            report.counters.evicted_pages,
            report.counters.prefill_tokens,
            report.counters.cached_tokens,
        )
    }
}

fn value<'a>(options: &[&'a str], name: &str) -> Option<&'a str> {
    options.iter().find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
}

/// `r7` is request 7, and its seed is 7.
fn id(name: &str) -> RequestId {
    RequestId(name[1..].parse().unwrap())
}

fn reservation(number: &str) -> ReservationId {
    ReservationId(number.parse().unwrap())
}

fn request(name: &str, prompt: Vec<TokenId>, options: &[&str]) -> GenerateRequest {
    let number = |name, default| value(options, name).map_or(default, |value| value.parse().unwrap());
    let mut request = fake::request(id(name).0, prompt, number("n", 1), number("max", 4) as u32);
    request.attempt = Attempt(number("attempt", 0) as u32);
    request.limits.stop_tokens.extend(value(options, "stop").map(|token| TokenId(token.parse().unwrap())));
    request.prompt_logprobs = options.contains(&"prompt_logprobs").then_some(0);
    if options.contains(&"poisoned") {
        request.sampling.seed = fake::POISONED_SEED;
    }
    // `outputs=5,6/-/7`: what each choice has already, `-` one that has ended.
    for (choice, given) in value(options, "outputs").into_iter().flat_map(|given| given.split('/')).enumerate() {
        match given {
            "-" => request.ended[choice] = true,
            given => request.outputs[choice] = given.split(',').map(|token| TokenId(token.parse().unwrap())).collect(),
        }
    }
    request
}

fn show_plan(plan: &StepPlan, tables: &SlotPages, slots: &mut BTreeMap<SlotId, String>) -> Vec<String> {
    for (slot, sampler) in &plan.admitted {
        let request = match sampler.params.seed {
            fake::POISONED_SEED => "poisoned".to_owned(),
            seed => format!("r{seed}"),
        };
        slots.insert(*slot, format!("{request}/{}", sampler.choice));
    }
    let mut lines: Vec<_> = plan
        .segments
        .iter()
        .map(|segment| {
            let end = segment.first_position + segment.tokens.len();
            let pages: Vec<_> = tables.up_to(segment.slot, end).unwrap().iter().map(ToString::to_string).collect();
            let unknown = plan.tokens[segment.tokens.clone()].contains(&InputToken::LastSampled);
            let unknown = if unknown { ", not known yet" } else { "" };
            let sample = match segment.output.samples {
                0 => String::new(),
                1 => ", sample".to_owned(),
                most => format!(", sample {most}"),
            };
            let name = &slots[&segment.slot];
            format!("{name} [{}, {end}) in {}{unknown}{sample}", segment.first_position, pages.join(" "))
        })
        .collect();
    if lines.is_empty() {
        lines.push(format!("release {}", plan.released.len()));
    }
    lines
}

fn show_event(SessionEvent { event, .. }: SessionEvent) -> String {
    match event {
        EngineEvent::Prompt(event) => {
            let logprobs = event.logprobs.map_or(String::new(), |found| format!(", {} logprobs", found.len()));
            format!("=> r{} prompt, {} cached{logprobs}", event.request, event.cached_tokens)
        }
        EngineEvent::Token(event) => {
            let finish = event.finish.map_or(String::new(), |finish| format!(" {finish:?}"));
            format!("=> r{}/{} #{} {}{finish}", event.request, event.choice, event.index, event.token)
        }
        EngineEvent::Reserved(event) => {
            format!("=> r{} reservation {}, {} matched", event.request, event.reservation, event.matched)
        }
        EngineEvent::Sent(event) => format!("=> r{} sent {}", event.request, event.verified_tokens),
        EngineEvent::Failed(event) => {
            format!("=> r{} failed, {:?} {:?}: {}", event.request, event.error.fault, event.error.retry, event.error)
        }
    }
}
