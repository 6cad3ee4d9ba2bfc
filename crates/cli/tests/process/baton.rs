//! `baton serve`, started and ended by a test.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Long enough for a loaded machine; nothing here takes a second otherwise.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_baton"));
    // A folder without a baton.toml.
    command.args(arguments).current_dir(std::env::temp_dir());
    for name in ["BATON_LOG", "BATON_SECRET", "BATON_API_KEY", "OPENAI_API_KEY"] {
        command.env_remove(name);
    }
    command
}

pub(crate) fn run(arguments: &[&str]) -> Output {
    command(arguments).stdin(Stdio::null()).output().unwrap()
}

pub(crate) struct Baton {
    process: Child,
    pub(crate) address: SocketAddr,
    log: Arc<Mutex<String>>,
}

impl Baton {
    /// Returns when it reports that it serves.
    pub(crate) fn serve(flags: &[&str]) -> Self {
        Self::serve_in(flags, &[])
    }

    /// `variables` are added to the environment.
    pub(crate) fn serve_in(flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let arguments = [&["serve", "--router-port", "0"], flags].concat();
        let mut command = command(&arguments);
        command.envs(variables.iter().copied()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (stdout, stderr) = (process.stdout.take().unwrap(), process.stderr.take().unwrap());
        thread::spawn({
            let log = Arc::clone(&log);
            move || {
                BufReader::new(stderr).lines().map_while(Result::ok).for_each(|line| {
                    eprintln!("{line}");
                    *log.lock().unwrap() += &(line + "\n");
                })
            }
        });
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        let address = lines.find_map(|line| line.split_once(" at http://")?.1.parse().ok());
        thread::spawn(move || lines.for_each(|line| eprintln!("{line}")));
        let address = address.unwrap_or_else(|| panic!("did not serve: {:?}", process.wait()));
        Self { process, address, log }
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn engines(&self) -> Vec<u32> {
        children(self.process.id())
    }

    pub(crate) fn signal(&self, signal: &str) {
        send(signal, self.process.id());
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        eventually("the end of the process", || self.process.try_wait().unwrap())
    }
}

impl Drop for Baton {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn send(signal: &str, pid: u32) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

pub(crate) fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let files = threads.map(|thread| thread.unwrap().path().join("children"));
    files
        .flat_map(|file| {
            let pids = fs::read_to_string(file).unwrap_or_default();
            pids.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>()
        })
        .collect()
}

pub(crate) fn is_running(pid: u32) -> bool {
    let mut stat = String::new();
    let Ok(mut file) = fs::File::open(format!("/proc/{pid}/stat")) else { return false };
    file.read_to_string(&mut stat).is_ok() && !stat.contains(") Z")
}

pub(crate) fn eventually<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A fresh directory that is removed with its guard.
pub(crate) struct TempDir(pub(crate) PathBuf);

impl TempDir {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("baton-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
