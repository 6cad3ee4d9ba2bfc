//! All chance in a simulation comes from its seed.

use std::time::Duration;

/// SplitMix64's output function over a running state: good enough that no two prefixes meet.
pub(crate) fn mix(state: u64, value: u64) -> u64 {
    let mut z = state.rotate_left(17) ^ value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(mix(seed, 0))
    }

    /// A stream of its own, so that what one part draws does not change what another gets.
    pub(crate) fn fork(&mut self) -> Self {
        Self(mix(self.next(), 1))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = mix(self.0, 2);
        self.0
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// Both ends included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    pub(crate) fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub(crate) fn per_mille(&mut self, chance: u64) -> bool {
        chance > 0 && self.below(1000) < chance
    }

    pub(crate) fn micros(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_micros(self.between(low, high))
    }

    pub(crate) fn millis(&mut self, low: u64, high: u64) -> Duration {
        self.micros(1000 * low, 1000 * high)
    }
}
