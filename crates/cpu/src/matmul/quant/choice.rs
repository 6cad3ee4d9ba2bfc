//! How quantized weights are multiplied, by the origin of a token.

/// How quantized weights are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuantMatmul {
    /// [As bf16](crate::weights::quant), in the order of tiles.
    Float,
    /// [As integers](mod@super::integers); logits always are.
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
