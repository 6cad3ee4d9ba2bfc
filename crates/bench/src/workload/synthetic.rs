//! Made-up chats with given lengths.

use super::lengths::Lengths;
use super::{Chat, ChatTurn, TextId, TextKind, TextPart};
use crate::random::Random;

/// Keeps the lengths apart from all other draws.
const LENGTHS: u64 = 0x1e57;

#[derive(Clone, Debug)]
pub(crate) struct Synthetic {
    /// Of what the user adds in each turn.
    pub(crate) input: Lengths,
    pub(crate) output: Lengths,
    pub(crate) turns: Lengths,
    /// Of the first turn, that many others begin with as well.
    pub(crate) shared_prefix_share: f64,
    /// How many different prefixes there are; each chat begins with one of them.
    pub(crate) prefix_groups: u32,
}

impl Synthetic {
    pub(crate) fn chat(&self, seed: u64, number: u64) -> Chat {
        let mut random = Random::new(seed, &[LENGTHS, number]);
        let group = random.below(self.prefix_groups);
        let turns = self.turns.draw(&mut random) as usize;
        let turns = (0..turns)
            .map(|turn| {
                let (input, output_tokens) = (self.input.draw(&mut random), self.output.draw(&mut random));
                let shared = if turn == 0 { (f64::from(input) * self.shared_prefix_share).round() as u32 } else { 0 };
                let prefix = TextPart { text: TextId::new(TextKind::Prefix, group.into(), 0), tokens: shared };
                let own = TextPart { text: TextId::new(TextKind::Unique, number, turn), tokens: input - shared };
                ChatTurn {
                    user: [prefix, own].into_iter().filter(|piece| piece.tokens > 0).collect(),
                    output_tokens,
                    answer: TextPart { text: TextId::new(TextKind::Answer, number, turn), tokens: output_tokens },
                }
            })
            .collect();
        Chat { at: None, turns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn synthetic(share: f64, groups: u32) -> Synthetic {
        Synthetic {
            input: Lengths::Fixed(100),
            output: Lengths::Fixed(10),
            turns: Lengths::Fixed(3),
            shared_prefix_share: share,
            prefix_groups: groups,
        }
    }

    #[test]
    fn half_of_the_first_turn_is_shared_within_a_group() {
        let chats: Vec<_> = (0..50).map(|number| synthetic(0.5, 2).chat(1, number)).collect();
        let prefixes: Vec<_> = chats.iter().map(|chat| chat.turns[0].user[0]).collect();
        assert!(prefixes.iter().all(|prefix| prefix.tokens == 50));
        let first = prefixes.iter().filter(|prefix| **prefix == prefixes[0]).count();
        assert!((10..40).contains(&first), "{first} of 50 in the first of two groups");
        assert!(chats.iter().all(|chat| chat.turns[1].user.len() == 1), "only the first turn has a prefix");
    }

    #[test]
    fn everything_or_nothing_shared() {
        assert_eq!(synthetic(0.0, 1).chat(1, 0).turns[0].user[0].text, TextId::new(TextKind::Unique, 0, 0));
        let all = synthetic(1.0, 1);
        assert_eq!(all.chat(1, 0).turns[0].user, all.chat(1, 9).turns[0].user);
    }
}
