//! What one `auto` has learned so far of engines, hand-offs and answers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::engine_view::EngineView;
use super::plan::Planned;
use super::running_fit::{Line, Mean};
use crate::decision::{Decision, Expected, Learner, Observed, Placement};
use crate::engine::EngineId;

/// How long an engine's share of prompts is remembered.
const SHARE_MEMORY: Duration = Duration::from_secs(8);

/// How long the most KV that an engine needed is remembered: roles follow the traffic of minutes, not its bursts.
const PEAK_MEMORY: Duration = Duration::from_secs(300);

/// Between two samples of an engine's counters.
const SAMPLE_EVERY: Duration = Duration::from_millis(200);

/// Between two checks of the roles, and from a change to the next check: what engines do must show its effect first.
const ROLES_EVERY: Duration = Duration::from_secs(1);
const AFTER_A_CHANGE: Duration = Duration::from_secs(10);

/// Answers, before one has been seen.
const UNKNOWN_ANSWER: f64 = 128.0;

/// Prompts are grouped by powers of two of their length.
const LENGTH_CLASSES: usize = 24;

pub(super) struct Learned(Mutex<State>);

struct State {
    histories: BTreeMap<EngineId, EngineHistory>,
    /// When roles are checked again.
    roles_due: Duration,
    /// Seconds that a request waits for KV after it is computed, by thousands of tokens.
    hand_off: Line,
    /// Lengths of prompts, and their squares.
    prompts: [Mean; 2],
    /// Tokens of answers, by the class of the prompt's length, and of all.
    answers: [Mean; LENGTH_CLASSES],
    any_answer: Mean,
    /// Seconds by which first tokens come later than expected.
    lateness: Mean,
}

/// What one engine was given and has done lately.
#[derive(Default)]
struct EngineHistory {
    /// What was placed here lately; oldest first.
    recent: VecDeque<Recent>,
    /// The engine's counter at the last sample.
    seen: Option<(Duration, u64)>,
    prefill_share: f64,
    peak_kv_tokens: f64,
}

struct Recent {
    at: Duration,
    prompt_tokens: u64,
    sequences: u64,
}

pub(super) struct RecentLoad {
    /// Prompt tokens that the engine's report may not count yet, and sequences.
    pub(super) recent_tokens: u64,
    pub(super) recent_sequences: u64,
    pub(super) prefill_share: f64,
    pub(super) peak_kv_tokens: u64,
}

/// What an engine reports.
pub(super) struct Reported {
    /// What it has spent on prompts since it started.
    pub(super) prefill_us: u64,
    /// Of running sequences, and of those that are on their way to it.
    pub(super) kv_tokens: u64,
}

/// Seconds until KV is where it was sent, after it is computed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HandOffCost {
    pub(super) fixed: f64,
    pub(super) per_thousand_tokens: f64,
}

impl Default for Learned {
    fn default() -> Self {
        // As fast as it is on one machine.
        let hand_off = Line::through([(0.0, 0.001), (8.0, 0.005)]);
        let answers = [Mean::default(); LENGTH_CLASSES];
        let (any_answer, lateness, prompts) = (Mean::default(), Mean::default(), [Mean::default(); 2]);
        let roles_due = Duration::ZERO;
        Self(Mutex::new(State {
            histories: BTreeMap::new(),
            roles_due,
            hand_off,
            prompts,
            answers,
            any_answer,
            lateness,
        }))
    }
}

impl Learned {
    /// The report counts what was placed there, but what was placed less than `report_age` ago.
    pub(super) fn recent_load(
        &self,
        engine: EngineId,
        reported: &Reported,
        report_age: Duration,
        now: Duration,
    ) -> RecentLoad {
        let mut state = self.lock();
        let history = state.histories.entry(engine).or_default();
        history.sample(reported, now);
        history.recent.retain(|recent| recent.at + report_age > now);
        RecentLoad {
            recent_tokens: history.recent.iter().map(|recent| recent.prompt_tokens).sum(),
            recent_sequences: history.recent.iter().map(|recent| recent.sequences).sum(),
            prefill_share: history.prefill_share,
            peak_kv_tokens: history.peak_kv_tokens as u64,
        }
    }

    /// Engines that are gone are forgotten.
    pub(super) fn keep(&self, engines: &[EngineId]) {
        self.lock().histories.retain(|engine, _| engines.contains(engine));
    }

    /// Its prompt is part of its engines' load from now on.
    pub(super) fn placed(&self, planned: &Planned, engines: &[EngineView], now: Duration) {
        let mut state = self.lock();
        for (engine, prompt_tokens, sequences) in planned.shares() {
            let history = state.histories.entry(engines[engine].pick.id()).or_default();
            history.recent.push_back(Recent { at: now, prompt_tokens, sequences });
        }
    }

    /// At most once in [`ROLES_EVERY`]; first when all that is remembered was seen by this router.
    pub(super) fn roles_are_due(&self, now: Duration) -> bool {
        let mut state = self.lock();
        if state.roles_due.is_zero() {
            state.roles_due = now + AFTER_A_CHANGE;
        }
        let is_due = now >= state.roles_due;
        if is_due {
            state.roles_due = now + ROLES_EVERY;
        }
        is_due
    }

    pub(super) fn role_changed(&self, now: Duration) {
        self.lock().roles_due = now + AFTER_A_CHANGE;
    }

    pub(super) fn hand_off_cost(&self) -> HandOffCost {
        let (fixed, per_thousand_tokens) = self.lock().hand_off.fit();
        HandOffCost { fixed, per_thousand_tokens }
    }

    /// Tokens in front of a typical prompt token: half of a prompt, where long ones count by their length.
    pub(super) fn context_in_front(&self) -> f64 {
        let state = self.lock();
        state.prompts[1].or(0.0) / state.prompts[0].or(1.0).max(1.0) / 2.0
    }

    /// How long the answer to a prompt of this length will be.
    pub(super) fn answer_tokens(&self, prompt_tokens: usize) -> f64 {
        let state = self.lock();
        state.answers[class(prompt_tokens)].or(state.any_answer.or(UNKNOWN_ANSWER))
    }

    /// Between an engine's first token and the client's: messages, and what no model explains.
    pub(super) fn lateness(&self) -> f64 {
        self.lock().lateness.or(0.0).max(0.0)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Learner for Learned {
    fn began(&self, decision: &Decision, observed: &Observed) {
        let mut state = self.lock();
        let prompt_tokens = f64::from(decision.prompt_tokens);
        state.prompts[0].observe(prompt_tokens);
        state.prompts[1].observe(prompt_tokens * prompt_tokens);
        if let (Placement::HandOff { end, .. }, Some(times)) = (&decision.chosen.placement, observed.times) {
            state.hand_off.observe(f64::from(*end) * 1e-3, times.handoff.as_secs_f64());
        }
        if let (Some(Expected { ttft, .. }), Some(real)) = (decision.chosen.expected, observed.ttft) {
            // Within bounds, so that one stall does not spoil all predictions.
            let late = (real.as_secs_f64() - ttft).max(-ttft).min(ttft);
            let before = state.lateness.or(0.0).max(0.0);
            state.lateness.observe(before + late * 0.2);
        }
    }

    fn ended(&self, decision: &Decision, observed: &Observed) {
        // A request that continues another attempt's answer says nothing of lengths.
        if decision.attempt.0 == 0 && observed.tokens > 0 {
            let mut state = self.lock();
            let tokens = f64::from(observed.tokens) / f64::from(decision.choices.max(1));
            state.answers[class(decision.prompt_tokens as usize)].observe(tokens);
            state.any_answer.observe(tokens);
        }
    }
}

impl EngineHistory {
    fn sample(&mut self, reported: &Reported, now: Duration) {
        let &Reported { prefill_us, kv_tokens } = reported;
        let Some((then, before)) = self.seen.filter(|(then, before)| *then <= now && *before <= prefill_us) else {
            // The first sample, or the engine has started anew.
            self.seen = Some((now, prefill_us));
            return;
        };
        let elapsed = (now - then).as_secs_f64();
        if elapsed < SAMPLE_EVERY.as_secs_f64() {
            return;
        }
        let share = ((prefill_us - before) as f64 * 1e-6 / elapsed).min(1.0);
        let kept = (-elapsed / SHARE_MEMORY.as_secs_f64()).exp();
        let peak = self.peak_kv_tokens * (-elapsed / PEAK_MEMORY.as_secs_f64()).exp();
        self.peak_kv_tokens = peak.max(kv_tokens as f64);
        self.prefill_share = self.prefill_share * kept + share * (1.0 - kept);
        self.seen = Some((now, prefill_us));
    }
}

fn class(prompt_tokens: usize) -> usize {
    (prompt_tokens.max(1).ilog2() as usize).min(LENGTH_CLASSES - 1)
}
