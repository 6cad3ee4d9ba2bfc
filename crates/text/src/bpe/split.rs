//! Text into words, before any token is looked for: the split rules of byte-level models, by hand. Each is the scanner of
//! one regular expression, equal to it on every text.

use super::classes::{Classes, LETTER, NUMBER, OTHER, SPACE};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SplitRule {
    /// [`GPT2`], the default of byte-level pre-tokenizers.
    Gpt2,
    /// The same after every digit has been set apart: SmolLM, StarCoder.
    Gpt2Digits,
    /// [`LLAMA3`]
    Llama3,
    /// [`QWEN2`]
    Qwen2,
}

pub(crate) const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
pub(crate) const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
pub(crate) const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

impl SplitRule {
    pub(crate) fn of_regex(regex: &str) -> Option<Self> {
        match regex {
            GPT2 => Some(Self::Gpt2),
            LLAMA3 => Some(Self::Llama3),
            QWEN2 => Some(Self::Qwen2),
            _ => None,
        }
    }

    /// Calls `word` with `begin` and `end` of each word. Together they are the whole text.
    #[inline]
    pub(crate) fn words(self, text: &str, word: impl FnMut(usize, usize)) {
        match self {
            Self::Gpt2 => each(text, Classes::of_regex(), |scan, at| scan.gpt2(at, false), word),
            Self::Gpt2Digits => each(text, Classes::of_digit_splitter(), |scan, at| scan.gpt2(at, true), word),
            Self::Llama3 => each(text, Classes::of_regex(), |scan, at| scan.cl100k(at, 3), word),
            Self::Qwen2 => each(text, Classes::of_regex(), |scan, at| scan.cl100k(at, 1), word),
        }
    }
}

#[inline]
fn each(
    text: &str,
    classes: &'static Classes,
    end_of_word: impl Fn(&Scan<'_>, usize) -> usize,
    mut word: impl FnMut(usize, usize),
) {
    let mut ascii = [0; 128];
    ascii.iter_mut().zip(0..).for_each(|(kind, code)| *kind = classes.of(code));
    let scan = Scan { text: text.as_bytes(), ascii, classes };
    let mut begin = 0;
    while begin < text.len() {
        let end = end_of_word(&scan, begin);
        word(begin, end);
        begin = end;
    }
}

struct Scan<'a> {
    /// UTF-8, with all positions at the begin of a character.
    text: &'a [u8],
    ascii: [u8; 128],
    classes: &'static Classes,
}

impl Scan<'_> {
    #[inline]
    fn gpt2(&self, begin: usize, single_digits: bool) -> usize {
        let first = self.text[begin];
        if first == b'\''
            && let Some(len) = self.contraction(begin, |byte| byte)
        {
            return begin + len;
        }
        let after_space = begin + usize::from(first == b' ');
        let (kind, len) = self.at(after_space);
        match kind {
            LETTER | OTHER => self.run(after_space + len, kind),
            NUMBER if !single_digits => self.run(after_space + len, NUMBER),
            NUMBER if after_space == begin => begin + len,
            // Spaces, or one at the end of the text or before a digit set apart.
            _ => self.spaces(begin, self.run(begin, SPACE), single_digits),
        }
    }

    #[inline]
    fn cl100k(&self, begin: usize, digits: usize) -> usize {
        let first = self.text[begin];
        if first == b'\''
            && let Some(len) = self.contraction(begin, |byte| byte.to_ascii_lowercase())
        {
            return begin + len;
        }
        let (kind, len) = self.at(begin);
        match kind {
            LETTER => self.run(begin + len, LETTER),
            NUMBER => {
                let mut end = begin + len;
                for _ in 1..digits {
                    match self.at(end) {
                        (NUMBER, len) => end += len,
                        _ => break,
                    }
                }
                end
            }
            _ => {
                let (next, next_len) = self.at(begin + len);
                if next == LETTER && !is_newline(first) {
                    return self.run(begin + len + next_len, LETTER);
                }
                if kind == OTHER || first == b' ' && next == OTHER {
                    return self.newlines(self.run(begin + len, OTHER));
                }
                let end = self.run(begin, SPACE);
                match self.text[begin..end].iter().rposition(|&byte| is_newline(byte)) {
                    Some(last) => begin + last + 1,
                    None => self.spaces(begin, end, false),
                }
            }
        }
    }

    /// `\s+(?!\S)|\s+` over `begin..end`: the last space goes with the word after it, unless it is the only one.
    fn spaces(&self, begin: usize, end: usize, text_ends_at_digits: bool) -> usize {
        if end == self.text.len() || text_ends_at_digits && self.at(end).0 == NUMBER {
            return end;
        }
        let mut last = end - 1;
        while self.text[last] & 0xC0 == 0x80 {
            last -= 1;
        }
        if last == begin { end } else { last }
    }

    /// The length of `'s`, `'t`, `'re`, `'ve`, `'m`, `'ll` or `'d` at `begin`.
    fn contraction(&self, begin: usize, fold: impl Fn(u8) -> u8) -> Option<usize> {
        let first = fold(*self.text.get(begin + 1)?);
        let second = self.text.get(begin + 2).copied();
        match (first, second.map(&fold)) {
            (b's' | b't' | b'm' | b'd', _) => Some(2),
            (b'r' | b'v', Some(b'e')) | (b'l', Some(b'l')) => Some(3),
            // The long s ſ is an s when case does not count.
            (0xC5, _) if second == Some(0xBF) && fold(b'S') == b's' => Some(3),
            _ => None,
        }
    }

    fn newlines(&self, mut at: usize) -> usize {
        while self.text.get(at).is_some_and(|&byte| is_newline(byte)) {
            at += 1;
        }
        at
    }

    /// Behind all characters of this kind from here on.
    #[inline]
    fn run(&self, mut at: usize, kind: u8) -> usize {
        loop {
            match self.at(at) {
                (found, len) if found == kind => at += len,
                _ => return at,
            }
        }
    }

    /// Kind and length of a character; of no kind behind the last one.
    #[inline]
    fn at(&self, at: usize) -> (u8, usize) {
        match self.text.get(at) {
            Some(&byte) if byte < 0x80 => (self.ascii[byte as usize], 1),
            Some(_) => self.beyond_ascii(at),
            None => (0, 0),
        }
    }

    fn beyond_ascii(&self, at: usize) -> (u8, usize) {
        let (code, len) = match self.text[at..] {
            [a, b, c, d, ..] if a >= 0xF0 => {
                (bits(a, 0x07) << 18 | bits(b, 0x3F) << 12 | bits(c, 0x3F) << 6 | bits(d, 0x3F), 4)
            }
            [a, b, c, ..] if a >= 0xE0 => (bits(a, 0x0F) << 12 | bits(b, 0x3F) << 6 | bits(c, 0x3F), 3),
            [a, b, ..] => (bits(a, 0x1F) << 6 | bits(b, 0x3F), 2),
            _ => (0, 1),
        };
        (self.classes.of(code), len)
    }
}

fn bits(byte: u8, mask: u8) -> u32 {
    u32::from(byte & mask)
}

fn is_newline(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}
