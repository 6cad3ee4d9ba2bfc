//! Hugging Face's cache of downloaded files:
//!
//! ```text
//! models--org--repo/blobs/<etag>                     the bytes, once
//!                   snapshots/<commit>/<file>        links to them
//!                   refs/main                        the newest commit that was pulled
//! ```

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::HubError;
use crate::known::Package;
use crate::model_ref::{ModelRef, RepoName};
use crate::selection::is_weights;

#[derive(Clone, Debug)]
pub struct Cache(PathBuf);

impl Cache {
    /// The folder that Hugging Face's own programs use, found by the same environment variables.
    pub fn from_env() -> Result<Self, HubError> {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let hub = variable("HF_HUB_CACHE")
            .or_else(|| variable("HF_HOME").map(|home| home.join("hub")))
            .or_else(|| variable("XDG_CACHE_HOME").map(|cache| cache.join("huggingface/hub")))
            .or_else(|| variable("HOME").map(|home| home.join(".cache/huggingface/hub")));
        hub.map(Self).ok_or(HubError::NoCache)
    }

    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The model's file or directory, if it was pulled.
    pub fn find(&self, model: &ModelRef) -> Option<PathBuf> {
        let (repo, file) = model.parts();
        let pulled = self.repo(&repo).model(file);
        let package = match model {
            ModelRef::Known(model) => model.package.as_ref(),
            ModelRef::Hub { .. } => None,
        };
        pulled.or_else(|| self.repo(&package?.repo()).model(file))
    }

    pub(crate) fn repo(&self, repo: &RepoName) -> RepoCache {
        RepoCache(self.0.join(repo.folder()))
    }
}

impl Package {
    /// The folder for a package's file. Organisations of the hub have no dot in their names, so this is no one else's.
    pub(crate) fn repo(&self) -> RepoName {
        RepoName(format!("python.package/{}", self.name))
    }
}

/// The folder of one repository.
pub(crate) struct RepoCache(PathBuf);

impl RepoCache {
    pub(crate) fn blob(&self, etag: &str) -> PathBuf {
        self.0.join("blobs").join(etag)
    }

    pub(crate) fn snapshot(&self, commit: &str) -> PathBuf {
        self.0.join("snapshots").join(commit)
    }

    pub(crate) fn create_folders(&self) -> Result<(), HubError> {
        let blobs = self.0.join("blobs");
        fs::create_dir_all(&blobs).map_err(HubError::disk(&blobs, 0))
    }

    /// Makes `file` of that commit a link to the blob.
    pub(crate) fn link(&self, commit: &str, file: &str, etag: &str) -> Result<(), HubError> {
        let link = self.snapshot(commit).join(file);
        let folder = link.parent().unwrap_or(&self.0);
        fs::create_dir_all(folder).map_err(HubError::disk(folder, 0))?;
        // The link leads out of the file's folders, the commit's and snapshots/.
        let up = "../".repeat(file.split('/').count() + 1);
        match fs::remove_file(&link) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(HubError::disk(&link, 0)(error)),
            _ => {}
        }
        symlink(format!("{up}blobs/{etag}"), &link).map_err(HubError::disk(&link, 0))
    }

    /// Comes last: a model counts as pulled once this is set.
    pub(crate) fn set_main(&self, commit: &str) -> Result<(), HubError> {
        let refs = self.0.join("refs");
        fs::create_dir_all(&refs).map_err(HubError::disk(&refs, 0))?;
        let (next, main) = (refs.join("main.incomplete"), refs.join("main"));
        fs::write(&next, commit).map_err(HubError::disk(&next, 0))?;
        fs::rename(&next, &main).map_err(HubError::disk(&main, 0))
    }

    /// The path of `file`; without one, that of the only .gguf or of a snapshot with config.json and weights. The newest commit comes
    /// first, then any other.
    pub(crate) fn model(&self, file: Option<&str>) -> Option<PathBuf> {
        let main = fs::read_to_string(self.0.join("refs/main")).ok()?;
        let others = fs::read_dir(self.0.join("snapshots")).into_iter().flatten().flatten().map(|entry| entry.path());
        std::iter::once(self.snapshot(main.trim())).chain(others).find_map(|snapshot| model_in(snapshot, file))
    }
}

fn model_in(snapshot: PathBuf, file: Option<&str>) -> Option<PathBuf> {
    if let Some(file) = file {
        return Some(snapshot.join(file)).filter(|path| path.is_file());
    }
    let files = complete_files(&snapshot);
    if files.iter().any(|file| file == "config.json") && files.iter().any(|file| is_weights(file)) {
        return Some(snapshot);
    }
    let mut ggufs = files.iter().filter(|file| file.ends_with(".gguf"));
    match (ggufs.next(), ggufs.next()) {
        (Some(only), None) => Some(snapshot.join(only)),
        _ => None,
    }
}

/// Files whose links lead to complete blobs.
fn complete_files(snapshot: &Path) -> Vec<String> {
    let entries = fs::read_dir(snapshot).into_iter().flatten().flatten();
    let complete = entries.filter(|entry| entry.path().is_file());
    complete.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}
