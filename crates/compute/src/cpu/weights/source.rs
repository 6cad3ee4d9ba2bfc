//! Tensors as a checkpoint has them, checked against the shapes the decoder needs.

use baton_model::{DecoderSpec, Dtype, Part, TensorView};
use half::{bf16, f16};

use crate::ComputeError;
use crate::cpu::lanes::padded;

/// Where weights come from: a loaded model, or a test's random numbers.
pub(crate) trait Weights: Send + Sync {
    fn spec(&self) -> &DecoderSpec;
    fn tensor(&self, part: Part) -> Result<TensorView<'_>, String>;
    /// Equal for equal weights.
    fn weights_id(&self) -> String;
}

pub(super) fn matrix(
    weights: &dyn Weights,
    part: Part,
    rows: usize,
    depth: usize,
) -> Result<TensorView<'_>, ComputeError> {
    checked(weights, part, &[rows, depth])
}

/// Padded with zeros to whole vectors.
pub(super) fn vector(weights: &dyn Weights, part: Part, len: usize) -> Result<Vec<f32>, ComputeError> {
    let view = checked(weights, part, &[len])?;
    let mut values = vec![0.0; padded(len)];
    read_values(view.dtype, view.bytes, &mut values[..len]);
    Ok(values)
}

pub(super) fn checked<'a>(
    weights: &'a dyn Weights,
    part: Part,
    shape: &[usize],
) -> Result<TensorView<'a>, ComputeError> {
    let view = weights.tensor(part).map_err(ComputeError::Load)?;
    let bytes = shape.iter().product::<usize>() * view.dtype.bytes();
    if view.shape != shape || view.bytes.len() != bytes {
        let (found, len) = (view.shape, view.bytes.len());
        return Err(ComputeError::Load(format!("{part:?} has shape {found:?} ({len} bytes), expected {shape:?}")));
    }
    Ok(view)
}

/// As many values as fit into `out`.
pub(crate) fn read_values(dtype: Dtype, bytes: &[u8], out: &mut [f32]) {
    match dtype {
        Dtype::F32 => {
            for (value, bytes) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *value = f32::from_le_bytes(*bytes);
            }
        }
        Dtype::F16 => {
            for (value, bytes) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                *value = f16::from_le_bytes(*bytes).to_f32();
            }
        }
        Dtype::Bf16 => {
            for (value, bytes) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                *value = bf16::from_le_bytes(*bytes).to_f32();
            }
        }
    }
}
