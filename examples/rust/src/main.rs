//! Serving strategies of one's own, each in a file, composed from the three calls to engines.
//!
//! ```text
//! cargo run --release -p baton-examples -- balanced --prefill 1 --decode 1
//! ```

mod balanced;
mod cache_aware;
mod context_migration;
mod data_parallel;
mod many_prefill_many_decode;
mod one_prefill_one_decode;
mod pick;

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use baton_cli::Failure;
use baton_launcher::{Screen, Shutdown};
use baton_router::{Strategy, from_fn};

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    let name = arguments.next().unwrap_or_default();
    // Engines are this program once more, with the arguments of `baton engine`.
    if name == "engine" {
        return ExitCode::from(baton_cli::main(env::args_os()));
    }
    let Some(strategy) = strategy(&name.to_string_lossy()) else {
        eprintln!("there is no strategy {name:?}");
        return ExitCode::from(2);
    };
    match serve(strategy, arguments.collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn strategy(name: &str) -> Option<Arc<dyn Strategy>> {
    Some(match name {
        "data-parallel" => Arc::new(from_fn("data-parallel", data_parallel::route)),
        "one-prefill-one-decode" => Arc::new(from_fn("one-prefill-one-decode", one_prefill_one_decode::route)),
        "many-prefill-many-decode" => Arc::new(from_fn("many-prefill-many-decode", many_prefill_many_decode::route)),
        "cache-aware" => Arc::new(from_fn("cache-aware", cache_aware::route)),
        "balanced" => Arc::new(from_fn("balanced", balanced::route)),
        "context-migration" => Arc::new(from_fn("context-migration", context_migration::route)),
        _ => return None,
    })
}

/// `baton serve` with these arguments, but routed by `strategy`.
#[tokio::main]
async fn serve(strategy: Arc<dyn Strategy>, arguments: Vec<OsString>) -> Result<(), Box<dyn std::error::Error>> {
    let failed = |failure: Failure| failure.to_string();
    let screen = Screen::stderr();
    baton_cli::start_logging(&screen).map_err(failed)?;
    let mut deployment = baton_cli::prepare(arguments, Shutdown::on_signals()?, screen).await.map_err(failed)?;
    deployment.dispatcher().set_strategy(strategy);
    let address = deployment.listen().await.map_err(failed)?;
    if deployment.launch().await.map_err(failed)? {
        println!("Serving at http://{address}");
        deployment.until_stopped().await.map_err(failed)?;
    }
    Ok(())
}
