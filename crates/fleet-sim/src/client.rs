//! Users: each chat is a task that sends its turns, and writes down what it gets when.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use baton_bench::random::Random;
use baton_bench::workload::{Chat, TextKind, TextPart};
use baton_core::{
    AffinityKey, Attempt, EngineEvent, GenerateRequest, Limits, RequestId, SamplingParams, ServeError, TokenId,
};
use baton_protocol::TokenStream;
use baton_router::{Decision, Dispatcher};

use crate::backend::{STOP, VOCABULARY, generated_token};
use crate::clock::{Clock, lock};
use crate::record::{Record, Records};

const THINKING: u64 = 0x7411;
/// No answer is longer.
const MAX_TOKENS: u32 = 1 << 14;

/// One chat of a workload.
pub(crate) struct User {
    pub(crate) number: u64,
    pub(crate) chat: Chat,
    pub(crate) think: Duration,
    pub(crate) seed: u64,
    pub(crate) clock: Arc<Clock>,
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) records: Arc<Mutex<Records>>,
}

impl User {
    pub(crate) async fn run(self) {
        let mut random = Random::new(self.seed, &[THINKING, self.number]);
        let mut prompt = Vec::new();
        self.clock.sleep(self.chat.at.unwrap_or_default()).await;
        for (at, turn) in self.chat.turns.iter().enumerate() {
            if at > 0 {
                self.clock.sleep(self.think.mul_f64(random.exponential())).await;
            }
            turn.user.iter().for_each(|part| self.append(&mut prompt, *part));
            let record = self.send(at, &prompt, turn.output_tokens).await;
            lock(&self.records).requests.push(record);
            self.append(&mut prompt, turn.answer);
        }
    }

    fn append(&self, prompt: &mut Vec<TokenId>, part: TextPart) {
        let begin = prompt.len();
        if part.text.kind() == TextKind::Answer {
            prompt.extend((begin..begin + part.tokens as usize).map(generated_token));
        } else {
            let mut random = Random::new(self.seed, &part.text.labels());
            prompt.extend((0..part.tokens).map(|_| TokenId(random.below(VOCABULARY))));
        }
    }

    async fn send(&self, turn: usize, prompt: &[TokenId], output_tokens: u32) -> Record {
        let mut record = Record {
            chat: self.number,
            turn,
            arrival: self.clock.now(),
            input_tokens: prompt.len() as u32,
            ..Record::default()
        };
        let request = self.request(prompt, output_tokens);
        let read = match self.dispatcher.dispatch(request).await {
            Ok((stream, route)) => {
                let read = self.read(stream, &mut record).await;
                record.predicted_first_token = route.decision().and_then(|decision| predicted_first_token(&decision));
                read
            }
            Err(error) => Err(error),
        };
        record.error = read.err().map(|error| error.message);
        record.end = self.clock.now();
        record
    }

    async fn read(&self, mut stream: TokenStream, record: &mut Record) -> Result<(), ServeError> {
        let mut gaps = Vec::new();
        while let Some(event) = stream.next().await {
            let now = self.clock.now();
            match event {
                EngineEvent::Prompt(event) => record.cached_tokens = event.cached_tokens,
                EngineEvent::Token(event) => {
                    match record.first_token {
                        None => record.first_token = Some(now),
                        Some(_) => gaps.push(now - record.last_token),
                    }
                    (record.last_token, record.output_tokens) = (now, record.output_tokens + 1);
                    if event.finish.is_some() {
                        lock(&self.records).gaps.extend(gaps);
                        return Ok(());
                    }
                }
                EngineEvent::Failed(event) => return Err(event.error),
                EngineEvent::Reserved(_) | EngineEvent::Sent(_) => {}
            }
        }
        Err(ServeError::engine("the stream ended too early"))
    }

    fn request(&self, prompt: &[TokenId], output_tokens: u32) -> GenerateRequest {
        GenerateRequest {
            // The dispatcher sets both.
            id: RequestId(0),
            attempt: Attempt(0),
            prompt: prompt.into(),
            outputs: vec![Vec::new()],
            ended: vec![false],
            // How long the answer will be is the engine's secret.
            sampling: SamplingParams { seed: output_tokens.into(), ..SamplingParams::greedy() },
            limits: Limits { max_tokens: MAX_TOKENS, min_tokens: 0, stop_tokens: vec![STOP] },
            logprobs: None,
            prompt_logprobs: None,
            adapter: None,
            pooling: None,
            affinity: Some(AffinityKey::of(&format!("chat {}", self.number))),
        }
    }
}

fn predicted_first_token(decision: &Decision) -> Option<Duration> {
    let ttft_s = decision.chosen.expected?.ttft;
    Some(decision.at + Duration::try_from_secs_f64(ttft_s).ok()?)
}
