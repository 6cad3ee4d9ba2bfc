//! Load for any server that speaks OpenAI's API, and what came of it. What the user typed arrives from the command line
//! ([`BenchCommand`]); a table, a file and a page leave.
//!
//! ```text
//! options → plan ──▶ workload: which chats        probe: what the server understands
//!                       ▼                            ▼
//!                    schedule: when            body: bytes of a request
//!                       ▼                            ▼
//!                    drive: closed or open loop → run: a chat, turn by turn → exchange: one request, timed → client, sse
//!                       ▼
//!                    record → summary, series, goodput → report: table, file, page
//! ```
//!
//! `micro` measures parts of Baton by themselves instead: kernels, the hand-off of KV, the router.
//!
//! Latencies count from the time at which a request should have been sent, so a slow server, or a slow client, cannot hide
//! itself by holding up what comes after.

mod body;
mod chat;
mod client;
mod compare;
mod drive;
mod error;
mod exchange;
mod goodput;
mod limits;
mod live;
pub mod measure;
mod micro;
mod options;
mod plan;
mod probe;
mod process;
mod quantity;
pub mod random;
mod record;
mod report;
mod run;
mod schedule;
mod series;
mod serve;
mod spread;
mod sse;
mod summary;
mod target;
mod units;
pub mod workload;

/// Parts of pages with plots, for reports of other measurements.
pub mod page {
    pub use crate::report::{Axis, Plot, PlotLine, PlotMark, Style, document, escape, legend, verdict};
    pub use crate::units::{digits, grouped};
}

pub use chat::{ChatOptions, chat};
pub use error::BenchError;
pub use options::BenchCommand;

/// Runs the command, and prints the result to standard output.
pub async fn run(command: &BenchCommand) -> Result<(), BenchError> {
    match command {
        BenchCommand::Serve(options) => serve::serve(options).await,
        BenchCommand::Compare(options) => compare::compare(options).await,
        BenchCommand::Report(options) => report::report(options),
        BenchCommand::Micro(options) => micro::micro(options).await,
    }
}
