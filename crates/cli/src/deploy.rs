//! The common part of the commands `serve` and `router`: runs a deployment until a signal stops it.

use std::io::{self, Write};

use baton_launcher::Shutdown;

use crate::deployment::Deployment;
use crate::failure::Failure;

/// Runs an asynchronous command on a runtime of its own.
pub(crate) fn block_on(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::ours)?;
    let ended = runtime.block_on(command);
    // A tokenizer may still be busy with a long prompt whose client is gone.
    runtime.shutdown_background();
    ended
}

pub(crate) fn on_signals() -> Result<Shutdown, Failure> {
    Shutdown::on_signals().map_err(Failure::ours)
}

pub(crate) async fn deploy(mut deployment: Deployment) -> Result<(), Failure> {
    let address = deployment.listen().await?;
    if deployment.launch().await? {
        // Standard output may be closed.
        let mut out = io::stdout();
        let _ = write!(out, "{}", deployment.banner(address)).and_then(|()| out.flush());
        deployment.until_stopped().await?;
    }
    Ok(())
}
