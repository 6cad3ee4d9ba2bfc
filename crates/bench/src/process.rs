//! A server that is started for a measurement.

mod session;

use std::collections::VecDeque;
use std::net::{Ipv4Addr, TcpListener};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

pub(crate) use self::session::ProcessSession;

use crate::client::HttpClient;
use crate::error::BenchError;
use crate::plan::LoadPlan;
use crate::probe::Server;

/// In a command: a port that is free.
pub(crate) const PORT: &str = "{port}";
const PROBE_EVERY: Duration = Duration::from_millis(200);
/// A server that takes longer to stop is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
const LOG_LINES: usize = 30;
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(1);

/// Dropping it kills the server, and all it has started.
pub(crate) struct ServerProcess {
    pub(crate) port: u16,
    child: Mutex<Child>,
    pub(crate) session: ProcessSession,
    log: Arc<Mutex<VecDeque<String>>>,
    readers: Mutex<[Option<JoinHandle<()>>; 2]>,
}

impl ServerProcess {
    /// Must be called by a thread that lives as long as the process: when that thread ends, the server is killed.
    pub(crate) fn start(command: &str) -> Result<Self, BenchError> {
        let failed = |error: std::io::Error| BenchError::System(format!("cannot start `{command}`: {error}"));
        let port = free_port().map_err(failed)?;
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(command.replace(PORT, &port.to_string()));
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        in_a_session_of_its_own(&mut shell);
        let mut child = shell.spawn().map_err(failed)?;
        let log = Arc::default();
        let out = child.stdout.take().map(|out| tokio::spawn(keep_lines(out, Arc::clone(&log))));
        let err = child.stderr.take().map(|err| tokio::spawn(keep_lines(err, Arc::clone(&log))));
        let session = ProcessSession(child.id().ok_or_else(|| failed(std::io::Error::other("it ended at once")))?);
        Ok(Self { port, session, child: Mutex::new(child), log, readers: Mutex::new([out, err]) })
    }

    /// How it ended, if it did.
    fn ended(&self) -> Option<String> {
        let status = self.child.lock().unwrap_or_else(PoisonError::into_inner).try_wait();
        status.ok().flatten().map(|status| status.to_string())
    }

    /// When it has ended: pipes may still hold some of its output.
    async fn last_words(&self) -> String {
        let readers = std::mem::take(&mut *self.readers.lock().unwrap_or_else(PoisonError::into_inner));
        for reader in readers.into_iter().flatten() {
            // Whatever it has started may keep them open.
            let _ = timeout(LAST_WORDS_TIMEOUT, reader).await;
        }
        self.log_tail()
    }

    fn log_tail(&self) -> String {
        let lines = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().fold(String::new(), |text, line| text + "\n  | " + line)
    }

    pub(crate) async fn stop(self) {
        self.session.signal(libc::SIGTERM);
        let ended = async {
            while self.ended().is_none() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        // Whatever is left is killed when this is dropped.
        let _ = timeout(STOP_TIMEOUT, ended).await;
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.session.signal(libc::SIGKILL);
    }
}

/// Waits until the server answers a request.
pub(crate) async fn ready(
    plan: &LoadPlan,
    client: &Arc<HttpClient>,
    process: Option<&ServerProcess>,
    patience: Duration,
) -> Result<Server, BenchError> {
    let began = Instant::now();
    loop {
        let failure = match plan.probe(client).await {
            Ok(server) => return Ok(server),
            Err(failure) => failure,
        };
        let ended = process.and_then(|process| process.ended().map(|status| (process, status)));
        if let Some((process, status)) = ended {
            let message = format!("the server ended with {status}{}", process.last_words().await);
            return Err(BenchError::Server { url: client.target.to_string(), message });
        }
        if began.elapsed() >= patience {
            let log = process.map_or(String::new(), ServerProcess::log_tail);
            let message = format!("not ready after {} s: {failure}{log}", patience.as_secs());
            return Err(BenchError::Server { url: client.target.to_string(), message });
        }
        sleep(PROBE_EVERY).await;
    }
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

async fn keep_lines(input: impl AsyncRead + Unpin, log: Arc<Mutex<VecDeque<String>>>) {
    let mut input = BufReader::new(input);
    let mut bytes = Vec::new();
    while let Ok(1..) = input.read_until(b'\n', &mut bytes).await {
        let mut lines = log.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push_back(String::from_utf8_lossy(&bytes).trim_end().to_owned());
        if lines.len() > LOG_LINES {
            lines.pop_front();
        }
        bytes.clear();
    }
}

/// It is killed when this process ends, and its own children can be found.
#[allow(unsafe_code, reason = "session and parent-death signal can only be set between fork and exec")]
fn in_a_session_of_its_own(command: &mut Command) {
    // SAFETY: the closure runs in the forked child and makes two async-signal-safe calls.
    unsafe {
        command.pre_exec(|| {
            if libc::setsid() == -1 || libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == -1 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
}
