//! One engine process: its announcements, its log, and its exit.

use std::ffi::OsString;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use baton_protocol::Secret;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::announcement::Announcement;
use crate::error::{LaunchError, Tail};
use crate::log_tail::LogTail;
use crate::screen::Screen;
use crate::start::EngineSeat;

/// A stopping engine that takes longer is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// The key of the gateway's clients, which engines need not know.
const API_KEY: &str = "BATON_API_KEY";

/// Dropping it kills the process.
pub(crate) struct EngineChild {
    process: Child,
    /// The child exits when this pipe is closed.
    stdin: Option<ChildStdin>,
    announcements: mpsc::Receiver<Announcement>,
    log: JoinHandle<()>,
    tail: Arc<LogTail>,
}

impl EngineChild {
    pub(crate) async fn spawn(seat: &EngineSeat, args: &[OsString]) -> Result<Self, LaunchError> {
        let mut command = Command::new(&seat.plan.program.path);
        command
            .args(&seat.plan.program.arguments)
            .args(args)
            .env(Secret::ENV, seat.plan.secret.reveal())
            .env_remove(API_KEY);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let failed = |source| LaunchError::Spawn { name: seat.name().to_owned(), source };
        let mut process = seat.spawner.spawn(command).await.map_err(failed)?;
        let (stdin, stdout, stderr) = (process.stdin.take(), process.stdout.take(), process.stderr.take());
        let (Some(stdout), Some(stderr)) = (stdout, stderr) else {
            return Err(failed(io::Error::other("no pipes")));
        };
        let tail = Arc::new(LogTail::default());
        let (announced, announcements) = mpsc::channel(16);
        tokio::spawn(read_announcements(stdout, announced));
        let log = tokio::spawn(read_log(stderr, seat.name().to_owned(), Arc::clone(&tail), seat.screen.clone()));
        Ok(Self { process, stdin, announcements, log, tail })
    }

    /// The next announcement; the address is the last one that is returned. `None` when the process has exited, which closes its
    /// standard output.
    pub(crate) async fn announcement(&mut self) -> Option<Announcement> {
        let announcement = self.announcements.recv().await;
        if let Some(Announcement::Listening { .. }) = announcement {
            self.announcements.close();
        }
        announcement
    }

    pub(crate) async fn exited(&mut self) -> io::Result<ExitStatus> {
        self.process.wait().await
    }

    /// Asks the process to exit, and kills it if it takes too long. The log tail is complete when this returns.
    pub(crate) async fn end(&mut self) -> io::Result<ExitStatus> {
        self.stdin = None;
        let status = match timeout(STOP_TIMEOUT, self.process.wait()).await {
            Ok(status) => status,
            Err(_) => {
                self.process.start_kill()?;
                self.process.wait().await
            }
        };
        // The log ends when the pipe is closed, unless a process that the engine started holds it open.
        let _ = timeout(STOP_TIMEOUT, &mut self.log).await;
        status
    }

    /// Kills the process without asking it to exit: it may be suspended, and would not react.
    pub(crate) async fn kill(&mut self) -> io::Result<()> {
        self.process.kill().await?;
        let _ = timeout(STOP_TIMEOUT, &mut self.log).await;
        Ok(())
    }

    pub(crate) fn log_tail(&self) -> Tail {
        self.tail.lines()
    }
}

async fn read_announcements(stdout: impl AsyncRead + Unpin, announced: mpsc::Sender<Announcement>) {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        match Announcement::parse(&line) {
            // What comes after the address is not used, but a full pipe would block the engine.
            Some(announcement) => drop(announced.send(announcement).await),
            None => tracing::warn!(line, "an engine wrote a line that is not an announcement"),
        }
    }
}

async fn read_log(stderr: impl AsyncRead + Unpin, name: String, tail: Arc<LogTail>, screen: Screen) {
    let mut input = BufReader::new(stderr);
    let mut bytes = Vec::new();
    while let Ok(1..) = input.read_until(b'\n', &mut bytes).await {
        let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
        screen.log(&name, &line);
        tail.push(line);
        bytes.clear();
    }
}
