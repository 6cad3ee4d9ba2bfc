//! `baton bench` and `baton chat`, which are clients of servers.

use baton_bench::{BenchCommand, BenchError, ChatOptions};

use crate::failure::Failure;

pub(crate) fn bench(command: &BenchCommand) -> Result<(), Failure> {
    block_on(baton_bench::run(command))
}

pub(crate) fn chat(options: &ChatOptions) -> Result<(), Failure> {
    block_on(baton_bench::chat(options))
}

fn block_on(work: impl Future<Output = Result<(), BenchError>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::ours)?;
    let done = runtime.block_on(work);
    // A name lookup that is under way cannot be cancelled.
    runtime.shutdown_background();
    done.map_err(|error| if error.is_usage() { Failure::user(error) } else { Failure::ours(error) })
}
