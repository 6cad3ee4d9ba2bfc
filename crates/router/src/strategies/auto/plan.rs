//! All placements of one request, with what is to be expected of each. Pure: numbers in, numbers out.

use std::sync::Arc;

use baton_core::GenerateRequest;

use super::engine_view::{EngineNow, EngineView};
use super::learned::{HandOffCost, Learned};
use crate::decision::{Expected, Forecast, Placement};

/// Shares of a prompt that the decode engine may compute itself. 0: all but the last token is computed for it.
const SPLITS: [f64; 5] = [0.0, 0.1, 0.2, 0.35, 0.5];

/// Engines of each kind that placements are made of: those that would be first by themselves.
const CANDIDATES: usize = 6;

/// Prompts that are shorter than this are not worth a hand-off's three calls.
const SHORTEST_HAND_OFF: u64 = 64;

/// A second of a missed target counts as this number of seconds of delay.
const PENALTY: f64 = 10.0;

/// KV that does not fit makes others lose theirs: seconds for each time that all of an engine's would be needed.
const SHORTAGE: f64 = 30.0;

/// Prompts that come later can still go elsewhere: this share of a queue's growth reaches them.
const WAITS_FOR_IT: f64 = 0.33;

/// Of engines that failed this request before.
const LAST_RESORT: f64 = 1e6;

/// Simpler placements are kept unless another is expected to save this share.
const MARGIN: f64 = 0.02;

/// The request, in numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub(super) prompt_tokens: u64,
    /// Prompt and what earlier attempts have generated.
    pub(super) tokens: u64,
    pub(super) choices: u64,
    /// Each choice's, as far as can be known.
    pub(super) answer_tokens: f64,
    pub(super) needs_whole_prompt: bool,
    /// Seconds that no model explains.
    pub(super) lateness: f64,
}

/// Milliseconds; 0 is no target.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Targets {
    pub(super) ttft_ms: f64,
    pub(super) tpot_ms: f64,
}

/// Engines by their place in what was given.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) decode: usize,
    /// Who computes the prompt up to where.
    pub(super) prefill: Option<(usize, u32)>,
    pub(super) expected: Expected,
    /// Of the prompt, that the decode and the prefill engine compute.
    tokens: [u64; 2],
    choices: u64,
    /// Seconds, all things considered.
    cost: f64,
}

impl Task {
    pub(super) fn of(request: &GenerateRequest, learned: &Learned) -> Self {
        let generated = request.outputs.iter().map(Vec::len).max().unwrap_or(0);
        let most = f64::from(request.limits.max_tokens) - generated as f64;
        let prompt_tokens = request.prompt.len();
        // Without a token that ends it, an answer has the length that was requested.
        let expected = match request.limits.stop_tokens.is_empty() {
            true => most,
            false => learned.answer_tokens(prompt_tokens).max(f64::from(request.limits.min_tokens)),
        };
        Self {
            prompt_tokens: prompt_tokens as u64,
            tokens: (prompt_tokens + generated) as u64,
            choices: request.unfinished_choices().count().max(1) as u64,
            answer_tokens: expected.min(most).max(1.0),
            needs_whole_prompt: request.needs_whole_prompt(),
            lateness: learned.lateness(),
        }
    }

    fn context(&self) -> u64 {
        self.tokens + self.answer_tokens as u64 / 2
    }
}

/// Best first.
pub(super) fn plan(engines: &[EngineView], task: &Task, hand_off: &HandOffCost, targets: &Targets) -> Vec<Planned> {
    let states: Vec<&EngineNow> = engines.iter().map(|view| &view.state).collect();
    let pairs = |prefill: usize, decode: usize| engines[prefill].pick.is_exact_with(&engines[decode].pick);
    plan_states(&states, &pairs, task, hand_off, targets)
}

fn plan_states(
    engines: &[&EngineNow],
    pairs: &dyn Fn(usize, usize) -> bool,
    task: &Task,
    hand_off: &HandOffCost,
    targets: &Targets,
) -> Vec<Planned> {
    let weigh = |planned: Planned| planned.weighed(engines, task, targets);
    let generating = (0..engines.len()).filter(|&at| engines[at].generates);
    let mut whole: Vec<Planned> = generating.map(|decode| weigh(Planned::whole(engines, decode, task))).collect();
    sort(&mut whole);
    let mut planned = whole.clone();
    if task.prompt_tokens >= SHORTEST_HAND_OFF && !task.needs_whole_prompt {
        let mut prefilling: Vec<usize> = (0..engines.len()).filter(|&at| engines[at].prefills).collect();
        let until_computed = |at: &usize| {
            let engine = engines[*at];
            let rest = task.prompt_tokens.saturating_sub(engine.cached_tokens);
            let failed = if engine.is_last_resort { LAST_RESORT } else { 0.0 };
            failed + engine.prefill_wait + engine.prefill_time(engine.cached_tokens, rest)
        };
        prefilling.sort_by(|a, b| until_computed(a).total_cmp(&until_computed(b)).then(a.cmp(b)));
        // Who generates is chosen by what generating costs there, since others compute the prompt.
        let mut decoding = whole;
        decoding.sort_by(|a, b| decode_cost(engines, a, task).total_cmp(&decode_cost(engines, b, task)));
        for decode in decoding.iter().take(CANDIDATES).map(|planned| planned.decode) {
            let senders = prefilling.iter().filter(|&&prefill| prefill != decode && pairs(prefill, decode));
            for &prefill in senders.take(CANDIDATES) {
                let ends = SPLITS.iter().map(|share| split_point(*share, task.prompt_tokens));
                let useful = ends.filter(|end| u64::from(*end) > engines[decode].cached_tokens);
                let planned_here =
                    useful.map(|end| Planned::handed_over(engines, (prefill, end), decode, task, hand_off));
                planned.extend(planned_here.map(weigh));
            }
        }
    }
    sort(&mut planned);
    planned
}

/// Where the prompt is cut when the decode engine computes this share of it.
fn split_point(share: f64, prompt_tokens: u64) -> u32 {
    let last = prompt_tokens.saturating_sub(1);
    (((1.0 - share) * prompt_tokens as f64) as u64).min(last) as u32
}

fn decode_cost(engines: &[&EngineNow], planned: &Planned, task: &Task) -> f64 {
    let engine = engines[planned.decode];
    let failed = if engine.is_last_resort { LAST_RESORT } else { 0.0 };
    failed + shortage(engine, task) + task.answer_tokens * token_time(engine, task) + decode_delay(engine, task)
}

/// The first of equals stays in front.
fn sort(planned: &mut [Planned]) {
    planned.sort_by(|a, b| a.cost.total_cmp(&b.cost));
}

impl Planned {
    fn whole(engines: &[&EngineNow], decode: usize, task: &Task) -> Self {
        let engine = engines[decode];
        let prompt = task.tokens.saturating_sub(engine.cached_tokens).max(1);
        let computing = engine.prefill_time(engine.cached_tokens, prompt);
        let delay = engine.prefill_delay(engine.cached_tokens, prompt);
        let expected = Expected {
            ttft: engine.prefill_wait + computing + task.lateness,
            tpot: token_time(engine, task),
            total: 0.0,
            delays_others: prefill_delay(engine, delay, task)
                + queue_delay(engines, engine, delay)
                + decode_delay(engine, task),
        };
        Self { decode, prefill: None, expected, tokens: [prompt, 0], choices: task.choices, cost: 0.0 }
    }

    fn handed_over(
        engines: &[&EngineNow],
        (prefill, end): (usize, u32),
        decode: usize,
        task: &Task,
        hand_off: &HandOffCost,
    ) -> Self {
        let (sender, receiver) = (engines[prefill], engines[decode]);
        let end = u64::from(end);
        let computed = sender.cached_tokens.min(end);
        let computing = sender.prefill_time(computed, end - computed);
        let travelling = hand_off.fixed + hand_off.per_thousand_tokens * end as f64 * 1e-3;
        let landed = sender.prefill_wait + computing + travelling;
        let rest = task.tokens.saturating_sub(end).max(1);
        let finishing = receiver.prefill_time(end, rest);
        // What the receiver has to compute before goes on while the KV is on its way.
        let begins = landed.max(receiver.prefill_wait);
        let (before, after) = (sender.prefill_delay(computed, end - computed), receiver.prefill_delay(end, rest));
        let delays_others = prefill_delay(sender, before, task)
            + prefill_delay(receiver, after, task)
            + queue_delay(engines, sender, before)
            + queue_delay(engines, receiver, after)
            + decode_delay(receiver, task);
        let ttft = begins + finishing + task.lateness;
        let expected = Expected { ttft, tpot: token_time(receiver, task), total: 0.0, delays_others };
        let tokens = [rest, end - computed];
        let choices = task.choices;
        Self { decode, prefill: Some((prefill, end as u32)), expected, tokens, choices, cost: 0.0 }
    }

    fn weighed(mut self, engines: &[&EngineNow], task: &Task, targets: &Targets) -> Self {
        let expected = &mut self.expected;
        expected.total = expected.ttft + (task.answer_tokens - 1.0) * expected.tpot;
        let receiver = engines[self.decode];
        let missed = |seconds: f64, target_ms: f64| match target_ms > 0.0 {
            true => (seconds - target_ms * 1e-3).max(0.0),
            false => 0.0,
        };
        let late = missed(expected.ttft, targets.ttft_ms) + task.answer_tokens * missed(expected.tpot, targets.tpot_ms);
        let mut cost = expected.total + expected.delays_others + PENALTY * late + shortage(receiver, task);
        if let Some((prefill, _)) = self.prefill {
            cost *= 1.0 + MARGIN;
            cost += if engines[prefill].is_last_resort { LAST_RESORT } else { 0.0 };
        }
        self.cost = cost + if receiver.is_last_resort { LAST_RESORT } else { 0.0 };
        self
    }

    /// Engines, by their place, how much of the prompt they compute, and how many sequences they get at once.
    pub(super) fn shares(&self) -> impl Iterator<Item = (usize, u64, u64)> {
        let sender = self.prefill.map(|(prefill, _)| (prefill, self.tokens[1], 0));
        let sequences = if self.prefill.is_none() { self.choices } else { 0 };
        std::iter::once((self.decode, self.tokens[0], sequences)).chain(sender)
    }

    pub(super) fn engines(&self) -> (usize, Option<usize>) {
        (self.decode, self.prefill.map(|(prefill, _)| prefill))
    }

    pub(super) fn forecast(&self, engines: &[EngineView]) -> Forecast {
        let name = |at: usize| Arc::clone(&engines[at].pick.name);
        let placement = match self.prefill {
            None => Placement::Whole { engine: name(self.decode) },
            Some((prefill, end)) => Placement::HandOff { prefill: name(prefill), decode: name(self.decode), end },
        };
        Forecast { placement, expected: Some(self.expected) }
    }
}

/// Seconds from token to token, prompts that come in between included.
fn token_time(engine: &EngineNow, task: &Task) -> f64 {
    let beside = task.choices + engine.coming;
    let step = engine.step_time(beside, beside * task.context());
    step / (1.0 - engine.prefill_share)
}

/// What the sequences that run lose while this one generates beside them: on the average they have half an answer to go.
fn decode_delay(engine: &EngineNow, task: &Task) -> f64 {
    let beside = (engine.sequences + engine.coming) as f64 * 0.5;
    beside * task.answer_tokens * task.choices as f64 * engine.sequence_time(task.context())
}

/// What sequences lose while a prompt of this many seconds is computed beside them: those that run, and those that others
/// replace them with meanwhile.
fn prefill_delay(engine: &EngineNow, seconds: f64, task: &Task) -> f64 {
    let replaced = seconds / (task.answer_tokens * token_time(engine, task)).max(1e-9);
    seconds * engine.sequences as f64 * (1.0 + 0.5 * replaced)
}

/// What prompts that will come lose while this one is in front of them, or part of the queue that they find: the busier an
/// engine is with prompts, the longer it takes until a queue is gone (the marginal wait of an M/G/1 queue).
fn queue_delay(engines: &[&EngineNow], engine: &EngineNow, seconds: f64) -> f64 {
    let busy = engine.prefill_share;
    let pool = engines.iter().filter(|other| other.prefills == engine.prefills).count().max(1) as f64;
    if seconds > 0.0 { WAITS_FOR_IT * busy / (1.0 - busy) * (engine.prefill_wait + 0.5 * seconds / pool) } else { 0.0 }
}

fn shortage(engine: &EngineNow, task: &Task) -> f64 {
    let needed = (task.tokens + task.choices * task.answer_tokens as u64).saturating_sub(engine.cached_tokens);
    let missing = needed.saturating_sub(engine.free_tokens) as f64;
    SHORTAGE * missing / (engine.context_tokens + engine.free_tokens).max(1) as f64
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
