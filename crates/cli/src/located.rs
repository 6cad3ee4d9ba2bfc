//! Finds the model that a name or path stands for: bundled with the binary, in a file, or pulled earlier.

use baton_hub::{Cache, ModelRef, known_models};
use baton_model::{Model, ModelError, ModelFiles, ModelSource};

use crate::failure::Failure;

/// A model on this machine.
pub(crate) struct Located {
    source: ModelSource,
    /// The model's name, where it differs from that of its files.
    name: Option<String>,
}

impl Located {
    /// Bundled and known names come before directories of the same name; `./name` means the directory.
    pub(crate) fn find(typed: &str) -> Result<Self, Failure> {
        let Some(model) = ModelRef::parse(typed).map_err(Failure::user)? else {
            return match ModelSource::resolve(typed) {
                Ok(source) => Ok(Self { source, name: None }),
                Err(error @ ModelError::NotFound { .. }) => Err(Failure::user(error).hint(pullable())),
                Err(error) => Err(Failure::user(error)),
            };
        };
        let Some(path) = Cache::from_env().map_err(Failure::user)?.find(&model) else {
            let failure = Failure::user(format!("{model} is not on this machine"));
            return Err(failure.hint(format!("baton pull {model}")));
        };
        let source = ModelSource::resolve(&path.to_string_lossy()).map_err(Failure::user)?;
        Ok(Self { source, name: Some(model.model_name().to_owned()) })
    }

    pub(crate) fn files(&self) -> Result<ModelFiles, Failure> {
        let files = ModelFiles::open(&self.source).map_err(Failure::user)?;
        Ok(self.named(files))
    }

    pub(crate) fn model(&self) -> Result<Model, Failure> {
        let mut model = Model::open(&self.source).map_err(Failure::user)?;
        model.files = self.named(model.files);
        Ok(model)
    }

    fn named(&self, files: ModelFiles) -> ModelFiles {
        match &self.name {
            Some(name) => files.renamed(name),
            None => files,
        }
    }
}

/// A hint for unknown names.
fn pullable() -> String {
    let names: Vec<_> = known_models().iter().map(|model| model.name).collect();
    format!("baton pull fetches {}, and anything on the hub as hf:org/repo", names.join(", "))
}
