//! A request as the scheduler keeps it: what arrived, which choices still run, what is known of its prompt.

use std::sync::Arc;
use std::time::Duration;

use baton_backend::SamplerSpec;
use baton_core::{
    Choice, EngineEvent, FailedEvent, FinishReason, GenerateRequest, Pooling, PromptEvent, PromptTimes, ServeError,
    TokenId, TokenLogprobs,
};

use crate::scheduler::PromptExport;
use crate::sequence::SequenceId;

pub(crate) struct ActiveRequest {
    /// Without its outputs: they are part of the sequences.
    pub(crate) input: GenerateRequest,
    /// `false` when only the prompt is wanted, or every choice had ended before.
    pub(crate) generates: bool,
    /// Choices that have not ended, the leader first.
    pub(crate) sequences: Vec<SequenceId>,
    pub(crate) prompt: PromptProgress,
    /// Of its hidden states; leaves with the prompt's event.
    pub(crate) pooled: Option<Vec<f32>>,
    /// Set when the prompt is computed for another engine, and nothing else.
    pub(crate) export: Option<PromptExport>,
    pub(crate) progress: Progress,
}

/// When a prompt reached what, on the scheduler's clock.
#[derive(Clone, Copy)]
pub(crate) struct Progress {
    arrived: Duration,
    /// Its KV, from another engine, which took its own time for it.
    landed: Option<(Duration, PromptTimes)>,
    admitted: Option<Duration>,
}

impl Progress {
    pub(crate) fn new(arrived: Duration) -> Self {
        Self { arrived, landed: None, admitted: None }
    }

    /// The first time counts: a preemption later on is part of the computing.
    pub(crate) fn admit(&mut self, now: Duration) {
        self.admitted.get_or_insert(now);
    }

    /// Earlier than it was taken up.
    pub(crate) fn arrive(&mut self, at: Duration) {
        self.arrived = self.arrived.min(at);
    }

    pub(crate) fn land(&mut self, now: Duration, sender: PromptTimes) {
        self.landed = Some((now, sender));
    }

    pub(crate) fn times(&self, computed: Duration) -> PromptTimes {
        let (landed, sender) = self.landed.unwrap_or((self.arrived, PromptTimes::default()));
        let admitted = self.admitted.unwrap_or(computed);
        PromptTimes {
            queue: admitted.saturating_sub(landed),
            prefill: computed.saturating_sub(admitted),
            handoff: landed.saturating_sub(self.arrived),
        }
        .fed_by(sender)
    }
}

/// The leader is the choice that computes the prompt; the others share its pages afterwards.
pub(crate) enum PromptProgress {
    Computing {
        leader: SequenceId,
        /// Its choice ends with the prompt.
        leader_unwanted: bool,
        /// What the leader found in the prefix cache when it was first admitted.
        cached_tokens: Option<u32>,
        /// Of positions 1, 2, … so far.
        logprobs: Vec<TokenLogprobs>,
    },
    Reported,
}

impl ActiveRequest {
    /// Whether this choice has to compute all of the prompt, whatever there is of its KV.
    pub(crate) fn needs_whole_prompt(&self, sequence: SequenceId) -> bool {
        self.prompt_logprobs_for(sequence).is_some() || self.input.pooling == Some(Pooling::Mean)
    }

    /// Whether this choice still has to compute the prompt, and its log-probabilities on the way.
    pub(crate) fn prompt_logprobs_for(&self, sequence: SequenceId) -> Option<u32> {
        match &self.prompt {
            PromptProgress::Computing { leader, .. } if *leader == sequence => self.input.prompt_logprobs,
            _ => None,
        }
    }

    /// Set when the leader is admitted for the first time; a preemption later on leaves no trace.
    pub(crate) fn note_cached_tokens(&mut self, sequence: SequenceId, tokens: usize) {
        if let PromptProgress::Computing { leader, cached_tokens: cached @ None, .. } = &mut self.prompt
            && *leader == sequence
        {
            *cached = Some(tokens as u32);
        }
    }

    /// Positions that were computed before a preemption come again and are dropped.
    pub(crate) fn note_prompt_logprobs(&mut self, position: usize, found: TokenLogprobs) {
        if let PromptProgress::Computing { logprobs, .. } = &mut self.prompt
            && position == logprobs.len() + 1
        {
            logprobs.push(found);
        }
    }

    pub(crate) fn leader_unwanted(&self) -> bool {
        matches!(self.prompt, PromptProgress::Computing { leader_unwanted: true, .. })
    }

    /// The prompt's event, once, when its leader has computed all of it.
    pub(crate) fn report_prompt(
        &mut self,
        now: Duration,
        sequence: SequenceId,
        computed: usize,
    ) -> Option<EngineEvent> {
        let PromptProgress::Computing { leader, cached_tokens, logprobs, .. } = &mut self.prompt else { return None };
        if *leader != sequence || computed < self.input.prompt.len() {
            return None;
        }
        let event = PromptEvent {
            request: self.input.id,
            attempt: self.input.attempt,
            cached_tokens: cached_tokens.unwrap_or(0),
            logprobs: self.input.prompt_logprobs.map(|_| std::mem::take(logprobs)),
            pooled: self.pooled.take(),
            times: self.progress.times(now),
        };
        self.prompt = PromptProgress::Reported;
        Some(EngineEvent::Prompt(event))
    }

    pub(crate) fn sampler(&self, choice: Choice, outputs: &[TokenId]) -> Arc<SamplerSpec> {
        Arc::new(SamplerSpec {
            params: self.input.sampling.clone(),
            choice,
            prompt: Arc::clone(&self.input.prompt),
            outputs: outputs.to_vec(),
            min_tokens: self.input.limits.min_tokens,
            stop_tokens: self.input.limits.stop_tokens.clone(),
            logprobs: self.input.logprobs,
        })
    }

    /// A choice has no more than these, prompt included.
    pub(crate) fn most_tokens(&self, context_tokens: usize) -> usize {
        self.input.max_total_tokens().min(context_tokens)
    }

    /// Whether a choice of `total_tokens`, prompt included, ends with the token it just got.
    pub(crate) fn finish(&self, token: TokenId, total_tokens: usize, context_tokens: usize) -> Option<FinishReason> {
        if self.input.limits.stop_tokens.contains(&token) {
            Some(FinishReason::StopToken)
        } else if total_tokens >= self.most_tokens(context_tokens) {
            Some(FinishReason::Length)
        } else {
            None
        }
    }

    pub(crate) fn failed(&self, error: ServeError) -> EngineEvent {
        EngineEvent::Failed(FailedEvent { request: self.input.id, attempt: self.input.attempt, error })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_add_up() {
        let ms = Duration::from_millis;
        let mut progress = Progress::new(ms(100));
        assert_eq!(progress.times(ms(130)), PromptTimes { queue: ms(30), ..PromptTimes::default() });
        progress.admit(ms(110));
        progress.admit(ms(120));
        assert_eq!(progress.times(ms(130)), PromptTimes { queue: ms(10), prefill: ms(20), handoff: ms(0) });
        progress.arrive(ms(95));
        progress.arrive(ms(98));
        assert_eq!(progress.times(ms(130)), PromptTimes { queue: ms(15), prefill: ms(20), handoff: ms(0) });
        progress.land(ms(105), PromptTimes::default());
        assert_eq!(progress.times(ms(130)), PromptTimes { queue: ms(5), prefill: ms(20), handoff: ms(10) });
        progress.land(ms(105), PromptTimes { queue: ms(1), prefill: ms(3), handoff: ms(0) });
        assert_eq!(progress.times(ms(130)), PromptTimes { queue: ms(6), prefill: ms(23), handoff: ms(6) });
    }
}
