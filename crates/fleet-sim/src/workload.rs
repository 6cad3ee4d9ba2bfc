//! Which requests arrive, and when: chats with their times, a function of a seed.

use std::time::Duration;

use baton_bench::random::Random;
use baton_bench::workload::{Chat, ChatTurn, Lengths, TextId, TextKind, TextPart, Trace};

use crate::cost::CostModel;
use crate::preset::Preset;

/// Keep these draws apart from those of tokens.
const SHAPES: u64 = 0x5a9e;
const ARRIVALS: u64 = 0xa221;

/// Of what engines can do, as [`Workload::default_rate`] estimates it: much work, but no overload.
const DEFAULT_SHARE: f64 = 0.65;
/// Sequences that an engine decodes together where its capacity is estimated.
const USUAL_BATCH: u64 = 16;

/// What a made-up workload is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadKind {
    ShortChat,
    LongPrompts,
    Mixed,
    /// That of MLC's published table.
    Table,
}

#[derive(Clone, Debug)]
pub struct Workload {
    pub name: String,
    pub seed: u64,
    /// Ascending by time; each has one.
    pub chats: Vec<Chat>,
    /// Mean time that a user takes after an answer.
    pub think: Duration,
    /// Requests that are too long for the engines.
    pub left_out: usize,
}

impl WorkloadKind {
    pub const ALL: [Self; 4] = [Self::ShortChat, Self::LongPrompts, Self::Mixed, Self::Table];

    pub fn name(self) -> &'static str {
        match self {
            Self::ShortChat => "short-chat",
            Self::LongPrompts => "long-prompts",
            Self::Mixed => "mixed",
            Self::Table => "table",
        }
    }

    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::ShortChat => "Conversations of a few turns, with one system prompt",
            Self::LongPrompts => "Prompts of 3000 to 8000 tokens, answers of about 50",
            Self::Mixed => "Seven of ten requests from short chats, three long prompts",
            Self::Table => "3000 tokens in, 100 out, as in the published figures of MLC's microserving",
        }
    }

    /// The `number`th chat, without a time.
    fn chat(self, seed: u64, number: u64) -> Chat {
        let mut random = Random::new(seed, &[SHAPES, number]);
        let short = match self {
            Self::ShortChat => true,
            Self::LongPrompts | Self::Table => false,
            // With three turns each that is seven of ten requests.
            Self::Mixed => random.unit() < 7.0 / 16.0,
        };
        let turns = match self {
            _ if short => {
                let turns = Lengths::Uniform { from: 1, to: 5 }.draw(&mut random);
                (0..turns as usize).map(|turn| short_turn(&mut random, number, turn)).collect()
            }
            Self::Table => vec![turn(vec![own(number, 0, 3000)], (number, 0), 100)],
            _ => {
                let input = Lengths::Uniform { from: 3000, to: 8000 }.draw(&mut random);
                let output = Lengths::Uniform { from: 25, to: 75 }.draw(&mut random);
                vec![turn(vec![own(number, 0, input)], (number, 0), output)]
            }
        };
        Chat { at: None, turns }
    }
}

/// The first begins with the system prompt.
fn short_turn(random: &mut Random, number: u64, at: usize) -> ChatTurn {
    let input = Lengths::LogNormal { median: 80.0, sigma: 0.7 }.draw(random).min(800);
    let output = Lengths::LogNormal { median: 180.0, sigma: 0.5 }.draw(random).min(1000);
    let system = TextPart { text: TextId::new(TextKind::Prefix, 0, 0), tokens: 128 };
    let parts = [system, own(number, at, input)];
    turn(parts[usize::from(at > 0)..].to_vec(), (number, at), output)
}

fn own(number: u64, turn: usize, tokens: u32) -> TextPart {
    TextPart { text: TextId::new(TextKind::Unique, number, turn), tokens }
}

fn turn(user: Vec<TextPart>, (number, turn): (u64, usize), output_tokens: u32) -> ChatTurn {
    let answer = TextPart { text: TextId::new(TextKind::Answer, number, turn), tokens: output_tokens };
    ChatTurn { user, output_tokens, answer }
}

impl Workload {
    /// `rate` is of requests per second. Chats begin at random, independent times.
    pub fn made_up(kind: WorkloadKind, rate: f64, requests: usize, seed: u64) -> Self {
        let mut chats = Vec::new();
        let mut left = requests;
        while left > 0 {
            let mut chat = kind.chat(seed, chats.len() as u64);
            chat.turns.truncate(left);
            left -= chat.turns.len();
            chats.push(chat);
        }
        let mut random = Random::new(seed, &[ARRIVALS]);
        let chats_per_s = rate * chats.len() as f64 / requests.max(1) as f64;
        let mut at_s = 0.0;
        for chat in &mut chats {
            at_s += random.exponential() / chats_per_s;
            chat.at = Duration::try_from_secs_f64(at_s).ok();
        }
        Self { name: kind.name().to_owned(), seed, chats, think: Duration::from_secs(5), left_out: 0 }
    }

    /// The first `requests` of a trace.
    pub fn of_trace(name: String, trace: &Trace, requests: usize, context_tokens: usize, seed: u64) -> Self {
        let mut chats: Vec<_> = trace.chats().take(requests).collect();
        let all = chats.len();
        chats.iter_mut().for_each(|chat| chat.cut_to(context_tokens as u64));
        chats.retain(|chat| !chat.turns.is_empty());
        let left_out = all - chats.len();
        Self { name, seed, chats, think: Duration::ZERO, left_out }
    }

    /// Requests per second, as they arrive.
    pub fn rate(&self) -> f64 {
        let last = self.chats.last().and_then(|chat| chat.at).unwrap_or_default();
        self.requests() as f64 / last.as_secs_f64().max(1e-9)
    }

    pub fn requests(&self) -> usize {
        self.chats.iter().map(|chat| chat.turns.len()).sum()
    }

    /// A rate that keeps this many engines busy, and not overloaded.
    pub fn default_rate(kind: WorkloadKind, preset: &Preset, engines: usize) -> f64 {
        let chats: Vec<_> = (0..500).map(|number| kind.chat(0, number)).collect();
        DEFAULT_SHARE * engines as f64 / mean_engine_s(&chats, preset)
    }
}

/// Engine time of a request, roughly: each turn's own tokens are computed, and all its answer is decoded in a usual batch.
fn mean_engine_s(chats: &[Chat], preset: &Preset) -> f64 {
    let CostModel { step_us, decode_seq_us, decode_context_ns, .. } = preset.cost;
    let mut total_s = 0.0;
    for chat in chats {
        for (turn, input) in chat.turns.iter().zip(chat.input_tokens()) {
            let own: u64 = turn.user.iter().map(|part| u64::from(part.tokens)).sum();
            let prefill_s = preset.cost.prompt(own, preset.step_tokens as u64).as_secs_f64();
            let decode_us = step_us / USUAL_BATCH as f64 + decode_seq_us + decode_context_ns * input as f64 / 1e3;
            total_s += prefill_s + f64::from(turn.output_tokens) * decode_us / 1e6;
        }
    }
    total_s / chats.iter().map(|chat| chat.turns.len()).sum::<usize>().max(1) as f64
}
