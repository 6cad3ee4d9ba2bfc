//! A model whose KV is a hash of all tokens before it and whose tokens are a hash of all KV it reads. Its outputs can be
//! computed without an engine; foreign, stale or damaged KV changes every later token.

use baton_core::{
    Candidate, Choice, EngineEvent, FinishReason, GenerateRequest, PAGE_TOKENS, SamplingParams, TokenId, TokenLogprobs,
};

use crate::random::mix;

pub(crate) const VOCAB: usize = 64;
pub(crate) const LAYERS: u32 = 2;
/// A request with this seed has no finite logits after two outputs.
pub(crate) const NON_FINITE_SEED: u64 = u64::MAX;

/// One page of one layer.
pub(crate) type Block = [u64; PAGE_TOKENS];

/// One layer's view of a sequence up to some position: a hash of all KV it has read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attention(u64);

impl Attention {
    pub(crate) fn of_layer(layer: u32) -> Self {
        Self(mix(17, layer.into()))
    }

    /// The KV of the next position, if this token stands there.
    pub(crate) fn kv(self, token: TokenId) -> u64 {
        mix(self.0, token.0.into())
    }

    pub(crate) fn read(&mut self, kv: u64) {
        self.0 = mix(self.0, kv);
    }
}

/// Output of the last layer at a position: with the sampling parameters it determines the next token.
#[derive(Clone, Copy, Default)]
pub(crate) struct Logits(u64);

impl Logits {
    pub(crate) fn add(&mut self, layer: Attention) {
        self.0 = mix(self.0, layer.0);
    }

    /// `None` when they are not finite.
    pub(crate) fn sample(self, sampler: Sampler<'_>, index: usize) -> Option<TokenId> {
        if sampler.params.seed == NON_FINITE_SEED && index >= 2 {
            return None;
        }
        let place = mix(sampler.params.seed, u64::from(sampler.choice.0) << 32 | index as u64);
        let drawn = mix(mix(self.0, digest(sampler.params)), place);
        let mut tokens = (0..).map(|next| TokenId((drawn.wrapping_add(next) % VOCAB as u64) as u32));
        tokens.find(|token| index >= sampler.min_tokens as usize || !sampler.stop_tokens.contains(token))
    }

    pub(crate) fn logprobs(self, token: TokenId, alternatives: u32) -> TokenLogprobs {
        let logprob = |token: TokenId| -((mix(self.0, token.0.into()) % 1000) as f32) / 100.0;
        let candidate = |rank: u32| {
            let token = TokenId((mix(self.0, (1000 + rank).into()) % VOCAB as u64) as u32);
            Candidate { token, logprob: logprob(token) }
        };
        TokenLogprobs { chosen: logprob(token), top: (0..alternatives).map(candidate).collect() }
    }
}

/// The parts of a request on which the choice of the next token depends.
#[derive(Clone, Copy)]
pub(crate) struct Sampler<'a> {
    pub(crate) params: &'a SamplingParams,
    pub(crate) choice: Choice,
    pub(crate) min_tokens: u32,
    pub(crate) stop_tokens: &'a [TokenId],
}

/// Covers every parameter, so that one lost in transit changes the tokens.
fn digest(params: &SamplingParams) -> u64 {
    let floats = [
        params.temperature,
        params.top_p,
        params.min_p,
        params.presence_penalty,
        params.frequency_penalty,
        params.repetition_penalty,
    ];
    let top_k = params.top_k.map_or(0, |k| 1 + u64::from(k));
    let digest = floats.iter().fold(top_k, |digest, value| mix(digest, value.to_bits().into()));
    params
        .logit_bias
        .iter()
        .fold(digest, |digest, (token, bias)| mix(mix(digest, token.0.into()), bias.to_bits().into()))
}

/// The correct answer to a request, computed without an engine.
pub(crate) struct Reference {
    /// For positions 1, 2, …
    pub(crate) prompt_logprobs: Option<Vec<TokenLogprobs>>,
    pub(crate) choices: Vec<Vec<Output>>,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Output {
    Token {
        token: TokenId,
        logprobs: Option<TokenLogprobs>,
        finish: Option<FinishReason>,
    },
    /// The logits are not finite: the request fails here.
    NotFinite,
}

impl Output {
    pub(crate) fn is(&self, event: &EngineEvent) -> bool {
        let (Self::Token { token, logprobs, finish }, EngineEvent::Token(event)) = (self, event) else { return false };
        (event.token, &event.logprobs, event.finish) == (*token, logprobs, *finish)
    }
}

impl Reference {
    pub(crate) fn of(request: &GenerateRequest, context_tokens: usize) -> Self {
        let mut reader = Reader::default();
        let mut prompt_logprobs = Vec::new();
        for (position, &token) in request.prompt.iter().enumerate() {
            reader.read(token);
            if let (Some(alternatives), Some(&next)) = (request.prompt_logprobs, request.prompt.get(position + 1)) {
                prompt_logprobs.push(reader.logits().logprobs(next, alternatives));
            }
        }
        let choices = request.choices().map(|choice| outputs(request, choice, reader.clone(), context_tokens));
        Self { choices: choices.collect(), prompt_logprobs: request.prompt_logprobs.map(|_| prompt_logprobs) }
    }
}

fn outputs(request: &GenerateRequest, choice: Choice, mut reader: Reader, context_tokens: usize) -> Vec<Output> {
    let limits = &request.limits;
    let sampler =
        Sampler { params: &request.sampling, choice, min_tokens: limits.min_tokens, stop_tokens: &limits.stop_tokens };
    let room = request.max_total_tokens().min(context_tokens).saturating_sub(request.prompt.len());
    let mut outputs = Vec::new();
    while outputs.len() < room {
        let Some(token) = reader.logits().sample(sampler, outputs.len()) else {
            outputs.push(Output::NotFinite);
            break;
        };
        let logprobs = request.logprobs.map(|alternatives| reader.logits().logprobs(token, alternatives));
        let stops = limits.stop_tokens.contains(&token);
        let finish = match outputs.len() + 1 == room {
            _ if stops => Some(FinishReason::StopToken),
            true => Some(FinishReason::Length),
            false => None,
        };
        outputs.push(Output::Token { token, logprobs, finish });
        if stops {
            break;
        }
        reader.read(token);
    }
    outputs
}

/// All layers over one sequence.
#[derive(Clone)]
struct Reader([Attention; LAYERS as usize]);

impl Default for Reader {
    fn default() -> Self {
        Self(std::array::from_fn(|layer| Attention::of_layer(layer as u32)))
    }
}

impl Reader {
    fn read(&mut self, token: TokenId) {
        for layer in &mut self.0 {
            layer.read(layer.kv(token));
        }
    }

    fn logits(&self) -> Logits {
        let mut logits = Logits::default();
        self.0.iter().for_each(|layer| logits.add(*layer));
        logits
    }
}
