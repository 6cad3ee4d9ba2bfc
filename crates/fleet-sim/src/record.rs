//! What users write down.

use std::time::Duration;

/// One request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    pub chat: u64,
    pub turn: usize,
    pub arrival: Duration,
    /// `None`: it failed before.
    pub first_token: Option<Duration>,
    /// When the router expected that, if its strategy predicts.
    pub predicted_first_token: Option<Duration>,
    pub last_token: Duration,
    pub end: Duration,
    pub input_tokens: u32,
    pub output_tokens: u32,
    /// Prompt tokens that came from a prefix cache.
    pub cached_tokens: u32,
    pub error: Option<String>,
}

/// Those of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// In the order in which they ended.
    pub requests: Vec<Record>,
    /// Between consecutive tokens of a request, all requests together.
    pub gaps: Vec<Duration>,
}

impl Record {
    pub fn ttft_ms(&self) -> Option<f64> {
        Some(millis(self.first_token?.saturating_sub(self.arrival)))
    }

    /// By what share of the real time the predicted one was off.
    pub fn ttft_error(&self) -> Option<f64> {
        let ttft_ms = self.ttft_ms().filter(|ms| *ms > 0.0)?;
        let predicted_ms = millis(self.predicted_first_token?.saturating_sub(self.arrival));
        Some((predicted_ms - ttft_ms).abs() / ttft_ms)
    }

    /// Time per token after the first.
    pub fn tpot_ms(&self) -> Option<f64> {
        let after_the_first = self.output_tokens.checked_sub(1).filter(|tokens| *tokens > 0)?;
        Some(millis(self.last_token.saturating_sub(self.first_token?)) / f64::from(after_the_first))
    }

    /// Job completion time: from its arrival to its last token.
    pub fn jct_ms(&self) -> Option<f64> {
        self.error.is_none().then(|| millis(self.end.saturating_sub(self.arrival)))
    }
}

pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
