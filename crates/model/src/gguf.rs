//! GGUF files: metadata, tokenizer and tensors in one file, which is memory-mapped. Every number in it is checked before it is used.
//!
//! ```text
//!   "GGUF" version:4 tensors:8 pairs:8 | key type value … | name shape type offset … | padding | data
//! ```

mod cursor;
mod generation;
mod metadata;
mod tensor_type;
mod tensors;
mod vocabulary;

use std::collections::BTreeMap;
use std::path::Path;

use self::cursor::Cursor;
use self::metadata::{GgufMetadata, ValueKind};
use self::tensors::Tensor;
use crate::mapped::{FileBytes, TensorFile};
use crate::{Config, Dtype, ModelError, TensorView};

const MAGIC: &[u8] = b"GGUF";
const VERSIONS: [u32; 2] = [2, 3];
/// The largest vocabularies take about 10 MB.
const MAX_HEADER_BYTES: usize = 256 << 20;
const MAX_ENTRIES: usize = 1 << 16;
const DEFAULT_ALIGNMENT: usize = 32;
const MAX_ALIGNMENT: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct GgufFile {
    file: String,
    bytes: FileBytes,
    metadata: GgufMetadata,
    tensors: BTreeMap<String, Tensor>,
}

impl GgufFile {
    pub(crate) fn open(path: &Path) -> Result<Self, ModelError> {
        let file = path.file_name().map_or_else(|| path.display().to_string(), |file| file.to_string_lossy().into());
        let bytes = FileBytes::map(path).map_err(|source| ModelError::Read { file: file.clone(), source })?;
        Self::parse(file, bytes)
    }

    pub(crate) fn parse(file: String, bytes: FileBytes) -> Result<Self, ModelError> {
        let header = &bytes[..bytes.len().min(MAX_HEADER_BYTES)];
        let mut cursor = Cursor::new(&file, header, 0);
        check_version(&mut cursor)?;
        let tensor_count = entries(&mut cursor, "tensors")?;
        let pair_count = entries(&mut cursor, "metadata pairs")?;
        let metadata = GgufMetadata::read(&file, &mut cursor, pair_count)?;
        refuse_split(&metadata.values)?;
        let alignment = alignment(&metadata.values)?;
        let tensors = tensors::read(&file, &mut cursor, tensor_count, alignment, bytes.len())?;
        Ok(Self { metadata, tensors, file, bytes })
    }

    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    pub(crate) fn place_of(&self, tensor: &TensorView<'_>) -> Option<TensorFile> {
        self.bytes.place_of(tensor.bytes)
    }

    /// All metadata except lists.
    pub(crate) fn values(&self) -> &Config {
        &self.metadata.values
    }

    pub(crate) fn has(&self, tensor: &str) -> bool {
        self.tensors.contains_key(tensor)
    }

    pub(crate) fn tensor(&self, name: &str) -> Result<TensorView<'_>, ModelError> {
        let found = self.tensors.get(name).and_then(|tensor| {
            Some(TensorView::new(tensor.dtype, &tensor.shape, self.bytes.get(tensor.bytes.clone())?))
        });
        found.ok_or_else(|| ModelError::Tensor {
            file: self.file.clone(),
            tensor: name.into(),
            problem: "missing".into(),
        })
    }

    /// The type of most of the weights.
    pub(crate) fn most_used_dtype(&self) -> Dtype {
        let mut values: BTreeMap<Dtype, usize> = BTreeMap::new();
        for tensor in self.tensors.values() {
            *values.entry(tensor.dtype).or_default() +=
                tensor.bytes.len() / tensor.dtype.block_bytes() * tensor.dtype.block_values();
        }
        values.into_iter().max_by_key(|(_, count)| *count).map_or(Dtype::F32, |(dtype, _)| dtype)
    }

    /// `None` where there is no list of this name.
    fn list<T>(
        &self,
        key: &str,
        expected: &str,
        kinds: &[ValueKind],
        item: impl Fn(&mut Cursor<'_>) -> Result<T, ModelError>,
    ) -> Result<Option<Vec<T>>, ModelError> {
        let Some(list) = self.metadata.list(key) else {
            return match self.values().get(key) {
                None => Ok(None),
                found => Err(self.values().wrong(key, expected, found)),
            };
        };
        if !kinds.contains(&list.kind) {
            return Err(self.values().wrong(key, expected, self.values().get(key)));
        }
        let mut cursor = Cursor::new(&self.file, &self.bytes, list.begin);
        (0..list.count).map(|_| item(&mut cursor)).collect::<Result<_, _>>().map(Some)
    }
}

fn check_version(cursor: &mut Cursor<'_>) -> Result<(), ModelError> {
    if !cursor.take(MAGIC.len()).is_ok_and(|bytes| bytes == MAGIC) {
        return Err(cursor.refuse("not a GGUF file: it does not begin with \"GGUF\""));
    }
    match cursor.u32()? {
        version if VERSIONS.contains(&version) => Ok(()),
        version if VERSIONS.contains(&version.swap_bytes()) => {
            Err(cursor.refuse("it was made for big-endian machines, which is not supported"))
        }
        version => Err(cursor.refuse(&format!("GGUF version {version} is not supported; supported are 2 and 3"))),
    }
}

/// No pair and no tensor takes less than 12 bytes.
fn entries(cursor: &mut Cursor<'_>, what: &str) -> Result<usize, ModelError> {
    let count = cursor.count(what, 12)?;
    if count > MAX_ENTRIES {
        return Err(cursor.refuse(&format!("{count} {what}; at most {MAX_ENTRIES} are allowed")));
    }
    Ok(count)
}

fn refuse_split(values: &Config) -> Result<(), ModelError> {
    const FIELD: &str = "split.count";
    match values.size(FIELD) {
        Ok(Some(parts)) if parts > 1 => {
            let problem = format!("this is one of {parts} parts; join them with llama-gguf-split --merge");
            Err(values.refuse(FIELD, problem))
        }
        _ => Ok(()),
    }
}

fn alignment(values: &Config) -> Result<usize, ModelError> {
    const FIELD: &str = "general.alignment";
    match values.size(FIELD)? {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(alignment) if alignment.is_power_of_two() && alignment <= MAX_ALIGNMENT => Ok(alignment),
        Some(_) => Err(values.wrong(FIELD, "a power of two up to 1048576", values.get(FIELD))),
    }
}
