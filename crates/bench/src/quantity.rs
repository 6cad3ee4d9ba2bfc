//! Quantities as people write them: `200ms`, `2..20`, `10%`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// `5s`, `200ms`, `2m`; a bare number is seconds.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == 'µ');
    let scale_s = match &text[digits.len()..] {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" | "" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        unit => return Err(format!("`{unit}` is not a unit of time: write 200ms, 5s or 2m")),
    };
    let number: f64 = digits.parse().map_err(|_| format!("`{text}` is not a time: write 200ms, 5s or 2m"))?;
    Duration::try_from_secs_f64(number * scale_s).map_err(|_| format!("`{text}` is not a time that can pass"))
}

/// A value, or one that grows evenly over the run: `8`, `2..20`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ramp {
    pub(crate) from: f64,
    pub(crate) to: f64,
}

impl Ramp {
    pub(crate) fn constant(value: f64) -> Self {
        Self { from: value, to: value }
    }

    pub(crate) fn mean(self) -> f64 {
        (self.from + self.to) / 2.0
    }

    pub(crate) fn is_constant(self) -> bool {
        self.from == self.to
    }
}

impl FromStr for Ramp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let positive = |text: &str| match text.parse::<f64>() {
            Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
            _ => Err(format!("`{text}` is not a positive number")),
        };
        match text.split_once("..") {
            Some((from, to)) => Ok(Self { from: positive(from)?, to: positive(to)? }),
            None => positive(text).map(Self::constant),
        }
    }
}

impl fmt::Display for Ramp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_constant() { write!(f, "{}", self.from) } else { write!(f, "{}..{}", self.from, self.to) }
    }
}

/// What a run leaves out of its result, at the beginning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Warmup {
    /// `10%` of the run's time, or of its requests where it ends by those.
    Share(f64),
    /// `5s`
    Time(Duration),
    /// `20`: this many requests.
    Requests(u64),
}

impl FromStr for Warmup {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(percent) = text.strip_suffix('%') {
            return match percent.trim().parse::<f64>() {
                Ok(percent) if (0.0..100.0).contains(&percent) => Ok(Self::Share(percent / 100.0)),
                _ => Err(format!("`{text}` is not a share below 100%")),
            };
        }
        match text.parse() {
            Ok(requests) => Ok(Self::Requests(requests)),
            Err(_) => parse_duration(text).map(Self::Time),
        }
    }
}

/// `90%` or `0.9`.
pub(crate) fn parse_share(text: &str) -> Result<f64, String> {
    let (number, scale) = text.strip_suffix('%').map_or((text, 1.0), |percent| (percent, 0.01));
    match number.trim().parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&(share * scale)) => Ok(share * scale),
        _ => Err(format!("`{text}` is not a share: write 90% or 0.9")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, ms) in [("200ms", 200.0), ("5s", 5e3), ("1.5", 1500.0), ("2m", 12e4), ("50us", 0.05), ("0", 0.0)] {
            assert_eq!(parse_duration(text).unwrap().as_secs_f64() * 1e3, ms, "{text}");
        }
        for text in ["", "s", "5 parsecs", "-1s", "1e300h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ramps_and_warmups() {
        assert_eq!("8".parse(), Ok(Ramp::constant(8.0)));
        assert_eq!("2..20".parse(), Ok(Ramp { from: 2.0, to: 20.0 }));
        for text in ["0", "-1", "1..", "x", "inf"] {
            assert!(text.parse::<Ramp>().is_err(), "{text}");
        }
        assert_eq!("10%".parse(), Ok(Warmup::Share(0.1)));
        assert_eq!("5s".parse(), Ok(Warmup::Time(Duration::from_secs(5))));
        assert_eq!("20".parse(), Ok(Warmup::Requests(20)));
        assert!("100%".parse::<Warmup>().is_err());
    }

    #[test]
    fn shares() {
        assert_eq!(parse_share("90%"), Ok(0.9));
        assert_eq!(parse_share("0.5"), Ok(0.5));
        assert!(parse_share("1.5").is_err() && parse_share("x").is_err());
    }
}
