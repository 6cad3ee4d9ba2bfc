//! What equality an engine promises.

/// The arithmetic of an engine. Engines with equal ids give bit-equal logits for equal requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numerics {
    /// Weights, dtypes of weights and KV, kernel family, order of sums.
    pub id: String,
    pub guarantee: Guarantee,
}

/// What the KV of a token is a function of, besides the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarantee {
    /// Of the tokens up to it and of nothing else: KV of an answer may stand in for that of the same tokens in a prompt.
    ByToken,
    /// Also of whether it was in the prompt or was generated: neither may stand in for the other.
    ByOrigin,
}
