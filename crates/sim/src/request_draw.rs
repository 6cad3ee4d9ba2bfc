//! Random requests of clients.

use baton_core::{AffinityKey, Attempt, GenerateRequest, Limits, RequestId, SamplingParams, TokenId};

use crate::model::{NON_FINITE_SEED, VOCAB};
use crate::random::Random;
use crate::scenario::Scenario;

/// A request with any features; some do not fit an engine.
pub(crate) fn any(id: u64, scenario: &Scenario, random: &mut Random) -> GenerateRequest {
    let longest = scenario.context_tokens as u64 - 1;
    let prompt_tokens = match random.below(100) {
        0..2 => longest + 2,
        _ if random.percent(scenario.long_prompts_percent) => random.between(1, longest),
        _ => random.between(1, longest.min(100)),
    };
    let choices = if random.percent(25) { random.between(2, 3) } else { 1 } as usize;
    let max_tokens = if random.percent(4) { 0 } else { random.between(1, 30) as u32 };
    let mut request = plain(id, prompt(prompt_tokens, random), choices, max_tokens);
    request.sampling = sampling(random);
    if random.percent(30) {
        let stop_tokens: Vec<_> =
            (0..random.between(1, 3)).map(|_| TokenId(random.below(VOCAB as u64) as u32)).collect();
        request.limits.stop_tokens = stop_tokens;
        request.limits.min_tokens = random.pick(&[0, 0, 3]);
    }
    if random.percent(20) {
        request.logprobs = Some(random.pick(&[0, 2]));
    }
    if random.percent(8) {
        request.prompt_logprobs = Some(random.pick(&[0, 1]));
    }
    request
}

/// A request that every engine must be able to serve.
pub(crate) fn small(id: u64, context_tokens: usize, random: &mut Random) -> GenerateRequest {
    let prompt_tokens = random.between(1, (context_tokens as u64 - 10).min(90));
    let choices = random.pick(&[1, 2]);
    let mut request = plain(id, prompt(prompt_tokens, random), choices, random.between(1, 8) as u32);
    request.sampling.seed = random.next() >> 1;
    request
}

/// Prompts share few distinct beginnings, so that the prefix cache has hits.
fn prompt(tokens: u64, random: &mut Random) -> Vec<TokenId> {
    let (family, fork) = (random.below(3), random.below(tokens + 1));
    let token = |at| if at < fork { (family * 7 + at) % 50 } else { random.below(50) };
    (0..tokens).map(token).map(|token| TokenId(token as u32)).collect()
}

fn sampling(random: &mut Random) -> SamplingParams {
    let greedy = SamplingParams { seed: random.next() >> 1, ..SamplingParams::greedy() };
    match random.below(10) {
        0..4 => greedy,
        4..9 => SamplingParams {
            temperature: 1.0,
            top_p: 0.9,
            top_k: Some(20),
            frequency_penalty: 0.5,
            repetition_penalty: 1.1,
            logit_bias: vec![(TokenId(3), 1.5)],
            ..greedy
        },
        _ if random.percent(15) => SamplingParams { seed: NON_FINITE_SEED, ..greedy },
        _ => greedy,
    }
}

fn plain(id: u64, prompt: Vec<TokenId>, choices: usize, max_tokens: u32) -> GenerateRequest {
    GenerateRequest {
        id: RequestId(id),
        attempt: Attempt(0),
        prompt: prompt.into(),
        outputs: vec![Vec::new(); choices],
        ended: vec![false; choices],
        sampling: SamplingParams::greedy(),
        limits: Limits { max_tokens, min_tokens: 0, stop_tokens: Vec::new() },
        logprobs: None,
        prompt_logprobs: None,
        adapter: None,
        pooling: None,
        affinity: Some(AffinityKey::of(&format!("user {}", id % 5))),
    }
}
