//! What a person calls a model, found: bundled with the binary, at a path, or pulled earlier.

use baton_hub::{Cache, ModelRef, known_models};
use baton_model::{Model, ModelError, ModelFiles, ModelSource};

use crate::failure::Failure;

/// A model on this machine.
pub(crate) struct Located {
    source: ModelSource,
    /// What it was asked for by, where its files are called otherwise.
    name: Option<String>,
}

impl Located {
    /// A name of the hub wins over a directory of the same name, as a bundled one does; `./name` means the directory.
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

/// What could be had instead of a name nobody knows.
fn pullable() -> String {
    let names: Vec<_> = known_models().iter().map(|model| model.name).collect();
    format!("baton pull fetches {}, and anything on the hub as hf:org/repo", names.join(", "))
}
