//! The location of a model, resolved from a name or path.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::ModelError;
use crate::bundled::{BundledModel, bundled, bundled_names};
use crate::weights::Safetensors;

#[derive(Clone)]
pub struct ModelSource(pub(crate) ModelPlace);

#[derive(Clone)]
pub(crate) enum ModelPlace {
    Bundled(&'static BundledModel),
    /// `weights` is a single file to use instead of those that the directory names.
    Directory {
        path: PathBuf,
        weights: Option<String>,
    },
    Gguf(PathBuf),
}

impl ModelSource {
    /// Resolves a bundled name, a directory, a GGUF file, or a `.safetensors` file beside its `config.json`. A bundled name comes before a
    /// directory of the same name; `./name` means the directory.
    pub fn resolve(name: &str) -> Result<Self, ModelError> {
        if let Some(model) = bundled(name) {
            return Ok(Self(ModelPlace::Bundled(model)));
        }
        let path = Path::new(name);
        if path.is_dir() {
            return Self::directory(path);
        }
        if path.is_file() {
            return Self::file(path);
        }
        let bundled = bundled_names().collect::<Vec<_>>().join(", ");
        Err(ModelError::NotFound { name: name.to_owned(), bundled })
    }

    /// A directory of safetensors, or one with a single GGUF file, which may have a `config.json` for other programs beside it.
    fn directory(path: &Path) -> Result<Self, ModelError> {
        let place = |place| Ok(Self(place));
        if Safetensors::are_in(path) {
            return place(ModelPlace::Directory { path: path.to_owned(), weights: None });
        }
        match gguf_files(path).as_slice() {
            [] => place(ModelPlace::Directory { path: path.to_owned(), weights: None }),
            [only] => place(ModelPlace::Gguf(path.join(only))),
            several => {
                let problem = format!("there are several models in this directory; name one: {}", several.join(", "));
                Err(ModelError::NotAModel { path: path.display().to_string(), problem })
            }
        }
    }

    fn file(path: &Path) -> Result<Self, ModelError> {
        let refuse =
            |problem: &str| ModelError::NotAModel { path: path.display().to_string(), problem: problem.into() };
        if is_gguf(path) {
            return Ok(Self(ModelPlace::Gguf(path.to_owned())));
        }
        if path.extension().is_none_or(|extension| extension != "safetensors") {
            return Err(refuse("a model file must be a .gguf or .safetensors file; give its directory otherwise"));
        }
        let weights = path.file_name().and_then(|file| file.to_str()).ok_or_else(|| refuse("its name is not UTF-8"))?;
        let directory = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        Ok(Self(ModelPlace::Directory { path: directory.to_owned(), weights: Some(weights.to_owned()) }))
    }

    /// The model's name for clients: the bundled name, that of the directory, or that of the GGUF file without its ending.
    pub fn name(&self) -> String {
        match &self.0 {
            ModelPlace::Bundled(model) => model.name.to_owned(),
            ModelPlace::Directory { path, .. } => {
                let whole = path.canonicalize().unwrap_or_else(|_| path.clone());
                whole.file_name().map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
            }
            ModelPlace::Gguf(path) => {
                path.file_stem().map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
            }
        }
    }
}

impl fmt::Display for ModelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ModelPlace::Bundled(model) => write!(f, "the bundled model {}", model.name),
            ModelPlace::Directory { path, weights: None } | ModelPlace::Gguf(path) => path.display().fmt(f),
            ModelPlace::Directory { path, weights: Some(file) } => path.join(file).display().fmt(f),
        }
    }
}

fn is_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
}

/// The directory's GGUF files, sorted; none if it cannot be read.
fn gguf_files(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let files = entries.filter(|path| is_gguf(path) && path.is_file());
    let mut names: Vec<_> = files.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect();
    names.sort_unstable();
    names
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
    fn a_file_must_be_gguf_or_safetensors() {
        let message = ModelSource::resolve(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap_err().to_string();
        assert!(message.contains(".gguf or .safetensors"), "{message}");
    }

    #[test]
    fn names_come_from_the_directory() {
        let models = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/storyteller-11m");
        for path in [models.to_owned(), format!("{models}/"), format!("{models}/model.safetensors")] {
            assert_eq!(ModelSource::resolve(&path).unwrap().name(), "storyteller-11m", "{path}");
        }
    }
}
