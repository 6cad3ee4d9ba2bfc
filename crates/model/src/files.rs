//! The small files of a model, in memory. Weights are not touched: a gateway needs only this.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde_json::Value;

use crate::config::Config;
use crate::source::{ModelSource, Place};
use crate::{DecoderSpec, GenerationConfig, ModelError, architecture};

/// The largest tokenizer.json seen is about 35 MB; more than this is not one.
const MAX_FILE_BYTES: u64 = 256 << 20;

pub(crate) const CONFIG: &str = "config.json";
pub(crate) const GENERATION_CONFIG: &str = "generation_config.json";
const TOKENIZER: &str = "tokenizer.json";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";

#[derive(Debug)]
pub struct ModelFiles {
    name: String,
    place: String,
    config: Config,
    generation_config: Option<Config>,
    tokenizer: Option<Cow<'static, [u8]>>,
    tokenizer_config: Option<Cow<'static, [u8]>>,
    chat_template: Option<String>,
}

impl ModelFiles {
    pub fn open(source: &ModelSource) -> Result<Self, ModelError> {
        let place = source.to_string();
        let Some(config) = read(source, CONFIG)? else {
            return Err(ModelError::MissingFile { file: CONFIG.into(), place });
        };
        let generation_config = read(source, GENERATION_CONFIG)?;
        Ok(Self {
            name: source.name(),
            config: Config::parse(CONFIG, &config)?,
            generation_config: generation_config.map(|bytes| Config::parse(GENERATION_CONFIG, &bytes)).transpose()?,
            tokenizer: read(source, TOKENIZER)?,
            tokenizer_config: read(source, TOKENIZER_CONFIG)?,
            chat_template: chat_template(source)?,
            place,
        })
    }

    /// What clients call the model unless told otherwise.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Under another name, for whoever borrows these files.
    #[must_use]
    pub fn renamed(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    /// The decoder as config.json describes it. The weights may be of another [`Dtype`](crate::Dtype) than it says.
    pub fn decoder(&self) -> Result<DecoderSpec, ModelError> {
        architecture::find(&self.config)?.decoder(&self.config)
    }

    pub fn generation(&self) -> Result<GenerationConfig, ModelError> {
        GenerationConfig::read(&self.config, self.generation_config.as_ref())
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// tokenizer.json.
    pub fn tokenizer(&self) -> Result<&[u8], ModelError> {
        self.tokenizer
            .as_deref()
            .ok_or_else(|| ModelError::MissingFile { file: TOKENIZER.into(), place: self.place.clone() })
    }

    /// tokenizer_config.json.
    pub fn tokenizer_config(&self) -> Option<&[u8]> {
        self.tokenizer_config.as_deref()
    }

    /// The template of chat_template.jinja or chat_template.json. It goes before the one in tokenizer_config.json.
    pub fn chat_template(&self) -> Option<&str> {
        self.chat_template.as_deref()
    }
}

fn read(source: &ModelSource, file: &str) -> Result<Option<Cow<'static, [u8]>>, ModelError> {
    match &source.0 {
        Place::Bundled(model) => Ok(model.file(file).map(Cow::Borrowed)),
        Place::Directory { path, .. } => match read_bounded(&path.join(file)) {
            Ok(bytes) if bytes.len() as u64 > MAX_FILE_BYTES => {
                Err(ModelError::File { file: file.into(), problem: format!("larger than {MAX_FILE_BYTES} bytes") })
            }
            Ok(bytes) => Ok(Some(Cow::Owned(bytes))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(ModelError::Read { file: file.into(), source }),
        },
    }
}

/// At most one byte more than is allowed.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn chat_template(source: &ModelSource) -> Result<Option<String>, ModelError> {
    const JINJA: &str = "chat_template.jinja";
    const JSON: &str = "chat_template.json";
    if let Some(bytes) = read(source, JINJA)? {
        return match String::from_utf8(bytes.into_owned()) {
            Ok(template) => Ok(Some(template)),
            Err(_) => Err(ModelError::File { file: JINJA.into(), problem: "not valid UTF-8".into() }),
        };
    }
    let Some(bytes) = read(source, JSON)? else { return Ok(None) };
    let fields = Config::parse(JSON, &bytes)?;
    match fields.get("chat_template") {
        Some(Value::String(template)) => Ok(Some(template.clone())),
        found => Err(fields.wrong("chat_template", "a string", found)),
    }
}
