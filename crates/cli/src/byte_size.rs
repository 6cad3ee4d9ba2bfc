//! Amounts of memory as people write them.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct ByteSize(pub(crate) u64);

/// Binary units, longest names first so that `MiB` is not read as `B`.
const UNITS: [(&str, u32); 13] = [
    ("TIB", 40),
    ("GIB", 30),
    ("MIB", 20),
    ("KIB", 10),
    ("TB", 40),
    ("GB", 30),
    ("MB", 20),
    ("KB", 10),
    ("T", 40),
    ("G", 30),
    ("M", 20),
    ("K", 10),
    ("B", 0),
];

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let upper = text.trim().to_ascii_uppercase();
        let (number, shift) =
            UNITS.into_iter().find_map(|(unit, shift)| Some((upper.strip_suffix(unit)?, shift))).unwrap_or((&upper, 0));
        let wrong = || format!("{text:?} is not an amount of memory; write it like 512M or 4G");
        let number: f64 = number.trim().parse().map_err(|_| wrong())?;
        let bytes = number * (1u64 << shift) as f64;
        if bytes.is_finite() && (1.0..=2f64.powi(60)).contains(&bytes) { Ok(Self(bytes as u64)) } else { Err(wrong()) }
    }
}

impl TryFrom<String> for ByteSize {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, shift) = match self.0 {
            0..0x10_0000 => ("KiB", 10),
            0x10_0000..0x4000_0000 => ("MiB", 20),
            _ => ("GiB", 30),
        };
        let amount = self.0 as f64 / (1u64 << shift) as f64;
        if amount < 10.0 { write!(f, "{amount:.1} {unit}") } else { write!(f, "{amount:.0} {unit}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in
            [("4096", 4096), ("1k", 1024), ("512M", 512 << 20), ("4G", 4 << 30), ("1.5 GiB", 3 << 29), ("2tb", 2 << 40)]
        {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for text in ["", "G", "-1G", "0", "1e300", "4 giga", "NaN", "infG"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_shown_short() {
        for (bytes, text) in [(2048, "2.0 KiB"), (22 << 20, "22 MiB"), (3 << 29, "1.5 GiB"), (64 << 30, "64 GiB")] {
            assert_eq!(ByteSize(bytes).to_string(), text);
        }
    }
}
