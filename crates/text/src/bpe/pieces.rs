//! SentencePiece's rules: a space is the letter ▁ of the word after it, and a character without a token is spelled in bytes.

use std::collections::HashMap;

pub(crate) const SPACE: char = '▁';

/// When a space is put before a text, so that its first word looks like any other.
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
    neighbours: Neighbours,
}

/// Which pairs of characters are adjacent inside any merged token. No merge crosses other pairs, so the text may be split there,
/// mostly into words. All characters beyond ASCII count as one.
struct Neighbours([u128; 129]);

impl Neighbours {
    fn of<'a>(tokens: impl IntoIterator<Item = &'a str>) -> Self {
        let mut this = Self([0; 129]);
        for token in tokens {
            for (left, right) in token.chars().zip(token.chars().skip(1)) {
                // The text is never split before a character beyond ASCII.
                if let right @ ..128 = kind(right) {
                    this.0[kind(left)] |= 1 << right;
                }
            }
        }
        this
    }

    #[inline]
    fn may_join(&self, left: usize, right: usize) -> bool {
        right > 127 || self.0[left] >> right & 1 == 1
    }
}

/// A space counts as the ▁ that it will become.
fn kind(char: char) -> usize {
    let char = if char == SPACE { ' ' } else { char };
    (char as usize).min(128)
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
        let bytes: Vec<u32> = bytes.into_iter().collect::<Option<_>>()?;
        Some(Self { chars, bytes: bytes.try_into().ok()?, prefix, neighbours: Neighbours::of(joined) })
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

    /// The first position after `begin` that no merge crosses.
    pub(crate) fn end_of_word(&self, text: &str, begin: usize) -> usize {
        let bytes = text.as_bytes();
        let (mut left, mut at) = self.kind_at(bytes, begin);
        while at < bytes.len() {
            let (right, end) = self.kind_at(bytes, at);
            if !self.neighbours.may_join(left, right) {
                break;
            }
            (left, at) = (right, end);
        }
        at
    }

    /// The kind of a character, and its end.
    #[inline]
    fn kind_at(&self, text: &[u8], at: usize) -> (usize, usize) {
        match text[at..] {
            [0xE2, 0x96, 0x81, ..] => (usize::from(b' '), at + 3),
            [byte @ ..0x80, ..] => (usize::from(byte), at + 1),
            _ => {
                let rest = text[at + 1..].iter().take_while(|&&byte| byte & 0xC0 == 0x80).count();
                (128, at + 1 + rest)
            }
        }
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

pub(crate) fn fallback_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}
