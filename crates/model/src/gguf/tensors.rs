//! The tensor table of a GGUF file. Each tensor has its place in the file, and no two overlap.

use std::collections::BTreeMap;
use std::ops::Range;

use super::cursor::Cursor;
use super::tensor_type;
use crate::{Dtype, ModelError};

const MAX_NAME_BYTES: usize = 256;
const MAX_DIMENSIONS: u32 = 4;

#[derive(Debug)]
pub(super) struct Tensor {
    pub(super) dtype: Dtype,
    /// Rows first, unlike in GGUF.
    pub(super) shape: Vec<usize>,
    pub(super) bytes: Range<usize>,
}

pub(super) fn read(
    file: &str,
    cursor: &mut Cursor<'_>,
    count: usize,
    alignment: usize,
    file_bytes: usize,
) -> Result<BTreeMap<String, Tensor>, ModelError> {
    let entries = (0..count).map(|_| TensorEntry::read(file, cursor)).collect::<Result<Vec<_>, _>>()?;
    let data_begin = cursor.position().next_multiple_of(alignment);
    let mut tensors = BTreeMap::new();
    for TensorEntry { name, dtype, shape, offset, length } in entries {
        let refuse = |problem: &str| refuse(file, &name, problem);
        if offset % alignment as u64 != 0 {
            return Err(refuse(&format!("begins at {offset}, which is not a multiple of {alignment}")));
        }
        let begin = usize::try_from(offset).ok().and_then(|offset| offset.checked_add(data_begin));
        let bytes = begin.and_then(|begin| Some(begin..begin.checked_add(length)?));
        let bytes = bytes.filter(|bytes| bytes.end <= file_bytes).ok_or_else(|| {
            refuse(&format!("its {length} bytes from {offset} on lie outside of the file; was it cut off?"))
        })?;
        if tensors.contains_key(&name) {
            return Err(refuse("occurs twice"));
        }
        tensors.insert(name, Tensor { dtype, shape, bytes });
    }
    refuse_overlaps(file, &tensors)?;
    Ok(tensors)
}

struct TensorEntry {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    /// The offset from the start of the data.
    offset: u64,
    length: usize,
}

impl TensorEntry {
    fn read(file: &str, cursor: &mut Cursor<'_>) -> Result<Self, ModelError> {
        let name = cursor.text("a tensor's name", MAX_NAME_BYTES)?.to_owned();
        let refuse = |problem: &str| refuse(file, &name, problem);
        let dimensions = cursor.u32()?;
        if !(1..=MAX_DIMENSIONS).contains(&dimensions) {
            return Err(refuse(&format!("{dimensions} dimensions; 1 to {MAX_DIMENSIONS} are possible")));
        }
        let mut sizes = (0..dimensions).map(|_| cursor.u64()).collect::<Result<Vec<_>, _>>()?;
        sizes.reverse();
        let dtype = tensor_type::dtype(cursor.u32()?).map_err(|problem| refuse(&problem))?;
        let values = sizes.iter().try_fold(1_u64, |product, size| product.checked_mul(*size));
        let length = values
            .filter(|values| (1..=i64::MAX as u64 / 4).contains(values))
            .ok_or_else(|| refuse(&format!("its shape {sizes:?} is not possible")))?;
        let shape: Vec<usize> = sizes.iter().map(|size| *size as usize).collect();
        let row = shape.last().copied().unwrap_or_default();
        if !row.is_multiple_of(dtype.block_values()) {
            let problem =
                format!("rows of {row} values cannot be {dtype}, which has blocks of {}", dtype.block_values());
            return Err(refuse(&problem));
        }
        let length = dtype.bytes_of(length as usize);
        Ok(Self { dtype, shape, offset: cursor.u64()?, length, name })
    }
}

fn refuse_overlaps(file: &str, tensors: &BTreeMap<String, Tensor>) -> Result<(), ModelError> {
    let mut by_place: Vec<_> = tensors.iter().collect();
    by_place.sort_unstable_by_key(|(_, tensor)| tensor.bytes.start);
    for pair in by_place.windows(2) {
        let [(first, before), (second, after)] = pair else { continue };
        if before.bytes.end > after.bytes.start {
            return Err(refuse(file, second, &format!("overlaps with {first}")));
        }
    }
    Ok(())
}

fn refuse(file: &str, tensor: &str, problem: &str) -> ModelError {
    ModelError::Tensor { file: file.into(), tensor: tensor.into(), problem: problem.into() }
}
