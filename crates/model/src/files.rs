//! The files of a model that a gateway needs: all except the weights.

mod directory;

use std::sync::Arc;

use baton_core::GgufVocabulary;

use self::directory::{Directory, Home};
use crate::architecture::{self, Architecture};
use crate::generation::{GenerationConfig, Sampling, SamplingSource};
use crate::gguf::GgufFile;
use crate::recommended::recommended;
use crate::source::{ModelPlace, ModelSource};
use crate::{DecoderSpec, ModelError};

#[derive(Debug)]
pub struct ModelFiles {
    name: String,
    pub(crate) format: FileFormat,
}

#[derive(Debug)]
pub(crate) enum FileFormat {
    HuggingFace(Box<Directory>),
    Gguf(Arc<GgufFile>),
}

/// The files of tokenizer and chat template.
#[derive(Debug)]
pub enum TokenizerFiles<'a> {
    HuggingFace {
        /// tokenizer.json.
        tokenizer: &'a [u8],
        /// tokenizer_config.json.
        config: Option<&'a [u8]>,
        /// From chat_template.jinja or chat_template.json. It overrides the one in tokenizer_config.json.
        chat_template: Option<&'a str>,
    },
    Gguf {
        vocabulary: Box<GgufVocabulary>,
        chat_template: Option<&'a str>,
    },
}

impl ModelFiles {
    pub fn open(source: &ModelSource) -> Result<Self, ModelError> {
        let directory = |home| Directory::read(source.to_string(), home).map(Box::new).map(FileFormat::HuggingFace);
        let format = match &source.0 {
            ModelPlace::Bundled(model) => directory(Home::Bundled(model))?,
            ModelPlace::Directory { path, .. } => directory(Home::Path(path))?,
            ModelPlace::Gguf(path) => FileFormat::Gguf(Arc::new(GgufFile::open(path)?)),
        };
        Ok(Self { name: source.name(), format })
    }

    /// The model's default name for clients.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same files under another name.
    #[must_use]
    pub fn renamed(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    /// The decoder that the configuration describes. The weights may have another [`Dtype`](crate::Dtype).
    pub fn decoder(&self) -> Result<DecoderSpec, ModelError> {
        match &self.format {
            FileFormat::HuggingFace(directory) => self.architecture()?.decoder(&directory.config),
            FileFormat::Gguf(file) => self.architecture()?.gguf_decoder(file),
        }
    }

    pub(crate) fn architecture(&self) -> Result<&'static dyn Architecture, ModelError> {
        match &self.format {
            FileFormat::HuggingFace(directory) => architecture::find(&directory.config),
            FileFormat::Gguf(file) => architecture::find_gguf(file),
        }
    }

    /// Sampling defaults of the files go first, then what the makers of a known model recommend elsewhere.
    pub fn generation(&self) -> Result<GenerationConfig, ModelError> {
        let (stated, mut names, unknown) = match &self.format {
            FileFormat::HuggingFace(directory) => {
                let names = directory.origin().into_iter().collect();
                (directory.generation()?, names, (Sampling::NEUTRAL, SamplingSource::Neutral))
            }
            FileFormat::Gguf(file) => {
                (file.generation()?, file.names()?, (Sampling::LLAMA_CPP, SamplingSource::LlamaCpp))
            }
        };
        if stated.source == SamplingSource::Model {
            return Ok(stated);
        }
        names.push(&self.name);
        let known = names.into_iter().find_map(recommended);
        let (sampling, source) = known.map_or(unknown, |sampling| (sampling, SamplingSource::Makers));
        Ok(GenerationConfig { sampling, source, ..stated })
    }

    pub fn tokenizer(&self) -> Result<TokenizerFiles<'_>, ModelError> {
        match &self.format {
            FileFormat::HuggingFace(directory) => directory.tokenizer(),
            FileFormat::Gguf(file) => Ok(TokenizerFiles::Gguf {
                vocabulary: Box::new(file.vocabulary()?),
                chat_template: file.chat_template()?,
            }),
        }
    }
}
