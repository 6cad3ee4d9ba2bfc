//! What the user typed.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use crate::quantity::{Ramp, Warmup, parse_duration, parse_share};
use crate::schedule::Spacing;
use crate::target::ServerUrl;
use crate::workload::lengths::Lengths;

#[derive(Subcommand, Debug)]
pub enum BenchCommand {
    /// Load a server, report latency, throughput and goodput
    #[command(after_help = "Examples:
  baton bench serve                                                one user, 512 tokens in, 128 out
  baton bench serve --users 16 --input 100..900 --html report.html
  baton bench serve --rate 10 --duration 60s --slo-ttft 200ms --slo-tpot 50ms
  baton bench serve --find-goodput --slo-ttft 200ms --slo-tpot 50ms
  baton bench serve --trace conversation.jsonl --speed 10 --length-scale 0.1")]
    Serve(Box<BenchServeOptions>),

    /// Start servers alternately, A B, B A, …, load each, and print ratios with how sure they are
    #[command(after_help = "Examples:
  baton bench compare --a 'baton serve --port {port}' --b 'vllm serve MODEL --port {port}' --users 8
  baton bench compare --a 'old/baton serve --port {port}' --b 'new/baton serve --port {port}' --labels old,new

A command that is a URL is a server that already runs.")]
    Compare(Box<CompareOptions>),

    /// Compare saved results: a table with ratios, and a page with plots
    #[command(after_help = "Example:
  baton bench report before.json after.json --html comparison.html")]
    Report(ReportOptions),

    /// Measure parts of Baton on this machine, each beside what the machine could do at the same moment
    #[command(after_help = "Examples:
  baton bench micro                          kernels, hand-off of KV and router, in about a minute
  baton bench micro --only kernels --rounds 15 --json kernels.json")]
    Micro(MicroOptions),
}

#[derive(Args, Debug)]
pub struct BenchServeOptions {
    /// The server: anything that speaks OpenAI's API over http
    #[arg(long, default_value = "http://127.0.0.1:8000", value_name = "URL")]
    pub(crate) url: ServerUrl,

    #[command(flatten)]
    pub(crate) load: LoadOptions,

    /// Search for the highest rate that meets the objectives, with runs of --duration each
    #[arg(long, conflicts_with_all = ["users", "requests", "trace"])]
    pub(crate) find_goodput: bool,

    /// Save the result, for `baton bench report`
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Save the result as a page with plots
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// What to call this result in tables and plots
    #[arg(long, value_name = "NAME")]
    pub(crate) label: Option<String>,
}

#[derive(Args, Debug)]
pub struct CompareOptions {
    /// Starts the first server; {port} stands for a free port
    #[arg(long, value_name = "COMMAND")]
    pub(crate) a: String,

    /// Starts the second
    #[arg(long, value_name = "COMMAND")]
    pub(crate) b: String,

    /// Starts a third
    #[arg(long, value_name = "COMMAND")]
    pub(crate) c: Option<String>,

    /// Starts a fourth
    #[arg(long, value_name = "COMMAND", requires = "c")]
    pub(crate) d: Option<String>,

    /// What to call them, separated by commas [default: A,B,…]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) labels: Vec<String>,

    /// Where a started server is found
    #[arg(long, default_value = "http://127.0.0.1:{port}", value_name = "URL")]
    pub(crate) url: String,

    /// How often each server is measured, at least 5 times
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(5..), value_name = "N")]
    pub(crate) rounds: u32,

    /// How long a server may take until it answers
    #[arg(long, default_value = "300s", value_parser = parse_duration, value_name = "TIME")]
    pub(crate) start_timeout: Duration,

    #[command(flatten)]
    pub(crate) load: LoadOptions,

    /// Save the result
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Save the result as a page with plots, those of each server's median round
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// What is sent, and when; the same for every server that is compared.
#[derive(Args, Clone, Debug)]
pub(crate) struct LoadOptions {
    /// Length of prompts in tokens: 512, 100..900, normal:512:64, lognormal:400:0.8 or exp:300
    #[arg(long, default_value = "512", value_name = "LENGTH", help_heading = "Workload")]
    pub(crate) input: Lengths,

    /// Length of answers, written like --input
    #[arg(long, default_value = "128", value_name = "LENGTH", help_heading = "Workload")]
    pub(crate) output: Lengths,

    /// Share of each prompt that is the same for all
    #[arg(long, default_value = "0", value_parser = parse_share, value_name = "SHARE", help_heading = "Workload")]
    pub(crate) shared_prefix: f64,

    /// How many different shared prefixes there are
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..), value_name = "N", help_heading = "Workload")]
    pub(crate) prefix_groups: u32,

    /// Turns of each chat, written like --input; each carries all turns before it
    #[arg(long, default_value = "1", value_name = "LENGTH", help_heading = "Workload")]
    pub(crate) turns: Lengths,

    /// Pause of a user before the next turn of a chat
    #[arg(long, default_value = "0s", value_parser = parse_duration, value_name = "TIME", help_heading = "Workload")]
    pub(crate) think: Duration,

    /// Replay a trace (JSON lines: timestamp in ms, input_length, output_length, hash_ids of blocks of 512 tokens)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["input", "output", "shared_prefix", "prefix_groups", "turns"], help_heading = "Workload")]
    pub(crate) trace: Option<PathBuf>,

    /// Replay the trace this many times as fast
    #[arg(long, default_value_t = 1.0, value_parser = positive, value_name = "FACTOR", requires = "trace", help_heading = "Workload")]
    pub(crate) speed: f64,

    /// Make prompts and answers of the trace longer or shorter; what was shared stays shared
    #[arg(long, default_value_t = 1.0, value_parser = positive, value_name = "FACTOR", requires = "trace", help_heading = "Workload")]
    pub(crate) length_scale: f64,

    /// The same seed sends the same requests
    #[arg(long, default_value_t = 1, help_heading = "Workload")]
    pub(crate) seed: u64,

    /// Closed loop: this many users, each waiting for its answer; 1..64 adds them over the run [default: 1]
    #[arg(long, value_name = "N", conflicts_with = "rate", help_heading = "Arrivals")]
    pub(crate) users: Option<Ramp>,

    /// Open loop: requests (or chats) per second, whatever the server does; 2..20 raises it over the run
    #[arg(long, value_name = "R", help_heading = "Arrivals")]
    pub(crate) rate: Option<Ramp>,

    /// How requests of an open loop are spaced
    #[arg(long, default_value = "poisson", help_heading = "Arrivals")]
    pub(crate) arrivals: Spacing,

    /// Start requests for so long [default: 30s, or to the end of the trace]
    #[arg(long, value_parser = parse_duration, value_name = "TIME", conflicts_with = "requests", help_heading = "Arrivals")]
    pub(crate) duration: Option<Duration>,

    /// Send this many requests
    #[arg(long, value_name = "N", help_heading = "Arrivals")]
    pub(crate) requests: Option<u64>,

    /// What to leave out of the result: 10% of the run, 5s, or 20 requests
    #[arg(long, default_value = "10%", value_name = "AMOUNT", help_heading = "Arrivals")]
    pub(crate) warmup: Warmup,

    /// Give a request up after this
    #[arg(long, default_value = "300s", value_parser = parse_duration, value_name = "TIME", help_heading = "Arrivals")]
    pub(crate) timeout: Duration,

    /// Open at most this many connections; what has to wait for one is reported
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..), value_name = "N", help_heading = "Arrivals")]
    pub(crate) max_connections: u32,

    /// Time to first token that a request must meet
    #[arg(long, value_parser = parse_duration, value_name = "TIME", help_heading = "Objectives")]
    pub(crate) slo_ttft: Option<Duration>,

    /// Time per output token that a request must meet
    #[arg(long, value_parser = parse_duration, value_name = "TIME", help_heading = "Objectives")]
    pub(crate) slo_tpot: Option<Duration>,

    /// Share of requests that must meet both
    #[arg(long, default_value = "90%", value_parser = parse_share, value_name = "SHARE", help_heading = "Objectives")]
    pub(crate) slo_share: f64,

    #[command(flatten)]
    pub(crate) server: ServerOptions,
}

/// What the server is like. What is not given is found out.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServerOptions {
    /// Which model to request [default: the first of /v1/models]
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    pub(crate) model: Option<String>,

    /// Sent as a bearer token [default: BATON_API_KEY or OPENAI_API_KEY of the environment]
    #[arg(long, value_name = "KEY", help_heading = "Server")]
    pub(crate) api_key: Option<String>,

    /// Which route to use
    #[arg(long, default_value = "auto", help_heading = "Server")]
    pub(crate) api: ApiChoice,

    /// Prompts as token ids (exact lengths) or as words (about a token each)
    #[arg(long, default_value = "auto", help_heading = "Server")]
    pub(crate) prompt: PromptChoice,

    /// Size of the vocabulary, for prompts as token ids [default: as /v1/models reports, else 1024]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "N", help_heading = "Server")]
    pub(crate) vocab: Option<u32>,

    /// Fields to add to each request, as a JSON object
    #[arg(long, value_name = "JSON", value_parser = json_object, help_heading = "Server")]
    pub(crate) body: Option<JsonObject>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ApiChoice {
    /// Completions where the server has them
    Auto,
    Completions,
    Chat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PromptChoice {
    /// Ids where the server takes them
    Auto,
    Ids,
    Text,
}

/// A named type, since the command line would take a bare map for a list of options.
#[derive(Clone, Debug)]
pub(crate) struct JsonObject(pub(crate) serde_json::Map<String, serde_json::Value>);

#[derive(Args, Debug)]
pub struct ReportOptions {
    /// Results of `baton bench serve --json`; ratios are to the first
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Save a page with plots
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct MicroOptions {
    /// What to measure, separated by commas [default: all]
    #[arg(long, value_name = "PARTS", value_delimiter = ',')]
    pub(crate) only: Vec<MicroPart>,

    /// How often everything is measured, in turns
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub(crate) rounds: u32,

    /// Compute threads of the kernels [default: one per core]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub(crate) threads: Option<u32>,

    /// Save the result
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MicroPart {
    /// Matrix products, attention and norms, beside arithmetic and memory at their fastest
    Kernels,
    /// KV from one engine to another, beside memcpy and loopback tcp
    Handoff,
    /// Requests through the router, beside the same mock engines without it
    Router,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        _ => Err(format!("`{text}` is not a positive number")),
    }
}

fn json_object(text: &str) -> Result<JsonObject, String> {
    serde_json::from_str(text).map(JsonObject).map_err(|error| format!("not a JSON object: {error}"))
}
