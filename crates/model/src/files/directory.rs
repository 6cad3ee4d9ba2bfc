//! The small files of a Hugging Face directory, in memory.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde_json::Value;

use super::TokenizerFiles;
use crate::bundled::BundledModel;
use crate::{Config, GenerationConfig, ModelError};

/// Far more than the largest known tokenizer.json, of about 35 MB.
const MAX_FILE_BYTES: u64 = 256 << 20;

const CONFIG: &str = "config.json";
const GENERATION_CONFIG: &str = "generation_config.json";
const TOKENIZER: &str = "tokenizer.json";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";

#[derive(Debug)]
pub(crate) struct Directory {
    place: String,
    pub(super) config: Config,
    generation_config: Option<Config>,
    tokenizer: Option<Cow<'static, [u8]>>,
    tokenizer_config: Option<Cow<'static, [u8]>>,
    chat_template: Option<String>,
}

impl Directory {
    pub(super) fn read(place: String, home: Home<'_>) -> Result<Self, ModelError> {
        let Some(config) = home.read(CONFIG)? else {
            return Err(ModelError::MissingFile { file: CONFIG.into(), place });
        };
        let generation_config = home.read(GENERATION_CONFIG)?;
        Ok(Self {
            place,
            config: Config::parse(CONFIG, &config)?,
            generation_config: generation_config.map(|bytes| Config::parse(GENERATION_CONFIG, &bytes)).transpose()?,
            tokenizer: home.read(TOKENIZER)?,
            tokenizer_config: home.read(TOKENIZER_CONFIG)?,
            chat_template: chat_template(home)?,
        })
    }

    pub(super) fn generation(&self) -> Result<GenerationConfig, ModelError> {
        GenerationConfig::read(&self.config, self.generation_config.as_ref())
    }

    /// Of the repository it comes from, where transformers has noted it.
    pub(super) fn origin(&self) -> Option<&str> {
        self.config.get("_name_or_path")?.as_str()
    }

    pub(super) fn tokenizer(&self) -> Result<TokenizerFiles<'_>, ModelError> {
        let tokenizer = self.tokenizer.as_deref();
        Ok(TokenizerFiles::HuggingFace {
            tokenizer: tokenizer
                .ok_or_else(|| ModelError::MissingFile { file: TOKENIZER.into(), place: self.place.clone() })?,
            config: self.tokenizer_config.as_deref(),
            chat_template: self.chat_template.as_deref(),
        })
    }
}

/// A source of files by name.
#[derive(Clone, Copy)]
pub(super) enum Home<'a> {
    Bundled(&'static BundledModel),
    Path(&'a Path),
}

impl Home<'_> {
    fn read(self, file: &str) -> Result<Option<Cow<'static, [u8]>>, ModelError> {
        match self {
            Self::Bundled(model) => Ok(model.file(file).map(Cow::Borrowed)),
            Self::Path(path) => match read_bounded(&path.join(file)) {
                Ok(bytes) if bytes.len() as u64 > MAX_FILE_BYTES => {
                    Err(ModelError::File { file: file.into(), problem: format!("larger than {MAX_FILE_BYTES} bytes") })
                }
                Ok(bytes) => Ok(Some(Cow::Owned(bytes))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(source) => Err(ModelError::Read { file: file.into(), source }),
            },
        }
    }
}

/// Reads at most one byte more than is allowed.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn chat_template(home: Home<'_>) -> Result<Option<String>, ModelError> {
    const JINJA: &str = "chat_template.jinja";
    const JSON: &str = "chat_template.json";
    if let Some(bytes) = home.read(JINJA)? {
        return match String::from_utf8(bytes.into_owned()) {
            Ok(template) => Ok(Some(template)),
            Err(_) => Err(ModelError::File { file: JINJA.into(), problem: "not valid UTF-8".into() }),
        };
    }
    let Some(bytes) = home.read(JSON)? else { return Ok(None) };
    let fields = Config::parse(JSON, &bytes)?;
    match fields.get("chat_template") {
        Some(Value::String(template)) => Ok(Some(template.clone())),
        found => Err(fields.wrong("chat_template", "a string", found)),
    }
}
