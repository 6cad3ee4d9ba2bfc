//! A cache of the tokens of words: most words of a text are among a few thousand, and cost one lookup each.

/// A word of up to 23 bytes, with its length in the last byte, so that different words have different keys.
type WordKey = [u64; 3];
const LONGEST_WORD: usize = 23;
const MOST_TOKENS: usize = 8;
/// 2 MB, about the size of a core's L2 cache.
const ENTRIES: usize = 1 << 15;

/// One cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct CachedWord {
    key: WordKey,
    tokens: [u32; MOST_TOKENS],
    len: u8,
}

/// Each word has one entry, which newer words overwrite, so the cache has a fixed size.
pub(crate) struct WordCache(Vec<CachedWord>);

/// The entry of a word that is not too long for the cache.
#[derive(Clone, Copy)]
pub(crate) struct CacheSlot {
    key: WordKey,
    index: usize,
}

impl WordCache {
    pub(crate) fn new() -> Self {
        Self(vec![CachedWord { key: [0; 3], tokens: [0; MOST_TOKENS], len: 0 }; ENTRIES])
    }

    /// The entry of the word `text[begin..end]`, which is not empty.
    #[inline]
    pub(crate) fn place(text: &[u8], begin: usize, end: usize) -> Option<CacheSlot> {
        let len = end - begin;
        if len > LONGEST_WORD {
            return None;
        }
        let mut key = match text[begin..].first_chunk::<24>() {
            Some(bytes) => words(bytes),
            None => {
                let mut bytes = [0; 24];
                bytes[..len].copy_from_slice(&text[begin..end]);
                words(&bytes)
            }
        };
        // Keeps the bytes of the word and clears those after it.
        let bits = len as u32 * 8;
        for (at, word) in key.iter_mut().enumerate() {
            let kept = bits.saturating_sub(at as u32 * 64).min(64);
            *word &= u64::MAX.checked_shr(64 - kept).unwrap_or(0);
        }
        key[2] |= (len as u64) << 56;
        Some(CacheSlot { key, index: index(key) })
    }

    #[inline]
    pub(crate) fn tokens(&self, place: CacheSlot) -> Option<&[u32]> {
        let entry = &self.0[place.index];
        (entry.key == place.key).then(|| &entry.tokens[..entry.len as usize % (MOST_TOKENS + 1)])
    }

    pub(crate) fn insert(&mut self, place: CacheSlot, tokens: &[u32]) {
        if let Some(known) = self.0[place.index].tokens.get_mut(..tokens.len()) {
            known.copy_from_slice(tokens);
            self.0[place.index].key = place.key;
            self.0[place.index].len = tokens.len() as u8;
        }
    }
}

#[inline]
fn words(bytes: &[u8; 24]) -> WordKey {
    let mut key = [0; 3];
    for (word, bytes) in key.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    key
}

#[inline]
fn index([a, b, c]: WordKey) -> usize {
    let product = u128::from(a ^ 0x9E37_79B9_7F4A_7C15) * u128::from(b ^ c.rotate_left(29) ^ 0xD6E8_FEB8_6659_FD93);
    let mixed = (product as u64 ^ (product >> 64) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> (64 - ENTRIES.ilog2())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_told_apart_by_their_bytes_alone() {
        let text = b"a\0\0 the quick brown foxes jumped over a lazy dog, then the";
        let place = |begin, end| WordCache::place(text, begin, end).unwrap();
        let mut cache = WordCache::new();
        cache.insert(place(4, 7), &[1, 2]);
        let end = text.len();
        assert_eq!(cache.tokens(place(end - 3, end)), Some(&[1, 2][..]), "the same bytes at the end of the text");
        assert_eq!(cache.tokens(place(4, 6)), None);
        assert_ne!(place(0, 1).key, place(0, 2).key, "a zero byte is a byte");
        assert!(
            WordCache::place(text, 0, LONGEST_WORD).is_some() && WordCache::place(text, 0, LONGEST_WORD + 1).is_none()
        );
    }

    #[test]
    fn many_tokens_are_not_kept() {
        let mut cache = WordCache::new();
        let place = WordCache::place(b"word", 0, 4).unwrap();
        cache.insert(place, &[7; MOST_TOKENS + 1]);
        assert_eq!(cache.tokens(place), None);
        cache.insert(place, &[7; MOST_TOKENS]);
        assert_eq!(cache.tokens(place), Some(&[7; MOST_TOKENS][..]));
    }
}
