//! Tokens by descending logit, ties by ascending id; sorted only as far as they are read.

use baton_core::TokenId;

use super::wide::wide;

/// Sorted first; then four times as many.
const FIRST_SORTED: usize = 64;
/// Looked at before the tokens in them are.
const CHUNK: usize = 64;

/// ```text
///   keys: | sorted | above the floor, unsorted |        not in keys: what lies below the floor
/// ```
pub(super) struct Ranking<'a> {
    logits: &'a [f32],
    keys: &'a mut Vec<u64>,
    sorted: usize,
    floor: f32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ranked {
    pub(super) token: TokenId,
    pub(super) logit: f32,
}

impl<'a> Ranking<'a> {
    /// `floor` is a guess at how far down tokens will be read: what lies below is collected when they are.
    pub(super) fn new(logits: &'a [f32], floor: f32, keys: &'a mut Vec<u64>) -> Self {
        keys.clear();
        collect_likely(keys, logits, floor);
        Self { logits, keys, sorted: 0, floor }
    }

    pub(super) fn get(&mut self, rank: usize) -> Option<Ranked> {
        while rank >= self.sorted {
            if self.sorted < self.keys.len() {
                self.sort_more();
            } else if self.keys.len() < self.logits.len() {
                collect_unlikely(self.keys, self.logits, self.floor);
            } else {
                return None;
            }
        }
        Some(ranked(self.keys[rank]))
    }

    fn sort_more(&mut self) {
        let unsorted = &mut self.keys[self.sorted..];
        let more = (self.sorted * 3).max(FIRST_SORTED).min(unsorted.len());
        if more < unsorted.len() {
            unsorted.select_nth_unstable(more);
        }
        unsorted[..more].sort_unstable();
        self.sorted += more;
    }
}

wide! {
    /// The lowest token whose logit is `max`.
    pub(super) fn argmax(logits: &[f32], max: f32) -> TokenId {
        let mut first = 0;
        for chunk in logits.chunks(CHUNK) {
            let mut found = 0;
            for &logit in chunk {
                found |= u32::from(logit == max);
            }
            if found != 0 {
                first += chunk.iter().position(|logit| *logit == max).unwrap_or(0);
                return TokenId(first as u32);
            }
            first += chunk.len();
        }
        TokenId(0)
    }
}

wide! {
    /// Those of at least `floor`.
    fn collect_likely(keys: &mut Vec<u64>, logits: &[f32], floor: f32) -> () {
        for (index, chunk) in logits.chunks(CHUNK).enumerate() {
            let mut found = 0;
            for &logit in chunk {
                found |= u32::from(logit >= floor);
            }
            // Mostly none.
            if found != 0 {
                let likely = chunk.iter().enumerate().filter(|(_, logit)| **logit >= floor);
                keys.extend(likely.map(|(i, logit)| key((index * CHUNK + i) as u32, *logit)));
            }
        }
    }
}

fn collect_unlikely(keys: &mut Vec<u64>, logits: &[f32], floor: f32) {
    let unlikely = logits.iter().enumerate().filter(|(_, logit)| **logit < floor);
    keys.extend(unlikely.map(|(token, logit)| key(token as u32, *logit)));
}

/// Ascending keys are descending logits, then ascending tokens.
fn key(token: u32, logit: f32) -> u64 {
    // Adding +0 makes -0 equal to +0.
    let bits = (logit + 0.0).to_bits();
    let ascending = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    u64::from(!ascending) << 32 | u64::from(token)
}

fn ranked(key: u64) -> Ranked {
    let ascending = !((key >> 32) as u32);
    let bits = if ascending >> 31 == 1 { ascending & !(1 << 31) } else { !ascending };
    Ranked { token: TokenId(key as u32), logit: f32::from_bits(bits) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_a_full_sort_whatever_the_floor() {
        // Many ties, both zeros, both signs, and -∞.
        let mut logits: Vec<f32> = (0..1000u32).map(|token| ((token * 7919) % 101) as f32 / 10.0 - 5.0).collect();
        logits[3] = -0.0;
        logits[5] = f32::NEG_INFINITY;
        let mut expected: Vec<u32> = (0..1000).collect();
        expected.sort_by(|a, b| logits[*b as usize].partial_cmp(&logits[*a as usize]).unwrap().then(a.cmp(b)));
        let mut keys = Vec::new();
        for floor in [f32::NEG_INFINITY, -5.0, 0.0, 4.9, 5.0, 99.0] {
            let mut ranking = Ranking::new(&logits, floor, &mut keys);
            let order: Vec<u32> = (0..1000).map(|rank| ranking.get(rank).unwrap().token.0).collect();
            assert_eq!(order, expected, "floor {floor}");
            assert_eq!(ranking.get(1000), None);
            assert_eq!(ranking.get(999).unwrap().logit, f32::NEG_INFINITY);
        }
    }

    #[test]
    fn a_look_at_the_best_sorts_little() {
        let logits: Vec<f32> = (0..150_000).map(|token| (token as f32).sin()).collect();
        let mut keys = Vec::new();
        let mut ranking = Ranking::new(&logits, f32::NEG_INFINITY, &mut keys);
        ranking.get(10).unwrap();
        assert_eq!(ranking.sorted, FIRST_SORTED);
    }
}
