//! Weights by their role, independent of the file format.

mod safetensors;

use std::sync::Arc;

pub(crate) use self::safetensors::Safetensors;

use crate::architecture::Architecture;
use crate::files::{FileFormat, ModelFiles};
use crate::gguf::GgufFile;
use crate::{DecoderSpec, ModelError, ModelSource, Part, TensorFile, TensorView};

pub(crate) struct WeightFiles {
    architecture: &'static dyn Architecture,
    tensors: Tensors,
}

enum Tensors {
    Safetensors(Safetensors),
    Gguf(Arc<GgufFile>),
}

impl WeightFiles {
    pub(crate) fn open(source: &ModelSource, files: &ModelFiles) -> Result<Self, ModelError> {
        let tensors = match &files.format {
            FileFormat::HuggingFace(_) => Tensors::Safetensors(Safetensors::open(source)?),
            FileFormat::Gguf(file) => Tensors::Gguf(Arc::clone(file)),
        };
        Ok(Self { architecture: files.architecture()?, tensors })
    }

    pub(crate) fn tensor(&self, spec: &DecoderSpec, part: Part) -> Result<TensorView<'_>, ModelError> {
        let name = self.name_of(part);
        match &self.tensors {
            Tensors::Safetensors(tensors) => tensors.tensor(&name),
            Tensors::Gguf(file) => {
                let view = file.tensor(&name)?;
                Ok(TensorView { rows: self.architecture.gguf_rows(spec, part), ..view })
            }
        }
    }

    /// The position of a weight in its file; `None` if it is inside this binary.
    pub(crate) fn file(&self, spec: &DecoderSpec, part: Part) -> Result<Option<TensorFile>, ModelError> {
        let view = self.tensor(spec, part)?;
        Ok(match &self.tensors {
            Tensors::Safetensors(tensors) => tensors.place_of(&self.name_of(part), &view),
            Tensors::Gguf(file) => file.place_of(&view),
        })
    }

    /// Checks that a weight has exactly the shape that the configuration needs.
    pub(crate) fn check(&self, spec: &DecoderSpec, part: Part) -> Result<(), ModelError> {
        let (found, expected) = (self.tensor(spec, part)?.shape, spec.shape(part));
        if found == expected {
            return Ok(());
        }
        let tensor = self.name_of(part);
        let (file, source) = match &self.tensors {
            Tensors::Safetensors(tensors) => (tensors.file_of(&tensor), "config.json"),
            Tensors::Gguf(file) => (file.file(), "the metadata"),
        };
        let problem = format!("{source} gives it the shape {expected:?}, the file has {found:?}");
        Err(ModelError::Tensor { file: file.into(), tensor, problem })
    }

    fn name_of(&self, part: Part) -> String {
        match &self.tensors {
            Tensors::Safetensors(_) => self.architecture.tensor_name(part),
            Tensors::Gguf(_) => self.architecture.gguf_tensor_name(part),
        }
    }
}
