//! Half-open ranges of token positions.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::PAGE_TOKENS;

/// Token positions `[begin, end)` of one sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TokenRange {
    begin: u32,
    end: u32,
}

impl TokenRange {
    /// `None` when `begin > end`.
    pub fn new(begin: u32, end: u32) -> Option<Self> {
        (begin <= end).then_some(Self { begin, end })
    }

    /// `[0, end)`.
    pub fn up_to(end: u32) -> Self {
        Self { begin: 0, end }
    }

    pub fn begin(self) -> u32 {
        self.begin
    }

    pub fn end(self) -> u32 {
        self.end
    }

    pub fn len(self) -> usize {
        (self.end - self.begin) as usize
    }

    pub fn is_empty(self) -> bool {
        self.begin == self.end
    }

    pub fn contains(self, position: u32) -> bool {
        (self.begin..self.end).contains(&position)
    }
}

impl fmt::Display for TokenRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.begin, self.end)
    }
}

/// Pages that hold `tokens` tokens.
pub(crate) const fn pages_for(tokens: usize) -> usize {
    tokens.div_ceil(PAGE_TOKENS)
}

impl TokenRange {
    /// How many pages hold positions `[0, end)`.
    pub fn pages(self) -> usize {
        pages_for(self.end as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_half_open() {
        assert_eq!(TokenRange::new(3, 2), None);
        let range = TokenRange::new(2, 5).unwrap();
        assert_eq!((range.len(), range.contains(2), range.contains(5)), (3, true, false));
        assert!(TokenRange::up_to(0).is_empty());
        assert_eq!(range.to_string(), "[2, 5)");
    }

    #[test]
    fn pages_round_up() {
        for (end, pages) in [(0, 0), (1, 1), (32, 1), (33, 2), (64, 2)] {
            assert_eq!(TokenRange::up_to(end).pages(), pages, "{end} tokens");
        }
    }
}
