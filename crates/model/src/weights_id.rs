//! An id of a model's weights: equal for equal weights however they are spread over files, different after fine-tuning, and cheap
//! to compute for weights that are larger than memory.

use crate::spec::{DecoderSpec, RopeScaling, RopeSpec};
use crate::{ModelError, Part, RowOrder, TensorView};

/// Tensors up to this size are hashed completely; of larger ones `WINDOWS` windows are.
const WHOLE_BYTES: usize = 64 << 10;
const WINDOWS: usize = 16;
const WINDOW_BYTES: usize = WHOLE_BYTES / WINDOWS;

pub(crate) fn weights_id<'a>(
    spec: &DecoderSpec,
    tensor: impl Fn(Part) -> Result<TensorView<'a>, ModelError>,
) -> Result<String, ModelError> {
    let mut hasher = blake3::Hasher::new();
    hash_spec(&mut hasher, spec);
    for part in spec.parts() {
        let view = tensor(part)?;
        hasher.update(view.dtype.name().as_bytes());
        hash_numbers(&mut hasher, &[view.bytes.len() as u64, row_order_number(view.rows)]);
        hash_sample(&mut hasher, view.bytes);
    }
    Ok(hasher.finalize().to_hex()[..32].to_owned())
}

fn hash_spec(hasher: &mut blake3::Hasher, spec: &DecoderSpec) {
    // All fields are named, so that a new field does not compile until it is decided whether it belongs here. The context length does
    // not change what is computed, and each weight's own type is hashed below.
    let DecoderSpec {
        hidden,
        layers,
        heads,
        kv_heads,
        head_dim,
        ffn,
        vocab,
        max_context: _,
        norm_eps,
        rope: RopeSpec { theta, scaling },
        tied_head,
        qkv_bias,
        o_bias,
        mlp_bias,
        qk_norm,
        dtype: _,
    } = spec;
    hash_numbers(hasher, &[hidden, layers, heads, kv_heads, head_dim, ffn, vocab].map(|size| *size as u64));
    hash_numbers(hasher, &[tied_head, qkv_bias, o_bias, mlp_bias, qk_norm].map(|flag| u64::from(*flag)));
    hash_numbers(hasher, &[f64::from(*norm_eps).to_bits(), theta.to_bits()]);
    match scaling {
        RopeScaling::None => hash_numbers(hasher, &[0]),
        RopeScaling::Linear { factor } => hash_numbers(hasher, &[1, factor.to_bits()]),
        RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position } => {
            hash_numbers(hasher, &[2]);
            let factors = [factor, low_freq_factor, high_freq_factor, original_max_position];
            hash_numbers(hasher, &factors.map(|factor| factor.to_bits()));
        }
        RopeScaling::Factors(factors) => {
            hash_numbers(hasher, &[3]);
            factors.iter().for_each(|factor| hash_numbers(hasher, &[u64::from(factor.to_bits())]));
        }
    }
}

/// ```text
///   |####......####......####......####|   WINDOWS windows, the first at the start, the last at the end
/// ```
fn hash_sample(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    if bytes.len() <= WHOLE_BYTES {
        hasher.update(bytes);
        return;
    }
    let last_begin = bytes.len() - WINDOW_BYTES;
    for window in 0..WINDOWS {
        let begin = (last_begin as u128 * window as u128 / (WINDOWS - 1) as u128) as usize;
        hasher.update(&bytes[begin..begin + WINDOW_BYTES]);
    }
}

fn hash_numbers(hasher: &mut blake3::Hasher, numbers: &[u64]) {
    for number in numbers {
        hasher.update(&number.to_le_bytes());
    }
}

fn row_order_number(rows: RowOrder) -> u64 {
    match rows {
        RowOrder::Plain => 0,
        RowOrder::PairsTogether { head_dim } => head_dim as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_cover_both_ends_and_small_tensors_entirely() {
        let id = |bytes: &[u8]| {
            let mut hasher = blake3::Hasher::new();
            hash_sample(&mut hasher, bytes);
            hasher.finalize()
        };
        for (length, changed) in
            [(WHOLE_BYTES, 12_345), (WHOLE_BYTES * 5 + 3, 0), (WHOLE_BYTES * 5 + 3, WHOLE_BYTES * 5 + 2)]
        {
            let mut bytes = vec![0; length];
            let before = id(&bytes);
            bytes[changed] = 1;
            assert_ne!(id(&bytes), before, "{length} bytes, {changed} changed");
        }
    }
}
