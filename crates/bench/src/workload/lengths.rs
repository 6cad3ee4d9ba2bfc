//! How long: `512`, `100..900`, `normal:512:64`, `lognormal:400:0.8`, `exp:300`.

use std::fmt;
use std::str::FromStr;

use crate::random::Random;

/// A number of tokens or turns, at least one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lengths {
    Fixed(u32),
    /// Evenly in `[from, to]`.
    Uniform {
        from: u32,
        to: u32,
    },
    Normal {
        mean: f64,
        deviation: f64,
    },
    /// `sigma` is the deviation of the logarithm: 0.8 makes one in a hundred 6 times the median.
    LogNormal {
        median: f64,
        sigma: f64,
    },
    Exponential {
        mean: f64,
    },
}

impl Lengths {
    pub fn draw(self, random: &mut Random) -> u32 {
        let length = match self {
            Self::Fixed(length) => return length,
            Self::Uniform { from, to } => return from + random.below(to - from + 1),
            Self::Normal { mean, deviation } => mean + deviation * random.normal(),
            Self::LogNormal { median, sigma } => median * (sigma * random.normal()).exp(),
            Self::Exponential { mean } => mean * random.exponential(),
        };
        // A cast to an integer saturates.
        (length.round() as u32).max(1)
    }
}

impl FromStr for Lengths {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is not a length: write 512, 100..900, normal:512:64, lognormal:400:0.8 or exp:300");
        let count = |text: &str| text.parse::<u32>().ok().filter(|n| *n > 0).ok_or_else(wrong);
        let number = |text: Option<&str>| match text.map(str::parse::<f64>) {
            Some(Ok(value)) if value.is_finite() && value > 0.0 => Ok(value),
            _ => Err(wrong()),
        };
        if let Some((from, to)) = text.split_once("..") {
            let (from, to) = (count(from)?, count(to)?);
            return if from <= to && to < u32::MAX { Ok(Self::Uniform { from, to }) } else { Err(wrong()) };
        }
        let mut parts = text.split(':');
        let lengths = match parts.next().unwrap_or_default() {
            "normal" => Self::Normal { mean: number(parts.next())?, deviation: number(parts.next())? },
            "lognormal" => Self::LogNormal { median: number(parts.next())?, sigma: number(parts.next())? },
            "exp" => Self::Exponential { mean: number(parts.next())? },
            fixed => Self::Fixed(count(fixed)?),
        };
        if parts.next().is_some() { Err(wrong()) } else { Ok(lengths) }
    }
}

impl fmt::Display for Lengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(length) => write!(f, "{length}"),
            Self::Uniform { from, to } => write!(f, "{from}..{to}"),
            Self::Normal { mean, deviation } => write!(f, "normal:{mean}:{deviation}"),
            Self::LogNormal { median, sigma } => write!(f, "lognormal:{median}:{sigma}"),
            Self::Exponential { mean } => write!(f, "exp:{mean}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_as_read_and_centred_at_its_mean() {
        let mut random = Random::new(1, &[]);
        for (text, mean) in [
            ("512", 512.0),
            ("100..900", 500.0),
            ("normal:500:50", 500.0),
            ("lognormal:400:0.5", 400.0 * f64::exp(0.125)),
            ("exp:300", 300.0),
        ] {
            let lengths: Lengths = text.parse().unwrap();
            assert_eq!(lengths.to_string(), text);
            let drawn: Vec<_> = (0..20_000).map(|_| lengths.draw(&mut random)).collect();
            let found = drawn.iter().map(|n| f64::from(*n)).sum::<f64>() / drawn.len() as f64;
            assert!((found / mean - 1.0).abs() < 0.03, "{text}: {found}");
            assert!(drawn.iter().all(|n| *n >= 1));
        }
    }

    #[test]
    fn refused() {
        for text in ["", "0", "-3", "9..1", "0..4", "normal:5", "normal:5:1:2", "exp:x", "gamma:3", "1.5"] {
            assert!(text.parse::<Lengths>().is_err(), "{text}");
        }
    }
}
