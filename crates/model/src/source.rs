//! Where a model lies: what a person types, turned into something that exists.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::ModelError;
use crate::bundled::{BundledModel, bundled, bundled_names};

#[derive(Clone)]
pub struct ModelSource(pub(crate) Place);

#[derive(Clone)]
pub(crate) enum Place {
    Bundled(&'static BundledModel),
    /// `weights`: this file alone instead of what the directory names.
    Directory {
        path: PathBuf,
        weights: Option<String>,
    },
}

impl ModelSource {
    /// A bundled name, a directory, or a `.safetensors` file beside its `config.json`. A bundled name wins over a
    /// directory of the same name; `./name` means the directory.
    pub fn resolve(name: &str) -> Result<Self, ModelError> {
        if let Some(model) = bundled(name) {
            return Ok(Self(Place::Bundled(model)));
        }
        let path = Path::new(name);
        if path.is_dir() {
            return Ok(Self(Place::Directory { path: path.to_owned(), weights: None }));
        }
        if path.is_file() {
            return Self::file(path);
        }
        let bundled = bundled_names().collect::<Vec<_>>().join(", ");
        Err(ModelError::NotFound { name: name.to_owned(), bundled })
    }

    fn file(path: &Path) -> Result<Self, ModelError> {
        let refuse =
            |problem: &str| ModelError::NotAModel { path: path.display().to_string(), problem: problem.into() };
        if path.extension().is_none_or(|extension| extension != "safetensors") {
            return Err(refuse("a model file must be a .safetensors file; give its directory otherwise"));
        }
        let weights = path.file_name().and_then(|file| file.to_str()).ok_or_else(|| refuse("its name is not UTF-8"))?;
        let directory = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        Ok(Self(Place::Directory { path: directory.to_owned(), weights: Some(weights.to_owned()) }))
    }

    /// What clients call the model: the bundled name or the directory's.
    pub fn name(&self) -> String {
        match &self.0 {
            Place::Bundled(model) => model.name.to_owned(),
            Place::Directory { path, .. } => {
                let whole = path.canonicalize().unwrap_or_else(|_| path.clone());
                whole.file_name().map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
            }
        }
    }
}

impl fmt::Display for ModelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Bundled(model) => write!(f, "the bundled model {}", model.name),
            Place::Directory { path, weights: None } => path.display().fmt(f),
            Place::Directory { path, weights: Some(file) } => path.join(file).display().fmt(f),
        }
    }
}

impl fmt::Debug for ModelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ModelSource({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_lists_the_bundled_ones_and_what_was_looked_for() {
        let message = ModelSource::resolve("storyteler").unwrap_err().to_string();
        assert!(message.contains("\"storyteler\"") && message.contains("storyteller-11m"), "{message}");
    }

    #[test]
    fn a_file_must_be_safetensors() {
        let message = ModelSource::resolve(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap_err().to_string();
        assert!(message.contains(".safetensors"), "{message}");
    }

    #[test]
    fn names_come_from_the_directory() {
        let models = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/storyteller-11m");
        for path in [models.to_owned(), format!("{models}/"), format!("{models}/model.safetensors")] {
            assert_eq!(ModelSource::resolve(&path).unwrap().name(), "storyteller-11m", "{path}");
        }
    }
}
