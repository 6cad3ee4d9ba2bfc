//! Configuration of a mock engine: `prefill-ms=200,decode-ms=20,error-rate=0.01`.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

/// Longer times are taken for typing errors.
const LONGEST_S: f64 = 3600.0;

/// The default takes no time and never fails.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MockConfig {
    pub speed: Speed,
    pub faults: FaultPlan,
    pub shape: MockShape,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Speed {
    /// For a whole prompt, however long it is.
    pub prefill: Duration,
    pub prefill_per_token: Duration,
    /// For a step that decodes, however many sequences take part.
    pub decode: Duration,
    pub transfer_per_token: Duration,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultPlan {
    /// Share of requests that fail.
    pub error_rate: f64,
    /// Tokens that a failing request generates first.
    pub error_after_tokens: u32,
    pub stall: Duration,
    /// Share of steps that stall.
    pub stall_rate: f64,
    pub stall_every_steps: Option<u64>,
    pub crash_after_tokens: Option<u64>,
    /// Equal seeds give equal faults.
    pub seed: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct MockShape {
    /// Tokens per answer. `None`: as many as the client allows.
    pub output_tokens: Option<u32>,
    pub layers: u32,
    /// Steps that may be planned while one runs, that one included.
    pub steps_in_flight: usize,
    /// Tokens that a sequence gets from one step, at most.
    pub tokens_per_step: usize,
    /// It has adapters 1 to this.
    pub adapters: u64,
    pub kv_bytes_per_token: u32,
    /// `None`: the tokenizer's.
    pub vocab: Option<u32>,
    pub context_tokens: u32,
    /// How long KV waits to be fetched, and a decode engine for KV. Used by the dialects; native engines have options of their own.
    pub handoff_timeout: Duration,
}

impl Default for MockShape {
    fn default() -> Self {
        Self {
            output_tokens: None,
            layers: 4,
            steps_in_flight: 1,
            tokens_per_step: 1,
            adapters: 0,
            kv_bytes_per_token: 64,
            vocab: None,
            context_tokens: 1 << 17,
            handoff_timeout: Duration::from_secs(30),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MockConfigError {
    #[error("\"{0}\" is not a mock option: they are written key=value, with commas between")]
    NotAPair(String),
    #[error("there is no mock option \"{0}\"")]
    UnknownKey(String),
    #[error("mock option {0} is given twice")]
    Twice(String),
    #[error("mock option {key} must be {expected}, not \"{value}\"")]
    BadValue { key: String, value: String, expected: String },
}

impl MockConfig {
    pub const KEYS: [&str; 20] = [
        "prefill-ms",
        "prefill-us-per-token",
        "decode-ms",
        "transfer-us-per-token",
        "output-tokens",
        "error-rate",
        "error-after-tokens",
        "stall-ms",
        "stall-rate",
        "stall-every-steps",
        "crash-after-tokens",
        "seed",
        "layers",
        "steps-in-flight",
        "tokens-per-step",
        "adapters",
        "kv-bytes-per-token",
        "vocab",
        "context",
        "handoff-timeout-ms",
    ];

    fn set(&mut self, key: &str, value: Value<'_>) -> Result<(), MockConfigError> {
        let Self { speed, faults, shape } = self;
        match key {
            "prefill-ms" => speed.prefill = value.time(1e-3)?,
            "prefill-us-per-token" => speed.prefill_per_token = value.time(1e-6)?,
            "decode-ms" => speed.decode = value.time(1e-3)?,
            "transfer-us-per-token" => speed.transfer_per_token = value.time(1e-6)?,
            "output-tokens" => shape.output_tokens = Some(value.count(1..=u32::MAX)?),
            "error-rate" => faults.error_rate = value.share()?,
            "error-after-tokens" => faults.error_after_tokens = value.count(0..=u32::MAX)?,
            "stall-ms" => faults.stall = value.time(1e-3)?,
            "stall-rate" => faults.stall_rate = value.share()?,
            "stall-every-steps" => faults.stall_every_steps = Some(value.count(1..=u64::MAX)?),
            "crash-after-tokens" => faults.crash_after_tokens = Some(value.count(1..=u64::MAX)?),
            "seed" => faults.seed = value.count(0..=u64::MAX)?,
            "steps-in-flight" => shape.steps_in_flight = value.count(1..=8)?,
            "tokens-per-step" => shape.tokens_per_step = value.count(1..=64)?,
            "adapters" => shape.adapters = value.count(0..=1024)?,
            "layers" => shape.layers = value.count(1..=1024)?,
            "kv-bytes-per-token" => shape.kv_bytes_per_token = value.count(1..=1 << 24)?,
            "vocab" => shape.vocab = Some(value.count(1..=1 << 24)?),
            "context" => shape.context_tokens = value.count(1..=1 << 24)?,
            "handoff-timeout-ms" => shape.handoff_timeout = value.time(1e-3)?,
            _ => return Err(MockConfigError::UnknownKey(key.to_owned())),
        }
        Ok(())
    }
}

impl FromStr for MockConfig {
    type Err = MockConfigError;

    fn from_str(text: &str) -> Result<Self, MockConfigError> {
        let (mut config, mut seen) = (Self::default(), Vec::new());
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (key, text) = pair.split_once('=').ok_or_else(|| MockConfigError::NotAPair(pair.to_owned()))?;
            let (key, text) = (key.trim(), text.trim());
            if seen.contains(&key) {
                return Err(MockConfigError::Twice(key.to_owned()));
            }
            config.set(key, Value { key, text })?;
            seen.push(key);
        }
        Ok(config)
    }
}

struct Value<'a> {
    key: &'a str,
    text: &'a str,
}

impl Value<'_> {
    fn time(&self, unit_s: f64) -> Result<Duration, MockConfigError> {
        let longest = LONGEST_S / unit_s;
        let number = self.text.parse::<f64>().ok().filter(|number| (0.0..=longest).contains(number));
        let number = number.ok_or_else(|| self.must_be(format!("a number from 0 to {longest}")))?;
        Ok(Duration::from_secs_f64(number * unit_s))
    }

    fn share(&self) -> Result<f64, MockConfigError> {
        let number = self.text.parse().ok().filter(|number| (0.0..=1.0).contains(number));
        number.ok_or_else(|| self.must_be("a number from 0 to 1".to_owned()))
    }

    fn count<T: FromStr + PartialOrd + std::fmt::Display>(
        &self,
        allowed: RangeInclusive<T>,
    ) -> Result<T, MockConfigError> {
        let number = self.text.parse().ok().filter(|number| allowed.contains(number));
        number.ok_or_else(|| self.must_be(format!("a whole number from {} to {}", allowed.start(), allowed.end())))
    }

    fn must_be(&self, expected: String) -> MockConfigError {
        MockConfigError::BadValue { key: self.key.to_owned(), value: self.text.to_owned(), expected }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_known_and_changes_something() {
        for key in MockConfig::KEYS {
            let value = if key.ends_with("-rate") { "0.25" } else { "7" };
            let config: MockConfig = format!("{key}={value}").parse().unwrap();
            assert_ne!(config, MockConfig::default(), "{key}");
        }
    }

    #[test]
    fn times_have_the_units_of_their_names() {
        let config: MockConfig = "prefill-ms=200, decode-ms=0.5,prefill-us-per-token=30,".parse().unwrap();
        assert_eq!(config.speed.prefill, Duration::from_millis(200));
        assert_eq!(config.speed.decode, Duration::from_micros(500));
        assert_eq!(config.speed.prefill_per_token, Duration::from_micros(30));
        assert_eq!("".parse(), Ok(MockConfig::default()));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, message) in [
            ("storyteller", "\"storyteller\" is not a mock option: they are written key=value, with commas between"),
            ("prefil-ms=1", "there is no mock option \"prefil-ms\""),
            ("seed=1,seed=2", "mock option seed is given twice"),
            ("decode-ms=-1", "mock option decode-ms must be a number from 0 to 3600000, not \"-1\""),
            ("decode-ms=NaN", "mock option decode-ms must be a number from 0 to 3600000, not \"NaN\""),
            ("error-rate=1.5", "mock option error-rate must be a number from 0 to 1, not \"1.5\""),
            ("layers=0", "mock option layers must be a whole number from 1 to 1024, not \"0\""),
            ("layers=two", "mock option layers must be a whole number from 1 to 1024, not \"two\""),
        ] {
            assert_eq!(text.parse::<MockConfig>().unwrap_err().to_string(), message);
        }
    }
}
