//! Classes of characters, as the regular expressions of tokenizers distinguish them.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::OnceLock;

use regex_syntax::hir::{Class, HirKind};

/// Kinds are bits, so that a run of several kinds is one test.
pub(crate) const LETTER: u8 = 1;
pub(crate) const NUMBER: u8 = 2;
pub(crate) const SPACE: u8 = 4;
pub(crate) const OTHER: u8 = 8;

const CODE_POINTS: usize = 0x11_0000;
const BLOCK: usize = 256;

/// Every code point is of exactly one kind. Two levels, with equal blocks kept once: 60 KB instead of a megabyte.
pub(crate) struct Classes {
    block_of: Vec<u16>,
    kinds: Vec<u8>,
}

impl Classes {
    /// `\p{L}`, `\p{N}` and `\s` of the regex crate, whose Unicode version the reference tokenizer has.
    pub(crate) fn of_regex() -> &'static Self {
        static CLASSES: OnceLock<Classes> = OnceLock::new();
        CLASSES.get_or_init(|| Self::compress(&regex_kinds()))
    }

    /// The same with the standard library's numbers, which the reference's digit splitter uses.
    pub(crate) fn of_digit_splitter() -> &'static Self {
        static CLASSES: OnceLock<Classes> = OnceLock::new();
        CLASSES.get_or_init(|| {
            let mut kinds = regex_kinds();
            let numeric = (0..CODE_POINTS).filter(|&code| char::from_u32(code as u32).is_some_and(char::is_numeric));
            numeric.for_each(|code| kinds[code] = NUMBER);
            Self::compress(&kinds)
        })
    }

    #[inline]
    pub(crate) fn of(&self, code: u32) -> u8 {
        let block = self.block_of[code as usize / BLOCK] as usize;
        self.kinds[block * BLOCK + code as usize % BLOCK]
    }

    fn compress(kinds: &[u8]) -> Self {
        let mut this = Self { block_of: Vec::new(), kinds: Vec::new() };
        let mut seen: HashMap<&[u8], u16> = HashMap::new();
        for block in kinds.chunks(BLOCK) {
            let next = seen.len() as u16;
            let index = *seen.entry(block).or_insert(next);
            if index == next {
                this.kinds.extend_from_slice(block);
            }
            this.block_of.push(index);
        }
        this
    }
}

fn regex_kinds() -> Vec<u8> {
    let mut kinds = vec![OTHER; CODE_POINTS];
    for (class, kind) in [(r"\p{L}", LETTER), (r"\p{N}", NUMBER), (r"\s", SPACE)] {
        for range in ranges(class) {
            kinds[range].fill(kind);
        }
    }
    kinds
}

fn ranges(class: &str) -> Vec<RangeInclusive<usize>> {
    match regex_syntax::parse(class).map(regex_syntax::hir::Hir::into_kind) {
        Ok(HirKind::Class(Class::Unicode(class))) => {
            class.iter().map(|range| range.start() as usize..=range.end() as usize).collect()
        }
        // Cannot happen: the crate is built with its Unicode tables.
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_characters() {
        let table = [
            ('a', LETTER),
            ('ß', LETTER),
            ('日', LETTER),
            ('0', NUMBER),
            ('½', NUMBER),
            ('Ⅷ', NUMBER),
            (' ', SPACE),
            ('\n', SPACE),
            ('\u{3000}', SPACE),
            ('_', OTHER),
            ('\u{301}', OTHER),
            ('😀', OTHER),
            ('\u{10FFFF}', OTHER),
        ];
        for (c, kind) in table {
            assert_eq!(Classes::of_regex().of(c.into()), kind, "{c:?}");
            assert_eq!(Classes::of_digit_splitter().of(c.into()), kind, "{c:?}");
        }
    }
}
