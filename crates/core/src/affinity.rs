//! Which requests belong together.

/// Requests with equal keys are those of one conversation or user: a strategy may keep them on one engine. A hash of the name
/// that the client gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AffinityKey(u64);

impl AffinityKey {
    pub fn of(name: &str) -> Self {
        let mut hash = [0; 8];
        hash.copy_from_slice(&blake3::hash(name.as_bytes()).as_bytes()[..8]);
        Self(u64::from_le_bytes(hash))
    }

    /// How much the place with this name attracts the key: a pseudorandom number for each pair of them. When a place goes,
    /// only its own keys move (rendezvous hashing).
    pub fn weight(self, place: &str) -> u64 {
        let mut mixed = self.0 ^ Self::of(place).0;
        for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
            mixed = (mixed ^ (mixed >> 33)).wrapping_mul(factor);
        }
        mixed ^ (mixed >> 33)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Routers of different builds must agree on these.
    #[test]
    fn weights_never_change() {
        assert_eq!(AffinityKey::of("user-1").weight("decode-0"), 15_295_436_574_265_641_978);
    }

    #[test]
    fn keys_spread_evenly_and_only_those_of_a_place_that_goes_move() {
        let places = ["decode-0", "decode-1", "decode-2", "decode-3"];
        let home = |key: AffinityKey, places: &[&'static str]| {
            places.iter().copied().max_by_key(|place| key.weight(place)).unwrap()
        };
        let mut counts = BTreeMap::new();
        for session in 0..4000 {
            let key = AffinityKey::of(&format!("session {session}"));
            let (before, after) = (home(key, &places), home(key, &places[1..]));
            assert!(before == after || before == places[0]);
            *counts.entry(before).or_insert(0) += 1;
        }
        assert!(counts.len() == 4 && counts.values().all(|count| (900..1100).contains(count)), "{counts:?}");
    }
}
