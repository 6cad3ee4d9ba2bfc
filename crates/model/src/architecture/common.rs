//! Reads the sizes of models like Llama, under the names of either format.

use crate::{Config, ModelError};

/// The names of the fields in a format.
pub(super) struct SizeFields {
    pub(super) hidden: &'static str,
    pub(super) layers: &'static str,
    pub(super) heads: &'static str,
    pub(super) kv_heads: &'static str,
    pub(super) head_dim: &'static str,
    pub(super) ffn: &'static str,
}

pub(super) struct Sizes {
    pub(super) hidden: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) ffn: usize,
}

impl Sizes {
    pub(super) fn read(config: &Config, names: &SizeFields) -> Result<Self, ModelError> {
        let hidden = config.required_size(names.hidden)?;
        let heads = config.required_size(names.heads)?;
        let kv_heads = config.size(names.kv_heads)?.unwrap_or(heads);
        if heads % kv_heads != 0 {
            let problem = format!("expected a divisor of {} {heads}, got {kv_heads}", names.heads);
            return Err(config.refuse(names.kv_heads, problem));
        }
        Ok(Self {
            hidden,
            layers: config.required_size(names.layers)?,
            heads,
            kv_heads,
            head_dim: head_dim(config, names, hidden, heads)?,
            ffn: config.required_size(names.ffn)?,
        })
    }
}

/// Rotation pairs dimensions, so there is an even number of them.
fn head_dim(config: &Config, names: &SizeFields, hidden: usize, heads: usize) -> Result<usize, ModelError> {
    let (field, head_dim) = match config.size(names.head_dim)? {
        Some(head_dim) => (names.head_dim, head_dim),
        None if hidden.is_multiple_of(heads) => (names.hidden, hidden / heads),
        None => {
            let problem = format!("expected a multiple of {} {heads}, got {hidden}", names.heads);
            return Err(config.refuse(names.hidden, problem));
        }
    };
    if head_dim % 2 != 0 {
        return Err(
            config.refuse(field, format!("gives heads of {head_dim} dimensions; rotation needs an even number"))
        );
    }
    if heads.saturating_mul(head_dim) > i32::MAX as usize {
        return Err(config.refuse(field, format!("{heads} heads of {head_dim} dimensions are too many")));
    }
    Ok(head_dim)
}
