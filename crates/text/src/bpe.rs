//! Byte pair encoding: a text is split at added tokens and then into words; the tokens of each word come from the cache of words or
//! from its merges.

mod added_tokens;
mod classes;
mod merges;
mod pieces;
mod split;
mod whole_words;
mod word_cache;

use std::sync::{Mutex, PoisonError};

use unicode_normalization_alignments::{IsNormalized, UnicodeNormalization, is_nfc_quick};

pub(crate) use added_tokens::{AddedToken, AddedTokens, TextPiece};
pub(crate) use merges::{Merge, Merges};
pub(crate) use pieces::{Pieces, Prefix, SPACE, fallback_byte};
pub(crate) use split::{GPT2, SplitRule};
pub(crate) use whole_words::WholeWords;

use merges::MergeScratch;
use word_cache::WordCache;

/// The number of idle buffers that are kept; more texts at once allocate their own.
const IDLE_SCRATCHES: usize = 4;

pub(crate) struct Bpe {
    pub(crate) added: Option<AddedTokens>,
    /// Added tokens that are matched only after the text is normalized.
    pub(crate) added_to_normalized: Option<AddedTokens>,
    /// Whether the text is converted to Unicode's composed form (NFC) first.
    pub(crate) composed: bool,
    pub(crate) words: WordVocabulary,
    pub(crate) merges: Merges,
    pub(crate) whole_words: Option<WholeWords>,
    pub(crate) idle: Idle,
}

pub(crate) enum WordVocabulary {
    /// The token of each byte that has one.
    Bytes {
        rule: SplitRule,
        tokens: Box<[Option<u32>; 256]>,
    },
    Pieces(Box<Pieces>),
}

/// Buffers that are reused from text to text.
#[derive(Default)]
pub(crate) struct Idle(Mutex<Vec<BpeScratch>>);

struct BpeScratch {
    cache: WordCache,
    merges: MergeScratch,
    first_word: String,
}

impl Bpe {
    pub(crate) fn encode(&self, text: &str, tokens: &mut Vec<u32>) {
        let mut scratch = self.idle.take();
        let start = text.as_ptr();
        split(self.added.as_ref(), text, |piece| match piece {
            TextPiece::Token(id) => tokens.push(id),
            TextPiece::Text(raw) => {
                let at_start = raw.as_ptr() == start;
                let composed = self.composed.then(|| compose(raw)).flatten();
                let text = composed.as_deref().unwrap_or(raw);
                split(self.added_to_normalized.as_ref(), text, |piece| match piece {
                    TextPiece::Token(id) => tokens.push(id),
                    TextPiece::Text(text) => self.encode_words(text, at_start, &mut scratch, tokens),
                });
            }
        });
        self.idle.put(scratch);
    }

    fn encode_words(&self, text: &str, at_start: bool, scratch: &mut BpeScratch, tokens: &mut Vec<u32>) {
        match &self.words {
            WordVocabulary::Bytes { rule, .. } => {
                rule.words(text, |begin, end| self.word(text, begin, end, scratch, tokens))
            }
            WordVocabulary::Pieces(pieces) => {
                let mut begin = 0;
                if pieces.needs_prefix(text, at_start) {
                    begin = pieces.end_of_word(text, 0);
                    let mut word = std::mem::take(&mut scratch.first_word);
                    word.clear();
                    word.push(' ');
                    word.push_str(&text[..begin]);
                    self.word(&word, 0, word.len(), scratch, tokens);
                    scratch.first_word = word;
                }
                while begin < text.len() {
                    let end = pieces.end_of_word(text, begin);
                    self.word(text, begin, end, scratch, tokens);
                    begin = end;
                }
            }
        }
    }

    #[inline]
    fn word(&self, text: &str, begin: usize, end: usize, scratch: &mut BpeScratch, tokens: &mut Vec<u32>) {
        let place = WordCache::place(text.as_bytes(), begin, end);
        if let Some(known) = place.and_then(|place| scratch.cache.tokens(place)) {
            return tokens.extend_from_slice(known);
        }
        let first = tokens.len();
        self.new_word(&text[begin..end], &mut scratch.merges, tokens);
        if let Some(place) = place {
            scratch.cache.insert(place, &tokens[first..]);
        }
    }

    #[cold]
    #[inline(never)]
    fn new_word(&self, word: &str, scratch: &mut MergeScratch, tokens: &mut Vec<u32>) {
        if let Some(token) = self.whole_words.as_ref().and_then(|words| words.token(word.as_bytes())) {
            return tokens.push(token);
        }
        match &self.words {
            WordVocabulary::Bytes { tokens: of_byte, .. } => {
                let symbols = word.bytes().filter_map(|byte| of_byte[byte as usize]);
                self.merges.merge(symbols, scratch, |token| tokens.push(token));
            }
            WordVocabulary::Pieces(pieces) => {
                self.merges.merge(pieces.symbols(word), scratch, |token| tokens.push(token))
            }
        }
    }
}

fn split<'a>(added: Option<&AddedTokens>, text: &'a str, mut piece: impl FnMut(TextPiece<'a>)) {
    match added {
        Some(added) => added.split(text, piece),
        None if text.is_empty() => {}
        None => piece(TextPiece::Text(text)),
    }
}

/// The composed form; `None` when the text is composed already. Works line by line, since line ends do not combine.
fn compose(text: &str) -> Option<String> {
    let mut composed = String::new();
    let (mut begin, mut copied) = (0, 0);
    for line in text.split_inclusive('\n') {
        let end = begin + line.len();
        if !is_composed(line) {
            composed.push_str(&text[copied..begin]);
            composed.extend(line.nfc().map(|(char, _)| char));
            copied = end;
        }
        begin = end;
    }
    (copied > 0).then(|| composed + &text[copied..])
}

fn is_composed(line: &str) -> bool {
    // The first byte of U+0300; characters below it do not combine.
    const FIRST_COMBINING: u8 = 0xCC;
    line.bytes().all(|byte| byte < FIRST_COMBINING) || is_nfc_quick(line.chars()) == IsNormalized::Yes
}

impl Idle {
    fn take(&self) -> BpeScratch {
        let idle = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.unwrap_or_else(|| BpeScratch {
            cache: WordCache::new(),
            merges: MergeScratch::default(),
            first_word: String::new(),
        })
    }

    fn put(&self, scratch: BpeScratch) {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_SCRATCHES && scratch.merges.is_small() {
            idle.push(scratch);
        }
    }
}
