//! A hash of all tokens of a sequence and its adapter, from which a mock derives the next token and the KV.

use baton_core::{AdapterId, TokenId};

/// Hash of the tokens `[0, n)` of a sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct History(u64);

impl History {
    /// Of no token, for an engine with this adapter.
    pub(crate) fn with(adapter: Option<AdapterId>) -> Self {
        Self(adapter.map_or(0, |adapter| mix(1, adapter.0)))
    }

    pub(crate) fn of(tokens: &[TokenId]) -> Self {
        tokens.iter().fold(Self::default(), |history, &token| history.then(token))
    }

    pub(crate) fn then(self, token: TokenId) -> Self {
        Self(mix(self.0, token.0.into()))
    }

    /// A value that depends on these tokens and `salt` only.
    pub(crate) fn derive(self, salt: u64) -> u64 {
        mix(self.0, salt)
    }
}

/// SplitMix64's output function.
pub(crate) fn mix(state: u64, value: u64) -> u64 {
    let mut z = state.rotate_left(17) ^ value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
