//! Models by name, as users type them.

use std::fmt;

use crate::HubError;
use crate::known::{KnownModel, known};

#[derive(Clone, Debug)]
pub enum ModelRef {
    Known(&'static KnownModel),
    /// `hf:org/repo`, or one file of it: `hf:org/repo:file`.
    Hub {
        repo: RepoName,
        file: Option<String>,
    },
}

impl ModelRef {
    /// `None` for anything else, such as a path.
    pub fn parse(typed: &str) -> Result<Option<Self>, HubError> {
        if let Some(model) = known(typed) {
            return Ok(Some(Self::Known(model)));
        }
        let Some(rest) = typed.strip_prefix("hf:") else { return Ok(None) };
        let (repo, file) = match rest.split_once(':') {
            Some((repo, file)) => (repo, Some(file.to_owned())),
            None => (rest, None),
        };
        if file.as_deref().is_some_and(|file| !is_safe_path(file)) {
            return Err(HubError::BadName(typed.to_owned()));
        }
        match RepoName::parse(repo) {
            Some(repo) => Ok(Some(Self::Hub { repo, file })),
            None => Err(HubError::BadName(typed.to_owned())),
        }
    }

    /// The repository, and the file if only one of its files is meant.
    pub(crate) fn parts(&self) -> (RepoName, Option<&str>) {
        match self {
            Self::Known(model) => (RepoName(model.repo.to_owned()), Some(model.file)),
            Self::Hub { repo, file } => (repo.clone(), file.as_deref()),
        }
    }

    /// The model's name for clients: the known name, or that of the file or repository.
    pub fn model_name(&self) -> &str {
        match self {
            Self::Known(model) => model.name,
            Self::Hub { file: Some(file), .. } => {
                let name = file.rsplit('/').next().unwrap_or(file);
                name.strip_suffix(".gguf").unwrap_or(name)
            }
            Self::Hub { repo, file: None } => repo.0.rsplit('/').next().unwrap_or(&repo.0),
        }
    }
}

impl fmt::Display for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(model) => f.write_str(model.name),
            Self::Hub { repo, file: None } => write!(f, "hf:{repo}"),
            Self::Hub { repo, file: Some(file) } => write!(f, "hf:{repo}:{file}"),
        }
    }
}

/// `org/repo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepoName(pub(crate) String);

impl RepoName {
    fn parse(name: &str) -> Option<Self> {
        let (org, repo) = name.split_once('/')?;
        let plain = |part: &str| {
            let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            !part.is_empty() && !part.starts_with('.') && part.chars().all(known)
        };
        (plain(org) && plain(repo)).then(|| Self(name.to_owned()))
    }

    /// The name of its folder in the cache.
    pub(crate) fn folder(&self) -> String {
        format!("models--{}", self.0.replace('/', "--"))
    }
}

impl fmt::Display for RepoName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a path stays below the folder that it is joined to, and needs no escape in a URL.
pub(crate) fn is_safe_path(path: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+' | '=' | '@' | ',');
    let plain = |part: &str| !part.is_empty() && part.chars().any(|c| c != '.') && part.chars().all(known);
    path.split('/').all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let shown = |typed: &str| {
            ModelRef::parse(typed).unwrap().map(|model| (model.to_string(), model.model_name().to_owned()))
        };
        let pair = |a: &str, b: &str| Some((a.to_owned(), b.to_owned()));
        assert_eq!(shown("smollm2-135m"), pair("smollm2-135m", "smollm2-135m"));
        assert_eq!(shown("hf:a/B-1"), pair("hf:a/B-1", "B-1"));
        assert_eq!(shown("hf:a/b:q/x.Q4.gguf"), pair("hf:a/b:q/x.Q4.gguf", "x.Q4"));
        assert_eq!(shown("some/dir"), None);
        for typed in ["hf:", "hf:a", "hf:a/b/c", "hf:../b", "hf:a/b:../c", "hf:a/b:/c", "hf:a/b:", "hf:a/b?c"] {
            assert!(matches!(ModelRef::parse(typed), Err(HubError::BadName(_))), "{typed}");
        }
    }
}
