//! SentencePiece's way: a space is the letter ▁ of the word after it, and a character without a token is spelled in bytes.

use std::collections::HashMap;

pub(crate) const SPACE: char = '▁';

/// When a text gets a space before it, so that its first word looks like any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefix {
    Never,
    /// Each stretch of text between added tokens.
    Always,
    /// Those that do not begin with one already.
    WhereMissing,
    /// The text's beginning, if it does not begin with one already.
    WhereMissingAtStart,
}

pub(crate) struct Pieces {
    chars: HashMap<char, u32>,
    bytes: [u32; 256],
    prefix: Prefix,
    /// No token has a space behind another character, so nothing is ever joined there.
    words_end_before_spaces: bool,
}

impl Pieces {
    /// `None` unless every byte has a token.
    pub(crate) fn new<'a>(
        tokens: impl Iterator<Item = (&'a str, u32)>,
        joined: impl IntoIterator<Item = &'a str>,
        prefix: Prefix,
    ) -> Option<Self> {
        let mut bytes = [None; 256];
        let mut chars = HashMap::new();
        for (token, id) in tokens {
            if let Some(byte) = fallback_byte(token) {
                bytes[byte as usize] = Some(id);
            }
            let mut rest = token.chars();
            if let (Some(char), None) = (rest.next(), rest.next()) {
                chars.insert(char, id);
            }
        }
        let words_end_before_spaces = joined.into_iter().all(|token| !token.trim_start_matches(SPACE).contains(SPACE));
        let bytes: Vec<u32> = bytes.into_iter().collect::<Option<_>>()?;
        Some(Self { chars, bytes: bytes.try_into().ok()?, prefix, words_end_before_spaces })
    }

    pub(crate) fn needs_prefix(&self, text: &str, at_start: bool) -> bool {
        let missing = !text.starts_with([' ', SPACE]);
        match self.prefix {
            Prefix::Never => false,
            Prefix::Always => true,
            Prefix::WhereMissing => missing,
            Prefix::WhereMissingAtStart => missing && at_start,
        }
    }

    /// Spaces and what follows them up to the next ones.
    pub(crate) fn end_of_word(&self, text: &str, begin: usize) -> usize {
        if !self.words_end_before_spaces {
            return text.len();
        }
        let mut at = begin;
        while let Some(len) = space(&text.as_bytes()[at..]) {
            at += len;
        }
        while at < text.len() && space(&text.as_bytes()[at..]).is_none() {
            at += 1;
        }
        at
    }

    pub(crate) fn symbols<'a>(&'a self, word: &'a str) -> impl Iterator<Item = u32> + 'a {
        word.chars().flat_map(|char| {
            let char = if char == ' ' { SPACE } else { char };
            let known = self.chars.get(&char).copied();
            let mut utf8 = [0; 4];
            let spelled = if known.is_none() { char.encode_utf8(&mut utf8).len() } else { 0 };
            known.into_iter().chain(utf8.into_iter().take(spelled).map(|byte| self.bytes[byte as usize]))
        })
    }
}

/// Its length, if the text begins with one: here a written ▁ is no different.
#[inline]
fn space(text: &[u8]) -> Option<usize> {
    match text {
        [b' ', ..] => Some(1),
        [0xE2, 0x96, 0x81, ..] => Some(3),
        _ => None,
    }
}

pub(crate) fn fallback_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}
