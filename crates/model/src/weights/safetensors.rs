//! Tensors by name, in one safetensors file or several.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype as FileDtype, Metadata};
use serde_json::Value;

use crate::mapped::{FileBytes, TensorFile};
use crate::source::ModelPlace;
use crate::{Config, Dtype, ModelError, ModelSource, TensorView};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const HEADER_LENGTH_BYTES: usize = 8;

pub(crate) struct Safetensors {
    shards: Vec<ShardFile>,
    /// Tensor name → shard, if there is an index file; otherwise all are in the only shard.
    index: Option<BTreeMap<String, usize>>,
}

struct ShardFile {
    file: String,
    bytes: FileBytes,
    data_begin: usize,
    tensors: Metadata,
}

impl Safetensors {
    pub(crate) fn open(source: &ModelSource) -> Result<Self, ModelError> {
        match &source.0 {
            ModelPlace::Bundled(model) => {
                let bytes = model.file(SINGLE).ok_or_else(|| not_found(SINGLE, source))?;
                Ok(Self { shards: vec![ShardFile::parse(SINGLE.into(), FileBytes::Static(bytes))?], index: None })
            }
            ModelPlace::Directory { path, weights: Some(file) } => Self::single(path, file),
            ModelPlace::Directory { path, weights: None } if path.join(SINGLE).exists() => Self::single(path, SINGLE),
            ModelPlace::Directory { path, weights: None } if path.join(INDEX).exists() => Self::sharded(path),
            ModelPlace::Directory { .. } | ModelPlace::Gguf(_) => {
                Err(not_found(&format!("{SINGLE} or {INDEX}"), source))
            }
        }
    }

    /// Whether a directory contains weights in this format.
    pub(crate) fn are_in(directory: &Path) -> bool {
        directory.join(SINGLE).exists() || directory.join(INDEX).exists()
    }

    fn single(directory: &Path, file: &str) -> Result<Self, ModelError> {
        Ok(Self { shards: vec![ShardFile::map(directory, file)?], index: None })
    }

    fn sharded(directory: &Path) -> Result<Self, ModelError> {
        let bytes = std::fs::read(directory.join(INDEX)).map_err(|error| unreadable(INDEX, error))?;
        let map = weight_map(&Config::parse(INDEX, &bytes)?)?;
        let files: BTreeSet<&str> = map.values().map(String::as_str).collect();
        let index = map.iter().map(|(tensor, file)| (tensor.clone(), files.range(..file.as_str()).count())).collect();
        let shards = files.iter().map(|file| ShardFile::map(directory, file)).collect::<Result<_, _>>()?;
        Ok(Self { shards, index: Some(index) })
    }

    pub(crate) fn tensor(&self, name: &str) -> Result<TensorView<'_>, ModelError> {
        self.shard_of(name)?.tensor(name)
    }

    pub(crate) fn place_of(&self, name: &str, tensor: &TensorView<'_>) -> Option<TensorFile> {
        self.shard_of(name).ok()?.bytes.place_of(tensor.bytes)
    }

    /// The name of the file that holds, or should hold, a tensor.
    pub(crate) fn file_of(&self, name: &str) -> &str {
        self.shard_of(name).map_or(INDEX, |shard| &shard.file)
    }

    fn shard_of(&self, name: &str) -> Result<&ShardFile, ModelError> {
        let shard = match &self.index {
            None => self.shards.first(),
            Some(index) => index.get(name).and_then(|shard| self.shards.get(*shard)),
        };
        shard.ok_or_else(|| tensor_error(INDEX, name, "not listed in weight_map"))
    }
}

impl ShardFile {
    fn map(directory: &Path, file: &str) -> Result<Self, ModelError> {
        match FileBytes::map(&directory.join(file)) {
            Ok(bytes) => Self::parse(file.into(), bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(not_found(file, directory.display())),
            Err(error) => Err(unreadable(file, error)),
        }
    }

    fn parse(file: String, bytes: FileBytes) -> Result<Self, ModelError> {
        match SafeTensors::read_metadata(&bytes) {
            Ok((header_bytes, tensors)) => {
                Ok(Self { data_begin: HEADER_LENGTH_BYTES + header_bytes, file, bytes, tensors })
            }
            Err(error) => Err(ModelError::File { problem: format!("not a safetensors file: {error}"), file }),
        }
    }

    fn tensor(&self, name: &str) -> Result<TensorView<'_>, ModelError> {
        let refuse = |problem: &str| tensor_error(&self.file, name, problem);
        let info = self.tensors.info(name).ok_or_else(|| refuse("missing"))?;
        let dtype = match info.dtype {
            FileDtype::F32 => Dtype::F32,
            FileDtype::F16 => Dtype::F16,
            FileDtype::BF16 => Dtype::Bf16,
            other => return Err(refuse(&format!("expected F32, F16 or BF16, got {other:?}"))),
        };
        let (begin, end) = info.data_offsets;
        let data = self.bytes.get(self.data_begin..).unwrap_or_default();
        let bytes = data.get(begin..end).ok_or_else(|| refuse("lies outside of the file"))?;
        Ok(TensorView::new(dtype, &info.shape, bytes))
    }
}

/// Tensor name → file name. Shards are in the index's directory, so a path in it is refused.
fn weight_map(index: &Config) -> Result<BTreeMap<String, String>, ModelError> {
    const FIELD: &str = "weight_map";
    let Some(Value::Object(entries)) = index.get(FIELD) else {
        return Err(index.wrong(FIELD, "an object", index.get(FIELD)));
    };
    let mut map = BTreeMap::new();
    for (tensor, file) in entries {
        match file.as_str() {
            Some(name) if Path::new(name).file_name().is_some_and(|last| last == name) => {
                map.insert(tensor.clone(), name.to_owned());
            }
            _ => return Err(index.wrong(&format!("{FIELD}.{tensor}"), "a file name", Some(file))),
        }
    }
    Ok(map)
}

fn not_found(file: &str, place: impl ToString) -> ModelError {
    ModelError::MissingFile { file: file.into(), place: place.to_string() }
}

fn unreadable(file: &str, source: io::Error) -> ModelError {
    ModelError::Read { file: file.into(), source }
}

fn tensor_error(file: &str, tensor: &str, problem: &str) -> ModelError {
    ModelError::Tensor { file: file.into(), tensor: tensor.into(), problem: problem.into() }
}
