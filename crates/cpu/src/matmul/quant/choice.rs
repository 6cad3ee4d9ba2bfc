//! How quantized weights are multiplied, by the origin of a token.

/// What becomes of codes where they are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuantMatmul {
    /// [Numbers of bf16](super::floats), in the order of tiles.
    Float,
    /// They stay [integers](mod@super::integers), as logits always have them.
    Integer,
}

/// [`Products`](crate::Products) without `Auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenMatmuls {
    Float,
    Integer,
    Both,
}

impl TokenMatmuls {
    /// How a token is multiplied that was generated, or belongs to the prompt.
    pub(crate) fn of(self, generated: bool) -> QuantMatmul {
        match self {
            Self::Float => QuantMatmul::Float,
            Self::Integer => QuantMatmul::Integer,
            Self::Both if generated => QuantMatmul::Integer,
            Self::Both => QuantMatmul::Float,
        }
    }

    pub(crate) fn in_numerics_id(self) -> &'static str {
        match self {
            // Also stands for the integer matmul of logits.
            Self::Float => "-codes-v3",
            Self::Integer => "-int14-v3",
            Self::Both => "-codes-v3-int14-v3",
        }
    }
}
