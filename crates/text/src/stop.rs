//! Ends a text where one of the client's stop strings first is complete, independent of the borders between tokens.

use std::sync::Arc;

/// The stop strings of one request, prepared for matching; shared by its choices.
#[derive(Clone, Debug, Default)]
pub struct StopStrings(Arc<[Pattern]>);

#[derive(Debug)]
struct Pattern {
    bytes: Vec<u8>,
    /// `fallback[k]`: the length of the longest proper prefix of the pattern that is a suffix of its first `k + 1` bytes
    /// (Knuth, Morris, Pratt), so that every byte of text is looked at once per pattern.
    fallback: Vec<usize>,
}

impl StopStrings {
    /// Empty strings never match.
    pub fn new<S: AsRef<str>>(stops: impl IntoIterator<Item = S>) -> Self {
        let stops = stops.into_iter().filter(|stop| !stop.as_ref().is_empty());
        Self(stops.map(|stop| Pattern::new(stop.as_ref().as_bytes())).collect())
    }
}

impl Pattern {
    fn new(bytes: &[u8]) -> Self {
        let mut this = Self { bytes: bytes.to_vec(), fallback: vec![0; bytes.len()] };
        let mut matched = 0;
        for (at, &byte) in bytes.iter().enumerate().skip(1) {
            matched = this.advance(matched, byte);
            this.fallback[at] = matched;
        }
        this
    }

    /// The length of the pattern's prefix that the text ends with after `byte`; before, it ended with `matched` bytes of it.
    fn advance(&self, mut matched: usize, byte: u8) -> usize {
        while matched > 0 && self.bytes[matched] != byte {
            matched = self.fallback[matched - 1];
        }
        if self.bytes[matched] == byte { matched + 1 } else { 0 }
    }
}

/// Watches the text of one choice.
///
/// ```text
///   [ already passed on | held: may begin a stop string | new text )
/// ```
///
/// Of several matches the one that is complete first counts, and of those that end together the longest: the outcome does
/// not depend on how the text is cut into pieces.
#[derive(Debug)]
pub struct StopMatcher {
    stops: StopStrings,
    /// Bytes of each pattern that the text ends with.
    matched: Vec<usize>,
    held: String,
    /// Whether the stop string is passed on too.
    include: bool,
}

impl StopMatcher {
    pub fn new(stops: StopStrings, include: bool) -> Self {
        let matched = vec![0; stops.0.len()];
        Self { stops, matched, held: String::new(), include }
    }

    /// Appends to `out` the text that cannot be part of a stop string any more. `true` when a stop string is complete: the text ends.
    #[must_use]
    pub fn push(&mut self, text: &str, out: &mut String) -> bool {
        let begin = self.held.len();
        self.held.push_str(text);
        for at in begin..self.held.len() {
            let end = at + 1;
            if let Some(len) = self.longest_match(self.held.as_bytes()[at]) {
                out.push_str(&self.held[..if self.include { end } else { end - len }]);
                self.held.clear();
                return true;
            }
        }
        // Text and stop strings are both UTF-8, so a partial match begins at a character's first byte.
        let keep = self.matched.iter().copied().max().unwrap_or(0);
        let free = self.held.len() - keep;
        out.push_str(&self.held[..free]);
        self.held.drain(..free);
        false
    }

    /// Appends all text that is held back, when the text has ended otherwise.
    pub fn finish(&mut self, out: &mut String) {
        out.push_str(&self.held);
        self.held.clear();
        self.matched.fill(0);
    }

    fn longest_match(&mut self, byte: u8) -> Option<usize> {
        let mut longest = None;
        for (pattern, matched) in self.stops.0.iter().zip(&mut self.matched) {
            *matched = pattern.advance(*matched, byte);
            if *matched == pattern.bytes.len() {
                longest = longest.max(Some(*matched));
                *matched = pattern.fallback[*matched - 1];
            }
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text passed on after each piece and at the end; `true` when a stop string ended it.
    fn run(stops: &[&str], pieces: &[&str], include: bool) -> (Vec<String>, bool) {
        let mut matcher = StopMatcher::new(StopStrings::new(stops), include);
        let mut outs = Vec::new();
        for piece in pieces {
            let mut out = String::new();
            let stopped = matcher.push(piece, &mut out);
            outs.push(out);
            if stopped {
                return (outs, true);
            }
        }
        let mut out = String::new();
        matcher.finish(&mut out);
        outs.push(out);
        (outs, false)
    }

    #[test]
    fn holds_back_only_what_may_become_a_match() {
        type Row<'a> = (&'a [&'a str], &'a [&'a str], &'a [&'a str], bool);
        let table: [Row<'_>; 11] = [
            (&[], &["a", "b"], &["a", "b", ""], false),
            (&["END"], &["the E", "ND of"], &["the ", ""], true),
            (&["END"], &["the E", "NE", "N"], &["the ", "EN", "", "EN"], false),
            (&["END"], &["xENDy"], &["x"], true),
            (&["\n\n"], &["a\n", "b\n", "\nc"], &["a", "\nb", ""], true),
            (&["aab"], &["aa", "aa", "b"], &["", "aa", ""], true),
            (&["abcd", "bc"], &["ab", "c"], &["", "a"], true),
            (&["c", "abc"], &["xabc"], &["x"], true),
            (&["日本"], &["x日", "曜"], &["x", "日曜", ""], false),
            (&["日本"], &["x日", "本"], &["x", ""], true),
            (&["cat", "dog"], &["c", "a", "do", "g"], &["", "", "ca", ""], true),
        ];
        for (stops, pieces, expected, stopped) in table {
            assert_eq!(
                run(stops, pieces, false),
                (expected.iter().map(ToString::to_string).collect(), stopped),
                "{pieces:?}"
            );
        }
    }

    #[test]
    fn includes_the_stop_string_when_asked() {
        assert_eq!(run(&["END"], &["the E", "ND of"], true), (vec!["the ".to_owned(), "END".to_owned()], true));
    }

    /// The first end of any stop string in `text`, by brute force.
    fn reference(stops: &[&str], text: &str) -> (String, bool) {
        for (end, _) in text.char_indices().map(|(at, c)| (at + c.len_utf8(), c)) {
            let ending = stops.iter().filter(|stop| text[..end].ends_with(**stop)).map(|stop| stop.len()).max();
            if let Some(len) = ending {
                return (text[..end - len].to_owned(), true);
            }
        }
        (text.to_owned(), false)
    }

    #[test]
    fn the_cut_does_not_depend_on_the_pieces() {
        let stops = ["abab", "bb", "aba!", "ü"];
        let alphabet = ["a", "b", "ab", "a!", "ü", "ba"];
        for mut seed in 0..6u64.pow(6) {
            let mut pieces = Vec::new();
            for _ in 0..6 {
                pieces.push(alphabet[(seed % 6) as usize]);
                seed /= 6;
            }
            for count in 1..=stops.len() {
                let (outs, stopped) = run(&stops[..count], &pieces, false);
                assert_eq!((outs.concat(), stopped), reference(&stops[..count], &pieces.concat()), "{pieces:?}");
            }
        }
    }
}
