//! What happened to one request. All times are microseconds since the run began.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Counted in the result; warm-up is not.
    pub(crate) measured: bool,
    pub(crate) chat: u64,
    pub(crate) turn: u32,
    /// When it should have been sent: latencies count from here, whatever held the client up.
    pub(crate) intended_us: u64,
    /// When it was handed to a connection; absent if there was none.
    pub(crate) sent_us: Option<u64>,
    pub(crate) first_token_us: Option<u64>,
    pub(crate) last_token_us: Option<u64>,
    pub(crate) end_us: u64,
    /// As the server counts them, else as they were requested.
    pub(crate) input_tokens: u64,
    pub(crate) cached_tokens: u64,
    pub(crate) output_tokens: u64,
    pub(crate) requested_output_tokens: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) timings: Option<ServerTimings>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// When each chunk with tokens came.
    #[serde(skip)]
    pub(crate) chunks_us: Vec<u64>,
}

/// Where the time went, as reported by the server. llama.cpp knows two of these under other names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ServerTimings {
    #[serde(default)]
    pub(crate) queue_ms: f64,
    #[serde(default, alias = "prompt_ms")]
    pub(crate) prefill_ms: f64,
    #[serde(default)]
    pub(crate) handoff_ms: f64,
    #[serde(default, alias = "predicted_ms")]
    pub(crate) decode_ms: f64,
}

impl Record {
    pub(crate) fn is_complete(&self) -> bool {
        self.error.is_none()
    }

    pub(crate) fn ttft_ms(&self) -> Option<f64> {
        self.first_token_us.map(|first| millis(self.intended_us, first))
    }

    pub(crate) fn e2e_ms(&self) -> f64 {
        millis(self.intended_us, self.end_us)
    }

    /// Time per output token after the first; nothing for answers of one token.
    pub(crate) fn tpot_ms(&self) -> Option<f64> {
        let later = self.output_tokens.checked_sub(1).filter(|later| *later > 0)?;
        Some(millis(self.first_token_us?, self.last_token_us?) / later as f64)
    }

    pub(crate) fn gaps_ms(&self) -> impl Iterator<Item = f64> {
        self.chunks_us.windows(2).map(|pair| millis(pair[0], pair[1]))
    }

    /// One, where the server sends a chunk per token.
    pub(crate) fn tokens_per_chunk(&self) -> f64 {
        self.output_tokens as f64 / self.chunks_us.len().max(1) as f64
    }

    /// How long it waited for this program: for its turn on a busy machine, and for a connection.
    pub(crate) fn client_wait_ms(&self) -> Option<f64> {
        self.sent_us.map(|sent| millis(self.intended_us, sent))
    }
}

fn millis(from_us: u64, to_us: u64) -> f64 {
    to_us.saturating_sub(from_us) as f64 / 1e3
}

/// Why a request has no whole answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestFailure {
    #[error("no connection: {0}")]
    Connect(String),
    #[error("no whole answer in time")]
    Timeout,
    #[error("HTTP {status}: {message}")]
    Status { status: u16, message: String },
    /// An error in the middle of a stream.
    #[error("error event: {0}")]
    Event(String),
    #[error("the answer broke off: {0}")]
    Cut(String),
    #[error("not understood: {0}")]
    Malformed(String),
}

impl RequestFailure {
    /// By which errors are counted.
    pub(crate) fn kind(&self) -> String {
        match self {
            Self::Connect(_) => "no connection".into(),
            Self::Timeout => "timeout".into(),
            Self::Status { status, .. } => format!("HTTP {status}"),
            Self::Event(_) => "error event".into(),
            Self::Cut(_) => "broke off".into(),
            Self::Malformed(_) => "not understood".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_count_from_the_intended_time() {
        let record = Record {
            measured: true,
            chat: 0,
            turn: 0,
            intended_us: 1_000,
            sent_us: Some(3_000),
            first_token_us: Some(11_000),
            last_token_us: Some(41_000),
            end_us: 42_000,
            input_tokens: 5,
            cached_tokens: 0,
            output_tokens: 4,
            requested_output_tokens: 4,
            timings: None,
            error: None,
            chunks_us: vec![],
        };
        assert_eq!(record.client_wait_ms(), Some(2.0));
        assert_eq!((record.ttft_ms(), record.tpot_ms(), record.e2e_ms()), (Some(10.0), Some(10.0), 41.0));
        assert_eq!(Record { output_tokens: 1, ..record }.tpot_ms(), None);
    }

    #[test]
    fn timings_of_llama_cpp() {
        let timings: ServerTimings =
            serde_json::from_str(r#"{"prompt_n": 5, "prompt_ms": 7.5, "predicted_ms": 9}"#).unwrap();
        assert_eq!(timings, ServerTimings { prefill_ms: 7.5, decode_ms: 9.0, ..ServerTimings::default() });
    }
}
