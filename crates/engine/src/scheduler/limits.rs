//! What this engine can ever do. A request for more is refused at once, with a message that names the bound.

use std::time::Duration;

use baton_backend::BackendSpec;
use baton_core::{AdapterId, GenerateRequest, PAGE_TOKENS, Pooling, ServeError, TokenId};

use crate::config::EngineConfig;
use crate::error::EngineError;

pub(super) struct StepLimits {
    pub(super) step_tokens: usize,
    pub(super) max_running: usize,
    pub(super) steps_in_flight: usize,
    pub(super) tokens_per_step: usize,
    pub(super) max_waiting: usize,
    vocab_size: usize,
    adapters: Vec<AdapterId>,
    poolings: Vec<Pooling>,
    pages_total: usize,
    /// A sequence that is alone can have this many tokens: the model's context, or all pages there are.
    pub(super) context_tokens: usize,
    pub(super) landing_timeout: Duration,
    pub(super) delivery_timeout: Duration,
}

impl StepLimits {
    pub(super) fn new(config: &EngineConfig, spec: &BackendSpec) -> Result<Self, EngineError> {
        let step_tokens = config.step_tokens.min(spec.max_step_tokens);
        let limits = Self {
            step_tokens,
            max_running: config.max_running.min(spec.max_slots).min(step_tokens),
            steps_in_flight: spec.steps_in_flight.max(1),
            tokens_per_step: spec.tokens_per_step.max(1),
            max_waiting: config.max_waiting,
            vocab_size: spec.vocab_size,
            adapters: spec.adapters.clone(),
            poolings: spec.poolings.clone(),
            pages_total: spec.pages_total,
            context_tokens: spec.max_context_tokens.min(spec.pages_total * PAGE_TOKENS),
            landing_timeout: config.landing_timeout,
            delivery_timeout: config.delivery_timeout,
        };
        let at_least_one = [
            ("step_tokens", limits.step_tokens),
            ("max_running", limits.max_running),
            ("max_waiting", limits.max_waiting),
            ("pages_total", limits.context_tokens),
        ];
        match at_least_one.iter().find(|(_, value)| *value == 0) {
            Some(&(option, _)) => Err(EngineError::Config { option }),
            None => Ok(limits),
        }
    }

    pub(super) fn check(&self, request: &GenerateRequest) -> Result<(), ServeError> {
        self.check_tokens(&request.prompt)?;
        self.check_adapter(request.adapter)?;
        self.check_pooling(request)?;
        let choices = request.outputs.len();
        if choices == 0 || choices > self.max_waiting || choices != request.ended.len() {
            let bound = self.max_waiting;
            return Err(
                ServeError::caller(format!("{choices} choices requested, 1 to {bound} are possible")).about("n")
            );
        }
        if let Some(token) = request.outputs.iter().find_map(|outputs| self.unknown(outputs)) {
            return Err(self.not_in_vocabulary(token).about("prompt"));
        }
        let bias = |&&(token, _): &&(TokenId, f32)| token.index() >= self.vocab_size;
        if let Some(&(token, _)) = request.sampling.logit_bias.iter().find(bias) {
            return Err(self.not_in_vocabulary(token).about("logit_bias"));
        }
        // Generation stops where the context ends, so only what is there already, and one token more, has to fit.
        let given =
            request.unfinished_choices().map(|choice| request.outputs[choice.index()].len() + 1).max().unwrap_or(0);
        self.check_length(request.prompt.len(), request.prompt.len() + given)
    }

    /// A prompt from which nothing is generated.
    pub(super) fn check_prompt(&self, prompt: &[TokenId], adapter: Option<AdapterId>) -> Result<(), ServeError> {
        self.check_tokens(prompt)?;
        self.check_adapter(adapter)?;
        self.check_length(prompt.len(), prompt.len())
    }

    fn check_tokens(&self, prompt: &[TokenId]) -> Result<(), ServeError> {
        if prompt.is_empty() {
            return Err(ServeError::caller("the prompt has no tokens").about("prompt"));
        }
        self.unknown(prompt).map_or(Ok(()), |token| Err(self.not_in_vocabulary(token).about("prompt")))
    }

    fn check_adapter(&self, adapter: Option<AdapterId>) -> Result<(), ServeError> {
        match adapter.filter(|adapter| !self.adapters.contains(adapter)) {
            Some(adapter) => Err(ServeError::caller(format!("this engine has no adapter {adapter}")).about("adapter")),
            None => Ok(()),
        }
    }

    fn check_pooling(&self, request: &GenerateRequest) -> Result<(), ServeError> {
        let refused = match request.pooling {
            Some(pooling) if !self.poolings.contains(&pooling) => "this engine does not pool hidden states this way",
            Some(_) if request.limits.max_tokens > 0 => {
                "nothing is generated from a prompt whose hidden states are pooled"
            }
            _ => return Ok(()),
        };
        Err(ServeError::caller(refused).about("pooling"))
    }

    fn unknown(&self, tokens: &[TokenId]) -> Option<TokenId> {
        tokens.iter().copied().find(|token| token.index() >= self.vocab_size)
    }

    fn not_in_vocabulary(&self, token: TokenId) -> ServeError {
        ServeError::caller(format!("token {token} is not in the vocabulary of {} tokens", self.vocab_size))
    }

    fn check_length(&self, prompt: usize, needed: usize) -> Result<(), ServeError> {
        if needed <= self.context_tokens {
            return Ok(());
        }
        let room = if self.context_tokens < self.pages_total * PAGE_TOKENS {
            format!("the model's context is {} tokens", self.context_tokens)
        } else {
            format!("the KV pool has {} pages of {PAGE_TOKENS} tokens", self.pages_total)
        };
        Err(ServeError::caller(format!("a prompt of {prompt} tokens needs room for {needed}, but {room}"))
            .about("prompt"))
    }
}
