//! How engines share the work: as `4`, `2P+2D` or `1P+1D+2`.

use std::fmt;
use std::str::FromStr;

use baton_router::Role;

/// How many engines there are of each role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    pub prefill: usize,
    pub decode: usize,
    pub mixed: usize,
}

impl Layout {
    pub fn mixed(engines: usize) -> Self {
        Self { mixed: engines, ..Self::default() }
    }

    pub fn split(prefill: usize, decode: usize) -> Self {
        Self { prefill, decode, mixed: 0 }
    }

    pub fn engines(self) -> usize {
        self.prefill + self.decode + self.mixed
    }

    /// With their names, as `baton serve` gives them.
    pub(crate) fn members(self) -> Vec<(String, Role)> {
        let of = |role: Role, count| (0..count).map(move |at| (format!("{}-{at}", role.name()), role));
        let engines = of(Role::Prefill, self.prefill).chain(of(Role::Decode, self.decode));
        engines.chain(of(Role::Mixed, self.mixed)).collect()
    }

    /// The ways to divide engines into those that compute prompts and those that decode: half and half and, of four, also
    /// one or three of them.
    pub(crate) fn splits(engines: usize) -> Vec<Self> {
        let half = engines / 2;
        let prefill = if engines == 4 { vec![half, 1, 3] } else { vec![half] };
        prefill
            .into_iter()
            .filter(|prefill| (1..engines).contains(prefill))
            .map(|p| Self::split(p, engines - p))
            .collect()
    }
}

/// `4`, `2P+2D`.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self { prefill: 0, decode: 0, mixed } => write!(f, "{mixed} mixed"),
            Self { prefill, decode, mixed: 0 } => write!(f, "{prefill}P+{decode}D"),
            Self { prefill, decode, mixed } => write!(f, "{prefill}P+{decode}D+{mixed} mixed"),
        }
    }
}

impl FromStr for Layout {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut layout = Self::default();
        for part in text.split('+') {
            let (count, engines) = match part.strip_suffix(['P', 'p']) {
                Some(count) => (count, &mut layout.prefill),
                None => match part.strip_suffix(['D', 'd']) {
                    Some(count) => (count, &mut layout.decode),
                    None => (part, &mut layout.mixed),
                },
            };
            *engines = match (count.parse(), *engines) {
                (Ok(count), 0) if count > 0 => count,
                _ => return Err(format!("`{text}` is not a layout: write 4, 2P+2D or 1P+1D+2")),
            };
        }
        Ok(layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_named_by_their_roles() {
        let names: Vec<_> = Layout::split(1, 2).members().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["prefill-0", "decode-0", "decode-1"]);
    }

    #[test]
    fn read_as_written() {
        for (text, layout) in [
            ("4", Layout::mixed(4)),
            ("1P+3D", Layout::split(1, 3)),
            ("2p+2d", Layout::split(2, 2)),
            ("1P+1D+2", Layout { prefill: 1, decode: 1, mixed: 2 }),
        ] {
            assert_eq!(text.parse(), Ok(layout), "{text}");
        }
        for text in ["", "0", "P", "1P+", "1P+1P", "-1", "2X", "1P 2D"] {
            assert!(text.parse::<Layout>().is_err(), "{text}");
        }
    }
}
