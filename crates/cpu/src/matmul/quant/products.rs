//! How quantized weights are multiplied, by the origin of a token.

/// What becomes of codes where they are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodeProducts {
    /// [Numbers of bf16](super::floats), in the order of tiles.
    Floats,
    /// They stay [whole numbers](mod@super::integers), as logits always have them.
    Integers,
}

/// [`Products`](crate::Products) without `Auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenProducts {
    Floats,
    Integers,
    Both,
}

impl TokenProducts {
    /// How a token is multiplied that was generated, or belongs to the prompt.
    pub(crate) fn of(self, generated: bool) -> CodeProducts {
        match self {
            Self::Floats => CodeProducts::Floats,
            Self::Integers => CodeProducts::Integers,
            Self::Both if generated => CodeProducts::Integers,
            Self::Both => CodeProducts::Floats,
        }
    }

    pub(crate) fn in_numerics_id(self) -> &'static str {
        match self {
            // Also stands for the integer matmul of logits.
            Self::Floats => "-codes-v3",
            Self::Integers => "-int14-v3",
            Self::Both => "-codes-v3-int14-v3",
        }
    }
}
