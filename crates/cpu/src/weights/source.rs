//! Tensors as a checkpoint has them, checked against the shapes the decoder needs.

use baton_model::{DecoderSpec, Part, TensorFile, TensorView};

use crate::simd::vector::padded;
use baton_backend::BackendError;

/// Where weights come from: a loaded model, or a test's random numbers.
pub trait Weights: Send + Sync {
    fn spec(&self) -> &DecoderSpec;
    fn tensor(&self, part: Part) -> Result<TensorView<'_>, String>;
    /// Where a tensor lies on the disk. `None` if it is in memory in any case.
    fn tensor_file(&self, _part: Part) -> Result<Option<TensorFile>, String> {
        Ok(None)
    }
    /// Equal for equal weights.
    fn weights_id(&self) -> String;
}

pub(crate) fn matrix(
    weights: &dyn Weights,
    part: Part,
    rows: usize,
    depth: usize,
) -> Result<TensorView<'_>, BackendError> {
    checked(weights, part, &[rows, depth])
}

/// Padded with zeros to whole vectors.
pub(crate) fn vector(weights: &dyn Weights, part: Part, len: usize) -> Result<Vec<f32>, BackendError> {
    let view = checked(weights, part, &[len])?;
    let mut values = view.vector();
    values.resize(padded(len), 0.0);
    Ok(values)
}

pub(super) fn checked<'a>(
    weights: &'a dyn Weights,
    part: Part,
    shape: &[usize],
) -> Result<TensorView<'a>, BackendError> {
    let view = weights.tensor(part).map_err(BackendError::Load)?;
    let bytes = view.dtype.bytes_of(shape.iter().product());
    if view.shape != shape || view.bytes.len() != bytes {
        let (found, len) = (view.shape, view.bytes.len());
        return Err(BackendError::Load(format!("{part:?} has shape {found:?} ({len} bytes), expected {shape:?}")));
    }
    Ok(view)
}
