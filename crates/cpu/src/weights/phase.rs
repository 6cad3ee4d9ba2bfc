//! The phases of a step, which decide what weights are read when.

/// The phases of a step in their order; those from [`Phase::Qkv`] to [`Phase::Down`] run once per layer. Norms, rotations and gates
/// belong to the phase that needs their results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Embed,
    Qkv,
    StoreKv,
    Attention,
    Output,
    GateUp,
    Down,
    /// Includes sampling.
    Logits,
}

impl Phase {
    pub const ALL: [Self; 8] =
        [Self::Embed, Self::Qkv, Self::StoreKv, Self::Attention, Self::Output, Self::GateUp, Self::Down, Self::Logits];
}
