//! Downloads one file into the cache. It resumes what an earlier attempt left, and is verified before it gets its final name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use crate::HubError;
use crate::cache::RepoCache;
use crate::checksum::EtagHash;
use crate::client::{HubClient, RemoteFile};

/// Attempts in a row without a byte of progress.
const MAX_FAILURES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const BUFFER_BYTES: usize = 1 << 20;

/// Puts the bytes of `file` into a blob. `progress` gets the number of bytes so far.
pub(crate) fn download(
    client: &HubClient,
    cache: &RepoCache,
    file: &RemoteFile,
    progress: &mut dyn FnMut(u64),
) -> Result<(), HubError> {
    let blob = cache.blob(&file.etag);
    let is_here = || blob.metadata().is_ok_and(|found| found.len() == file.len);
    if is_here() {
        progress(file.len);
        return Ok(());
    }
    let path = cache.blob(&format!("{}.incomplete", file.etag));
    let mut part = IncompleteFile::open(&path, file)?;
    progress(part.len);
    // Another process that held the lock may have finished the download.
    if is_here() {
        return Ok(());
    }
    let mut failures = 0;
    while part.len < file.len {
        let before = part.len;
        let problem = match part.receive(client, file, progress) {
            Ok(()) => continue,
            Err(Stop::GiveUp(error)) => return Err(error),
            Err(Stop::Retry(problem)) => problem,
        };
        failures = if part.len > before { 1 } else { failures + 1 };
        if failures >= MAX_FAILURES {
            return Err(HubError::Interrupted { file: file.name.clone(), times: failures, problem });
        }
        std::thread::sleep(FIRST_PAUSE * 2u32.pow(failures - 1));
    }
    part.check(file)?;
    fs::rename(&path, &blob).map_err(HubError::disk(&blob, 0))
}

enum Stop {
    /// The transfer broke off; the bytes so far are kept.
    Retry(String),
    GiveUp(HubError),
}

/// An incomplete file that this process alone writes.
struct IncompleteFile<'a> {
    path: &'a Path,
    file: File,
    len: u64,
    checksum: Option<EtagHash>,
}

impl<'a> IncompleteFile<'a> {
    /// Opens the file and hashes what an earlier attempt left in it.
    fn open(path: &'a Path, remote: &RemoteFile) -> Result<Self, HubError> {
        let disk = || HubError::disk(path, remote.len);
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = open.map_err(disk())?;
        // Waits for another pull of the same file, which finishes it or leaves the rest.
        file.lock().map_err(disk())?;
        let mut checksum = EtagHash::new(&remote.etag, remote.len);
        let mut len = 0;
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            match file.read(&mut buffer).map_err(disk())? {
                0 => break,
                read => {
                    checksum.iter_mut().for_each(|checksum| checksum.update(&buffer[..read]));
                    len += read as u64;
                }
            }
        }
        let mut this = Self { path, file, len, checksum };
        if len > remote.len {
            this.restart(remote).map_err(disk())?;
        }
        Ok(this)
    }

    fn receive(&mut self, client: &HubClient, remote: &RemoteFile, progress: &mut dyn FnMut(u64)) -> Result<(), Stop> {
        let path = self.path;
        let disk = || HubError::disk(path, remote.len);
        let mut transfer = client.transfer(remote, self.len).map_err(|error| match error {
            HubError::Unreachable { problem, .. } => Stop::Retry(problem),
            HubError::Refused { status: status @ 500.., .. } => Stop::Retry(format!("status {status}")),
            error => Stop::GiveUp(error),
        })?;
        if transfer.begin != self.len {
            self.restart(remote).map_err(|error| Stop::GiveUp(disk()(error)))?;
        }
        let mut buffer = vec![0; BUFFER_BYTES];
        while self.len < remote.len {
            let read = match transfer.bytes.read(&mut buffer) {
                Ok(0) => return Err(Stop::Retry("the connection was closed early".to_owned())),
                Ok(read) => read.min((remote.len - self.len) as usize),
                Err(error) => return Err(Stop::Retry(error.to_string())),
            };
            self.file.write_all(&buffer[..read]).map_err(|error| Stop::GiveUp(disk()(error)))?;
            self.checksum.iter_mut().for_each(|checksum| checksum.update(&buffer[..read]));
            self.len += read as u64;
            progress(self.len);
        }
        Ok(())
    }

    fn restart(&mut self, remote: &RemoteFile) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.checksum = EtagHash::new(&remote.etag, remote.len);
        self.len = 0;
        Ok(())
    }

    /// Deletes the file if its hash is not the expected one, so that the next attempt does not build on it.
    fn check(self, remote: &RemoteFile) -> Result<(), HubError> {
        self.file.sync_all().map_err(HubError::disk(self.path, remote.len))?;
        match self.checksum.and_then(EtagHash::mismatch) {
            None => Ok(()),
            Some(got) => {
                fs::remove_file(self.path).map_err(HubError::disk(self.path, 0))?;
                Err(HubError::Corrupt { file: remote.name.clone(), expected: remote.etag.clone(), got })
            }
        }
    }
}
