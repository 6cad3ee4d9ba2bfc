//! One prompt and its choices, from the engine's first event to the last piece of text.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use baton_core::{EngineEvent, PromptEvent, PromptTimes, ServeError, TokenEvent, TokenLogprobs};
use baton_protocol::TokenStream;
use baton_text::{ControlTokens, Detokenizer, StopMatcher, TextStart, Vocabulary};
use tokio::time::Instant;

use crate::choice::{Choice, Finish, Piece, ScoredToken};
use crate::error::ApiError;
use crate::metrics::Stopwatch;
use crate::params::Params;
use crate::prompt::Prompt;
use crate::timings::Timings;
use crate::usage::Usage;

pub(crate) struct PromptRun {
    /// Gone as soon as nothing more is wanted, which stops the engine.
    events: Option<TokenStream>,
    prompt: Prompt,
    vocabulary: Arc<Vocabulary>,
    /// The first choice's place among those of the whole request.
    first_index: u32,
    choices: Vec<Choice>,
    ready: VecDeque<Output>,
    usage: Usage,
    times: PromptTimes,
    /// When the prompt was.
    computed: Option<Instant>,
    stopwatch: Stopwatch,
}

pub(crate) enum Output {
    Piece(Piece),
    /// Nothing follows.
    Ended(Usage, Timings),
}

impl PromptRun {
    pub(crate) fn new(
        events: TokenStream,
        prompt: Prompt,
        vocabulary: &Arc<Vocabulary>,
        params: &Params,
        first_index: u32,
        stopwatch: Stopwatch,
    ) -> Self {
        let offset_chars = prompt.echo.as_ref().map_or(0, |text| text.chars().count());
        let start = TextStart::after(&prompt.tokens, vocabulary);
        let choices = (0..params.choices).map(|choice| {
            let detokenizer = Detokenizer::new(Arc::clone(vocabulary), params.control, start);
            let matcher = StopMatcher::new(params.stops.clone(), params.include_stop);
            let index = first_index + choice;
            Choice::new(index, detokenizer, matcher, params.min_tokens, params.include_stop, offset_chars)
        });
        Self {
            events: Some(events),
            choices: choices.collect(),
            vocabulary: Arc::clone(vocabulary),
            first_index,
            ready: VecDeque::new(),
            usage: Usage { prompt_tokens: prompt.tokens.len() as u64, ..Usage::default() },
            times: PromptTimes::default(),
            computed: None,
            prompt,
            stopwatch,
        }
    }

    /// `None` after `Ended` or an error.
    pub(crate) async fn next(&mut self) -> Option<Result<Output, ApiError>> {
        loop {
            if let Some(output) = self.ready.pop_front() {
                return Some(Ok(output));
            }
            match self.events.as_mut()?.next().await {
                Some(EngineEvent::Prompt(event)) => self.prompt_is_computed(event),
                Some(EngineEvent::Token(event)) => self.accept(event),
                // Answers to calls that come before a generation.
                Some(EngineEvent::Reserved(_) | EngineEvent::Sent(_)) => {}
                Some(EngineEvent::Failed(event)) => return Some(Err(self.fail(event.error))),
                None => return Some(Err(self.fail(ServeError::engine("the engine vanished during the answer")))),
            }
        }
    }

    fn prompt_is_computed(&mut self, event: PromptEvent) {
        self.usage.cached_tokens = event.cached_tokens.into();
        self.times = event.times;
        self.computed = Some(Instant::now());
        let finish = (self.prompt.max_tokens == 0).then_some(Finish::Length);
        let text = self.prompt.echo.take();
        if text.is_some() || finish.is_some() {
            let text = text.unwrap_or_default();
            let tokens = event.logprobs.map(|logprobs| self.scored_prompt(logprobs, &text)).unwrap_or_default();
            let piece = Piece { index: 0, text, tokens, finish };
            let indices = (self.first_index..).take(self.choices.len());
            self.ready.extend(indices.map(|index| Output::Piece(Piece { index, ..piece.clone() })));
        }
        if finish.is_some() {
            self.end();
        }
    }

    /// Special tokens that the client wrote are part of the echoed text, those that the tokenizer added are not.
    fn scored_prompt(&self, logprobs: Vec<TokenLogprobs>, echo: &str) -> Vec<ScoredToken> {
        let (shown, shown_chars) = self.prompt_offsets(ControlTokens::Show);
        let as_written = shown_chars == echo.chars().count();
        let offsets = if as_written { shown } else { self.prompt_offsets(ControlTokens::Hide).0 };
        let logprobs = std::iter::once(None).chain(logprobs.into_iter().map(Some));
        let scored = self.prompt.tokens.iter().zip(offsets).zip(logprobs);
        scored.map(|((&token, offset_chars), logprobs)| ScoredToken { token, offset_chars, logprobs }).collect()
    }

    /// Where each prompt token begins in the text, and how long that is, in characters.
    fn prompt_offsets(&self, control: ControlTokens) -> (Vec<usize>, usize) {
        let mut detokenizer = Detokenizer::new(Arc::clone(&self.vocabulary), control, TextStart::Here);
        let mut text = String::new();
        let mut text_chars = 0;
        let offsets = self.prompt.tokens.iter().map(|&token| {
            let offset_chars = text_chars;
            text.clear();
            detokenizer.push(token, &mut text);
            text_chars += text.chars().count();
            offset_chars
        });
        (offsets.collect(), text_chars)
    }

    fn accept(&mut self, event: TokenEvent) {
        let Some(choice) = self.choices.get_mut(event.choice.index()) else { return };
        // Sent by the engine before it learned that a stop string ended the choice.
        if choice.has_ended() {
            return;
        }
        self.stopwatch.token(event.choice.index());
        self.usage.completion_tokens += 1;
        let (index, finish) = (event.choice, event.finish);
        self.ready.extend(choice.accept(event).map(Output::Piece));
        if !choice.has_ended() {
            return;
        }
        if self.choices.iter().all(Choice::has_ended) {
            self.end();
        } else if let Some(events) = self.events.as_mut().filter(|_| finish.is_none()) {
            events.end_choice(index);
        }
    }

    fn end(&mut self) {
        self.events = None;
        self.stopwatch.ended(self.usage);
        let decode = self.computed.map_or(Duration::ZERO, |computed| computed.elapsed());
        self.ready.push_back(Output::Ended(self.usage, Timings::new(self.times, decode)));
    }

    fn fail(&mut self, error: ServeError) -> ApiError {
        self.events = None;
        error.into()
    }
}
